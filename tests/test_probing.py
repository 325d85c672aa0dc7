"""Probes of planted codes whose right answer is known, with numbers and classes mixed."""
from collections.abc import Callable

import numpy as np
import pytest
import torch
from rbvae_nb.experiments import Experiment, Split
from rbvae_nb.images import ImageSets
from rbvae_nb.methods import Method
from rbvae_nb.probing import bootstrap, combined_score, factor_columns, one_hot, probe, scores

FACTORS = ('lamp', 'smile', 'turn', 'glasses')  # numbers and classes in turn, in no order of letters
PERSONS = np.array(['Ada', 'Emmy', 'Kurt', 'Paul'])


def planted(n: int, seed: int) -> Split:
    """Two numbers, a class in words, a class in integers, and four persons; the pixels hold nothing."""
    rng = np.random.default_rng(seed)
    smile, glasses = rng.choice(['no', 'a little', 'yes'], n, p=[.6, .3, .1]), rng.choice([3, 8], n, p=[.3, .7])
    factors = dict(zip(FACTORS, (rng.random(n), smile, rng.uniform(-1, 1, n).astype(np.float32), glasses)))
    persons = rng.choice(PERSONS, n, p=[.1, .2, .3, .4])
    return Split(torch.zeros(n, 3, 4, 4, dtype=torch.uint8), factors, persons, target='look', identity='person')


FIT, TEST = planted(400, 0), planted(300, 1)


def score(nonlinear: bool = False, fit: Split = FIT, test: Split = TEST, **codes: Callable) -> dict:
    """`scores` of codes that are functions of a split."""
    made = ({name: code(split) for name, code in codes.items()} for split in (fit, test))
    return scores(next(made), fit, next(made), test, nonlinear)


def noise(split: Split) -> np.ndarray:
    return np.random.default_rng(len(split)).normal(size=(len(split), 6))


def persons(split: Split) -> np.ndarray:
    return one_hot(split.labels)


def everything(split: Split) -> np.ndarray:
    return np.column_stack([factor_columns(split), persons(split)])


@pytest.mark.parametrize('nonlinear', [False, True])
def test_a_code_that_is_the_factors(nonlinear: bool):
    """No errors, every identity correct; and from the factors alone nobody is recognised."""
    found = score(nonlinear, all=everything, e=factor_columns)
    assert [*found] == [(code, what) for code in ('chance', 'all', 'e') for what in (*FACTORS, 'target', 'identity')]
    assert {values.shape for values in found.values()} == {(len(TEST),)}
    for code in ('all', 'e'):
        for number in ('lamp', 'turn'): assert found[code, number].mean() < (.05 if nonlinear else 1e-5)
        for kind in ('smile', 'glasses'): assert found[code, kind].max() == 0
    assert found['all', 'identity'].min() == 1
    assert (found['e', 'identity'] - found['chance', 'identity']).mean() < .05


@pytest.mark.parametrize('nonlinear', [False, True])
def test_noise_is_at_chance(nonlinear: bool):
    found = score(nonlinear, z=noise)
    for what in (*FACTORS, 'target', 'identity'):
        assert abs((found['z', what] - found['chance', what]).mean()) < .05, what


def test_chance_is_the_best_constant():
    """The median of a number, the most frequent class: of the split that fits, scored on the other."""
    found = score()
    for number in ('lamp', 'turn'):
        assert found['chance', number] == pytest.approx(abs(TEST.factors[number] - np.median(FIT.factors[number])))
    assert (found['chance', 'smile'] == (TEST.factors['smile'] != 'no')).all()
    assert (found['chance', 'glasses'] == (TEST.factors['glasses'] != 8)).all()
    assert (found['chance', 'identity'] == (TEST.labels == 'Paul')).all()


def test_an_error_is_as_large_as_it_was_planted():
    """A code that tells a number .25 too high in the test, and a class wrong in every fifth image."""
    def slipped(split: Split) -> np.ndarray:
        code, wrong = everything(split), np.arange(len(split)) % 5 == 0
        if split is TEST: code[:, 0], code[wrong, -4:] = code[:, 0] + .25, code[wrong, -4:][:, ::-1]
        return code
    found = score(z=slipped)
    assert found['z', 'lamp'] == pytest.approx(.25)
    assert (found['z', 'identity'] == (np.arange(len(TEST)) % 5 != 0)).all()
    assert found['z', 'target'] == pytest.approx(np.mean([found['z', name] for name in FACTORS], 0))


@pytest.mark.parametrize('hide', ['smile', 'person'])
def test_a_class_that_only_a_nonlinear_probe_finds(hide: str):
    """Whether two dimensions have one sign: as a target factor, and as the identity."""
    def place(split: Split) -> np.ndarray: return np.random.default_rng(len(split)).uniform(-1, 1, (len(split), 2))
    def hidden(n: int) -> Split:
        split = planted(n, n)
        sign = np.where(place(split).prod(1) > 0, 'one', 'two')
        if hide == 'person': return Split(split.images, split.factors, sign)
        return Split(split.images, {'lamp': split.factors['lamp'], 'smile': sign}, split.labels)
    fit, test = hidden(600), hidden(300)
    wrong = {nonlinear: score(nonlinear, fit, test, z=place) for nonlinear in (False, True)}
    share = {nonlinear: row['z', 'smile'].mean() if hide == 'smile' else 1 - row['z', 'identity'].mean()
             for nonlinear, row in wrong.items()}
    assert share[False] > .4 and share[True] < .1


@pytest.mark.parametrize('e, z, value', [(factor_columns, persons, 1), (everything, everything, .5),
                                         (noise, noise, .5), (persons, factor_columns, 0)],
                         ids=['ideal', 'everything in both', 'nothing in either', 'mirrored'])
def test_the_combined_score_of_known_codes(e: Callable, z: Callable, value: float):
    assert combined_score(bootstrap(score(e=e, z=z), n=0))[0] == pytest.approx(value, abs=.03)


class Planted(Method):
    """A method that knows every image by its first pixel, and gives it the code that belongs to it."""
    codes = ('z', 'e')

    def encode(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        split = (FIT, TEST)[int(images[0, 0, 0, 0])]
        return {name: torch.from_numpy(code(split)) for name, code in dict(z=persons, e=everything).items()}


def test_the_table_has_the_names_of_the_experiment_in_its_order():
    """Rows codes and chance; columns factors as they stand in the split, then target and identity with intervals."""
    test = Split(TEST.images + 1, TEST.factors, TEST.labels, target='look', identity='person')
    sets = ImageSets(TEST.images, TEST.images)
    table = probe(Planted(), Experiment(sets, FIT, test))
    assert [*table.index] == ['z', 'e', 'chance']
    assert [*table.columns] == [*FACTORS, 'look', 'look ±', 'person', 'person ±']
    assert table.loc['e', [*FACTORS, 'look', 'look ±']].max() < 1e-5
    assert (table.loc[['z', 'e'], 'person'] == 1).all() and (table.loc['z', [*FACTORS]] > .1).all()
    assert 0 < table.loc['chance', 'person ±'] < .06


@pytest.mark.parametrize('where, says', [('smile', "'rare'"), ('glasses', '7'), ('person', "'rare'")])
def test_a_class_with_a_single_image_is_refused(where: str, says: str):
    values, labels = dict(FIT.factors), FIT.labels.copy()
    changed = labels if where == 'person' else values[where].copy()
    changed[0] = 7 if where == 'glasses' else 'rare'
    if where != 'person': values[where] = changed
    fit = Split(FIT.images, values, labels)
    with pytest.raises(ValueError, match=f'^expected at least two images of each class .*, got one of {says}$'):
        scores({'z': everything(FIT)}, fit, {'z': everything(TEST)}, TEST)
