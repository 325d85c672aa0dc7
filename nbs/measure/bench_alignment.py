"""Speed of reading and aligning faces: `OMP_NUM_THREADS=1 python nbs/measure/bench_alignment.py [N ...]`.

For each N (500, 1,000 and 2,000 if none is given) N JPEG files of 450 × 450 pixels, the size of a usual crop, are
written with 68 landmarks each, then read from the disk and aligned into squares of 96 pixels, as AffectNet's are; and
the same images are aligned once more from memory. Each five times, of which the median stands here, with the slowest
and the quickest. The rows go into bench-alignment.csv beside this file; less than a minute.
"""
import sys
import tempfile
import time
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
from rbvae_nb.affectnet import Face, read_face
from rbvae_nb.alignment import align_many, mean_shape
from rbvae_nb.faces import landmarks, sample_people, sample_units, sample_views
from rbvae_nb.folders import side_by_side

RESULTS = Path(__file__).with_name('bench-alignment.csv')


def some_landmarks(rng: np.random.Generator, size: int) -> np.ndarray:
    """68 points of a face that fills most of an image."""
    face = sample_people(1, rng), sample_units(['happiness'], rng), sample_views(1, rng)
    return (landmarks(*face)[0] + 1) * size / 2 - .5


def some_images(n: int, size: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Smooth colours with as much detail as photographs have: a JPEG file of 450 pixels takes some 70 kB."""
    images = []
    for _ in range(n):
        coarse, fine = (cv2.GaussianBlur(rng.normal(0, 1, (size, size, 3)), (0, 0), sigma) for sigma in (12, .8))
        images.append(np.clip(128 + 60 * coarse / coarse.std() + 5 * fine / fine.std(), 0, 255).astype(np.uint8))
    return images


def speeds(what: str, n: int, work) -> dict[str, int]:
    """Images per second in five turns: median, smallest and largest."""
    found = []
    for _ in range(5):
        start = time.perf_counter()
        for square in work(): assert not isinstance(getattr(square, 'image', square), str)
        found.append(n / (time.perf_counter() - start))
    return {what: round(np.median(found)), f'{what}, min': round(min(found)), f'{what}, max': round(max(found))}


def measured(n: int) -> dict[str, float]:
    """One row."""
    rng = np.random.default_rng(0)
    marks, images = [some_landmarks(rng, 450) for _ in range(n)], some_images(20, 450, rng)
    shape = mean_shape(np.stack(marks))
    with tempfile.TemporaryDirectory() as folder:
        faces = [Face(f'{i}.jpg', Path(folder, f'{i}.jpg'), points, 0) for i, points in enumerate(marks)]
        for i, face in enumerate(faces): cv2.imwrite(str(face.path), images[i % 20])
        size = sum(face.path.stat().st_size for face in faces) / n
        read = speeds('read and aligned, images/s', n,
                      lambda: side_by_side(lambda face: read_face(face, shape, 96), faces))
    alone = speeds('aligned from memory, images/s', n,
                   lambda: align_many(((images[i % 20], points) for i, points in enumerate(marks)), shape))
    return {'images': n, 'kB per file': round(size / 1000)} | read | alone


if __name__ == '__main__':
    start = time.perf_counter()
    rows = pd.DataFrame([measured(int(n)) for n in sys.argv[1:] or (500, 1000, 2000)])
    rows.to_csv(RESULTS, index=False)
    print(rows.T.to_string(), f'\n{time.perf_counter() - start:.0f} s')
