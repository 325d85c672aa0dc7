"""The sweep of `rbvae table`: killed at any moment, started twice, with a run that fails, in another's folder."""
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from rbvae_nb import sweep, table
from rbvae_nb.digits import digit_styles
from rbvae_nb.methods import METHODS
from rbvae_nb.sweep import Sweep, read_rows, run_all, run_config
from rbvae_nb.table import run_table
from rbvae_nb.vae import VAE

# The real sweep with a quick measurement: the sum of all weights, which tells whether a training was the same.
# In the validation its sign is changed, so that a choice by any other number would be another choice.
RUN = '''
import sys, torch
from rbvae_nb import sweep, table
from rbvae_nb.digits import digit_styles
from rbvae_nb.experiments import EXPERIMENTS
@EXPERIMENTS.add
def few_digits(image_size=32): return digit_styles(image_size, n_styles=1)
def checksum(model, data, classifier):
    with open(sys.argv[1] + '.log', 'a') as f: f.write('measured\\n')
    total = float(sum(p.double().sum() for p in model.parameters()))
    factors = ('R', 'G', 'B', 'scale', 'width', 'target', 'identity')
    keys = [('z', m, f) for m in ('linear', 'nonlinear') for f in factors]
    keys += [('', m, 'score') for m in ('linear', 'nonlinear', 'validation')]
    sign = lambda measure: -1 if measure == 'validation' else 1
    return [dict(zip(('code', 'measure', 'factor'), key), value=sign(key[1]) * total, low=total, high=total)
            for key in keys]
sweep.measure = checksum
torch.set_num_threads(1)
table.run_table(sys.argv[1], 'few_digits', methods=['vae', 'beta_vae'], seeds=[0, 1], steps=10, sweep=[2, 5],
                device='cpu')
'''


def start(folder: Path) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, '-c', RUN, str(folder)], stdout=subprocess.DEVNULL)


def rows(folder: Path) -> dict[str, tuple[bytes, int]]:
    """The rows of finished runs: content, and when they were written."""
    return {p.parent.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.rglob('rows.csv')}


@pytest.fixture(scope='module')
def whole(tmp_path_factory) -> Path:
    """A sweep that nobody disturbed."""
    folder = tmp_path_factory.mktemp('whole') / 'sweep'
    assert start(folder).wait() == 0
    return folder


@pytest.mark.skipif(not hasattr(signal, 'SIGKILL'), reason='this system has no SIGKILL')
def test_killed_at_any_moment(whole, tmp_path):
    """Whole rows only, none of them touched again, and in the end the table of an undisturbed run."""
    folder, draw, before = tmp_path / 'sweep', random.Random(0), {}
    for _ in range(4):
        victim, count = start(folder), len(before)
        while victim.poll() is None and len(rows(folder)) == count: time.sleep(.02)  # until one run more is done
        time.sleep(draw.uniform(0, .5))
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        now = rows(folder)
        assert before.items() <= now.items()
        for content, _ in now.values(): assert content.endswith(b'\n') and content.count(b'\n') == 18
        before = now
    assert start(folder).wait() == 0
    assert before.items() <= rows(folder).items()
    for name in ('table.csv', 'sweep.csv', 'chance.csv', 'table.md'):
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name


def test_started_twice(whole, tmp_path):
    """Two processes share the work of one folder, and no run is done twice."""
    folder = tmp_path / 'sweep'
    both = [start(folder), start(folder)]
    assert [p.wait() for p in both] == [0, 0]
    assert (folder / 'table.csv').read_bytes() == (whole / 'table.csv').read_bytes()
    assert Path(f'{folder}.log').read_text().count('measured') == len(rows(folder)) == 5


def test_the_choice_is_by_validation(whole):
    tried = pd.read_csv(whole / 'sweep.csv')
    best = tried[tried.measure == 'validation'].groupby('setting').value.mean().idxmax()
    used = pd.read_csv(whole / 'table.csv')
    assert set(used[used.method == 'beta_vae'].setting) == {best}
    assert best != tried[tried.measure == 'linear'].groupby('setting').value.mean().idxmax()
    assert 'seed 0' in (whole / 'table.md').read_text(encoding='utf-8')


def test_a_table_that_names_no_method_has_the_nine_of_the_paper():
    """Others come by name; what a reader has added comes too."""
    nine = {'vae', 'beta_vae', 'dip_vae_1', 'dip_vae_2', 'beta_tcvae', 'svae', 'mathieu', 'rbvae', 'srbvae'}
    package = {name for name, method in METHODS.all().items() if method.__module__.startswith('rbvae_nb.')}
    assert package & {*table.default_systems()} == nine and package - nine == {'cvae', 'mm_cvae'}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHODS, 'broken', Broken)
        assert 'broken' in table.default_systems()


class Broken(VAE):
    name, title = 'broken', 'Broken'

    def losses(self, x_u, x_r=None, elapsed=1.): raise RuntimeError('out of order')


def test_a_failing_method_leaves_the_rest(whole, tmp_path, monkeypatch):
    """Its row says why, the others are done, and the same command tries it again."""
    monkeypatch.setitem(METHODS, 'broken', Broken)
    quick = dict(code='z', measure='linear', factor='target', value=0., low=0., high=0.)
    monkeypatch.setattr(sweep, 'measure', lambda *_: [quick])
    configs = [run_config('broken', 0), run_config('vae', 0)]
    out = run_all(Sweep(tmp_path, steps=2, device='cpu').open(), configs)
    assert list(out[out.method == 'broken'].status) == ['failed: RuntimeError: out of order']
    rows = pd.concat([read_rows(whole / 'table.csv'), out[out.status != 'done']])
    text = table.report(rows, read_rows(whole / 'chance.csv'), digit_styles(n_styles=1), 'small', '')
    assert '- **Broken**  seed 0: failed: RuntimeError: out of order' in text
    assert (tmp_path / 'runs' / 'vae-seed=0' / 'model.safetensors').exists()
    monkeypatch.setattr(Broken, 'losses', VAE.losses)
    assert 'failed' not in ' '.join(run_all(Sweep(tmp_path, steps=2, device='cpu').open(), configs).status)


SIDE_BY_SIDE = '''
import sys
from rbvae_nb.digits import digit_styles
from rbvae_nb.experiments import EXPERIMENTS
from rbvae_nb.methods import METHODS
from rbvae_nb.sweep import Sweep, run_all, run_config
from rbvae_nb.vae import VAE
@METHODS.add
class Mine(VAE):
    name, title = 'mine', 'Mine'
    def losses(self, x_u, x_r=None, elapsed=1.): raise RuntimeError(f'seen in a worker with {len(x_u)} images')
@EXPERIMENTS.add
def few_digits(image_size=32): return digit_styles(image_size, n_styles=1)
configs = [run_config('mine', seed) for seed in (0, 1)]
print(set(run_all(Sweep(sys.argv[1], data='few_digits', steps=2, device='cpu').open(), configs, jobs=2).status))
'''


def test_own_methods_and_data_reach_the_workers(tmp_path):
    """A class and an experiment that only the main script knows are used in joblib's processes."""
    (tmp_path / 'script.py').write_text(SIDE_BY_SIDE)
    command = [sys.executable, str(tmp_path / 'script.py'), str(tmp_path / 'sweep')]
    run = subprocess.run(command, capture_output=True, encoding='utf-8')
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "{'failed: RuntimeError: seen in a worker with 32 images'}"


@pytest.mark.parametrize('change, says', [
    (dict(version='0.0.0'), "version: here .*, there '0.0.0'"),
    (dict(preset='paper'), "preset: here 'small', there 'paper'"),
    (dict(data='turned_shapes'), "data: here 'digit_styles', there 'turned_shapes'"),
    (dict(dtype='float8'), "dtype: here .*, there 'float8'"),
])
def test_a_folder_of_another_sweep(tmp_path, change, says):
    file = tmp_path / 'sweep.json'
    Sweep(tmp_path).open()
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    before = file.read_bytes()
    with pytest.raises(ValueError, match=says): run_table(tmp_path, methods=['vae'], seeds=[0])
    assert file.read_bytes() == before and not list(tmp_path.glob('runs'))


def test_a_sweep_that_cannot_be_read(tmp_path):
    (tmp_path / 'sweep.json').write_text('{"version"')
    with pytest.raises(ValueError, match='cannot be read'): run_table(tmp_path, methods=['vae'])


@pytest.mark.parametrize('arguments, says', [
    (dict(methods=['vea']), "expected one of the methods .*srbvae.*, got 'vea'"),
    (dict(methods=['srbvae:kl=1']), "one of the arguments .*kl_weight.*, got 'srbvae:kl=1'"),
    (dict(methods=['srbvae:kl_weight=much']), 'expected a number'),
    (dict(data='digit'), "expected one of the experiments .*turned_shapes.*, got 'digit'"),
    (dict(data='turned_shapes:mnist'), 'has no other source'),
    (dict(preset='huge'), "expected a preset of .'medium', 'paper', 'small'., got 'huge'"),
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
    with pytest.raises(OSError, match='expected MNIST'): run_table(tmp_path / 'new', data=f'digit_styles:{tmp_path}')
    assert not (tmp_path / 'new').exists()
