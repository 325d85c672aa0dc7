"""The shapes: what is refused, what the sets and splits share, and what a seed decides."""
import numpy as np
import pytest
from conftest import images_of
from rbvae_nb.experiments import Experiment, find_experiment
from rbvae_nb.shapes import IMAGE_SIZES, KINDS, SIDES, turned_shapes


@pytest.fixture(scope='module')
def data() -> Experiment:
    return turned_shapes(n=800)


@pytest.mark.parametrize('size', [0, 28, 31, 128, -32])
def test_other_image_sizes_are_refused_in_one_sentence(size: int):
    with pytest.raises(ValueError, match=rf'^expected image_size in .*, got {size}$'): turned_shapes(size)


@pytest.mark.parametrize('n', [-1, 0, 39])
def test_too_few_images_are_refused_in_one_sentence(n: int):
    with pytest.raises(ValueError, match=rf'^expected n of at least 40, .*, got {n}$'): turned_shapes(n=n)


@pytest.mark.parametrize('size', IMAGE_SIZES)
def test_every_size_and_the_fewest_images(size: int):
    data = turned_shapes(size, n=40)
    assert {name: tuple(part.shape) for name, part in images_of(data).items()} == {
        name: (n, 3, size, size) for name, n in dict(unlabelled=40, reference=40, fit=10, test=10).items()}
    assert set(data.test.labels) == set(KINDS)


def test_no_image_is_in_two_places(data: Experiment):
    """Nor twice in one place: places, sizes and proportions are drawn anew for each."""
    seen = [image.numpy().tobytes() for part in images_of(data).values() for image in part]
    assert len(set(seen)) == len(seen) == 800 + 800 + 200 + 200


def test_factors_cover_their_range(data: Experiment):
    for split in (data.fit, data.test):
        for name in split.numbers:
            values = split.factors[name]
            assert values.dtype == np.float32
            assert 0 <= values.min() < .05 and .95 < values.max() <= 1, name
        assert set(split.factors['light']) == set(SIDES)


def test_all_kinds_are_in_each_split_equally_often(data: Experiment):
    for split in (data.fit, data.test):
        kinds, counts = np.unique(split.labels, return_counts=True)
        assert sorted(kinds) == sorted(KINDS) and set(counts) == {20}


def test_factors_tell_nothing_about_each_other_or_the_kind():
    """Correlations of 2,500 draws; five standard errors are 0.1."""
    split = turned_shapes(n=10_000).fit
    columns = [split.factors[name] for name in split.numbers]
    columns += [split.factors['light'] == side for side in [*SIDES][1:]]
    columns += [split.labels == kind for kind in KINDS[1:]]
    correlations = np.corrcoef(columns)
    blocks = np.repeat([0, 1, 2, 3, 4, 5, 6], [1, 1, 1, 1, 1, 3, 9])  # classes exclude each other
    assert np.abs(correlations[blocks[:, None] != blocks]).max() < .1


def test_a_seed_decides_every_image(data: Experiment):
    again, other = images_of(turned_shapes(n=800)), images_of(turned_shapes(n=800, seed=1))
    for name, part in images_of(data).items():
        assert part.equal(again[name]), name
        assert not (part == other[name]).flatten(1).all(1).any(), name


def test_the_white_line_is_in_every_image(data: Experiment):
    """Its pixels are the brightest: neither filling nor ground is white."""
    for name, part in images_of(data).items():
        assert (part.amin(1).flatten(1).amax(1) == 255).all(), name
        assert (part[:, :, [0, -1]] < 255).all() and (part[..., [0, -1]] < 255).all(), name  # none is cut off


def test_the_experiment_is_found_by_its_name():
    assert find_experiment('turned_shapes') is turned_shapes
    with pytest.raises(ValueError, match='no other source'): find_experiment('turned_shapes:mnist')
