"""One start, several objectives: `OMP_NUM_THREADS=1 python nbs/measure/start.py MNIST SEED START WAY`.

Networks are trained into the solution that START names (`degenerate`: the generator ignores e; `taught`: the two codes
are disentangled, with the help of pairs), and from these weights the training goes on under the objective that WAY
names. START and WAY are names in STARTS and WAYS. MNIST is a folder that holds MNIST/raw. All ways but the first, which
is Rb-VAE as it is, are sRb-VAE with some weights at 0: the same code, random numbers, λ and phases.

At every tenth of the way it is measured what is left of the start (by probes at the shares AT only), on the 6,000 test
digits of MNIST that the package does not embed, on which no preset was chosen. One half fits probes, the other is
probed and swapped. The rows go into start.csv beside this file; where the training is in doubt at a tenth, `train`
keeps no weights, and there is no row. Seed 0 also leaves pictures, start/START-WAY.png: each row is a digit with the e
of another, each column a tenth. A quarter of an hour on a core, or more; a run that was stopped goes on from its
checkpoint in the folder start/ of where it was started.

How the rows are to be read, by a rule that is not the first one (lesson 09c says what was known before it, and what
changed). For each factor, s is the error of swaps over that of reconstructions, both with respect to the image that
gives its e: 1 if the swap does nothing, however blurred the images are. After the last step a way has *stayed* if no
factor has s below .95 and exchanging e between images changes less than .05, has *left* for a factor if its s is below
.75, and has *arrived* if that holds for every factor. What holds in all three seeds counts; anything else is undecided.
A training that was stopped counts as undecided. The start must be one from which nothing has moved: s within .02 of 1.
(1) If Eq. 3 stays on both λ, and the six losses or `no KL` leave, then the symmetric objective leads out where Eq. 3
does not, and not by its λ. (2) If `no KL, no (a, b)` stays where `no KL` leaves, (a, b) are needed; if it leaves as
well, it is not they that lead out. (3) If the placebo, which has no reference set, leaves as well, then what leads out
is not the mismatch of two sets. (4) If sRb-VAE stays where `no KL` leaves, the KL terms of Eq. 3 that its preset keeps
are what holds it. (5) If `reconstruction alone` leaves as far as `no KL`, the lack of the KL terms leads out; if it
stays, the other terms are needed (added before its own numbers, when two seeds of the others were known). (6) If `no
KL, no pairs`, whose discriminators cannot see which code belongs to which image, leaves as well, it is not the
log-ratio of joint distributions that leads out (added after all others, before its own numbers). From the taught start,
a way has *kept* the solution if no factor's s has grown by more than .1.
"""
import sys
from pathlib import Path

import cv2
import pandas as pd
import torch
from controlled import NoPairs
from filelock import FileLock
from fresh import fresh_splits
from rbvae_nb.attributes import classified, classifier_for, partners, swap
from rbvae_nb.digits import digit_styles
from rbvae_nb.experiments import Experiment, Split
from rbvae_nb.images import ImageSets, to_bytes
from rbvae_nb.methods import load
from rbvae_nb.probing import encode_split, scores, target_errors
from rbvae_nb.quality import use_of_code
from rbvae_nb.rbvae import RbVAE
from rbvae_nb.srbvae import SRbVAE
from rbvae_nb.starts import IgnoresE, Taught, begin_at, digit_pairs
from rbvae_nb.training import TrainingStopped, train
from rows import put_rows, rounded

STARTS = {'degenerate': IgnoresE, 'taught': Taught}
LEADING = dict(steps=2500, warmup=.1)  # into the start; the rest as in the small preset
STEPS = 6500  # from there
AT_ONCE = dict(pretraining=0., ramp=.06)  # λ grows from Rb-VAE's to sRb-VAE's within the ramp, as after a pretraining
EQ_3 = AT_ONCE | dict(adversarial_weight=0., latent_z_weight=0., latent_e_weight=0., kl_weight=1., aggregate=0.)
NO_KL = AT_ONCE | dict(kl_weight=0.)
WAYS = {  # what the small presets are changed to
    'Eq. 3, λ = 1.2': (RbVAE, {}),
    'Eq. 3': (SRbVAE, EQ_3),
    'sRb-VAE': (SRbVAE, AT_ONCE),
    'no KL': (SRbVAE, NO_KL),
    'no KL, no (a, b)': (SRbVAE, NO_KL | dict(adversarial_weight=0.)),
    'six losses': (SRbVAE, NO_KL | dict(aggregate=0., code_gradient=1.)),
    'reconstruction alone': (SRbVAE, EQ_3 | dict(kl_weight=0.)),  # Eq. 3 without its KL terms
    'no KL, no pairs': (NoPairs, NO_KL),
    'placebo': (SRbVAE, NO_KL),  # `no KL`, with other unlabelled images in place of the reference set
}
AT = 0, .1, .3, .5, 1  # shares of the way
KEY = ['start', 'way', 'seed', 'step']
RESULTS = Path(__file__).with_name('start.csv')


def started(start: str, seed: int, data: Experiment) -> RbVAE:
    """A model in the solution that `start` names, from its checkpoint if it has been there."""
    model, recipe = STARTS[start].preset('small', seed)
    sets, out = digit_pairs() if start == 'taught' else data.sets, Path('start') / f'{start}-{seed}'
    out.mkdir(parents=True, exist_ok=True)
    with FileLock(out / 'lock'): train(model, sets, **recipe | LEADING, out=out)
    return model.eval()


def snapshots(start: str, way: str, seed: int, data: Experiment) -> tuple[dict[int, RbVAE], str]:
    """The model at every tenth of its way from the start, and why it was stopped, if it was."""
    method, changed = WAYS[way]
    model, recipe = method.preset('small', seed, **changed)
    recipe |= dict(steps=STEPS, seed=seed + 100)  # other batches than those that led here
    sets, u = data.sets, data.sets.unlabelled
    if way == 'placebo': sets = ImageSets(u[:len(u) // 2], u[len(u) // 2:])
    first, out, stopped = started(start, seed, data), Path('start') / f'{start}-{way}-{seed}', ''
    try: train(begin_at(model, first), sets, **recipe, out=out, checkpoint_every=STEPS // 10, snapshots=True)
    except TrainingStopped as error: stopped = str(error)
    found = {int(file.stem.removeprefix('model-')): load(file) for file in sorted(out.glob('model-*.safetensors'))}
    return {0: first} | found, stopped


def shown(model: RbVAE, test: Split, data: Experiment) -> dict[str, float]:
    """How much the generator uses either code; swaps and reconstructions beside the image that gives e."""
    classifier, pair = classifier_for(data), partners(test.labels)
    giver = test.rows(pair).factors
    drawn = {'swap': swap(model, test.images, pair), 'own': model.reconstruct(test.images)}
    row = {f'use of {code}': use_of_code(model, test.images[:500], code) for code in 'ez'}
    row |= use_of_drawn(model, test.images[:500])
    for what, images in drawn.items():
        seen = classified(classifier, images, test.labels, giver)
        row |= {f'{what}, {name}': values.mean() for name, values in seen.items()}
    return row


def use_of_drawn(model: RbVAE, images: torch.Tensor) -> dict[str, float]:
    """As `use_of_code` of e, with an e drawn from the prior, and with e_ref, in place of another image's."""
    codes, draw = model.encode(images), torch.Generator().manual_seed(0)
    e, own = codes['e'], model.decode(**codes)
    others = {'prior': torch.randn(e.shape, generator=draw), 'e_ref': model.e_ref.detach().expand_as(e)}
    between = (own.roll(1, 0) - own).abs().mean()
    return {f'use of e, {name}': float((model.decode(z=codes['z'], e=e) - own).abs().mean() / between)
            for name, e in others.items()}


def known(model: RbVAE, fit: Split, test: Split) -> dict[str, float]:
    """What the codes know, by a line, and of the style also by an RBF kernel."""
    own, others = encode_split(model, fit), encode_split(model, test)
    linear = scores(own, fit, others, test)
    row = {f'{factor} {code}': linear[code, factor].mean() for code in 'ez' for factor in ('target', 'identity')}
    for code in 'ez':
        row[f'target {code}, rbf'] = target_errors(own[code], fit, others[code], test, nonlinear=True)['target'].mean()
    return row


def pictures(models: dict[int, RbVAE], data: Experiment, path: Path) -> None:
    """A digit with the e of another, row by row, at every tenth of the way."""
    images = data.splits()[1].images
    drawn = torch.stack([model.transfer(images[14:20], images[8:14]) for model in models.values()], 1)
    rows, columns, _, height, width = drawn.shape
    grid = to_bytes(drawn).permute(0, 3, 1, 4, 2).reshape(rows * height, columns * width, 3).numpy()
    path.parent.mkdir(exist_ok=True)
    cv2.imwrite(str(path), grid[..., ::-1])


if __name__ == '__main__':
    mnist, seed, start, way = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]
    data, (fit, test) = digit_styles(), fresh_splits(mnist)
    models, stopped = snapshots(start, way, seed, data)
    key = dict(start=start, way=way, seed=seed, stopped=stopped)
    def row(step: int, model: RbVAE) -> dict:
        probes = known(model, fit, test) if round(step / STEPS, 2) in AT else {}
        return key | dict(step=step) | shown(model, test, data) | probes
    found = pd.DataFrame([row(*pair) for pair in models.items()]).set_index(KEY)
    put_rows(rounded(found), RESULTS)
    if seed == 0: pictures(models, data, RESULTS.with_name('start') / f'{start}-{way}.png')
    print(found.T.to_string())
