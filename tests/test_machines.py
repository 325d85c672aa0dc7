"""Steps in shares: the same wherever they are computed, one writer, rows for trackers; a table on a cluster."""
import os
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from rbvae_nb import methods
from rbvae_nb.files import load_tensors
from rbvae_nb.images import ImageSets
from rbvae_nb.machines import SharedRun, launched
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


def test_two_processes_compute_what_one_does(tmp_path):
    """A step of each model: two shares in one process, one in each of two; and not one share alone."""
    (tmp_path / 'program.py').write_text(PROGRAM)
    start(tmp_path / 'program.py', 2, tmp_path / 'one')
    launch(tmp_path / 'program.py', 1, tmp_path / 'two')
    start(tmp_path / 'program.py', 1, tmp_path / 'half')
    for name in ('rbvae', 'srbvae'):
        one, two, half = (load_tensors(tmp_path / way / name / 'checkpoint.safetensors')[0]
                          for way in ('one', 'two', 'half'))
        moments = [key for key in one if key.endswith('.exp_avg')]  # half the gradient: Adam's β₁ is .5
        assert moments
        length = sum(float(one[key].square().sum()) for key in moments) ** .5
        def apart(other: dict, one: dict = one, moments: list = moments) -> float:
            return sum(float((one[key] - other[key]).square().sum()) for key in moments) ** .5
        assert apart(two) < 1e-4 * length
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
            self.rows = self.tracker = []
        @on_main_process
        def store_init_configuration(self, values): pass
        @on_main_process
        def log(self, values, step, **kwargs): self.rows.append((step, values))
    kept = Kept()
    together = accelerator(log_with=kept)
    together.init_trackers('test')
    train(RbVAE.preset('small', 0)[0], sets(), steps=4, batch_size=2, log_every=2, progress=False, accelerator=together)
    assert [step for step, _ in kept.rows] == [2, 4] and 'kl_z_u' in kept.rows[0][1]


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
    with pytest.raises(ValueError, match='no-such-tracker'): launched('no-such-tracker')
    monkeypatch.setenv('ACCELERATE_MIXED_PRECISION', 'no')
    assert launched().num_processes == 1


def test_the_command_on_two_processes(tmp_path):
    """One of them speaks and writes; the run is of two shares, and goes on with as many only."""
    rng = np.random.default_rng(0)
    for name in ('with', 'without'):
        (tmp_path / name).mkdir()
        for i in range(6): cv2.imwrite(str(tmp_path / name / f'{i}.png'), rng.integers(0, 256, (32, 32, 3)))
    command = ['-m', 'rbvae_nb.cli', 'train', '--unlabelled', tmp_path / 'with', '--reference', tmp_path / 'without',
               '--out', tmp_path / 'run', '--method', 'rbvae', '--steps', '2']
    said = launch(*command)
    assert said.count('the model is') == 1 and said.count('6 images') == 2
    about = load_tensors(tmp_path / 'run' / 'checkpoint.safetensors')[1]
    assert about['recipe']['shares'] == 2 and about['step'] == 2
    assert {path.name for path in (tmp_path / 'run').iterdir()} >= {'model.safetensors', 'history.csv', 'run.json'}
    alone = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True)
    assert alone.returncode == 1 and 'shares: here None, there 2' in alone.stderr


def test_a_table_on_a_cluster(tmp_path, monkeypatch):
    """Workers of dask's train what this process would, to the bit."""
    distributed = pytest.importorskip('distributed')
    from joblib import parallel_config
    from rbvae_nb import sweep
    configs = [sweep.run_config('rbvae', seed) for seed in (0, 1)]
    def weights(folder: Path) -> list:
        return [load_tensors(sweep.Sweep(folder).folder(config) / 'model.safetensors')[0] for config in configs]
    def trained(folder: Path) -> list:
        sweep.run_all(sweep.Sweep(folder, steps=2, device='cpu').open(), configs)
        return weights(folder)
    monkeypatch.setattr(sweep, 'measure', lambda model, data, classifier: [sweep.row('', 'linear', '', np.zeros(2))])
    here = trained(tmp_path / 'here')
    with distributed.LocalCluster(2, threads_per_worker=1, processes=False, dashboard_address=':0',
                                  silence_logs=50) as cluster, distributed.Client(cluster):
        with parallel_config('dask'): there = trained(tmp_path / 'there')
    for ours, theirs in zip(here, there): assert all(ours[name].equal(theirs[name]) for name in ours)
