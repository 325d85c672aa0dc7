"""The embedded digits are MNIST's own, and no digit is in two places."""
import hashlib
import os
from importlib import resources

import numpy as np
import pytest
import torch
from rbvae_nb import digits
from rbvae_nb.images import to_bytes, to_float

MNIST = os.environ.get('RBVAE_MNIST')
# SHA-256 of the chosen rows of MNIST's image files, computed from the originals
SHA256 = {'train': 'c816438c49d37b89eee2a7e4342aca3c54e94703ca1189946f440c62882142e3',
          'test': '1ddff123affffeee53ff30096a4c04e20d384d2678c58bbf5287831760425579'}


@pytest.fixture(scope='module')
def embedded() -> dict[str, np.ndarray]:
    with resources.files('rbvae_nb').joinpath('data/digits.npz').open('rb') as f:
        return dict(np.load(f, allow_pickle=False))


@pytest.mark.parametrize('part', ['train', 'test'])
def test_embedded_pixels_have_the_original_hash(embedded, part):
    assert hashlib.sha256(embedded[part].tobytes()).hexdigest() == SHA256[part]


@pytest.mark.skipif(not MNIST, reason='RBVAE_MNIST names no folder with the full MNIST')
def test_embedded_digits_are_bit_identical_to_mnist(embedded):
    full = digits.load_digits(MNIST)
    for part in ('train', 'test'):
        where = embedded[f'{part}_where']
        assert (getattr(full, part)[where] == embedded[part]).all()
        assert (getattr(full, f'{part}_digit')[where] == embedded[f'{part}_digit']).all()


@pytest.mark.skipif(not MNIST, reason='RBVAE_MNIST names no folder with the full MNIST')
def test_full_mnist_makes_the_papers_pools():
    data = digits.digit_styles(64, source=MNIST)
    parts = data.sets.reference, data.sets.unlabelled, data.fit, data.test
    assert [len(part) for part in parts] == [30_000, 60_000, 5_000, 5_000]


def test_no_digit_is_in_two_places(monkeypatch):
    """With styling switched off, each image of `digit_styles` is its digit's number."""
    def numbered(n: int) -> np.ndarray: return np.arange(n * 784).reshape(n, 28, 28)
    raw = digits.RawDigits(numbered(40), np.arange(40) % 10, numbered(20) + 10 ** 6, np.arange(20) % 10)
    seen = {}
    def remember(name: str):
        def images(plain: np.ndarray, *style) -> torch.Tensor:
            seen.setdefault(name, []).append(plain[:, 0, 0])
            n = len(style[0].width) if name == 'styled' else len(plain)
            return torch.zeros(n, 3, 32, 32, dtype=torch.uint8)
        return images
    monkeypatch.setattr(digits, 'load_digits', lambda source: raw)
    monkeypatch.setattr(digits, 'reference_images', remember('reference'))
    monkeypatch.setattr(digits, 'styled_images', remember('styled'))
    data = digits.digit_styles(n_styles=3)
    (reference,), (unlabelled, fit, test) = seen['reference'], seen['styled']
    parts = [set(part.tolist()) for part in (reference, unlabelled, fit, test)]
    assert [len(part) for part in parts] == [20, 20, 10, 10]
    assert len(set.union(*parts)) == 60
    assert len(data.sets.unlabelled) == 3 * 20
    for split, plain in ((data.fit, fit), (data.test, test)):  # and each keeps its label
        assert (split.labels == raw.test_digit[(plain - 10 ** 6) // 784]).all()


def test_bytes_survive_the_way_to_floats_and_back():
    every = torch.arange(256, dtype=torch.uint8).repeat(3, 2).reshape(2, 3, 16, 16)
    assert to_bytes(to_float(every)).equal(every)
    assert to_float(every).min() == -1 and to_float(every).max() == 1


def test_small_images_are_the_large_ones_reduced_by_area():
    large, small = (digits.digit_styles(size, n_styles=1).test.images.float() for size in (64, 32))
    assert (torch.nn.functional.avg_pool2d(large, 2) - small).abs().max() <= 1
