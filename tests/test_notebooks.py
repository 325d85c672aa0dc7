"""Every notebook runs from top to bottom at its reduced size, and what it stores is fit to publish."""
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NBS = ROOT / 'nbs'
NOTEBOOKS = sorted(p for p in NBS.rglob('*.ipynb') if not any(part[0] in '._' for part in p.relative_to(NBS).parts))
REQUIRED = [
    'index', '00_notation', '01_problem', '02_images', '02a_experiments', '02b_digits', '02c_shapes', '02d_faces',
    '03_divergences', '03a_derivation', '03b_degenerate', '03c_adversarial', '04_networks', '04a_files', '04b_methods',
    '05_vae',
    '06_training', '07_probing', '07a_attributes', '08_rbvae', '08a_quality', '09_srbvae', '09a_speed',
    '09b_stability', '09c_same_start', '09d_parts', '09e_additions', '09f_further', '10_baselines', '10a_related',
    '11_sweep', '11a_table', '11b_results',
    '12_synthesis', '12a_expressions', '13_explorer', '13a_export', '13b_live', '14_bench', '14a_machines',
    '15_folders', '15a_runs', '15b_report', '15c_estimator', '15d_hub', '15e_alignment', '15f_affectnet', '16_cli',
]
# nbdev-test on the notebooks that come line by line. Through Python, since a console script need not be on the PATH.
# Each runs in a fork: libraries, which are half of the work of a short notebook, are loaded once, the package is not,
# and nothing that one notebook does reaches another. (Windows has no fork: one process for each notebook.)
RUN = '''
import os, sys
import cv2, ipywidgets, matplotlib.pyplot, pandas, safetensors.torch, sklearn.linear_model, torch._dynamo
from nbdev.test import nbdev_test
assert 'rbvae_nb' not in sys.modules
for line in sys.stdin:
    path, log = line.rstrip().split('|')
    if not hasattr(os, 'fork') or not (child := os.fork()): break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else: sys.exit()
for file, stream in ((os.devnull, 0), (log, 1), (log, 2)): os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), stream)
nbdev_test.__wrapped__(path=path)
'''
MACHINE_PATH = re.compile(r'(?<![\w.:/-])/(home/\w|root/|work/|tmp/|Users/\w)')
MAX_BYTES = 600_000

# Of the workshop. tests/test_workshop.py runs both; exercises stop at their first blank and store nothing.
SOLUTIONS = [p for p in NOTEBOOKS if p.stem.endswith('_solutions')]
EXERCISES = [p.with_stem(p.stem.removesuffix('_solutions')) for p in SOLUTIONS]


def name_of(path: Path) -> str:
    """What a notebook is called in reports."""
    return path.relative_to(NBS).with_suffix('').as_posix()


each_notebook = pytest.mark.parametrize('path', NOTEBOOKS, ids=name_of)
UNFINISHED = ['index']  # no exercises with checks and solutions
LESSONS = [p for p in NOTEBOOKS if p.stem not in UNFINISHED and p.parent == NBS]
each_lesson = pytest.mark.parametrize('path', LESSONS, ids=lambda p: p.stem)


def cells(path: Path, kind: str) -> list[dict]:
    """The notebook's cells of one kind: 'code' or 'markdown'."""
    return [cell for cell in json.loads(path.read_text(encoding='utf-8'))['cells'] if cell['cell_type'] == kind]


def outputs(path: Path) -> list[dict]:
    """All outputs stored in a notebook."""
    return [output for cell in cells(path, 'code') for output in cell['outputs']]


def readable(path: Path) -> str:
    """What a reader of the notebook can read: everything but the pictures' bytes."""
    def drop_pictures(obj: dict) -> dict: return {k: v for k, v in obj.items() if not k.startswith('image/')}
    nb = json.loads(path.read_text(encoding='utf-8'), object_hook=drop_pictures)
    return json.dumps(nb, ensure_ascii=False)


@pytest.mark.parametrize('name', REQUIRED)
def test_required_notebook_exists(name: str):
    assert (NBS / f'{name}.ipynb').is_file()


@pytest.fixture(scope='module')
def status_of() -> Iterator[Callable[[Path, Path], int]]:
    """Runs a notebook, with its output in a file; returns the exit status."""
    env = os.environ | {'IN_TEST': '1', 'MPLBACKEND': 'agg', 'TQDM_DISABLE': '1', 'PYTHONIOENCODING': 'utf-8'}
    def start() -> subprocess.Popen:
        return subprocess.Popen([sys.executable, '-c', RUN], cwd=ROOT, env=env, encoding='utf-8',
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    def in_a_fork(notebook: Path, log: Path) -> int:
        print(notebook, log, sep='|', file=process.stdin, flush=True)
        return int(process.stdout.readline())
    def on_its_own(notebook: Path, log: Path) -> int:
        (alone := start()).communicate(f'{notebook}|{log}')
        return alone.returncode
    process = start()
    yield in_a_fork if hasattr(os, 'fork') else on_its_own
    process.communicate()


@pytest.mark.parametrize('path', [p for p in NOTEBOOKS if p not in (*SOLUTIONS, *EXERCISES)], ids=name_of)
def test_notebook_runs(path: Path, status_of, tmp_path: Path, record_property):
    start, log = time.perf_counter(), tmp_path / 'log'
    status = status_of(path, log)
    record_property('notebook', (path.relative_to(NBS).as_posix(), time.perf_counter() - start))
    if status: pytest.fail(log.read_text(encoding='utf-8'), pytrace=False)


@each_notebook
def test_stored_outputs_are_healthy(path: Path):
    stored, has_code = outputs(path), bool(cells(path, 'code'))
    assert not [out for out in stored if out['output_type'] == 'error'], 'a stored error'
    assert not [out['text'] for out in stored if out.get('name') == 'stderr'], 'stderr is stored'
    assert not [mime for out in stored for mime in out.get('data', {}) if 'widget' in mime], 'a widget is stored'
    assert 'widgets' not in json.loads(path.read_text(encoding='utf-8'))['metadata'], 'the state of widgets is stored'
    assert stored or not has_code or path in EXERCISES, 'code, but nothing it shows: run nbs/publish/execute.py'


@each_notebook
def test_stored_text_is_portable(path: Path):
    found = MACHINE_PATH.search(text := readable(path))
    assert not found, f'a path of one machine: {text[found.start() - 60:found.end() + 60]}'
    assert path.stat().st_size < MAX_BYTES


@each_notebook
def test_opens_with_title_and_subtitle(path: Path):
    first = ''.join(cells(path, 'markdown')[0]['source'])
    assert first.startswith('# '), 'the first cell is no H1'
    assert re.search(r'^> \S', first, re.M), 'no subtitle (`> ...`) under the title'


@each_lesson
def test_lesson_has_its_parts(path: Path):
    """What it gives, needs and takes; a summary, exercises whose solutions are folded, and where to read on."""
    text = '\n'.join(''.join(cell['source']) for cell in cells(path, 'markdown'))
    parts = ['**You will have**', '**You need**', '**Time**', '## Summary', '**How it fails.**', '## Exercise',
             '## Further reading']
    assert [part for part in parts if part not in text] == []
    assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)
    folded = [cell for cell in cells(path, 'code') if ''.join(cell['source']).startswith('#| code-fold: true')]
    assert folded and all(cell['metadata'].get('jupyter', {}).get('source_hidden') for cell in folded)


@pytest.mark.parametrize('path', [p for p in NOTEBOOKS if p.parent == NBS], ids=name_of)
def test_figures_say_what_they_show(path: Path):
    """An alternative text for each stored picture."""
    shown = [cell for cell in cells(path, 'code') if any('image/png' in out.get('data', {}) for out in cell['outputs'])]
    assert [cell['id'] for cell in shown if '#| fig-alt: ' not in ''.join(cell['source'])] == []


@pytest.mark.parametrize('path', [p for p in NOTEBOOKS if p.parent == NBS], ids=name_of)
def test_the_site_shows_stored_figures(path: Path):
    """nbdev drops a cell marked `hide` from the site, and its picture with it."""
    shown = [cell for cell in cells(path, 'code') if any('image/png' in out.get('data', {}) for out in cell['outputs'])]
    assert [cell['id'] for cell in shown if re.search(r'^#\|\s*hide$', ''.join(cell['source']), re.M)] == []


def test_one_scheme_of_colours():
    """Formulas use the colours that figures take from `COLOURS`, and the site has each of them for dark pages."""
    from rbvae_nb.notation import COLOURS
    found = ''.join(readable(path) for path in NOTEBOOKS)
    used = set(re.findall(r'color\{(\w+)\}', found))
    assert used and used <= {COLOURS[who] for who in 'qpd'}
    styles = (NBS / 'styles.css').read_text(encoding='utf-8')
    assert [name for name in used if f'color:{name}"' not in styles] == []
