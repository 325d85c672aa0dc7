"""Train sRb-VAE's small preset with one knob at other values and probe it: `python nbs/sweep.py code_gradient 0 1 --seeds 0 1 2`.

Each row is added to assets/sweep-KNOB.csv as soon as it is known; what is there already is not done again.
"""
import argparse
from pathlib import Path

import pandas as pd

from rbvae_nb.digits import digit_styles
from rbvae_nb.probing import probe
from rbvae_nb.srbvae import SRbVAE
from rbvae_nb.training import train

ASSETS = Path(__file__).resolve().parent / 'assets'


def row(data, knob: str, value: float, seed: int) -> pd.DataFrame:
    """Train and probe once: a row for each code."""
    model, recipe = SRbVAE.preset('small', seed, **{knob: value})
    train(model, data.piles, **recipe)
    table = probe(model, data).drop('floor').rename_axis('code').reset_index()
    table.insert(0, 'seed', seed)
    table.insert(0, knob, value)
    return table.round(4)


def main() -> None:
    """Read the command line, do what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('knob')
    parser.add_argument('values', type=float, nargs='+')
    parser.add_argument('--seeds', type=int, nargs='+', default=[0])
    args = parser.parse_args()
    path, data = ASSETS / f'sweep-{args.knob}.csv', digit_styles()
    for value in args.values:
        for seed in args.seeds:
            done = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=[args.knob, 'seed'])
            if ((done[args.knob] == value) & (done.seed == seed)).any(): continue
            pd.concat([done, row(data, args.knob, value, seed)]).to_csv(path, index=False)


if __name__ == '__main__': main()
