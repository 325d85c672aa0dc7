"""A training's first thousand steps: `OMP_NUM_THREADS=1 python nbs/measure/first.py MNIST_FOLDER METHOD [STEPS]`.

The preset of the paper's size, with seed 0, on the whole of MNIST at 64 pixels. Most of an image is black, so a model
may begin by drawing black, and stay there. Every 50 steps 64 styled digits, none of them trained on, are rebuilt; their
mean absolute error, which is (c) but for constants, is compared with that of black images. Rows go into first.csv
beside this file. Twenty minutes for rbvae and an hour for srbvae, on a core; a run that was stopped goes on
from its checkpoint in the folder first/.
"""
import sys
from pathlib import Path

import pandas as pd
import torch
from rbvae_nb.digits import digit_styles
from rbvae_nb.images import to_float
from rbvae_nb.methods import METHODS, Method
from rbvae_nb.training import train
from rows import put_rows

RESULTS = Path(__file__).with_name('first.csv')
KEY = ['method', 'step']


def errors(model: Method, images: torch.Tensor) -> tuple[float, float]:
    """Mean absolute error of the reconstructions, and of black images in their place."""
    x = to_float(images)
    return float((model.reconstruct(images) - x).abs().mean()), float((x + 1).abs().mean())


def add(row: dict) -> None:
    """Into the table."""
    found = pd.DataFrame([row]).round(4).set_index(KEY)
    put_rows(found, RESULTS)


def first_steps(method: str, folder: str, steps: int) -> None:
    """A row for every 50 steps."""
    data = digit_styles(64, source=folder)
    model, recipe = METHODS.find(method).preset('paper', seed=0)
    if recipe.get('warmup') or recipe.get('decay'): raise SystemExit('expected a preset whose learning rate stays')
    images = data.fit.images[:64]
    def look(step: int, row: dict) -> None:
        drawn, black = errors(model.eval(), images)
        model.train()
        add(dict(method=method, step=step, error=drawn, black=black, seconds=row['seconds']))
        print(f'{step}: {drawn:.4f} ({black:.4f} for black)', flush=True)
    recipe |= dict(steps=steps)
    train(model, data.sets, **recipe, out=Path('first') / method, checkpoint_every=50, log_every=50, callback=look,
          progress=False)


if __name__ == '__main__':
    folder, method, *steps = sys.argv[1:]
    first_steps(method, folder, int(*steps or [1000]))
