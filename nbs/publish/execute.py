"""Run notebooks at full size and store what they show: `python nbs/publish/execute.py [notebooks]`, all by default.

(All but the exercises of the workshop, which stop at their first blank and store nothing.)

`nbdev-test --save` will not do here: it sets IN_TEST, and the notebooks would store their reduced runs.
A notebook that fails is left as it was.
"""
import base64
import os
import re
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbdev.clean import nbdev_clean
from nbdev.doclinks import nbglob

from rbvae_nb.live import palette_png

NBS = Path(__file__).resolve().parents[1]
WIDGET = 'application/vnd.jupyter.widget-view+json'


class Client(NotebookClient):
    """nbclient, leaving out the cells that nbdev leaves out (`#| eval: false`)."""
    async def async_execute_cell(self, cell, cell_index, **kwargs):
        if re.search(r'^#\|\s*eval:\s*false', cell.source, re.M): return cell
        return await super().async_execute_cell(cell, cell_index, **kwargs)


def kept(output: nbformat.NotebookNode) -> bool:
    """Whether an output belongs on the page; a widget without a picture does not, nor stderr, which is printed here."""
    if output.get('name') == 'stderr': print(f'  not stored: {output.text.strip()}', file=sys.stderr)
    widget = output.get('data', {}).pop(WIDGET, None)
    return output.get('name') != 'stderr' and (widget is None or 'image/png' in output.data)


def small_picture(png: str) -> str:
    """A base64 PNG in a palette."""
    return base64.b64encode(palette_png(base64.b64decode(png))).decode()


def execute(path: Path) -> None:
    """Run the notebook at `path` in its own folder, store its outputs, and clean it with nbdev."""
    nb = nbformat.read(path, as_version=4)
    Client(nb, timeout=None, kernel_name='python3', extra_arguments=['--log-level=ERROR'],
           resources={'metadata': {'path': str(path.parent)}}).execute()
    nb.metadata.pop('widgets', None)
    for cell in nb.cells:
        if cell.cell_type == 'code': cell.outputs = [out for out in cell.outputs if kept(out)]
        for data in (out.data for out in cell.get('outputs', []) if 'image/png' in out.get('data', {})):
            data['image/png'] = small_picture(data['image/png'])
    nbformat.write(nb, path)
    nbdev_clean.__wrapped__(fname=str(path))


def main(names: list[str]) -> None:
    """Execute the notebooks named, or all, in their order."""
    os.environ.pop('IN_TEST', None)
    os.environ['TQDM_DISABLE'] = '1'
    os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, [str(NBS.parent), os.getenv('PYTHONPATH')]))
    every = nbglob(NBS, as_path=True).sorted()
    exercises = {path.with_stem(path.stem.removesuffix('_solutions')) for path in every if '_solutions' in path.stem}
    for path in map(Path, names) if names else [path for path in every if path not in exercises]:
        start = time.time()
        execute(path)
        print(f'{path.name}: {time.time() - start:.0f} s')


if __name__ == '__main__': main(sys.argv[1:])
