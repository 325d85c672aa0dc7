"""Malformed weights, checkpoints, settings, caches, tables and command lines: refused in one sentence, nothing run,
nothing left that looks whole."""
import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from rbvae_nb.cli import main
from rbvae_nb.files import load_tensors
from rbvae_nb.folders import CachedImages
from rbvae_nb.images import ImageSets
from rbvae_nb.methods import Method, load
from rbvae_nb.rbvae import RbVAE
from rbvae_nb.report import open_run, what_codes_know
from rbvae_nb.runs import RunSettings, begin, go_on, settings_of
from rbvae_nb.training import train
from safetensors.torch import save

REFUSED = ValueError, TypeError, OSError
MANY = settings(deadline=None, derandomize=True, max_examples=40)
DEEP = '[' * 100_000
case = pytest.param


def refusal(call, *arguments) -> str:
    """What a call says that is refused: in one line, with what was expected."""
    with pytest.raises(REFUSED) as caught: call(*arguments)
    said = str(caught.value)
    assert 'expected' in said and len(said.splitlines()) == 1, said
    return said


@pytest.fixture
def command(capsys):
    """Calls the command and returns its one sentence: it must refuse."""
    def call(*words) -> str:
        capsys.readouterr()
        try: status = main([str(word) for word in words])
        except SystemExit as stop: status = stop.code
        said = capsys.readouterr().err
        assert status and said.startswith('rbvae: ') and said.count('\n') == 1 and said.endswith('\n'), said
        return said
    return call


def everything(folder: Path) -> dict[Path, tuple[int, int]]:
    """All files of a folder, how large they are and when they were written."""
    found = {path: path.stat() for path in folder.rglob('*') if path.is_file()}
    return {path.relative_to(folder): (stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}


def tiny() -> RbVAE:
    return RbVAE(dim_z=4, dim_e=2, channels=(8, 8, 8), generator_channels=(8, 8, 8, 8))


@pytest.fixture(scope='module')
def place(tmp_path_factory) -> Path:
    """A folder with images, a weight file, a file that is none and an empty folder."""
    root = tmp_path_factory.mktemp('malformed')
    rng = np.random.default_rng(0)
    for name, n in (('with', 110), ('without', 6)):
        (root / name).mkdir()
        for i in range(n):
            cv2.imwrite(str(root / name / f'{i:03}.png'), rng.integers(0, 255, (32, 32, 3)).astype(np.uint8))
    (root / 'file').write_text('a file, and none of ours')
    (root / 'empty').mkdir()
    tiny().save(root / 'whole')
    return root


@pytest.fixture(scope='module')
def finished(place) -> Path:
    """A run of one step; its model is changed for a small one."""
    run = place / 'run'
    begin(run, RunSettings(str(place / 'with'), str(place / 'without'), method='rbvae', steps=1))
    go_on(run, 'cpu', progress=False)
    for picture in run.glob('*.png'): picture.unlink()
    shutil.copy(place / 'whole', run / 'model.safetensors')
    return run


@pytest.fixture
def run(finished, tmp_path) -> Path:
    """A copy of the run, to be damaged."""
    left = shutil.ignore_patterns('checkpoint.*')
    return Path(shutil.copytree(finished, tmp_path / 'run', ignore=left))


# Weight files

def written(path: Path, tensors: dict, about, version: str = '2') -> Path:
    """A weight file with this description: what JSON can hold, or a text."""
    text = about if isinstance(about, str) else json.dumps(about)
    path.write_bytes(save(tensors, {'rbvae_nb': text, 'rbvae_nb_format': version}))
    return path


def headed(header, data: bytes = bytes(4)) -> bytes:
    """A file of safetensors with this header, right or wrong."""
    text = json.dumps(header).encode()
    return struct.pack('<Q', len(text)) + text + data


def entry(dtype: str = 'F32', shape: tuple = (1,), offsets: tuple = (0, 4)) -> dict:
    return dict(dtype=dtype, shape=shape, data_offsets=offsets)


@MANY
@given(some.lists(some.tuples(some.integers(0, 10_000), some.integers(0, 255)), min_size=1, max_size=8))
def test_damaged_headers(place, changes):
    """A byte here and there: a model, or a reason."""
    data = bytearray((place / 'whole').read_bytes())
    header = 8 + struct.unpack('<Q', data[:8])[0]
    for where, value in changes: data[where % header] = value
    (place / 'damaged').write_bytes(data)
    try: assert isinstance(load(place / 'damaged'), Method)
    except REFUSED as error: assert str(error).startswith('expected ') and len(str(error).splitlines()) == 1


@MANY
@given(some.floats(0, 1, exclude_max=True))
def test_truncated_files(place, share: float):
    data = (place / 'whole').read_bytes()
    (place / 'cut').write_bytes(data[:int(share * len(data))])
    assert 'truncated or something else' in refusal(load, place / 'cut')


@MANY
@given(some.binary(max_size=300))
def test_any_bytes(place, data: bytes):
    (place / 'bytes').write_bytes(data)
    assert 'truncated or something else' in refusal(load, place / 'bytes')


LEAVES = some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=8)
ANY_JSON = some.recursive(LEAVES, lambda of: some.lists(of, max_size=3) | some.dictionaries(
    some.sampled_from(['method', 'arguments', 'dim_z', 'x']), of, max_size=3), max_leaves=8)


@MANY
@given(ANY_JSON)
def test_any_description(place, about):
    tensors, _ = load_tensors(place / 'whole')
    refusal(load, written(place / 'described', tensors, json.dumps(about)))


NO_NUMBER = some.none() | some.text(max_size=5) | some.lists(some.text(max_size=3), max_size=4) | some.dictionaries(
    some.text(max_size=3), some.integers(), max_size=2) | some.floats(.1, 99).filter(lambda value: value % 1)


@MANY
@given(some.sampled_from(['image_size', 'dim_z', 'dim_e', 'channels', 'patch']), NO_NUMBER)
def test_arguments_of_another_type(place, name: str, value):
    tensors, about = load_tensors(place / 'whole')
    about['arguments'][name] = value
    refusal(load, written(place / 'typed', tensors, about))


RAW = [
    case(bytes(8), id='zeros'), case(b'\xff' * 100, id='ones'), case(struct.pack('<Q', 2 ** 63) + b'{}', id='length'),
    case(struct.pack('<Q', 10 ** 8 - 1) + b'{}', id='longer than the file'),
    case(struct.pack('<Q', 10 ** 5) + b'[' * 10 ** 5, id='nested'), case(headed([]), id='list'),
    case(headed(None), id='null'), case(headed({}), id='no tensors'), case(headed({'a': entry('F99')}), id='dtype'),
    case(headed({'a': entry(shape=(10 ** 9, 10 ** 9))}), id='size'), case(headed({'a': entry(shape=(-1,))}), id='-1'),
    case(headed({'a': entry(offsets=(4, 0))}), id='backwards'),
    case(headed({'a': entry(offsets=(0, 2 ** 63))}), id='beyond'), case(headed({'a': entry()}), id='no description'),
    case(headed({'a': entry(), 'b': entry()}), id='two in one place'),
    case(headed({'__metadata__': {'rbvae_nb': 3}, 'a': entry()}), id='number for a text'),
    case(headed({'__metadata__': [], 'a': entry()}), id='list of metadata'),
]


@pytest.mark.parametrize('data', RAW)
def test_files_that_are_none(data: bytes, tmp_path, command):
    (tmp_path / 'weights').write_bytes(data)
    assert 'truncated or something else' in refusal(load, tmp_path / 'weights')
    command('export', tmp_path / 'weights', '--out', tmp_path / 'out')
    assert not (tmp_path / 'out').exists()


class Code:
    """Leaves a file when it is unpickled."""
    def __init__(self, mark: Path): self.mark = mark
    def __reduce__(self): return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize('kind', ['pickle', 'zip', 'torch', 'npz'])
def test_nothing_is_run(kind: str, place, tmp_path, command):
    """Files of other libraries, with code inside."""
    path, mark = tmp_path / 'weights', tmp_path / 'was run'
    if kind == 'pickle': path.write_bytes(pickle.dumps(Code(mark)))
    elif kind == 'torch': torch.save({'a': Code(mark)}, path)
    elif kind == 'zip':
        with zipfile.ZipFile(path, 'w') as file: file.writestr('archive/data.pkl', pickle.dumps(Code(mark)))
    else: np.savez(path.open('wb'), a=np.array([Code(mark)], dtype=object))
    for call in (load, load_tensors): assert 'truncated or something else' in refusal(call, path)
    command('export', path, '--out', tmp_path / 'out')
    command('encode', path, place / 'with', '--out', tmp_path / 'codes.csv')
    assert list(tmp_path.iterdir()) == [path]


DESCRIPTIONS = [
    *('', '{', 'null', '"x"', '[]', '9' * 5000, '1e999', 'NaN', '{"method": "rbvae"}', '{"method": "rbvae"} x', '\0',
      '{"method": "rbvae", "arguments": null}', '{"method": "rbvae", "arguments": [["dim_z", 4]]}',
      '{"method": ["rbvae"], "arguments": {}}', '{"method": "rbvae", "method": "vea", "arguments": {}}',
      '{"method": "os.system", "arguments": {}}', '{"method": "Method", "arguments": {}}'),
    case(DEEP, id='nested lists'), case('{"a":' * 50_000, id='nested objects'),
]


@pytest.mark.parametrize('about', DESCRIPTIONS, ids=lambda text: text[:30])
def test_descriptions(about: str, place, tmp_path):
    refusal(load, written(tmp_path / 'weights', load_tensors(place / 'whole')[0], about))


@pytest.mark.parametrize('version', ['', '1', '3', '2.0', 'x', '-2', '2' * 1000])
def test_other_versions(version: str, place, tmp_path):
    path = written(tmp_path / 'weights', *load_tensors(place / 'whole'), version)
    assert 'another version of rbvae-nb' in refusal(load, path)


ARGUMENTS = [
    *(('image_size', value) for value in (0, -1, 33, 2 ** 70, True, '32', None, [32], 32., float('nan'))),
    *(('dim_z', value) for value in (-1, '4', None, [4], {}, 2.5)), ('dim_e', -5), ('dim_e', '2'),
    *(('channels', value) for value in ([], [8], [8] * 9, 'abc', None, 8, [-1, 8, 8], ['8'] * 3, [[8]] * 3, {'a': 1})),
    ('generator_channels', []), ('generator_channels', [8, 8]), ('n_convs', '1'), ('n_convs', None), ('n_convs', 1.5),
    ('patch', -1), ('patch', 3), ('patch', '2'), ('patch', None), ('latent_norm', 'yes'), ('surprise', 1), ('', 1),
    ('self', 1), ('__class__', 1), ('forward', None),
    ('patch', 0), ('dim_z', 0), ('dim_z', 5), ('dim_z', 10 ** 30), ('dim_z', True), ('dim_e', 0),
    ('channels', [0, 0, 0]), ('channels', [8, 8, 9]),
    *((name, value) for name, value in (('n_convs', -1), ('pyramid', '3'),
                                                         ('pyramid', None), ('pyramid', -1), ('laplace_scale', '3'),
                                                         ('laplace_scale', -1), ('laplace_scale', float('nan')))),
]


@pytest.mark.filterwarnings('ignore:Initializing zero-element')
@pytest.mark.parametrize('name, value', ARGUMENTS)
def test_arguments(name: str, value, place, tmp_path):
    tensors, about = load_tensors(place / 'whole')
    about['arguments'][name] = value
    assert "they do not fit" in refusal(load, written(tmp_path / 'weights', tensors, about))


TENSORS = [
    ('none', lambda tensors: {}), ('one missing', lambda tensors: dict(list(tensors.items())[1:])),
    ('a name too many', lambda tensors: tensors | {'surprise': torch.zeros(2)}),
    ('names with a prefix', lambda tensors: {f'optimizer.{name}': value for name, value in tensors.items()}),
    ('numbers', lambda tensors: {name: torch.tensor(1.) for name in tensors}),
    ('empty', lambda tensors: {name: torch.zeros(0) for name in tensors}),
    ('flat', lambda tensors: {name: value.flatten() for name, value in tensors.items()}),
    ('halves', lambda tensors: {name: value[::2].contiguous() for name, value in tensors.items()}),
    *(case(str(kind), lambda tensors, kind=kind: {name: value.to(kind) for name, value in tensors.items()})
      for kind in (torch.int64, torch.uint8, torch.bool, torch.complex64)),
]


@pytest.mark.filterwarnings('ignore:Casting complex values')
@pytest.mark.parametrize('name, change', TENSORS, ids=lambda part: part if isinstance(part, str) else 'change')
def test_tensors(name: str, change, place, tmp_path):
    tensors, about = load_tensors(place / 'whole')
    refusal(load, written(tmp_path / 'weights', change(tensors), about))


def test_weights_that_are_not_finite(place, tmp_path, command):
    tensors, about = load_tensors(place / 'whole')
    path = written(tmp_path / 'weights', {name: value * torch.nan for name, value in tensors.items()}, about)
    command('encode', path, place / 'with', '--out', tmp_path / 'codes.csv')
    assert not (tmp_path / 'codes.csv').exists()


LOAD = '''
import os, resource, sys
from rbvae_nb.methods import METHODS, load
METHODS.all()
resource.setrlimit(resource.RLIMIT_AS, (6 * 2 ** 30,) * 2)
for path in sys.argv[1:]:
    if not (child := os.fork()):
        resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try: said = f'took {load(path)}'
        except BaseException as error: said = f'{type(error).__name__}: {error}'
        more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(more, ' '.join(said.split()), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]: print('0 killed', flush=True)
'''
HUGE = [('dim_z', 600_000), ('dim_z', 10 ** 9), ('dim_e', 10 ** 9), ('channels', [300_000, 8, 8]),
        ('channels', [10 ** 9] * 3), ('n_convs', 10 ** 9)]


@pytest.fixture(scope='module')
def huge(place) -> list[str]:
    """For each of `HUGE`: kB that loading has cost, and what it said; in a process of limited memory."""
    tensors, about = load_tensors(place / 'whole')
    paths = [written(place / f'huge{i}', tensors, about | dict(arguments=about['arguments'] | {name: value}))
             for i, (name, value) in enumerate(HUGE)]
    run = subprocess.run([sys.executable, '-W', 'ignore', '-c', LOAD, *map(str, paths)], capture_output=True, text=True)
    return run.stdout.splitlines()


@pytest.mark.skipif(sys.platform != 'linux', reason='limits of memory are counted in other units elsewhere')
@pytest.mark.parametrize('i', range(len(HUGE)), ids=[f'{name}={value}' for name, value in HUGE])
def test_huge_sizes_cost_nothing(i: int, huge):
    more, _, said = huge[i].partition(' ')
    assert said.startswith('ValueError: expected ') and 'allocate' not in said and int(more) < 200_000


# Checkpoints

def sets() -> ImageSets:
    images = torch.arange(8 * 3 * 32 * 32).remainder(251).to(torch.uint8).view(8, 3, 32, 32)
    return ImageSets(images, images.flip(0))


def trained(out: Path):
    """A training of one step, or what goes on from it: nothing."""
    return train(tiny(), sets(), steps=1, batch_size=2, dtype='float32', device='cpu', progress=False, out=out)


@pytest.fixture(scope='module')
def checkpoint(place) -> Path:
    trained(place / 'training')
    return place / 'training' / 'checkpoint.safetensors'


def refused_checkpoint(checkpoint: Path, folder: Path, change):
    """A checkpoint with other tensors and another description is refused, and stays what it is."""
    tensors, about = change(*load_tensors(checkpoint))
    written(folder / 'checkpoint.safetensors', tensors, about)
    before = everything(folder)
    refusal(trained, folder)
    assert everything(folder) == before


STATE = [
    *((key, value) for key in ('method', 'arguments', 'recipe', 'sets') for value in (None, 3, 'x', {}, [{'a': 1}])),
    *(('step', value) for value in (None, 'x', [], {}, [1])),
    *(('step', value) for value in (10 ** 30, 1e9, 2.5, True, float('nan'))),
    *(('history', value) for value in (None, 3, True)),
    *(('history', value) for value in ('x', {}, [], [1], [{}], [{'step': 1}], {'a': 1})),
]


@pytest.mark.parametrize('key, value', STATE)
def test_state_of_another_kind(key: str, value, checkpoint, tmp_path):
    refused_checkpoint(checkpoint, tmp_path, lambda tensors, about: (tensors, about | {key: value}))


@pytest.mark.parametrize('key', ['method', 'arguments', 'recipe', 'sets', 'step', 'history'])
def test_state_that_is_missing(key: str, checkpoint, tmp_path):
    refused_checkpoint(checkpoint, tmp_path, lambda tensors, about: (
        tensors, {name: value for name, value in about.items() if name != key}))


MOMENTS = [
    *((name, value) for name, value in (
        ('model.e_ref', torch.zeros(0)), ('model.e_ref', torch.zeros(7, 7)), ('model.e_ref', torch.tensor(1.)),
        ('model.e_ref', None), ('model.surprise', torch.zeros(2)), ('random.cpu', torch.zeros(0, dtype=torch.uint8)),
        ('random.cpu', torch.full((5056,), 255, dtype=torch.uint8)), ('optimizer.model.999.exp_avg', torch.zeros(2)),
        ('random.batches', torch.zeros(9, dtype=torch.uint8)))),
    *((name, value) for name, value in (
        ('random.cpu', None), ('random.batches', None), ('random.cpu', torch.zeros(5056)),
        ('optimizer.model.x.exp_avg', torch.zeros(2)))),
    *((name, value) for name, value in (
        ('optimizer.model.0.exp_avg', torch.zeros(0)), ('optimizer.model.3.exp_avg_sq', torch.tensor(1.)),
        ('optimizer.model.3.exp_avg_sq', torch.zeros(7, 7)), ('optimizer.model.0.exp_avg_sq', None),
        ('optimizer.model.0.step', torch.zeros(0)), ('optimizer.model.0.step', None),
        ('optimizer.model.-1.exp_avg', torch.zeros(2)), ('optimizer.model.0.surprise', torch.zeros(2)))),
]


@pytest.mark.parametrize('name, value', MOMENTS, ids=lambda part: part if isinstance(part, str) else None)
def test_tensors_of_a_checkpoint(name: str, value: torch.Tensor | None, checkpoint, tmp_path):
    """None: the tensor is not there."""
    def change(tensors, about):
        changed = tensors | {name: value}
        return {key: tensor for key, tensor in changed.items() if tensor is not None}, about
    refused_checkpoint(checkpoint, tmp_path, change)


@MANY
@given(some.floats(0, 1, exclude_max=True))
def test_truncated_checkpoints(place, checkpoint, share: float):
    folder, data = place / 'cut training', checkpoint.read_bytes()
    folder.mkdir(exist_ok=True)
    (folder / 'checkpoint.safetensors').write_bytes(data[:int(share * len(data))])
    assert 'truncated or something else' in refusal(trained, folder)


@pytest.mark.parametrize('key', ['recipe', 'step'])
def test_the_command_does_not_go_on_from_it(key: str, finished, tmp_path, command):
    """And writes no model."""
    run = Path(shutil.copytree(finished, tmp_path / 'run'))
    tensors, about = load_tensors(run / 'checkpoint.safetensors')
    written(run / 'checkpoint.safetensors', tensors, {name: v for name, v in about.items() if name != key})
    (run / 'model.safetensors').unlink()
    before = everything(run)
    command('resume', run, '--device', 'cpu')
    assert everything(run) == before


# Settings of a run

SETTINGS = dict(format=1, unlabelled='/nowhere/with', reference='/nowhere/without', method='rbvae', image_size=32,
                fit='crop', steps=9, seed=0, dtype='float32', lr=0.)


def refused_settings(folder: Path, data: bytes, command) -> str:
    """run.json with this in it is refused, by the function and by the command, which adds nothing to the folder."""
    (folder / 'run.json').write_bytes(data)
    said = refusal(settings_of, folder)
    assert said.startswith('expected the settings of a run in ')
    assert command('resume', folder) == f'rbvae: {" ".join(said.split())}\n'
    assert [path.name for path in folder.iterdir()] == ['run.json']
    return said


@MANY
@given(some.sampled_from(sorted(SETTINGS)), ANY_JSON)
def test_any_field_of_the_settings(place, name: str, value):
    """Of another type, or out of range."""
    if type(value) is type(SETTINGS[name]) and name in ('unlabelled', 'reference', 'steps', 'seed', 'dtype', 'format'):
        value = [value]
    folder = place / 'settings'
    folder.mkdir(exist_ok=True)
    (folder / 'run.json').write_text(json.dumps(SETTINGS | {name: value}))
    if name == 'format' and value == 1: value = None
    assert 'run.json' in refusal(settings_of, folder)


FIELDS = [
    ('format', 2), ('format', '1'), ('format', None), ('unlabelled', None), ('reference', ['a']), ('method', ''),
    ('method', 'RbVAE'), ('method', '__class__'), ('image_size', 32.), ('image_size', True), ('image_size', 50),
    ('image_size', -32), ('fit', ''), ('fit', 'Crop'), ('fit', None), ('steps', 0), ('steps', 1.5), ('steps', None),
    ('steps', float('inf')), ('seed', -1), ('seed', 2 ** 63), ('seed', float('nan')), ('dtype', 32), ('self', 1),
    ('', 1), ('x' * 1000, [[[]]]),
    *(('dtype', value) for value in ('', 'float8', 'float64', 'os.system')),
    *((name, '\0') for name in ('unlabelled', 'reference')),
    case('steps', 10 ** 400, id='steps-huge'),
]


@pytest.mark.parametrize('name, value', FIELDS)
def test_fields_of_the_settings(name: str, value, tmp_path, command):
    refused_settings(tmp_path, json.dumps(SETTINGS | {name: value}).encode(), command)


@pytest.mark.parametrize('name', [
    'format', 'unlabelled', 'reference', 'method', 'image_size', 'fit', 'steps', 'seed', 'dtype'])
def test_fields_that_are_missing(name: str, tmp_path, command):
    kept = {key: value for key, value in SETTINGS.items() if key != name}
    assert name in refused_settings(tmp_path, json.dumps(kept).encode(), command)


WHOLE = json.dumps(SETTINGS)
TEXTS = [WHOLE.encode('utf-16'), b'\xef\xbb\xbf' + WHOLE.encode(), WHOLE.replace('with', 'mit \xe4').encode('latin-1'),
         WHOLE.encode() + b'\0', WHOLE.encode()[:-1], b'[' + WHOLE.encode() + b']', WHOLE.encode() * 2, b'NaN',
         b'9' * 5000, f'{{"format": 1, "unlabelled": {DEEP}'.encode(), b'{"a":' * 50_000, b'PK\3\4', b'\x80\4.',
         WHOLE.replace('}', ', "steps": "twice"}').encode(), WHOLE.replace('}', ', "format": 2}').encode()]


@pytest.mark.parametrize('data', TEXTS, ids=lambda data: repr(data[:20]))
def test_settings_that_are_no_settings(data: bytes, tmp_path, command):
    refused_settings(tmp_path, data, command)


# Caches of images

def opened(cache: Path):
    """A cache, and what training and report ask of it."""
    images = CachedImages(cache)
    images.fingerprint()
    return images[0]


INDEX = [
    *(('names', value) for value in (None, 3, '', [], {}, 2.5, ['a'])),
    *(('image_size', value) for value in (None, 0, -1, 16, 64, 10 ** 9, 10 ** 30, 2.5, True, '32', [], [32], {},
                                          float('nan'), float('inf'))),
    *(('skipped', value) for value in (None, 3, 'x', 2.5, [1], True)),
    *(('digest', value) for value in (None, '', 'x', [], 2.5, 'ä' * 20)),
    ('image_size', -32), ('names', [None] * 6), ('names', 'abcdef'), ('names', [1] * 6), ('skipped', {'a': 1}),
    ('format', 2), ('format', None), ('folder', 3),
]


@pytest.mark.parametrize('name, value', INDEX)
def test_fields_of_an_index(name: str, value, run):
    cache = run / 'cache' / 'reference'
    index = json.loads((cache / 'index.json').read_text())
    (cache / 'index.json').write_text(json.dumps(index | {name: value}))
    assert 'delete that folder' in refusal(opened, cache)


@pytest.mark.parametrize('name', ['names', 'image_size', 'digest', 'skipped', 'folder'])
def test_fields_that_an_index_has_not(name: str, run, command):
    path = run / 'cache' / 'unlabelled' / 'index.json'
    path.write_text(json.dumps({key: v for key, v in json.loads(path.read_text()).items() if key != name}))
    before = everything(run)
    assert 'delete that folder' in command('report', run, '--device', 'cpu')
    assert everything(run) == before


@pytest.mark.parametrize('data', [b'', b'[]', b'7', b'null', b'"x"', b'NaN', b'\xff\xfe', b'9' * 5000, DEEP.encode(),
                                  b'PK\3\4', b'{"names": '], ids=lambda data: repr(data[:12]))
def test_an_index_that_is_none(data: bytes, run, command):
    (run / 'cache' / 'reference' / 'index.json').write_bytes(data)
    assert 'delete that folder' in refusal(opened, run / 'cache' / 'reference')
    assert 'delete that folder' in command('resume', run, '--device', 'cpu')
    assert not (run / 'checkpoint.safetensors').exists()


@pytest.mark.parametrize('name, folder', [
    ('pixels.u8', False), ('index.json', False), ('pixels.u8', True), ('index.json', True)])
def test_files_of_a_cache_that_are_missing_or_folders(name: str, folder: bool, run):
    (run / 'cache' / 'reference' / name).unlink()
    if folder: (run / 'cache' / 'reference' / name).mkdir()
    assert 'delete that folder' in refusal(opened, run / 'cache' / 'reference')


def test_an_empty_cache(run, command):
    index = json.loads((run / 'cache' / 'reference' / 'index.json').read_text())
    (run / 'cache' / 'reference' / 'index.json').write_text(json.dumps(index | dict(names=[])))
    (run / 'cache' / 'reference' / 'pixels.u8').write_bytes(b'')
    command('report', run, '--device', 'cpu')


# The history of a training

HISTORY = [
    b'', b'\n\n', b'\xff\xfe\0', b'\0\1\2', b'stop,seconds,x\n1,2,3\n', b'step,secs,x\n1,2,3\n', b'step\n1\n',
    b'step,seconds\n1,2\n', b'step,seconds,x\n', b'step;seconds;x\n1;2;3\n', b'step,seconds,x\n1,2,3\n1,2,3,4,5\n',
    b'step,seconds,"x\n1,2,3\n', 'step,seconds,x\n1,2,3\n'.encode('utf-16'),
    b'step,seconds,x\na,b,c\n', b'step,seconds,x\n1,2,y\n',
]


def plotted(run: Path):
    return open_run(run, 'cpu').history.plot()


@pytest.mark.parametrize('data', HISTORY, ids=lambda data: repr(data[:24]))
def test_histories(data: bytes, run):
    (run / 'history.csv').write_bytes(data)
    assert 'history.csv' in refusal(plotted, run)


@pytest.mark.parametrize('folder', [False, True])
def test_no_history(folder: bool, run, command):
    (run / 'history.csv').unlink()
    if folder: (run / 'history.csv').mkdir()
    assert 'expected' in command('report', run, '--device', 'cpu') and not (run / 'report.html').exists()


# Labels for the report

def rows(value, first: str = 'file,x', n: int = 110, names: str = '{:03}.png') -> str:
    """A table of labels: `value` of each number."""
    return '\n'.join([first, *(f'{names.format(i)},{value(i)}' for i in range(n))])


LABELS = [
    b'', b'\n\n', b'file\n', b'file,x\n', rows(str, '000.png,0'), rows(str, 'File,x'), rows(str, 'name,x'),
    rows(str, names='{:03}.jpg'), rows(str, names='000.png'), rows(str, n=99), rows(str, names='with/{:03}.png'),
    rows(str).replace(',', ';'), rows(str).replace(',', '\t'), rows(str).encode('utf-16'), rows(str) + '\n"a,b',
    rows(lambda i: '\xe9').encode('latin-1'), b'\x89PNG\r\n\x1a\n' + bytes(99), b'PK\3\4' + bytes(99), b'{"file": 3}',
    bytes(range(256)) * 9, rows(str) + '\na,b,c,d',
]


@pytest.fixture(scope='module')
def seen(finished): return open_run(finished, 'cpu')


@pytest.mark.parametrize('table', LABELS, ids=lambda table: repr(table[:20]))
def test_labels(table: bytes | str, seen, tmp_path):
    (tmp_path / 'labels.csv').write_bytes(table.encode() if isinstance(table, str) else table)
    refusal(what_codes_know, seen, tmp_path / 'labels.csv')


@pytest.mark.parametrize('data', [b'\xff\xfe\0', bytes(range(256)) * 9])
def test_labels_that_leave_no_report(data: bytes, run, tmp_path, command):
    (tmp_path / 'labels.csv').write_bytes(data)
    assert 'labels.csv' in command('report', run, '--labels', tmp_path / 'labels.csv', '--device', 'cpu')
    assert not (run / 'report.html').exists()


NOTHING = [lambda i: '', lambda i: 1, lambda i: f't{i}', lambda i: 'inf', lambda i: '9' * 400, lambda i: 'a\0b',
           lambda i: f'{i}+1j', lambda i: i if i % 2 else 'a', lambda i: 1e308 * (-1) ** i]


@pytest.mark.filterwarnings('ignore::RuntimeWarning')
@pytest.mark.parametrize('value', NOTHING)
def test_columns_that_say_nothing(value, seen, tmp_path):
    """They are reported as such, and the others are measured."""
    (tmp_path / 'labels.csv').write_text(rows(lambda i: f'{value(i)},{i}', 'file,bad,good'))
    found = what_codes_know(seen, tmp_path / 'labels.csv')
    assert found.measured['bad'].startswith('nothing: ') and found.measured['good'] == 'mean error'


# Command lines

TRAIN = 'train --unlabelled with --reference without --out new --device cpu'
LINES = [
    'nobody', '--nobody', *(f'{TRAIN} {more}' for more in (
        '--steps -3', '--image-size -32', '--image-size 50', '--seed -1', '--fit Crop', '--method RbVAE',
        '--device cuda:99', '--method __class__', '--device meta', '--unlabelled file', '--unlabelled empty',
        '--unlabelled nowhere', '--reference file', '--reference with', '--out with', '--out with/new',
        '--out file/x')),
    'resume file', 'resume nowhere', 'resume empty', 'resume whole',
    *(f'encode {words}' for words in (
        'file with', 'nowhere with', 'empty with', 'whole nowhere', 'whole file', 'whole empty', 'whole with/000.png',
        'whole with --out empty', 'whole with --fit squash', 'whole with --device x')),
    *(f'transfer whole --style {words}' for words in (
        'with --content nowhere', 'file --content with', 'empty --content with', 'with --content with --fit squash',
        'with --content with --out new.jpg', 'with --content with --out file/x.png',
        'with --content with --device tpu')), 'transfer file --style with --content with',
    *(f'report {words}' for words in ('file', 'whole', 'empty', 'nowhere', 'run --labels empty', 'run --labels nowhere',
                                      'run --device x', 'run --out file/x.html')),
    *(f'export {words}' for words in ('file', 'empty', 'nowhere', 'whole --out file', 'whole --out file/x')),
    *(f'demo --out new {words}' for words in ('--data :', '--data turned_shapes:x', '--data x', '--device x',
                                              '--pretrained --data turned_shapes')),
    *(f'table --out new {words}' for words in ('--methods x', '--steps 0', '--preset x', '--methods vae:x=1',
                                               '--methods vae:dim_z=', '--device x', '--data x')),
    *(f'bench --out new {words}' for words in ('--parts z', '--repeats 0', '--steps -1', '--threads 0', '--device x')),
    'encode whole with --out file/x.csv',
    case(f'{TRAIN} --steps {"9" * 400}', id='steps-huge'),
    'train', 'resume', 'encode', 'transfer', 'report', 'export', 'demo x', f'{TRAIN} --nobody', 'resume run run',
    f'{TRAIN} --steps 1.5', f'{TRAIN} --seed x', 'table --seeds', 'table --seeds x', 'bench --repeats x',
]


@pytest.mark.parametrize('line', LINES)
def test_command_lines(line: str, finished, place, monkeypatch, command):
    monkeypatch.chdir(place)
    before = everything(place)
    said = command(*line.split())
    assert 'expected' in said and everything(place) == before and not (place / 'new').exists()


@pytest.mark.parametrize('words', [
    [*TRAIN.split(), '--method', 'two\nlines'], ['resume', ''], [*TRAIN.split(), '--unlabelled', ''],
    [*TRAIN.split(), '--unlabelled', 'with\0out'],
    ['resume', 'zero\0'], ['export', ''], ['export', 'zero\0'],
    ['encode', 'whole', 'zero\0'], ['report', 'run', '--labels', 'zero\0'],
], ids=lambda words: repr(words[-1]))
def test_words_that_no_file_can_have(words: list[str], finished, place, monkeypatch, command):
    monkeypatch.chdir(place)
    before = everything(place)
    assert 'expected' in command(*words) and everything(place) == before


def test_more_than_a_hundred():
    """Cases by hand, without what hypothesis draws."""
    every = (RAW, DESCRIPTIONS, ARGUMENTS, TENSORS, HUGE, STATE, MOMENTS, FIELDS, TEXTS, INDEX, HISTORY, LABELS,
             NOTHING, LINES)
    assert sum(map(len, every)) > 300
