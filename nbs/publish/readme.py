"""Write README.md from nbs/index.ipynb: `python nbs/publish/readme.py` (`nbdev-readme` would need Quarto).

Cells marked `#| hide` stay out, and so does the explorer, whose script runs on the site only. Links point into nbs/.
Of the outputs only text is kept: the notebook shows pictures by Markdown, from nbs/assets/.
"""
import re
from pathlib import Path

import nbformat
from nbconvert import MarkdownExporter

NBS = Path(__file__).resolve().parents[1]
NOTICE = '<!-- Generated from nbs/index.ipynb by nbs/publish/readme.py: edit the notebook. -->\n\n'
DIRECTIVES = re.compile(r'\A(?:#\|.*\n?)+')
RELATIVE_LINK = re.compile(r'(\]\(|src="|href=")(?![a-z][a-z0-9+.-]*:|[/#])')


def visible(cell: nbformat.NotebookNode) -> bool:
    """Whether a reader of README.md sees the cell."""
    directives = DIRECTIVES.match(cell.source)
    hidden = directives and re.search(r'#\|\s*(hide|default_exp)\b', directives[0])
    return cell.cell_type != 'raw' and not hidden and 'id="live"' not in cell.source


def is_text(output: nbformat.NotebookNode) -> bool:
    """Whether Markdown can hold the output: a stream, or data without a picture or HTML."""
    return not any(mime.startswith('image/') or mime == 'text/html' for mime in output.get('data', {}))


def clean(cell: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The cell without directives, its links seen from the repository's root, its outputs text only."""
    cell.source = DIRECTIVES.sub('', cell.source)
    if cell.cell_type == 'markdown': cell.source = RELATIVE_LINK.sub(rf'\1{NBS.name}/', cell.source)
    else: cell.outputs = [output for output in cell.outputs if is_text(output)]
    return cell


def readme(index: Path = NBS / 'index.ipynb') -> str:
    """What README.md must hold."""
    nb = nbformat.read(index, as_version=4)
    nb.cells = [clean(cell) for cell in nb.cells if visible(cell)]
    nb.metadata.language_info = {'name': 'python'}  # the language of the code fences
    text, _ = MarkdownExporter().from_notebook_node(nb)
    return NOTICE + re.sub(r'\n{3,}', '\n\n', text).strip() + '\n'


if __name__ == '__main__':
    (NBS.parent / 'README.md').write_text(readme(), encoding='utf-8', newline='\n')
