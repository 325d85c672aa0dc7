"""The grid of `rbvae table`: killed at any moment, started twice, with a cell that fails, in a folder that is another's."""
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from rbvae_nb import grid, table
from rbvae_nb.grid import METHODS, Grid, read_rows, run_cells
from rbvae_nb.table import run_table
from rbvae_nb.vae import VAE

# The real grid with a quick measurement: the sum of all weights, which tells whether a training was the same.
# In the validation its sign is changed, so that a choice by any other number would be another choice.
RUN = '''
import sys, torch
from rbvae_nb import grid, table
def checksum(model, data, judge):
    with open(sys.argv[1] + '.log', 'a') as f: f.write('measured\\n')
    total = float(sum(p.double().sum() for p in model.parameters()))
    keys = [('z', p, f) for p in ('linear', 'curved', 'validation') for f in ('R', 'G', 'B', 'scale', 'width', 'style', 'digit')]
    keys += [('', p, 'score') for p in ('linear', 'curved')]
    sign = lambda probe: -1 if probe == 'validation' else 1
    return [dict(zip(('code', 'probe', 'factor'), key), value=sign(key[1]) * total, low=total, high=total) for key in keys]
grid.measure = checksum
torch.set_num_threads(1)
table.run_table(sys.argv[1], methods=['vae', 'beta_vae'], seeds=[0, 1], steps=25, sweep=[2, 5], device='cpu')
'''


def start(folder: Path) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, '-c', RUN, str(folder)], stdout=subprocess.DEVNULL)


def rows(folder: Path) -> dict[str, tuple[bytes, int]]:
    """The rows of finished cells: content, and when they were written."""
    return {p.parent.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.rglob('rows.csv')}


@pytest.fixture(scope='module')
def whole(tmp_path_factory) -> Path:
    """A grid that nobody disturbed."""
    folder = tmp_path_factory.mktemp('whole') / 'grid'
    assert start(folder).wait() == 0
    return folder


@pytest.mark.skipif(not hasattr(signal, 'SIGKILL'), reason='this system has no SIGKILL')
def test_killed_at_any_moment(whole, tmp_path):
    """Whole rows only, none of them touched again, and in the end the table of an undisturbed run."""
    folder, draw, before = tmp_path / 'grid', random.Random(0), {}
    for attempt in range(4):
        victim, count = start(folder), len(before)
        while victim.poll() is None and len(rows(folder)) == count: time.sleep(.02)  # until one cell more is done
        time.sleep(draw.uniform(0, .5))
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        now = rows(folder)
        assert before.items() <= now.items()
        for content, _ in now.values(): assert content.endswith(b'\n') and content.count(b'\n') == 24
        before = now
    assert start(folder).wait() == 0
    assert before.items() <= rows(folder).items()
    for name in ('table.csv', 'sweep.csv', 'floors.csv', 'table.md'): assert (folder / name).read_bytes() == (whole / name).read_bytes(), name


def test_started_twice(whole, tmp_path):
    """Two processes share the work of one folder, and no cell is done twice."""
    folder = tmp_path / 'grid'
    both = [start(folder), start(folder)]
    assert [p.wait() for p in both] == [0, 0]
    assert (folder / 'table.csv').read_bytes() == (whole / 'table.csv').read_bytes()
    assert Path(f'{folder}.log').read_text().count('measured') == len(rows(folder)) == 5


def test_the_choice_is_by_validation(whole):
    sweep = pd.read_csv(whole / 'sweep.csv')
    best = sweep[sweep.probe == 'validation'].groupby('setting').value.mean().idxmin()
    used = pd.read_csv(whole / 'table.csv')
    assert set(used[used.method == 'beta_vae'].setting) == {best}
    assert best != sweep[sweep.probe == 'linear'].groupby('setting').value.mean().idxmin()
    assert 'seed 0' in (whole / 'table.md').read_text(encoding='utf-8')


class Broken(VAE):
    name, title = 'broken', 'Broken'

    def losses(self, x_u, x_r=None, step=0): raise RuntimeError('out of order')


def test_a_failing_method_leaves_the_rest(whole, tmp_path, monkeypatch):
    """Its row says why, the others are done, and the same command tries it again."""
    monkeypatch.setitem(METHODS, 'broken', Broken)
    monkeypatch.setattr(grid, 'measure', lambda *_: [dict(code='z', probe='linear', factor='style', value=0., low=0., high=0.)])
    cells = [grid.cell('broken', 0), grid.cell('vae', 0)]
    out = run_cells(Grid(tmp_path, steps=2, device='cpu').open(), cells)
    assert list(out[out.method == 'broken'].status) == ['failed: RuntimeError: out of order']
    rows = pd.concat([read_rows(whole / 'table.csv'), out[out.status != 'done']])
    assert '- **Broken**  seed 0: failed: RuntimeError: out of order' in table.report(rows, read_rows(whole / 'floors.csv'), 'small', '')
    assert (tmp_path / 'runs' / 'vae-seed=0' / 'model.safetensors').exists()
    monkeypatch.setattr(Broken, 'losses', VAE.losses)
    assert 'failed' not in ' '.join(run_cells(Grid(tmp_path, steps=2, device='cpu').open(), cells).status)


SIDE_BY_SIDE = '''
import sys
from rbvae_nb.grid import METHODS, Grid, cell, run_cells
from rbvae_nb.vae import VAE
class Mine(VAE):
    name, title = 'mine', 'Mine'
    def losses(self, x_u, x_r=None, step=0): raise RuntimeError('seen in a worker')
METHODS['mine'] = Mine
print(set(run_cells(Grid(sys.argv[1], steps=2, device='cpu').open(), [cell('mine', 0), cell('mine', 1)], jobs=2).status))
'''


def test_own_methods_reach_the_workers(tmp_path):
    """A class that only the main script knows runs in joblib's processes."""
    (tmp_path / 'script.py').write_text(SIDE_BY_SIDE)
    run = subprocess.run([sys.executable, str(tmp_path / 'script.py'), str(tmp_path / 'grid')], capture_output=True, encoding='utf-8')
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "{'failed: RuntimeError: seen in a worker'}"


@pytest.mark.parametrize('change, says', [
    (dict(version='0.0.0'), "version: here .*, there '0.0.0'"),
    (dict(preset='paper'), "preset: here 'small', there 'paper'"),
    (dict(source='mnist'), "source: here 'embedded', there 'mnist'"),
    (dict(precision='float8'), "precision: here .*, there 'float8'"),
])
def test_a_folder_of_another_grid(tmp_path, change, says):
    file = tmp_path / 'grid.json'
    Grid(tmp_path).open()
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    before = file.read_bytes()
    with pytest.raises(ValueError, match=says): run_table(tmp_path, methods=['vae'], seeds=[0])
    assert file.read_bytes() == before and not list(tmp_path.glob('runs'))


def test_a_grid_that_cannot_be_read(tmp_path):
    (tmp_path / 'grid.json').write_text('{"version"')
    with pytest.raises(ValueError, match='cannot be read'): run_table(tmp_path, methods=['vae'])


@pytest.mark.parametrize('arguments, says', [
    (dict(methods=['vea']), "expected methods of .*'srbvae'.*, got .'vea'"),
    (dict(preset='huge'), "expected a preset of .'paper', 'small'., got 'huge'"),
    (dict(factor='hue'), "expected a factor of .*'width'.*, got 'hue'"),
    (dict(methods=[]), 'at least one method'),
    (dict(steps=0), 'expected steps of at least 1, got 0'),
    (dict(seeds=[]), 'at least one method and one seed'),
    (dict(device='tpu'), 'expected a device that is here'),
])
def test_unknown_names(tmp_path, arguments, says):
    with pytest.raises(ValueError, match=says): run_table(tmp_path / 'new', **arguments)
    assert not (tmp_path / 'new').exists()


def test_digits_that_are_not_there_leave_nothing(tmp_path):
    with pytest.raises(OSError, match='expected MNIST'): run_table(tmp_path / 'new', source=str(tmp_path))
    assert not (tmp_path / 'new').exists()
