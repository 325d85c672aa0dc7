"""The attribute classifier, on coloured patches whose place, colour and brightness are known."""
from pathlib import Path

import numpy as np
import pytest
import torch
from rbvae_nb.attributes import AttributeClassifier, classifier_for, load_classifier, save_classifier, train_classifier
from rbvae_nb.experiments import Experiment, Split
from rbvae_nb.images import ImageSets
from rbvae_nb.methods import load
from rbvae_nb.vae import VAE

PLACES, COLOURS = np.array(['above left', 'above right', 'below left', 'below right']), np.array([3, 5, 8])


def patches(n: int, seed: int) -> Split:
    """A patch: its place is the identity, its colour a class, its brightness a number."""
    rng = np.random.default_rng(seed)
    place, colour, light = rng.integers(0, 4, n), rng.integers(0, 3, n), rng.random(n)
    images = torch.zeros(n, 3, 32, 32, dtype=torch.uint8)
    for i in range(n):
        top, left = 16 * (place[i] // 2) + 4, 16 * (place[i] % 2) + 4
        images[i, colour[i], top:top + 8, left:left + 8] = int(75 + 180 * light[i])
    return Split(images, {'colour': COLOURS[colour], 'light': light.astype(np.float32)}, PLACES[place])


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
    Split(FIT.images, {'light': FIT.factors['light']}, FIT.labels),
    Split(FIT.images, FIT.factors, np.char.upper(FIT.labels)),
], ids=['other factors', 'other classes'])
def test_a_classifier_of_another_experiment_is_refused(tmp_path: Path, other: Split):
    classifier_for(experiment(), tmp_path, steps=1)
    with pytest.raises(ValueError, match='^expected a classifier of .*, got .*; train one, or take another folder'):
        classifier_for(experiment(other), tmp_path)
