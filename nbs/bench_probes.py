"""How long probes take and how much memory: `python nbs/bench_probes.py`, into assets/bench-probes.csv.

Folds of the paper's size, 5,000 images to fit and 5,000 to judge, with 32 code dimensions that know digit and style
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

PROBES = ('style linear', 'digit linear', 'style curved', 'digit curved')


def once(probe: str) -> tuple[float, float]:
    """Seconds and megabytes of one fit and judgement."""
    import sklearn.linear_model, sklearn.model_selection, sklearn.multioutput, sklearn.pipeline, sklearn.svm  # noqa: E401, F401
    from rbvae_nb.digits import factor_values, sample_style
    from rbvae_nb.probing import digit_hits, style_errors
    rng = np.random.default_rng(0)
    digit, style = rng.integers(0, 10, 10_000), factor_values(sample_style(10_000, rng))
    known = np.column_stack([style, np.eye(10)[digit]])
    code = np.tanh(known @ rng.normal(size=(15, 32))) + rng.normal(size=(10_000, 32)) * .5
    what, kind = probe.split()
    ask, target = (style_errors, style) if what == 'style' else (digit_hits, digit)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    ask(code[:5000], target[:5000], code[5000:], target[5000:], curved=kind == 'curved')
    return time.perf_counter() - start, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024  # kB on Linux


def main() -> None:
    """All probes, three times each."""
    rows = []
    for probe in PROBES:
        runs = []
        for _ in range(3):
            with ProcessPoolExecutor(1) as pool: runs.append(pool.submit(once, probe).result())
        seconds, megabytes = zip(*runs)
        rows.append(dict(probe=probe, images=5000, dimensions=32, seconds=statistics.median(seconds), least=min(seconds), most=max(seconds), megabytes=max(megabytes)))
    pd.DataFrame(rows).round(2).to_csv(Path(__file__).resolve().parent / 'assets' / 'bench-probes.csv', index=False)


if __name__ == '__main__': main()
