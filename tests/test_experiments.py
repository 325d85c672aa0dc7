"""What an experiment must be: anything else is refused in one sentence, with what was expected and what came."""
import dataclasses
import json
import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch
from rbvae_nb.attributes import check_classifier, classifier_for, load_classifier
from rbvae_nb.experiments import Experiment, Split, find_experiment
from rbvae_nb.images import ImageSets
from rbvae_nb.methods import METHODS, load
from rbvae_nb.probing import probe
from rbvae_nb.training import train
from rbvae_nb.vae import VAE
from safetensors.torch import save_file
from torch.utils.data import DataLoader, TensorDataset


def images(n: int = 8, size: int = 32, channels: int = 3) -> torch.Tensor:
    return torch.randint(0, 256, (n, channels, size, size), dtype=torch.uint8)


SETS, LAMP = ImageSets(images(), images()), np.linspace(0, 1, 8)
SMILE, PERSON = np.array(['yes', 'no'] * 4), np.array(['Ada', 'Kurt']).repeat(4)


def split(**changes) -> Split:
    """Eight images with a number, a class and an identity; `changes` replace some of it."""
    parts = dict(images=images(), factors={'lamp': LAMP, 'smile': SMILE}, labels=PERSON)
    return Split(**parts | dict(target='look', identity='person') | changes)


def both(**changes) -> Experiment:
    """An experiment whose splits are changed in the same way."""
    return Experiment(SETS, split(**changes), split(**changes))


def refused(says: str, make: Callable, *args, error: type[Exception] = ValueError, **kwargs):
    """The call raises `error` with a sentence on one line, which begins with `says` and shows no types of numpy."""
    with pytest.raises(error, match=f'^expected {says}') as caught: make(*args, **kwargs)
    assert '\n' not in str(caught.value) and not re.search(r'\bnp\.\w+\(', str(caught.value))


def test_the_example_is_good():
    fit, test = both().splits()
    assert fit.numbers == test.numbers == ('lamp',) and fit.classes == test.classes == ('smile',)


@pytest.mark.parametrize('ask', [Experiment.splits, classifier_for, lambda data: probe(VAE(), data)],
                         ids=['splits', 'classifier_for', 'probe'])
def test_an_experiment_without_splits_is_not_probed(ask):
    refused(r'an experiment with splits .*, got images only; give fit= and test= splits', ask, Experiment(SETS))


@pytest.mark.parametrize('changes, error, says', [
    (dict(labels=PERSON[:7]), ValueError, r"8 values of 'person', one per image, got shape \(7,\)"),
    (dict(labels=PERSON[:, None]), ValueError, r"8 values of 'person', one per image, got shape \(8, 1\)"),
    (dict(factors={'lamp': LAMP[:5]}), ValueError, r"8 values of 'lamp', one per image, got shape \(5,\)"),
    (dict(labels=[*PERSON]), TypeError, "'person' as a numpy array .*, got list"),
    (dict(labels=PERSON.astype(object)), TypeError, "'person' as a numpy array of floats, .* or texts, got object"),
    (dict(factors={'lamp': LAMP + np.nan}), ValueError, "finite values of 'lamp', got NaN or infinity; drop"),
    (dict(labels=LAMP), ValueError, "'person' to be classes .*, got float64"),
    (dict(factors={'person': PERSON}), ValueError, "'person' to be classes and no target factor, got .*'person'"),
    (dict(factors={}), ValueError, 'at least one target factor, got none'),
    (dict(images=images(channels=1)), ValueError, r'images of shape \(N, 3, H, H\), got \(8, 1, 32, 32\)'),
    (dict(images=images() / 255), ValueError, r'float pixels in \[-1, 1\] .*, got none below 0; give bytes'),
    (dict(target='lamp'), ValueError, "names that differ .*, got 'lamp' twice"),
    (dict(target='person'), ValueError, "names that differ .*, got 'person' twice"),
])
def test_splits_of_the_wrong_kind(changes, error, says):
    refused(says, split, **changes, error=error)


@pytest.mark.parametrize('changes, says', [
    (dict(factors={'lamp': 0 * LAMP}), r"'lamp' to vary .*, got one value only \(0\.0\); leave it out"),
    (dict(factors={'smile': SMILE[[0] * 8]}), r"'smile' to vary .*, got one value only \(yes\); leave it out"),
    (dict(labels=PERSON[[0] * 8]), r"'person' to vary .*, got one value only \(Ada\); leave it out"),
    (dict(factors={'score': LAMP}), r"factors with names of their own, got \['score'\]"),
    (dict(images=images(size=16)), r'splits with images of 32 pixels, as the sets have, got \[16, 16\]'),
])
def test_splits_that_no_probe_can_use(changes, says):
    refused(says, both, **changes)


def test_splits_that_do_not_belong_together():
    refused('splits to fit and to test probes, or neither, got only one', Experiment, SETS, split())
    for changes in (dict(factors={'lamp': LAMP}), dict(identity='name'),
                    dict(factors={'lamp': np.arange(8), 'smile': SMILE})):  # whole numbers are classes
        refused('splits with the same factors and names, got .* and ', Experiment, SETS, split(), split(**changes))


@pytest.mark.parametrize('of', [lambda x: x, TensorDataset, lambda x: [*x]], ids=['tensor', 'data set', 'list'])
def test_sets_of_other_images(of):
    """Grey, of another size, of pixels in another range: as one set and as the other."""
    good = of(images())
    for bad, says in (
        (images(channels=1), r'images of shape \(N, 3, H, H\), got \(\d, 1, 32, 32\)'),
        (images(size=64), r'images of one size in both sets, got \(3, (32|64), .* and \(3, (32|64), '),
        (images() / 255, r'float pixels in \[-1, 1\] in the .* set, got none below 0; give bytes .*, or subtract .5'),
    ):
        refused(says, ImageSets, of(bad), good)
        refused(says, ImageSets, good, of(bad))


@pytest.mark.parametrize('bad', [DataLoader([*images()]), iter(images()), None], ids=lambda bad: type(bad).__name__)
def test_what_gives_no_image_by_its_number(bad):
    refused(f'unlabelled images as a tensor or a map-style data set, got {type(bad).__name__}; give what',
            ImageSets, bad, images(), error=TypeError)


def test_a_data_set_of_several_sizes():
    """Only the first image is looked at in advance, so the batch that meets another one refuses it."""
    sets = ImageSets([*images(8), *images(8, 40)], images())
    refused(r'images of shape \(N, 3, 32, 32\), got \(1, 3, 40, 40\)', sets.batch, 99)


def test_an_image_that_is_white_all_over_is_no_reason_to_refuse():
    white_first = torch.cat([torch.ones(1, 3, 32, 32), torch.rand(7, 3, 32, 32) * 2 - 1])
    for bright in (white_first, TensorDataset(white_first)): ImageSets(bright, bright)


@pytest.mark.parametrize('look', [find_experiment, METHODS.find, load])
def test_a_name_that_does_not_exist(look):
    """The sentence lists the names that do."""
    some = {find_experiment: 'digit_styles, drawn_faces, turned_shapes', METHODS.find: 'rbvae, srbvae, svae, vae',
            load: "'rbvae', 'rbvae-faces', 'srbvae'"}[look]
    refused(f".*one of .*{some}.* 'nobody'", look, 'nobody', error=(ValueError, FileNotFoundError))


def test_a_source_that_is_not_there(tmp_path):
    make = find_experiment(f'digit_styles:{tmp_path / "nowhere"}')
    refused("MNIST in torchvision's layout under '.*nowhere' .*; give the folder that holds", make, error=OSError)
    refused("'turned_shapes' alone, .*, got 'turned_shapes:mnist'", find_experiment, 'turned_shapes:mnist')


def old_file(path: Path, about: dict) -> Path:
    """Weights of a small VAE as the version before wrote them: with a description, without its format."""
    tensors = {f'model.{name}': value.contiguous() for name, value in VAE().state_dict().items()}
    save_file(tensors, path, {'rbvae_nb': json.dumps(about)})
    return path


def test_files_of_an_older_version(tmp_path):
    """They are refused, and left as they are: in a training's folder too."""
    file = old_file(tmp_path / 'checkpoint.safetensors', dict(method='vae', arguments=VAE().arguments, step=2))
    before = file.read_bytes()
    says = 'a weight file of format 2, got format 1 in .*, which another version .*; use that version, or train again'
    for read in (load, load_classifier): refused(says, read, file)
    refused(says, train, VAE(), SETS, steps=2, batch_size=2, device='cpu', out=tmp_path, progress=False)
    assert file.read_bytes() == before and [*tmp_path.iterdir()] == [file]


def test_classes_of_one_kind_in_both_splits():
    numbered = dataclasses.replace(split(), labels=np.arange(8) % 2)
    refused('splits with the same factors and names', Experiment, SETS, split(), numbered)


def test_a_classifier_of_other_data_is_refused():
    digits = load_classifier(files('rbvae_nb') / 'weights' / 'digits-classifier.safetensors')
    refused('a classifier of .*Ada.*, got one of', check_classifier, digits, split())
