"""Which factors Rb-VAE puts into e, and when: `OMP_NUM_THREADS=1 python nbs/measure/order.py MNIST SEED [VARIANT ...]`.

Rb-VAE's swaps move colours and leave sizes. Three reasons could be behind it. z may have so much room that nothing need
leave it (capacity). Reconstructions may count so much that KL does not matter (λ). Or what differs most between the two
sets is learned first, and takes e (order). Each of VARIANTS changes one thing. What swaps move is measured on the way,
factor by factor, on digits that no choice was made on (as in controlled.py). MNIST is a folder that holds MNIST/raw.
The rows go into order.csv beside this file; five to ten minutes on a core for each.

*Moved* is 1 if a swap gives a factor as well as a real image shows it, 0 if as badly as one that keeps its own. How
the rows are to be read, by a rule from before these runs: a variant changes what happens to the size if in the end more
than .3 of it has moved, with each of the seeds 0 to 2 (in Rb-VAE it is about 0). If it does in `grey`, where no colour
differs, then colours keep the size out of e. If it does with a small z, capacity keeps it in z; with another λ, λ does.
"""
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch
from fresh import fresh_splits
from rbvae_nb.attributes import AttributeClassifier, classifier_for, swap_bounds, swap_scores
from rbvae_nb.digits import digit_styles
from rbvae_nb.experiments import Split
from rbvae_nb.images import ImageSets
from rbvae_nb.methods import load
from rbvae_nb.quality import use_of_code
from rbvae_nb.rbvae import RbVAE
from rbvae_nb.training import train
from rows import put_rows, rounded

VARIANTS = {  # arguments of the small preset's Rb-VAE
    'Rb-VAE': {},
    'dim_z=16': dict(dim_z=16),
    'dim_z=8': dict(dim_z=8),
    'dim_e=32': dict(dim_e=32),
    'laplace_scale=5': dict(laplace_scale=5.),
    'laplace_scale=20': dict(laplace_scale=20.),
    'grey': {},  # images without colour
}
KEY = ['variant', 'seed', 'step']
RESULTS = Path(__file__).with_name('order.csv')


def grey(images: torch.Tensor) -> torch.Tensor:  # (N, 3, H, H) uint8
    """Images in grey, as bright as they were: the three channels of a style sum to white."""
    return images.float().mean(1, keepdim=True).round().to(torch.uint8).expand(-1, 3, -1, -1).contiguous()


def moved(model: RbVAE, test: Split, classifier: AttributeClassifier) -> dict[str, float]:
    """The share of the way that swaps move each factor, and the digits that they keep."""
    found = swap_scores(model, test, classifier) | swap_bounds(test, classifier)
    seen = {key: values.mean() for key, values in found.items()}
    def way(factor: str) -> float:
        real, swap, own = (seen[what, factor] for what in ('real', 'swap', 'unchanged'))
        return (own - swap) / (own - real)
    row = {factor: way(factor) for factor in test.factors}
    return row | {'digit': seen['swap', 'identity'], 'use of e': use_of_code(model, test.images[:500])}


if __name__ == '__main__':
    mnist, seed, *names = sys.argv[1:]
    data, (_, test) = digit_styles(), fresh_splits(mnist)
    for name in names or VARIANTS:
        model, recipe = RbVAE.preset('small', int(seed), **VARIANTS[name])
        sets, judged = data.sets, test
        if name == 'grey':
            sets = ImageSets(grey(sets.unlabelled), sets.reference)
            judged = replace(test, images=grey(test.images), factors={k: test.factors[k] for k in ('scale', 'width')})
        out = Path('order') / f'{name}-{seed}'
        train(model, sets, **recipe, out=out, checkpoint_every=recipe['steps'] // 10, snapshots=True)
        at = {int(file.stem.removeprefix('model-')): file for file in sorted(out.glob('model-*.safetensors'))}
        rows = [dict(variant=name, seed=int(seed), step=step) | moved(load(file), judged, classifier_for(data))
                for step, file in at.items()]
        found = rounded(pd.DataFrame(rows).set_index(KEY))
        put_rows(found, RESULTS)
        print(found.to_string(), flush=True)
