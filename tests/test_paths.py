"""The scrubber along trainings from one start, in a browser: which tiles of the sheet are shown, and what is said."""
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
from conftest import serving
from PIL import Image
from rbvae_nb.digits import digit_styles

ASSETS = Path(__file__).parents[1] / 'nbs/assets'
PAGE = '''<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><title>paths</title>
<div class="paths" data-src="DATA"></div><script type="module" src="paths.js"></script>'''


@pytest.fixture(scope='module', params=['paths', 'start'])  # the first steps, and the whole way
def film(request) -> dict:
    return json.loads((ASSETS / f'{request.param}.json').read_text(encoding='utf-8'))


@pytest.fixture(scope='module')
def sheet(film) -> np.ndarray:
    """The tiles of the film."""
    return tiles(film)


def tiles(film: dict) -> np.ndarray:
    """Of its sheet: (rows, columns, size, size, 3) uint8."""
    picture, size = cv2.imread(str(ASSETS / film['sheet']))[..., ::-1], film['size']
    rows, columns = (side // size for side in picture.shape[:2])
    return picture.reshape(rows, size, columns, size, 3).swapaxes(1, 2)


@pytest.fixture(scope='module')
def address(tmp_path_factory) -> Iterator[str]:
    root = tmp_path_factory.mktemp('paths')
    for name in ('paths.js', 'paths.json', 'paths.png', 'start.json', 'start.png'): shutil.copy(ASSETS / name, root)
    for name, data in (('paths', 'paths.json'), ('start', 'start.json'), ('broken', 'nothing.json')):
        (root / f'{name}.html').write_text(PAGE.replace('DATA', data), encoding='utf-8')
    with serving(root) as url: yield url


@pytest.fixture
def page(browser, address, film) -> Iterator:
    page = browser.new_page()
    page.goto(address + film['sheet'].replace('png', 'html'))
    page.wait_for_selector('.paths input')
    yield page
    page.close()


def seen(page, row: int, tile: int, size: int) -> np.ndarray:
    """What a tile on the page shows, (size, size, 3): each pixel of the sheet is two dots wide."""
    shot = page.locator('.paths-row').nth(row).locator('.paths-strip div').nth(tile).screenshot()
    return np.asarray(Image.open(io.BytesIO(shot)).convert('RGB'))[::2, ::2][:size, :size]


def test_the_sheet_is_whole(film, sheet):
    rows = len(film['given']) + len(film['ways']) * film['digits']
    assert sheet.shape[:2] == (rows, max(film['digits'], len(film['steps'])))
    assert film['steps'] == sorted(film['steps']) and film['steps'][0] == 0
    assert all(len(way['says']) == len(film['steps']) for way in film['ways'])
    first = sheet[len(film['given']):, 0].reshape(len(film['ways']), -1)
    assert (first == first[0]).all()  # all ways begin with the same weights


def test_the_whole_way_shows_the_digits_that_were_swapped():
    """nbs/measure/start.py draws test digits 8 to 13 with the e of the six after them."""
    sheet = tiles(json.loads((ASSETS / 'start.json').read_text(encoding='utf-8')))
    images = digit_styles().splits()[1].images[8:20].permute(0, 2, 3, 1).numpy()
    for line, own in enumerate(np.split(images, 2)): assert (sheet[line, :6] == own).all()


def test_tiles_and_words_of_a_step(page, film, sheet):
    steps, given = film['steps'], len(film['given'])
    slider = page.locator('.paths input')
    slider.focus()
    for at in range(len(steps)):
        if at: page.keyboard.press('ArrowRight')
        assert slider.get_attribute('aria-valuetext') == f'step {steps[at]}'
        rows = page.locator('.paths-row')
        assert rows.locator('output').all_inner_texts()[given:] == [way['says'][at] for way in film['ways']]
        if at % 5: continue
        for w in range(len(film['ways'])):
            for digit in (0, film['digits'] - 1):
                right = sheet[given + w * film['digits'] + digit, at]
                assert np.abs(seen(page, given + w, digit, film['size']).astype(int) - right).max() <= 2
    for line in range(given): assert np.abs(seen(page, line, 1, film['size']).astype(int) - sheet[line, 1]).max() <= 2


def test_play_goes_to_the_end_and_stops(page, film):
    page.get_by_role('button', name='Play').click()
    page.wait_for_function(f"document.querySelector('.paths input').value == {len(film['steps']) - 1}")
    page.get_by_role('button', name='Play').wait_for()


def test_what_cannot_be_read_is_said(browser, address):
    page = browser.new_page()
    page.goto(f'{address}broken.html')
    page.wait_for_function("document.querySelector('.paths').textContent")
    assert page.locator('.paths').inner_text() == (
        'The pictures of the trainings could not be read (nothing.json: 404); reload the page.')
    page.close()
