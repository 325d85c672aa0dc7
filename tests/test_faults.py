"""What real use does to a run: a full disk, too little memory, a worker that dies. (tests/test_runs.py kills, and
nbs/measure/faults.py does so two hundred times.)"""
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import noise_folders
from rbvae_nb import sweep
from rbvae_nb.cli import main
from rbvae_nb.files import load_tensors
from rbvae_nb.methods import METHODS
from rbvae_nb.rbvae import RbVAE
from rbvae_nb.runs import RunSettings, begin

pytestmark = pytest.mark.skipif(not hasattr(signal, 'SIGXFSZ'), reason='this system has no such limits')
LIMITED = '''
import resource, signal, sys
import matplotlib.figure, pandas, tqdm.auto
from rbvae_nb import cli
limit, size = getattr(resource, sys.argv[1]), int(sys.argv[2])
if limit == resource.RLIMIT_AS: size += int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails, as on a full disk
resource.setrlimit(limit, (size, size))
sys.exit(cli.main(sys.argv[3:]))
'''


@pytest.fixture(scope='module')
def folders(tmp_path_factory) -> Path:
    """`with` and `without`, 40 images each."""
    return noise_folders(tmp_path_factory.mktemp('folders'), 40)


def limited(limit: str, size: int, *words) -> subprocess.CompletedProcess:
    """The command in a process with a limit in bytes: of files, or of the memory beyond what it has."""
    return subprocess.run([sys.executable, '-c', LIMITED, limit, str(size), *map(str, words)], text=True,
                          capture_output=True, env=os.environ | dict(OMP_NUM_THREADS='1', TQDM_DISABLE='1'))


def one_sentence(done: subprocess.CompletedProcess) -> str:
    """What was said by a command that failed."""
    assert done.returncode == 1 and done.stderr.startswith('rbvae: ') and done.stderr.count('\n') == 1, done.stderr
    return done.stderr


def run_of(folders: Path, run: Path, steps: int = 6) -> Path:
    begin(run, RunSettings(str(folders / 'with'), str(folders / 'without'), method='rbvae', steps=steps))
    return run


def weights(run: Path) -> dict:
    return load_tensors(run / 'model.safetensors')[0]


def test_a_disk_that_is_full(folders, tmp_path):
    """While images are cached, and while a checkpoint is written: nothing is left that is not whole."""
    run = run_of(folders, tmp_path / 'run')
    assert 'expected to write a cache' in one_sentence(limited('RLIMIT_FSIZE', 50_000, 'resume', run))
    assert not [path for path in (run / 'cache').iterdir() if path.suffix != '.lock']
    assert 'expected a folder that can be written' in one_sentence(limited('RLIMIT_FSIZE', 500_000, 'resume', run))
    assert sorted(path.name for path in run.iterdir()) == ['cache', 'run.json']
    assert main(['resume', str(run), '--device', 'cpu']) == 0
    whole = run_of(folders, tmp_path / 'whole')
    assert main(['resume', str(whole), '--device', 'cpu']) == 0
    assert all(value.equal(weights(whole)[name]) for name, value in weights(run).items())


def test_a_full_disk_keeps_the_checkpoint_before(folders, tmp_path):
    """The one that cannot be written does not replace the one that was."""
    run = run_of(folders, tmp_path / 'run', steps=7)
    code = ('import sys; from rbvae_nb.runs import go_on\n'
            'from rbvae_nb import training\n'
            'steps = training.Run.advance\n'
            'def advance(self):\n'
            '    if self.step == 4: raise KeyboardInterrupt\n'
            '    return steps(self)\n'
            'training.Run.advance = advance\n'
            'go_on(sys.argv[1], "cpu", progress=False, checkpoint_every=2)\n')
    subprocess.run([sys.executable, '-c', code, str(run)], capture_output=True)
    before = (run / 'checkpoint.safetensors').read_bytes()
    assert load_tensors(run / 'checkpoint.safetensors')[1]['step'] == 4
    done = limited('RLIMIT_FSIZE', 500_000, 'resume', run, '--device', 'cpu')
    assert 'expected a folder that can be written' in one_sentence(done)
    assert (run / 'checkpoint.safetensors').read_bytes() == before and not [*run.glob('*.part')]


@pytest.mark.skipif(not Path('/proc/self/statm').exists(), reason='this system does not say how much memory is used')
def test_too_little_memory(folders, tmp_path):
    """One sentence, and a run that goes on where there is more."""
    run = run_of(folders, tmp_path / 'run')
    assert 'memory' in one_sentence(limited('RLIMIT_AS', 10 ** 8, 'resume', run, '--device', 'cpu'))
    assert not (run / 'model.safetensors').exists()
    assert limited('RLIMIT_AS', 2 ** 36, 'resume', run, '--device', 'cpu').returncode == 0


def test_a_worker_that_dies(tmp_path, monkeypatch, capsys):
    """The table says so in a sentence; the next call trains what is missing, and not what is there."""
    class Dies(RbVAE):
        name = 'dies'
        def losses(self, *args): os.kill(os.getpid(), signal.SIGKILL)
    monkeypatch.setitem(METHODS, 'dies', Dies)
    monkeypatch.setattr(sweep, 'measure', lambda model, data, classifier: [sweep.row('', 'linear', '', np.zeros(2))])
    mine = sweep.Sweep(tmp_path, steps=1, device='cpu').open()
    configs = [sweep.run_config('vae', 0), sweep.run_config('dies', 0)]
    sweep.run_all(mine, configs[:1])
    before = (mine.folder(configs[0]) / 'rows.csv').stat().st_mtime_ns
    with pytest.raises(RuntimeError, match='terminated'): sweep.run_all(mine, configs, jobs=2)
    Dies.losses = RbVAE.losses
    assert set(sweep.run_all(mine, configs).status) == {'done'}
    assert (mine.folder(configs[0]) / 'rows.csv').stat().st_mtime_ns == before
