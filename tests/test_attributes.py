"""The attribute classifier, on coloured patches whose place, colour and brightness are known."""
from pathlib import Path

import numpy as np
import pytest
import torch
from rbvae_nb.attributes import (AttributeClassifier, classified, classifier_for, classifier_loss, load_classifier,
                                 new_classifier, partners, save_classifier, swap, swap_bounds, swap_scores,
                                 train_classifier)
from rbvae_nb.experiments import Experiment, Split
from rbvae_nb.images import ImageSets
from rbvae_nb.methods import Method, load
from rbvae_nb.vae import VAE

PLACES, COLOURS = np.array(['above left', 'above right', 'below left', 'below right']), np.array([3, 5, 8])


def patches(n: int, seed: int) -> Split:
    """A patch: its place is the identity, its colour a class, its brightness a number."""
    rng = np.random.default_rng(seed)
    place, colour, light = rng.integers(0, 4, n), rng.integers(0, 3, n), rng.random(n)
    images = paint(place, colour, light)
    return Split(images, {'colour': COLOURS[colour], 'light': light.astype(np.float32)}, PLACES[place])


def paint(place: np.ndarray, colour: np.ndarray, light: np.ndarray) -> torch.Tensor:
    """The patches themselves."""
    images = torch.zeros(len(place), 3, 32, 32, dtype=torch.uint8)
    for image, p, c, bright in zip(images, place, colour, light):
        top, left = 16 * (p // 2) + 4, 16 * (p % 2) + 4
        image[c, top:top + 8, left:left + 8] = int(75 + 180 * bright)
    return images


FIT, TEST = patches(300, 0), patches(100, 1)


@pytest.fixture(scope='module')
def classifier() -> AttributeClassifier:
    return train_classifier(FIT, steps=100, batch_size=32, device='cpu')


def measured(classifier: AttributeClassifier) -> dict[str, np.ndarray]:
    """What it says of the test images."""
    labels, factors = classifier.measure(TEST.images)
    return {'identity': labels} | factors


def test_it_learns_numbers_and_classes(classifier):
    """Named as in the split: the identity in words, the colours by their integers."""
    found = measured(classifier)
    assert [*found] == ['identity', 'colour', 'light']
    assert (found['identity'] == TEST.labels).mean() > .97
    assert (found['colour'] == TEST.factors['colour']).mean() > .97
    assert np.abs(found['light'] - TEST.factors['light']).mean() < .1


def test_bytes_and_floats_are_measured_alike(classifier):
    floats = classifier.measure(TEST.images / 127.5 - 1)
    assert (floats[0] == measured(classifier)['identity']).all()
    assert floats[1]['light'] == pytest.approx(measured(classifier)['light'], abs=1e-5)


def test_a_file_measures_the_same(classifier, tmp_path: Path):
    again = load_classifier(save_classifier(classifier, tmp_path / 'classifier.safetensors'))
    for name, values in measured(classifier).items():
        assert (measured(again)[name] == values).all() and measured(again)[name].dtype == values.dtype, name


def test_files_of_something_else(classifier, tmp_path: Path):
    """A model is no classifier, and a classifier is no model."""
    model, file = VAE().save(tmp_path / 'vae.safetensors'), save_classifier(classifier, tmp_path / 'c.safetensors')
    with pytest.raises(ValueError, match='^expected a file of an attribute classifier, got something else'):
        load_classifier(model)
    with pytest.raises(ValueError, match='^expected weights of one of the methods .*, got None'): load(file)


def experiment(fit: Split = FIT) -> Experiment:
    return Experiment(ImageSets(FIT.images, TEST.images), fit, fit)


def test_an_experiment_keeps_the_classifier_it_had_to_train(tmp_path: Path):
    """Trained once: what lies in the folder is what is used afterwards. Random numbers of others are left alone."""
    before = torch.get_rng_state()
    first = classifier_for(experiment(), tmp_path, steps=3)
    assert torch.get_rng_state().equal(before) and [p.name for p in tmp_path.iterdir()] == ['classifier.safetensors']
    again = classifier_for(experiment(), tmp_path, steps=10 ** 9)
    assert all((measured(again)[name] == values).all() for name, values in measured(first).items())


@pytest.mark.parametrize('other', [
    Split(FIT.images, {'brightness': FIT.factors['light']}, FIT.labels),
    Split(FIT.images, FIT.factors, np.char.upper(FIT.labels)),
], ids=['other factors', 'other classes'])
def test_a_classifier_of_another_experiment_is_refused(tmp_path: Path, other: Split):
    classifier_for(experiment(), tmp_path, steps=1)
    with pytest.raises(ValueError, match='^expected a classifier of .*, got .*; train one, or take another folder'):
        classifier_for(experiment(other), tmp_path)


def test_a_classifier_may_know_more(tmp_path: Path):
    kept = measured(classifier_for(experiment(), tmp_path, steps=1))
    fewer = classifier_for(experiment(Split(FIT.images, {'light': FIT.factors['light']}, FIT.labels)), tmp_path)
    assert all((measured(fewer)[name] == values).all() for name, values in kept.items())


def test_images_of_another_size_are_brought_to_its_own(classifier):
    large = TEST.images.repeat_interleave(2, 2).repeat_interleave(2, 3)
    labels, factors = classifier.measure(large, batch_size=7)
    assert (labels == measured(classifier)['identity']).all()
    assert factors['light'] == pytest.approx(measured(classifier)['light'], abs=1e-5)


def test_the_loss_by_hand():
    """Cross-entropies of the classes, in words and in integers, and ten times the mean error of the numbers."""
    first, rng = FIT.rows(np.arange(50)), np.random.default_rng(0)
    split = Split(first.images, first.factors | {'size': rng.random(50)}, first.labels)  # colour, light, size
    place, colour, light, size = (rng.normal(size=(50, n)) for n in (4, 3, 1, 1))
    kinds = np.searchsorted(PLACES, split.labels), np.searchsorted(COLOURS, split.factors['colour'])
    entropy = sum(-(out - np.log(np.exp(out).sum(1, keepdims=True)))[np.arange(50), kind].mean()
                  for out, kind in zip((place, colour), kinds))
    errors = [np.abs(out[:, 0] - split.factors[name]).mean() for name, out in dict(light=light, size=size).items()]
    true = {name: torch.from_numpy(values) for name, values in (split.factors | {'colour': kinds[1]}).items()}
    out = tuple(map(torch.from_numpy, (place, colour, light, size)))
    found = classifier_loss(new_classifier(split), out, torch.from_numpy(kinds[0]), true)
    assert found.item() == pytest.approx(entropy + 10 * np.mean(errors), rel=1e-5)


# Swaps
def test_partners_are_a_permutation_without_pairs_of_one_identity():
    for seed in range(5):
        pair = partners(TEST.labels, seed)
        assert (TEST.labels[pair] != TEST.labels).all() and sorted(pair) == [*range(len(TEST))]
    assert (pair != partners(TEST.labels)).any()
    half = partners(np.array([1, 1, 2, 2, 1, 2]))
    assert {*half[[0, 1, 4]]} == {2, 3, 5}
    with pytest.raises(ValueError, match='no identity to be more than half'): partners(np.array([1, 1, 1, 2]))


class Painter(Method):
    """Reads place, colour and light from a patch, and paints one; `e` has what is to be swapped, or a part of it."""
    codes = ('z', 'e')

    def __init__(self, kind: str = 'ideal'):
        super().__init__()
        self.kind = kind

    def encode(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        """What is seen: a column for each of colour, light and place, in z and in e."""
        corners = images.unflatten(2, (2, 16)).unflatten(4, (2, 16)).amax((3, 5)).flatten(2).float()  # (N, 3, 4)
        seen = [corners.amax(2).argmax(1).float(), (corners.amax((1, 2)) - 75) / 180, corners.amax(1).argmax(1).float()]
        code = torch.stack(seen, 1)
        return {'z': code, 'e': code}

    def decode(self, z: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
        """Bytes: colour and light of e and the place of z, where it is ideal."""
        style, place = (z if self.kind == 'ignores e' else e)[:, :2], (e if self.kind == 'all in e' else z)[:, 2]
        return paint(place.long().numpy(), style[:, 0].long().numpy(), style[:, 1].clamp(0, 1).numpy())


class Single(Painter):
    """All in one code."""
    codes = ('z',)

    def encode(self, images: torch.Tensor) -> dict[str, torch.Tensor]: return {'z': super().encode(images)['e']}
    def decode(self, z: torch.Tensor) -> torch.Tensor: return super().decode(z, z)


STYLE, PLACE = np.array([True, True, False]), np.array([False, False, True])
KINDS = {  # the painter, what serves as e, and what images keep of their own
    'ideal': (Painter(), None, 'place'),
    'ignores e': (Painter('ignores e'), None, 'place and style'),
    'all in e': (Painter('all in e'), None, ''),
    'one code': (Single(), STYLE, 'place'),
    'one code, the wrong way round': (Single(), PLACE, 'style'),
}


@pytest.mark.parametrize('kind', KINDS)
def test_swaps_of_painters_who_can_paint(classifier, kind: str):
    """What the classifier finds is what the painter has taken from each image, up to its own errors."""
    model, serves, keeps = KINDS[kind]
    found = {key: values.mean() for key, values in swap_scores(model, TEST, classifier, serves).items()}
    bounds = {key: values.mean() for key, values in swap_bounds(TEST, classifier).items()}
    assert {what for what, _ in found} == {'reconstruction', 'swap', 'partner'}
    for key in ('identity', 'target', 'colour', 'light'):
        assert abs(found['reconstruction', key] - bounds['real', key]) < .01
    assert bounds['real', 'target'] < .06 and bounds['unchanged', 'target'] > .3
    assert abs(found['swap', 'target'] - bounds['unchanged' if 'style' in keeps else 'real', 'target']) < .06
    assert abs(found['swap', 'identity'] - ('place' in keeps)) < .03
    assert abs(found['partner', 'identity'] - ('place' not in keeps)) < .03


@pytest.mark.parametrize('kind', KINDS)
def test_swaps_are_the_pictures_they_should_be(kind: str):
    (model, serves, keeps), pair = KINDS[kind], partners(TEST.labels)
    place, style = (TEST if what in keeps else TEST.rows(pair) for what in ('place', 'style'))
    kinds = np.searchsorted(PLACES, place.labels), np.searchsorted(COLOURS, style.factors['colour'])
    drawn = swap(model, TEST.images, pair, serves)
    assert (drawn.int() - paint(*kinds, style.factors['light']).int()).abs().max() <= 1  # of 255


def test_reconstructions_are_looked_at_and_not_the_images(classifier):
    """Of a painter who always paints the image before."""
    class Late(Painter):
        def decode(self, z: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
            return super().decode(z.roll(1, 0), e.roll(1, 0))
    found, labels = swap_scores(Late(), TEST, classifier), measured(classifier)['identity']
    assert (found['reconstruction', 'identity'] == (np.roll(labels, 1) == TEST.labels)).all()


def test_one_code_has_nothing_to_swap(classifier):
    assert {what for what, _ in swap_scores(Single(), TEST, classifier)} == {'reconstruction'}
    with pytest.raises(ValueError, match='or say which dimensions'): swap(Single(), TEST.images, partners(TEST.labels))


def test_bounds_by_hand(classifier):
    """Errors of images that keep their own factors, against those of their partners; and of the real images."""
    bounds, giver = swap_bounds(TEST, classifier), TEST.rows(partners(TEST.labels))
    light = np.abs(TEST.factors['light'] - giver.factors['light'])
    other = TEST.factors['colour'] != giver.factors['colour']
    assert bounds['unchanged', 'light'] == pytest.approx(light) and (bounds['unchanged', 'colour'] == other).all()
    assert bounds['unchanged', 'target'] == pytest.approx((light + other) / 2)
    real = classified(classifier, TEST.images, TEST.labels, TEST.factors)
    assert all((bounds['real', factor] == values).all() for factor, values in real.items())
    assert (real['identity'] == (measured(classifier)['identity'] == TEST.labels)).all()
    assert real['light'] == pytest.approx(np.abs(measured(classifier)['light'] - TEST.factors['light']))
