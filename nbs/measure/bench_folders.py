"""Memory and speed with two folders of images: `OMP_NUM_THREADS=1 python nbs/measure/bench_folders.py [N ...]`.

For each N (10,000 and 100,000 if none is given) N JPEG files of 64 × 64 pixels are written into two folders, cached,
trained from for twenty steps, and encoded, each in a process of its own, whose largest resident memory is noted. Speeds
are images per second: of caching both folders, of `rbvae encode`, and of the encoders alone on a tensor of 5,000
images; the last two in turn, five times, of which the medians stand here, and the median of their ratios with the
smallest and the largest. The rows go into bench-folders.csv beside this file. Some minutes; the folders take half a
gigabyte and are deleted.
"""
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cv2
import numpy as np
import pandas as pd

RESULTS = Path(__file__).with_name('bench-folders.csv')
PART = '''
import resource, sys, time, torch
from pathlib import Path
from rbvae_nb.folders import CachedImages, folder_sets
from rbvae_nb.images import take
from rbvae_nb.methods import load
from rbvae_nb.runs import RunSettings, encode
from rbvae_nb.training import train
torch.set_num_threads(1)
what, here = sys.argv[1], Path(sys.argv[2])
settings = RunSettings(str(here / 'with'), str(here / 'without'), steps=20)
start = time.perf_counter()
if what == 'cache': folder_sets(settings.unlabelled, settings.reference, here / 'cache', progress=False)
elif what == 'train':
    sets = folder_sets(settings.unlabelled, settings.reference, here / 'cache', progress=False)
    model, recipe = settings.model()
    train(model, sets, **recipe, device='cpu', out=here / 'run', progress=False)
    model.save(here / 'run' / 'model.safetensors')
elif what == 'encode': encode(here / 'run', settings.unlabelled, here / 'features.csv', device='cpu')
elif what == 'in turn':
    model, images = load(here / 'run'), take(CachedImages(here / 'cache/unlabelled'), range(5000))
    for _ in range(5):
        start = time.perf_counter()
        model.encode(images)
        alone = time.perf_counter() - start
        encode(here / 'run', settings.unlabelled, here / 'features.csv', device='cpu')
        print('turn', alone, time.perf_counter() - start - alone)
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
'''


def write(folder: Path, n: int) -> None:
    """n files, each of another image."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    ground = cv2.GaussianBlur(rng.uniform(0, 255, (600, 600, 3)), (0, 0), 5)
    ground = cv2.normalize(ground, None, 0, 255, cv2.NORM_MINMAX).astype(np.uint8)
    for i in range(n):
        top, left = rng.integers(0, 600 - 64, 2)
        cv2.imwrite(str(folder / f'{i:06}.jpg'), ground[top:top + 64, left:left + 64])


def part(what: str, here: Path) -> str:
    """What one process prints; at the end, its seconds and its largest resident memory in MiB."""
    run = subprocess.run([sys.executable, '-c', PART, what, str(here)], check=True, stdout=subprocess.PIPE, text=True)
    return run.stdout


def in_turn(here: Path, n: int) -> dict[str, float]:
    """Speed of the encoders alone, and of encoding a folder of n images."""
    turns = [line.split()[1:] for line in part('in turn', here).splitlines() if line.startswith('turn ')]
    alone, encode = 5000 / np.array(turns, float)[:, 0], n / np.array(turns, float)[:, 1]
    ratio = encode / alone
    return {'encode, images/s': round(np.median(encode)), 'encoder alone, images/s': round(np.median(alone)),
            'ratio': np.median(ratio).round(2), 'ratio, min': ratio.min().round(2), 'ratio, max': ratio.max().round(2)}


def measured(n: int) -> dict[str, float]:
    """One row."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        for name in ('with', 'without'): write(here / name, n // 2)
        row: dict[str, float] = {'images': n}
        for what in ('cache', 'train', 'encode'):
            seconds, memory = map(float, part(what, here).split()[-2:])
            row[f'{what}, MiB'] = round(memory)
            if what == 'cache': row['cache, images/s'] = round(n / seconds)
        return row | in_turn(here, n // 2)


if __name__ == '__main__':
    start = time.perf_counter()
    rows = pd.DataFrame([measured(int(n)) for n in sys.argv[1:] or ('10000', '100000')])
    rows.to_csv(RESULTS, index=False)
    print(rows.T.to_string(), f'\n{time.perf_counter() - start:.0f} s')
