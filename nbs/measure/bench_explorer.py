"""How fast explorer, live page and site are, and whether they leak: `python nbs/measure/bench_explorer.py`.

Into bench-explorer.csv beside it: a kernel's answer to one slider move and the page's own (both models each), 200 times
after a warm-up; what process and page have grown by after 1,000 moves; three builds of the site, the first with the
live page's files made afresh. Needs a Chromium, node and npm.
"""
import functools
import gc
import http.server
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pandas as pd
from playwright.sync_api import Page, sync_playwright

from rbvae_nb.digits import digit_styles
from rbvae_nb.explorer import START, explore
from rbvae_nb.live import write_live
from rbvae_nb.methods import load

NBS = Path(__file__).resolve().parents[1]
PAGE = """<!doctype html><link rel="icon" href="data:,"><div id="live"></div>
<script type="module" src="live/live.js"></script>"""
MOVE = '''async n => {
    const range = document.querySelector('.rbvae-model input'), root = document.querySelector('.rbvae'), times = [];
    for (let i = 0; i < n; i++) {
        const before = root.dataset.frame, start = performance.now();
        range.value = i % 7 - 3; range.dispatchEvent(new Event('input'));
        while (root.dataset.frame === before) await new Promise(requestAnimationFrame);
        times.push(performance.now() - start); }
    return times; }'''
DRAW = '''n => { const model = document.getElementById('live').live, request = model.get('request');
    return Array.from({length: n}, () => {
        const start = performance.now();
        model.sides.forEach((side, m) => side.picture(request, request.moves[m]));
        return performance.now() - start; }); }'''


def row(what: str, values: list[float], unit: str) -> dict:
    """One line of the file."""
    return dict(what=what, median=statistics.median(values), least=min(values), most=max(values), unit=unit,
                times=len(values))


def megabytes() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # kB on Linux


def in_kernel() -> list[dict]:
    """A slider's move, answered by Python."""
    explorer = explore(load('rbvae'), load('srbvae'), digit_styles())
    def move(i: int) -> float:
        moves = [{'e': [i % 7 - 3, 0, 0, 0], 'z': [0, 0, 0, 0]}] * 2
        start = time.perf_counter()
        explorer.canvas.request = {**START, 'id': i + 1, 'moves': moves}
        return 1000 * (time.perf_counter() - start)
    for i in range(100): move(i)
    times = [move(100 + i) for i in range(200)]
    gc.collect()
    before = megabytes()
    for i in range(1000): move(300 + i)
    return [row('kernel: a move, both models', times, 'ms'),
            row('kernel: grown after 1,000 moves', [megabytes() - before], 'MB')]


def heap(page: Page) -> float:
    """Megabytes in use after a collection."""
    session = page.context.new_cdp_session(page)
    session.send('HeapProfiler.collectGarbage')
    return session.send('Runtime.getHeapUsage')['usedSize'] / 1e6


def in_page(folder: Path) -> list[dict]:
    """The same, answered by the page itself."""
    write_live(folder / 'live')
    (folder / 'index.html').write_text(PAGE)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        found = next(filter(None, map(shutil.which, ('chromium', 'chromium-browser', 'google-chrome'))), None)
        page = playwright.chromium.launch(executable_path=found, args=['--no-sandbox']).new_page()
        page.goto(f'http://127.0.0.1:{server.server_port}/')
        page.wait_for_selector('.rbvae[data-frame]')
        page.evaluate(MOVE, 100)
        rows = [row('page: both models decoded', page.evaluate(DRAW, 200), 'ms'),
                row('page: a move until it is drawn', page.evaluate(MOVE, 200), 'ms')]
        before = heap(page)
        page.evaluate(MOVE, 1000)
        rows.append(row('page: grown after 1,000 moves', [heap(page) - before], 'MB'))
    server.shutdown()
    return rows


def build(out: Path) -> float:
    """Seconds for the site."""
    start = time.perf_counter()
    command = [sys.executable, str(NBS / 'publish/site.py'), '--out', str(out)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    """All of it, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        rows = in_kernel() + in_page(Path(folder))
        shutil.rmtree(NBS.parent / 'build' / 'live', ignore_errors=True)
        rows.append(row('site: built, live files made afresh', [build(Path(folder) / 'site')], 's'))
        rows.append(row('site: built', [build(Path(folder) / 'site') for _ in range(2)], 's'))
    pd.DataFrame(rows).round(2).to_csv(Path(__file__).with_name('bench-explorer.csv'), index=False)


if __name__ == '__main__': main()
