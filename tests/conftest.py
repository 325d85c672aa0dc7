"""What every run ends with: a table of the notebooks' seconds, then one line that counts passed and failed; and what
the tests in a browser share."""
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import pytest

# Before torch and OpenCV are loaded: the workers of `pytest -n 2` share the cores.
if 'PYTEST_XDIST_WORKER' in os.environ:
    for threads in ('OMP_NUM_THREADS', 'OPENCV_FOR_THREADS_NUM'): os.environ.setdefault(threads, '1')

EXIT = pytest.StashKey[int]()


def count(reporter, *outcomes: str) -> int:
    """How many reports ended in any of `outcomes`."""
    return sum(len(reporter.stats.get(outcome, [])) for outcome in outcomes)


def pytest_terminal_summary(terminalreporter) -> None:
    """The seconds each notebook took, slowest first."""
    reports = terminalreporter.stats.get('passed', []) + terminalreporter.stats.get('failed', [])
    times = [value for report in reports for name, value in report.user_properties if name == 'notebook']
    if not times: return
    terminalreporter.write_sep('=', 'notebook seconds')
    for name, seconds in sorted(times, key=lambda pair: -pair[1]):
        terminalreporter.write_line(f'{seconds:8.1f}  {name}')


def pytest_sessionfinish(session, exitstatus) -> None:
    """Keep how the session ended: a crash of pytest itself is in no report."""
    session.config.stash[EXIT] = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config) -> None:
    """The very last line: `N passed, N failed`, errors counted as failed."""
    reporter = config.pluginmanager.get_plugin('terminalreporter')
    if reporter is None or config.option.collectonly: return
    failed = count(reporter, 'failed', 'error')
    healthy = pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED
    if config.stash.get(EXIT, 0) not in healthy: failed = max(failed, 1)
    skipped = count(reporter, 'skipped', 'xfailed')
    line = f"{count(reporter, 'passed', 'xpassed')} passed, {failed} failed"
    reporter.write_line(line + (f', {skipped} skipped' if skipped else ''))


# The documentation, built once and served as GitHub Pages serves it, and a browser to read it with.
class Served(NamedTuple):
    """The built site: where it lies, where it is served, and what its build printed."""
    folder: Path
    url: str  # with the sub-path, and a slash at its end
    log: str
    built: bool  # without warnings

    @property
    def pages(self) -> list[str]:
        """The names of its pages."""
        return sorted(p.relative_to(self.folder).as_posix() for p in self.folder.rglob('*.html'))


class Quiet(SimpleHTTPRequestHandler):
    """Files from a folder, without a line on stderr for each."""
    def log_message(self, *args) -> None: pass


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The address, with a slash at its end, under which the files of a folder are served meanwhile."""
    server = ThreadingHTTPServer(('127.0.0.1', 0), partial(Quiet, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    try: yield f'http://127.0.0.1:{server.server_port}/'
    finally: server.shutdown()


def images_of(data) -> dict:
    """All images of an experiment, by where they are."""
    return dict(unlabelled=data.sets.unlabelled, reference=data.sets.reference,
                fit=data.fit.images, test=data.test.images)


def noise_folders(root: Path, n: int) -> Path:
    """`with` and `without`, n images of noise each."""
    import cv2
    import numpy as np
    rng = np.random.default_rng(0)
    for name in ('with', 'without'):
        (root / name).mkdir(parents=True)
        for i in range(n): cv2.imwrite(str(root / name / f'{i}.png'), rng.integers(0, 256, (32, 32, 3)))
    return root


@pytest.fixture(scope='session')
def site(tmp_path_factory) -> Iterator[Served]:
    """The site, built by its one command and served below a sub-path."""
    pytest.importorskip('smalldocs', reason='smalldocs (Python 3.11 or newer) builds the site')
    if not (shutil.which('node') and shutil.which('npm')): pytest.skip('node and npm typeset the formulas of the site')
    root = tmp_path_factory.mktemp('www')
    command = [sys.executable, str(Path(__file__).parents[1] / 'nbs/publish/site.py'), '--out', str(root / 'rbvae-nb')]
    run = subprocess.run(command, capture_output=True, text=True, encoding='utf-8')
    log = run.stdout + run.stderr
    assert (root / 'rbvae-nb/index.html').exists(), log
    with serving(root) as url: yield Served(root / 'rbvae-nb', f'{url}rbvae-nb/', log, run.returncode == 0)


@pytest.fixture(scope='module')  # not longer: its event loop would be in the way of the notebooks' kernels
def browser() -> Iterator:
    """A headless Chromium, playwright's `Browser`."""
    api = pytest.importorskip('playwright.sync_api', reason='playwright drives the browser')
    found = next(filter(None, map(shutil.which, ('chromium', 'chromium-browser', 'google-chrome'))), None)
    with api.sync_playwright() as playwright:
        try: chromium = playwright.chromium.launch(executable_path=found, args=['--no-sandbox'])
        except api.Error as error: pytest.skip(f'no Chromium to open pages with: {error.message.splitlines()[0]}')
        yield chromium
        chromium.close()
