"""What `rbvae export` writes gives the same as torch: in JavaScript, run by node, and in ONNX Runtime."""
import json
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from rbvae_nb import cli, export
from rbvae_nb.digits import digit_styles
from rbvae_nb.export import export_onnx, export_web, network_js, prior_codes, read_back, rounded, run_onnx
from rbvae_nb.files import save_tensors
from rbvae_nb.images import ImageSets, to_float
from rbvae_nb.methods import METHODS, Method, load
from rbvae_nb.networks import SIZES
from rbvae_nb.rbvae import RbVAE
from rbvae_nb.shapes import turned_shapes
from rbvae_nb.srbvae import SRbVAE
from rbvae_nb.training import train
from rbvae_nb.vae import VAE

EVERY = METHODS.all()
NODE = shutil.which('node')
needs_node = pytest.mark.skipif(not NODE, reason='node is not installed: the JavaScript is not run')
needs_onnx = pytest.mark.skipif(not all(map(find_spec, ('onnx', 'onnxscript', 'onnxruntime'))),
                                reason='the packages of the extra "onnx" are not installed')
START = '''
import {readFileSync} from 'node:fs';
import {encoders, generator, load, parse} from './network.mjs';
const read = name => new Uint8Array(readFileSync(name)).buffer;
const message = action => { try { action(); return 'no error'; } catch (error) { return error.message; } };
'''
# codes and images from standard input; all images drawn, then all codes inferred, as float32
RUN = '''
const [decoder, encoder] = process.argv.slice(1), given = JSON.parse(readFileSync(0));
const draw = generator(parse(read(decoder))), infer = encoders(parse(read(encoder)));
const write = numbers => process.stdout.write(new Uint8Array(Float32Array.from(numbers).buffer));
for (const codes of given.codes) write(draw(codes));
for (const image of given.images) { const {z, e = []} = infer(image); write([...z, ...e]); }
'''


def node(folder: Path, script: str, *args: str, given: object = None, network: str | None = None) -> bytes:
    """What a script prints in `folder`, with network.js beside it."""
    (folder / 'network.mjs').write_text(network or network_js(), encoding='utf-8')  # .mjs: a module for any node
    command = [NODE, '--input-type=module', '-e', START + script, *args]
    run = subprocess.run(command, cwd=folder, input=json.dumps(given).encode(), capture_output=True)
    if run.returncode: pytest.fail(run.stderr.decode(), pytrace=False)
    return run.stdout


def numbers(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.float32)


def differences(model: Method, folder: Path, images: torch.Tensor, n: int, network: str | None = None,
                files: tuple[str, ...] = ()) -> tuple[float, float]:
    """Largest difference of images and of codes between JavaScript and torch, float16's rounding apart."""
    half, codes = rounded(model), prior_codes(model, n)
    file = half.save(folder / 'model.safetensors', 'float16').name
    rows = zip(*(values.tolist() for values in codes.values()))
    given = dict(codes=[dict(zip(codes, row)) for row in rows], images=images.flatten(1).tolist())
    out = numbers(node(folder, RUN, *(files or (file, file)), given=given, network=network))
    drawn, means = half.decode(**codes).flatten(), torch.cat([*half.encode(images).values()], 1).flatten()
    assert len(out) == len(drawn) + len(means)
    return (out[:len(drawn)] - drawn).abs().max().item(), (out[len(drawn):] - means).abs().max().item()


def fresh(cls: type[Method], **arguments) -> Method:
    """An untrained model whose biases are not zero, so that they matter."""
    torch.manual_seed(0)
    model = cls(**arguments)
    for p in model.parameters():
        if p.ndim == 1: torch.nn.init.normal_(p, std=.2)
    return model.eval()


def noise(n: int, size: int) -> torch.Tensor:
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(1)) * 2 - 1


LAYOUTS = {
    'single code': lambda: fresh(VAE, dim_z=32, **SIZES['small']),
    'paper': lambda: fresh(RbVAE, dim_z=32, dim_e=32, **SIZES['paper']),
    'faces': lambda: fresh(RbVAE, dim_z=32, dim_e=32, **SIZES['faces']),
    'odd numbers': lambda: fresh(RbVAE, dim_z=7, dim_e=3, channels=(9, 7), generator_channels=(23, 19, 17, 13),
                                 n_convs=3, patch=4, latent_norm=True),
}


# JavaScript

@needs_node
@pytest.mark.parametrize('name', ['rbvae', 'srbvae'])
def test_javascript_is_torch_for_the_weights_of_the_package(name, tmp_path):
    model, images = load(name), to_float(digit_styles().test.images[:20])
    files = [p.name for p in export_web(model, tmp_path)[:2]]
    assert max(differences(model, tmp_path, images, 100, files=files)) < 1e-4


@needs_node
@pytest.mark.parametrize('layout', LAYOUTS)
def test_javascript_is_torch_for_every_layout(layout, tmp_path):
    model = LAYOUTS[layout]()
    assert max(differences(model, tmp_path, noise(2, model.image_size), 2)) < 1e-4


FAULTS = [
    ('1e-6', '1e-2'),
    ('sum * pixels / h.length', 'sum / h.length'),
    ('h[i] *= .2', 'h[i] *= .3'),
    ('.fill(bias[o])', '.fill(0)'),
    ('result.fill(bias[o]', 'result.fill(0'),
    ('w1 * padded[i + 1] + w2', 'w2 * padded[i + 1] + w1'),  # mirrored
    ('w3 * padded[i + side]', 'w1 * padded[i + side]'),
    ('+ y + 1) * side + x + 1', '+ y) * side + x + 1'),
    ('conv, h, size, i ? 1 : 2', 'conv, h, size, 1'),
    ("['z', 'e'].filter", "['e', 'z'].filter"),
    ('.map(Math.tanh)', ''),
    ('if (latent_norm) pixelNorm(h, 1);', ''),
    ('{...end, out: dim}', 'end'),
    ('y * patch + row', 'y * patch + column'),
    ('+ h[i + size + 1]) / 4', '+ h[i + size]) / 4'),
    ('exponent - 15', 'exponent - 14'),
    ('bits[i] >> 15 ? -size : size', 'size'),
]


@needs_node
@pytest.mark.parametrize('right, wrong', FAULTS, ids=[right for right, _ in FAULTS])
def test_faults_in_the_javascript_are_noticed(right, wrong, tmp_path):
    assert right in network_js()
    try: found = differences(LAYOUTS['odd numbers'](), tmp_path, noise(2, 32), 2, network_js().replace(right, wrong))
    except (AssertionError, pytest.fail.Exception): return  # another length, or an error
    assert not max(found) < 1e-4, f'{wrong!r} instead of {right!r} gives the same'


@needs_node
def test_javascript_reads_float32_too(tmp_path):
    model = LAYOUTS['odd numbers']()
    model.save(tmp_path / 'm.safetensors')
    codes = prior_codes(model, 1)
    given = dict(codes=[{c: v[0].tolist() for c, v in codes.items()}], images=[])
    out = numbers(node(tmp_path, RUN, 'm.safetensors', 'm.safetensors', given=given))
    assert (out.view(1, 3, 32, 32) - model.decode(**codes)).abs().max() < 1e-5


@needs_node
def test_every_float16_is_read(tmp_path):
    every = torch.arange(2 ** 16, dtype=torch.int32).to(torch.uint16).view(torch.float16)
    save_tensors(tmp_path / 'every', {'all': every}, {})
    script = "process.stdout.write(new Uint8Array(parse(read('every')).tensors.all.data.buffer));"
    assert torch.allclose(numbers(node(tmp_path, script)), every.float(), rtol=0, atol=0, equal_nan=True)


def one_sentence(text: str) -> bool:
    """One line, and nothing an engine says by itself (`undefined is not ...`)."""
    return text.startswith('expected ') and '\n' not in text and not re.search(r'undefined|NaN|\[object', text)


@needs_node
def test_truncated_files_are_noticed_in_both_languages(tmp_path):
    path = export_web(load('srbvae'), tmp_path).decoder
    data = path.read_bytes()
    header, tenths = 8 + int.from_bytes(data[:8], 'little'), [len(data) * k // 10 for k in range(1, 10)]
    ends = [0, 1, 7, 8, 9, 100, header - 1, header, header + 1, *tenths, len(data) - 2, len(data) - 1]
    assert len(set(ends)) == 20
    for end in ends: (tmp_path / f'{end}.safetensors').write_bytes(data[:end])
    script = '''for (const end of JSON.parse(readFileSync(0)))
        console.log(message(() => parse(read(`${end}.safetensors`))));'''
    said = node(tmp_path, script, given=ends).decode().splitlines()
    assert len(said) == 20 and all(one_sentence(line) and 'expected a whole weight file' in line for line in said), said
    for end in ends:
        with pytest.raises(ValueError, match='truncated'): load(tmp_path / f'{end}.safetensors')


@needs_node
def test_foreign_files_in_javascript(tmp_path):
    (tmp_path / 'text').write_text('<!doctype html><title>404: there is no such page here</title>')
    (tmp_path / 'list').write_bytes(len(b'[1, 2]').to_bytes(8, 'little') + b'[1, 2]')
    (tmp_path / 'null').write_bytes(len(b'null').to_bytes(8, 'little') + b'null')
    (tmp_path / 'broken').write_bytes(len(b'{"a": ').to_bytes(8, 'little') + b'{"a": ')
    from safetensors.torch import save_file
    save_file({'a': torch.zeros(2)}, tmp_path / 'bare')
    save_tensors(tmp_path / 'integers', {'a': torch.zeros(2, dtype=torch.int64)}, {})
    names = ['text', 'list', 'null', 'broken', 'bare', 'integers']
    script = 'for (const name of JSON.parse(readFileSync(0))) console.log(message(() => parse(read(name))));'
    said = node(tmp_path, script, given=names).decode().splitlines()
    assert all('expected a whole weight file of rbvae-nb' in line for line in said) and len(said) == len(names), said
    assert 'no rbvae_nb' in said[4] and 'neither F16 nor F32' in said[5]


@needs_node
def test_tensors_and_arguments_that_do_not_fit_in_javascript(tmp_path):
    model = load('rbvae')
    state, arguments = model.state_dict(), model.arguments
    wrong = {
        'other': (state, arguments | dict(generator_channels=[96, 64, 12, 12])),
        'larger': (state, arguments | dict(image_size=64)),
        'missing': ({k: v for k, v in state.items() if 'layers.7' not in k}, arguments),
        'nothing': (state, None),
        'text': (state, arguments | dict(channels='many')),
        'half': (state, arguments | dict(dim_z=47.5)),
    }
    for name, (tensors, given) in wrong.items():
        save_tensors(tmp_path / name, tensors, dict(method='rbvae', arguments=given))
    script = '''for (const name of JSON.parse(readFileSync(0))) for (const make of [generator, encoders])
        console.log(name, message(() => make(parse(read(name)))));'''
    said = node(tmp_path, script, given=[*wrong]).decode().splitlines()
    assert len(said) == 2 * len(wrong)
    for line in said:  # the encoders do not see generator_channels
        assert 'expected ' in line or line == 'other no error', line
    shapes = 'of shape 12×64×3×3 by the arguments of the model, got 32×64×3×3'
    assert f'expected generator.layers.7.0.weight {shapes}' in said[0]
    assert 'got none' in said[4]


@needs_node
def test_codes_and_images_of_another_length_in_javascript(tmp_path):
    web = export_web(load('rbvae'), tmp_path)
    script = '''
    const [decoder, encoder] = process.argv.slice(1).map(name => parse(read(name)));
    console.log(message(() => generator(decoder)({z: [1, 2], e: new Float32Array(8)})));
    console.log(message(() => generator(decoder)({z: new Float32Array(48)})));
    console.log(message(() => encoders(encoder)(new Float32Array(3))));'''
    said = node(tmp_path, script, web.decoder.name, web.encoder.name).decode().splitlines()
    assert said == ['expected 48 numbers as the code z, got 2', 'expected 8 numbers as the code e, got none',
                    'expected an image of 3·32·32 numbers, got 3']


@needs_node
def test_load_by_http(tmp_path):
    """A file that is there, and one that is not: the message names the address."""
    export_web(load('rbvae'), tmp_path)
    script = '''
    import {createServer} from 'node:http';
    const server = createServer((ask, answer) =>
        ask.url === '/none' ? answer.writeHead(404).end() : answer.end(readFileSync('.' + ask.url)));
    await new Promise(done => server.listen(0, '127.0.0.1', done));
    const url = `http://127.0.0.1:${server.address().port}`;
    console.log((await load(url + '/rbvae-decoder.safetensors')).about.method);
    await load(url + '/none').catch(error => console.log(error.message));
    server.closeAllConnections(); server.close();'''
    first, second = node(tmp_path, script).decode().splitlines()
    assert first == 'rbvae'
    assert re.fullmatch(r'expected a weight file at http://127\.0\.0\.1:\d+/none, got HTTP 404; .*', second)


# Python

@pytest.mark.parametrize('name', EVERY)
def test_every_method_is_exported_and_left_as_it_was(name, tmp_path):
    model = EVERY[name].preset('small')[0].train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    web = export_web(model, tmp_path)
    assert web.difference < 1e-6 and 0 < web.rounding < .02
    assert model.training and all(v.equal(before[k]) for k, v in model.state_dict().items())
    assert sorted(p.name for p in tmp_path.iterdir()) == [f'{name}-decoder.safetensors', f'{name}-encoder.safetensors']


def small(cls: type[Method]) -> Method:
    return fresh(cls, dim_z=6, dim_e=3, channels=(12, 8), generator_channels=(12, 10, 8, 8), patch=4)


def test_a_model_of_shapes_is_exported(tmp_path):
    """After a few steps on another experiment: both files together are the model."""
    data, model = turned_shapes(n=200), small(SRbVAE)
    train(model, data.sets, steps=4, batch_size=8, device='cpu', progress=False)
    web = export_web(model, tmp_path)
    assert web.difference < 1e-6
    images = data.test.images[:10]
    assert (load(*web[:2]).reconstruct(images) - rounded(model).reconstruct(images)).abs().max() < 1e-5


def test_a_class_of_your_own_is_exported_without_being_registered(tmp_path):
    """Its files are read back by its own class; `load`, which knows registered methods only, says so."""
    class Mine(RbVAE):
        name, title = 'mine', 'Mine'
    web = export_web(small(Mine), tmp_path)
    assert web.difference < 1e-6 and web.decoder.name == 'mine-decoder.safetensors'
    assert type(read_back(Mine, *web[:2])) is Mine
    with pytest.raises(ValueError, match="expected weights of one of the methods .*, got 'mine'"): load(*web[:2])


def test_a_decoder_alone_is_not_a_model(tmp_path):
    web = export_web(load('rbvae'), tmp_path)
    with pytest.raises(ValueError, match='are missing, among them encoder_'): load(web.decoder)


@pytest.mark.parametrize('layer', ['generator.layers.0.bias', 'encoder_z.tower.layers.1.0.bias', 'e_ref'])
def test_export_notices_files_that_differ(layer, tmp_path, monkeypatch):
    """A writer that loses something is found when the files are read back."""
    assert layer in load('rbvae').state_dict()
    def careless(path, tensors, about):
        return save_tensors(path, {k: v + 1 if k == layer else v for k, v in tensors.items()}, about)
    monkeypatch.setattr(export, 'save_tensors', careless)
    with pytest.raises(RuntimeError, match='expected weight files that give the same as the model'):
        export_web(load('rbvae'), tmp_path)


@pytest.mark.skipif(not torch.cuda.is_available(), reason='no GPU')
def test_a_model_on_a_gpu_stays_there(tmp_path):
    model = load('rbvae', device='cuda')
    assert export_web(model, tmp_path).difference < 1e-6
    assert next(model.parameters()).is_cuda


# ONNX

@needs_onnx
@pytest.mark.parametrize('which', ['rbvae', 'srbvae', 'single code', 'odd numbers'])
def test_onnx_is_torch(which, tmp_path, capfd):
    model = (LAYOUTS[which]() if which in LAYOUTS else load(which)).train()
    done = export_onnx(model, tmp_path)
    assert model.training and done.difference < 1e-4
    files = [path.name for path in sorted(tmp_path.iterdir())]  # no weights beside them
    assert files == [f'{model.name}-decoder.onnx', f'{model.name}-encoder.onnx']
    draw = torch.Generator().manual_seed(5)
    codes = {c: torch.randn(100, getattr(model, f'dim_{c}'), generator=draw) for c in model.codes}
    images, = run_onnx(done.decoder, codes)
    assert (images - model.decode(**codes)).abs().max() < 1e-4
    for n in (100, 1):  # any batch
        means = run_onnx(done.encoder, {'images': images[:n]})
        assert max((a - b).abs().max() for a, b in zip(means, model.encode(images[:n]).values(), strict=True)) < 1e-4
    assert capfd.readouterr() == ('', ''), 'the exporter is not quiet'


@needs_onnx
def test_onnx_that_differs_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(export, 'run_onnx', lambda data, inputs: [out + .01 for out in run_onnx(data, inputs)])
    with pytest.raises(RuntimeError, match='expected an ONNX decoder that give'): export_onnx(load('rbvae'), tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_the_packages_for_onnx(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, 'onnxscript', None)
    monkeypatch.setitem(sys.modules, 'onnx', sys)
    monkeypatch.setitem(sys.modules, 'onnxruntime', sys)
    assert cli.main(['export', 'rbvae', '--out', str(tmp_path / 'x'), '--onnx']) == 1
    said = 'expected onnx, onnxscript and onnxruntime, got no onnxscript; install them: pip install "rbvae-nb[onnx]"'
    assert capsys.readouterr().err == f'rbvae: {said}\n'
    assert not (tmp_path / 'x').exists()


# The command

def test_the_command_exports_files_checkpoints_and_the_weights_of_the_package(tmp_path, capsys):
    images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
    train(VAE(), ImageSets(images, images), steps=1, batch_size=2, out=tmp_path / 'run', device='cpu', progress=False)
    SRbVAE.preset('small')[0].save(tmp_path / 'mine.safetensors')
    checkpoint, mine = tmp_path / 'run' / 'checkpoint.safetensors', tmp_path / 'mine.safetensors'
    for weights, name in ((checkpoint, 'vae'), (mine, 'srbvae'), ('rbvae', 'rbvae')):
        out = tmp_path / name
        assert cli.main(['export', str(weights), '--out', str(out)]) == 0
        assert {p.name for p in out.iterdir()} == {
            'network.js', f'{name}-decoder.safetensors', f'{name}-encoder.safetensors'}
        assert (out / 'network.js').read_text(encoding='utf-8') == network_js()
        assert EVERY[name].title in capsys.readouterr().out


@pytest.mark.parametrize('weights, says', [
    ('none.safetensors', "expected a weight file or one of .*'srbvae'.*, found none at 'none.safetensors'"),
    ('svae', "found none at 'svae'"),
    ('.', "found none at '.'"),
    ('cut', 'truncated or something else'),
    ('text', 'truncated or something else'),
    ('unknown', "expected weights of one of the methods .*, got 'vea'"),
    ('list', 'expected weights of one of the methods .*, got None'),
    ('classifier', 'expected weights of one of the methods .*, got None'),
    ('arguments', 'they do not fit .*colour'),
    ('shapes', 'they do not fit .*and not'),
    ('empty', 'are missing'),
    ('huge', 'expected finite weights up to 65504'),
])
def test_export_command_says_one_sentence(weights, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model = load('rbvae')
    tensors, arguments = model.state_dict(), model.arguments
    model.save('whole')
    Path('cut').write_bytes(Path('whole').read_bytes()[:-1])
    Path('text').write_text('these are no weights')
    save_tensors('unknown', tensors, dict(method='vea', arguments=arguments))
    save_tensors('list', tensors, [1, 2])
    save_tensors('classifier', tensors, dict(classifier={}))
    save_tensors('arguments', tensors, dict(method='rbvae', arguments=arguments | dict(colour='blue')))
    save_tensors('shapes', tensors, dict(method='rbvae', arguments=arguments | dict(dim_e=4)))
    save_tensors('empty', {'e_ref': tensors['e_ref']}, dict(method='rbvae', arguments=arguments))
    save_tensors('huge', {k: v * 1e6 for k, v in tensors.items()}, dict(method='rbvae', arguments=arguments))
    assert cli.main(['export', weights, '--out', 'out']) == 1
    out, err = capsys.readouterr()
    assert re.search(says, err) and err.startswith('rbvae: expected') and len(err.splitlines()) == 1 and not out
    assert not Path('out').exists()


def test_a_folder_that_is_a_file(tmp_path, capsys):
    (tmp_path / 'file').write_text('not a folder')
    assert cli.main(['export', 'rbvae', '--out', str(tmp_path / 'file' / 'x')]) == 1
    assert 'expected a folder that can be written' in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ['file']
