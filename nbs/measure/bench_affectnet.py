"""Memory with a copy of AffectNet: `OMP_NUM_THREADS=1 python nbs/measure/bench_affectnet.py [N ...]`.

For each N (2,000, 20,000 and 100,000 if none is given) a folder in the layout of 2017 is written, with N JPEG files of
120 × 120 pixels that show nothing, and 68 landmarks each. Then one process aligns all faces to 64 pixels into a cache,
and another makes the experiment and draws a hundred batches; of each the largest resident memory is noted. (For the
speed there is bench_alignment.py.) The rows go into bench-affectnet.csv beside this file. Some minutes; the largest
folder takes two gigabytes, and each is deleted.
"""
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
from bench_alignment import some_images, some_landmarks
from rbvae_nb.affectnet import COLUMNS

RESULTS = Path(__file__).with_name('bench-affectnet.csv')
PART = '''
import resource, sys, torch, warnings
from rbvae_nb.affectnet import affectnet, cache_faces
warnings.simplefilter('ignore')
torch.set_num_threads(1)
what, here = sys.argv[1:]
if what == 'cache': cache_faces(here, f'{here}/rbvae-cache/affine-64/faces', 64, progress=False)
else:
    sets = affectnet(64, here, progress=False).sets
    for _ in range(100): sets.batch(36)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
'''


def write(root: Path, n: int) -> None:
    """A copy of n faces, every expression equally often."""
    rng, folder = np.random.default_rng(0), root / 'Manually_Annotated_Images' / '1'
    folder.mkdir(parents=True)
    files = [cv2.imencode('.jpg', image)[1].tobytes() for image in some_images(50, 120, rng)]
    with open(root / 'training.csv', 'w') as table:
        table.write(','.join(COLUMNS) + '\n')
        for i in range(n):
            (folder / f'{i}.jpg').write_bytes(files[i % 50])
            marks = ';'.join(f'{value:.2f}' for value in some_landmarks(rng, 120).ravel())
            table.write(f'1/{i}.jpg,0,0,120,120,{marks},{i % 8},0,0\n')


def part(what: str, here: Path) -> float:
    """Largest resident memory of a process, in MiB."""
    run = subprocess.run([sys.executable, '-c', PART, what, str(here)], check=True, stdout=subprocess.PIPE, text=True)
    return float(run.stdout.split()[-1])


def measured(n: int) -> dict[str, float]:
    """One row."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), n)
        return {'faces': n} | {f'{what}, MiB': round(part(what, Path(folder))) for what in ('cache', 'batches')}


if __name__ == '__main__':
    start = time.perf_counter()
    rows = pd.DataFrame([measured(int(n)) for n in sys.argv[1:] or (2000, 20000, 100000)])
    rows.to_csv(RESULTS, index=False)
    print(rows.T.to_string(), f'\n{time.perf_counter() - start:.0f} s')
