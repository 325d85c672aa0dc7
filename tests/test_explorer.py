"""The explorer draws what torch draws: in a page without a kernel, and in a real JupyterLab; and it leaks nothing."""
import gc
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import tracemalloc
import types
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from conftest import serving
from rbvae_nb import explorer as module
from rbvae_nb.digits import digit_styles, to_bytes
from rbvae_nb.explorer import START, Explorer, explore, rgb_image
from rbvae_nb.live import write_live
from rbvae_nb.rbvae import RbVAE
from rbvae_nb.srbvae import SRbVAE

TOY = Path(__file__).parents[1] / 'nbs' / 'assets'
PAGE = '''<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><title>live</title>
<div id="live"><img src="live/live.png" alt="both models"></div><script type="module" src="live/live.js"></script>
<div class="toy" data-src="toy.json"></div><script type="module" src="toy.js"></script>'''
PIXELS = '''canvas => [...canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data].filter((_, i) => i % 4 < 3)'''
CELL = '''from rbvae_nb.digits import digit_styles
from rbvae_nb.explorer import explore
from rbvae_nb.rbvae import RbVAE
from rbvae_nb.srbvae import SRbVAE
explorer = explore(RbVAE.pretrained(), SRbVAE.pretrained(), digit_styles())
display(explorer, explorer)  # two views of one widget'''


@pytest.fixture(scope='module')
def data():
    return digit_styles()


@pytest.fixture(scope='module')
def twin(data) -> Explorer:
    """The explorer in Python that the page stands for."""
    return explore(RbVAE.pretrained(), SRbVAE.pretrained(), data)


@pytest.fixture(scope='module')
def folder(tmp_path_factory) -> Path:
    """A page as `write_live` describes it, with the toy below."""
    root = tmp_path_factory.mktemp('www')
    write_live(root / 'live')
    (root / 'index.html').write_text(PAGE, encoding='utf-8')
    for name in ('toy.js', 'toy.json'): shutil.copy(TOY / name, root)
    return root


@pytest.fixture(scope='module')
def address(folder: Path) -> Iterator[str]:
    with serving(folder) as url: yield url


@pytest.fixture
def page(browser, address):
    """The live page, opened; any error in it fails the test."""
    page, errors = browser.new_page(), []
    page.on('pageerror', lambda error: errors.append(error.message))
    page.on('console', lambda message: message.type == 'error' and errors.append(message.text))
    page.goto(address)
    page.wait_for_selector('.rbvae[data-frame]')
    yield page
    page.close()
    assert not errors, errors


def settle(page) -> dict:
    """Wait until what was asked for is drawn; returns the request."""
    page.wait_for_function("document.querySelector('.rbvae').dataset.frame == document.getElementById('live').live.get('request').id")
    return page.evaluate("document.getElementById('live').live.get('request')")


def canvases(page) -> torch.Tensor:
    """The pictures of both models as they are on the page, (2, 3, 32, 32)."""
    rgb = [page.locator('.rbvae-model > canvas').nth(i).evaluate(PIXELS) for i in range(2)]
    return torch.tensor(rgb).view(2, 32, 32, 3).permute(0, 3, 1, 2)


def farthest(page, twin: Explorer, request: dict) -> int:  # a page, or one explorer on it
    """Largest difference between a pixel on the page and the one that torch decodes, in 255ths."""
    return int((canvases(page) - to_bytes(twin.pictures(request)).int()).abs().max())


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
    draw = '''seed => { const page = document.getElementById('live').live, request = {...page.get('request'), e: 'drawn', seed};
        return [...page.sides[1].picture(request, request.moves[1])]; }'''
    one, same, other = (page.evaluate(draw, seed) for seed in (1, 1, 2))
    assert one == same != other
    mean = torch.tensor([page.evaluate(draw, seed) for seed in range(200)]).float().mean()
    want = torch.stack([to_bytes(twin.pictures(request | {'e': 'drawn', 'seed': seed})[1]) for seed in range(200)]).float().mean()
    assert .8 < mean / want < 1.25


def test_reset_brings_sliders_back(page):
    range_ = page.locator('.rbvae-model input').first
    range_.focus()
    for _ in range(7): page.keyboard.press('ArrowRight')
    assert settle(page)['moves'][0]['e'][0] == .7 and range_.get_attribute('aria-valuetext') == '0.7 standard deviations'
    page.get_by_role('button', name='Reset').click()
    assert settle(page)['moves'][0]['e'][0] == 0 and range_.input_value() == '0'


def test_other_models_keep_what_was_chosen(page):
    """As when the training is moved through: new names, the same images and places of sliders; probe numbers as said."""
    page.get_by_role('group', name='Style: e of').get_by_label('digit 3').check(force=True)
    page.locator('.rbvae-model input').first.fill('1.5')
    page.evaluate('''() => { const page = document.getElementById('live').live, spec = structuredClone(page.get('spec'));
        spec.models[0].sliders.e[0] = 'nothing'; spec.models[0].probes = [['style from e', '.123', '.192']]; page.tell('spec', spec); }''')
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
    want = torch.cat([side.model.reconstruct(images) for side in twin.sides])
    assert (canvases(page) - to_bytes(want).int()).abs().max() <= 1
    red, green, _ = images.float().mean((0, 2, 3))
    assert red > 4 * green and .01 < (images.amax(1) > 30).float().mean() < .4  # an outline: neither nothing nor everything
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


def test_empty_pad_is_told(page):
    page.get_by_text('Draw a digit').click()
    before = settle(page)['id']
    page.get_by_role('button', name='Use it').click()
    assert 'empty' in page.get_by_role('alert').inner_text()
    assert settle(page)['id'] == before


def test_page_transfers_less_than_two_megabytes(browser, address):
    page, sizes = browser.new_page(), {}
    page.on('response', lambda r: sizes.update({r.url: len(r.body())}))
    page.goto(address)
    page.wait_for_selector('.rbvae[data-frame]')
    page.wait_for_load_state('networkidle')
    assert sum(sizes.values()) < 9e5 and not any('encoder' in url for url in sizes)
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


def test_thousand_moves_leak_nothing_in_the_page(page):
    settle(page)
    session = page.context.new_cdp_session(page)
    def heap() -> int:
        session.send('HeapProfiler.collectGarbage')
        return session.send('Runtime.getHeapUsage')['usedSize']
    move = '''async n => { const range = document.querySelector('.rbvae-model input'), root = document.querySelector('.rbvae');
        for (let i = 0; i < n; i++) { const before = root.dataset.frame; range.value = i % 2; range.dispatchEvent(new Event('input'));
            while (root.dataset.frame === before) await new Promise(requestAnimationFrame); } }'''
    page.evaluate(move, 100)
    before = heap()
    page.evaluate(move, 1000)
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
    moves = [{c: [0, 0, 0, 0] for c in 'ez'} for _ in explorer.sides]
    explorer.canvas.request = {**START, 'moves': moves, 'id': number, **changes}
    return explorer.canvas.frames


def test_probe_numbers_labels_and_picture(twin, data):
    from rbvae_nb.probing import probe
    for side, shown in zip(twin.sides, twin.canvas.spec['models']):
        table = probe(side.model, data)
        assert shown['probes'] == [(f'style from {c}', f'{table["style"][c]:.3f}', f'{table["style"]["floor"]:.3f}') for c in 'ez'] + [
            (f'digit from {c}', f'{table["digit"][c]:.0%}', f'{table["digit"]["floor"]:.0%}') for c in 'ez']
    digit = {images.numpy().tobytes(): d for images, d in zip(data.test.images, data.test.digit)}
    assert twin.labels == [f'digit {digit[images.numpy().tobytes()]}' for images in twin.pool[:10]]
    assert twin._repr_mimebundle_()['image/png'].startswith('iVBOR')


def test_drawing_as_the_front_end_sends_it(twin, data):
    """A memoryview, in one message with the request."""
    moves = [{c: [0] * 4 for c in 'ez'}] * 2
    image = data.test.images[50:51]
    twin.canvas.set_state({'drawing': memoryview(module.rgb_bytes(image)), 'request': {**START, 'z_from': -1, 'e_from': -1, 'moves': moves, 'id': 77}})
    want = torch.cat([to_bytes(side.model.reconstruct(image)) for side in twin.sides])
    assert twin.canvas.frames == (77).to_bytes(4, 'little') + module.rgb_bytes(want)
    twin.show(*twin.known[0])  # as after a step of the training: the drawing is encoded again
    twin.canvas.request = {**START, 'z_from': -1, 'e_from': -1, 'moves': moves, 'id': 78}
    assert twin.canvas.frames[4:] == module.rgb_bytes(want)
    twin.canvas.drawing = b''
    twin.show(*twin.known[0])


def test_every_request_is_answered(twin):
    """A request that cannot be met gets the pictures of before and a sentence."""
    good = ask(twin, 1, z_from=2)
    for number, bad in enumerate([dict(z_from=10_000), dict(z_from=-1), dict(e='unheard of', e_from='x'), dict(moves=[])], 2):
        answer = ask(twin, number, **bad)
        assert (int.from_bytes(answer[:4], 'little'), answer[4:]) == (number, good[4:])
        assert twin.canvas.message
    ask(twin, 9)
    assert not twin.canvas.message


def test_thousand_moves_leak_nothing_in_the_kernel(twin):
    resource = pytest.importorskip('resource', reason='no such measure on Windows')
    def moves(n: int):
        for i in range(n): ask(twin, 100 + i, moves=[{'e': [i % 7 - 3, 0, 0, 0], 'z': [0, 0, 0, 0]}] * 2)
        gc.collect()
    moves(100)
    tracemalloc.start()
    before, peak = tracemalloc.get_traced_memory()[0], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    moves(1000)
    assert tracemalloc.get_traced_memory()[0] - before < 3e5  # bytes; what traitlets and tracemalloc keep
    tracemalloc.stop()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak  # kB, but bytes on a Mac
    assert grown < (2e7 if sys.platform == 'darwin' else 2e4)


def test_snapshot_that_does_not_fit_is_told(data, tmp_path):
    """The scrubber goes back, the pictures stay, and the reason is there to read."""
    for model, run in ((RbVAE.pretrained(), 'b'), (SRbVAE.pretrained(), 'a')):  # the wrong way round
        model.save(tmp_path / run / 'model-000500.safetensors', half=True)
    explorer = explore(RbVAE.pretrained(), SRbVAE.pretrained(), data.test.images[:50], runs=(tmp_path / 'a', tmp_path / 'b'))
    before = explorer.shown
    explorer.scrubber.value = 500
    assert explorer.scrubber.value == 0 and torch.equal(explorer.shown, before)
    assert "expected weights of 'rbvae', got 'srbvae'" in explorer.canvas.message


def test_colab_is_told_to_load_widgets(monkeypatch, data):
    calls = []
    output = types.SimpleNamespace(enable_custom_widget_manager=lambda: calls.append('on'))
    monkeypatch.setitem(sys.modules, 'google.colab', types.SimpleNamespace(output=output))
    explore(RbVAE.pretrained(), SRbVAE.pretrained(), data.test.images[:20])
    assert calls == ['on']
    monkeypatch.delitem(sys.modules, 'google.colab')
    module._allow_on_colab()
    assert calls == ['on']


def test_models_stay_as_they_are(data):
    """On whatever device, in whatever mode; and the explorer follows the device."""
    model = SRbVAE.pretrained().train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    explore(RbVAE.pretrained(), model, data.test.images[:20])
    assert model.training and all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


@pytest.mark.skipif(not torch.cuda.is_available(), reason='no GPU here')
def test_explorer_on_a_gpu_draws_the_same(data):
    here, there = (explore(RbVAE.pretrained().to(d), SRbVAE.pretrained().to(d), data.test.images[:100]) for d in ('cpu', 'cuda'))
    assert (to_bytes(here.shown).int() - to_bytes(there.shown).int()).abs().max() <= 2


# In JupyterLab

@pytest.fixture(scope='module')
def lab(tmp_path_factory) -> Iterator[str]:
    """The address of a JupyterLab with one notebook, explorer.ipynb."""
    if not shutil.which('jupyter-lab', path=f'{Path(sys.executable).parent}{os.pathsep}{os.environ["PATH"]}'): pytest.skip('JupyterLab is not installed')
    import nbformat
    root = tmp_path_factory.mktemp('lab')
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)], metadata={'kernelspec': {'name': 'python3', 'display_name': 'Python 3'}})
    nbformat.write(notebook, root / 'explorer.ipynb')
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        url = f'http://127.0.0.1:{s.getsockname()[1]}'
    token = secrets.token_hex()
    own = {f'JUPYTER_{name}_DIR': str(root / '.jupyter' / name) for name in ('CONFIG', 'RUNTIME', 'DATA')} | {'IPYTHONDIR': str(root / '.ipython')}
    command = [sys.executable, '-m', 'jupyterlab', '--no-browser', '--allow-root', '--ip=127.0.0.1', f'--port={url.rsplit(":")[-1]}',
               f'--IdentityProvider.token={token}', f'--ServerApp.root_dir={root}', '--LabApp.news_url=None']
    env = {k: v for k, v in os.environ.items() if k != 'IN_TEST'} | own
    with open(root / 'log.txt', 'w') as log: server = subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd=root)
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


def test_in_jupyterlab(browser, lab: str, twin):
    """The same front-end with a kernel behind it, twice: pixels are torch's, and sliders move with the keyboard."""
    page = browser.new_page()
    page.set_default_timeout(90_000)
    page.goto(lab)
    page.get_by_text('| Idle').wait_for()
    page.locator('.jp-CodeCell .cm-content').first.click()
    page.keyboard.press('Shift+Enter')
    first, second = page.locator('.rbvae').nth(0), page.locator('.rbvae').nth(1)
    for view in (first, second): view.and_(page.locator('[data-frame]')).wait_for()
    request = {**START, 'moves': [{c: [0.] * 4 for c in 'ez'} for _ in range(2)]}
    assert farthest(page, twin, request) <= 1
    moved = {**request, 'moves': [{c: [0.] * 4 for c in 'ez'}, {'e': [0.] * 4, 'z': [-2., 0., 0., 0.]}]}
    second.get_by_label('sRb-VAE, z direction 1').focus()
    for _ in range(20): page.keyboard.press('ArrowLeft')
    for _ in range(50):  # the last answer may be on its way
        if farthest(second, twin, moved) <= 1: break
        page.wait_for_timeout(100)
    assert farthest(second, twin, moved) <= 1 and farthest(first, twin, request) <= 1, 'each view shows what its own sliders say'
    assert first.get_by_label('digit 0', exact=True).first.is_checked(), 'views share their radio buttons'
    before = canvases(first)
    first.get_by_text('Draw a digit').click()
    first.locator('.rbvae-pad canvas').click()  # a dot
    first.get_by_role('button', name='Use it').click()
    first.get_by_text('z of your drawing').wait_for()
    for _ in range(100):
        if not torch.equal(before, canvases(first)): break
        page.wait_for_timeout(100)
    assert not torch.equal(before, canvases(first)) and first.locator('.rbvae-problem').text_content() == ''
    page.close()
