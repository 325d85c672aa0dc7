"""Probe the models of a sweep on digits that nobody has looked at: `python nbs/measure/fresh.py MNIST SWEEP OUT.csv`.

MNIST is a folder that holds MNIST/raw, SWEEP one of `rbvae table`. The package embeds 4,000 of MNIST's 10,000 test
images, and its presets were chosen by looking at them. Here are the other 6,000, in styles of their own: one half fits
linear probes, the other tests them. A single code is cut into two parts, as in the table, with the help of the labels
of the first half. table/fresh.csv is what this made of the systems with two codes, before it asked single ones.
"""
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from rbvae_nb.digits import load_digits, styled_split
from rbvae_nb.experiments import Split
from rbvae_nb.methods import Method, load
from rbvae_nb.probing import encode_split
from rbvae_nb.sweep import Sweep, asked, divided, in_parts, read_rows, run_config


def fresh_splits(folder: str) -> list[Split]:
    """Two splits of styled digits that are not among the embedded ones."""
    embedded, raw, rng = {d.tobytes() for d in load_digits().test}, load_digits(folder), np.random.default_rng(2026)
    rows = rng.permutation([i for i, digit in enumerate(raw.test) if digit.tobytes() not in embedded])
    whole = styled_split(raw.test[rows], raw.test_digit[rows], rng)
    return [whole.rows(half) for half in np.array_split(np.arange(len(whole)), 2)]


def probed(model: Method, fit: Split, test: Split) -> Iterator[dict]:
    """A row for each code, for the parts of a single one, and for chance; all with the score of the model."""
    own, others = encode_split(model, fit), encode_split(model, test)
    serves = divided(own, fit)
    draws = asked(own, fit, others, test, serves)
    for code in (*in_parts(own, serves), 'chance'):
        yield {'code': code, 'images': len(test), 'target': draws[code, 'target'][0],
               'identity': draws[code, 'identity'][0], 'score': draws['', 'score'][0]}


def main(mnist: str, sweep: str, out: str) -> None:
    """Rows for each trained model of the table."""
    (fit, test), rows = fresh_splits(mnist), []
    done = read_rows(Path(sweep) / 'table.csv').query('status == "done"')
    for run in done[['method', 'setting', 'seed']].drop_duplicates().to_dict('records'):
        config = run_config(':'.join(filter(None, (run['method'], run['setting']))), run['seed'])
        model = load(Sweep(Path(sweep)).folder(config) / 'model.safetensors')
        rows += [run | row for row in probed(model, fit, test)]
    pd.DataFrame(rows).round(4).to_csv(out, index=False)


if __name__ == '__main__': main(*sys.argv[1:4])
