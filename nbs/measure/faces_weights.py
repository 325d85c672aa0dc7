"""Weights of faces for the package: `OMP_NUM_THREADS=1 python nbs/measure/faces_weights.py rbvae srbvae`.

Takes the models that faces.py has trained with seed 0, in the folder faces/ of where this is started, trains what is
not there, and saves them as float16 in rbvae_nb/weights/NAME-faces.safetensors, each with a model card beside it.
"""
import sys
from pathlib import Path

import pandas as pd
from faces import CHANGES, known, trained
from weights import WEIGHTS, card, made_by

from rbvae_nb.attributes import classifier_for
from rbvae_nb.expressions import judge_swaps
from rbvae_nb.faces import drawn_faces, sample_faces
from rbvae_nb.files import write_whole
from rbvae_nb.methods import METHODS, load
from rbvae_nb.table import markdown

LIMITS = """\
* The model knows drawings by `rbvae_nb.faces`, 32×32. Of photographs its codes say nothing.
* In a reconstruction about half of an expression is left, in landmarks.
* It is one training run; another seed gives other numbers, and codes whose dimensions mean something else.
* The file holds what encodes and decodes: no discriminators, and nothing of the optimiser."""


def make(name: str) -> None:
    """Save one model, and describe it."""
    data, path = drawn_faces(), WEIGHTS / f'{name}-faces.safetensors'
    changes, recipe = CHANGES.get(name, {}), METHODS[name].preset('small')[1]
    trained(name, 0, data, changes, Path('faces') / f'{name}-0').save(path, dtype='float16')
    model, judge, faces = load(path), classifier_for(data), sample_faces()['test']
    facts = {
        'Data': f'`drawn_faces()`: {len(data.sets.unlabelled):,} faces with expressions and as many at rest',
        'Steps': f'{recipe["steps"]:,} of {recipe["batch_size"]} + {recipe["batch_size"]} images',
        'Seed': '0, of faces, initial weights, batches and samples',
        'Hyperparameters': ', '.join([f'preset `small` of `{type(model).__name__}`',
                                      *(f'`{key}={value}`' for key, value in changes.items())]),
        'Licence of the data': 'drawn by this package',
        'Made by': made_by(f'python nbs/measure/faces_weights.py {name}'),
    }
    knows = pd.DataFrame(known(model, *data.splits())).set_index('code')[['expression', 'person']]
    swaps = pd.DataFrame(judge_swaps(model, data.test.images, faces, judge)).T.rename_axis('images')
    sections = {
        'What the codes know': 'Of test images, the share of expressions (chance is 14 %) and people (5 %) that a '
                               f'line reads rightly:\n\n{markdown(knows.map("{:.3f}".format))}',
        'What it draws': 'As a judge sees it: the right person, the own and the giver\'s expression, and how much of '
                         'either is in the landmarks (lesson 12a says how):\n\n'
                         + markdown(swaps.map('{:.3f}'.format)),
        'Intended use': f"Lesson 12a_expressions, the explorer and the live page: `load('{name}-faces')`.",
        'Limits': LIMITS,
    }
    summary = f'{model.title} for 32×32 drawn faces: encoders and generator, as float16.'
    write_whole(path.with_suffix('.md'), card(path.stem, summary, facts, sections).encode())


if __name__ == '__main__':
    for name in sys.argv[1:] or ('rbvae', 'srbvae'): make(name)
