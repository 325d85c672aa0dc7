"""The estimator by scikit-learn's own checks, as far as they apply to images, and by what an image array can be."""
import pickle
from collections import Counter

import numpy as np
import pytest
import torch
from rbvae_nb.estimator import ReferenceDisentangler, from_squares, to_squares
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

EXPECTED = {'check_methods_subset_invariance': 'in batches of another size float32 rounds a few sums otherwise'}


class OnRows(ReferenceDisentangler):
    """For scikit-learn's checks, whose X is any table: each row is an image of one line, the reference set is X."""
    def _takes_rows(self) -> bool: return True

    def _as_images(self, X: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-np.clip(X.astype(float), -50, 50)))[:, None, :]

    def fit(self, X, y=None): return super().fit(X, y, reference=X)


def test_scikit_learns_checks():
    """All that scikit-learn has for a transformer of tables; what does not apply is named above, with its reason."""
    results = check_estimator(OnRows('rbvae', steps=1, device='cpu'), expected_failed_checks=EXPECTED, on_skip=None)
    ended = Counter(result['status'] for result in results)
    assert ended['passed'] >= 40 and ended['xfail'] <= len(EXPECTED)
    assert {result['check_name'] for result in results if result['status'] == 'skipped'} <= {'check_array_api_input'}


@pytest.fixture(scope='module')
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (30, 24, 40, 3), dtype=np.uint8)


@pytest.fixture(scope='module')
def fitted(images) -> ReferenceDisentangler:
    return ReferenceDisentangler('rbvae', steps=2, device='cpu').fit(images, reference=images[:9])


def test_codes_and_names(fitted, images):
    codes, model = fitted.transform(images), fitted.model_
    expected = model.encode(to_squares(images))
    assert np.allclose(codes, np.column_stack([expected['z'], expected['e']]), atol=1e-6)
    names = [f'z{i}' for i in range(model.dim_z)] + [f'e{i}' for i in range(model.dim_e)]
    assert list(fitted.get_feature_names_out()) == names
    for code in 'ez':
        alone = clone(fitted).set_params(code=code).fit(images, reference=images[:9])
        columns = [name.startswith(code) for name in names]
        assert np.array_equal(alone.transform(images), codes[:, columns])
        assert list(alone.get_feature_names_out()) == [name for name in names if name.startswith(code)]
        with pytest.raises(ValueError, match="expected code='both' to draw images"): alone.inverse_transform(codes)


def test_images_come_back_in_their_shape(fitted, images):
    codes = fitted.transform(images)
    drawn = fitted.inverse_transform(codes)
    assert drawn.shape == images.shape and 0 <= drawn.min() and drawn.max() <= 1
    z, e = torch.from_numpy(codes).split([48, 8], 1)
    assert np.allclose(drawn, from_squares(fitted.model_.decode(z=z, e=e), (24, 40, 3)))


def test_rows_are_images(fitted, images):
    """Of a table, with the shape told: the same codes and, in rows, the same images."""
    rows = images.reshape(30, -1)
    other = clone(fitted).set_params(image_shape=(24, 40, 3)).fit(rows, reference=rows[:9])
    codes = other.transform(rows)
    assert np.array_equal(codes, fitted.transform(images))
    assert np.allclose(other.inverse_transform(codes), fitted.inverse_transform(codes).reshape(30, -1))


def test_bytes_and_floats_are_the_same_images(images):
    for floats in (images / 255, images / np.float32(255)): assert to_squares(images).equal(to_squares(floats))
    grey = images[..., 0]
    assert to_squares(grey).equal(to_squares(np.repeat(grey[..., None], 3, 3)))


def test_one_seed_one_model(images):
    def codes(seed) -> np.ndarray:
        made = ReferenceDisentangler('rbvae', steps=2, random_state=seed, device='cpu')
        return made.fit(images, reference=images[:9]).transform(images)
    assert np.array_equal(codes(3), codes(3)) and not np.allclose(codes(3), codes(4))


def test_the_reference_set_is_the_reference_set(images, monkeypatch):
    """X is what varies, `reference` is what does not."""
    from rbvae_nb import estimator
    seen = []
    monkeypatch.setattr(estimator, 'train', lambda model, sets, **_: seen.append(sets))
    ReferenceDisentangler('rbvae').fit(images, reference=images[:9] // 2)
    assert seen[0].unlabelled.equal(to_squares(images)) and seen[0].reference.equal(to_squares(images[:9] // 2))


def test_it_survives_pickling(fitted, images):
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).transform(images), fitted.transform(images))


def test_a_failed_fit_leaves_no_model(images):
    for failing in (dict(steps=0), dict(method='vae')):
        made = ReferenceDisentangler(**dict(method='rbvae', steps=1, device='cpu') | failing)
        with pytest.raises(ValueError): made.fit(images, reference=images)
        with pytest.raises(NotFittedError): made.transform(images)


@pytest.mark.parametrize('change', [lambda x: x[:, :, :20], lambda x: x[:, :20], lambda x: x[..., 0]])
def test_images_of_another_shape(change, fitted, images):
    said = 'features, but ReferenceDisentangler is expecting'
    with pytest.raises(ValueError, match=said): fitted.transform(change(images))
    with pytest.raises(ValueError, match=said): clone(fitted).fit(images, reference=change(images))


@pytest.mark.parametrize('wrong, reason', [
    (dict(method='vae'), 'a method with two codes'), (dict(method='pca'), 'one of the methods'),
    (dict(code='y'), "code 'e', 'z' or 'both'"), (dict(image_shape=(9, 9)), 'dim 4'), (dict(steps=0), 'at least 1')])
def test_wrong_settings(wrong: dict, reason: str, images):
    with pytest.raises(ValueError, match=reason):
        ReferenceDisentangler(**dict(method='rbvae', steps=1, device='cpu') | wrong).fit(images, reference=images)


@pytest.mark.parametrize('change, reason', [
    (lambda x: x * 1., r'got values from 0 to 255'), (lambda x: x / 255 - 1e-3, 'got values from -0.001'),
    (lambda x: np.where(x > 9, np.nan, x / 255), 'NaN'), (lambda x: x[:1], 'minimum of 2'),
    (lambda x: -(x % 2).astype(np.int8), 'got values from -1'),
    (lambda x: x[..., :2], 'expected images'), (lambda x: x.reshape(30, -1), 'rows of pixels need an image_shape')])
def test_wrong_images(change, reason: str, images):
    with pytest.raises(ValueError, match=reason):
        ReferenceDisentangler('rbvae', steps=1, device='cpu').fit(change(images), reference=images)


def test_no_reference_images(images):
    with pytest.raises(ValueError, match=r'^expected reference images, got none; call fit\(X, reference=R\)$'):
        ReferenceDisentangler().fit(images)
