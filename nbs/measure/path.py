"""The way to sRb-VAE's small preset: `OMP_NUM_THREADS=1 python nbs/measure/path.py SEED [KEY=VALUE ...]`.

Trains the preset with some arguments changed (of the model, or of `train`; VALUE as JSON; source=FOLDER takes the
digits from there, method=rbvae another method) and measures everything that choices are made by on a validation split:
probes are fitted on one half of the digits that usually fit them, and judged, as are swaps, on the other half;
`picture_scores` looks at the training sets; the test split is not looked at. A row goes into path.csv beside this file.
Ten minutes on a core or more; a run that was stopped goes on from its checkpoint in the folder path/.

What an addition to the paper's losses is worth, by a rule from before the runs: seeds 0, 1 and 2 of the preset say how
far chance moves a number, and an addition has earned its place if seed 0 without it is worse than the worst of the
three by more than they lie apart, in one number at least: style and digit read from e; style read from z by a line, and
by an RBF kernel; digit kept in a reconstruction, and in a swap; style error of a swap; tint; told from real. What has
not earned its place is taken out together, and three seeds of what is left decide by the same rule.
"""
import json
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
from rbvae_nb.attributes import classifier_for, swap_scores
from rbvae_nb.digits import digit_styles
from rbvae_nb.experiments import Experiment, Split
from rbvae_nb.methods import METHODS
from rbvae_nb.probing import encode_split, scores
from rbvae_nb.quality import picture_scores
from rbvae_nb.rbvae import RbVAE
from rbvae_nb.training import TrainingStopped, train
from rows import put_rows, rounded

KEY = ['changed', 'seed']
RESULTS = Path(__file__).with_name('path.csv')


def validation(data: Experiment) -> tuple[Split, Split]:
    """Two halves of the digits that usually fit probes."""
    fit, _ = data.splits()
    return tuple(fit.rows(half) for half in np.array_split(np.arange(len(fit)), 2))


def measured(model: RbVAE, data: Experiment, fit: Split, judged: Split) -> dict[str, float]:
    """What codes know, by a line (of the style also by an RBF kernel); swaps; pictures."""
    codes = encode_split(model, fit), fit, encode_split(model, judged), judged
    classifier = classifier_for(data)
    found, swaps = scores(*codes), swap_scores(model, judged, classifier)
    both = 'target', 'identity'
    row = {f'{factor} {code}': found[code, factor].mean() for code in 'ez' for factor in both}
    row['scale z'] = found['z', 'scale'].mean()
    curved = scores(*codes, nonlinear=True)
    row |= {f'target {code}, rbf': curved[code, 'target'].mean() for code in 'ez'}
    row |= {f'{what}, {factor}': values.mean() for (what, factor), values in swaps.items() if factor in both}
    return row | picture_scores(model, data, classifier)


def trained(seed: int, changed: dict) -> pd.DataFrame:
    """One row."""
    changed, start = dict(changed), time.perf_counter()
    data = digit_styles(source=changed.pop('source', 'embedded'))
    method = METHODS.find(changed.pop('method', 'srbvae'))
    _, recipe = method.preset('small', seed)
    recipe |= {key: changed.pop(key) for key in [*changed] if key in (*recipe, 'lr_ratio', 'alternating')}
    model, _ = method.preset('small', seed, **changed)
    name = named(sys.argv[2:])
    try: history = train(model, data.sets, **recipe, out=Path('path') / f'{name}-{seed}'.replace('/', '_'))
    except TrainingStopped as error: return pd.DataFrame([dict(changed=name, seed=seed, stopped=str(error))])
    worst = max(sum(value for term, value in row.items() if term.startswith('kl'))
                for row in history if row['step'] > .4 * recipe['steps'])
    minutes = (time.perf_counter() - start) / 60
    return pd.DataFrame([dict(changed=name, seed=seed, stopped='', **{'worst kl': worst}, minutes=minutes,
                              **measured(model, data, *validation(data)))])


def named(arguments: list[str]) -> str:
    """What was changed, in alphabetical order; nothing is the preset."""
    return ' '.join(sorted(arguments)) or 'preset'


def value(text: str):
    """A value as JSON, or else as text."""
    try: return json.loads(text)
    except json.JSONDecodeError: return text


if __name__ == '__main__':
    seed, *arguments = sys.argv[1:]
    found = trained(int(seed), {key: value(text) for key, text in (a.split('=', 1) for a in arguments)})
    found = rounded(found.set_index(KEY))
    put_rows(found, RESULTS)
    print(found.T.to_string())
