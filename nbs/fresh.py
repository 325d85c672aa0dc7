"""Probe the models of a table's grid on MNIST digits that nobody has looked at: `python nbs/fresh.py MNIST GRID OUT.csv`.

MNIST is a folder that holds MNIST/raw, GRID one of `rbvae table`. The package embeds 4,000 of MNIST's 10,000 test images,
and its presets were chosen by looking at them. Here are the other 6,000, in styles of their own: one half fits linear
probes, the other judges them.
"""
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from rbvae_nb.digits import Fold, factor_values, load_digits, sample_style, styled_images
from rbvae_nb.probing import answers, bootstrap, codes_of, combined_score
from rbvae_nb.grid import METHODS, read_rows


def fresh_folds(folder: str) -> list[Fold]:
    """Two folds of styled digits that are not among the embedded ones."""
    embedded, raw, rng = {d.tobytes() for d in load_digits().test}, load_digits(folder), np.random.default_rng(2026)
    rows = rng.permutation([i for i, d in enumerate(raw.test) if d.tobytes() not in embedded])
    style = sample_style(len(rows), rng)
    images, values = styled_images(raw.test[rows], style), factor_values(style)
    return [Fold(images[part], raw.test_digit[rows[part]], values[part]) for part in np.array_split(np.arange(len(rows)), 2)]


def main(mnist: str, grid: str, out: str) -> None:
    """A row for each model of the table that has two codes, and code."""
    fit, test = fresh_folds(mnist)
    used = read_rows(Path(grid) / 'table.csv').query('status == "done"')[['method', 'setting', 'seed']].drop_duplicates()
    rows = []
    for method, setting, seed in used.itertuples(index=False):
        if 'e' not in METHODS[method].codes: continue
        folder = Path(grid) / 'runs' / '-'.join(filter(None, (method, setting, f'seed={seed}')))
        model = METHODS[method].load(folder / 'model.safetensors')
        draws = bootstrap(answers(codes_of(model, fit), fit, codes_of(model, test), test))
        rows += [dict(method=method, setting=setting, seed=seed, code=code, images=len(test.digit), style=draws[code, 'style'][0],
                      digit=draws[code, 'digit'][0], score=combined_score(draws)[0]) for code in (*model.codes, 'floor')]
    pd.DataFrame(rows).round(4).to_csv(out, index=False)


if __name__ == '__main__': main(*sys.argv[1:4])
