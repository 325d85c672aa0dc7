"""Train the judge of drawn faces: `OMP_NUM_THREADS=1 python nbs/measure/faces_judge.py`.

An attribute classifier that reads from pixels which of the twenty people of the splits a face is, which expression it
makes, and where its 68 landmarks are. It learns from 28,000 drawings of these people, none of which is in a split, and
is tested on the test split of `drawn_faces`. Writes rbvae_nb/weights/faces-classifier.safetensors as float16, its model
card beside it, and faces-judge.csv beside this file. About ten minutes on a core.
"""
from pathlib import Path

import numpy as np
import pandas as pd
from weights import WEIGHTS, card, made_by

from rbvae_nb.attributes import AttributeClassifier, load_classifier, save_classifier, train_classifier
from rbvae_nb.experiments import Split
from rbvae_nb.faces import Faces, known_people, landmarks, sample_all, sample_faces
from rbvae_nb.files import write_whole
from rbvae_nb.table import markdown

NAME, TIMES, STEPS, SEED = 'faces-classifier', 200, 3000, 1
LIMITS = """\
* It knows the twenty people of the splits, and takes everybody else for one of them.
* It has seen sharp drawings only. It is sure of itself on any picture, also on one of no face.
* It sees 32×32 pixels; larger images are averaged down to that."""


def places(faces: Faces) -> dict[str, np.ndarray]:
    """The landmarks as factors: x0, y0, x1, ... in [-1, 1] over the image."""
    at = landmarks(faces.people, faces.units, faces.views).astype(np.float32)  # (N, 68, 2)
    return {f'{axis}{k}': at[:, k, i] for k in range(at.shape[1]) for i, axis in enumerate('xy')}


def known(faces: Faces) -> Split:
    """Drawings with all that the judge is to read."""
    factors = {'expression': faces.expression} | places(faces)
    return Split(faces.draw(), factors, faces.who, target='faces', identity='person')


def tested(judge: AttributeClassifier, split: Split) -> pd.DataFrame:
    """One row: number of images, accuracy of person and expression, mean distance of the landmarks."""
    who, found = judge.measure(split.images)
    x, y = ([abs(found[f'{axis}{k}'] - split.factors[f'{axis}{k}']) for k in range(68)] for axis in 'xy')
    row = dict(images=len(split), person=(who == split.labels).mean(),
               expression=(found['expression'] == split.factors['expression']).mean(),
               landmarks=np.hypot(x, y).mean() * split.images.shape[-1] / 2)
    return pd.DataFrame([row]).round(4)


def judge_card(table: pd.DataFrame, n_train: int) -> str:
    """The model card."""
    facts = {
        'Data': f'{n_train:,} faces, drawn by `rbvae_nb.faces`: twenty people, seven expressions, {TIMES} times each',
        'Steps': f'{STEPS:,} of 128 images',
        'Seed': f'{SEED}, of the drawings; 0, of initial weights and batches',
        'Hyperparameters': 'the defaults of `train_classifier`',
        'Licence of the data': 'drawn by this package',
        'Made by': made_by('python nbs/measure/faces_judge.py'),
    }
    sections = {
        'What it gets right': 'On the test split of `drawn_faces`, none of whose faces it has seen: accuracy of person '
                              'and expression, mean distance of the landmarks in pixels.\n\n'
                              + markdown(table.astype(str).set_index('images')),
        'Intended use': 'Reading person, expression and landmarks from what a model draws, as in the swap test: '
                        '`classifier_for(drawn_faces())` loads it.',
        'Limits': LIMITS,
    }
    return card(NAME, 'Which person, which expression, and where the landmarks are, as float16.', facts, sections)


if __name__ == '__main__':
    people, path = known_people(), WEIGHTS / f'{NAME}.safetensors'
    learned = known(sample_all(people, TIMES, np.random.default_rng(SEED)))
    save_classifier(train_classifier(learned, STEPS), path, dtype='float16')
    table = tested(load_classifier(path), known(sample_faces()['test']))
    table.to_csv(Path(__file__).with_name('faces-judge.csv'), index=False)
    write_whole(path.with_suffix('.md'), judge_card(table, len(learned)).encode())
    print(table.to_string())
