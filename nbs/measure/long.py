"""Much longer, the rate held: `OMP_NUM_THREADS=1 python nbs/measure/long.py MNIST_FOLDER SEED [KEY=VALUE ...]`.

sRb-VAE's small preset on the whole of MNIST (in torchvision's layout, in MNIST_FOLDER), for 50,000 steps: a thousand of
pretraining, three hundred of ramp, and then nothing changes any more, the learning rate neither. More than an hour on a
core; a run that was stopped goes on from its checkpoint in the folder long/. On the way everything that path.py
measures is measured, on its validation split, and goes into long.csv beside this file, a row for each number of steps.
"""
import sys
from pathlib import Path

import pandas as pd
from path import KEY, measured, named, value
from rbvae_nb.digits import digit_styles
from rbvae_nb.experiments import Experiment
from rbvae_nb.methods import load
from rbvae_nb.srbvae import SRbVAE
from rbvae_nb.training import TrainingStopped, train

AT = 5000, 10_000, 20_000, 35_000, 50_000  # steps
PHASES = dict(pretraining=.02, ramp=.006)  # shares of the steps
RESULTS = Path(__file__).with_name('long.csv')


def trained(data: Experiment, seed: int, out: Path, changed: dict) -> tuple[str, float]:
    """Why a training stopped, if it did, and its largest KL after the ramp; its weights are in `out`."""
    model, recipe = SRbVAE.preset('small', seed, **PHASES | changed)
    recipe |= dict(steps=AT[-1], warmup=.004, decay=0.)
    try: history = train(model, data.sets, **recipe, out=out, checkpoint_every=2500, snapshots=True)
    except TrainingStopped as error: return str(error), float('nan')
    return '', max(row['kl'] for row in history if row['step'] > sum(PHASES.values()) * AT[-1])


if __name__ == '__main__':
    folder, seed, *arguments = sys.argv[1:]
    name = named(arguments)
    data, out = digit_styles(source=folder), Path('long') / f'{name}-{seed}'
    stopped, worst = trained(data, int(seed), out, {k: value(v) for k, v in (a.split('=', 1) for a in arguments)})
    files = {step: out / f'model-{step:06}.safetensors' for step in AT}
    rows = [dict(changed=name, seed=int(seed), step=step, **measured(load(file), data))
            for step, file in files.items() if file.exists()] or [dict(changed=name, seed=int(seed), step=0)]
    found = pd.DataFrame(rows).assign(stopped=stopped, **{'worst kl': worst}).round(4).set_index([*KEY, 'step'])
    before = [pd.read_csv(RESULTS, index_col=[*KEY, 'step'], keep_default_na=False)] if RESULTS.exists() else []
    every = pd.concat([*before, found])
    every[~every.index.duplicated(keep='last')].sort_index().to_csv(RESULTS)
    print(found.T.to_string())
