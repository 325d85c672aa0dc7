"""The workshop: solutions run, each blank stops at its own check and nowhere else, wrong answers hear what is wrong.

A session is run once, in this process: each blank first as the participants get it, then with wrong answers, then with
the solution, from which the cells below go on.
"""
import csv
import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from itertools import pairwise
from pathlib import Path

import matplotlib
import nbformat
import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
WORKSHOP = ROOT / 'nbs/workshop'
SOURCES = sorted(WORKSHOP.glob('*_solutions.ipynb'))
LABEL = re.compile(r'\*\*(Exercise|Vote) (\d\.\d)\.\*\*')
EXERCISES = {'1': 4, '2': 6, '3': 5, '4': 3}  # in each session
WRONG = {  # exercise: answers, each with a part of the sentence that it gets
    '1.1': {
        'style = Style(np.array([1, 5]), np.array([[1, 0, 0]] * 2), np.array([1, 1]))': 'each part needs three entries',
        'style = Style(np.array([1, 5, 10]), np.array([1, 0, 0]), np.ones(3))': 'red, green and blue for each image',
        'style = Style(np.array([1, 5, 10]), np.array([[0, 0, 1]] * 3), np.ones(3))': 'not pure red',
        'style = Style(np.array([1, 5, 9]), np.array([[1, 0, 0]] * 3), np.ones(3))': 'widths should be',
        'style = Style(np.array([1, 5, 10]), np.array([[1, 0, 0]] * 3), np.array([1, .5, 1]))': 'full size is scale 1'},
    '1.2': {
        'def degenerate(z, e): return draw(z, e)\ndef mirror(z, e): return draw(e, e)': 'degenerate changes when e',
        'def degenerate(z, e): return draw(z, z)\ndef mirror(z, e): return draw(e, z)': 'mirror changes when z',
        'def degenerate(z, e): return draw(z, REF)\ndef mirror(z, e): return ...': 'degenerate does not rebuild'},
    '1.3': {
        'def chance(values): return np.abs(values - values.mean()).mean()': 'the error of the mean',
        'def chance(values): return np.abs(values - np.median(values))': 'one number is expected',
        'def chance(values): return (values - np.median(values)).mean()': 'errs by .25',
        'def chance(values): return values.mean()': 'errs by .25',
        'def chance(values): return np.median(values)': 'errs by .25'},
    '1.4': {
        'def score(S_e, S_z, D_e, D_z): return (S_e + S_z + D_e + D_z) / 4': 'ideal model should have 1',
        'def score(S_e, S_z, D_e, D_z): return (1 + D_z) / 2': 'what ought z not to know',
        'def score(S_e, S_z, D_e, D_z): return (S_e + 1 - S_z) / 2': 'what ought z not to know',
        'def score(S_e, S_z, D_e, D_z): return (S_e + D_z) / 2': 'do all four count alike',
        'def score(S_e, S_z, D_e, D_z): return 1 - (S_z + D_e) / 2': 'do all four count alike',
        'def score(S_e, S_z, D_e, D_z): return (1 - S_z + S_e * D_z) / 2': 'the degenerate model'},
    '2.1': {
        'def kl(a, b): return (a * (b / a).log()).sum()': 'the sign is wrong',
        'def kl(a, b): return (b * (b / a).log()).sum()': 'this is KL',
        'def kl(a, b): return a * (a / b).log()': 'sum over the images',
        'def kl(a, b): return (a * (a / b).log2()).sum()': 'in bits'},
    '2.2': {
        'def best_forward(u, r): return u': 'a little more of image',
        'def best_forward(u, r): return u + r': 'sum to 1',
        'def best_forward(u, r): return (u * r).sqrt() / (u * r).sqrt().sum()': 'a little more of image'},
    '2.3': {
        'def best_reverse(u, r): return (u + r) / 2': 'a little more of image',
        'def best_reverse(u, r): return (u * r).sqrt()': 'divide by their sum'},
    '2.4': {
        'def nats(error, scale): return error / scale': 'one number of the image',
        'def nats(error, scale): return 32 * 32 * error / scale': 'three colours',
        'def nats(error, scale): return 3 * 32 * 32 * error * scale': 'divide by the scale'},
    '2.5': {
        'smallest = 5': 'still ends without e', 'smallest = 60': 'take a smaller angle',
        'smallest = 17': 'a multiple of 5'},
    '2.6': {
        'def use_of_e(p): return (p - p.roll(1, 1)).abs().mean().item()': 'leave out the last e',
        'def use_of_e(p): return (p[:, :-1] - p[:, :-1].roll(1, 1)).mean().item()': 'images change with e',
        'def use_of_e(p): return (p[:, :-1] - p[:, :-1].roll(1, 1)).abs().max().item()': 'take the mean',
        'def use_of_e(p): return (p[:, :-1] - p[:, :-1].roll(1, 1)).abs().mean()': 'end with'},
    '3.1': {
        'def divergence(d_q, d_p): return d_p.mean() - d_q.mean()': 'are exchanged',
        'def divergence(d_q, d_p): return (d_q.mean() - d_p.mean()) / 2': '1 nat apart',
        'def divergence(d_q, d_p): return d_q.mean() - d_p.mean()\n'
        'def logistic_loss(d_q, d_p): return F.softplus(d_q).mean() + F.softplus(-d_p).mean()': 'the sign of d',
        'def divergence(d_q, d_p): return d_q.mean() - d_p.mean()\n'
        'def logistic_loss(d_q, d_p): return (F.softplus(-d_q) + F.softplus(d_p)).mean() / 2': '2 log 2'},
    '3.2': {
        'different = {n: (of_rb.get(n), v) for n, v in of_srb.items()}': 'has the same value',
        'different = {n: (v, of_srb[n]) for n, v in of_rb.items() if v != of_srb[n]}': 'is missing: Rb-VAE does not',
        'different = {n: (v, of_rb.get(n)) for n, v in of_srb.items() if of_rb.get(n) != v}': 'should be the pair'},
    '3.3': {
        'def verdict(s): return "separates" if np.mean(s) > .75 else "does not separate"': 'a mean is not asked for',
        'def verdict(s): return "separates" if min(s) > .75 else "does not separate"': 'says otherwise',
        'def verdict(s): return "separates" if min(s) > .75 else "does not separate" if max(s) < .75 else "undecided"':
        'one seed is missing'},
    '3.4': {
        'def over_seeds(runs): return "leaves" if runs.count("left") > 1 else "stays"': 'a majority is not asked for',
        'def over_seeds(runs):\n    if {*runs} == {"left"}: return "leaves"\n'
        '    return "stays" if {*runs} == {"stayed"} else "undecided"': 'two seeds are missing'},
    '3.5': {
        'answer = dict.fromkeys(sentences, "supported")': 'what was measured is',
        'answer = dict.fromkeys(sentences, "yes")': "should be 'supported', 'contradicted' or 'open'"},
    '4.1': {
        'def more_often(a, b): return (a[:, None] > b).mean()': 'ties count half',
        'def more_often(a, b): return (a[:, None] < b).mean() + (a[:, None] == b).mean() / 2': 'are exchanged',
        'def more_often(a, b): return a[:, None] > b': 'one number is expected'},
    '4.2': {
        'def same_light(x): return x': 'the brightness should be about',
        'def same_light(x): return x * LIGHT / x.float().mean((1, 2, 3), keepdim=True)': 'expected bytes',
        'def same_light(x): return (x * LIGHT / x.float().mean((1, 2, 3), keepdim=True)).int().byte()': 'turned dark'},
    '4.3': {
        'def nearest(table, i, code): return i': 'leave it out',
        'def nearest(table, i, code): return 1': 'the smallest distance',
        'def nearest(table, i, code): return 2': 'are all columns'},
}


def script(name: str):
    """A script of nbs/publish as a module."""
    spec = importlib.util.spec_from_file_location(f'publish_{name}', ROOT / f'nbs/publish/{name}.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MADE = script('workshop')


def code(path: Path) -> list:
    """The cells of code of a notebook."""
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == 'code']


def labels(path: Path) -> dict[str, str]:
    """Of each cell of code that follows an exercise or a vote, which it is: by the id of the cell."""
    found, last = {}, ''
    for cell in nbformat.read(path, as_version=4).cells:
        named = LABEL.findall(cell.source)
        if cell.cell_type == 'code': found[cell.id] = last
        elif named: last = ' '.join(named[-1])
    return found


def numbered(session: str, count: int) -> list[str]:
    """1.1, 1.2 and so on."""
    return [f'{session}.{i + 1}' for i in range(count)]


@pytest.fixture
def aside(monkeypatch):
    """A place in which the cells of a session may change what belongs to the whole process."""
    monkeypatch.setenv('IN_TEST', '1')
    monkeypatch.chdir(WORKSHOP)
    before = torch.get_default_dtype(), matplotlib.get_backend()
    matplotlib.use('agg')
    yield {'__name__': '__main__'}
    torch.set_default_dtype(before[0])
    matplotlib.use(before[1])


def refused(source: str, check: str, names: dict) -> str:
    """What the check says of an answer; '' where it says nothing. Any other error is one of the notebook."""
    try:
        exec(source, names)
        exec(check, names)
    except AssertionError as error: return str(error)
    return ''


@pytest.mark.parametrize('source', SOURCES, ids=lambda path: path.stem)
def test_solutions_run_and_blanks_stop_at_their_checks(source: Path, aside: dict):
    solved, given, of = code(source), code(MADE.exercise_path(source)), labels(source)
    assert [cell.id for cell in solved] == [cell.id for cell in given]
    seen, checks = [], [cell.source for cell in solved[1:]] + ['']
    for cell, blank, check in zip(solved, given, checks):
        if cell.source != blank.source:
            kind, number = of[cell.id].split()
            seen.append((kind, number))
            said = refused(blank.source, check if kind == 'Exercise' else '', aside)
            assert re.search('still blank|write .* first', said), f'{kind} {number}, not filled in, is told {said!r}'
            if kind == 'Exercise' and 'return ...' in blank.source:  # the commonest slip: no return
                assert refused(blank.source.replace('return ...', 'return None'), check, aside), f'{number}: no return'
            for wrong, part in WRONG[number].items() if kind == 'Exercise' else ():
                said = refused(wrong, check, aside)
                assert re.search(part, said), f'{number}, {wrong!r}, is told {said!r}'
        exec(cell.source, aside)
    session, asked = source.name[0], [number for number, _ in MADE.votes(nbformat.read(source, as_version=4))]
    assert [n for kind, n in seen if kind == 'Exercise'] == numbered(session, EXERCISES[session])
    assert [n for kind, n in seen if kind == 'Vote'] == asked == numbered(session, len(asked))


def test_exercises_and_sheet_are_those_of_the_solutions():
    for path, text in MADE.texts().items():
        assert path.read_text(encoding='utf-8') == text, f'{path.name}: run `python nbs/publish/workshop.py`'


def test_exercises_give_nothing_away():
    for source in SOURCES:
        nb = nbformat.read(MADE.exercise_path(source), as_version=4)
        assert nb.metadata.nbdev == {'skip_exec': 'true'}  # or nbdev-test would stop at the first blank
        telling = re.compile(r'SOLUTION|\*\*Answer|answer to \d|with solutions')
        assert not [cell for cell in nb.cells if telling.search(cell.source)]
        assert not [cell for cell in nb.cells if cell.get('outputs')]


@pytest.mark.parametrize('source', SOURCES, ids=lambda path: path.stem)
def test_everything_that_is_asked_is_in_the_exercises(source: Path):
    """Cells that open with an answer are left out, and so would be what is asked in them."""
    def asked(path: Path) -> list:
        return LABEL.findall('\n'.join(cell.source for cell in nbformat.read(path, as_version=4).cells))
    assert asked(source) == asked(MADE.exercise_path(source))


@pytest.mark.parametrize('source', SOURCES, ids=lambda path: path.stem)
def test_figures_of_the_workshop_say_what_they_show(source: Path):
    shown = [cell for cell in code(source) if any('image/png' in out.get('data', {}) for out in cell.outputs)]
    assert shown and [cell.id for cell in shown if '#| fig-alt: ' not in cell.source] == []


def answers() -> dict[str, str]:
    """Of each vote with a letter, the letter that the cell of its answer begins with."""
    found, open_votes = {}, []
    for cell in [cell for source in SOURCES for cell in nbformat.read(source, as_version=4).cells]:
        open_votes += [number for kind, number in LABEL.findall(cell.source) if kind == 'Vote']
        if not cell.source.startswith('**Answer.**'): continue
        named = dict(re.findall(r'(\d\.\d): \((\w)\)', cell.source))
        if not named and (letter := re.match(r'\*\*Answer\.\*\* \((\w)\)', cell.source)):
            named = {open_votes[-1]: letter[1]}
        found |= named
    return found


def test_the_teacher_has_the_answers():
    """Those that are letters; the solutions say the others."""
    text = '\n'.join(cell.source for cell in nbformat.read(WORKSHOP / 'teacher.ipynb', as_version=4).cells)
    key = text.partition('**Answers.**')[2].partition('\n')[0]
    assert answers() == dict(re.findall(r'(\d\.\d) \((\w)\)', key)) and len(answers()) > 12


@pytest.mark.parametrize('text, left', [
    ('### BEGIN SOLUTION\na = 1\nb, c = [\n    2]\n### END SOLUTION\nd = 4', 'a = ...\nb, c = ...\nd = 4'),
    ("### BEGIN SOLUTION\na['x'] = b == c\n### END SOLUTION", "a['x'] = ...\n"),
    ('def f(x):\n    ### BEGIN SOLUTION\n    y = x\n    if y: return 1\n    return 2\n    ### END SOLUTION\n',
     'def f(x):\n    y = ...\n    return ...\n'),
    ('    ### BEGIN SOLUTION\n    f(x)\n    ### END SOLUTION\n', '    ...\n'),
    ('### BEGIN SOLUTION\ndef f(x, y=1): return x\n# why\n### END SOLUTION\n', 'def f(x, y=1): return ...\n')])
def test_what_a_solution_leaves(text: str, left: str):
    assert MADE.REGION.sub(MADE.blanks, text) == left


def test_times_are_measured_and_below_a_minute():
    """Each session says that no cell needs a minute, and the teacher's page shows the table."""
    rows = {row['session']: row for row in csv.DictReader((ROOT / 'nbs/measure/workshop.csv').open(encoding='utf-8'))}
    assert sorted(rows) == [path.stem.removesuffix('_solutions') for path in SOURCES]
    assert all(0 < float(row['slowest']) < min(60, float(row['seconds'])) for row in rows.values())


def test_plans_fill_45_minutes():
    text = '\n'.join(cell.source for cell in nbformat.read(WORKSHOP / 'teacher.ipynb', as_version=4).cells)
    plans = text.split('## Session ')[1:]
    assert len(plans) == len(SOURCES)
    for plan in plans:
        spans = [tuple(map(int, span)) for span in re.findall(r'^\| (\d+)–(\d+) \|', plan, re.M)]
        assert (spans[0][0], spans[-1][1]) == (0, 45) and all(a[1] == b[0] for a, b in pairwise(spans)), spans
        number = plan[0]
        named = {n for n in re.findall(r'\d\.\d', plan.partition('**What people')[0]) if n[0] == number}
        assert {*numbered(number, EXERCISES[number])} <= named


@pytest.mark.parametrize('family', ['sans-serif', 'monospace'])
def test_sheet_is_one_page(browser, family: str):
    """With fonts of this machine, also with letters of one width, which take more room than any text font."""
    page = browser.new_page()
    page.goto((WORKSHOP / 'sheet.html').as_uri())
    page.add_style_tag(content=f'body {{ font-family: {family} !important; }}')
    printed = page.pdf(prefer_css_page_size=True)
    page.close()
    assert len(re.findall(rb'/Type\s*/Page\b', printed)) == 1


def test_sheet_stands_alone():
    """It is opened on the site, in a checkout and in the bundle, where pages and notebooks have other names."""
    assert 'href' not in (WORKSHOP / 'sheet.html').read_text(encoding='utf-8').replace('rel="icon" href="data:,"', '')


# The bundle

@pytest.fixture(scope='module')
def bundle(tmp_path_factory) -> Path:
    """The bundle unpacked, with a page in the place of the site (tests/test_site.py has the site)."""
    folder, made = tmp_path_factory.mktemp('bundle'), script('bundle')
    for name in ('wheels', 'site'): (folder / name).mkdir()
    (folder / 'site/index.html').write_text('<p>a page</p>')
    made.make_wheel(folder / 'wheels')
    with zipfile.ZipFile(made.pack(folder / 'workshop.zip', folder / 'wheels', folder / 'site')) as packed:
        packed.extractall(folder)
    return folder / 'workshop'


def test_bundle_has_its_parts(bundle: Path):
    names = {path.relative_to(bundle).as_posix() for path in bundle.rglob('*') if path.is_file()}
    parts = ['README.txt', 'site/index.html', *(f'nbs/workshop/{path.name}' for path in [*SOURCES, *MADE.texts()])]
    assert {*parts, 'nbs/workshop/teacher.ipynb', 'nbs/measure/controlled.csv', 'nbs/measure/start.csv',
            'nbs/measure/photos/stickers-srbvae.png'} <= names
    assert len([name for name in names if name.startswith('wheels/rbvae_nb-')]) == 1
    assert not [name for name in names if '/.' in name or '__pycache__' in name]
    start = (bundle / 'README.txt').read_text(encoding='utf-8')
    assert 'NOT what it needs' in start and 'pip install --no-deps' in start


def test_links_of_the_workshop_lead_somewhere_in_the_bundle(bundle: Path):
    ends = []
    for path in (bundle / 'nbs/workshop').glob('*.ipynb'):
        prose = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == 'markdown']
        ends += [path.parent / link for link in re.findall(r'\]\(([^)#]+)', '\n'.join(prose)) if '://' not in link]
    assert len(ends) > 20 and not [str(end) for end in ends if not end.is_file()]


def test_bundle_says_what_it_has():
    made = script('bundle')
    assert 'NOT' not in made.readme('') and '--find-links wheels rbvae-nb jupyterlab' in made.readme('')
    assert 'pip download --platform win_amd64' in made.readme('--platform win_amd64')


def test_a_notebook_of_the_bundle_runs_from_its_wheel(bundle: Path):
    """Session 2 as it lies there, with the package that is installed from the wheel and from nowhere else."""
    target, wheel = bundle / 'installed', next((bundle / 'wheels').iterdir())
    script('bundle').pip('install', '--no-deps', '--no-index', '--target', str(target), str(wheel))
    cells = [cell.source for cell in code(bundle / 'nbs/workshop/2_objective_solutions.ipynb')]
    source = '\n'.join([*cells, 'import rbvae_nb; print(rbvae_nb.__file__)'])
    env = os.environ | {'PYTHONPATH': str(target), 'IN_TEST': '1', 'MPLBACKEND': 'agg'}
    there = bundle / 'nbs/workshop'
    run = subprocess.run([sys.executable, '-c', source], cwd=there, env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert Path(run.stdout.split()[-1]).is_relative_to(target)
