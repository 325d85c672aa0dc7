"""A model as a folder for others: what is in it, what it is refused for, and what is uploaded."""
import json
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
import torch
from conftest import noise_folders
from rbvae_nb.cli import main
from rbvae_nb.files import load_tensors, save_tensors
from rbvae_nb.hub import HubModel, of_run
from rbvae_nb.methods import load
from rbvae_nb.runs import RunSettings, begin, go_on


@pytest.fixture(scope='module')
def run(tmp_path_factory) -> Path:
    """A run of two steps, on two sets of 60 images."""
    root = noise_folders(tmp_path_factory.mktemp('hub'), 60)
    begin(root / 'run', RunSettings(str(root / 'with'), str(root / 'without'), method='rbvae', steps=2))
    go_on(root / 'run', 'cpu', progress=False)
    return root / 'run'


@pytest.fixture
def folder(run, tmp_path) -> Path:
    """The run, shared by the command."""
    assert main(['share', str(run), '--out', str(tmp_path / 'shared')]) == 0
    return tmp_path / 'shared'


def test_a_folder_is_the_model(run, folder):
    """The same codes, by the library's way and by ours; the card has the numbers and the warnings of the run."""
    model, images = load(run), torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8)
    for again in (HubModel.from_pretrained(folder).model, load(folder)):
        assert again.reconstruct(images).equal(model.reconstruct(images))
    about, card = of_run(run), (folder / 'README.md').read_text()
    assert about['images'] == dict(unlabelled=60, reference=60) and about['settings']['steps'] == 2
    assert all(warning in card for warning in about['warnings']) and about['warnings']
    assert all(f'* {name}: {value}' in card for name, value in about['numbers'].items())
    assert HubModel.from_pretrained(folder).run == about
    assert card.startswith('---\n') and 'library_name: rbvae-nb' in card


def test_nothing_of_this_machine_is_shared(run, folder):
    for path in folder.iterdir(): assert str(run.parent).encode() not in path.read_bytes()


def test_a_folder_that_is_there_is_kept(run, folder, capsys):
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert main(['share', str(run), '--out', str(folder)]) == 1
    assert 'expected a new folder' in capsys.readouterr().err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize('change, said', [
    (dict(format=9), 'expected format 1'), (dict(method='srbvae'), "expected method 'rbvae'"),
    (dict(arguments={}), 'expected arguments'), (dict(run=3), None)])
def test_a_description_of_another_model(change: dict, said: str | None, folder):
    """It is refused; one that says nothing of the run is not."""
    path = folder / 'config.json'
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    if said is None: assert HubModel.from_pretrained(folder).run == {}
    else:
        with pytest.raises(ValueError, match=said): HubModel.from_pretrained(folder)


@pytest.mark.parametrize('text', ['', '{', '[1]', 'null', '7', '[' * 100_000])
def test_a_description_that_cannot_be_read(text: str, folder):
    (folder / 'config.json').write_text(text)
    with pytest.raises(ValueError, match='^expected .* in '): HubModel.from_pretrained(folder)


def test_a_description_alone_makes_no_model(folder):
    """Weights decide; those of another size, and none at all, are refused."""
    tensors, about = load_tensors(folder / 'model.safetensors')
    about['arguments']['dim_z'] = 3000
    save_tensors(folder / 'model.safetensors', tensors, about)
    with pytest.raises(ValueError, match='do not fit'): HubModel.from_pretrained(folder)
    (folder / 'model.safetensors').unlink()
    with pytest.raises(FileNotFoundError, match='^expected a weight file'): HubModel.from_pretrained(folder)


def test_what_is_uploaded(run, tmp_path, monkeypatch, capsys):
    """The library is handed the three files, and its refusal is a sentence that says what is complete."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError
    sent = {}
    def upload(self, *, repo_id, folder_path, **kwargs):
        sent[repo_id] = sorted(path.name for path in Path(folder_path).iterdir())
        return 'https://huggingface.co/somebody/model'
    monkeypatch.setattr(HfApi, 'upload_folder', upload)
    monkeypatch.setattr(HfApi, 'create_repo', lambda self, repo_id, **kwargs: type('Repo', (), {'repo_id': repo_id}))
    assert main(['share', str(run), '--out', str(tmp_path / 'a'), '--to', 'somebody/model']) == 0
    assert sent == {'somebody/model': ['README.md', 'config.json', 'model.safetensors']}
    assert 'https://huggingface.co/somebody/model' in capsys.readouterr().out
    def refuse(self, **kwargs): raise HFValidationError('no such\nname')  # as any other of its errors
    monkeypatch.setattr(HfApi, 'upload_folder', refuse)
    assert main(['share', str(run), '--out', str(tmp_path / 'b'), '--to', 'somebody/model']) == 1
    said = capsys.readouterr().err
    assert said.startswith('rbvae: expected to upload') and 'is complete' in said and said.count('\n') == 1
    assert load(tmp_path / 'b')


def test_squares_are_made_as_in_the_run(run, folder, tmp_path):
    """Also by those who have only the folder."""
    about = json.loads((folder / 'config.json').read_text())
    about['run']['settings']['fit'] = 'pad'
    (folder / 'config.json').write_text(json.dumps(about))
    (tmp_path / 'wide').mkdir()
    cv2.imwrite(str(tmp_path / 'wide' / 'a.png'), np.random.default_rng(0).integers(0, 256, (32, 80, 3)))
    words = str(folder), str(tmp_path / 'wide'), '--out'
    assert main(['encode', *words, str(tmp_path / 'as it was.csv')]) == 0
    for fit in ('pad', 'crop'): assert main(['encode', *words, str(tmp_path / f'{fit}.csv'), '--fit', fit]) == 0
    as_it_was, pad, crop = ((tmp_path / f'{name}.csv').read_text() for name in ('as it was', 'pad', 'crop'))
    assert as_it_was == pad != crop


def test_a_run_that_is_not_finished(run, tmp_path, capsys):
    begin(tmp_path / 'run', RunSettings(str(run.parent / 'with'), str(run.parent / 'without'), method='rbvae'))
    assert main(['share', str(tmp_path / 'run'), '--out', str(tmp_path / 'shared')]) == 1
    assert 'rbvae resume' in capsys.readouterr().err and not (tmp_path / 'shared').exists()


def test_features_as_parquet(run, tmp_path):
    """The same table as the CSV."""
    folder = str(run.parent / 'with')
    for name in ('f.csv', 'f.PARQUET'): assert main(['encode', str(run), folder, '--out', str(tmp_path / name)]) == 0
    ours, theirs = pd.read_csv(tmp_path / 'f.csv'), pd.read_parquet(tmp_path / 'f.PARQUET')
    pd.testing.assert_frame_equal(ours, theirs, check_dtype=False, rtol=1e-4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ['f.PARQUET', 'f.csv']
