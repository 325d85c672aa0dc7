"""Does the arithmetic change what is learnt? `OMP_NUM_THREADS=1 python nbs/measure/arithmetic.py METHOD WAY SEED CLIP`.

METHOD is rbvae or srbvae, WAY one of the names in WAYS, CLIP a number for `train`, or none. The small preset as it was
when the question came up (BEFORE, STEPS) is trained on `digit_styles()` and probed; a row for each code goes into
arithmetic.csv beside this file. Up to twenty minutes on a core; a run that was stopped goes on from its checkpoint in
the folder arithmetic/.
"""
import sys
from pathlib import Path

import pandas as pd
from rbvae_nb import training
from rbvae_nb.digits import digit_styles
from rbvae_nb.methods import METHODS
from rbvae_nb.probing import probe
from rows import put_rows

WAYS = {  # dtype; whether layers and players are computed together, as `train` does
    'float32': ('float32', False),
    'fast': ('bfloat16', True),
    'scrambled': ('bfloat16', True),  # gradients handed to the optimizer in whatever order they lie in memory
}
NETWORKS = dict(channels=(96, 64, 32), generator_channels=(64, 48, 24, 12))
BEFORE = {
    'rbvae': NETWORKS,
    'srbvae': dict(NETWORKS, laplace_scale=60., adversarial_weight=1.5, latent_z_weight=.5, latent_e_weight=.5,
                   kl_weight=.5, anchor_weight=.1, code_gradient=.5),
}
RECIPE = dict(steps=5000, lr=1.2e-3)
KEY = ['method', 'clip', 'way', 'seed', 'code']
RESULTS = Path(__file__).with_name('arithmetic.csv')


def as_they_come(parameters, gradients):
    """The mistake: autograd's gradients in autograd's order."""
    for p, g in zip(parameters, gradients): p.grad = g


def trained(method: str, way: str, seed: int, clip: str) -> pd.DataFrame:
    """What linear probes read from the codes of one training."""
    dtype, fast = WAYS[way]
    if way == 'scrambled': training.set_gradients = as_they_come
    data, (model, recipe) = digit_styles(), METHODS.find(method).preset('small', seed, **BEFORE[method])
    recipe |= RECIPE | dict(clip=None if clip == 'none' else float(clip))
    training.out_of_line = lambda rows: []  # a run that breaks goes on, so that it can be probed
    history = training.train(model, data.sets, **recipe, dtype=dtype, fast=fast,
                             out=f'arithmetic/{method}-{clip}-{way}-{seed}')
    late = history[len(history) * 2 // 5:]  # pretraining and ramp are over
    worst = max(sum(value for name, value in row.items() if name.startswith('kl')) for row in late)
    return probe(model, data).round(4).rename_axis('code').reset_index().assign(
        method=method, clip=clip, way=way, seed=seed, **{'worst kl': round(worst, 1)})


if __name__ == '__main__':
    method, way, seed, clip = sys.argv[1:]
    found = trained(method, way, int(seed), clip).set_index(KEY)
    put_rows(found, RESULTS)
    print(found.to_string())
