"""nbs/measure/paper.py at a tiny size: cut and continued, with a run that fails, and with no time at all."""
import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rbvae_nb.files import load_tensors

SCRIPT = Path(__file__).resolve().parents[1] / 'nbs/measure/paper.py'
METHODS = 'srbvae', 'rbvae'
TINY = '--no-bench --preset small --steps 16 --limit 120 --seeds 0 --device cpu'.split()
# More than a minute in all, and it guards a script that is run by hand.
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == 'win32', reason='a piece ends by SIGINT')]


def start(folder: Path, *arguments: str) -> subprocess.Popen:
    """The command, on one thread."""
    env = {k: v for k, v in os.environ.items() if k != 'RBVAE_MNIST'} | dict(OMP_NUM_THREADS='1')
    return subprocess.Popen([sys.executable, str(SCRIPT), str(folder), *TINY, *arguments], env=env, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def finish(command: subprocess.Popen, status: int = 0) -> str:
    """What it printed."""
    out, _ = command.communicate()
    assert command.returncode == status, out
    return out


def lines(path: Path) -> dict[str, dict[str, str]]:
    """The lines of runs.csv by method."""
    with open(path / 'runs.csv', newline='', encoding='utf-8') as f: rows = list(csv.DictReader(f))
    return {row['method']: row for row in rows}


@pytest.fixture(scope='module')
def whole(tmp_path_factory) -> Path:
    """Two runs in one piece, beside a third that fails before them."""
    folder = tmp_path_factory.mktemp('whole') / 'runs'
    assert '1 of 3 runs are left' in finish(start(folder, '--methods', 'nonesuch', *METHODS), 1)
    return folder


def test_a_run_that_fails_says_why_and_stops_no_other(whole):
    runs = lines(whole)
    assert runs['nonesuch']['status'].startswith('failed: ValueError: expected one of the methods')
    for method in METHODS:
        run = runs[method]
        assert (run['seed'], run['status'], run['steps'], run['of']) == ('0', 'complete', '16', '16')
        assert float(run['seconds']) > 0 and float(run['steps_per_second']) > 0
        assert (run['device'], run['data']) == ('cpu', 'embedded')
        assert run['dtype'] and run['torch'] and run['complete'].startswith('20')
        history, probes = ((whole / f'{method}-seed0/{name}.csv').read_text() for name in ('history', 'probes'))
        swaps = (whole / f'{method}-seed0/swaps.csv').read_text()
        assert [line.split(',')[0] for line in swaps.splitlines()] == [
            'images', 'partner', 'real', 'reconstruction', 'swap', 'unchanged']
        assert (whole / f'{method}-seed0/pictures.png').read_bytes().startswith(b'\x89PNG')
        assert history.startswith('step,seconds,') and probes.startswith('code,R,G,B,scale,width,style')
    with open(whole / 'pieces.csv', newline='') as f: piece, = csv.DictReader(f)
    assert (piece['at_once'], piece['runs'], piece['steps']) == ('1', '2', '32')


def test_cut_and_continued_is_the_same(whole, tmp_path):
    """A piece stopped after its first checkpoint, two runs at once in the next one."""
    first, checkpoint = start(tmp_path, '--methods', *METHODS), tmp_path / 'srbvae-seed0/checkpoint.safetensors'
    while not checkpoint.exists():
        assert first.poll() is None, first.communicate()[0]
        time.sleep(.01)
    first.send_signal(signal.SIGINT)
    assert 'the same command goes on' in finish(first)
    cut, reached = lines(tmp_path)['srbvae'], load_tensors(checkpoint)[1]['step']
    assert 0 < reached < 16, 'the piece ended too late to test anything'
    assert (cut['status'], cut['steps']) == ('to be continued', str(reached))
    assert 'all runs are complete' in finish(start(tmp_path, '--at-once', '2'))
    assert [run['status'] for run in lines(tmp_path).values()] == ['complete'] * 2
    for method in METHODS:
        for name in ('weights', 'checkpoint'):
            ours, theirs = (load_tensors(path / f'{method}-seed0/{name}.safetensors')[0] for path in (whole, tmp_path))
            assert ours.keys() == theirs.keys() and all(ours[key].equal(theirs[key]) for key in ours), (method, name)
    assert 'all runs are complete' in finish(start(tmp_path))  # with nothing left to do


def test_a_piece_without_time_ends_in_it(tmp_path):
    """Its worker is asked to end before it has a checkpoint; that is no failure."""
    before = time.monotonic()
    assert '2 of 2 runs are left' in finish(start(tmp_path, '--minutes', '.05'))
    assert time.monotonic() - before < 10
    assert lines(tmp_path)['rbvae']['status'] == 'to be continued'
