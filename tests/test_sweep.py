"""What a sweep asks of a model, and how it chooses a setting."""
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from rbvae_nb import sweep
from rbvae_nb.attributes import classifier_for
from rbvae_nb.digits import digit_styles
from rbvae_nb.experiments import Experiment, Split
from rbvae_nb.probing import best_split, bootstrap, combined_score, encode_split, factor_columns, one_hot, scores
from rbvae_nb.sweep import choose, validation_score
from rbvae_nb.vae import VAE


def few(split: Split) -> Split:
    """160 images of two digits: probes of ten classes take many times as long."""
    return split.rows(np.flatnonzero(np.isin(split.labels, [0, 1]))[:160])


@pytest.fixture(scope='module')
def digits() -> Experiment:
    return digit_styles()


def known_codes(fit: Split) -> dict[str, np.ndarray]:
    """Codes that tell their own and nothing of the other's."""
    return {'e': factor_columns(fit), 'z': one_hot(fit.labels)}


def as_one(codes: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A single code, which has to be divided."""
    return {'z': np.column_stack([codes['z'], codes['e']])}


@pytest.mark.parametrize('form', [dict, as_one], ids=['two codes', 'one code'])
def test_the_validation_score_of_known_codes(form, digits):
    """1 for codes that know their own; ½ or less where what is judged has been shuffled, not what fits."""
    fit = few(digits.fit)
    codes, rng = known_codes(fit), np.random.default_rng(0)
    assert validation_score(form(codes), fit)[0] > .97
    shuffled = np.r_[np.arange(80), 80 + rng.permutation(80)]
    assert validation_score(form({code: values[shuffled] for code, values in codes.items()}), fit)[0] < .55


def test_the_validation_score_of_exchanged_codes(digits):
    fit = few(digits.fit)
    e, z = known_codes(fit).values()
    assert validation_score({'e': z, 'z': e}, fit)[0] < .03


def test_the_half_that_is_judged_has_no_part_in_the_division(digits, monkeypatch):
    fit, seen = few(digits.fit), []
    monkeypatch.setattr(sweep, 'best_split', lambda code, split: seen.append(code) or best_split(code, split))
    codes = as_one(known_codes(fit))
    validation_score(codes, fit)
    assert [code.tolist() for code in seen] == [codes['z'][:80].tolist()]


def test_what_is_asked_of_a_model(digits):
    """Every number of a real model's rows once more, from the functions that it is made of."""
    data = replace(digits, fit=few(digits.fit), test=few(digits.test))
    model = VAE.preset('small', 0, dim_z=3)[0].eval()
    rows = pd.DataFrame(sweep.measure(model, data, classifier_for(digits)))
    rows = rows.set_index(['measure', 'code', 'factor']).value
    (own, fit), (others, test) = ((encode_split(model, split), split) for split in data.splits())
    serves = best_split(own['z'], fit)
    parts = [{'as e': codes['z'][:, serves], 'as z': codes['z'][:, ~serves]} for codes in (own, others)]
    for name, nonlinear in (('linear', False), ('nonlinear', True)):
        found = scores(parts[0], fit, parts[1], test, nonlinear)
        for (code, factor), values in found.items():
            if code != 'chance': assert rows[name, code, factor] == pytest.approx(values.mean()), (name, code, factor)
        assert rows[name, '', 'score'] == pytest.approx(combined_score(bootstrap(found, 0), 'as e', 'as z')[0])
    assert rows['validation', '', 'score'] == pytest.approx(validation_score(own, fit)[0])


def test_the_largest_validation_score_is_chosen():
    """By its mean over the seeds, for each method apart, whatever else the rows say."""
    made = [('beta_vae', 'beta=2', .5, .9), ('beta_vae', 'beta=5', .8, .1), ('svae', 'beta=2', .7, .6),
            ('svae', 'beta=5', .3, .8), ('vae', '', .9, .9)]
    rows = [dict(method=method, setting=setting, measure=measure, value=value)
            for method, setting, *values in made for measure, value in zip(('validation', 'linear'), values)]
    assert choose(pd.DataFrame(rows)) == {'beta_vae': 5., 'svae': 2.}
