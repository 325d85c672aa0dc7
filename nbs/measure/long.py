"""Much longer, on the whole of MNIST: `OMP_NUM_THREADS=1 python nbs/measure/long.py MNIST_FOLDER SEED [KEY=VALUE ...]`.

sRb-VAE's small preset (or, with method=rbvae, Rb-VAE's), for 62,500 steps on MNIST in torchvision's layout: a thousand
of pretraining, three hundred of ramp, and then nothing changes until step 50,000, the learning rate neither; over the
last 12,500 it falls to zero. Two hours on a core; a run that was stopped goes on from its checkpoint in the folder
long/. On the way everything that path.py measures is measured, on the validation split of the embedded digits (and on
the embedded training images), and goes into long.csv beside this file, a row for each number of steps.
"""
import sys
from pathlib import Path

import pandas as pd
from path import KEY, measured, named, validation, value
from rbvae_nb.digits import digit_styles
from rbvae_nb.images import ImageSets
from rbvae_nb.methods import METHODS, Method, load
from rbvae_nb.srbvae import SRbVAE
from rbvae_nb.training import TrainingStopped, train
from rows import put_rows, rounded

AT = 5000, 10_000, 20_000, 35_000, 50_000, 62_500  # steps
PHASES = dict(pretraining=.016, ramp=.0048)  # shares of the steps
RESULTS = Path(__file__).with_name('long.csv')


def untrained(seed: int, method: str = 'srbvae', **changed) -> tuple[Method, dict]:
    """Model and recipe."""
    kind = METHODS.find(method)
    model, recipe = kind.preset('small', seed, **(PHASES if kind is SRbVAE else {}) | changed)
    return model, recipe | dict(steps=AT[-1], warmup=.0032, decay=.2)


def trained(sets: ImageSets, seed: int, out: Path, changed: dict) -> dict:
    """Why a training stopped, if it did, and its largest KL after the ramp, and later; its weights are in `out`."""
    model, recipe = untrained(seed, **changed)
    try: history = train(model, sets, **recipe, out=out, checkpoint_every=2500, snapshots=True)
    except TrainingStopped as error: return dict(stopped=str(error))
    kl = pd.Series({row['step']: sum(number for term, number in row.items() if term.startswith('kl'))
                    for row in history})
    ramp = sum(PHASES.values()) * AT[-1]
    return {'stopped': '', 'worst kl': kl[kl.index > ramp].max(), 'worst kl after 5000': kl[kl.index > 5000].max()}


def long_run(folder: str, seed: int, arguments: list[str]) -> tuple[Path, dict]:
    """A run's folder; why it stopped, if it did, and its largest KL."""
    out = Path('long') / f'{named(arguments)}-{seed}'
    changed = {k: value(v) for k, v in (a.split('=', 1) for a in arguments)}
    return out, trained(digit_styles(source=folder).sets, seed, out, changed)


if __name__ == '__main__':
    folder, seed, *arguments = sys.argv[1:]
    out, how = long_run(folder, int(seed), arguments)
    key, embedded = dict(changed=named(arguments), seed=int(seed)), digit_styles()
    files = {step: out / f'model-{step:06}.safetensors' for step in AT}
    rows = [dict(**key, step=step, **measured(load(file), embedded, *validation(embedded)))
            for step, file in files.items() if file.exists()]
    found = pd.DataFrame(rows or [dict(**key, step=0)]).assign(**how)
    found = rounded(found.set_index([*KEY, 'step']))
    put_rows(found, RESULTS)
    print(found.T.to_string())
