"""On Colab a lesson is opened alone: its first cell brings the package, and the files beside it in the repository.

The slow test acts Colab out: an environment with what Colab ships, an empty folder, one notebook in it.
"""
import ast
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from test_notebooks import EXERCISES, NBS, NOTEBOOKS, ROOT, cells, each_notebook, name_of

URL = 'https://github.com/rbvae-nb/rbvae-nb'
INSTALL = f'''#| hide
import os, sys
if 'google.colab' in sys.modules and not os.path.exists('measure'):  # the package, and files beside this notebook
    get_ipython().system('test -d rbvae-nb || git clone -q --depth 1 {URL}')
    get_ipython().run_line_magic('pip', 'install -q WHAT')
    get_ipython().run_line_magic('cd', '-q rbvae-nb/nbs')'''
WHAT = re.compile(r"'install -q (\./rbvae-nb|\"\./rbvae-nb\[(\w+)\]\"( [a-z]+)*)'")
# What Colab brings that lessons use. Its IPython, ipykernel and ipywidgets are these old ones; the rest is kept new.
SHIPPED = ['torch', 'torchvision', 'numpy', 'scipy', 'pandas', 'matplotlib', 'scikit-learn', 'opencv-python-headless',
           'pillow', 'imageio', 'imageio-ffmpeg', 'joblib', 'filelock', 'tqdm', 'fastcore', 'safetensors', 'pyarrow',
           'huggingface_hub', 'accelerate', 'distributed', 'ipython==7.34.0', 'ipykernel==6.17.1', 'jupyter-client<8',
           'ipywidgets==7.7.1', 'nbclient', 'setuptools']
# Colab's kernel has imported this package before a cell runs.
COLAB = 'class output:\n    enable_custom_widget_manager = staticmethod(lambda: None)\n'
RUN = '''
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
notebook.cells = [cell for cell in notebook.cells if '#| eval: false' not in cell.source]
notebook.cells.append(nbformat.v4.new_code_cell('import rbvae_nb; print(rbvae_nb.__file__)'))
NotebookClient(notebook, timeout=None, kernel_name='python3').execute()
print(notebook.cells[-1].outputs[0].text)
'''


@each_notebook
def test_first_code_cell_installs_the_lesson(path: Path):
    """The same cell in each, once, before all other code; it may name an extra and further packages."""
    code = [''.join(cell['source']) for cell in cells(path, 'code')]
    if not code: pytest.skip('no code')
    assert WHAT.sub("'install -q WHAT'", code[0]) == INSTALL
    assert not [source for source in code[1:] if 'google.colab' in source and '#| export' not in source]


@each_notebook
def test_files_that_are_read_are_in_the_repository(path: Path):
    """Every text of the code that names a file of `measure` or `assets` names one that git has, and so its clone."""
    if not files(): pytest.skip('no git checkout')
    there = {parent for file in files() for parent in (file, *file.parents)}
    named = [text for cell in cells(path, 'code') for text in texts(''.join(cell['source']))]
    assert [text for text in named if re.match(r'(measure|assets)(/|$)', text) and NBS / text not in there] == []


@cache
def files() -> list[Path]:
    """What a commit of everything would hold."""
    names = subprocess.run(['git', 'ls-files', '-coz', '--exclude-standard'], cwd=ROOT, capture_output=True).stdout
    return [ROOT / name for name in names.decode().split('\0') if (ROOT / name).is_file()]


def texts(source: str) -> list[str]:
    """The texts in Python code, f-strings left out."""
    tree = ast.parse('\n'.join(line for line in source.splitlines() if line[:1] not in '%!'))
    pieces = {piece for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for piece in node.values}
    return [node.value for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in pieces]


@each_notebook
def test_what_is_folded_here_is_folded_on_colab(path: Path):
    """`code-fold` is for the site, `source_hidden` for JupyterLab, `cellView` for Colab: all three or none."""
    for cell in cells(path, 'code'):
        source, metadata = ''.join(cell['source']), cell['metadata']
        folded = (bool(re.search(r'^#\| code-fold: true', source, re.M)), metadata.get('cellView') == 'form',
                  metadata.get('jupyter', {}).get('source_hidden', False))
        assert len(set(folded)) == 1, source
        assert all(folded) or not re.search(r'^#\| code-summary: "Solution', source, re.M), source


# Colab, acted out

@pytest.fixture(scope='module')
def environment(tmp_path_factory) -> Path:
    """The Python of an environment like Colab's; in RBVAE_COLAB, if that names a folder, where it is kept."""
    folder = Path(os.getenv('RBVAE_COLAB') or tmp_path_factory.mktemp('colab'))
    python = folder / ('Scripts/python.exe' if os.name == 'nt' else 'bin/python')
    if not python.exists():
        subprocess.run([sys.executable, '-m', 'venv', str(folder)], check=True)
        subprocess.run([str(python), '-m', 'pip', 'install', '-q', *SHIPPED], check=True)
    where = 'import sysconfig; print(sysconfig.get_path("purelib"))'
    packages = subprocess.run([str(python), '-c', where], capture_output=True, text=True, check=True).stdout.strip()
    (Path(packages) / 'google/colab').mkdir(parents=True, exist_ok=True)
    (Path(packages) / 'google/colab/__init__.py').write_text(COLAB)
    return python


@pytest.fixture(scope='module')
def repository(tmp_path_factory) -> Path:
    """The checkout as it is now, uncommitted changes included, as the repository that a lesson clones."""
    there, git = tmp_path_factory.mktemp('github') / 'rbvae-nb', ['git', '-c', 'user.name=x', '-c', 'user.email=x@y.z']
    for file in files():
        copy = there / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    for command in (['init', '-q'], ['add', '-A'], ['commit', '-q', '-m', 'as it is']):
        subprocess.run([*git, *command], cwd=there, check=True)
    return there


def on_colab(tmp_path: Path, repository: Path) -> dict[str, str]:
    """The variables of a kernel of Colab, for which the repository's address leads to `repository`."""
    startup = tmp_path / 'ipython/profile_default/startup'
    startup.mkdir(parents=True)
    (startup / 'colab.py').write_text('import google.colab')
    env = {k: v for k, v in os.environ.items() if k not in ('PYTHONPATH', 'MPLBACKEND')}
    return env | {'IPYTHONDIR': str(tmp_path / 'ipython'), 'IN_TEST': '1', 'TQDM_DISABLE': '1', 'GIT_CONFIG_COUNT': '1',
                  'GIT_CONFIG_KEY_0': f'url.{repository.as_uri()}.insteadOf', 'GIT_CONFIG_VALUE_0': URL}


@pytest.mark.slow
@pytest.mark.parametrize('path', [p for p in NOTEBOOKS if p not in EXERCISES], ids=name_of)  # those stop at blanks
def test_a_lesson_runs_alone_on_colab(path: Path, environment: Path, repository: Path, tmp_path: Path, record_property):
    """Its cells from the first to the last, in IN_TEST size, with the package that its first cell has installed."""
    if not cells(path, 'code'): pytest.skip('no code')
    content, env = tmp_path / 'content', on_colab(tmp_path, repository)
    content.mkdir()
    subprocess.run([str(environment), '-m', 'pip', 'uninstall', '-q', '-y', 'rbvae-nb'], env=env, check=True)
    shutil.copy(path, content)
    run = subprocess.run([str(environment), '-c', RUN, path.name], cwd=content, env=env, encoding='utf-8',
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if run.returncode: pytest.fail(run.stdout, pytrace=False)
    assert Path(run.stdout.split()[-1]).is_relative_to(environment.parents[1]), 'another package was imported'
