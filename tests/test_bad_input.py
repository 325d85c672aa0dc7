"""Bad input gives one clear sentence, and loses nothing."""
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from rbvae_nb import cli, digits
from rbvae_nb.digits import digit_styles
from rbvae_nb.files import load_tensors
from rbvae_nb.images import ImageSets, check_images
from rbvae_nb.probing import classify, regress
from rbvae_nb.srbvae import SRbVAE
from rbvae_nb.training import Run, TrainingStopped, pick_device, train
from rbvae_nb.vae import VAE


def images(n: int = 4, size: int = 32) -> torch.Tensor:
    return torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8)


SAME = ImageSets(images(), images())  # for runs that go on with each other's checkpoints


@pytest.mark.parametrize('bad, error, says', [
    (np.zeros((4, 3, 32, 32)), TypeError, r'expected a (torch tensor|data set whose items are tensors).*, got ndarray'),
    (torch.zeros(3, 32, 32), ValueError, r'got \(3, 32, 32\)'),
    (torch.zeros(4, 1, 32, 32), ValueError, r'got \(4, 1, 32, 32\)'),
    (torch.zeros(4, 3, 32, 30), ValueError, r'got \(4, 3, 32, 30\)'),
    (torch.zeros(4, 3, 32, 32, dtype=torch.int64), TypeError, 'got torch.int64'),
    (torch.full((4, 3, 32, 32), torch.nan), ValueError, 'NaN'),
    (torch.full((4, 3, 32, 32), 200.), ValueError, r'in \[-1, 1\]'),
])
def test_images_of_the_wrong_kind(bad, error, says):
    with pytest.raises(error, match=says): check_images(bad)
    with pytest.raises(error, match=says): ImageSets(bad, images())
    with pytest.raises(error, match=says): ImageSets(images(), bad)


@pytest.mark.parametrize('n', [0, 1])
def test_sets_that_are_too_small(n):
    with pytest.raises(ValueError, match=f'at least two unlabelled images, got {n}'): ImageSets(images(n), images())
    with pytest.raises(ValueError, match=f'at least two reference images, got {n}'): ImageSets(images(), images(n))


def test_sets_of_two_sizes():
    with pytest.raises(ValueError, match='of one size'): ImageSets(images(size=32), images(size=64))


def test_images_of_another_size_than_the_model():
    model, recipe = SRbVAE.preset('small')
    with pytest.raises(ValueError, match='expected images of 32 pixels for this model, got 64'):
        train(model, ImageSets(images(size=64), images(size=64)), **recipe, progress=False)
    with pytest.raises(ValueError, match=r'got \(4, 3, 64, 64\)'): model.encode(images(size=64))


def test_arguments_out_of_range():
    with pytest.raises(ValueError, match='expected image_size 32 or 64, got 48'): digit_styles(48)
    with pytest.raises(ValueError, match='expected a preset of .*small.*, got'): VAE.preset('huge')
    with pytest.raises(ValueError, match="here .*cpu.*, got 'tpu'"): pick_device('tpu')
    for wrong, says in ((dict(dtype='float8'), "expected dtype .*got 'float8'"), (dict(steps=0), 'at least 1, got 0'),
                        (dict(warmup=200), r'expected warmup as a share of the training in \[0, 1\], got 200')):
        with pytest.raises(ValueError, match=says): train(VAE(), SAME, **dict(steps=1) | wrong, progress=False)
    with pytest.raises(TypeError, match=r'expected ImageSets to train on, got Tensor; give .*data\.sets'):
        train(VAE(), images(), steps=1)
    with pytest.raises(TypeError, match='expected progress as True or False, got a function; give it as callback'):
        train(VAE(), SAME, steps=1, progress=lambda step, row: None)


@pytest.mark.skipif(torch.cuda.is_available(), reason='a GPU is here')
def test_a_gpu_that_is_not_there():
    with pytest.raises(ValueError, match="expected a device that is here .*got 'cuda'"): pick_device('cuda')


def test_mnist_that_is_not_there_or_truncated(tmp_path):
    with pytest.raises(OSError, match='expected MNIST'): digits.load_digits(tmp_path)
    raw = tmp_path / 'MNIST' / 'raw'
    raw.mkdir(parents=True)
    for part in ('train', 't10k'):
        for kind in ('images-idx3', 'labels-idx1'):
            (raw / f'{part}-{kind}-ubyte').write_bytes(b'\x00\x00\x08\x03 cut short')
    with pytest.raises(OSError, match='expected MNIST'): digits.load_digits(tmp_path)


def test_embedded_digits_truncated(tmp_path, monkeypatch):
    (tmp_path / 'data').mkdir()
    (tmp_path / 'data' / 'digits.npz').write_bytes(b'PK\x03\x04 cut short')
    monkeypatch.setattr(digits.resources, 'files', lambda package: tmp_path)
    with pytest.raises(OSError, match='expected the embedded digits'): digits.load_digits()


def short(model, out: Path, sets: ImageSets = SAME, **kwargs):
    """A training of two steps, unless `kwargs` say otherwise."""
    return train(model, sets, **dict(steps=2, batch_size=2, device='cpu', progress=False, out=out) | kwargs)


@pytest.fixture
def trained(tmp_path) -> Path:
    """A folder with a checkpoint after two steps."""
    short(SRbVAE.preset('small')[0], tmp_path)
    return tmp_path


def test_a_truncated_checkpoint(trained):
    file = trained / 'checkpoint.safetensors'
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(ValueError, match='truncated'): short(SRbVAE.preset('small')[0], trained)


@pytest.mark.parametrize('method, steps, says', [(SRbVAE, 3, 'steps: here 3, there 2'), (VAE, 2, 'same method')])
def test_a_checkpoint_of_another_run(trained, method, steps, says):
    before = (trained / 'checkpoint.safetensors').read_bytes()
    with pytest.raises(ValueError, match=says): short(method.preset('small')[0], trained, steps=steps)
    assert (trained / 'checkpoint.safetensors').read_bytes() == before


def test_a_checkpoint_of_other_data(trained):
    with pytest.raises(ValueError, match='same sets'):
        short(SRbVAE.preset('small')[0], trained, ImageSets(images(), images()))


def test_unknown_player():
    with pytest.raises(ValueError, match="expected players of .*got .'critic'"):
        train(VAE(), SAME, steps=1, lr_ratio={'critic': 2}, progress=False)


def test_a_loss_that_is_not_finite_keeps_the_last_checkpoint(tmp_path):
    model, seen = VAE.preset('small')[0], []
    def poison(step, row):
        seen.append(step)
        if step == 4: torch.nn.init.constant_(next(model.parameters()), torch.nan)
    with pytest.raises(TrainingStopped, match='expected finite losses, got a non-finite .*the last good checkpoint'):
        short(model, tmp_path, steps=9, checkpoint_every=3, log_every=1, callback=poison)
    tensors, about = load_tensors(tmp_path / 'checkpoint.safetensors')
    assert max(seen) == 4 and about['step'] == 3
    assert all(t.isfinite().all() for t in tensors.values() if t.is_floating_point())


@pytest.mark.parametrize('nonlinear', [False, True])
def test_codes_and_factors_that_no_probe_can_be_fitted_on(nonlinear):
    """Fewer images than dimensions, NaN, a factor that is constant: for numbers and for classes."""
    rng = np.random.default_rng(0)
    code, numbers, labels = rng.normal(size=(40, 6)), rng.random((40, 5)), rng.integers(0, 3, 40)
    broken = np.where(code > 2, np.inf, np.nan)
    for fit, target in ((regress, numbers), (classify, labels)):
        for fit_code, values, says in (
            (code[:6], target[:6], 'more images to fit a probe than code dimensions, got 6 for 6'),
            (broken, target, 'expected finite codes, got NaN'),
            (code, target * 0, 'constant ones in columns .0'),
        ):
            with pytest.raises(ValueError, match=says): fit(fit_code, values, code, nonlinear)
        with pytest.raises(ValueError, match='expected finite codes, got NaN'): fit(code, target, broken, nonlinear)


def rbvae(*args: str, **kwargs) -> subprocess.CompletedProcess:
    command = [sys.executable, '-m', 'rbvae_nb.cli', *args]
    return subprocess.run(command, capture_output=True, encoding='utf-8', **kwargs)


@pytest.mark.parametrize('args, says', [
    (['demo', '--out', 'file/x'], "expected a folder that can be written, got 'file/x'"),
    (['demo', '--device', 'tpu'], 'expected a device that is here'),
    (['demo', '--steps', '-3', '--data', 'turned_shapes'], 'expected steps'),
    (['demo', '--data', 'nobody'],
     "expected one of the experiments affectnet, digit_styles, drawn_faces, turned_shapes, got 'nobody'"),
    (['table', '--methods', 'vea'], "expected one of the methods beta_tcvae, .*, vae, got 'vea'"),
    (['table', '--out', 'file/x'], "expected a folder that can be written, got 'file/x'"),
])
def test_the_command_says_one_sentence(tmp_path, args, says):
    (tmp_path / 'file').write_text('a file, not a folder')
    run = rbvae(*args, cwd=tmp_path, timeout=120)
    assert run.returncode == 1 and re.search(says, run.stderr)
    assert 'Traceback' not in run.stderr and len(run.stderr.strip().splitlines()) == 1


@pytest.mark.skipif(os.name == 'nt' or os.geteuid() == 0, reason='a superuser writes everywhere')
def test_a_folder_that_cannot_be_written(tmp_path):
    tmp_path.chmod(0o500)
    run = rbvae('demo', '--pretrained', '--out', str(tmp_path / 'x'))
    assert run.returncode == 1 and 'expected a folder that can be written' in run.stderr


def test_ctrl_c_keeps_what_was_trained(tmp_path):
    """Ctrl-C after step 3 saves step 3, and going on from there gives the weights of an undisturbed run."""
    def press(step, row):
        if step == 3: signal.raise_signal(signal.SIGINT)
    cut, whole = (SRbVAE.preset('small', seed=1, pretraining=1 / 6, ramp=1 / 6)[0] for _ in range(2))
    recipe = dict(steps=6, lr=1e-3, log_every=1)
    with pytest.raises(KeyboardInterrupt): short(cut, tmp_path, **recipe, callback=press)
    assert load_tensors(tmp_path / 'checkpoint.safetensors')[1]['step'] in (3, 4)  # noticed at the end of a step
    short(cut, tmp_path, **recipe)
    short(whole, None, **recipe)
    assert all(a.equal(b) for a, b in zip(cut.parameters(), whole.parameters()))


def test_ctrl_c_on_the_command_line(tmp_path, monkeypatch, capsys):
    """Pressed in the first training step."""
    def press(run): raise KeyboardInterrupt
    monkeypatch.setattr(Run, 'advance', press)
    assert cli.main(['demo', '--out', str(tmp_path), '--data', 'turned_shapes']) == 130
    assert 'goes on from there' in capsys.readouterr().err
