"""Hand settings.ini, the one place for metadata and dependencies, to setuptools."""
import re
from configparser import ConfigParser
from pathlib import Path

from setuptools import setup


def read_settings(path: Path = Path(__file__).with_name('settings.ini')) -> dict[str, str]:
    """Every entry of settings.ini."""
    parser = ConfigParser(delimiters=['='], interpolation=None)
    parser.read_string(path.read_text(encoding='utf-8'))
    return dict(parser['DEFAULT'])


def lines(text: str) -> list[str]:
    """The non-empty lines of a multi-line entry."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def page(root: Path = Path(__file__).parent) -> str:
    """README.md for PyPI, its links into the repository by their whole addresses, at the tag of this version."""
    def value(file: str, name: str) -> str:
        return re.search(rf'^{name} = "(.+)"', (root / file).read_text(encoding='utf-8'), re.M)[1]
    version, repository = value('rbvae_nb/__init__.py', '__version__'), value('pyproject.toml', 'Repository')
    text = (root / 'README.md').read_text(encoding='utf-8')
    for folder, view in {'nbs/assets/': 'raw', 'nbs/': 'blob'}.items():
        for opening in ('](', 'src="'):
            text = text.replace(f'{opening}{folder}', f'{opening}{repository}/{view}/v{version}/{folder}')
    return text


cfg = read_settings()
setup(
    description=cfg['description'],
    long_description=page(),
    long_description_content_type='text/markdown',
    author=cfg['author'],
    license_expression=cfg['license'],
    python_requires=f">={cfg['min_python']}",
    keywords=[word.strip() for word in cfg['keywords'].split(',')],
    classifiers=lines(cfg['classifiers']),
    install_requires=lines(cfg['requirements']),
    extras_require={key.removesuffix('_requirements'): lines(cfg[key]) for key in cfg if key.endswith('_requirements')},
    # both groups here: entry points in pyproject.toml would replace those given by setup.py
    entry_points={'console_scripts': lines(cfg['console_scripts']),
                  'nbdev': ['rbvae_nb = rbvae_nb._modidx:d']},
)
