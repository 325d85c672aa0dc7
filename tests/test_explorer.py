"""The explorer draws what torch draws: in a page without a kernel, and in a real JupyterLab; and it leaks nothing."""
import base64
import gc
import json
import os
import runpy
import secrets
import shutil
import socket
import subprocess
import sys
import time
import tracemalloc
import types
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import serving
from rbvae_nb import explorer as module
from rbvae_nb.attributes import AttributeClassifier, train_classifier
from rbvae_nb.digits import digit_styles
from rbvae_nb.experiments import Experiment
from rbvae_nb.explorer import START, Explorer, changes, explore, rgb_image, what_moves
from rbvae_nb.images import to_bytes
from rbvae_nb.live import KNOWN, write_live
from rbvae_nb.methods import Method, load
from rbvae_nb.probing import probe
from rbvae_nb.rbvae import RbVAE
from rbvae_nb.shapes import KINDS, turned_shapes
from rbvae_nb.srbvae import SRbVAE
from rbvae_nb.synthesis import NOISE
from rbvae_nb.training import train

NBS = Path(__file__).parents[1] / 'nbs'
TOY = NBS / 'assets'
PAGE = '''<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><title>live</title>
<div id="live"><img src="live/live.png" alt="both models"></div><script type="module" src="live/live.js"></script>
<div class="toy" data-src="toy.json"></div><script type="module" src="toy.js"></script>'''
PIXELS = '''canvas => [...canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data]
    .filter((_, i) => i % 4 < 3)'''
CELL = '''from rbvae_nb.digits import digit_styles
from rbvae_nb.explorer import explore
from rbvae_nb.methods import load
explorer = explore(load('rbvae'), load('srbvae'), digit_styles())
display(explorer, explorer)  # two views of one widget'''

# the same slider moved in both views at once, to 1 in the first and to -1 in the second
TWO_HANDS = '''async n => {
    const ranges = [...document.querySelectorAll('.rbvae')].map(view => view.querySelector('.rbvae-model input'));
    for (let i = 1; i <= n; i++) {
        ranges.forEach((range, view) => {
            range.value = (view ? -1 : 1) * i / n;
            range.dispatchEvent(new Event('input')); });
        await new Promise(done => setTimeout(done, 5)); } }'''


@pytest.fixture(scope='module')
def data() -> Experiment:
    return digit_styles()


@pytest.fixture(scope='module')
def twin(data) -> Explorer:
    """The explorer in Python that the page stands for."""
    return explore(load('rbvae'), load('srbvae'), data)


def page_around(root: Path) -> Path:
    """A page around what `write_live` made, with the toy below."""
    (root / 'index.html').write_text(PAGE, encoding='utf-8')
    for name in ('toy.js', 'toy.json'): shutil.copy(TOY / name, root)
    return root


@pytest.fixture(scope='module')
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp('www')
    write_live(root / 'live')
    return page_around(root)


@pytest.fixture(scope='module')
def address(folder: Path) -> Iterator[str]:
    with serving(folder) as url: yield url


def opened(browser, address: str) -> Iterator:
    """The page at an address; any error in it fails the test."""
    page, errors = browser.new_page(), []
    page.on('pageerror', lambda error: errors.append(error.message))
    page.on('console', lambda message: message.type == 'error' and errors.append(message.text))
    page.goto(address)
    page.wait_for_selector('.rbvae[data-frame]')
    yield page
    page.close()
    assert not errors, errors


@pytest.fixture
def page(browser, address) -> Iterator:
    """The live page of the digits."""
    yield from opened(browser, address)


def settle(page) -> dict:
    """Wait until what was asked for is drawn; returns the request."""
    page.wait_for_function("""document.querySelector('.rbvae').dataset.frame ==
        document.getElementById('live').live.get('request').id""")
    return page.evaluate("document.getElementById('live').live.get('request')")


def canvases(page) -> torch.Tensor:
    """The pictures of both models as they are on the page, (2, 3, 32, 32)."""
    rgb = [page.locator('.rbvae-model > canvas').nth(i).evaluate(PIXELS) for i in range(2)]
    return torch.tensor(rgb).view(2, 32, 32, 3).permute(0, 3, 1, 2)


def farthest(page, twin: Explorer, request: dict) -> int:  # a page, or one explorer on it
    """Largest difference between a pixel on the page and the one that torch decodes, in 255ths."""
    return int((canvases(page) - to_bytes(twin.pair.pictures(request)).int()).abs().max())


# In the page

def test_page_draws_what_torch_decodes(page, twin):
    assert farthest(page, twin, settle(page)) <= 1
    before = canvases(page)
    page.get_by_role('button', name='e = e_ref').click()
    assert farthest(page, twin, settle(page)) <= 1
    assert not torch.equal(before, canvases(page))


@pytest.mark.parametrize('model, code', [(m, c) for m in ('Rb-VAE', 'sRb-VAE') for c in 'ez'])
def test_slider_moves_with_the_keyboard(page, twin, model: str, code: str):
    """Only its own model's picture changes, and to what torch decodes."""
    settle(page)
    before, m = canvases(page), ['Rb-VAE', 'sRb-VAE'].index(model)
    page.locator(f'[aria-label^="{model}, {code} direction 1"]').focus()
    for _ in range(20): page.keyboard.press('ArrowRight')
    request = settle(page)
    assert request['moves'][m][code][0] == 2
    assert farthest(page, twin, request) <= 1
    changed = [not torch.equal(a, b) for a, b in zip(before, canvases(page))]
    assert changed == [m == 0, m == 1]


def test_swap_sample_and_reset(page, twin):
    page.get_by_role('group', name='Style: e of').get_by_label('digit 3').check(force=True)
    request = settle(page)
    assert (request['z_from'], request['e_from']) == (0, 3) and farthest(page, twin, request) <= 1
    page.get_by_role('button', name='Swap').click()
    request = settle(page)
    assert (request['z_from'], request['e_from']) == (3, 0) and farthest(page, twin, request) <= 1
    before = canvases(page)
    for code, other in ('ez', 'ze'):
        page.get_by_role('button', name=f'Sample {code}').click()
        request = settle(page)
        assert (request[code], request[other]) == ('drawn', 'image')
        assert not torch.equal(before, before := canvases(page))
        page.get_by_role('button', name='Reset').click()
        assert (settle(page)['z'], settle(page)['e']) == ('image', 'image')


def test_sample_is_that_of_its_seed(page, twin):
    """The same seed gives the same picture, another one another; on average as bright as a kernel's samples."""
    request = settle(page)
    draw = '''seed => {
        const page = document.getElementById('live').live, request = {...page.get('request'), e: 'drawn', seed};
        return [...page.sides[1].picture(request, request.moves[1])]; }'''
    one, same, other = (page.evaluate(draw, seed) for seed in (1, 1, 2))
    assert one == same != other
    mean = torch.tensor([page.evaluate(draw, seed) for seed in range(200)]).float().mean()
    drawn = [twin.pair.pictures(request | {'e': 'drawn', 'seed': seed})[1] for seed in range(200)]
    assert .8 < mean / to_bytes(torch.stack(drawn)).float().mean() < 1.25


@pytest.mark.parametrize('code', 'ez')
def test_sampled_codes_are_known_ones_moved(page, folder, code: str):
    """Every known code is drawn, comes nearer the mean by the factor of `imitate_codes`, and is moved by as much."""
    side = json.loads((folder / 'live' / 'live.json').read_text(encoding='utf-8'))['models'][1]
    read = lambda text: torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.float32)
    mean, basis = (read(side['directions'][code][key]) for key in ('mean', 'basis'))
    known, basis = read(side['codes'][code]).view(-1, len(mean)) - mean, basis.view(-1, len(mean))
    draw = """([code, n]) => Array.from({length: n}, (_, seed) =>
        [...document.getElementById('live').live.sides[1].code(code, {[code]: 'drawn', seed}, [])])"""
    away = torch.tensor(page.evaluate(draw, [code, 4000])) - mean
    whose = torch.cdist(away @ basis.pinverse(), known @ basis.pinverse()).argmin(1)
    counts, root = whose.bincount(minlength=len(known)), (1 + NOISE ** 2) ** .5
    assert len(known) == KNOWN and counts.min() > 30 and counts.max() < 100, 'about 62 times each'
    shrunk = (away * known[whose]).sum() / known[whose].square().sum()
    moved = (away - known[whose] / root) @ basis.pinverse()
    assert abs(shrunk * root - 1) < .02 and abs(moved.std() * root / NOISE - 1) < .02
    assert moved.mean(0).abs().max() < .03 and (moved.T.corrcoef() - torch.eye(len(mean))).abs().max() < .1


def test_reset_brings_sliders_back(page):
    range_ = page.locator('.rbvae-model input').first
    range_.focus()
    for _ in range(7): page.keyboard.press('ArrowRight')
    assert settle(page)['moves'][0]['e'][0] == .7
    assert range_.get_attribute('aria-valuetext') == '0.7 standard deviations'
    page.get_by_role('button', name='Reset').click()
    assert settle(page)['moves'][0]['e'][0] == 0 and range_.input_value() == '0'


def test_other_models_keep_what_was_chosen(page):
    """As when the training is moved through: new names and numbers, the same images and places of sliders."""
    page.get_by_role('group', name='Style: e of').get_by_label('digit 3').check(force=True)
    page.locator('.rbvae-model input').first.fill('1.5')
    page.evaluate('''() => {
        const page = document.getElementById('live').live, spec = structuredClone(page.get('spec'));
        spec.models[0].sliders.e[0] = 'nothing';
        spec.models[0].probes = [['style from e', '.123', '.192']];
        page.tell('spec', spec); }''')
    request = settle(page)
    assert request['e_from'] == 3 and request['moves'][0]['e'][0] == 1.5
    assert page.get_by_label('Rb-VAE, e direction 1, moves nothing').input_value() == '1.5'
    assert page.locator('.rbvae-model table').first.inner_text().split('\n')[1:] == ['style from e\t.123 (.192)']


def test_image_can_be_taken_back(page, twin):
    """After e_ref or a sample no image is marked, so that the one before can be chosen again."""
    style = page.get_by_role('group', name='Style: e of').get_by_label('digit 0')
    for button in ('e = e_ref', 'Sample e'):
        page.get_by_role('button', name=button).click()
        assert settle(page)['e'] != 'image' and not style.is_checked()
        style.check(force=True)
        request = settle(page)
        assert request['e'] == 'image' and farthest(page, twin, request) <= 1
    assert page.locator('.rbvae-status').inner_text() == 'z of digit 0, e of digit 0'


def test_images_are_chosen_with_the_keyboard(page, twin):
    page.get_by_role('group', name='Content: z of').get_by_label('digit 0').focus()
    for _ in range(3): page.keyboard.press('ArrowRight')
    request = settle(page)
    assert request['z_from'] == 3 and farthest(page, twin, request) <= 1


def draw_a_seven(page, colour: str = 'red'):
    page.get_by_text('Draw a digit').click()
    page.get_by_label('Colour').select_option(colour)
    box = page.locator('.rbvae-pad canvas').bounding_box()
    for i, (x, y) in enumerate([(.3, .25), (.7, .25), (.45, .8)]):
        page.mouse.move(box['x'] + x * box['width'], box['y'] + y * box['height'], steps=6)
        if i == 0: page.mouse.down()
    page.mouse.up()


def test_drawing_is_encoded_as_torch_encodes_it(page, twin):
    draw_a_seven(page)
    page.get_by_role('button', name='Use it').click()
    request = settle(page)
    rgb = page.evaluate("[...new Uint8Array(document.getElementById('live').live.get('drawing').buffer)]")
    assert request['z_from'] == request['e_from'] == -1
    images = rgb_image(bytes(rgb), 32)
    want = torch.cat([side.model.reconstruct(images) for side in twin.pair.sides])
    assert (canvases(page) - to_bytes(want).int()).abs().max() <= 1
    red, green, _ = images.float().mean((0, 2, 3))
    assert red > 4 * green
    assert .01 < (images.amax(1) > 30).float().mean() < .4  # an outline: neither nothing nor everything
    assert page.locator('.rbvae-problem').text_content() == ''


def test_drawing_gives_content_or_style_alone(page):
    draw_a_seven(page)
    for name, expected in (('Style only', (0, -1)), ('Content only', (-1, -1))):
        page.get_by_role('button', name=name).click()
        assert (settle(page)['z_from'], settle(page)['e_from']) == expected


def test_drawing_with_the_keyboard(page):
    page.get_by_text('Draw a digit').click()
    page.get_by_role('application').focus()
    for key in [' ', *['ArrowDown'] * 8, ' ']: page.keyboard.press(key)
    page.get_by_role('button', name='Content only').click()
    assert (settle(page)['z_from'], settle(page)['e_from']) == (-1, 0)


def test_a_dot_is_a_drawing(page):
    page.get_by_text('Draw a digit').click()
    page.locator('.rbvae-pad canvas').click()
    page.get_by_role('button', name='Content only').click()
    assert settle(page)['z_from'] == -1
    rgb = page.evaluate("[...new Uint8Array(document.getElementById('live').live.get('drawing').buffer)]")
    assert .002 < (rgb_image(bytes(rgb), 32).amax(1) > 30).float().mean() < .05  # an outline of a few pixels


def test_empty_pad_is_told(page):
    page.get_by_text('Draw a digit').click()
    before = settle(page)['id']
    page.get_by_role('button', name='Use it').click()
    assert page.get_by_role('alert').inner_text() == 'The pad is empty: draw a digit first.'
    assert settle(page)['id'] == before


def test_page_transfers_less_than_two_megabytes(browser, address):
    page, sizes = browser.new_page(), {}
    page.on('response', lambda r: sizes.update({r.url: len(r.body())}))
    page.goto(address)
    page.wait_for_selector('.rbvae[data-frame]')
    page.wait_for_load_state('networkidle')
    assert sum(sizes.values()) < 1e6 and not any('encoder' in url for url in sizes)
    draw_a_seven(page)
    page.get_by_role('button', name='Use it').click()
    settle(page)
    page.close()
    assert sum(sizes.values()) < 2e6 and sum('encoder' in url for url in sizes) == 2


def test_truncated_weights_leave_the_picture_and_a_sentence(browser, folder: Path, tmp_path: Path):
    shutil.copytree(folder, tmp_path / 'www')
    file = tmp_path / 'www' / 'live' / 'b' / 'srbvae-decoder.safetensors'
    file.write_bytes(file.read_bytes()[:100_000])
    with serving(tmp_path / 'www') as url:
        page = browser.new_page()
        page.goto(url)
        page.get_by_text('expected a whole weight file').wait_for()
        assert page.locator('#live img').evaluate('image => image.naturalWidth') > 100
        page.close()


def test_hundreds_of_moves_leak_nothing_in_the_page(page):
    settle(page)
    session = page.context.new_cdp_session(page)
    def heap() -> int:
        session.send('HeapProfiler.collectGarbage')
        return session.send('Runtime.getHeapUsage')['usedSize']
    move = runpy.run_path(str(NBS / 'measure/bench_explorer.py'))['MOVE']
    page.evaluate(move, 50)
    before = heap()
    page.evaluate(move, 300)
    assert heap() - before < 1e6


def test_toy_moves_with_the_keyboard(page):
    page.wait_for_selector('.toy circle')
    film, toy = json.loads((TOY / 'toy.json').read_text(encoding='utf-8')), page.locator('.toy')
    toy.get_by_role('slider').focus()
    for _ in range(5): page.keyboard.press('ArrowRight')
    assert f"step {film[5]['step']}, {film[5]['nats']} nats" in toy.inner_text()
    assert toy.locator('circle').count() == 161  # 80 samples of each side, and the place on the curve


# In Python

def ask(explorer: Explorer, number: int, **changes) -> bytes:
    """What the kernel answers to a request of the front-end."""
    moves = [{c: [0, 0, 0, 0] for c in 'ez'}] * 2
    explorer.canvas.request = {**START, 'moves': moves, 'id': number, **changes}
    return explorer.canvas.frames


def test_probe_numbers_labels_and_picture(twin, data):
    for side, shown in zip(twin.pair.sides, twin.canvas.spec['models']):
        table, want = probe(side.model, data), []
        for what, form in (('style', '{:.3f}'), ('digit', '{:.0%}')):
            column = {row: form.format(value) for row, value in table[what].items()}
            want += [(f'{what} from {c}', column[c], column['chance']) for c in 'ez']
        assert shown['probes'] == want
    digit = {image.numpy().tobytes(): label for image, label in zip(data.test.images, data.test.labels)}
    chosen = [digit[image.numpy().tobytes()] for image in twin.setting.images[:10]]
    assert twin.setting.labels == [f'digit {label}' for label in chosen] and chosen == list(range(10))
    assert twin._repr_mimebundle_()['image/png'].startswith('iVBOR')


def test_drawing_as_the_front_end_sends_it(twin, data):
    """A memoryview, in one message with the request."""
    image, request = data.test.images[50:51], {**START, 'z_from': -1, 'e_from': -1, 'moves': [dict(e=[0], z=[0])] * 2}
    drawing = memoryview(module.rgb_bytes(image))
    twin.canvas.set_state({'drawing': drawing, 'request': request | {'id': 77}})
    want = torch.cat([to_bytes(side.model.reconstruct(image)) for side in twin.pair.sides])
    assert twin.canvas.frames == (77).to_bytes(4, 'little') + module.rgb_bytes(want)
    twin.pair.drawing = None  # as for other models, after a step of the training: they encode it anew
    for side in twin.pair.sides: side.codes['e'][-1] = side.codes['z'][-1] = 0
    twin.canvas.request = request | {'id': 78}
    assert twin.canvas.frames[4:] == module.rgb_bytes(want)
    twin.canvas.drawing, twin.pair.drawing = b'', None


def test_every_request_is_answered(twin):
    """A request that cannot be met gets the pictures of before and a sentence."""
    good = ask(twin, 1, z_from=2)
    wrong = dict(z_from=10_000), dict(z_from=-1), dict(e='unheard of', e_from='x'), dict(moves=[])
    for number, bad in enumerate(wrong, 2):
        answer = ask(twin, number, **bad)
        assert (int.from_bytes(answer[:4], 'little'), answer[4:]) == (number, good[4:])
        assert twin.canvas.message
    ask(twin, 9)
    assert not twin.canvas.message


def test_hundreds_of_moves_leak_nothing_in_the_kernel(twin):
    resource = pytest.importorskip('resource', reason='no such measure on Windows')
    def moves(n: int):
        for i in range(n): ask(twin, 100 + i, moves=[{'e': [i % 7 - 3, 0, 0, 0], 'z': [0, 0, 0, 0]}] * 2)
        gc.collect()
    moves(100)
    tracemalloc.start()
    before, peak = tracemalloc.get_traced_memory()[0], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    moves(400)
    assert tracemalloc.get_traced_memory()[0] - before < 3e5  # bytes; what traitlets and tracemalloc keep
    tracemalloc.stop()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak  # kB, but bytes on a Mac
    assert grown < (2e7 if sys.platform == 'darwin' else 2e4)


def test_snapshot_that_does_not_fit_is_told(data, tmp_path):
    """The scrubber goes back, the pictures stay, and the reason is there to read."""
    for model, run in ((load('rbvae'), 'b'), (load('srbvae'), 'a')):  # the wrong way round
        model.save(tmp_path / run / 'model-000500.safetensors', 'float16')
    runs = tmp_path / 'a', tmp_path / 'b'
    explorer = explore(load('rbvae'), load('srbvae'), data.test.images[:50], runs=runs)
    before = explorer.shown
    explorer.scrubber.value = 500
    assert explorer.scrubber.value == 0 and torch.equal(explorer.shown, before)
    assert "expected weights of 'rbvae', got 'srbvae'" in explorer.canvas.message


def test_steps_of_the_training_are_kept_but_not_all(data, tmp_path):
    """Going back and forth studies no step twice; of many steps only the last ones take memory."""
    for step in range(1, 10):
        for name in ('rbvae', 'srbvae'): load(name).save(tmp_path / name / f'model-{step:06}.safetensors', 'float16')
    runs = tmp_path / 'rbvae', tmp_path / 'srbvae'
    explorer = explore(load('rbvae'), load('srbvae'), data.test.images[:50], n_sliders=1, runs=runs)
    for step in range(1, 10): explorer.scrubber.value = step
    last = explorer.pair
    explorer.scrubber.value = 8
    explorer.scrubber.value = 9
    assert explorer.pair is last and [*explorer.known] == [0, 3, 4, 5, 6, 7, 8, 9]


def test_colab_is_told_to_load_widgets(monkeypatch, data):
    calls = []
    output = types.SimpleNamespace(enable_custom_widget_manager=lambda: calls.append('on'))
    monkeypatch.setitem(sys.modules, 'google.colab', types.SimpleNamespace(output=output))
    explore(load('rbvae'), load('srbvae'), data.test.images[:20])
    assert calls == ['on']
    monkeypatch.delitem(sys.modules, 'google.colab')
    module._allow_on_colab()
    assert calls == ['on']


def test_models_stay_as_they_are(data):
    """On whatever device, in whatever mode; and the explorer follows the device."""
    model = load('srbvae').train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    explore(load('rbvae'), model, data.test.images[:20])
    assert model.training and all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


@pytest.mark.skipif(not torch.cuda.is_available(), reason='no GPU here')
def test_explorer_on_a_gpu_draws_the_same(data):
    here, there = (explore(load('rbvae', device=device), load('srbvae', device=device), data.test.images[:100])
                   for device in ('cpu', 'cuda'))
    assert (to_bytes(here.shown).int() - to_bytes(there.shown).int()).abs().max() <= 2


# Other data

@pytest.fixture(scope='module')
def shapes() -> Experiment:
    return turned_shapes(n=200)


@pytest.fixture(scope='module')
def classifier(shapes) -> AttributeClassifier:
    return train_classifier(shapes.fit, steps=20, batch_size=32)


@pytest.fixture(scope='module')
def pair(shapes) -> list[Method]:
    """Two small models after a few steps on shapes."""
    sizes = dict(dim_z=6, dim_e=3, channels=(12, 8), generator_channels=(12, 10, 8, 8), patch=4)
    models = [method(**sizes) for method in (RbVAE, SRbVAE)]
    for model in models: train(model, shapes.sets, steps=4, batch_size=8, device='cpu', progress=False)
    return models


class Reader:
    """A classifier that reads its answers from the red, green and blue of the first pixel."""
    def measure(self, images: torch.Tensor) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        red, green, blue = images[:, :, 0, 0].numpy().T
        return red.astype(int), {'turn': green, 'light': np.where(blue > 0, 'left', 'right')}


@pytest.mark.parametrize('change, moved', [
    ([0, 0, 0], ''), ([0, .19, 0], ''), ([0, .21, 0], 'turn'), ([0, -.21, 0], 'turn'), ([1, .3, 0], 'shape, turn'),
    ([0, .3, 1], 'light, turn'), ([1, 1.5, 0], 'turn, shape'),
])
def test_what_moves_in_the_words_of_the_experiment(change, moved):
    """Numbers count from a mean of .2, classes and the identity from half of the images; the most comes first."""
    low = torch.zeros(10, 3, 32, 32)
    assert what_moves(Reader(), 'shape', low, low + torch.tensor(change)[:, None, None]) == moved


def test_what_moves_of_the_factors_that_are_asked_for():
    """The identity is always among them; a judge may read more than an experiment has."""
    low = torch.zeros(10, 3, 32, 32)
    high = low + torch.tensor([1, 1.5, 1])[:, None, None]
    assert what_moves(Reader(), 'shape', low, high, ['light']) == 'light, shape'
    assert what_moves(Reader(), 'shape', low, high, []) == 'shape'


@pytest.mark.parametrize('n, moved', [(4, ''), (5, 'shape')])
def test_a_class_moves_from_half_of_the_images(n, moved):
    low, high = torch.zeros(2, 10, 3, 32, 32)
    high[:n, 0] = 1
    assert what_moves(Reader(), 'shape', low, high) == moved


def test_how_much_changes():
    """The difference of a number's means, whatever its sign; the share of images with another class or identity."""
    low, high = torch.zeros(2, 10, 3, 32, 32)
    high[:3, 0], high[:, 1], high[:4, 2] = 1, -.25, 1
    low[5:, 1], high[5:, 1] = .5, .25
    found = changes(Reader(), 'shape', low, high)
    assert found == pytest.approx({'shape': .3, 'turn': .25, 'light': .4})


def check_words(spec: dict, shapes: Experiment):
    """What the front-end says about shapes."""
    assert spec['labels'] == [f'shape {kind}' for kind in sorted(KINDS)]
    assert (spec['target'], spec['draw'], spec['size']) == ('appearance', 'shape', 32)
    for model in spec['models']:
        assert [what for what, *_ in model['probes']] == [
            f'{what} from {code}' for what in ('appearance', 'shape') for code in 'ez']
        names = {word for code in 'ez' for name in model['sliders'][code] for word in name.split(', ') if word}
        assert names <= {*shapes.fit.factors, 'shape'}


def test_explore_shapes(shapes, pair, classifier):
    explorer = explore(*pair, shapes, classifier=classifier, start=3)
    check_words(explorer.canvas.spec, shapes)
    ask(explorer, 1, z_from=2, e_from=5, moves=[{'e': [0] * 3, 'z': [0] * 4}] * 2)  # e has three dimensions
    want = pair[1].transfer(explorer.setting.images[5:6], explorer.setting.images[2:3])
    assert torch.allclose(explorer.shown[1], want[0], atol=1e-5) and not explorer.canvas.message
    written = [text.get_text() for text in explorer.frame().texts]
    assert {'Rb-VAE', 'sRb-VAE', 'image, reconstruction'} <= {*written}


def test_classifier_of_the_experiment_is_found_or_trained(shapes, pair, classifier, monkeypatch):
    asked = []
    monkeypatch.setattr(module, 'classifier_for', lambda data: asked.append(data) or classifier)
    explore(*pair, shapes)
    assert asked == [shapes]
    explore(*pair, shapes, classifier=classifier)
    explore(*pair, shapes.sets)
    assert asked == [shapes]


@pytest.mark.parametrize('drawn, word', [(True, 'image'), (False, '')])
def test_experiment_without_splits_is_images_alone(shapes, pair, drawn, word):
    spec = explore(*pair, Experiment(shapes.sets, drawn=drawn)).canvas.spec
    assert spec['labels'] == [f'image {i}' for i in range(1, 11)] and spec['draw'] == word
    for model in spec['models']:
        assert model['probes'] == [] and set(model['sliders']['e']) == {''}


def test_sets_of_torch_data_sets(shapes, pair):
    """As the sets of tensors with the same images."""
    class Images(torch.utils.data.Dataset):
        def __init__(self, images): self.images = images
        def __len__(self): return len(self.images)
        def __getitem__(self, i): return self.images[i], 'a label'
    sets = type(shapes.sets)(Images(shapes.sets.unlabelled), Images(shapes.sets.reference))
    ours, theirs = explore(*pair, shapes.sets), explore(*pair, sets)
    assert ours.canvas.images == theirs.canvas.images and torch.equal(ours.shown, theirs.shown)


def test_live_page_of_shapes(browser, shapes, pair, classifier, tmp_path):
    """Its words, its images, and a page that draws what torch decodes."""
    write_live(tmp_path / 'live', *pair, shapes, classifier=classifier)
    about = json.loads((tmp_path / 'live/live.json').read_text(encoding='utf-8'))
    check_words(about['spec'], shapes)
    twin = explore(*pair, shapes, classifier=classifier)
    assert base64.b64decode(about['images']) == module.rgb_bytes(twin.setting.images[:10])
    with serving(page_around(tmp_path)) as url:
        for page in opened(browser, url):
            page.get_by_role('group', name='Appearance: e of').get_by_label('shape star').check(force=True)
            request = settle(page)
            assert page.locator('.rbvae-status').inner_text() == 'z of shape arrow, e of shape star'
            assert farthest(page, twin, request) <= 1
            page.get_by_text('Draw a shape').click()
            page.locator('.rbvae-pad canvas').click()
            page.get_by_role('button', name='Appearance only').click()
            assert settle(page)['e_from'] == -1


def test_tabs_are_pages_of_their_own(browser, folder, shapes, pair, classifier, tmp_path):
    """Fetched when they are first shown, by a click or an arrow key; each draws what torch decodes."""
    shutil.copytree(folder, tmp_path / 'www')
    write_live(tmp_path / 'www/shapes', *pair, shapes, classifier=classifier)
    tabs = json.dumps({'Digits': './', 'Shapes': '../shapes/', 'Lost': '../lost/'})
    text = PAGE.replace('id="live"', f"id='live' data-tabs='{tabs}'")
    (tmp_path / 'www/index.html').write_text(text, encoding='utf-8')
    twin, fetched = explore(*pair, shapes, classifier=classifier), []
    with serving(tmp_path / 'www') as url:
        page = browser.new_page()
        page.on('request', lambda request: fetched.append(request.url))
        page.goto(url)
        page.wait_for_selector('.rbvae[data-frame]')
        assert settle(page)['z_from'] == 0 and not any('/shapes/' in address for address in fetched)
        page.get_by_role('tab', name='Digits').press('ArrowRight')
        panel = page.get_by_role('tabpanel', name='Shapes')
        panel.locator('.rbvae[data-frame]').wait_for()
        assert page.get_by_role('tab', selected=True).inner_text() == 'Shapes'
        assert not page.locator('#live-panel-0').is_visible()
        request = page.evaluate("document.getElementById('live-panel-1').live.get('request')")
        rgb = [panel.locator('.rbvae-model > canvas').nth(i).evaluate(PIXELS) for i in range(2)]
        drawn = torch.tensor(rgb).view(2, 32, 32, 3).permute(0, 3, 1, 2)
        assert (drawn - to_bytes(twin.pair.pictures(request)).int()).abs().max() <= 1
        page.get_by_role('tab', name='Lost').click()
        page.get_by_text('live.json could not be fetched (404)').wait_for()
        page.get_by_role('tab', name='Digits').click()
        assert page.locator('#live-panel-0').is_visible() and not panel.is_visible()
        assert len([address for address in fetched if address.endswith('live/live.json')]) == 1
        page.close()


# In JupyterLab

@pytest.fixture(scope='module')
def lab(tmp_path_factory) -> Iterator[str]:
    """The address of a JupyterLab with one notebook, explorer.ipynb."""
    places = f'{Path(sys.executable).parent}{os.pathsep}{os.environ["PATH"]}'
    if not shutil.which('jupyter-lab', path=places): pytest.skip('JupyterLab is not installed')
    import nbformat
    root = tmp_path_factory.mktemp('lab')
    kernel = {'kernelspec': {'name': 'python3', 'display_name': 'Python 3'}}
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)], metadata=kernel)
    nbformat.write(notebook, root / 'explorer.ipynb')
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        url = f'http://127.0.0.1:{s.getsockname()[1]}'
    token = secrets.token_hex()
    own = {f'JUPYTER_{name}_DIR': str(root / '.jupyter' / name) for name in ('CONFIG', 'RUNTIME', 'DATA')}
    env = {k: v for k, v in os.environ.items() if k != 'IN_TEST'} | own | {'IPYTHONDIR': str(root / '.ipython')}
    command = [sys.executable, '-m', 'jupyterlab', '--no-browser', '--allow-root', '--ip=127.0.0.1',
               f'--port={url.rsplit(":")[-1]}', f'--IdentityProvider.token={token}', f'--ServerApp.root_dir={root}',
               '--LabApp.news_url=None']
    with open(root / 'log.txt', 'w') as log:
        server = subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd=root)
    try:
        until = time.monotonic() + 120
        while True:
            if server.poll() is not None or time.monotonic() > until: pytest.fail((root / 'log.txt').read_text())
            try: urllib.request.urlopen(f'{url}/api/status?token={token}')
            except OSError: time.sleep(.3)
            else: break
        yield f'{url}/lab/tree/explorer.ipynb?token={token}'
    finally:
        server.terminate()
        server.wait(30)


def eventually(page, holds: Callable[[], bool], seconds: float = 60) -> bool:
    """Whether something comes to hold within a time that a busy machine may need."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if holds(): return True
        page.wait_for_timeout(100)
    return holds()


def test_in_jupyterlab(browser, lab: str, twin):
    """The same front-end with a kernel behind it, twice: pixels are torch's, and sliders move with the keyboard."""
    page = browser.new_page()
    page.set_default_timeout(90_000)
    page.goto(lab)
    page.get_by_text('| Idle').wait_for()
    page.locator('.jp-CodeCell .cm-content').first.click()
    page.keyboard.press('Shift+Enter')
    first, second = page.locator('.rbvae').nth(0), page.locator('.rbvae').nth(1)
    request = {**START, 'moves': [{c: [0.] * 4 for c in 'ez'} for _ in range(2)]}
    for view in (first, second):
        view.and_(page.locator('[data-frame]')).wait_for()
        assert eventually(page, lambda view=view: farthest(view, twin, request) <= 1)
    moved = {**request, 'moves': [{c: [0.] * 4 for c in 'ez'}, {'e': [0.] * 4, 'z': [-2., 0., 0., 0.]}]}
    second.get_by_label('sRb-VAE, z direction 1').focus()
    for _ in range(20): page.keyboard.press('ArrowLeft')
    assert eventually(page, lambda: farthest(second, twin, moved) <= 1)
    assert farthest(first, twin, request) <= 1, 'each view shows what its own sliders say'
    page.evaluate(TWO_HANDS, 40)
    for view, place in ((first, 1.), (second, -1.)):
        now = {**request, 'moves': [{'e': [place, 0., 0., 0.], 'z': [0.] * 4}, request['moves'][1]]}
        if view is second: now['moves'][1] = moved['moves'][1]
        assert eventually(page, lambda view=view, now=now: farthest(view, twin, now) <= 1), 'a request was lost'
    assert first.get_by_label('digit 0', exact=True).first.is_checked(), 'views share their radio buttons'
    before = canvases(first)
    first.get_by_text('Draw a digit').click()
    first.locator('.rbvae-pad canvas').click()  # a dot
    first.get_by_role('button', name='Use it').click()
    first.get_by_text('z of your drawing').wait_for()
    assert eventually(page, lambda: not torch.equal(before, canvases(first)))
    assert first.locator('.rbvae-problem').text_content() == ''
    page.close()
