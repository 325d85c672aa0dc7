"""Write what participants of the workshop get: `python nbs/publish/workshop.py`.

The notebooks `nbs/workshop/*_solutions.ipynb` are the source. Without the solutions they are the exercises: between
`### BEGIN SOLUTION` and `### END SOLUTION` (the marks of nbgrader) what follows an assignment or a `return` becomes
`...`, and other lines go; cells that open with `**Answer.**` go, and so does all that is stored. The votes of all
sessions, paragraphs that open with `**Vote 1.2.**`, make `sheet.html`, a page to print.
"""
import copy
import html
import re
from pathlib import Path

import nbformat

WORKSHOP = Path(__file__).resolve().parents[1] / 'workshop'
REGION = re.compile(r'^( *)### BEGIN SOLUTION\n(.*?)^ *### END SOLUTION(?:\n|\Z)', re.M | re.S)
VOTE = re.compile(r'^\*\*Vote (\d)\.(\d)\.\*\* (.+)$', re.M)
ENDS = ', with solutions', '_solutions'  # of a title, of a file


def sources() -> list[Path]:
    """The notebooks with solutions, in their order."""
    return sorted(WORKSHOP.glob(f'*{ENDS[1]}.ipynb'))


def exercise_path(source: Path) -> Path:
    """Where the exercises of a notebook with solutions lie."""
    return source.with_stem(source.stem.removesuffix(ENDS[1]))


def blanks(region: re.Match) -> str:
    """What stands in the place of a solution."""
    indent = region[1]
    opening = re.compile(rf'{indent}(?:def .*: return |return |[^\s=#][^=]* = )')
    kept = [found[0] for line in region[2].splitlines() if (found := opening.match(line))]
    return ''.join(f'{line}...\n' for line in kept or [indent])


def exercises(nb: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """A notebook with solutions without them."""
    nb = copy.deepcopy(nb)
    nb.cells = [cell for cell in nb.cells if not cell.source.startswith('**Answer.**')]
    nb.cells[0].source = nb.cells[0].source.replace(ENDS[0], '', 1)
    nb.metadata['nbdev'] = {'skip_exec': 'true'}  # it stops at the first blank; tests/test_workshop.py runs it
    for cell in nb.cells:
        if cell.cell_type == 'code': cell.update(outputs=[], execution_count=None)
        cell.source = REGION.sub(blanks, cell.source).rstrip('\n')
    return nb


def votes(nb: nbformat.NotebookNode) -> list[tuple[str, str]]:
    """The numbers of a notebook's votes, and what is asked, as HTML."""
    found = [m for cell in nb.cells if cell.cell_type == 'markdown' for m in VOTE.finditer(cell.source)]
    return [(f'{m[1]}.{m[2]}', in_html(m[3])) for m in found]


def in_html(text: str) -> str:
    """A line of Markdown (bold, italic, code) as HTML."""
    text = html.escape(text, quote=False)
    for mark, tag in ((r'\*\*', 'b'), (r'\*', 'i'), ('`', 'code')):
        text = re.sub(f'{mark}(.+?){mark}', rf'<{tag}>\1</{tag}>', text)
    return text


STYLE = """@page { size: A4; margin: 8mm 10mm; }
body { font: 9.5pt/1.3 "Segoe UI", "Noto Sans", "Liberation Sans", Arial, Helvetica, sans-serif; color: #111;
       background: #fff; max-width: 190mm; margin: 1rem auto; padding: 0 1rem; }
h1 { font-size: 1.5em; margin: 0; } p { margin: .3rem 0; } .name { float: right; font-size: .7em; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
td, th { border: 1px solid #999; padding: .5mm 1.2mm; vertical-align: top; text-align: left; }
th { background: #eee; white-space: nowrap; } td:nth-child(n+3) { min-width: 17mm; } tr { break-inside: avoid; }
@media print { body { font-size: 7.8pt; line-height: 1.15; margin: 0; padding: 0; max-width: none; }
               .screen { display: none; } .wide { overflow: visible; } }"""
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<link rel="icon" href="data:,"><title>Workshop: prediction sheet</title><style>
{style}
</style></head><body><main>
<p class="screen">Print this page on one sheet of A4.</p>
<h1>Prediction sheet <small class="name">Name: ____________________</small></h1>
<p>Write each guess before you run the cell that answers it, then what came out. A wrong guess is worth as much as a
right one: note what surprised you. For the sentences of 3.8 and 4.5 take the back.</p>
<div class="wide"><table>
{rows}
</table></div>
</main></body></html>
"""


def sheet(notebooks: list[nbformat.NotebookNode]) -> str:
    """The page to print: all votes, with room for guesses and for what came out."""
    rows = []
    for nb in notebooks:
        title = nb.cells[0].source.partition('\n')[0].removeprefix('# ').removesuffix(ENDS[0])
        rows.append(f'<tr><th></th><th>{html.escape(title)}</th><th>my guess</th><th>outcome</th></tr>')
        rows += [f'<tr><td>{number}</td><td>{text}</td><td></td><td></td></tr>' for number, text in votes(nb)]
    return PAGE.format(style=STYLE, rows='\n'.join(rows))


def texts() -> dict[Path, str]:
    """What must lie in nbs/workshop, beside the notebooks with solutions and the teacher's page."""
    notebooks = {path: nbformat.read(path, as_version=4) for path in sources()}
    made = {exercise_path(path): nbformat.writes(exercises(nb)) + '\n' for path, nb in notebooks.items()}
    return made | {WORKSHOP / 'sheet.html': sheet(list(notebooks.values()))}


if __name__ == '__main__':
    for path, text in texts().items(): path.write_text(text, encoding='utf-8', newline='\n')
