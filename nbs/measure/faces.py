"""Train on drawn faces and ask what the codes know: `OMP_NUM_THREADS=1 python nbs/measure/faces.py METHOD SEED`.

The small preset on drawn_faces, with the arguments in CHANGES (faces_presets.py says why). Of each code a row of
faces.csv, beside this file, says how many of the seven expressions, and of the twenty people, a line reads rightly in
the test split, with every expression in a column of its own; and how much exchanging the code changes images.
faces-swaps.csv has what `judge_swaps` says of reconstructions and swaps. Half an hour on a core for sRb-VAE, a quarter
for the others; a run that was stopped goes on from its checkpoint in the folder faces/ of where it was started, which
also keeps the weights.
"""
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from rbvae_nb.attributes import classifier_for
from rbvae_nb.experiments import Experiment, Split
from rbvae_nb.expressions import judge_swaps
from rbvae_nb.faces import drawn_faces, sample_faces
from rbvae_nb.methods import METHODS, Method
from rbvae_nb.probing import classify, encode_split
from rbvae_nb.report import left_unexplained, use_of_code
from rbvae_nb.training import train
from rows import put_rows, rounded

HERE = Path(__file__).parent
CHANGES = {  # of the preset: no coarse levels
    'srbvae': dict(pyramid=0, laplace_scale=2., pretraining_scale=.24),
    'dip_vae_1': dict(pyramid=0, laplace_scale=.24),
    'mathieu': dict(pyramid=0, laplace_scale=.24),
}


def knows(model: Method, fit: Split, judged: Split, code: str) -> dict[str, float]:
    """Shares of right answers, of a line that was fitted to `fit`."""
    x, y = (encode_split(model, split)[code] for split in (fit, judged))
    told = {what: classify(x, of(fit), y) == of(judged) for what, of in
            (('expression', lambda split: split.factors['expression']), ('person', lambda split: split.labels))}
    right, expression = told['expression'], judged.factors['expression']
    row = {what: values.mean() for what, values in told.items()}
    return row | {name: right[expression == name].mean() for name in np.unique(expression)}


def known(model: Method, fit: Split, judged: Split) -> list[dict[str, float]]:
    """A row for each code."""
    images, rows = judged.images, []
    for code in model.codes:
        use = use_of_code(model, images, code) if len(model.codes) > 1 else np.nan
        rows.append(dict(code=code, **knows(model, fit, judged, code), use=use,
                         unexplained=left_unexplained(model, images)))
    return rows


def trained(name: str, seed: int, data: Experiment, changes: dict, out: Path, **recipe) -> Method:
    """A model that is trained, or found in its folder."""
    model, usual = METHODS.find(name).preset('small', seed, **changes)
    train(model, data.sets, **usual | recipe, out=out)
    model.save(out / 'model.safetensors')
    return model


if __name__ == '__main__':
    name, seed = sys.argv[1], int(sys.argv[2])
    data = drawn_faces()
    model = trained(name, seed, data, CHANGES.get(name, {}), Path('faces') / f'{name}-{seed}')
    judge, faces = classifier_for(data), sample_faces()['test']
    rows = known(model, *data.splits())
    swaps = [dict(images=what, **row)
             for what, row in judge_swaps(model, data.splits()[1].images, faces, judge).items()]
    for made, key, file in ((rows, 'code', 'faces.csv'), (swaps, 'images', 'faces-swaps.csv')):
        table = pd.DataFrame(made).assign(method=name, seed=seed).set_index(['method', 'seed', key])
        put_rows(rounded(table), HERE / file)
        print(table.T.to_string())
