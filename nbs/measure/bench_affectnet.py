"""Memory and speed with a copy of AffectNet: `OMP_NUM_THREADS=1 python nbs/measure/bench_affectnet.py [N ...]`.

For each N (2,000, 20,000 and 100,000 if none is given) a folder in the layout of 2017 is written, with N JPEG files of
120 × 120 pixels that show nothing, and 68 landmarks each. Then one process aligns all faces to 64 pixels into a cache,
and another makes the experiment and draws a hundred batches; of each the largest resident memory is noted, and of the
first its faces per second. The rows go into bench-affectnet.csv beside this file. Some minutes; the largest folder
takes two gigabytes, and each is deleted.
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
import resource, sys, time, torch, warnings
from rbvae_nb.affectnet import affectnet, cache_faces
warnings.simplefilter('ignore')
torch.set_num_threads(1)
what, here = sys.argv[1:]
start = time.perf_counter()
if what == 'cache': cache_faces(here, f'{here}/rbvae-cache/affine-64/faces', 64, progress=False)
else:
    sets = affectnet(64, here, progress=False).sets
    for _ in range(100): sets.batch(36)
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
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


def part(what: str, here: Path) -> tuple[float, float]:
    """Seconds and largest resident memory in MiB of a process."""
    run = subprocess.run([sys.executable, '-c', PART, what, str(here)], check=True, stdout=subprocess.PIPE, text=True)
    seconds, memory = map(float, run.stdout.split()[-2:])
    return seconds, memory


def measured(n: int) -> dict[str, float]:
    """One row."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), n)
        seconds, memory = part('cache', Path(folder))
        return {'faces': n, 'cache, MiB': round(memory), 'cache, faces/s': round(n / seconds),
                'batches, MiB': round(part('batches', Path(folder))[1])}


if __name__ == '__main__':
    start = time.perf_counter()
    rows = pd.DataFrame([measured(int(n)) for n in sys.argv[1:] or (2000, 20000, 100000)])
    rows.to_csv(RESULTS, index=False)
    print(rows.T.to_string(), f'\n{time.perf_counter() - start:.0f} s')
