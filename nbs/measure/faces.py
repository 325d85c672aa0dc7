"""Train on drawn faces and ask what the codes know: `OMP_NUM_THREADS=1 python nbs/measure/faces.py METHOD SEED`.

The small preset, on drawn_faces. Of each code the row says how many of the seven expressions, and of the twenty
people, a line reads rightly in the test split, with every expression in a column of its own; and how much exchanging
the code changes images. The rows go into faces.csv beside this file. Twenty minutes on a core for sRb-VAE; a run that
was stopped goes on from its checkpoint in the folder faces/ of where it was started, which also keeps the weights.
"""
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from rbvae_nb.experiments import Experiment
from rbvae_nb.faces import drawn_faces
from rbvae_nb.methods import METHODS, Method
from rbvae_nb.probing import classify, encode_split
from rbvae_nb.report import left_unexplained, use_of_code
from rbvae_nb.training import train
from rows import put_rows, rounded

RESULTS = Path(__file__).with_name('faces.csv')


def knows(model: Method, data: Experiment, code: str) -> dict[str, float]:
    """Shares of right answers in the test split."""
    fit, test = data.splits()
    x, y = (encode_split(model, split)[code] for split in (fit, test))
    told = {what: classify(x, of(fit), y) == of(test) for what, of in
            (('expression', lambda split: split.factors['expression']), ('person', lambda split: split.labels))}
    right, expression = told['expression'], test.factors['expression']
    row = {what: values.mean() for what, values in told.items()}
    return row | {name: right[expression == name].mean() for name in np.unique(expression)}


if __name__ == '__main__':
    name, seed = sys.argv[1], int(sys.argv[2])
    data, here = drawn_faces(), Path('faces') / f'{name}-{seed}'
    model, recipe = METHODS.find(name).preset('small', seed)
    train(model, data.sets, **recipe, out=here)
    model.save(here / 'model.safetensors')
    images, rows = data.splits()[1].images, []
    for code in model.codes:
        use = use_of_code(model, images, code) if len(model.codes) > 1 else np.nan
        rows.append(dict(method=name, seed=seed, code=code, **knows(model, data, code), use=use,
                         unexplained=left_unexplained(model, images)))
    put_rows(rounded(pd.DataFrame(rows).set_index(['method', 'seed', 'code'])), RESULTS)
    print(pd.DataFrame(rows).T.to_string())
