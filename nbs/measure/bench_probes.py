"""How long probes take and how much memory: `python nbs/measure/bench_probes.py`, into bench-probes.csv beside it.

Splits of the paper's size, 5,000 images to fit and 5,000 to test, with 32 code dimensions that know digit and style
through noise. Each probe runs three times, each time in a process of its own: median, least and most seconds, and the
most that the process grew beyond what it had with data and libraries loaded.
"""
import resource
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd

PROBES = ('style linear', 'digit linear', 'style nonlinear', 'digit nonlinear')


def noisy_codes() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes (10,000, 32), and what they know: styles (10,000, 5) and digits (10,000,)."""
    from rbvae_nb.digits import factor_values, sample_style
    rng = np.random.default_rng(0)
    digit = rng.integers(0, 10, 10_000)
    style = np.column_stack([*factor_values(sample_style(10_000, rng)).values()])
    known = np.column_stack([style, np.eye(10)[digit]])
    code = np.tanh(known @ rng.normal(size=(15, 32))) + rng.normal(size=(10_000, 32)) * .5
    return code, style, digit


def once(probe: str) -> tuple[float, float]:
    """Seconds and megabytes of one fit and its predictions."""
    import sklearn.linear_model
    import sklearn.model_selection
    import sklearn.multioutput
    import sklearn.pipeline
    import sklearn.svm  # noqa: F401  # loaded before the clock starts

    from rbvae_nb.probing import classify, regress
    code, style, digit = noisy_codes()
    what, kind = probe.split()
    ask, known = (regress, style) if what == 'style' else (classify, digit)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    ask(code[:5000], known[:5000], code[5000:], nonlinear=kind == 'nonlinear')
    seconds = time.perf_counter() - start
    return seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024  # kB on Linux


def thrice(probe: str) -> dict:
    """One line of the file."""
    runs = []
    for _ in range(3):
        with ProcessPoolExecutor(1) as pool: runs.append(pool.submit(once, probe).result())
    seconds, megabytes = zip(*runs)
    return dict(probe=probe, images=5000, dimensions=32, seconds=statistics.median(seconds), least=min(seconds),
                most=max(seconds), megabytes=max(megabytes))


if __name__ == '__main__':
    table = pd.DataFrame([thrice(probe) for probe in PROBES])
    table.round(2).to_csv(Path(__file__).with_name('bench-probes.csv'), index=False)
