"""Build the documentation from the notebooks' stored outputs: `python nbs/publish/site.py [--out _docs]`.

`_quarto.yml` describes the site and nbdev prepares the notebooks (documentation of what they export, links from
`names` to it). smalldocs lays the pages out; this file adds what a site without other origins needs: formulas are
typeset here, by npm's `katex`, and its fonts are served beside the pages. Of the notebooks only
what they export is executed; the live page's files are written from the models in the package. Needs node and npm.
"""
import argparse
import ast
import base64
import hashlib
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from functools import cache
from pathlib import Path, PurePosixPath

import nbdev.serve
from nbdev.config import nbpath2html
from nbdev.doclinks import NbdevLookup
from nbdev.processors import FilterDefaults, exec_show_docs
from smalldocs.config import as_list, load
from smalldocs.site import Page, Site

from rbvae_nb._modidx import d
from rbvae_nb.faces import drawn_faces
from rbvae_nb.live import write_live
from rbvae_nb.methods import load as load_model

SYMBOLS = d['syms']  # module → full name → (page#anchor, file)
NBS = Path(__file__).resolve().parents[1]
KATEX = '0.16.22'
KATEX_SHA512 = 'XCHRdUw4lf3SKBaJe4EvgqIuWwkPSo9XoeO8GjQW94Bp7TWv9hNhzZjZ+OH9yf1UmLygb7DIT5GSFQiyt16zYg=='
KATEX_CSS = 'katex/katex.min.css'
FORMULA = re.compile(r'<span class="math (inline|display)">\\[(\[](.*?)\\[)\]]</span>', re.S)
OTHER_FONTS = re.compile(r',\s*url\([^)]*\.(?:woff|ttf)\) format\("\w+"\)')  # every browser of today reads woff2
WEB_FONTS = re.compile(r'@import url\([^)]*\);')  # themes ask Google for theirs; we stay with the system's
TEX = re.compile(r'\\color\{\w+\}|\\(?:math\w+|text\w*|left|right|operatorname)(?![a-z])|\\[,;:!]|[\\{}]')
OWN = re.compile(r'__main__(?:<span class="op">\.</span>|\.)')  # how a signature names the notebook's own classes
EXPECTED = re.compile(r'\bformat-links$|: output-file is not read')
OPENING = re.compile(r'\A# [^\n]*\n+(?:> [^\n]*\n+)?(?=[^>\s])')  # a title cell that goes on after its subtitle
EXECUTED = {'export', 'exports', 'exporti', 'exec_doc'}
TYPESET = """
const katex = require(process.argv[1]);
require('readline').createInterface({input: process.stdin}).on('line', line => {
  const [tex, displayMode] = JSON.parse(line);
  let answer;
  try { answer = {html: katex.renderToString(tex, {displayMode})}; } catch (e) { answer = {error: e.message}; }
  console.log(JSON.stringify(answer));
});"""


class exec_exports(exec_show_docs):
    """Execute what is exported, and `show_doc`; nbdev's own executes all cells with an import, out of context."""
    def __call__(self, cell):
        if EXECUTED & set(cell.directives_) or re.search(r'^show_doc\(', cell.source, re.M): super().__call__(cell)


class DocsFilter(FilterDefaults):
    """nbdev's processors of a notebook, with ours in the place of `exec_show_docs`."""
    def base_procs(self):
        return [exec_exports if proc is exec_show_docs else proc for proc in super().base_procs()]


def fetch_katex(folder: Path) -> Path:
    """The package `katex` in `folder`, from npm (or its cache), checked against the hash above."""
    command = [shutil.which('npm'), 'pack', f'katex@{KATEX}', '--prefer-offline', '--silent']
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    archive = folder / f'katex-{KATEX}.tgz'
    found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if found != KATEX_SHA512:
        raise ValueError(f'expected katex {KATEX} with sha512 {KATEX_SHA512}, got {found}: do not build from it')
    with tarfile.open(archive) as tar:
        tar.extraction_filter = getattr(tarfile, 'data_filter', None)  # Python before 3.11.4 knows none
        tar.extractall(folder)
    return folder / 'package'


def stage_katex(package: Path, staging: Path) -> list[PurePosixPath]:
    """Style, fonts and licence of KaTeX below `staging`; returns their paths there."""
    fonts = staging / 'katex/fonts'
    fonts.mkdir(parents=True, exist_ok=True)
    for font in (package / 'dist/fonts').glob('*.woff2'): shutil.copy(font, fonts)
    shutil.copy(package / 'LICENSE', fonts.parent)
    css = (package / 'dist/katex.min.css').read_text(encoding='utf-8')
    (staging / KATEX_CSS).write_text(OTHER_FONTS.sub('', css), encoding='utf-8')
    return [PurePosixPath(p.relative_to(staging).as_posix()) for p in fonts.parent.rglob('*') if p.is_file()]


class Typesetter:
    """One node process that turns TeX into HTML and MathML, a line for a line."""
    def __init__(self, package: Path):  # the unpacked `katex`
        command = [shutil.which('node'), '-e', TYPESET, str(package / 'dist/katex.js')]
        pipe = subprocess.PIPE
        self.node = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, encoding='utf-8')
        self.cached = cache(self.ask)

    def ask(self, tex: str, display: bool) -> str:
        """The HTML of one formula; one that KaTeX cannot read is an error."""
        print(json.dumps([tex, display]), file=self.node.stdin, flush=True)
        answer = json.loads(self.node.stdout.readline())
        if 'error' in answer: raise ValueError(f'expected a formula that KaTeX reads, got {tex!r}: {answer["error"]}')
        return answer['html']

    def __call__(self, text: str) -> str:
        """`text` with each of its formulas typeset."""
        def one(m: re.Match) -> str:
            return f'<span class="math {m[1]}">{self.cached(html.unescape(m[2]), m[1] == "display")}</span>'
        return FORMULA.sub(one, text)


def readable(text: str) -> str:
    """`text` of a heading or of the search index, the commands of its formulas left out."""
    return TEX.sub('', text) if re.search(r'\\[a-zA-Z]', text) else text


def anchor_methods(text: str, page: str) -> str:
    """`text` of a page with an anchor for each method that is documented within its class: links to it end there."""
    addresses = [address.split('#') for symbols in SYMBOLS.values() for address, _ in symbols.values()]
    for anchor in {anchor for of, anchor in addresses if of == page and f'id="{anchor}"' not in text}:
        place = rf'(?=<\w+ id="{re.escape(anchor.rpartition(".")[0])}")'
        text = re.sub(place, f'<span id="{anchor}"></span>', text)
    return text


def is_lesson(src: PurePosixPath) -> bool:
    """Whether a source is a notebook to work through."""
    return src.suffix == '.ipynb' and src.stem != 'index'


class Docs(Site):
    """smalldocs' site, under Quarto's page names, and without another origin."""
    def __init__(self, *args, typeset: Typesetter, **kwargs):
        super().__init__(*args, **kwargs)
        self.warnings = [w for w in self.warnings if not EXPECTED.search(w)]
        self.typeset = typeset
        self.home = self.project.website['site-url'].rstrip('/') + '/'
        self.repo = f'{self.project.website["repo-url"]}/blob/{self.project.website["repo-branch"]}/{NBS.name}'

    def read(self, src: PurePosixPath) -> Page:
        """The page under the name that nbdev gives it: its links expect `srbvae.html`, not `09_srbvae.html`."""
        page = super().read(src)
        page.out = page.out.with_name(page.front.get('output-file', page.out.name))
        page.meta['css'] = [*as_list(page.meta.get('css')), KATEX_CSS]
        return page

    def find_page(self, target: PurePosixPath) -> Page | None:
        """The page of a source, or of its name on the site."""
        return super().find_page(target) or next((p for p in self.pages.values() if p.out == target), None)

    def resolve(self, href: str, page: Page | None, record: bool = True) -> str:
        """A link; one to this site's published address stays within the site, wherever that is."""
        return super().resolve('/' + href.removeprefix(self.home) if href.startswith(self.home) else href, page, record)

    def render_page(self, page: Page) -> None:
        """The page with its formulas typeset and, for a lesson, the link that opens it in Colab."""
        super().render_page(page)
        top = '../' * len(page.out.parent.parts)
        page.html = page.html.replace(f'href="{self.home}', f'href="{top}')  # in raw HTML
        page.html = anchor_methods(self.typeset(OWN.sub('', page.html)), str(page.out))
        if is_lesson(page.src): page.html = self.colab(page) + page.html
        page.env['math'] = False  # nothing left to typeset in the browser
        for heading in page.env.get('headings', []): heading['text'] = readable(heading['text'])
        for part in page.env.get('search', []): part |= {key: readable(part[key]) for key in ('title', 'text')}

    def colab(self, page: Page) -> str:
        """The link that opens the page's notebook in Colab."""
        url = self.repo.replace('https://github.com', 'https://colab.research.google.com/github')
        return f'<p class="colab"><a href="{url}/{page.src}">Open in Colab</a></p>\n'

    def warn(self, msg: str) -> None:
        """Keep a warning, except about what nbdev writes for Quarto and what is read above."""
        if not EXPECTED.search(msg): super().warn(msg)

    def copy_assets(self, nav) -> None:
        """smalldocs' styles and scripts, the themes without their web fonts."""
        super().copy_assets(nav)
        for css in (self.out / 'site_libs/themes').glob('*.css'):
            css.write_text(WEB_FONTS.sub('', css.read_text(encoding='utf-8')), encoding='utf-8')


def first_lines(module: Path) -> dict[str, str]:
    """What a module exports, each with the first line of its docstring, if it has one."""
    tree = ast.parse(module.read_text(encoding='utf-8')).body
    assigned = (o for o in tree if isinstance(o, ast.Assign))
    exported = next(ast.literal_eval(o.value) for o in assigned if o.targets[0].id == '__all__')
    docs = {o.name: ast.get_docstring(o) or '' for o in tree if isinstance(o, ast.FunctionDef | ast.ClassDef)}
    return {name: docs.get(name, '').partition('\n')[0] for name in exported}


def reference(pages: list[str]) -> str:
    """The page of all that is exported: modules in the order of `pages`, names with links to their documentation."""
    lookup = NbdevLookup()
    of = {module: next(iter(symbols.values()))[0].partition('#')[0] for module, symbols in SYMBOLS.items()}
    text = '---\ntitle: API reference\ndescription: Every exported name, and where it is explained\n---\n'
    for module in sorted(of, key=lambda module: pages.index(of[module])):
        text += f'\n## [`{module}`]({of[module]})\n\n'
        for name, line in first_lines(NBS.parent / (module.replace('.', '/') + '.py')).items():
            address = SYMBOLS[module].get(f'{module}.{name}', (of[module],))[0]
            text += f'- [`{name}`]({address}){": " * bool(line)}{lookup.linkify(line)}\n'
    return text


def cut_openings(names: list[str]) -> list[str]:
    """A warning for each notebook that nbdev would shorten: it keeps title and subtitle of the first cell only."""
    notebooks = {name: json.loads((NBS / name).read_text(encoding='utf-8')) for name in names}
    first = {name: ''.join(nb['cells'][0]['source']) for name, nb in notebooks.items()}
    return [f'{name}: expected only title and subtitle in the first cell, got more text, which is lost: '
            'move it to a cell of its own' for name, text in first.items() if OPENING.match(text)]


def live_files() -> Path:
    """A folder with what the live page fetches; it takes a while, so it is made again only for another package."""
    files = sorted(p for p in (NBS.parent / 'rbvae_nb').rglob('*') if p.is_file() and p.suffix != '.pyc')
    folder = NBS.parent / 'build/live' / hashlib.sha256(b''.join(p.read_bytes() for p in files)).hexdigest()[:16]
    if not folder.exists():
        made = folder.with_suffix('.unfinished')
        write_live(made / 'live', start=2)
        write_live(made / 'live-faces', load_model('rbvae-faces'), load_model('srbvae-faces'), drawn_faces(),
                   start=9)
        made.rename(folder)
    return folder


def build(out: Path) -> Site:
    """The site in the folder `out`, which is emptied first."""
    nbdev.serve.FilterDefaults = DocsFilter
    staging = nbdev.serve.proc_nbs(force=True, n_workers=0)  # afresh: pages depend on the package too
    names = sorted(p.relative_to(staging).as_posix() for p in staging.rglob('*.ipynb'))
    pages = [nbpath2html(Path(name)).as_posix() for name in names]
    (staging / 'reference.md').write_text(reference(pages), encoding='utf-8')
    shutil.copytree(live_files(), staging / 'assets', dirs_exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        katex = fetch_katex(Path(folder))
        site = Docs(load(staging), quiet=True, typeset=Typesetter(katex))
        site.resources.update(stage_katex(katex, staging))
        site.out = out.resolve()
        site.build()
    for warning in cut_openings(names): site.warn(warning)
    written = site.out / 'reference.html'  # by this file, so it is the one to edit
    text = written.read_text(encoding='utf-8').replace('nbs/reference.md', 'nbs/publish/site.py')
    written.write_text(text, encoding='utf-8')
    return site


def main() -> None:
    """Build, and say what is not right."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--out', type=Path, default=NBS.parent / '_docs', help='the folder for the site')
    out = parser.parse_args().out.absolute()
    for tool in ('node', 'npm'):
        if not shutil.which(tool): sys.exit(f'expected {tool} on the PATH for the formulas, got none; install Node.js')
    os.chdir(NBS)  # where the notebooks run
    site = build(out)
    print(f'{len(site.pages)} pages in {out}')
    if site.warnings: sys.exit('\n'.join(site.warnings))


if __name__ == '__main__': main()
