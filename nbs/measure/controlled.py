"""One λ, one schedule, one thing changed: `OMP_NUM_THREADS=1 python nbs/measure/controlled.py MNIST SEED [CELL ...]`.

Trains the small preset from random weights, in each of CELLS (or in those named), and measures everything that path.py
measures, and the combined score; probes and swaps on digits that no choice was ever made on: the 6,000 test digits of
MNIST (a folder that holds MNIST/raw) that the package does not embed, one half to fit probes, the other to be judged.
The rows go into controlled.csv beside this file. Ten minutes on a core or more for each; a run that was stopped goes on
from its checkpoint in the folder controlled/ of where it was started.

How the rows are to be read, by a rule from before these runs, though path.csv was known (by it Rb-VAE comes to about
.69 and sRb-VAE to .80). A cell *separates* if its combined score is above .75 with each of the seeds 0 to 2, does not
if it is below with each, and is undecided otherwise, or where a training was stopped. (1) If Eq. 3 separates on
sRb-VAE's λ, or with the anchor, or if sRb-VAE does without (a, b), then (a, b) are not what separates from a random
start. (2) If the six losses separate, they do without the additions that this cell lacks (it has the pyramid and the
pretraining). (3) A cell that lacks one addition says whether sRb-VAE needs it beside all the others, and no more.
(4) (a, b) judge images, codes, and which code belongs to which image. If `no pairs`, in which discriminators cannot see
the third, separates as well, then (a, b) are not needed as log-ratios of joint distributions; if it does not, the pairs
are needed (added after the other rows, and before its own). `images only`, in which they see no codes either, says the
same of the codes (added when seed 0 of `no pairs` was known).
"""
import sys
from pathlib import Path

import pandas as pd
from fresh import fresh_splits
from path import measured
from rbvae_nb.digits import digit_styles
from rbvae_nb.experiments import Experiment, Split
from rbvae_nb.methods import METHODS
from rbvae_nb.probing import bootstrap, combined_score, encode_split, scores
from rbvae_nb.srbvae import Joint, SRbVAE
from rbvae_nb.training import TrainingStopped, train
from rows import put_rows, rounded
from torch import Tensor


class NoPairs(SRbVAE):
    """sRb-VAE whose discriminators see images beside codes of other images: each as before, but no pairs."""
    def ratio_terms(self, q: Joint, p: Joint) -> dict[str, Tensor]:
        """As in sRb-VAE, of codes that have gone on to another image, **z** by one place and **e** by two."""
        def torn(side: Joint) -> Joint:
            return side._replace(z_u=side.z_u.roll(1, 0), e_u=side.e_u.roll(2, 0), z_r=side.z_r.roll(1, 0))
        return super().ratio_terms(torn(q), torn(p))


class ImagesOnly(SRbVAE):
    """sRb-VAE whose discriminators see zeros in the place of codes."""
    def ratio_terms(self, q: Joint, p: Joint) -> dict[str, Tensor]:
        """As in sRb-VAE, of images alone."""
        def blind(side: Joint) -> Joint: return side._replace(z_u=0 * side.z_u, e_u=0 * side.e_u, z_r=0 * side.z_r)
        return super().ratio_terms(blind(q), blind(p))


EQ_3 = dict(adversarial_weight=0., latent_z_weight=0., latent_e_weight=0., kl_weight=1., aggregate=0.)
CELLS = {  # arguments of the model, instead of the small preset's; sRb-VAE where no method is named
    'Rb-VAE': dict(method='rbvae'),
    'Eq. 3': EQ_3,  # on the λ of sRb-VAE: 1.2 in the pretraining, then 20
    'Eq. 3 and the anchor': EQ_3 | dict(anchor_weight=.1),
    'without (a, b)': dict(adversarial_weight=0.),
    'six losses': dict(aggregate=0., kl_weight=0., code_gradient=1.),
    'sRb-VAE': {},
    'without aggregate': dict(aggregate=0.),
    'without entropy_weight': dict(entropy_weight=0.),
    'without kl_weight': dict(kl_weight=0.),
    'without pretraining': dict(pretraining=0.),
    'without pretraining_scale': dict(pretraining_scale=None),
    'without pyramid': dict(pyramid=0, laplace_scale=4., pretraining_scale=.24),
    'code_gradient 1': dict(code_gradient=1.),
    'code_gradient 0': dict(code_gradient=0.),
    'image_gradient 0': dict(image_gradient=0.),
    'image_gradient 0, code_gradient 0': dict(image_gradient=0., code_gradient=0.),
    'image_gradient 0, code_gradient 1': dict(image_gradient=0., code_gradient=1.),
    'no pairs': dict(method=NoPairs),
    'images only': dict(method=ImagesOnly),
    'sVAE': dict(method='svae', beta=6., laplace_scale=20.),  # the weights of (a) and of λ are those of sRb-VAE
}
KEY = ['cell', 'seed']
RESULTS = Path(__file__).with_name('controlled.csv')


def row(cell: str, seed: int, data: Experiment, fit: Split, judged: Split) -> dict:
    """One training, and what it came to."""
    changed = dict(CELLS[cell])
    method = changed.pop('method', 'srbvae')
    model, recipe = (METHODS.find(method) if isinstance(method, str) else method).preset('small', seed, **changed)
    try: train(model, data.sets, **recipe, out=Path('controlled') / f'{cell}-{seed}')
    except TrainingStopped as error: return dict(stopped=str(error))
    codes = encode_split(model, fit), fit, encode_split(model, judged), judged
    if 'e' not in model.codes:
        found = scores(*codes)
        return {'stopped': ''} | {f'{factor} z': found['z', factor].mean() for factor in ('target', 'identity')}
    score = combined_score(bootstrap(scores(*codes)))[0]
    return {'stopped': '', 'score': score} | measured(model, data, fit, judged)


if __name__ == '__main__':
    mnist, seed, *names = sys.argv[1:]
    data, (fit, judged) = digit_styles(), fresh_splits(mnist)
    for cell in names or CELLS:
        came_to = row(cell, int(seed), data, fit, judged)
        found = pd.DataFrame([dict(cell=cell, seed=int(seed), **came_to)]).set_index(KEY)
        found = rounded(found)
        put_rows(found, RESULTS)
        print(found.T.to_string(), flush=True)
