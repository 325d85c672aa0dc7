"""Train on drawn faces and ask what the codes know: `OMP_NUM_THREADS=1 python nbs/measure/faces.py METHOD SEED`.

The small preset, on drawn_faces. Of each code a row of faces.csv, beside this file, says how many of the seven
expressions, and of the twenty people, a line reads rightly in the test split, with every expression in a column of its
own; and how much exchanging the code changes images. faces-swaps.csv says what the judge of faces_judge.py sees in real
images, in reconstructions, and in images with the **e** of another person: the person, the expression of the image that
gave **e** and the own one, and how much of either's expression is in the landmarks. With a(i) the displacement of a
face's landmarks by its own action units, and b(i) by those of the giver, for the same person in the same view, what is
drawn is fitted by stays · a(i) + arrives · b(i), least squares over all images: a perfect swap has 0 and 1. Twenty
minutes on a core for sRb-VAE; a run that was stopped goes on from its checkpoint in the folder faces/ of where it was
started, which also keeps the weights.
"""
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from rbvae_nb.attributes import AttributeClassifier, classifier_for, partners, swap
from rbvae_nb.experiments import Experiment
from rbvae_nb.faces import Faces, drawn_faces, landmarks, sample_faces
from rbvae_nb.methods import METHODS, Method
from rbvae_nb.probing import classify, encode_split
from rbvae_nb.report import left_unexplained, use_of_code
from rbvae_nb.training import train
from rows import put_rows, rounded
from torch import Tensor

HERE = Path(__file__).parent


def knows(model: Method, data: Experiment, code: str) -> dict[str, float]:
    """Shares of right answers in the test split."""
    fit, test = data.splits()
    x, y = (encode_split(model, split)[code] for split in (fit, test))
    told = {what: classify(x, of(fit), y) == of(test) for what, of in
            (('expression', lambda split: split.factors['expression']), ('person', lambda split: split.labels))}
    right, expression = told['expression'], test.factors['expression']
    row = {what: values.mean() for what, values in told.items()}
    return row | {name: right[expression == name].mean() for name in np.unique(expression)}


def displaced(faces: Faces, units: np.ndarray) -> np.ndarray:  # (N, 136)
    """How far these units move the landmarks of faces."""
    at, rest = (landmarks(faces.people, moves, faces.views) for moves in (units, 0 * units))
    return (at - rest).reshape(len(units), -1)


def seen(judge: AttributeClassifier, images: Tensor, faces: Faces, giver: np.ndarray) -> dict[str, float]:
    """What the judge sees in images of these people and views, with the expressions of these rows or of their own."""
    who, found = judge.measure(images)
    at = np.stack([np.stack([found[f'{axis}{k}'] for axis in 'xy'], 1) for k in range(68)], 1).reshape(len(who), -1)
    rest = landmarks(faces.people, 0 * faces.units, faces.views).reshape(len(who), -1)
    parts = [displaced(faces, units).ravel() for units in (faces.units, faces.units[giver])]
    if (giver == np.arange(len(giver))).all(): parts = parts[:1]
    shares = np.linalg.lstsq(np.stack(parts, 1), (at - rest).ravel(), rcond=None)[0]
    told = dict(person=(who == faces.who).mean(), own=(found['expression'] == faces.expression).mean(),
                giver=(found['expression'] == faces.expression[giver]).mean())
    return told | dict(zip(('stays', 'arrives'), shares))


def swapped(model: Method, data: Experiment) -> dict[str, dict[str, float]]:
    """What the judge sees in real images, reconstructions and swaps of the test split."""
    judge, faces, images = classifier_for(data), sample_faces()['test'], data.splits()[1].images
    own, giver = np.arange(len(images)), partners(faces.who)
    rows = {'real': seen(judge, images, faces, own),
            'reconstruction': seen(judge, model.reconstruct(images), faces, own)}
    return rows | ({'swap': seen(judge, swap(model, images, giver), faces, giver)} if 'e' in model.codes else {})


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
    swaps = [dict(method=name, seed=seed, images=what, **row) for what, row in swapped(model, data).items()]
    for made, key, file in ((rows, 'code', 'faces.csv'), (swaps, 'images', 'faces-swaps.csv')):
        put_rows(rounded(pd.DataFrame(made).set_index(['method', 'seed', key])), HERE / file)
        print(pd.DataFrame(made).T.to_string())
