"""Which arguments suit drawn faces: `OMP_NUM_THREADS=1 python nbs/measure/faces_presets.py METHOD STEPS KEY=VALUE ...`.

Trains the small preset, with these arguments instead of its own, on drawn_faces with seed 0. Lines are fitted to a
random half of the split for fitting, and judged on the other half: the test split is not looked at. The row goes into
faces-presets.csv beside this file.

For sRb-VAE the rule was: the greatest difference between the expressions read from **e** and those read from **z**. It
came out as a tie, the differences being smaller than their noise. So the columns about swaps, of the whole split for
fitting, were added afterwards, and what is left unexplained; both speak for the arguments that faces.py has. By then
results of the test split had been seen, too.

For every other method a rule was written down before its runs: of the preset and of the likelihood without coarse
levels (`pyramid=0 laplace_scale=0.24`), the one with which, after 3,000 steps, more of the expressions are read from
its code, from **e** if it has one. Swaps do not count. For Rb-VAE the scales 0.4 and 4 were tried as well. After 3,000
steps its numbers differed by less than their noise (the rule alone would have taken 4), so it was judged once more, as
sRb-VAE had been: after 6,500 steps, by expressions and by swaps. Both are best with its preset, or within noise of it.
"""
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from faces import HERE, known, trained
from rbvae_nb.attributes import classifier_for
from rbvae_nb.expressions import judge_swaps
from rbvae_nb.faces import drawn_faces, sample_faces
from rows import put_rows, rounded

if __name__ == '__main__':
    name, steps, *given = sys.argv[1:]
    changes = {key: json.loads(value) for key, value in (one.split('=') for one in given)}
    data, how = drawn_faces(), ' '.join(given) or 'the preset'
    model = trained(name, 0, data, changes, Path('faces') / f'{name}-{steps}-{how}', steps=int(steps))
    fit, _ = data.splits()
    halves = np.array_split(np.random.default_rng(0).permutation(len(fit)), 2)
    rows = known(model, *(fit.rows(half) for half in halves))
    found = {f'{what} {row["code"]}': row[what] for row in rows for what in ('expression', 'person', 'use')}
    if 'e' in model.codes:
        swap = judge_swaps(model, fit.images, sample_faces()['fit'], classifier_for(data))['swap']
        found |= {f'swap, {what}': swap[what] for what in ('person', 'stays', 'arrives')}
    table = pd.DataFrame([dict(method=name, steps=int(steps), arguments=how, **found,
                               unexplained=rows[0]['unexplained'])])
    put_rows(rounded(table.set_index(['method', 'steps', 'arguments'])), HERE / 'faces-presets.csv')
    print(table.T.to_string())
