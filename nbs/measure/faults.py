"""Kill a run from two folders at random moments: `OMP_NUM_THREADS=1 python nbs/measure/faults.py [KILLS]`.

A process caches two small folders, trains, saves and encodes; it is killed (SIGKILL) at a random moment and started
again, 200 times if no number is given. After every kill each file that stands under its own name must be readable:
settings, caches, checkpoint, weights, features. Whenever a run has come to its end, its weights, caches and features
must be those of a run that nobody disturbed, byte for byte, and another run begins. faults.csv beside this file says,
for each phase, how often it was killed, and how many files were unreadable or others in the end; another call goes on
counting.
"""
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import torch
from rbvae_nb.files import load_tensors
from rbvae_nb.folders import CachedImages
from rbvae_nb.methods import load
from rbvae_nb.runs import RunSettings, begin, encode, go_on, settings_of

RESULTS = Path(__file__).with_name('faults.csv')
ENDS = 'cache/unlabelled/pixels.u8', 'cache/reference/pixels.u8', 'model.safetensors', 'features.csv'


def folders(root: Path, n: int = 400) -> tuple[Path, Path]:
    """Two folders of n images each."""
    rng, made = np.random.default_rng(0), (root / 'with', root / 'without')
    for folder in made:
        folder.mkdir()
        for i in range(n):
            image = cv2.GaussianBlur(rng.uniform(0, 255, (64, 64, 3)), (0, 0), 6).astype(np.uint8)
            cv2.imwrite(str(folder / f'{i:03}.png'), image)
    return made


def content(path: Path) -> object:
    """All bytes; of weights those of the tensors, since the order of two keys in their header is left to chance."""
    if path.suffix != '.safetensors': return path.read_bytes()
    tensors, about = load_tensors(path)
    return about, {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}


def work(run: Path, images: Path) -> None:
    """What a process does until it is killed."""
    sys.stdout = open(os.devnull, 'w')
    torch.set_num_threads(1)
    go_on(run, 'cpu', progress=False, checkpoint_every=3)
    encode(run, images, run / 'features.csv', device='cpu')


def started(run: Path, images: Path) -> multiprocessing.Process:
    """A new process that goes on with a run; it is forked from one that has done the imports, and nothing else."""
    child = multiprocessing.get_context('forkserver').Process(target=work, args=(run, images))
    child.start()
    return child


def phase(run: Path) -> str:
    """What a run was doing when it was killed, by what is there."""
    if not (run / 'cache' / 'reference').exists(): return 'caching'
    return 'encoding' if (run / 'model.safetensors').exists() else 'training and saving'


def unreadable(run: Path, n: int) -> list[str]:
    """Files that stand under their own names and cannot be used."""
    checks = {
        'run.json': settings_of, 'model.safetensors': load, 'checkpoint.safetensors': load_tensors,
        'cache/unlabelled': CachedImages, 'cache/reference': CachedImages,
        'features.csv': lambda path: len(pd.read_csv(path)) == n or 1 / 0}
    wrong = []
    for name, check in checks.items():
        try: (run / name).exists() and check(run if check is settings_of else run / name)
        except Exception: wrong.append(name)
    return wrong


def counted() -> Counter:
    """What earlier calls have counted."""
    if not RESULTS.exists(): return Counter()
    table = pd.read_csv(RESULTS, index_col='phase')
    return Counter({(phase, what): int(n) for what in table for phase, n in table[what].items()})


def keep(counts: Counter) -> pd.DataFrame:
    """The table, also in its file."""
    table = pd.Series(counts).unstack(fill_value=0).rename_axis('phase')
    table.to_csv(RESULTS)
    return table


def main(kills: int) -> None:
    """Kill and go on, until there were so many kills."""
    multiprocessing.get_context('forkserver').set_forkserver_preload(['rbvae_nb.runs'])
    counts = counted()
    draw = random.Random(counts.total())
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        images, plain = folders(root)
        settings = RunSettings(str(images), str(plain), method='rbvae', steps=30)
        begin(root / 'whole', settings)
        started(root / 'whole', images).join()  # the fork server begins
        shutil.rmtree(root / 'whole')
        begin(root / 'whole', settings)
        child, before = started(root / 'whole', images), time.perf_counter()
        child.join()
        assert child.exitcode == 0
        length, run = time.perf_counter() - before, root / 'run'
        while sum(n for (_, what), n in counts.items() if what == 'kills') < kills:
            if not run.exists(): begin(run, settings)
            child = started(run, images)
            child.join(draw.uniform(0, length))
            if child.is_alive():
                child.kill()
                child.join()
            if child.exitcode == -signal.SIGKILL:
                counts[phase(run), 'kills'] += 1
                counts[phase(run), 'unreadable'] += len(unreadable(run, 400))
            else:
                same = [content(run / name) == content(root / 'whole' / name) for name in ENDS]
                counts['all', 'runs'] += 1
                counts['all', 'other in the end'] += child.exitcode != 0 or not all(same)
                shutil.rmtree(run)
            keep(counts)
    print(keep(counts).to_string())


if __name__ == '__main__': main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
