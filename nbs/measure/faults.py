"""Kill a run from two folders at random moments: `OMP_NUM_THREADS=1 python nbs/measure/faults.py [KILLS]`.

A process caches two small folders, trains, saves and encodes; it is killed (SIGKILL) at a random moment and started
again, 200 times if no number is given. After every kill each file that stands under its own name must be readable:
settings, caches, checkpoint, weights, features. Whenever a run has come to its end, its weights, caches and features
must be those of a run that nobody disturbed, byte for byte, and another run begins. faults.csv beside this file says,
for each phase, how often it was killed, and how many files were unreadable or others in the end; another call goes on
counting. About an hour on a core.
"""
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
from rbvae_nb.files import load_tensors
from rbvae_nb.folders import CachedImages
from rbvae_nb.methods import load
from rbvae_nb.runs import RunSettings, begin, settings_of

RESULTS = Path(__file__).with_name('faults.csv')
CHILD = '''
import sys, torch
from rbvae_nb.runs import encode, go_on
torch.set_num_threads(1)
print('ready', flush=True)
go_on(sys.argv[1], 'cpu', progress=False, checkpoint_every=3)
encode(sys.argv[1], sys.argv[2], sys.argv[1] + '/features.csv', device='cpu')
'''
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


def started(run: Path, images: Path) -> subprocess.Popen:
    """A process that goes on with a run, when its imports are done."""
    child = subprocess.Popen([sys.executable, '-c', CHILD, str(run), str(images)], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == 'ready\n'
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
    counts = counted()
    draw = random.Random(counts.total())
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        images, plain = folders(root)
        settings = RunSettings(str(images), str(plain), method='rbvae', steps=30)
        begin(root / 'whole', settings)
        child, before = started(root / 'whole', images), time.perf_counter()
        assert child.wait() == 0
        length, run = time.perf_counter() - before, root / 'run'
        while sum(n for (_, what), n in counts.items() if what == 'kills') < kills:
            if not run.exists(): begin(run, settings)
            child, until = started(run, images), time.perf_counter() + draw.uniform(0, length)
            while child.poll() is None and time.perf_counter() < until: time.sleep(.002)
            if child.poll() is None:
                child.kill()
                child.wait()
                counts[phase(run), 'kills'] += 1
                counts[phase(run), 'unreadable'] += len(unreadable(run, 400))
            else:
                same = [content(run / name) == content(root / 'whole' / name) for name in ENDS]
                counts['all', 'runs'] += 1
                counts['all', 'other in the end'] += child.returncode != 0 or not all(same)
                shutil.rmtree(run)
            table = keep(counts)
    print(table.to_string())


if __name__ == '__main__': main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
