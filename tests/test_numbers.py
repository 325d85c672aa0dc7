"""Numbers in prose come from committed files."""
from pathlib import Path

import pandas as pd
import pytest
from rbvae_nb.methods import METHODS
from rbvae_nb.sweep import read_rows
from rbvae_nb.table import number, over_seeds

ROOT = Path(__file__).resolve().parents[1]
SEEDS = pd.concat([pd.read_csv(ROOT / 'nbs/measure' / f'probes-seed{seed}.csv') for seed in (0, 1, 2)])
CODES = {'Rb-VAE': 'rbvae', 'sRb-VAE': 'srbvae'}


def spread(values: pd.Series, form) -> str:
    """Mean over the seeds, and their range."""
    return f'{form(values.mean())} ({form(values.min())} to {form(values.max())})'


def error(value: float) -> str: return f'{value:.3f}'.lstrip('0')
def percent(value: float) -> str: return f'{value:.0%}'.replace('%', ' %')


def row(title: str) -> str:
    """The line of the README's table for one model."""
    of = {code: SEEDS[(SEEDS.model == CODES[title]) & (SEEDS.code == code)] for code in 'ez'}
    cells = [spread(of[code][what], form) for what, form in (('style', error), ('digit', percent)) for code in 'ez']
    return f'| {title} | ' + ' | '.join(cells) + ' |'


@pytest.mark.parametrize('title', CODES)
def test_readme_has_the_numbers_of_the_three_seeds(title):
    assert len(SEEDS[SEEDS.model == CODES[title]]) == 6
    assert row(title) in (ROOT / 'README.md').read_text(encoding='utf-8'), row(title)


def scores() -> str:
    """The README's table of combined scores, best first."""
    summary = over_seeds(read_rows(ROOT / 'nbs/measure/table/table.csv'))
    keys = [key for key in summary.index if key[2:] == ('', 'linear', 'score')]
    of = {key: summary.loc[key].value for key in keys if key[0] in ('mathieu', *CODES.values())}
    best_first = sorted(of, key=of.get, reverse=True)
    lines = [f'| {METHODS.find(key[0]).title} | {number(summary, *key)} |' for key in best_first]
    return '\n'.join(['| | combined score |', '|---|---|', *lines])


def test_readme_has_the_other_side():
    """The best of the split codes, single codes on the paper's probe, and swaps that lose the digit."""
    summary = over_seeds(read_rows(ROOT / 'nbs/measure/table/table.csv'))
    split = summary.xs(('', 'linear', 'score'), level=('code', 'measure', 'factor'))
    split = split.drop([*CODES.values(), 'mathieu'], level='method')
    best, = (key for key in summary.index if key[:2] == split.value.idxmax() and key[2:] == ('', 'linear', 'score'))
    style = summary.xs(('linear', 'target'), level=('measure', 'factor')).value.droplevel('setting')
    assert (style.xs('z', level='code').drop([*CODES.values(), 'mathieu']) < style['srbvae', 'e']).all()
    kept = summary.xs(('swap', 'identity'), level=('measure', 'factor')).value.droplevel(['setting', 'code'])
    text = (f'{METHODS.find(best[0]).title} has one code; when the labels of 2,000 images cut it in two, its score is '
            f'{number(summary, *best)}.', f'in a swap {error(kept.srbvae)} of the time, Rb-VAE {error(kept.rbvae)} ')
    for part in text: assert part in (ROOT / 'README.md').read_text(encoding='utf-8'), part


def test_readme_has_the_scores_of_the_table():
    assert scores() in (ROOT / 'README.md').read_text(encoding='utf-8'), scores()


def test_readme_has_the_controlled_scores():
    """From the lowest to the highest of three seeds; of the six losses, one."""
    score = pd.read_csv(ROOT / 'nbs/measure/controlled.csv').set_index(['cell', 'seed']).score
    low, high = (score.groupby('cell').agg(of) for of in ('min', 'max'))
    def said(cell: str) -> str:
        assert [*score[cell].index] == [0, 1, 2]
        return f'{error(low[cell])} to {error(high[cell])}'
    text = (f"{said('sRb-VAE')} for sRb-VAE, {said('Eq. 3')} for Eq. 3, and {said('without (a, b)')} for sRb-VAE "
            f"without its adversarial terms. ", f"most of the additions ({error(score['six losses', 0])})")
    for part in text: assert part in (ROOT / 'README.md').read_text(encoding='utf-8'), part


def test_readme_has_what_a_kernel_reads():
    read = pd.read_csv(ROOT / 'nbs/measure/controlled.csv').set_index(['cell', 'seed'])['target z, rbf']
    ours, rb = read['sRb-VAE'], read['Rb-VAE']
    assert len(ours) == 3 and len(rb) == 1
    said = (f'an error of {error(ours.min())} to {error(ours.max())} for sRb-VAE and {error(rb[0])} for Rb-VAE '
            '(three runs')
    assert said in (ROOT / 'README.md').read_text(encoding='utf-8'), said
