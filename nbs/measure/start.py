"""One start, several objectives: `OMP_NUM_THREADS=1 python nbs/measure/start.py MNIST SEED START WAY`.

Networks are trained into the solution that START names (`degenerate`: the generator ignores e; `taught`: the two codes
are disentangled, with the help of pairs), and from these weights the training goes on under the objective that WAY
names. START and WAY are names in STARTS and WAYS. MNIST is a folder that holds MNIST/raw.

Every 500 steps it is measured what is left of the start (by probes at the steps AT only), on digits that no choice was
ever made on: the 6,000 test digits of MNIST that the package does not embed. One half fits probes, the other is probed
and swapped. The rows go into start.csv beside this file. Seed 0 also leaves pictures, start/START-WAY.png: each row is
a digit with the e of another, each column one of these steps. A quarter of an hour on a core, or more; a run that was
stopped goes on from its checkpoint in the folder start/ of where it was started.

How the rows are to be read, by a rule from before the runs. Let s be the style error of swaps over that of images that
keep their own style: 1 if a swap moves nothing. After the last step a way has *stayed* in the degenerate solution if
the use of e is below .05 and s above .95, and *left* it if the use of e is above .2 and s below .75; all three seeds
must say the same. (1) If both ways of Eq. 3 stay and sRb-VAE leaves, the difference is made by what sRb-VAE adds, and
not by λ. (2) If then the way without (a, b) stays, the adversarial terms are needed; if it leaves, sRb-VAE's other
terms are what leaves, and the symmetric objective has not been shown to be. (3) If the six losses leave, the paper's
objective is enough by itself; if not, it needs the additions, too. From the taught start, a way has *kept* the solution
if s has grown by less than .1, and lost it otherwise.
"""
import sys
from pathlib import Path

import cv2
import pandas as pd
import torch
from fresh import fresh_splits
from rbvae_nb.attributes import classifier_for, swap_bounds, swap_scores
from rbvae_nb.digits import digit_styles
from rbvae_nb.experiments import Experiment, Split
from rbvae_nb.images import to_bytes
from rbvae_nb.methods import load
from rbvae_nb.probing import encode_split, scores, target_errors
from rbvae_nb.quality import use_of_code
from rbvae_nb.rbvae import RbVAE
from rbvae_nb.srbvae import SRbVAE
from rbvae_nb.starts import IgnoresE, Taught, begin_at, digit_pairs
from rbvae_nb.training import TrainingStopped, train

STARTS = {'degenerate': IgnoresE, 'taught': Taught}
LEADING = dict(steps=2500, warmup=.1)  # into the start; the rest as in the small preset
NO_PRETRAINING = dict(pretraining=0.)  # its λ grows from Rb-VAE's to its own within the ramp, as after a pretraining
WAYS = {  # what the small presets are changed to
    'Eq. 3': (RbVAE, {}),
    'Eq. 3, λ = 20': (RbVAE, dict(laplace_scale=20.)),
    'sRb-VAE': (SRbVAE, NO_PRETRAINING),
    'without (a, b)': (SRbVAE, NO_PRETRAINING | dict(adversarial_weight=0.)),
    'six losses': (SRbVAE, NO_PRETRAINING | dict(aggregate=0., code_gradient=1., kl_weight=0.)),
}
AT = 0, 1000, 2000, 3500, 5000, 6500  # steps
KEY = ['start', 'way', 'seed', 'step']
RESULTS = Path(__file__).with_name('start.csv')


def started(start: str, seed: int, data: Experiment) -> RbVAE:
    """A model in the solution that `start` names, from its checkpoint if it has been there."""
    model, recipe = STARTS[start].preset('small', seed)
    sets = digit_pairs() if start == 'taught' else data.sets
    train(model, sets, **recipe | LEADING, out=Path('start') / f'{start}-{seed}')
    return model


def snapshots(start: str, way: str, seed: int, data: Experiment) -> tuple[dict[int, RbVAE], str]:
    """The model every 500 steps of its way from the start, and why it was stopped, if it was."""
    method, changed = WAYS[way]
    model, recipe = method.preset('small', seed, **changed)
    first, out, stopped = started(start, seed, data), Path('start') / f'{start}-{way}-{seed}', ''
    try: train(begin_at(model, first), data.sets, **recipe, out=out, checkpoint_every=500, snapshots=True)
    except TrainingStopped as error: stopped = str(error)
    found = {int(file.stem.removeprefix('model-')): load(file) for file in sorted(out.glob('model-*.safetensors'))}
    return {0: first.eval()} | found, stopped


def shown(model: RbVAE, test: Split, data: Experiment) -> dict[str, float]:
    """How much the generator uses either code, and what swaps show."""
    classifier = classifier_for(data)
    swaps, kept = swap_scores(model, test, classifier), swap_bounds(test, classifier)['unchanged', 'target']
    row = {f'use of {code}': use_of_code(model, test.images[:500], code) for code in 'ez'}
    row |= {f'swap, {factor}': swaps['swap', factor].mean() for factor in ('target', 'scale', 'width', 'identity')}
    return row | {'reconstruction, identity': swaps['reconstruction', 'identity'].mean(), 'kept, target': kept.mean()}


def known(model: RbVAE, fit: Split, test: Split) -> dict[str, float]:
    """What the codes know, by a line, and of the style also by an RBF kernel."""
    own, others = encode_split(model, fit), encode_split(model, test)
    linear = scores(own, fit, others, test)
    row = {f'{factor} {code}': linear[code, factor].mean() for code in 'ez' for factor in ('target', 'identity')}
    for code in 'ez':
        row[f'target {code}, rbf'] = target_errors(own[code], fit, others[code], test, nonlinear=True)['target'].mean()
    return row


def pictures(models: dict[int, RbVAE], data: Experiment, path: Path) -> None:
    """A digit with the e of another, row by row, at every step of the way."""
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
    key = dict(start=start, way=way, seed=seed)
    def row(step: int, model: RbVAE) -> dict:
        probes = known(model, fit, test) if step in AT else {}
        return dict(key, step=step, stopped=stopped) | shown(model, test, data) | probes
    found = pd.DataFrame([row(*pair) for pair in models.items()]).set_index(KEY)
    found = found.map(lambda v: v if isinstance(v, str) else round(float(v), 4))
    before = [pd.read_csv(RESULTS, index_col=KEY).fillna({'stopped': ''})] if RESULTS.exists() else []
    every = pd.concat([*before, found])
    every[~every.index.duplicated(keep='last')].sort_index().to_csv(RESULTS)
    if seed == 0: pictures(models, data, RESULTS.with_name('start') / f'{start}-{way}.png')
    print(found.T.to_string())
