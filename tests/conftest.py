"""What every run ends with: a table of the notebooks' seconds, then one line that counts passed and failed."""
import pytest

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
    if config.stash.get(EXIT, 0) not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED): failed = max(failed, 1)
    skipped = count(reporter, 'skipped', 'xfailed')
    line = f"{count(reporter, 'passed', 'xpassed')} passed, {failed} failed"
    reporter.write_line(line + (f', {skipped} skipped' if skipped else ''))
