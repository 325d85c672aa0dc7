"""The report: one page, complete in itself, whose warnings are there when they should be and not otherwise."""
import base64
import json
import re
import shutil
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
import torch
from rbvae_nb.cli import main
from rbvae_nb.methods import load
from rbvae_nb.report import (labels_of, left_unexplained, more_often, numbers_of, open_run, report, sets_told_apart,
                             simple_numbers, warnings_of, what_codes_know)
from rbvae_nb.runs import RunSettings, begin, go_on


def write(folder: Path, n: int = 130, gain: float = 1., suffix: str = 'png', blur: float = 3.) -> Path:
    """Images of soft colours, drawn anew for each folder."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(sum(folder.name.encode()))
    for i in range(n):
        image = cv2.GaussianBlur(rng.uniform(0, 255, (32, 32, 3)), (0, 0), blur) * rng.uniform(.5, 1)
        cv2.imwrite(str(folder / f'{i:03}.{suffix}'), image * gain)
    return folder


def finished(run: Path, unlabelled: Path, reference: Path) -> Path:
    """A run of two steps."""
    begin(run, RunSettings(str(unlabelled), str(reference), method='rbvae', steps=2))
    go_on(run, 'cpu', progress=False)
    return run


@pytest.fixture(scope='module')
def run(tmp_path_factory) -> Path:
    """Two sets of one kind, in folders whose names a page must not take for its own text."""
    root = tmp_path_factory.mktemp('own')
    unlabelled = write(root / '<script>alert(1)<' / 'b>')
    (unlabelled / '<img src=x>.txt').write_text('no image')
    return finished(root / 'run', unlabelled, write(root / 'plain'))


def test_the_page_is_complete_in_itself(run, tmp_path):
    """No foreign address, nothing of a name read as HTML, an alternative text for each picture."""
    names = open_run(run, 'cpu').sets['unlabelled'].names
    known = pd.DataFrame({'file': names, '<side>': ['left', 'right'] * 65, 'age': range(130)})
    known.to_csv(tmp_path / 'labels.csv', index=False)
    paths = ['--out', str(tmp_path / 'page.html'), '--labels', str(tmp_path / 'labels.csv')]
    assert main(['report', str(run), *paths, '--device', 'cpu']) == 0
    page = (tmp_path / 'page.html').read_text(encoding='utf-8')
    assert '<script>alert' not in page and '<img src=x>' not in page and '&lt;script&gt;alert(1)' in page
    assert not re.search(r'https?:|//\w+\.', page)
    assert {source[:22] for source in re.findall(r'src="([^"]*)"', page)} == {'data:image/png;base64,'}
    assert len(re.findall('<img src', page)) == len(re.findall(r'alt="[^"]+"', page)) == 5
    assert '<td>mean error</td>' in page and '<side>' not in page and '&lt;side&gt;' in page
    assert '130 unlabelled images' in page and 'Skipped 1:' in page and 'not an image' in page


def test_the_explorer_of_the_page_runs_the_model(browser, run, tmp_path):
    """Opened as a file, without a server: the picture of a swap is the model's, and nothing is asked for elsewhere."""
    shutil.copytree(run, tmp_path / 'run')
    load('srbvae').save(tmp_path / 'run' / 'model.safetensors')
    report(tmp_path / 'run', tmp_path / 'page.html', device='cpu')
    page, wrong = browser.new_page(), []
    page.on('pageerror', lambda error: wrong.append(str(error)))
    page.on('request', lambda r: None if r.url.startswith(('file:', 'data:')) else wrong.append(r.url))
    page.goto(f'file://{tmp_path}/page.html')
    page.wait_for_function("document.getElementById('live').live?.pictures")
    drawn = page.evaluate("""() => {
      const live = document.getElementById('live').live;
      return [...live.sides[0].picture({...live.get('request'), z_from: 7, e_from: 1}, {z: [], e: []})]; }""")
    seen = open_run(tmp_path / 'run', 'cpu')
    expected = seen.model.transfer(seen.some['unlabelled'][1:2], seen.some['reference'][1:2])[0]
    expected = ((expected + 1) * 127.5).round().clamp(0, 255).permute(1, 2, 0).flatten()
    assert not wrong and np.abs(np.array(drawn) - expected.numpy()).max() <= 2
    page.close()


def warned(seen) -> list[str]:
    return list(warnings_of(seen, numbers_of(seen)))


@pytest.mark.parametrize('share, n, warns', [
    (.56, 500, False), (.58, 500, True), (.54, 1000, False), (.56, 1000, True), (.62, 100, False), (.7, 100, True),
    (None, 40, False)])
def test_a_z_that_knows_the_set(run, share: float | None, n: int, warns: bool):
    """Said if it is more than chance would give, and more than little; or that there are too few images to ask."""
    seen = open_run(run, 'cpu')
    seen = seen._replace(some={name: images[:1].expand(n, -1, -1, -1) for name, images in seen.some.items()})
    numbers = {'use of e': 1., 'use of z': 1., 'left unexplained': .5}
    if share is not None: numbers['sets told apart by z'] = share
    said = list(warnings_of(seen, numbers))
    assert any(one.startswith('z alone tells') for one in said) == warns
    assert any('too few to ask whether z' in one for one in said) == (share is None)


def test_warnings_of_sets_of_one_kind(run):
    """After two steps nothing is rebuilt, and that is said; no difference of the sets is."""
    said = ' '.join(warned(open_run(run, 'cpu')))
    assert 'hardly better than one mean image' in said and '1 files of the unlabelled folder' in said
    assert 'told apart' not in said and 'different kinds' not in said


@pytest.mark.parametrize('change, word', [
    (dict(gain=.3), 'by brightness alone'), (dict(blur=1.5), 'by sharpness alone'),
    (dict(suffix='jpg'), 'files of different kinds')])
def test_warnings_of_sets_that_differ(change: dict, word: str, tmp_path):
    odd = finished(tmp_path / 'run', write(tmp_path / 'with'), write(tmp_path / 'without', **change))
    assert word in ' '.join(warned(open_run(odd, 'cpu')))


@pytest.mark.parametrize('code', ['e', 'z'])
def test_a_code_that_is_ignored(run, code: str):
    """Its encoder says the same of every image; the other one is not accused."""
    seen = open_run(run, 'cpu')._replace(model=load('rbvae'))
    with torch.no_grad():
        for parameter in getattr(seen.model, f'encoder_{code}').parameters(): parameter.zero_()
    ignored = [warning for warning in warned(seen) if 'ignores' in warning]
    assert len(ignored) == 1 and f'ignores {code} ' in ignored[0]


def test_what_is_left_unexplained():
    """1 for a model that always draws the mean image, 0 for one that draws what it was given."""
    images = torch.randint(0, 256, (50, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    class Exact:
        def reconstruct(self, x): return x / 127.5 - 1
    class Mean:
        def reconstruct(self, x): return (x / 127.5 - 1).mean(0).expand(len(x), -1, -1, -1)
    assert left_unexplained(Exact(), images) == pytest.approx(0, abs=1e-6)
    assert left_unexplained(Mean(), images) == pytest.approx(1, abs=1e-6)


def test_how_often_more():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 9, 40).astype(float), rng.integers(3, 12, 50).astype(float)
    pairs = np.mean([(x > y) + .5 * (x == y) for x in a for y in b])
    assert more_often(a, b) == pytest.approx(pairs) and more_often(b, a) == pytest.approx(1 - pairs)


def test_the_simple_numbers_of_known_images():
    flat = torch.full((1, 3, 32, 32), 51, dtype=torch.uint8)
    red = torch.stack([flat[0, 0], *torch.zeros(2, 32, 32, dtype=torch.uint8)])[None]
    halves = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    halves[..., 16:] = 255
    found = simple_numbers(torch.cat([flat, red, halves]))
    assert found['brightness'] == pytest.approx([.2, .2 / 3, .5])
    assert found['contrast'] == pytest.approx([0, 0, .5], abs=1e-6)
    assert found['colour'] == pytest.approx([0, .2, 0])
    assert found['sharpness'] == pytest.approx([0, 0, 1 / 31 / .5], abs=1e-3)


class Knows:
    """e says the number, z the kind, and nothing of the other."""
    def __init__(self, seen, numbers: np.ndarray, kinds: np.ndarray):
        self.known = {image.numpy().tobytes(): (number, kind) for image, number, kind in
                      zip((seen.sets['unlabelled'][i] for i in range(len(numbers))), numbers, kinds)}

    def encode(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        number, kind = zip(*(self.known[image.numpy().tobytes()] for image in images))
        z = 10 * torch.tensor([one == 'a' for one in kind]).float()
        draw = torch.Generator().manual_seed(0)
        noise = torch.randn(len(images), 40, generator=draw)  # that a line could learn by heart
        return {'e': torch.tensor(number).float()[:, None], 'z': torch.cat([z[:, None], noise], 1)}


def test_labels_are_read_from_the_code_that_knows_them(run, tmp_path):
    """By the names of the files, in whatever order; what is constant, or of other files, is left out."""
    seen, rng = open_run(run, 'cpu'), np.random.default_rng(0)
    numbers, kinds = rng.uniform(0, 1, 130), rng.choice(['a', 'b'], 130)
    table = pd.DataFrame(dict(file=seen.sets['unlabelled'].names, number=numbers, kind=kinds, same='x'))
    more = pd.DataFrame(dict(file=['of another folder.png'], number=[9.], kind=['c'], same='x'))
    pd.concat([table, more]).sample(frac=1, random_state=1).to_csv(tmp_path / 'labels.csv', index=False)
    found = what_codes_know(seen._replace(model=Knows(seen, numbers, kinds)), tmp_path / 'labels.csv')
    assert list(found.index) == ['number', 'kind', 'same']
    assert found.measured['number'] == 'mean error' and found.measured['kind'] == 'correct'
    assert found.measured['same'].startswith('nothing: expected several values')
    assert found.loc['number', 'from e'] == pytest.approx(0, abs=1e-4) and found.loc['number', 'from z'] > .2
    assert found.loc['number', 'a constant'] == pytest.approx(.25, abs=.05)
    assert found.loc['kind', 'from z'] == 1 and max(found.loc['kind', ['from e', 'a constant']]) < .7


def test_folders_are_labels():
    """A column for each level; images that lie higher have no label there."""
    names = ['a/x/1.png', 'b/2.png', '3.png']
    table = labels_of(names, 'folders')
    assert list(table.file) == names and list(table['folder 1'][:2]) == ['a', 'b'] and table['folder 2'][0] == 'x'
    assert table['folder 1'].isna().tolist() == [False, False, True]
    with pytest.raises(ValueError, match='sub-folders'): labels_of(['1.png', '2.png'], 'folders')


class Tells:
    """e says which set an image is of, z does not."""
    def __init__(self, reference: torch.Tensor):
        self.reference = {image.numpy().tobytes() for image in reference}

    def encode(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        known = torch.tensor([[image.numpy().tobytes() in self.reference] for image in images]).float()
        draw = torch.Generator().manual_seed(int(images.sum()))
        return {'e': known, 'z': torch.randn(len(images), 60, generator=draw)}


def test_which_set_an_image_is_of(run):
    """Read where it is known, and by chance where it is not."""
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (350, 3, 4, 4), dtype=torch.uint8, generator=draw)
    some = dict(unlabelled=images[:200], reference=images[200:])
    found = sets_told_apart(open_run(run, 'cpu')._replace(model=Tells(some['reference']), some=some))
    assert found['e'] == 1 and found['z'] == pytest.approx(.5, abs=.12)


def test_sets_of_different_sizes(run):
    """Two cameras, as many in either set, one after the other: who knows the camera does not know the set."""
    draw = torch.Generator().manual_seed(0)
    some = {name: torch.randint(0, 128, (n, 3, 4, 4), dtype=torch.uint8, generator=draw) for name, n in
            (('unlabelled', 400), ('reference', 100))}
    for images in some.values(): images[len(images) // 2:] += 100
    class Camera:
        def encode(self, images):
            codes = images.float().mean((1, 2, 3))[:, None] / 100
            return {'e': codes, 'z': codes}
    found = sets_told_apart(open_run(run, 'cpu')._replace(model=Camera(), some=some))
    assert found['z'] == pytest.approx(.5, abs=.12)


def test_columns_that_cannot_be_read_leave_the_others(run, tmp_path):
    """Gaps are left out; texts that occur once, infinite numbers and empty columns are named, with the reason."""
    seen, n = open_run(run, 'cpu'), 130
    table = pd.DataFrame(dict(
        file=seen.sets['unlabelled'].names, gaps=[None if i % 9 == 0 else 'ab'[i % 2] for i in range(n)],
        numbers=[np.nan if i % 9 == 0 else np.inf if i == 5 else i % 7 for i in range(n)],
        once=[f'patient {i}' for i in range(n)], rare=['b'] + ['a'] * (n - 1), empty=None))
    table.to_csv(tmp_path / 'labels.csv', index=False)
    found = what_codes_know(seen, tmp_path / 'labels.csv')
    assert list(found.measured[['gaps', 'numbers']]) == ['correct', 'mean error']
    assert np.isfinite(found.loc['numbers', ['from e', 'from z', 'a constant']].astype(float)).all()
    assert all(found.measured[name].startswith('nothing: ') for name in ('once', 'rare', 'empty'))


def test_few_images_are_not_compared(tmp_path):
    few = finished(tmp_path / 'run', write(tmp_path / 'with', 3), write(tmp_path / 'without', 2, gain=.2))
    seen = open_run(few, 'cpu')
    said = ' '.join(warned(seen))
    assert 'Fewer than 30 images in a set' in said and 'told apart' not in said
    page = tmp_path / 'page.html'
    report(few, page, device='cpu')
    spec = re.search(r'"live.json": "data:application/json;base64,([^"]*)"', page.read_text(encoding='utf-8'))
    labels = json.loads(base64.b64decode(spec[1]))['spec']['labels']
    assert labels == ['unlabelled 1', 'unlabelled 2', 'unlabelled 3', 'reference 1', 'reference 2']


@pytest.mark.parametrize('text, reason', [('name,x\na,1\n', 'expected a column "file"'), ('', 'expected a table'),
                                          ('file,x\n000.png,1\n', 'at least 100')])
def test_labels_that_cannot_be_used(text: str, reason: str, run, tmp_path, capsys):
    (tmp_path / 'labels.csv').write_text(text)
    paths = ['--labels', str(tmp_path / 'labels.csv'), '--out', str(tmp_path / 'page.html')]
    assert main(['report', str(run), *paths, '--device', 'cpu']) == 1
    assert reason in capsys.readouterr().err and not (tmp_path / 'page.html').exists()


def test_a_run_that_is_not_finished(tmp_path, capsys):
    begin(tmp_path, RunSettings('a', 'b', method='rbvae', steps=2))
    assert main(['report', str(tmp_path)]) == 1
    assert 'expected a run that is finished' in capsys.readouterr().err
