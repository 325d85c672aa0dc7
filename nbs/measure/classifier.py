"""Train the attribute classifier of `digit_styles`: `python nbs/measure/classifier.py FOLDER`; FOLDER holds MNIST/raw.

It learns from all 60,000 training digits of MNIST, eight styles each, and is tested on the test split of
`digit_styles`, whose digits are of MNIST's test images. Writes rbvae_nb/weights/digits-classifier.safetensors as
float16, its model card beside it, and classifier.csv beside this file.
"""
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from weights import MNIST, WEIGHTS, card, made_by

from rbvae_nb.attributes import AttributeClassifier, load_classifier, save_classifier, train_classifier
from rbvae_nb.digits import digit_styles, load_digits, styled_split
from rbvae_nb.experiments import Split
from rbvae_nb.files import write_whole
from rbvae_nb.probing import factor_errors
from rbvae_nb.table import markdown

NAME, N_STYLES, STEPS, SEED = 'digits-classifier', 8, 10_000, 0
LIMITS = """\
* It knows digits with the styles of `digit_styles`. It is sure of itself on any picture, also on one of no digit.
* Small, thick digits fill their own holes; there it has to guess.
* It sees 32×32 pixels; larger images are averaged down to that."""


def training_split(folder: str) -> Split:
    """All training digits of MNIST, several times each, every time in another style."""
    raw = load_digits(folder)
    rows = np.tile(np.arange(len(raw.train)), N_STYLES)
    return styled_split(raw.train[rows], raw.train_digit[rows], np.random.default_rng(SEED))


def tested(classifier: AttributeClassifier, split: Split) -> pd.DataFrame:
    """One row: number of images, accuracy of the identity, mean absolute error of each factor."""
    labels, factors = classifier.measure(split.images)
    errors = factor_errors(factors, split.factors)
    row = {'images': len(split), split.identity: (labels == split.labels).mean()}
    return pd.DataFrame([row | {name: errors[name].mean() for name in split.factors}]).round(4)


def classifier_card(table: pd.DataFrame, n_train: int) -> str:
    """The model card."""
    shown = table.astype(str).set_index('images')
    facts = {
        'Data': f'{n_train:,} styled digits: all training digits of MNIST, {N_STYLES} styles each',
        'Steps': f'{STEPS:,} of 128 images',
        'Seed': f'{SEED}, of styles, initial weights and batches',
        'Hyperparameters': 'the defaults of `train_classifier`',
        'Licence of the data': MNIST,
        'Made by': made_by('python nbs/measure/classifier.py FOLDER'),
    }
    sections = {
        'What it gets right': "On the test split of `digit_styles`, with digits of MNIST's test images: accuracy of "
                              'the digit, mean absolute errors of the style.\n\n' + markdown(shown),
        'Intended use': 'Reading digit and style from what a model draws, as in the swap test: '
                        '`classifier_for(digit_styles())` loads it.',
        'Limits': LIMITS,
    }
    return card(NAME, 'Which digit, and which style: an attribute classifier, as float16.', facts, sections)


def main(folder: str) -> None:
    """Train, save, test what was saved, describe it."""
    path, learned = WEIGHTS / f'{NAME}.safetensors', training_split(folder)
    save_classifier(train_classifier(learned, STEPS, seed=SEED), path, dtype='float16')
    table = tested(load_classifier(path), digit_styles().splits()[1])
    table.to_csv(Path(__file__).with_name('classifier.csv'), index=False)
    write_whole(path.with_suffix('.md'), classifier_card(table, len(learned)).encode())


if __name__ == '__main__': main(sys.argv[1])
