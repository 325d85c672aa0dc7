"""Probes of planted codes whose right answer is known, with numbers and classes mixed."""
from collections.abc import Callable

import numpy as np
import pytest
import torch
from rbvae_nb.experiments import Experiment, Split
from rbvae_nb.images import ImageSets
from rbvae_nb.methods import Method
from rbvae_nb.probing import (best_split, bootstrap, classify, combined_score, explained, factor_columns, interval,
                              one_hot, probe, regress, scores)

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


def test_intervals_are_those_of_the_mean():
    """Of all images the mean; 95 % of resampled means within 1.96 standard errors."""
    values = np.random.default_rng(0).gamma(2., size=2000)
    value, low, high = interval(bootstrap({('made',): values})['made',])
    half = 1.96 * values.std() / 2000 ** .5
    assert value == values.mean() and (value - low) / half == pytest.approx(1, abs=.1)
    assert (high - value) / half == pytest.approx(1, abs=.1)


def test_all_quantities_are_drawn_again_together():
    """Of two that differ by a constant in each image, all means differ by it; another seed is another draw."""
    values = np.random.default_rng(0).normal(size=50)
    draws = bootstrap({('one',): values, ('other',): values + 2}, n=20)
    assert draws['one',].shape == (21,) and draws['other',] - draws['one',] == pytest.approx(2)
    assert not np.allclose(bootstrap({('one',): values}, n=20, seed=1)['one',][1:], draws['one',][1:])


def test_explained_is_the_square_of_a_correlation():
    """For one value; and the share of what several, independent ones add."""
    rng = np.random.default_rng(0)
    values, codes = rng.normal(size=(400, 2)), rng.normal(size=(400, 3))
    codes[:, 1:] += values * [1, 3]
    one = [np.corrcoef(values[:, 0], column)[0, 1] ** 2 for column in codes.T]
    assert explained(codes, values[:, :1]) == pytest.approx(np.array(one))
    assert explained(codes, values) == pytest.approx([0, .5, .9], abs=.06)
    assert explained(codes * 0 + 1, values) == pytest.approx(1)  # a constant leaves nothing to explain


@pytest.mark.parametrize('e, z, value', [((1, 0), (0, 1), 1), ((.7, .4), (.7, .4), .5), ((0, 0), (1, 1), .5),
                                         ((0, 0), (0, 1), .75), ((0, 1), (1, 0), 0), ((-.5, -.1), (.2, .3), .525)])
def test_the_combined_score_of_known_shares(e: tuple, z: tuple, value: float):
    """What each code knows of the target and of the identity; less than chance is nothing."""
    known = {'chance': (0, 0), 'e': e, 'z': z}
    draws = {(code, 'target'): np.full(3, .2 * (1 - t)) for code, (t, _) in known.items()}
    draws |= {(code, 'identity'): np.full(3, .1 + .9 * i) for code, (_, i) in known.items()}
    assert combined_score(draws) == pytest.approx(np.full(3, value))


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


def test_a_number_that_only_a_nonlinear_probe_finds():
    """Hidden as the distance from the centre, in a direction that is random."""
    def circle(split: Split) -> np.ndarray:
        angle = np.random.default_rng(len(split)).uniform(0, 2 * np.pi, len(split))
        return (1 + split.factors['lamp'][:, None]) * np.column_stack([np.cos(angle), np.sin(angle)])
    wrong = {nonlinear: score(nonlinear, z=circle)['z', 'lamp'].mean() for nonlinear in (False, True)}
    assert wrong[False] > .24 and wrong[True] < .06


@pytest.mark.parametrize('nonlinear', [False, True])
@pytest.mark.parametrize('what', ['numbers', 'classes'])
def test_units_do_not_matter(what: str, nonlinear: bool):
    """One dimension in thousandths, and one moved far away; and whatever else is in the split that tests."""
    rng, units, away = np.random.default_rng(3), np.array([1, 1000, 1]), np.array([0, 0, 40])
    code, test = rng.normal(size=(300, 3)), rng.normal(size=(200, 3)) * [1, 3, 1]
    def predict(fit: np.ndarray, test: np.ndarray) -> np.ndarray:
        if what == 'numbers': return regress(fit, np.sin(2 * code), test, nonlinear)
        return classify(fit, np.where(code[:, 0] + code[:, 1] > 0, 'above', 'below'), test, nonlinear)
    plain, other = predict(code, test), predict(code * units + away, test * units + away)
    assert np.allclose(plain, other, atol=1e-6) if what == 'numbers' else (plain == other).mean() > .99
    with_others = predict(code, np.concatenate([test, 100 + test]))[:len(test)]
    assert np.allclose(plain, with_others) if what == 'numbers' else (plain == with_others).all()


@pytest.mark.parametrize('e, z, value', [(factor_columns, persons, 1), (everything, everything, .5),
                                         (noise, noise, .5), (persons, factor_columns, 0)],
                         ids=['ideal', 'everything in both', 'nothing in either', 'mirrored'])
def test_the_combined_score_of_known_codes(e: Callable, z: Callable, value: float):
    assert combined_score(bootstrap(score(e=e, z=z), n=0))[0] == pytest.approx(value, abs=.03)


def test_best_split_finds_the_dimensions_of_the_target():
    """Views of the factors and of the persons in turn, in one code."""
    rng, small = np.random.default_rng(0), numbers_alone(200)
    def views(values: np.ndarray) -> np.ndarray: return values @ rng.normal(size=(values.shape[1], 3))
    code = np.stack([views(factor_columns(small)), views(persons(small))], 2).reshape(len(small), 6)
    assert best_split(code, small).tolist() == [True, False] * 3
    with pytest.raises(ValueError, match='at least two dimensions to divide, got 1'): best_split(code[:, :1], small)


def test_best_split_judges_on_other_images_than_it_fits():
    """Forty dimensions of noise beside the target: on the images that fitted a probe, they would help it."""
    small, rng = numbers_alone(120), np.random.default_rng(0)
    target = factor_columns(small)
    code = np.column_stack([target + .3 * rng.normal(size=target.shape), persons(small), rng.normal(size=(120, 40))])
    serves = best_split(code, small)
    assert serves[:2].all() and not serves[2:6].any() and serves[6:].sum() < 10


def numbers_alone(n: int) -> Split:
    """The first images, without the factors that are classes."""
    return Split(FIT.images[:n], {name: FIT.factors[name][:n] for name in FIT.numbers}, FIT.labels[:n])


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
    error = np.abs(TEST.factors['lamp'] - np.median(FIT.factors['lamp'])).mean()
    assert table.loc['chance', 'lamp'] == pytest.approx(error)
    assert (probe(Planted(), Experiment(sets, FIT, test), nonlinear=True) != table).any(axis=None)


@pytest.mark.parametrize('where, says', [('smile', "'rare'"), ('glasses', '7'), ('person', "'rare'")])
def test_a_class_with_a_single_image_is_refused(where: str, says: str):
    values, labels = dict(FIT.factors), FIT.labels.copy()
    changed = labels if where == 'person' else values[where].copy()
    changed[0] = 7 if where == 'glasses' else 'rare'
    if where != 'person': values[where] = changed
    fit = Split(FIT.images, values, labels)
    with pytest.raises(ValueError, match=f'^expected at least two images of each class .*, got one of {says}$'):
        scores({'z': everything(FIT)}, fit, {'z': everything(TEST)}, TEST)
