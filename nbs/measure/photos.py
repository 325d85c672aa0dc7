"""Photographs with and without a thing: `OMP_NUM_THREADS=1 python nbs/measure/photos.py CASE METHOD FOLDER`.

CASE is `stickers` (discs of any colour on patches of photographs; scikit-learn's flower and temple, scikit-image's cat
and coffee) or `lesions` (dark, soft spots on patches of stained tissue, scikit-image's ihc.png): the spots are drawn,
the photographs are real. Patches for training come from the left three quarters of a photograph, those of the test from
the rest. Everything after that is the command line as a user would call it: train, report, encode; METHOD is `srbvae`
or `rbvae`, FOLDER is where the run goes, report.html included. What lines read from either code of the test patches
goes into photos.csv beside this file: the mean error over that of a constant; and photos/CASE-METHOD.png shows twelve
of them. Half an hour on a core for sRb-VAE; `pip install scikit-image` brings its pictures.

Of a disentangled model, e knows the spot (below 1) and not the patch (1), and z knows the patch and not the spot.
"""
import sys
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import torch
from rbvae_nb.cli import main
from rbvae_nb.folders import CachedImages, read_image
from rbvae_nb.images import show_rows
from rbvae_nb.probing import regress
from rbvae_nb.report import numbers_of, open_run, warnings_of
from rows import put_rows, rounded
from torch import Tensor

SIDE, TRAINING, TEST = 64, 5000, 1000  # pixels of a patch, patches
RESULTS = Path(__file__).with_name('photos.csv')
Drawn = tuple[np.ndarray, dict[str, float]]  # a patch (SIDE, SIDE, 3) uint8 with a spot, and what is known of it


def photographs(case: str) -> list[np.ndarray]:  # (H, W, 3) uint8 each
    """The real ones."""
    from skimage import data
    from sklearn.datasets import load_sample_image
    if case == 'lesions': return [data.immunohistochemistry()]
    return [load_sample_image('flower.jpg'), load_sample_image('china.jpg'), data.cat(), data.coffee()]


def patch(photos: list[np.ndarray], rng: np.random.Generator, test: bool) -> np.ndarray:
    """A patch in one of eight positions."""
    photo = photos[rng.integers(len(photos))]
    height, width = photo.shape[:2]
    edge = 3 * width // 4
    left = rng.integers(edge, width - SIDE) if test else rng.integers(edge - SIDE)
    top = rng.integers(height - SIDE)
    turned = np.rot90(photo[top:top + SIDE, left:left + SIDE], rng.integers(4))
    return np.ascontiguousarray(turned[:, ::rng.choice([-1, 1])])


def sticker(image: np.ndarray, rng: np.random.Generator) -> Drawn:
    """A disc."""
    x, y, radius = *rng.uniform(16, 48, 2), rng.uniform(7, 15)
    colour = rng.integers(0, 256, 3)
    at = tuple(int(16 * v) for v in (x, y))
    drawn = cv2.circle(image.copy(), at, int(16 * radius), colour.tolist(), -1, cv2.LINE_AA, shift=4)
    return drawn, dict(x=x, y=y, radius=radius) | dict(zip(('red', 'green', 'blue'), colour.astype(float)))


def lesion(image: np.ndarray, rng: np.random.Generator) -> Drawn:
    """A dark spot with a soft, uneven edge, brown or bluish."""
    x, y, radius, depth, tint = *rng.uniform(16, 48, 2), rng.uniform(6, 14), rng.uniform(.4, .85), rng.uniform()
    rows, columns = np.mgrid[:SIDE, :SIDE]
    uneven = 1 + .25 * cv2.GaussianBlur(rng.normal(size=(SIDE, SIDE)), (0, 0), 4) * 8
    far = np.hypot(columns - x, rows - y) / (radius * uneven)
    mask = depth / (1 + np.exp(6 * (far - 1)))
    colour = (1 - tint) * np.array([90, 40, 20]) + tint * np.array([40, 40, 110])
    drawn = image * (1 - mask[..., None]) + colour * mask[..., None]
    return drawn.round().clip(0, 255).astype(np.uint8), dict(x=x, y=y, radius=radius, depth=depth, tint=tint)


SPOTS = dict(stickers=sticker, lesions=lesion)


def known(image: np.ndarray) -> dict[str, float]:
    """What is known of a patch before anything is drawn on it: its mean colour, and how much it varies."""
    red, green, blue = image.reshape(-1, 3).mean(0)
    return {'patch red': red, 'patch green': green, 'patch blue': blue, 'patch contrast': image.mean(2).std()}


def write(case: str, folder: Path) -> None:
    """The folders `with`, `without` and `test`, and a table of what is known of `with` and `test`."""
    photos, rng = photographs(case), np.random.default_rng(0)
    for name, n in (('with', TRAINING), ('without', TRAINING), ('test', TEST)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        rows = []
        for i in range(n):
            image = patch(photos, rng, name == 'test')
            drawn, of_spot = (image, {}) if name == 'without' else SPOTS[case](image, rng)
            rows.append(dict(file=f'{i:04}.png') | of_spot | known(image))
            cv2.imwrite(str(folder / name / f'{i:04}.png'), drawn[..., ::-1])
        if name != 'without': pd.DataFrame(rows).to_csv(folder / f'{name}.csv', index=False)


def errors(features: pd.DataFrame, table: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Mean error from either code over that of a constant; one half of the patches fits, the other is judged."""
    table = table.merge(features, on='file')
    found, half = {}, len(table) // 2
    for name in [name for name in table if name != 'file' and name not in features]:
        values = table[name].to_numpy()[:, None]
        constant = np.abs(values[half:] - np.median(values[:half])).mean()
        for code in 'ez':
            x = table.filter(regex=f'^{code}[0-9]+$').to_numpy(np.float32)
            found[code, name] = np.abs(regress(x[:half], values[:half], x[half:]) - values[half:]).mean() / constant
    return found


def images_of_test(images: Path) -> Tensor:  # (12, 3, 32, 32)
    """The first patches of the test, as the model sees them."""
    return torch.stack([read_image(images / 'test' / f'{i:04}.png', 32) for i in range(12)])


def called(*words) -> None:
    """The command line; a refusal ends the script."""
    if main([str(word) for word in words]): raise SystemExit(1)


if __name__ == '__main__':
    case, method, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    run, images = folder / 'run', folder / 'images'
    if not (images / 'test.csv').exists(): write(case, images)
    called('train', '--unlabelled', images / 'with', '--reference', images / 'without', '--out', run,
           '--method', method)
    called('report', run, '--labels', images / 'with.csv')
    called('encode', run, images / 'test', '--out', folder / 'test.csv')
    seen, table = open_run(run), pd.read_csv(images / 'test.csv')
    numbers = errors(pd.read_csv(folder / 'test.csv'), table)
    of_run = numbers_of(seen)
    for code in 'ez':
        for name in ('use of', 'sets told apart by'): numbers[code, name] = of_run[f'{name} {code}']
    picture = show_rows(seen.model.pictures(images_of_test(images)))
    picture.savefig(RESULTS.with_name('photos') / f'{case}-{method}.png')
    rows = [dict(case=case, method=method, code=code, known=name, value=v) for (code, name), v in numbers.items()]
    put_rows(rounded(pd.DataFrame(rows).set_index(['case', 'method', 'code', 'known']), 3), RESULTS)
    print(pd.DataFrame(rows).pivot_table(index='known', columns='code', values='value').round(2).to_string())
    print(len(CachedImages(run / 'cache' / 'unlabelled').skipped), 'skipped', *warnings_of(seen, of_run), sep='\n')
