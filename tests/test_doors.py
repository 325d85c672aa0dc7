"""A new method and a new data set, one notebook each, reach the command line; shapes go wherever digits go."""
import subprocess
import sys
from functools import partial
from pathlib import Path

import nbformat
import pandas as pd
import pytest
import rbvae_nb
import torch
from rbvae_nb import cli
from rbvae_nb.attributes import save_classifier, train_classifier
from rbvae_nb.experiments import EXPERIMENTS
from rbvae_nb.faces import drawn_faces
from rbvae_nb.methods import load
from rbvae_nb.shapes import turned_shapes
from rbvae_nb.sweep import read_rows
from test_house import copy_of, python

METHOD = '''#| export
from rbvae_nb.methods import METHODS, Losses
from rbvae_nb.rbvae import RbVAE

@METHODS.add
class Anchored(RbVAE):
    "Rb-VAE whose code e of reference images is drawn to e_ref."
    name, title, hyperparameter = 'anchored', 'Anchored', ''

    def losses(self, x_u, x_r, elapsed: float = 1.) -> Losses:
        "Eq. 3 and the anchor."
        objectives, terms = super().losses(x_u, x_r, elapsed)
        terms['anchor'] = -self.posteriors(x_r)['e'].log_density(self.e_ref.expand(len(x_r), -1)).mean()
        return {'model': objectives['model'] + terms['anchor']}, terms
'''
DATA = '''#| export
import numpy as np
import torch
from rbvae_nb.experiments import EXPERIMENTS, Experiment, Split
from rbvae_nb.images import ImageSets

def discs(radius: np.ndarray, grey: np.ndarray, image_size: int) -> torch.Tensor:
    "Discs of some radius and brightness."
    at = torch.linspace(-1, 1, image_size)
    inside = (at[:, None] ** 2 + at ** 2).sqrt() < torch.from_numpy(radius)[:, None, None]
    images = inside * torch.from_numpy(grey)[:, None, None] * 255
    return images.to(torch.uint8)[:, None].repeat(1, 3, 1, 1)

@EXPERIMENTS.add
def grey_discs(image_size: int = 32, n: int = 150) -> Experiment:
    "Discs, white in the reference set, of any grey in the unlabelled one."
    rng = np.random.default_rng(0)
    def split() -> Split:
        radius, grey = rng.uniform(.2, .9, n), rng.uniform(.2, 1, n)
        size = np.where(radius > .55, 'large', 'small')
        return Split(discs(radius, grey, image_size), {'grey': grey.astype(np.float32)}, size, 'shade', 'size')
    white = discs(rng.uniform(.2, .9, n), np.ones(n), image_size)
    return Experiment(ImageSets(split().images, white), split(), split(), 'grey_discs')
'''
IMPORTS = "import sys; from rbvae_nb.cli import main; sys.exit(main(sys.argv[1:]))"


def notebook(path: Path, module: str, source: str):
    """A notebook of one exported cell."""
    cells = [f'#| default_exp {module}', source]
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells]), path)


@pytest.fixture(scope='module')
def extended(tmp_path_factory) -> Path:
    """A copy of the checkout with one notebook more for a method, and one for a data set; nothing else is touched."""
    copy = copy_of(tmp_path_factory.mktemp('extended') / 'copy', 'nbs', 'pyproject.toml', 'rbvae_nb')
    notebook(copy / 'nbs' / '10a_anchored.ipynb', 'anchored', METHOD)
    notebook(copy / 'nbs' / '02d_discs.ipynb', 'discs', DATA)
    python('from nbdev.doclinks import nbdev_export; nbdev_export.__wrapped__()', cwd=copy, path=copy)
    assert (copy / 'rbvae_nb' / 'anchored.py').exists() and (copy / 'rbvae_nb' / 'discs.py').exists()
    return copy


CLASSIFIER = ("from rbvae_nb.attributes import save_classifier, train_classifier; "
              "from rbvae_nb.discs import grey_discs; "
              "quick = train_classifier(grey_discs().fit, steps=20, device='cpu'); "
              "save_classifier(quick, 'out/classifier.safetensors')")


def test_new_method_and_data_in_the_table(extended: Path, tmp_path: Path):
    """With a quick classifier, as for the shapes."""
    (tmp_path / 'out').mkdir()
    python(CLASSIFIER, cwd=tmp_path, path=extended)
    python(IMPORTS, 'table', '--out', 'out', '--data', 'grey_discs', '--methods', 'anchored', 'vae', '--seeds', '0',
           '--steps', '2', '--device', 'cpu', cwd=tmp_path, path=extended)
    rows, text = read_rows(tmp_path / 'out' / 'table.csv'), (tmp_path / 'out' / 'table.md').read_text(encoding='utf-8')
    assert set(rows.status) == {'done'} and set(rows.method) == {'anchored', 'vae'}
    assert {'grey', 'target', 'identity', 'score'} == set(rows.factor)
    assert 'Anchored' in text and 'shade from e' in text and 'size from z' in text


def test_new_data_in_the_demo_and_new_method_in_the_export(extended: Path, tmp_path: Path):
    said = python(IMPORTS, 'demo', '--out', 'shown', '--data', 'grey_discs', '--steps', '2', '--device', 'cpu',
                  cwd=tmp_path, path=extended)
    assert 'shade' in said and 'size at chance' in said
    save = "from rbvae_nb.anchored import Anchored; Anchored().save('mine.safetensors')"
    python(save, cwd=tmp_path, path=extended)
    assert 'Anchored' in python(IMPORTS, 'export', 'mine.safetensors', '--out', 'web', cwd=tmp_path, path=extended)


def test_unknown_names_at_the_command_line(extended: Path, tmp_path: Path):
    command = [sys.executable, '-m', 'rbvae_nb.cli', 'table', '--out', 'new', '--methods', 'anchord']
    run = subprocess.run(command, cwd=extended, capture_output=True, encoding='utf-8')
    assert run.returncode == 1 and run.stderr.startswith('rbvae: expected one of the methods anchored, ')
    assert not (extended / 'new').exists()


# Shapes

def test_shapes_in_the_demo(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(['demo', '--data', 'turned_shapes', '--steps', '2', '--device', 'cpu']) == 0
    assert 'appearance' in capsys.readouterr().out
    table = pd.read_csv('rbvae-demo/probes.csv', index_col=['model', 'code'])
    assert list(table.columns[-4:]) == ['appearance', 'appearance ±', 'shape', 'shape ±']
    assert 'light' in table.columns and len(table) == 5
    assert load('rbvae-demo/srbvae.safetensors').name == 'srbvae'


def test_shapes_in_the_table(tmp_path, monkeypatch, capsys):
    """With few images, and a quick classifier, which the folder of a sweep would otherwise train and keep."""
    monkeypatch.setitem(EXPERIMENTS, 'turned_shapes', partial(turned_shapes, n=800))
    quick = train_classifier(turned_shapes(n=800).fit, steps=20, device='cpu')
    save_classifier(quick, tmp_path / 'classifier.safetensors')
    what = ['--data', 'turned_shapes', '--methods', 'rbvae', 'beta_vae', '--factor', 'light']
    assert cli.main(['table', '--out', str(tmp_path), *what, '--seeds', '0', '--steps', '2', '--device', 'cpu']) == 0
    assert 'appearance from e' in capsys.readouterr().out
    rows = read_rows(tmp_path / 'table.csv')
    assert {'turn', 'fill', 'light', 'target', 'identity'} < set(rows.factor) and set(rows.status) == {'done'}
    assert {'swap', 'reconstruction', 'partner', 'linear', 'nonlinear', 'validation'} == set(rows.measure)


def test_faces_in_the_demo(tmp_path, monkeypatch, capsys):
    """With few of them: the command asks for the size of its preset, 32 pixels, the smallest that is drawn."""
    monkeypatch.setitem(EXPERIMENTS, 'drawn_faces', partial(drawn_faces, n=200))
    command = ['demo', '--data', 'drawn_faces', '--steps', '2', '--device', 'cpu', '--out', str(tmp_path)]
    assert cli.main(command) == 0 and 'the person at chance' in capsys.readouterr().out
    table = pd.read_csv(tmp_path / 'probes.csv', index_col=['model', 'code'])
    assert list(table.columns[-4:]) == ['expressions', 'expressions ±', 'person', 'person ±'] and len(table) == 5
    assert load(tmp_path / 'srbvae.safetensors').name == 'srbvae'


def test_weights_of_the_package_are_for_digits(capsys):
    assert cli.main(['demo', '--pretrained', '--data', 'turned_shapes', '--out', 'never']) == 1
    assert "expected 'digit_styles' with --pretrained" in capsys.readouterr().err


def test_the_command_itself(capsys):
    assert cli.main([]) == cli.main(['--help']) == 0 and capsys.readouterr().out.count('usage: rbvae') == 2
    assert cli.main(['tabel']) == 2
    known = 'demo, train, resume, encode, transfer, report, share, table, export, bench'
    assert capsys.readouterr().err == f"rbvae: expected one of the commands {known}, got 'tabel'\n"
    for command in cli.COMMANDS:
        with pytest.raises(SystemExit, match='0'): cli.main([command, '--help'])
    assert 'pip install "rbvae-nb[onnx]"' in capsys.readouterr().out


# The public face

def test_everything_public_is_there():
    for name in rbvae_nb.__all__: assert getattr(rbvae_nb, name).__module__.startswith('rbvae_nb.') or name.isupper()
    assert set(rbvae_nb.__all__) <= set(dir(rbvae_nb))
    with pytest.raises(AttributeError, match="no attribute 'SrbVAE'"): rbvae_nb.__getattr__('SrbVAE')


def test_six_lines(tmp_path):
    """The README's example, shortened in its training alone."""
    from rbvae_nb import SRbVAE, digit_styles, probe, train
    data = digit_styles(n_styles=1)
    model, recipe = SRbVAE.preset('small')
    train(model, data.sets, **recipe | dict(steps=2), out=tmp_path / 'run', progress=False)
    codes = model.encode(data.test.images)
    assert codes.keys() == {'z', 'e'}
    assert model.transfer(e_from=data.test.images[:1], z_from=data.test.images[1:9]).shape == (8, 3, 32, 32)
    assert {'style', 'digit'} < set(probe(model, data).columns)
    assert torch.allclose(model(torch.zeros(1, 3, 32, 32)), model.reconstruct(torch.zeros(1, 3, 32, 32)), atol=1e-5)
