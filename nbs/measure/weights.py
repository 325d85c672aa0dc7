"""Make the weights inside the package: `python nbs/measure/weights.py rbvae srbvae` (about 10 minutes on two cores).

Each method is trained in its small preset, with seed 0, on `digit_styles()`. It is saved as float16 in
rbvae_nb/weights/NAME.safetensors, and described in NAME.md beside it: a model card.
"""
import sys
from pathlib import Path

import torch

from rbvae_nb import __version__
from rbvae_nb.digits import digit_styles
from rbvae_nb.experiments import Experiment
from rbvae_nb.files import write_whole
from rbvae_nb.methods import METHODS, Method, load
from rbvae_nb.probing import probe
from rbvae_nb.table import markdown
from rbvae_nb.training import has_bfloat16, pick_device, train

WEIGHTS = Path(__file__).resolve().parents[2] / 'rbvae_nb/weights'
MNIST = 'MNIST, by Yann LeCun and Corinna Cortes, under CC BY-SA 3.0 (https://creativecommons.org/licenses/by-sa/3.0/)'
LIMITS = """\
* The model knows 32×32 digits with the styles of `digit_styles`. Of other images its codes say nothing.
* It is one training run: another seed gives other numbers, and codes whose dimensions mean something else.
* A linear probe tells what can be read from a code by a line, not that nothing else is in it.
* The file holds what encodes and decodes: no discriminators, and nothing of the optimiser."""


def card(
    name: str,  # of the weight file
    summary: str,  # one sentence
    facts: dict[str, str],  # such as {'Data': ...}
    sections: dict[str, str],  # heading: Markdown
) -> str:
    """A model card in Markdown."""
    listed = '\n'.join(f'* **{what}**: {fact}' for what, fact in facts.items())
    parts = [f'# {name}.safetensors', summary, listed, *(f'## {title}\n\n{text}' for title, text in sections.items())]
    return '\n\n'.join(parts) + '\n'


def made_by(command: str) -> str:
    """How a weight file was made."""
    device = pick_device('auto')
    dtype = 'bfloat16' if has_bfloat16(device) else 'float32'
    threads = f'`OMP_NUM_THREADS={torch.get_num_threads()}`; other numbers of threads add up in another order'
    versions = f'rbvae-nb {__version__} and torch {torch.__version__}'
    return f'`{command}`, in {dtype} ({device.type}, {threads}), with {versions}'


def training_facts(model: Method, recipe: dict, data: Experiment) -> dict[str, str]:
    """Data, steps, seed, hyperparameters, licence and command of a training."""
    unlabelled, reference = len(data.sets.unlabelled), len(data.sets.reference)
    return {
        'Data': f'`digit_styles()`: {unlabelled:,} styled and {reference:,} plain digits, of 8,000 training digits '
                'of MNIST that are inside the package',
        'Steps': f'{recipe["steps"]:,} of {recipe["batch_size"]} + {recipe["batch_size"]} images',
        'Seed': f'{recipe["seed"]}, of initial weights, batches and samples',
        'Hyperparameters': f"preset `small` of `{type(model).__name__}`",
        'Licence of the data': MNIST,
        'Made by': made_by(f'python nbs/measure/weights.py {model.name}'),
    }


def probed(model: Method, data: Experiment) -> str:
    """What linear probes read from the codes of a model, as Markdown."""
    _, test = data.splits()
    table = probe(model, data).rename_axis('code').map('{:.3f}'.format)
    return (f'Linear probes on {len(test):,} styled test digits that no training has seen: {test.target} and its '
            f'factors by mean absolute error, {test.identity} by accuracy. ± is half a 95 % interval.\n\n'
            f'{markdown(table)}')


def make(name: str) -> None:
    """Train one method, save it, and describe what was saved."""
    data, path = digit_styles(), WEIGHTS / f'{name}.safetensors'
    model, recipe = METHODS.find(name).preset('small', seed=0)
    train(model, data.sets, **recipe)
    model.save(path, dtype='float16')
    summary = f'{model.title} for 32×32 digits: encoders and generator, as float16.'
    sections = {
        'What the codes know': probed(load(path), data),
        'Intended use': f"Lessons, demonstrations and tests of rbvae-nb: `load('{name}')` reads it, `rbvae demo "
                        '--pretrained` shows it.',
        'Limits': LIMITS,
    }
    write_whole(path.with_suffix('.md'), card(name, summary, training_facts(model, recipe, data), sections).encode())


if __name__ == '__main__':
    for name in sys.argv[1:] or ('rbvae', 'srbvae'): make(name)
