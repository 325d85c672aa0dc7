"""Make workshop.zip, for rooms without a network: `python nbs/publish/bundle.py [--out workshop.zip] [--dependencies]`.

In it are the wheel of the package (its models and digits are inside), the notebooks of the workshop and of the lessons
to which they link, the tables and pictures of both, and the documentation as pages. `--dependencies` adds wheels of
everything that the package needs, and JupyterLab, for machines like this one (`pip download`; for others give pip's own
options, as in `--dependencies "--platform win_amd64 --python-version 3.12"`). `--site FOLDER` takes pages that are
built already.
"""
import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ['setup.py', 'settings.ini', 'pyproject.toml', 'MANIFEST.in', 'README.md', 'LICENSE', 'CHANGELOG.md',
          'CITATION.cff']
START = """The workshop of rbvae-nb, for a room without a network.

wheels/         {wheels}
nbs/workshop/   the notebooks: exercises, solutions, the teacher's page, and sheet.html to print
nbs/            the lessons as notebooks, with their tables (measure) and pictures (assets, measure)
site/           the documentation, lessons included, as pages

Start (Python {python} or newer), in this folder:

  python -m venv venv             (python3, where there is no python)
  . venv/bin/activate             (on Windows: venv\\Scripts\\activate)
  {install}
  jupyter lab nbs                 (then open the folder workshop)

Leave the notebooks where they are: two sessions read tables from nbs/measure.

The pages: `python -m http.server --directory site`, then http://localhost:8000 in a browser, and for the live page
http://localhost:8000/live.html. (The live page does not run from files that are opened by a double click; most other
pages can be read so.)
"""
WITH = """the package, with models and digits, and all that it needs ({kind})
                Another kind of machine or another Python needs other files."""
WITHOUT = """the package, with models and digits. NOT what it needs: torch, torchvision, numpy and others."""
INSTALL = 'pip install --no-index --find-links wheels rbvae-nb jupyterlab'
INSTALL_ALONE = """pip install --no-deps --no-index --find-links wheels rbvae-nb
  (the packages that it needs have to be there: install them where there is a network, `pip install
  --find-links . rbvae-nb jupyterlab` in the folder wheels, before you go to the room)"""


def pip(*args: str) -> None:
    """Run pip, and stop where it fails."""
    subprocess.run([sys.executable, '-m', 'pip', *args, '--quiet', '--disable-pip-version-check'], check=True)


def make_wheel(folder: Path) -> Path:
    """The wheel of the package as it is now, built aside so that nothing old gets into it; needs setuptools."""
    with tempfile.TemporaryDirectory() as aside:
        copy = Path(aside) / 'rbvae-nb'
        shutil.copytree(ROOT / 'rbvae_nb', copy / 'rbvae_nb', ignore=shutil.ignore_patterns('__pycache__'))
        for name in NEEDED: shutil.copy(ROOT / name, copy)
        pip('wheel', '--no-deps', '--no-build-isolation', '--no-index', '--wheel-dir', str(folder), str(copy))
    return next(folder.glob('rbvae_nb-*.whl'))


def add_dependencies(wheel: Path, options: str) -> None:
    """All that the package needs, beside its wheel; `options` are pip's, for another kind of machine."""
    other = ['--only-binary=:all:'] if options else []
    pip('download', '--dest', str(wheel.parent), *other, *shlex.split(options), str(wheel), 'jupyterlab')


def build_site(folder: Path) -> Path:
    """The documentation in a folder."""
    subprocess.run([sys.executable, str(ROOT / 'nbs/publish/site.py'), '--out', str(folder)], check=True)
    return folder


def readme(dependencies: str | None) -> str:
    """How to start; `dependencies` are the options of `add_dependencies`, None where there are none."""
    here = f'{sys.platform}, Python {sys.version_info[0]}.{sys.version_info[1]}'
    kind = f'pip download {dependencies}' if dependencies else here
    wheels, install = (WITHOUT, INSTALL_ALONE) if dependencies is None else (WITH.format(kind=kind), INSTALL)
    settings = (ROOT / 'settings.ini').read_text(encoding='utf-8')
    python = settings.partition('min_python =')[2].partition('\n')[0].strip()
    return START.format(wheels=wheels, install=install, python=python)


def pack(out: Path, wheels: Path, site: Path, dependencies: str | None = None) -> Path:
    """The zip file: two folders, what lies in the checkout, and how to start."""
    own = {'nbs': '*.ipynb', 'nbs/assets': '**/*', 'nbs/measure': '**/*.[cp][sn][vg]',  # tables and pictures
           'nbs/workshop': '**/*'}
    parts = {'wheels': (wheels, '**/*'), 'site': (site, '**/*')} | {name: (ROOT / name, p) for name, p in own.items()}
    with zipfile.ZipFile(out, 'w', zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr('workshop/README.txt', readme(dependencies))
        for name, (folder, pattern) in parts.items():
            for path in sorted(folder.glob(pattern)):
                inside = path.relative_to(folder)
                if path.is_file() and not any(part[0] in '._' for part in inside.parts if name != 'site'):
                    bundle.write(path, f'workshop/{name}/{inside.as_posix()}')
    return out


def main() -> None:
    """Build what is not there, and pack it."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--out', type=Path, default=Path('workshop.zip'), help='the file to write')
    parser.add_argument('--site', type=Path, help='a folder with the pages, if they are built already')
    parser.add_argument('--dependencies', nargs='?', const='', metavar='OPTIONS', help='add what the package needs')
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheels = Path(folder) / 'wheels'
        wheels.mkdir()
        wheel = make_wheel(wheels)
        if args.dependencies is not None: add_dependencies(wheel, args.dependencies)
        pack(args.out, wheels, args.site or build_site(Path(folder) / 'site'), args.dependencies)
    print(f'{args.out}: {args.out.stat().st_size / 1e6:.0f} MB')


if __name__ == '__main__': main()
