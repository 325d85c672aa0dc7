"""The house: generated files match the notebooks, imports stay light, the built package works outside the checkout."""
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from configparser import ConfigParser
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / 'rbvae_nb'
MODULES = sorted(p.stem for p in PACKAGE.glob('*.py') if p.stem != '__init__')
# Loaded only where used: importing the package must not need them.
HEAVY = ['IPython', 'ipykernel', 'jupyter', 'ipywidgets', 'anywidget', 'imageio', 'onnx', 'onnxruntime', 'onnxscript',
         'torchvision', 'sklearn', 'matplotlib', 'pandas']
# The explorer's modules are widgets, and the estimator is one of scikit-learn's: those may need what they are.
WIDGETS, ESTIMATORS = {'explorer', 'live'}, {'estimator'}
BLOCK = f'''
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in {HEAVY}: raise ModuleNotFoundError(f'{{name}} is blocked here', name=name)
sys.meta_path.insert(0, Blocker())
'''


def python(code: str, *args: str, cwd: Path = ROOT, path: Path = ROOT) -> str:
    """Run `code` in a fresh interpreter that finds modules in `path` first; returns what it prints."""
    env = {k: v for k, v in os.environ.items() if k != 'IN_TEST'}  # nbdev-export does nothing while IN_TEST is set
    env |= {'PYTHONPATH': str(path), 'PYTHONDONTWRITEBYTECODE': '1', 'PYTHONIOENCODING': 'utf-8'}
    run = subprocess.run([sys.executable, '-c', code, *args], cwd=cwd, env=env, encoding='utf-8',
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if run.returncode: pytest.fail(run.stdout, pytrace=False)
    return run.stdout


def settings() -> dict[str, str]:
    """settings.ini, read as setup.py reads it."""
    parser = ConfigParser(delimiters=['='], interpolation=None)
    parser.read_string((ROOT / 'settings.ini').read_text(encoding='utf-8'))
    return dict(parser['DEFAULT'])


def requirements(entry: str) -> set[tuple[str, frozenset[str]]]:
    """The requirements of a settings.ini entry, as (name, bounds)."""
    return {parse_requirement(line) for line in settings()[entry].splitlines() if line.strip()}


def parse_requirement(text: str) -> tuple[str, frozenset[str]]:
    """`a<2,>=1; marker` as its name and its bounds, in no order."""
    name, bounds = re.match(r'\s*([\w.-]+(?:\[\w+\])?)\s*([^;]*)', text).groups()
    return name, frozenset(bound.strip() for bound in bounds.split(',') if bound.strip())


def copy_of(target: Path, *names: str) -> Path:
    """Copy files and folders of the checkout to `target`, without what Python and Jupyter leave behind."""
    target.mkdir(exist_ok=True)
    left = shutil.ignore_patterns('__pycache__', '.ipynb_checkpoints')
    for name in names:
        if (ROOT / name).is_dir(): shutil.copytree(ROOT / name, target / name, ignore=left)
        else: shutil.copy(ROOT / name, target / name)
    return target


# Generated files

def test_modules_match_notebooks(tmp_path: Path):
    """nbdev-export in a copy that has no modules yet makes the very files that are here."""
    copy = copy_of(tmp_path / 'copy', 'nbs', 'pyproject.toml')
    (copy / 'rbvae_nb').mkdir()
    shutil.copy(PACKAGE / '__init__.py', copy / 'rbvae_nb')
    python('from nbdev.doclinks import nbdev_export; nbdev_export.__wrapped__()', cwd=copy, path=copy)
    made = {p.name: p.read_bytes() for p in (copy / 'rbvae_nb').glob('*.py')}
    here = {p.name: p.read_bytes() for p in PACKAGE.glob('*.py')}
    assert sorted(made) == sorted(here), 'other modules: run nbdev-export'
    assert [name for name in made if made[name] != here[name]] == [], 'these differ: run nbdev-export'


def test_exported_lines_fit_120_columns():
    """Measured in the notebooks: in the modules nbdev doubles backslashes, and sets `__all__` wider."""
    long = []
    for path in sorted((ROOT / 'nbs').glob('*.ipynb')):
        for cell in json.loads(path.read_text(encoding='utf-8'))['cells']:
            lines = ''.join(cell['source']).splitlines()
            if lines[:1] == ['#| export']: long += [(path.name, line) for line in lines if len(line) > 120]
    assert long == [], 'break these lines'


@pytest.mark.parametrize('command', [['ruff', 'check'], ['mypy']], ids=' '.join)
def test_code_is_clean(command: list[str], tmp_path: Path):
    """No mistakes that a linter sees, in code or notebooks; annotations that do not contradict the code."""
    pytest.importorskip(command[0], reason=f'{command[0]} is not installed')
    if sys.version_info < (3, 11): pytest.skip('the annotations of older libraries differ')
    env = os.environ | {'RUFF_NO_CACHE': 'true', 'MYPY_CACHE_DIR': str(tmp_path)}
    run = subprocess.run([sys.executable, '-m', *command], cwd=ROOT, env=env, capture_output=True, encoding='utf-8')
    assert run.returncode == 0, run.stdout + run.stderr


def test_readme_matches_index():
    made = runpy.run_path(str(ROOT / 'nbs/publish/readme.py'))['readme']()
    assert (ROOT / 'README.md').read_text(encoding='utf-8') == made, 'run `python nbs/publish/readme.py`'


def test_map_shows_the_lessons_that_are_there():
    made = runpy.run_path(str(ROOT / 'nbs/publish/map.py'))
    assert (ROOT / 'nbs/assets/map.svg').read_text(encoding='utf-8') == made['svg'](), 'run `python nbs/publish/map.py`'
    assert {*made['DAY'], *made['LADDER']} <= {*made['lessons']()}
    assert all(f'>{number} ' in made['svg']() for number in made['lessons']())


def test_readme_has_the_two_commands():
    """.ci/run runs the second block, so it must be the tests' command."""
    blocks = re.findall(r'^```bash\n(.*?)^```', (ROOT / 'README.md').read_text(encoding='utf-8'), re.M | re.S)
    assert 'pip install . && rbvae demo' in blocks[0]
    assert 'pip install -e ".[dev]" && pytest -n 2 --dist loadfile' in blocks[1]


# Imports

def test_modules_import_without_heavy_packages():
    names = [f'rbvae_nb.{module}' for module in MODULES if module not in WIDGETS | ESTIMATORS]
    python(f'{BLOCK}\nimport importlib\nfor name in {names}: importlib.import_module(name)')


def test_package_import_is_instant():
    """`import rbvae_nb` alone is the version and nothing more."""
    loaded = python('import sys, rbvae_nb; print(*sys.modules)').split()
    assert not {'torch', 'numpy', *HEAVY} & set(loaded)


def test_every_weight_file_has_a_card():
    """Which says how it was made."""
    weights = sorted((PACKAGE / 'weights').glob('*.safetensors'))
    assert len(weights) >= 3
    for path in weights:
        assert '**Made by**: `python nbs/measure/' in path.with_suffix('.md').read_text(encoding='utf-8')


# The built package

@pytest.fixture(scope='module')
def wheel(tmp_path_factory) -> Path:
    """The wheel, built from the source distribution, so that both are tested."""
    work = tmp_path_factory.mktemp('build')
    metadata = 'setup.py', 'settings.ini', 'pyproject.toml', 'MANIFEST.in', 'README.md', 'LICENSE'
    copy = copy_of(work / 'copy', *metadata, 'rbvae_nb')
    python('from setuptools import build_meta; build_meta.build_sdist("..")', cwd=copy)
    sdist, = work.glob('*.tar.gz')
    pip('wheel', '--no-build-isolation', '--wheel-dir', str(work), str(sdist))
    wheel, = work.glob('*.whl')
    return wheel


@pytest.fixture(scope='module')
def installed(wheel: Path, tmp_path_factory) -> Path:
    """A folder that holds the installed package and nothing else."""
    target = tmp_path_factory.mktemp('installed')
    pip('install', '--target', str(target), str(wheel))
    return target


def pip(*args: str) -> None:
    """Run pip without the network."""
    command, *rest = args
    python('import runpy, sys; sys.argv[0] = "pip"; runpy.run_module("pip", run_name="__main__")',
           command, '--quiet', '--no-deps', '--no-index', '--disable-pip-version-check', *rest)


def test_package_data_is_installed(installed: Path):
    """Every file of the package but bytecode, data and weights included."""
    def files(folder: Path) -> set[str]:
        found = (p for p in folder.rglob('*') if p.is_file() and '__pycache__' not in p.parts)
        return {p.relative_to(folder).as_posix() for p in found}
    assert files(PACKAGE) == files(installed / 'rbvae_nb')
    assert {'data/digits.npz', 'data/DIGITS.md', 'static/explorer.js', 'py.typed'} <= files(installed / 'rbvae_nb')


def test_installed_package_finds_its_data(installed: Path, tmp_path: Path):
    code = ('import rbvae_nb; from importlib import resources; print(rbvae_nb.__file__); '
            'print((resources.files("rbvae_nb") / "data" / "digits.npz").is_file())')
    where, has_digits = python(code, cwd=tmp_path, path=installed).splitlines()
    assert Path(where).is_relative_to(installed) and has_digits == 'True'


def test_installed_command_answers(installed: Path, tmp_path: Path):
    """The `rbvae` entry point of the installed package, called from elsewhere."""
    code = ('import sys; from importlib.metadata import distribution; sys.argv[0] = "rbvae"; '
            'points = distribution("rbvae-nb").entry_points; points.select(name="rbvae")["rbvae"].load()()')
    assert 'demo' in python(code, '--help', cwd=tmp_path, path=installed)


# Metadata

def metadata(installed: Path):
    """METADATA of the installed package, a message with headers."""
    file, = installed.glob('*.dist-info/METADATA')
    return Parser().parsestr(file.read_text(encoding='utf-8'))


def test_metadata_is_that_of_settings(installed: Path):
    meta, cfg = metadata(installed), settings()
    assert (meta['Name'], meta['Summary'], meta['Author']) == (cfg['lib_name'], cfg['description'], cfg['author'])
    assert (meta['License-Expression'], meta['Requires-Python']) == (cfg['license'], f">={cfg['min_python']}")
    runtime = {parse_requirement(line) for line in meta.get_all('Requires-Dist') if 'extra ==' not in line}
    assert runtime == requirements('requirements')
    for extra in ('onnx', 'video', 'dev'):
        found = {parse_requirement(line) for line in meta.get_all('Requires-Dist') if f'extra == "{extra}"' in line}
        assert found == requirements(f'{extra}_requirements'), extra


def test_page_on_pypi_has_no_relative_links(installed: Path):
    """Pictures and notebooks have the address of this version in the repository."""
    text, readme = metadata(installed).get_payload(), (ROOT / 'README.md').read_text(encoding='utf-8')
    links = re.findall(r'(?:\]\(|(?:src|href)=")([^)#"]+)', text)
    assert [link for link in links if not link.startswith('https://')] == []
    assert sum('/v' in link for link in links) == readme.count('](nbs/') + readme.count('="nbs/') > 40


def test_version_is_the_same_everywhere():
    from rbvae_nb import __version__
    heading = re.search(r'^## \[(.+?)\]', (ROOT / 'CHANGELOG.md').read_text(encoding='utf-8'), re.M)[1]
    cited = re.search(r'^version: (.+)$', (ROOT / 'CITATION.cff').read_text(encoding='utf-8'), re.M)[1]
    assert heading == cited == __version__


def test_actions_are_pinned():
    """By the commit, with its version beside it: a tag can be moved."""
    used = [line.split('uses: ')[1] for path in (ROOT / '.github/workflows').glob('*.yml')
            for line in path.read_text(encoding='utf-8').splitlines() if 'uses: ' in line]
    assert len(used) > 10 and [use for use in used if not re.match(r'[\w/-]+@[0-9a-f]{40}  # v\d', use)] == []


def test_dependencies_have_one_place():
    text = (ROOT / 'pyproject.toml').read_text(encoding='utf-8')
    assert not re.search(r'^\s*(dependencies|optional-dependencies|scripts|description|authors)\s*=', text, re.M)
    assert not re.search(r'^\[project\.(optional-dependencies|scripts)\]', text, re.M)
