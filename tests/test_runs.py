"""Runs from two folders: killed and resumed, from damaged settings, with features and transfers that are right."""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
import torch
from rbvae_nb.cli import main
from rbvae_nb.files import load_tensors
from rbvae_nb.folders import Listing, read_image
from rbvae_nb.methods import load
from rbvae_nb.runs import RunSettings, begin, choose_size, encode_images, go_on, model_of, settings_of

RUN = '''
import sys, torch
from rbvae_nb.runs import go_on
torch.set_num_threads(1)
go_on(sys.argv[1], 'cpu', progress=False, checkpoint_every=4)
'''


@pytest.fixture(scope='module')
def folders(tmp_path_factory) -> tuple[Path, Path]:
    """Two folders of images."""
    rng, root = np.random.default_rng(0), tmp_path_factory.mktemp('folders')
    for name, bright in (('with', 255), ('without', 100)):
        (root / name).mkdir()
        for i in range(40):
            image = cv2.GaussianBlur(rng.uniform(0, bright, (48, 64, 3)), (0, 0), 8)
            cv2.imwrite(str(root / name / f'{i:02}.png'), image)
    return root / 'with', root / 'without'


def settings(folders: tuple[Path, Path], **changes) -> RunSettings:
    return RunSettings(str(folders[0]), str(folders[1]), **dict(method='rbvae', steps=24) | changes)


@pytest.fixture(scope='module')
def trained(folders, tmp_path_factory) -> Path:
    """A run that nobody disturbed."""
    run = tmp_path_factory.mktemp('runs') / 'whole'
    begin(run, settings(folders))
    assert subprocess.run([sys.executable, '-c', RUN, str(run)]).returncode == 0
    return run


def same_weights(one: Path, other: Path) -> bool:
    """Bit by bit, with the same description. (In the files the order of two keys of the header is left to chance.)"""
    (ours, about), (theirs, about_other) = (load_tensors(run / 'model.safetensors') for run in (one, other))
    return about == about_other and ours.keys() == theirs.keys() and all(ours[k].equal(theirs[k]) for k in ours)


@pytest.mark.skipif(not hasattr(signal, 'SIGKILL'), reason='this system has no SIGKILL')
def test_killed_at_any_moment(folders, trained, tmp_path):
    """Caching, training or saving: the weights are in the end those of a run that nobody killed."""
    run, draw = tmp_path / 'run', random.Random(0)
    begin(run, settings(folders))
    def changed(at: str) -> float:
        return (run / at).stat().st_mtime if (run / at).exists() else 0.
    for at in ('cache', *3 * ['checkpoint.safetensors']):
        before, victim = changed(at), subprocess.Popen([sys.executable, '-c', RUN, str(run)])
        while victim.poll() is None and changed(at) == before: time.sleep(.001)
        time.sleep(draw.uniform(0, .1))
        assert victim.poll() is None
        victim.send_signal(signal.SIGKILL)
        victim.wait()
    assert subprocess.run([sys.executable, '-c', RUN, str(run)]).returncode == 0
    assert same_weights(run, trained)
    for name in ('unlabelled', 'reference'):
        ours, theirs = (folder / 'cache' / name / 'pixels.u8' for folder in (run, trained))
        assert ours.read_bytes() == theirs.read_bytes()


def test_a_run_needs_its_folder_alone(folders, trained, tmp_path):
    """Moved elsewhere, the images gone, with all of the training to do: the weights are the same in the end."""
    gone = tmp_path / 'images'
    for folder in folders: shutil.copytree(folder, gone / folder.name)
    run = tmp_path / 'run'
    begin(run, settings((gone / 'with', gone / 'without'), steps=6))
    go_on(run, 'cpu', progress=False)
    shutil.rmtree(gone)
    shutil.copytree(run, before := tmp_path / 'before')
    for name in ('model', 'checkpoint'): (run / f'{name}.safetensors').unlink()
    shutil.move(run, tmp_path / 'moved')
    assert main(['resume', str(tmp_path / 'moved'), '--device', 'cpu']) == 0
    assert same_weights(tmp_path / 'moved', before)


def test_a_run_with_the_name_of_a_packaged_model(trained, folders, tmp_path, monkeypatch):
    """Its folder is what is meant."""
    shutil.copytree(trained, tmp_path / 'rbvae')
    monkeypatch.chdir(tmp_path)
    ours, theirs = model_of('rbvae', 'cpu').state_dict(), load(trained).state_dict()
    assert all(ours[name].equal(value) for name, value in theirs.items())


@pytest.mark.parametrize('command', [
    ['encode', 'RUN', 'IMAGES', '--out', 'f.csv'], ['report', 'RUN'],
    ['transfer', 'RUN', '--style', 'IMAGES', '--content', 'IMAGES']], ids=lambda command: command[0])
def test_a_run_that_is_not_finished(command: list[str], folders, tmp_path, capsys):
    """A checkpoint is not taken for the model."""
    run = tmp_path / 'run'
    begin(run, settings(folders, steps=2))
    go_on(run, 'cpu', progress=False)
    (run / 'model.safetensors').unlink()
    assert main([dict(RUN=str(run), IMAGES=str(folders[0])).get(word, word) for word in command]) == 1
    assert 'expected a run that is finished' in capsys.readouterr().err


def test_rows_of_a_killed_process_are_not_in_the_table(folders, trained, tmp_path):
    """Though it had the same number, as processes in containers do."""
    out = tmp_path / 'f.csv'
    out.with_name(f'f.csv.{os.getpid()}.part').write_text('file,z0\nold.png,1\n')
    assert main(['encode', str(trained), str(folders[0]), '--out', str(out), '--device', 'cpu']) == 0
    assert 'old.png' not in out.read_text() and [path.name for path in tmp_path.iterdir()] == ['f.csv']


def test_an_earlier_run_says_what_was_chosen(folders, tmp_path, capsys):
    """What is not given again is as it was."""
    run = tmp_path / 'run'
    begin(run, settings(folders, steps=2))
    arguments = ['--unlabelled', str(folders[0]), '--reference', str(folders[1]), '--out', str(run)]
    assert main(['train', *arguments, '--method', 'rbvae', '--device', 'cpu']) == 0
    assert '32 pixels (as before), 2 of 2 steps' in capsys.readouterr().out


def test_features_are_the_codes_of_the_images(folders, trained, tmp_path):
    """In the order of the names, whatever else lies between them."""
    folder = tmp_path / 'images'
    shutil.copytree(folders[0], folder)
    (folder / '05.png').write_bytes(b'no image')
    (folder / '07.png').write_bytes((folder / '07.png').read_bytes()[:-60])
    out = tmp_path / 'new' / 'features.csv'
    assert main(['encode', str(trained), str(folder), '--out', str(out), '--device', 'cpu']) == 0
    table, model = pd.read_csv(out, index_col='file'), load(trained)
    assert list(table.index) == [f'{i:02}.png' for i in range(40) if i not in (5, 7)]
    codes = model.encode(torch.stack([read_image(folder / name, 32) for name in table.index]))
    for code in 'ze':
        columns = [name for name in table.columns if name.startswith(code)]
        assert np.allclose(table[columns], codes[code], atol=1e-4)


def test_features_in_parts_are_the_same(folders, trained, monkeypatch):
    model = load(trained)
    whole, = encode_images(model, folders[0])
    monkeypatch.setattr(type(model), 'batch_size', 7)
    parts = list(encode_images(model, folders[0]))
    assert [len(part) for part in parts] == [7] * 5 + [5]
    together = pd.concat(parts, ignore_index=True)
    assert list(together.file) == list(whole.file)
    assert np.allclose(together.drop(columns='file'), whole.drop(columns='file'), atol=1e-5)


def test_nothing_to_encode_leaves_nothing(trained, tmp_path, capsys):
    (tmp_path / 'images').mkdir()
    (tmp_path / 'images' / 'notes.txt').write_text('no image')
    out = tmp_path / 'out'
    assert main(['encode', str(trained), str(tmp_path / 'images'), '--out', str(out / 'f.csv')]) == 1
    assert 'expected an image in' in capsys.readouterr().err and not [*out.iterdir()]


def test_transfer_takes_e_from_one_and_z_from_the_other(folders, trained, tmp_path):
    style, content, out = folders[0] / '03.png', folders[1] / '04.png', tmp_path / 'one.png'
    arguments = ['--style', str(style), '--content', str(content), '--out', str(out), '--device', 'cpu']
    assert main(['transfer', str(trained), *arguments]) == 0
    model = load(trained)
    z, e = (model.encode(read_image(path, 32)[None])[code] for path, code in ((content, 'z'), (style, 'e')))
    drawn = ((model.decode(z=z, e=e)[0].permute(1, 2, 0) + 1) * 127.5).round().clamp(0, 255).numpy()
    assert np.abs(cv2.imread(str(out))[..., ::-1].astype(float) - drawn).max() <= 1


def test_the_fit_of_a_run_is_that_of_its_features(folders, tmp_path):
    run = tmp_path / 'run'
    begin(run, settings(folders, steps=1, fit='pad'))
    model = go_on(run, 'cpu', progress=False)
    assert main(['encode', str(run), str(folders[0]), '--out', str(tmp_path / 'f.csv'), '--device', 'cpu']) == 0
    first = pd.read_csv(tmp_path / 'f.csv', index_col='file').loc['00.png', 'z0']
    squares = [read_image(folders[0] / '00.png', 32, fit) for fit in ('pad', 'crop')]
    padded, cropped = model.encode(torch.stack(squares))['z'][:, 0]
    assert first == pytest.approx(float(padded), abs=1e-4) and abs(first - float(cropped)) > 1e-3


@pytest.mark.parametrize('sides, device, size', [
    ([63, 63, 64], 'cuda', 32), ([63, 64, 64], 'cuda', 64), ([500, 500, 500], 'cpu', 32), ([], 'cuda', 32)])
def test_the_image_size_follows_from_the_folders(sides: list[int], device: str, size: int):
    listings = [Listing(Path(), {str(i): (side, 900)}, {}) for i, side in enumerate(sides)]
    chosen, why = choose_size(listings, torch.device(device))
    assert chosen == size and why.startswith('since ')


@pytest.mark.parametrize('change, reason', [
    ({'format': 9}, 'of another version'), ({'steps': '9'}, 'steps as int'), ({'steps': True}, 'as int, got bool'),
    ({'steps': -1}, 'steps of at least 1'), ({'image_size': 10 ** 9}, '32, 48, 64, 96 pixels'),
    ({'method': 'os.system'}, 'expected one of the methods'), ({'method': 'vae'}, 'a method with two codes'),
    ({'fit': '../../etc'}, 'expected fit as one of'), ({'surprise': 1}, 'surprise'),
    ({'reference': 1}, 'as str, got int')])
def test_settings_that_cannot_be_used(change: dict, reason: str, folders, tmp_path, capsys):
    begin(tmp_path, settings(folders))
    path = tmp_path / 'run.json'
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert main(['resume', str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith('rbvae: expected the settings of a run in ') and reason in said
    assert [p.name for p in tmp_path.iterdir()] == ['run.json']


@pytest.mark.parametrize('text', ['', '{', '[]', '7', 'null', '{}', '{"format": 1}', '\x00', '[' * 100_000])
def test_settings_that_cannot_be_read(text: str, tmp_path, capsys):
    (tmp_path / 'run.json').write_text(text)
    assert main(['resume', str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith('rbvae: expected the settings of a run in ')


def test_another_run_keeps_its_folder(folders, trained, capsys):
    before = {path: path.read_bytes() for path in trained.rglob('*') if path.is_file()}
    arguments = ['--unlabelled', str(folders[0]), '--reference', str(folders[1]), '--out', str(trained)]
    assert main(['train', *arguments, '--method', 'rbvae', '--steps', '25', '--device', 'cpu']) == 1
    assert "has one with steps 24 instead of 25; choose another folder" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in trained.rglob('*') if path.is_file()} == before


def test_a_dry_run_writes_nothing(folders, tmp_path, capsys):
    arguments = ['--unlabelled', str(folders[0]), '--reference', str(folders[1]), '--out', str(tmp_path / 'run')]
    assert main(['train', *arguments, '--dry-run', '--device', 'cpu']) == 0
    said = capsys.readouterr().out
    assert '40 images, their shorter sides from 48 to 48 pixels' in said and 'sRb-VAE at 32 pixels' in said
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize('wrong, reason', [
    (['--unlabelled', 'nowhere'], 'expected a folder with images'), (['--steps', '0'], 'steps of at least 1'),
    (['--method', 'vae'], 'a method with two codes'), (['--image-size', '33'], '32, 48, 64, 96 pixels'),
    (['--fit', 'squeeze'], 'expected fit as one of'), (['--device', 'abacus'], 'expected a device'),
    (['--seed', '99999999999999999999'], 'expected a seed'), (['--image-size', '0'], 'at least 1 pixel')])
def test_a_wrong_call_writes_nothing(wrong: list[str], reason: str, folders, tmp_path, capsys):
    arguments = ['--unlabelled', str(folders[0]), '--reference', str(folders[1]), '--out', str(tmp_path / 'run')]
    assert main(['train', *arguments, *wrong]) == 1
    said = capsys.readouterr().err
    assert said.startswith('rbvae: expected ') and reason in said and said.count('\n') == 1
    assert not [*tmp_path.iterdir()]


def test_one_folder_is_not_two(folders, tmp_path, capsys):
    same = str(folders[0] / '..' / folders[0].name)
    assert main(['train', '--unlabelled', str(folders[0]), '--reference', same, '--out', str(tmp_path / 'run')]) == 1
    assert 'expected folders apart from each other' in capsys.readouterr().err and not [*tmp_path.iterdir()]


@pytest.mark.parametrize('size', [32, 48, 64, 96])
def test_a_model_of_each_size(size: int, folders):
    """λ is that of the lessons at 32 and 64 pixels, and grows with the cube of the size between and beyond."""
    model, recipe = settings(folders, method='srbvae', image_size=size).model()
    images = torch.zeros(2, 3, size, size, dtype=torch.uint8)
    assert model.reconstruct(images).shape == images.shape and recipe['steps'] == 24
    assert model.laplace_scale == pytest.approx(20 * (size / 32) ** 3)
    assert model.pretraining_scale == pytest.approx(1.2 * (size / 32) ** 3)
    losses, _ = model.losses(*torch.rand(2, 4, 3, size, size).mul(2).sub(1), .9)
    assert all(loss.isfinite() for loss in losses.values())


def test_a_run_exports_its_model(trained, tmp_path):
    assert main(['export', str(trained), '--out', str(tmp_path)]) == 0
    assert load(tmp_path / 'rbvae-decoder.safetensors', tmp_path / 'rbvae-encoder.safetensors').name == 'rbvae'


def test_settings_survive_the_file(folders, tmp_path):
    ours = settings(folders, seed=3, fit='stretch', image_size=64)
    begin(tmp_path, ours)
    assert settings_of(tmp_path) == ours
