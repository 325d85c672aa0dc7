"""How many images are enough: `OMP_NUM_THREADS=1 python nbs/measure/counts.py MNIST COUNT [SEED]`.

COUNT styled digits are written into one folder and COUNT plain ones into another, as files, and `rbvae train` makes a
model of the two folders as a new user would: sRb-VAE, with the settings that it chooses. MNIST is a folder that holds
MNIST/raw. A row says what path.py measures, of the 6,000 test digits that the package does not embed; what rebuilding
leaves unexplained, of images that training saw and of new ones (a model that only remembers differs in them); how well
either code tells the two sets apart; and the warnings of `rbvae report`. The rows go into counts.csv beside this file.
Twenty minutes on a core; the run is in the folder counts/ of where it was started.
"""
import sys
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
from fresh import fresh_splits
from path import measured
from rbvae_nb.cli import main
from rbvae_nb.digits import digit_styles
from rbvae_nb.experiments import Split
from rbvae_nb.methods import load
from rbvae_nb.probing import bootstrap, combined_score, encode_split, scores
from rbvae_nb.report import left_unexplained, numbers_of, open_run, warnings_of
from rows import put_rows, rounded
from torch import Tensor

RESULTS = Path(__file__).with_name('counts.csv')


def write(folder: Path, images: Tensor) -> None:
    """One file for each image."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, image in enumerate(images.permute(0, 2, 3, 1).numpy()):
        cv2.imwrite(str(folder / f'{i:05}.png'), np.ascontiguousarray(image[..., ::-1]))


def came_to(run: Path, fit: Split, judged: Split) -> dict[str, float]:
    """All numbers of one model."""
    model = load(run / 'model.safetensors')
    score = combined_score(bootstrap(scores(encode_split(model, fit), fit, encode_split(model, judged), judged)))[0]
    return {'score': score} | measured(model, digit_styles(), fit, judged)


if __name__ == '__main__':
    mnist, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0
    here, data = Path('counts') / f'{count}-{seed}', digit_styles(source=mnist)
    for name, images in (('with', data.sets.unlabelled), ('without', data.sets.reference)):
        if len(images) < count: raise SystemExit(f'expected {count} images, got {len(images)}')
        write(here / name, images[:count])
    folders = '--unlabelled', here / 'with', '--reference', here / 'without', '--out', here / 'run'
    if main(['train', *map(str, folders), '--seed', str(seed)]): raise SystemExit(1)
    row = came_to(here / 'run', *fresh_splits(mnist))
    seen = open_run(here / 'run')
    numbers = numbers_of(seen)
    row |= {name: value for name, value in numbers.items() if not name.startswith('use of')}
    row['left unexplained, new'] = left_unexplained(seen.model, fresh_splits(mnist)[1].images[:500])
    warnings = ' '.join(warnings_of(seen, numbers))
    found = pd.DataFrame([dict(images=count, seed=seed, **row, warnings=warnings)])
    put_rows(rounded(found.set_index(['images', 'seed'])), RESULTS)
    print(found.T.to_string())
