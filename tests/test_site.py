"""The documentation: built by its one command, served below a sub-path, and read in a browser."""
import gzip
import importlib.util
import json
import re
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

ROOT = Path(__file__).parents[1]
REPO = 'github.com/rbvae-nb/rbvae-nb'
NOTEBOOKS = sorted(p for p in (ROOT / 'nbs').rglob('*.ipynb') if not re.search(r'/[._]', f'/{p.relative_to(ROOT)}'))
LESSONS = [p for p in NOTEBOOKS if p.stem != 'index']
LIVE = 'index.html', 'live.html'  # pages with the explorer
LOOK = """() => {
  const all = selector => [...document.querySelectorAll(selector)];
  const prose = document.querySelector('main').cloneNode(true);
  prose.querySelectorAll('pre, code, script, style, .katex').forEach(e => e.remove());
  return {
    title: document.title,
    links: all('a[href]').map(a => a.href),
    sidebar: all('.sidebar-menu-container a[href]').map(a => a.href),
    ids: all('[id]').map(e => e.id),
    images: all('img').map(i => [i.currentSrc.slice(0, 90), i.complete && i.naturalWidth]),
    formulas: all('.katex-html').map(e => [e.textContent.slice(0, 40), e.offsetWidth, e.offsetHeight]),
    unread: all('.katex-error').map(e => e.textContent),
    prose: prose.textContent,
    text: document.querySelector('main').innerText,
    loose: all('main code').filter(e => !e.closest('a, pre')).map(e => e.textContent)};
}"""

CUT = """() => {
  const scrolls = e => e.tagName !== 'MAIN'
    && (getComputedStyle(e).overflowX !== 'visible' || scrolls(e.parentElement));
  const out = [...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1);
  return out.filter(e => !scrolls(e)).map(e => e.outerHTML.slice(0, 80));
}"""


def page_name(notebook: Path) -> str:
    """The name of a notebook's page: nbdev drops the number."""
    from nbdev.config import nbpath2html
    return nbpath2html(notebook.relative_to(ROOT / 'nbs')).as_posix()


def watched(page, site) -> list[str]:
    """What goes wrong on a page, filled as it happens."""
    wrong, own = [], (site.url, 'data:', 'blob:')
    page.on('console', lambda m: wrong.append(m.text) if m.type in ('error', 'warning') else None)
    page.on('pageerror', lambda error: wrong.append(str(error)))
    def failed(request) -> None:
        aborted = request.failure == 'net::ERR_ABORTED'  # a favicon, as one goes on to the next page
        if not aborted: wrong.append(f'failed: {request.url}')
    page.on('requestfailed', failed)
    page.on('response', lambda r: wrong.append(f'{r.status}: {r.url}') if r.status >= 400 else None)
    page.on('request', lambda r: None if r.url.startswith(own) else wrong.append(f'foreign: {r.url}'))
    return wrong


def look(page, address: str, wrong: list[str]) -> dict:
    """What one page says and holds, and what went wrong on the way."""
    wrong.clear()
    page.goto(address, wait_until='load')
    page.evaluate('document.fonts.ready')
    return page.evaluate(LOOK) | {'wrong': [*wrong]}


@pytest.fixture(scope='module')
def seen(browser, site) -> dict[str, dict]:
    """`look` at every page, as a reader does who goes from one to the next."""
    page = browser.new_page()
    wrong = watched(page, site)
    found = {name: look(page, site.url + name, wrong) for name in site.pages}
    page.close()
    return found


def anchors(seen, name: str) -> set[str]:
    """Where a link into a page may point."""
    return {'', *seen[name]['ids']}


def test_built_without_a_warning(site):
    assert site.built, site.log


def test_every_notebook_has_its_page_and_place(site, seen):
    def place(p: Path) -> tuple:
        return p.stem != 'index', not p.stem.endswith('live'), p.parts[:-1], p.stem != 'teacher', p.name
    ordered = sorted(NOTEBOOKS, key=place)
    expected = [site.url + page_name(p) for p in ordered] + [site.url + 'reference.html']
    assert seen['index.html']['sidebar'] == expected
    for before, after in pairwise(ordered):
        assert site.url + page_name(after) in seen[page_name(before)]['links']


def test_pages_open_without_an_error_or_a_foreign_request(seen):
    assert {name: page['wrong'] for name, page in seen.items() if page['wrong']} == {}


def test_internal_links_and_anchors_resolve(site, seen):
    broken = []
    origin = site.url.removesuffix('rbvae-nb/')
    for name, page in seen.items():
        for link in {link for link in page['links'] if link.startswith(origin)}:
            address, anchor = urldefrag(link)
            target = unquote(address.removeprefix(site.url)) or 'index.html'
            if target in seen: found = unquote(anchor) in anchors(seen, target)
            else: found = (site.folder / target).is_file()
            if not (found and address.startswith(site.url)): broken.append((name, link))
    assert broken == []


def test_own_pages_are_linked_within_the_site(site, seen):
    pages = {p.name: p.read_text(encoding='utf-8').partition('<main')[2] for p in site.folder.glob('*.html')}
    assert [name for name, text in pages.items() if 'href="https://rbvae-nb.github.io' in text] == []
    assert {link for page in seen.values() for link in page['links'] if 'rbvae-nb.github.io' in link} == set()


def test_images_load(seen):
    assert sum(len(page['images']) for page in seen.values()) > 20
    assert [(name, src) for name, page in seen.items() for src, width in page['images'] if not width] == []


def test_mathematics_is_typeset(seen):
    formulas = [(name, *formula) for name, page in seen.items() for formula in page['formulas']]
    assert len(formulas) > 200
    assert [f for f in formulas if min(f[2:]) <= 0] == []
    assert [(name, page['unread']) for name, page in seen.items() if page['unread']] == []


def test_no_raw_formula_is_left(seen):
    raw = re.compile(r'.{0,30}(?:\$\$|\$[^$\s]+\$|\\math|\\color|\\[()\[\]]).{0,40}')
    assert {(name, m[0]) for name, page in seen.items() for m in raw.finditer(page['prose'])} == set()


def test_signatures_name_classes_as_readers_do(seen):
    assert [name for name, page in seen.items() if '__main__.' in page['text']] == []
    assert 'Split | None' in seen['experiments.html']['text']


def test_nothing_of_the_machine_is_told(site):
    secret = re.compile('|'.join(map(re.escape, {str(ROOT), str(Path.home()), str(site.folder)})))
    told = [(p.name, m[0]) for p in site.folder.glob('*.*') for m in secret.finditer(p.read_text(encoding='utf-8'))]
    assert told == []


def test_lessons_open_in_colab_and_can_be_edited(seen):
    for lesson in LESSONS:
        path, links = lesson.relative_to(ROOT).as_posix(), seen[page_name(lesson)]['links']
        colab = REPO.replace('github.com', 'https://colab.research.google.com/github')
        assert f'{colab}/blob/main/{path}' in links, path
        assert f'https://{REPO}/edit/main/{path}' in links, path
        assert f'https://{REPO}/issues/new' in links, path


def test_names_are_linked_to_their_documentation(site, seen):
    from rbvae_nb._modidx import d
    symbols = {full.removeprefix(f'{module}.'): address.split('#')
               for module, names in d['syms'].items() for full, (address, _) in names.items()}
    loose = {(name, c) for name, page in seen.items() for c in page['loose'] if c.removesuffix('()') in symbols}
    assert loose == set()
    public = {name: address for name, address in symbols.items() if '_' not in (name[0], name.split('.')[-1][0])}
    assert [name for name, (page, anchor) in public.items() if anchor not in anchors(seen, page)] == []
    linked = {link for page in seen.values() for link in page['links']}
    assert [name for name, to in public.items() if '.' not in name and site.url + '#'.join(to) not in linked] == []


def test_search_finds_a_word_and_opens_it(browser, site):
    page = browser.new_page()
    page.goto(site.url + 'reference.html')
    page.fill('#quarto-search input', 'degenerate solution')
    page.locator('.search-result').first.click()
    page.wait_for_url(lambda url: 'reference.html' not in url)
    assert 'degenerate' in page.inner_text('main').lower()
    page.close()


def test_search_index_is_readable(site):
    entries = json.loads((site.folder / 'search.json').read_text(encoding='utf-8'))
    raw = [entry for entry in entries if re.search(r'\\(?:mathbf|color)', entry['text'] + entry['section'])]
    assert [entry['text'][:80] for entry in raw] == []


def luminance(page) -> float:
    """How light the page's background is, from 0 to 255."""
    page.wait_for_timeout(200)
    colour = page.evaluate('getComputedStyle(document.body).backgroundColor')
    return sum(map(int, re.findall(r'\d+', colour)[:3])) / 3


def test_dark_mode_follows_the_system_and_the_toggle(browser, site):
    for scheme in ('light', 'dark'):
        context = browser.new_context(color_scheme=scheme)
        page = context.new_page()
        page.goto(site.url)
        light = luminance(page) > 128
        assert light == (scheme == 'light')
        page.click('.quarto-color-scheme-toggle')
        assert (luminance(page) > 128) != light
        page.reload()
        assert (luminance(page) > 128) != light, 'the choice is forgotten'
        context.close()


def test_pages_fit_a_phone(browser, site):
    context = browser.new_context(viewport={'width': 390, 'height': 844}, has_touch=True)
    page, wide, cut = context.new_page(), {}, {}
    for name in site.pages:
        page.goto(site.url + name, wait_until='load')
        if name in LIVE: page.wait_for_selector('.rbvae[data-frame]')
        wide[name], cut[name] = page.evaluate('document.documentElement.scrollWidth'), page.evaluate(CUT)
    context.close()
    assert {name: width for name, width in wide.items() if width > 390} == {}
    found = {name: elements for name, elements in cut.items() if elements}
    assert found == {}, 'wide things do not scroll in their own box'


def test_text_is_there_without_javascript(browser, site, seen):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    for name in site.pages:
        page.goto(site.url + name, wait_until='load')
        text = page.inner_text('main')
        assert len(text) > .9 * len(seen[name]['text']) or name in LIVE, name
        assert len(text) > 200, name
    context.close()


@pytest.mark.parametrize('name', LIVE)
def test_live_page_without_javascript_keeps_picture_and_sentence(browser, site, name):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(site.url + name, wait_until='load')
    assert page.locator('#live img').bounding_box()['width'] > 300
    assert 'switch JavaScript on' in page.inner_text('#live')
    context.close()


def test_live_page_is_light(browser, site):
    """Text compressed, as GitHub Pages sends it: little more than a megabyte, two when somebody has drawn."""
    page, sizes = browser.new_page(), {}
    def weigh(response):
        text = re.search(r'\.(html|css|js|json|svg)$', response.url)
        sizes[response.url] = len(gzip.compress(response.body()) if text else response.body())
    page.on('response', weigh)
    page.goto(site.url + 'live.html')
    page.wait_for_selector('.rbvae[data-frame]')
    page.wait_for_load_state('networkidle')
    assert sum(sizes.values()) < 1.2e6, sizes
    page.get_by_text('Draw a digit').click()
    page.locator('.rbvae-pad canvas').click()
    page.get_by_role('button', name='Use it').click()
    page.wait_for_function("document.getElementById('live').live.encoded")
    for _ in range(100):  # the last bodies are weighed when they have been handed over
        if sum(sizes.values()) > 1.5e6: break
        page.wait_for_timeout(100)
    assert 1.5e6 < sum(sizes.values()) < 2.3e6 and not any('live-faces' in url for url in sizes), sizes
    page.close()


def test_live_page_has_faces_in_a_second_tab(browser, site):
    page = browser.new_page()
    page.goto(site.url + 'live.html')
    page.wait_for_selector('.rbvae[data-frame]')
    page.get_by_role('tab', name='Faces').click()
    page.get_by_role('tabpanel', name='Faces').locator('.rbvae[data-frame]').wait_for()
    assert not page.get_by_role('tabpanel', name='Digits').is_visible()
    page.close()


# What the build refuses, by its functions

@pytest.fixture(scope='module')
def build(site):
    """nbs/publish/site.py as a module."""
    spec = importlib.util.spec_from_file_location('build_site', ROOT / 'nbs/publish/site.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_formulas_come_from_the_package_we_know(build, tmp_path, monkeypatch):
    monkeypatch.setattr(build, 'KATEX_SHA512', 'another')
    with pytest.raises(ValueError, match='do not build'): build.fetch_katex(tmp_path)


def test_cut_opening_is_told(build, tmp_path, monkeypatch):
    monkeypatch.setattr(build, 'NBS', tmp_path)
    for name, text in dict(whole='# T\n\n> s', cut='# T\n\n> s\n\nmore').items():
        (tmp_path / f'{name}.ipynb').write_text(json.dumps({'cells': [{'source': [text]}]}), encoding='utf-8')
    assert [w.partition(':')[0] for w in build.cut_openings(['whole.ipynb', 'cut.ipynb'])] == ['cut.ipynb']


def test_live_files_are_made_again_for_another_package(build, tmp_path, monkeypatch):
    (tmp_path / 'rbvae_nb').mkdir()
    monkeypatch.setattr(build, 'NBS', tmp_path / 'nbs')
    monkeypatch.setattr(build, 'write_live', lambda folder, *_, **__: folder.mkdir(parents=True))
    for name in ('load_model', 'drawn_faces'): monkeypatch.setattr(build, name, lambda *_: None)
    folders = []
    for text in ('a', 'a', 'b'):
        (tmp_path / 'rbvae_nb/x.py').write_text(text)
        folders.append(build.live_files())
    assert folders[0] == folders[1] != folders[2]
    assert {path.name for path in folders[2].iterdir()} == {'live', 'live-faces'}
