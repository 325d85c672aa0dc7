"""What a break looks like, and what holds it: `OMP_NUM_THREADS=1 python nbs/measure/stability.py WAY`.

Seed 2 of the small preset as it was when it broke (BEFORE, RECIPE), with WAY one of the names in WAYS. Every tenth
step of the training goes into stability.csv beside this file, and every step around the place where the training
without a limit breaks. About eight minutes on a core; on another machine the roundings are others, and with them the
step of the break, if there is one.
"""
import sys
from pathlib import Path

import pandas as pd
import torch
from arithmetic import BEFORE, RECIPE
from rbvae_nb import training
from rbvae_nb.digits import digit_styles
from rbvae_nb.srbvae import SRbVAE
from rows import put_rows

CLOSELY = range(3370, 3411)  # steps
COLUMNS = ['kl', 'reconstruction_u', 'anchor', 'latent_e_u', 'discriminator', 'log_ratio_u_q', 'log_ratio_u_p',
           'log_ratio_r_q', 'log_ratio_r_p']
RESULTS = Path(__file__).with_name('stability.csv')

WAYS = {  # arguments of the model and of `train`
    'no limit': (dict(), dict(clip=None)),
    'clip': (dict(), dict(clip=3.)),
    'no anchor': (dict(anchor_weight=0.), dict(clip=None)),
}


def trained(way: str) -> pd.DataFrame:
    """Terms of the losses, and the length of the gradient of the encoder of e as it reaches Adam."""
    changed, limit = WAYS[way]
    data, (model, recipe), rows = digit_styles(), SRbVAE.preset('small', 2, **BEFORE['srbvae'] | changed), []
    recipe |= RECIPE | limit
    training.out_of_line = lambda rows: []  # a run that breaks goes on, to be looked at
    def keep(step: int, row: dict[str, float]) -> None:
        if step % 10 and step not in CLOSELY: return
        gradient = torch.stack([p.grad.norm() for p in model.encoder_e.parameters()]).norm()
        rows.append({name: row.get(name) for name in ['step', *COLUMNS]} | {'gradient of encoder_e': float(gradient)})
    training.train(model, data.sets, **recipe, log_every=1, callback=keep)
    return pd.DataFrame(rows).assign(way=way)


if __name__ == '__main__':
    found = trained(sys.argv[1]).set_index(['way', 'step'])
    put_rows(found.map('{:.5g}'.format), RESULTS)
