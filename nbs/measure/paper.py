"""Train the paper's presets on a GPU, in pieces of ten minutes: `python nbs/measure/paper.py OUT --mnist MNIST`.

First `rbvae bench` runs, once in a folder (`--no-bench` leaves it out; it measures the CPU too, unless `--device cuda`
is given). Then every method is trained with every seed, each run in a process of its own. A piece ends by itself within
its `--minutes`, and the same command goes on from there until all runs are complete. Whatever ends a piece, even
SIGKILL, costs at most the steps since the last checkpoint, one percent of a training. MNIST is a folder that holds
MNIST/raw: 30,000 reference and 60,000 unlabelled images, which each process makes anew (a quarter of a minute, 3 GB);
without it, and without the variable RBVAE_MNIST, the embedded digits serve. In OUT:

* bench.csv, bench.txt: what the benchmark found and printed; without the second it runs again.
* METHOD-seedN/: weights.safetensors (float16), pictures.png, swaps.csv and probes.csv (on the probes' two splits) and
  history.csv of a complete run; checkpoint.safetensors (with Adam's moments, 90 to 160 MB in the preset of the paper)
  and log.txt.
* runs.csv: a line for each run in the folder: how far it is, or why it failed. Its seconds are those of training alone.
* pieces.csv: a line for each piece: steps per second of all its runs together.

Whether several runs at once do more steps per second than one, two short pieces in folders of their own tell, by their
lines in pieces.csv: `paper.py ONE --methods srbvae --minutes 3 --no-bench`, and `paper.py THREE` with the same and
`--at-once 3`.

This has not run on a GPU yet. Steps per second, hours, and what the probes say there: to be measured.
"""
import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

from safetensors import SafetensorError, safe_open

START, PARENT = time.time(), os.getppid()
RUN = ('method', 'seed', 'status', 'steps', 'of', 'seconds', 'steps_per_second', 'device', 'dtype', 'torch', 'preset',
       'data', 'complete')
PIECE = ('ended', 'at_once', 'runs', 'steps', 'steps_per_second', 'device')


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add('out', type=Path, help='folder for everything that is written')
    add('--methods', nargs='+', default=['rbvae', 'srbvae'])
    add('--seeds', nargs='+', type=int, default=[0, 1, 2])
    add('--at-once', type=int, default=1, help='runs at a time, all on one device')
    add('--minutes', type=float, default=10, help='within which this piece ends')
    add('--mnist', default=os.environ.get('RBVAE_MNIST'), help='folder that holds MNIST/raw')
    add('--device', default='auto', help="'cpu', 'cuda', 'mps', or 'auto'")
    add('--no-bench', action='store_true', help='leave the benchmark out')
    add('--preset', default='paper', help="'medium', or 'small' for a trial")
    add('--steps', type=int, help="for a trial: instead of the preset's own")
    add('--limit', type=int, help='for a trial: images in each set and split, at most')
    add('--worker', type=Path, help=argparse.SUPPRESS)  # the folder of the one run that this process trains
    args = parser.parse_args()
    if args.at_once < 1: parser.error(f'expected at least one run at once, got {args.at_once}')
    return args


# One run, in a process of its own

def images(args: argparse.Namespace, image_size: int):
    """The styled digits, or a few of them."""
    from dataclasses import replace

    import cv2
    import numpy as np

    from rbvae_nb.digits import digit_styles
    from rbvae_nb.images import ImageSets
    cv2.setNumThreads(1)  # images this small are made sooner by one
    data = digit_styles(image_size, args.mnist or 'embedded', n_styles=1 if args.limit else None)
    if not args.limit: return data
    sets = ImageSets(data.sets.unlabelled[:args.limit], data.sets.reference[:args.limit])
    fit, test = (split.rows(np.arange(len(split))[:args.limit]) for split in data.splits())
    return replace(data, sets=sets, fit=fit, test=test)


def swaps(model, test):
    """Errors of the style, and the share of right digits, as the attribute classifier sees them: a table."""
    import pandas as pd

    from rbvae_nb.attributes import classifier_for, swap_bounds, swap_scores
    from rbvae_nb.digits import digit_styles
    classifier = classifier_for(digit_styles(n_styles=1))  # looks at 32 pixels, whatever the size
    seen = swap_scores(model, test, classifier) | swap_bounds(test, classifier)
    return pd.Series({key: values.mean() for key, values in seen.items()}).unstack().round(4)


def train_and_probe(args: argparse.Namespace, folder: Path) -> None:
    """One run, from where it was stopped to its probes."""
    import torch

    from rbvae_nb.files import write_whole
    from rbvae_nb.images import show_rows
    from rbvae_nb.methods import METHODS, load
    from rbvae_nb.probing import probe
    from rbvae_nb.training import has_bfloat16, pick_device, train
    method, _, seed = folder.name.rpartition('-seed')
    model, recipe = METHODS.find(method).preset(args.preset, int(seed))
    if args.steps is not None: recipe |= dict(steps=args.steps)
    device, every = pick_device(args.device), max(1, recipe['steps'] // 100)
    about = dict(of=recipe['steps'], dtype='bfloat16' if has_bfloat16(device) else 'float32', torch=torch.__version__,
                 device=torch.cuda.get_device_name(device) if device.type == 'cuda' else device.type,
                 preset=args.preset, data='MNIST' if args.mnist else 'embedded')
    write_whole(folder / 'run.json', json.dumps(about).encode())
    data = images(args, model.image_size)
    def alone(step: int, row: dict) -> None:
        if os.getppid() != PARENT: signal.raise_signal(signal.SIGINT)  # nobody is there to end this piece
    history = train(model, data.sets, **recipe, device=device, dtype=about['dtype'], out=folder,
                    checkpoint_every=every, log_every=max(1, every // 20), progress=False, callback=alone)
    weights = model.save(folder / 'weights.safetensors', dtype='float16')
    write_whole(folder / 'history.csv', history.frame().to_csv().encode())
    model = load(weights, device=device)
    show_rows(model.pictures(data.splits()[1].images[:12])).savefig(folder / 'pictures.png')
    write_whole(folder / 'swaps.csv', swaps(model, data.splits()[1]).to_csv(index_label='images').encode())
    table = probe(model, data).round(4)
    write_whole(folder / 'probes.csv', table.to_csv(index_label='code').encode())  # the last: the run is complete


def work(args: argparse.Namespace, folder: Path) -> int:
    """A worker: SIGINT ends it at once, but a training saves its checkpoint first."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    from filelock import FileLock
    with FileLock(folder / 'lock'):  # the worker of a piece that was killed may be there until its history's next row
        try: train_and_probe(args, folder)
        except KeyboardInterrupt: pass
        except Exception as error:
            (folder / 'failed.txt').write_text(f'{type(error).__name__}: {" ".join(str(error).split())}', 'utf-8')
            raise
    return 0


# The supervisor of a piece; it leaves torch to the workers

def progress(folder: Path) -> tuple[int, float]:
    """Steps and seconds of training in the checkpoint of a run."""
    try:
        with safe_open(folder / 'checkpoint.safetensors', 'np') as f: about = json.loads(f.metadata()['rbvae_nb'])
    except (OSError, SafetensorError): return 0, 0.  # a worker says what is wrong with it
    return about['step'], about['history'][-1]['seconds']


def state(folder: Path) -> dict:
    """What is known of a run: its line of runs.csv."""
    method, _, seed = folder.name.rpartition('-seed')
    about, failed, probes = (folder / name for name in ('run.json', 'failed.txt', 'probes.csv'))
    known, (steps, seconds) = json.loads(about.read_text('utf-8')) if about.exists() else {}, progress(folder)
    known |= dict(method=method, seed=int(seed), steps=steps, seconds=seconds, status='to be continued',
                  steps_per_second=round(steps / max(seconds, .01), 3))
    if failed.exists(): return known | dict(status=f'failed: {failed.read_text("utf-8")}')
    if not probes.exists(): return known
    complete = datetime.fromtimestamp(probes.stat().st_mtime, timezone.utc)
    return known | dict(status='complete', complete=complete.isoformat(timespec='seconds'))


def benchmark(args: argparse.Namespace, stop: float) -> None:
    """`rbvae bench` with the device to itself, once; bench.csv has what it found, even where time was over first."""
    told, part = args.out / 'bench.txt', args.out / 'bench.part'
    if told.exists(): return
    command = [sys.executable, '-m', 'rbvae_nb.cli', 'bench', '--out', args.out / 'bench.csv', '--device', args.device]
    with open(part, 'w') as f:
        try: ended = subprocess.run(command, stdout=f, stderr=f, timeout=max(1, stop - time.time())).returncode
        except subprocess.TimeoutExpired: ended = 0
    print(part.read_text('utf-8') + (f'benchmark: failed ({ended})' if ended else 'benchmark: over'), flush=True)
    if not ended: part.replace(told)


def start(folder: Path) -> subprocess.Popen:
    """A worker for this run, with the arguments of this command; in a session of its own, so that Ctrl-C passes it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'failed.txt').unlink(missing_ok=True)
    command = [sys.executable, __file__, *sys.argv[1:], '--worker', str(folder)]
    with open(folder / 'log.txt', 'a') as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def report(folder: Path, ended: int) -> None:
    """Say how a run stands; a worker that could not give its reason has one all the same."""
    failed = folder / 'failed.txt'
    if ended not in (0, -signal.SIGINT) and not failed.exists():
        failed.write_text(f'ended with status {ended}; see {folder.name}/log.txt', 'utf-8')
    print(f'{folder.name}: {state(folder)["status"]}', flush=True)


def supervise(waiting: list[Path], at_once: int, stop: float, spare: float) -> None:
    """Keep as many workers as may run until time is over, then ask them to end; who does not is killed."""
    running: dict[Path, subprocess.Popen] = {}
    try:
        while (waiting or running) and time.time() < stop:
            while waiting and len(running) < at_once:
                folder = waiting.pop(0)
                running[folder] = start(folder)
            for folder in [folder for folder, worker in running.items() if worker.poll() is not None]:
                report(folder, running.pop(folder).returncode)
            time.sleep(.1)
    finally:
        last = time.time() + .8 * spare
        for worker in running.values(): worker.send_signal(signal.SIGINT)
        for folder, worker in running.items():
            try: report(folder, worker.wait(max(0, last - time.time())))
            except subprocess.TimeoutExpired: worker.kill()


def append(path: Path, columns: tuple[str, ...], rows: list[dict]) -> None:
    """Lines of a CSV file, the first of which names the columns."""
    with open(path, 'a', newline='', encoding='utf-8') as f:
        table = csv.DictWriter(f, columns, extrasaction='ignore', lineterminator='\n')
        if not f.tell(): table.writeheader()
        table.writerows(rows)


def summarise(args: argparse.Namespace, before: dict[Path, tuple[int, float]]) -> None:
    """Write runs.csv anew, and the steps of this piece, since `before`, into pieces.csv."""
    runs = {folder: state(folder) for folder in sorted(args.out.glob('*-seed*')) if folder.is_dir()}
    (args.out / 'runs.csv').unlink(missing_ok=True)
    append(args.out / 'runs.csv', RUN, list(runs.values()))
    moved = [folder for folder in runs if runs[folder]['steps'] > before.get(folder, (0, 0))[0]]
    if not moved: return
    steps, seconds = (sum(runs[f][what] - before[f][i] for f in moved) for i, what in enumerate(('steps', 'seconds')))
    rate = steps / max(seconds, .01) * min(args.at_once, len(moved))  # the mean of one, times those side by side
    append(args.out / 'pieces.csv', PIECE, [dict(
        ended=datetime.now(timezone.utc).isoformat(timespec='seconds'), at_once=args.at_once, runs=len(moved),
        steps=steps, steps_per_second=round(rate, 3), device=runs[moved[0]]['device'])])
    print(f'{steps} steps of {len(moved)} runs, {args.at_once} at once: {rate:.2f} steps per second all together')


def main() -> int:
    """Exit status: 0, 1 where a run has failed."""
    args = options()
    if args.worker: return work(args, args.worker)
    for ends in (signal.SIGINT, signal.SIGTERM):  # a shell that starts this in the background has it ignore SIGINT
        signal.signal(ends, signal.default_int_handler)
    spare = min(30, args.minutes * 60 / 3)  # seconds for the last step, the checkpoints and the summary
    stop = START + args.minutes * 60 - spare
    folders = [args.out / f'{method}-seed{seed}' for seed in args.seeds for method in args.methods]
    args.out.mkdir(parents=True, exist_ok=True)
    before = {folder: progress(folder) for folder in folders}
    try:
        if not args.no_bench: benchmark(args, stop)
        supervise([folder for folder in folders if state(folder)['status'] != 'complete'], args.at_once, stop, spare)
    except KeyboardInterrupt: pass
    summarise(args, before)
    left = [status for status in (state(folder)['status'] for folder in folders) if status != 'complete']
    print(f'{len(left)} of {len(folders)} runs are left; the same command goes on' if left else 'all runs are complete')
    return int(any(status.startswith('failed') for status in left))


if __name__ == '__main__': sys.exit(main())
