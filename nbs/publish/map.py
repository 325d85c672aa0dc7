"""Draw nbs/assets/map.svg, the map of the lessons: `python nbs/publish/map.py`.

A box for each notebook, section by section; the shade says which of three ways through pass it.
"""
from html import escape
from pathlib import Path

NBS = Path(__file__).resolve().parents[1]
TARGET = NBS / 'assets/map.svg'
HOUR = ['01', '13b', '03b', '09c']
DAY = [*HOUR, '02b', '03', '03a', '03c', '04', '05', '06', '07', '07a', '08', '09', '09d', '10', '11b', '12']
LADDER = {'05': 'VAE', '08': 'Rb-VAE', '09': 'sRb-VAE'}
STEPS = [('+ reference images,', 'a second code'), ('+ the reverse', 'divergence')]  # above and below each arrow
SECTIONS = {'The setting': '00 01 02', 'The mathematics': '03', 'The building blocks': '04 05 06 07',
            'The methods': '08 09 10', 'The comparison': '11', 'In use': '12 13 14 15 16'}
SHADES = {'hour': ('#1f4e85', 'white'), 'day': ('#cfe2f5', 'black'), 'all': ('white', 'black')}  # box, text
WIDTH, COLUMNS, HEIGHT, GAP = 480, 4, 26, 6


def lessons() -> dict[str, str]:
    """Number and name of each lesson."""
    named = (p.stem.split('_', 1) for p in sorted(NBS.glob('[0-9]*.ipynb')))
    return {number: LADDER.get(number, name.replace('_', ' ')) for number, name in named}


def path_of(number: str) -> str:
    """The shortest way through that passes a lesson."""
    return 'hour' if number in HOUR else 'day' if number in DAY else 'all'


def box(x: float, y: float, width: float, text: str, path: str, thick: bool = False) -> str:
    """A box with text in its middle."""
    fill, colour = SHADES[path]
    edge = 'stroke="#d2691e" stroke-width="3"' if thick else 'stroke="#8a96a3"'
    return (f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{HEIGHT}" rx="5" fill="{fill}" {edge}/>'
            f'<text x="{x + width / 2:g}" y="{y + HEIGHT / 2 + 4:g}" text-anchor="middle" fill="{colour}">'
            f'{escape(text)}</text>')


def words(x: float, y: float, text: str, style: str = '') -> str:
    """Text that begins at a point."""
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(text)}</text>'


def ladder(y: float) -> list[str]:
    """VAE, Rb-VAE and sRb-VAE, each with what it adds to the one before."""
    drawn, width, gap = [], 84, (WIDTH - 20 - 3 * 84) / 2
    for i, (number, name) in enumerate(LADDER.items()):
        x = 10 + i * (width + gap)
        drawn.append(box(x, y, width, f'{number} {name}', 'day', thick=True))
        if i == len(STEPS): break
        drawn.append(f'<path d="M{x + width + 4:g} {y + HEIGHT / 2:g}h{gap - 12:g}m-6 -4l6 4l-6 4" fill="none" '
                     'stroke="#d2691e" stroke-width="2"/>')
        for text, down in zip(STEPS[i], (-6, 15)):
            drawn.append(words(x + width + gap / 2, y + HEIGHT / 2 + down, text, 'text-anchor="middle" font-size="10"'))
    return drawn


def legend(y: float) -> list[str]:
    """What the shades mean."""
    drawn = []
    for i, (path, text) in enumerate({'hour': 'in an hour', 'day': 'in a day', 'all': 'optional'}.items()):
        drawn.append(box(10 + 156 * i, y, 148, text, path))
    return drawn


def section(title: str, numbers: list[str], y: float) -> list[str]:
    """The lessons of one section, in rows."""
    names, width = lessons(), (WIDTH - 20 - (COLUMNS - 1) * GAP) / COLUMNS
    drawn = [words(10, y - 6, title, 'font-weight="bold"')]
    for i, number in enumerate(numbers):
        place = 10 + i % COLUMNS * (width + GAP), y + i // COLUMNS * (HEIGHT + GAP)
        drawn.append(box(*place, width, f'{number} {names[number]}', path_of(number), number in LADDER))
    return drawn


def svg() -> str:
    """The map."""
    y = 10.
    drawn = [*legend(y), *ladder(y := y + HEIGHT + 24)]
    for title, starts in SECTIONS.items():
        numbers = [number for number in lessons() if number[:2] in starts.split()]
        drawn += section(title, numbers, y := y + HEIGHT + 30)
        y += (len(numbers) - 1) // COLUMNS * (HEIGHT + GAP)
    height = y + HEIGHT + 10
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" font-size="11.5" '
            'font-family="system-ui, Segoe UI, Roboto, Noto Sans, DejaVu Sans, sans-serif">'
            f'<rect width="{WIDTH}" height="{height:g}" fill="white"/>' + '\n'.join(drawn) + '</svg>\n')


if __name__ == '__main__': TARGET.write_text(svg(), encoding='utf-8', newline='\n')
