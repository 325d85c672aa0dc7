"""Steps in shares: the same wherever they are computed, one writer, rows for trackers; a table on a cluster."""
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import noise_folders
from rbvae_nb import methods
from rbvae_nb.files import load_tensors
from rbvae_nb.images import ImageSets
from rbvae_nb.machines import SharedRun, launched, tracked
from rbvae_nb.rbvae import RbVAE
from rbvae_nb.srbvae import SRbVAE
from rbvae_nb.training import player_gradients, train

accelerate = pytest.importorskip('accelerate')
PROGRAM = '''
import sys, torch
from accelerate import Accelerator
from rbvae_nb.methods import METHODS
from rbvae_nb.images import ImageSets
from rbvae_nb.training import train
torch.set_num_threads(1)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=int(sys.argv[1]))
draw = torch.Generator().manual_seed(0)
sets = ImageSets(*torch.randint(0, 256, (2, 40, 3, 32, 32), dtype=torch.uint8, generator=draw))
for name in ('rbvae', 'srbvae'):
    model, _ = METHODS.find(name).preset('small', 0, **{} if name == 'rbvae' else dict(pretraining=0., ramp=0.))
    train(model, sets, steps=1, batch_size=4, lr=1e-3, out=f'{sys.argv[2]}/{name}', progress=False,
          accelerator=accelerator)
'''


def start(*command) -> str:
    """What a program prints; it must end well."""
    done = subprocess.run([sys.executable, *map(str, command)], env=os.environ | dict(ACCELERATE_USE_CPU='1'),
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def launch(*command) -> str:
    return start('-m', 'torch.distributed.run', '--nproc_per_node', '2', *command)


def sets(n: int = 40) -> ImageSets:
    draw = torch.Generator().manual_seed(0)
    return ImageSets(*torch.randint(0, 256, (2, n, 3, 32, 32), dtype=torch.uint8, generator=draw))


def accelerator(shares: int = 1, **changes):
    return accelerate.Accelerator(cpu=True, gradient_accumulation_steps=shares, **changes)


def one_step(model: methods.Method, shares: int, callback=None) -> methods.Method:
    """A step in shares, all of them in this process."""
    train(model, sets(), steps=1, batch_size=4, lr=1e-3, progress=False, accelerator=accelerator(shares),
          callback=callback)
    return model


@pytest.fixture(scope='module')
def two(tmp_path_factory) -> Path:
    """What two processes write: a step of each model."""
    folder = tmp_path_factory.mktemp('two')
    (folder / 'program.py').write_text(PROGRAM)
    launch(folder / 'program.py', 1, folder)
    return folder


def test_two_processes_compute_what_one_does(two, tmp_path):
    """A step of each model: two shares in one process, one in each of two; and not one share alone."""
    for shares, folder in ((2, tmp_path / 'one'), (1, tmp_path / 'half')): start(two / 'program.py', shares, folder)
    for name in ('rbvae', 'srbvae'):
        one, both, half = (load_tensors(folder / name / 'checkpoint.safetensors')[0]
                           for folder in (tmp_path / 'one', two, tmp_path / 'half'))
        moments = [key for key in one if key.endswith('.exp_avg')]  # half the gradient: Adam's β₁ is .5
        assert moments
        length = sum(float(one[key].square().sum()) for key in moments) ** .5
        def apart(other: dict, one: dict = one, moments: list = moments) -> float:
            return sum(float((one[key] - other[key]).square().sum()) for key in moments) ** .5
        assert apart(both) < 1e-4 * length
        assert apart(half) > 1e-2 * length


def test_the_mean_of_shares_is_the_gradient_of_one_large_batch(monkeypatch):
    """Without noise, of Rb-VAE, whose losses are means over images."""
    monkeypatch.setattr(methods, 'sample_gaussian', lambda mean, logvar: mean)
    drawn, batch = [], ImageSets.batch
    def noted(self, *args):
        drawn.append(batch(self, *args))
        return drawn[-1]
    monkeypatch.setattr(ImageSets, 'batch', noted)
    model = one_step(RbVAE.preset('small', 0)[0], 3)
    assert len(drawn) == 3 and not drawn[0][0].equal(drawn[1][0])
    fresh = RbVAE.preset('small', 0)[0]
    x_u, x_r = (torch.cat(of) for of in zip(*drawn))
    expected = player_gradients(fresh.train(), x_u, x_r, 0.)[0]['model']
    for p, gradient in zip(model.parameters(), expected):
        if gradient is None: assert p.grad is None
        else: torch.testing.assert_close(p.grad, gradient, rtol=1e-3, atol=1e-4 * float(gradient.abs().max() + 1e-3))


def test_rows_are_means_over_shares():
    """What is recorded of a step is of all shares, not of the last one."""
    rows, each, share = [], [], SharedRun.share
    def noted(self, *args):
        each.append(share(self, *args))
        return each[-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SharedRun, 'share', noted)
        one_step(SRbVAE.preset('small', 0)[0], 2, lambda step, row: rows.append(row))
    found = [float(terms['reconstruction_u'].detach()) for _, terms in each]
    assert len(found) == 2 and rows[-1]['reconstruction_u'] == pytest.approx(sum(found) / 2) != pytest.approx(found[1])


def test_gradients_are_clipped(monkeypatch):
    """By the recipe, after the mean is taken."""
    from rbvae_nb import machines
    given, take_steps = [], machines.take_steps
    monkeypatch.setattr(machines, 'take_steps', lambda *args: (given.append(args[-1]), take_steps(*args)))
    train(RbVAE.preset('small', 0)[0], sets(), steps=1, batch_size=2, clip=3., progress=False,
          accelerator=accelerator())
    assert given == [3.]


def test_rows_go_to_trackers():
    """As accelerate hands them on."""
    from accelerate.tracking import GeneralTracker, on_main_process
    class Kept(GeneralTracker):
        name, requires_logging_directory = 'kept', False
        def __init__(self):
            super().__init__()
            self.rows = []
        @property
        def tracker(self): return self.rows
        @on_main_process
        def store_init_configuration(self, values): self.about = values
        @on_main_process
        def log(self, values, step, **kwargs): self.rows.append((step, values))
        @on_main_process
        def finish(self): self.finished = True
    kept = Kept()
    together = accelerator(log_with=kept)
    with pytest.raises(RuntimeError, match='broken'), tracked(together, dict(steps=4)):
        train(RbVAE.preset('small', 0)[0], sets(), steps=4, batch_size=2, log_every=2, progress=False,
              accelerator=together)
        raise RuntimeError('broken')
    assert [step for step, _ in kept.rows] == [2, 4] and 'kl_z_u' in kept.rows[0][1]
    assert kept.about == dict(steps=4) and kept.finished


def test_memory_does_not_grow_with_the_shares():
    """Nothing of the graphs of a share is kept."""
    rows, share = [], SharedRun.share
    def noted(self, *args):
        found = share(self, *args)
        rows.append(found[1])
        return found
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SharedRun, 'share', noted)
        one_step(SRbVAE.preset('small', 0, pretraining=0., ramp=0.)[0], 2)
    assert rows and not any(value.requires_grad for row in rows for value in row.values())


def test_ctrl_c_in_one_process_stops_all(tmp_path):
    """After the same step, with a checkpoint."""
    stopping = PROGRAM.replace('steps=1', 'steps=40').replace('progress=False', 'progress=False, log_every=1').replace(
        'for name in', """
import os, signal
from rbvae_nb.training import Run
advance = Run.advance
def interrupted(self):
    if self.step == 3 and accelerator.process_index == 1: os.kill(os.getpid(), signal.SIGINT)
    return advance(self)
Run.advance = interrupted
for name in""")
    (tmp_path / 'program.py').write_text(stopping)
    command = [sys.executable, '-m', 'torch.distributed.run', '--nproc_per_node', '2', tmp_path / 'program.py', '1']
    done = subprocess.run([*map(str, command), str(tmp_path / 'out')], env=os.environ | dict(ACCELERATE_USE_CPU='1'),
                          capture_output=True, text=True)
    assert done.returncode and done.stderr.count('KeyboardInterrupt') >= 2
    assert load_tensors(tmp_path / 'out' / 'rbvae' / 'checkpoint.safetensors')[1]['step'] == 4


def test_all_begin_with_the_weights_of_the_first(two, tmp_path):
    """Though each process has made a model of its own."""
    other = PROGRAM.replace("preset('small', 0,", "preset('small', accelerator.process_index,")
    other = other.replace(", 'srbvae'", ',')  # one is enough
    (tmp_path / 'program.py').write_text(other)
    launch(tmp_path / 'program.py', 1, tmp_path)
    own, same = (load_tensors(path / 'rbvae' / 'checkpoint.safetensors')[0] for path in (tmp_path, two))
    assert all(value.equal(same[name]) for name, value in own.items() if name.startswith('model.'))


def test_running_averages_are_refused():
    from rbvae_nb.baselines import Mathieu
    with pytest.raises(ValueError, match='without running averages'): one_step(Mathieu.preset('small', 0)[0], 1)


@pytest.mark.parametrize('changes, said', [
    (dict(alternating=True), 'alternating=True'),
    (dict(dtype='bfloat16'), r'the precision of the accelerator \(float32\)'),
])
def test_what_cannot_be_shared(changes, said):
    with pytest.raises(ValueError, match=said):
        train(RbVAE.preset('small', 0)[0], sets(), steps=1, progress=False, accelerator=accelerator(), **changes)


def test_an_ordinary_process_has_no_accelerator(monkeypatch):
    """Unless somebody launched it, or asks for a tracker that is there."""
    for name in ('LOCAL_RANK', 'ACCELERATE_MIXED_PRECISION'): monkeypatch.delenv(name, raising=False)
    assert launched() is None
    with pytest.raises(ValueError, match='accelerate launch'): launched('tensorboard')
    monkeypatch.setenv('ACCELERATE_MIXED_PRECISION', 'no')
    assert launched().num_processes == 1
    with pytest.raises(ValueError, match='no-such-tracker'): launched('no-such-tracker')


def test_the_command_on_two_processes(tmp_path):
    """One of them speaks and writes; the run is of two shares, and goes on with as many only."""
    noise_folders(tmp_path, 6)
    command = ['-m', 'rbvae_nb.cli', 'train', '--unlabelled', tmp_path / 'with', '--reference', tmp_path / 'without',
               '--out', tmp_path / 'run', '--method', 'rbvae', '--steps', '2']
    said = launch(*command)
    assert said.count('the model is') == 1 and said.count('6 images') == 2
    about = load_tensors(tmp_path / 'run' / 'checkpoint.safetensors')[1]
    assert about['recipe']['shares'] == 2 and about['step'] == 2
    assert {path.name for path in (tmp_path / 'run').iterdir()} >= {'model.safetensors', 'history.csv', 'run.json'}
    program = [str(Path(sys.executable).with_name('rbvae')), *command[2:-1], '1']
    program[program.index('--out') + 1] = tmp_path / 'launched'
    start('-m', 'accelerate.commands.launch', '--cpu', '--no_python', *program)
    assert load_tensors(tmp_path / 'launched' / 'checkpoint.safetensors')[1]['recipe']['shares'] == 1
    alone = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True)
    assert alone.returncode == 1 and 'shares: here None, there 2' in alone.stderr


@pytest.mark.slow
def test_a_table_on_a_cluster(tmp_path, monkeypatch):
    """A worker of another process trains what this one would, to the bit; here nothing is trained."""
    distributed = pytest.importorskip('distributed')
    from joblib import parallel_config
    from rbvae_nb import sweep
    config = sweep.run_config('rbvae', 0)
    model, recipe = RbVAE.preset('small', 0)
    data = sweep.Sweep(tmp_path, steps=2, device='cpu').materials(32)[0]
    mine = sweep.Sweep(tmp_path / 'there', steps=2, device='cpu').open()
    train(model, data.sets, **recipe | dict(steps=2), device='cpu', dtype=mine.about()['dtype'], progress=False)
    monkeypatch.setattr(sweep, 'train', None)  # of this process
    with distributed.LocalCluster(1, threads_per_worker=1, dashboard_address=':0', silence_logs=50) as cluster:
        with distributed.Client(cluster), parallel_config('dask'): rows = sweep.run_all(mine, [config])
    assert set(rows.status) == {'done'}
    there = load_tensors(mine.folder(config) / 'model.safetensors')[0]
    assert all(value.equal(there[name]) for name, value in model.state_dict().items())
