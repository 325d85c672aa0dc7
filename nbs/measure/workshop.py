"""How long the workshop's notebooks take: `OMP_NUM_THREADS=1 python nbs/measure/workshop.py`.

Runs the solutions of each session from top to bottom at full size, as `execute.py` does, and stores nothing in them. A
row of workshop.csv beside this file: seconds of the whole notebook (a fresh kernel and all imports included), of the
imports and of loading data and models, of the slowest cell after these, and its first line; the cores of the machine,
the threads of each notebook, and how many processes were waiting for a core when it began (the load of the last
minute): above the number of cores, others were working beside it. A few minutes in all.
"""
import os
import sys
import time
from pathlib import Path

import nbformat
import pandas as pd
from nbclient import NotebookClient
from rows import put_rows, rounded

HERE = Path(__file__).resolve().parent
RESULTS = HERE / 'workshop.csv'


def seconds_of(path: Path) -> tuple[float, list[tuple[float, str]]]:
    """Seconds of a whole notebook, and of each of its cells of code, with its first line that is no comment."""
    nb, cells, began = nbformat.read(path, as_version=4), [], {}

    def note(cell, cell_index) -> None: began[cell_index] = time.perf_counter()

    def done(cell, cell_index, execute_reply) -> None:
        line = next(line for line in cell.source.splitlines() if line[:1] not in ('#', ''))
        cells.append((time.perf_counter() - began[cell_index], line))

    start = time.perf_counter()
    NotebookClient(nb, timeout=None, kernel_name='python3', on_cell_execute=note, on_cell_executed=done,
                   resources={'metadata': {'path': str(path.parent)}}).execute()
    return time.perf_counter() - start, cells


def row(path: Path) -> dict:
    """What is measured of one session."""
    load = os.getloadavg()[0] if hasattr(os, 'getloadavg') else float('nan')  # Windows has none
    whole, cells = seconds_of(path)
    start, rest = cells[:3], cells[3:]  # for Colab, imports, data and models
    slowest, line = max(rest)
    return dict(session=path.stem.removesuffix('_solutions'), seconds=whole, start=sum(s for s, _ in start),
                slowest=slowest, cell=line, cores=os.cpu_count(), threads=int(os.environ['OMP_NUM_THREADS']), load=load)


if __name__ == '__main__':
    os.environ.pop('IN_TEST', None)
    os.environ.setdefault('OMP_NUM_THREADS', '1')
    os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, [str(HERE.parents[1]), os.getenv('PYTHONPATH')]))
    for path in sorted((HERE.parent / 'workshop').glob(f'{sys.argv[1] if sys.argv[1:] else ""}*_solutions.ipynb')):
        found = rounded(pd.DataFrame([row(path)]).set_index('session'), 1)
        put_rows(found, RESULTS)
        print(found.T.to_string(), flush=True)
