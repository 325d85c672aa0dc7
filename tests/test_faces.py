"""Drawn faces: points, views and drawings agree with each other, and sets and splits share what they should."""
import numpy as np
import pytest
import torch
from conftest import images_of
from rbvae_nb.experiments import Experiment, find_experiment
from rbvae_nb.faces import (EXPRESSIONS, FACE_PARTS, IMAGE_SIZES, PROTOTYPES, UNITS, Person, View, from_front,
                            chaikin, draw_faces, drawn_faces, landmarks, sample_faces, sample_people, sample_units,
                            sample_views, seen)

MIRROR = [*range(16, -1, -1), *range(26, 16, -1), *range(27, 31), *range(35, 30, -1),
          45, 44, 43, 42, 47, 46, 39, 38, 37, 36, 41, 40,
          *range(54, 47, -1), *range(59, 54, -1), *range(64, 59, -1), *range(67, 64, -1)]


@pytest.fixture(scope='module')
def data() -> Experiment:
    return drawn_faces(n=200)


def faces(n: int, seed: int = 0) -> tuple[Person, np.ndarray, View]:
    """People, the units of all expressions in turn, and views."""
    rng = np.random.default_rng(seed)
    return sample_people(n, rng), sample_units(np.resize(EXPRESSIONS, n), rng), sample_views(n, rng)


def frontal(n: int, **changed) -> View:
    """Seen from the front, in even light, on blue."""
    plain = View(*np.zeros((3, n)), np.full(n, .78), np.zeros((n, 2)), np.tile([0., 0, 1], (n, 1)),
                 np.tile([30., 40, 250], (n, 1)), np.full((n, 3), 90.))
    return plain._replace(**changed)


def unit(**moved: float) -> np.ndarray:
    """One face's action units."""
    return np.array([[moved.get(name.replace(' ', '_'), 0.) for name in UNITS]])


@pytest.mark.parametrize('size', [0, 28, 192, -32])
def test_other_image_sizes_are_refused_in_one_sentence(size: int):
    with pytest.raises(ValueError, match=rf'^expected image_size in .*, got {size}$'): drawn_faces(size)


def test_no_faces_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match=r'^expected n of at least 1, got 0$'): drawn_faces(n=0)


@pytest.mark.parametrize('size', IMAGE_SIZES)
def test_every_size(size: int):
    drawn = images_of(drawn_faces(size, n=8))
    assert {name: tuple(part.shape) for name, part in drawn.items()} == {
        name: (n, 3, size, size) for name, n in dict(unlabelled=8, reference=8, fit=140, test=140).items()}
    assert all(part.dtype == torch.uint8 for part in drawn.values())


def test_no_image_is_in_two_places(data: Experiment):
    every = [image.numpy().tobytes() for part in images_of(data).values() for image in part]
    assert len(set(every)) == len(every) == 200 + 200 + 140 + 140


def test_splits_have_each_person_with_each_expression(data: Experiment):
    for split in data.splits():
        pairs, counts = np.unique([split.labels.astype(str), split.factors['expression']], axis=1, return_counts=True)
        assert pairs.shape[1] == 20 * 7 and set(counts) == {1}


def test_people_and_expressions_of_the_splits_take_turns(data: Experiment):
    """So that the first face of each person is not always the same expression."""
    for split in data.splits():
        assert split.labels.tolist() == [*range(20)] * 7
        for k in range(0, 140, 20): assert {*split.factors['expression'][k:k + 20]} == {*EXPRESSIONS}


def test_rows_of_faces_draw_the_same_images(data: Experiment):
    some = np.array([3, 77, 5])
    assert sample_faces(n=200)['test'].rows(some).draw().equal(data.test.images[some])


def test_people_of_the_splits_are_the_same_and_not_those_of_the_sets(monkeypatch):
    """All that were sampled, in the order of the calls: unlabelled, reference, splits."""
    from rbvae_nb import faces as module
    people, drawn, draw = [], [], draw_faces
    monkeypatch.setattr(module, 'sample_people', lambda n, rng: people.append(sample_people(n, rng)) or people[-1])
    monkeypatch.setattr(module, 'draw_faces', lambda p, u, *rest: drawn.append((p, u)) or draw(p, u, *rest))
    drawn_faces(n=30)
    assert [len(p.width) for p in people] == [30, 30, 20]
    assert len({*np.concatenate([p.width for p in people])}) == 80
    (_, moving), (_, resting), (fit, _), (test, _) = drawn
    assert not resting.any() and moving.any(1).all()
    for of_split in (fit, test): assert {*of_split.width} == {*people[2].width}


def test_a_seed_decides_every_image(data: Experiment):
    again, other = images_of(drawn_faces(n=200)), images_of(drawn_faces(n=200, seed=1))
    for name, part in images_of(data).items():
        assert part.equal(again[name]), name
        assert not (part == other[name]).flatten(1).all(1).any(), name


@pytest.mark.parametrize('name', UNITS)
def test_the_mean_of_a_unit_is_that_of_its_formula(name: str):
    """By a sum over a grid of strengths and quantiles, for the expression that has most of it."""
    from scipy.stats import norm
    expression = max(PROTOTYPES, key=lambda e: PROTOTYPES[e].get(name, 0))
    s, q = np.linspace(.25, 1, 51)[:, None, None], (np.arange(100) + .5) / 100
    scaled = s * norm(1, .4).ppf(q).clip(0, 1.6)[:, None] * PROTOTYPES[expression][name]
    expected = .75 * np.minimum(1, scaled).mean() + .25 * np.minimum(1, scaled + .6 * q).mean()
    found = sample_units(np.repeat(expression, 20_000), np.random.default_rng(0))[:, UNITS.index(name)]
    assert abs(found.mean() - expected) < 5 * found.std() / 20_000 ** .5 + .002


def test_units_of_the_others_move_a_quarter_of_the_time():
    found = sample_units(np.repeat('anger', 20_000), np.random.default_rng(0))
    idle = found[:, [name not in PROTOTYPES['anger'] for name in UNITS]]
    assert abs((idle > 0).mean() - .25) < .01 and abs(idle[idle > 0].mean() - .3) < .01 and idle.max() <= .6


def test_a_face_in_a_mirror_has_its_sides_exchanged():
    people, units, _ = faces(70)
    swapped = units.copy()
    right, left = UNITS.index('right corner up'), UNITS.index('left corner up')
    swapped[:, [right, left]] = units[:, [left, right]]
    assert np.allclose(from_front(people, swapped), from_front(people, units)[:, MIRROR] * [-1, 1])


@pytest.mark.parametrize('moved, rows, direction', [
    ('inner_brows_up', (21, 22), -1), ('outer_brows_up', (17, 26), -1), ('brows_down', (21, 22), 1),
    ('lids_up', (37, 38, 43, 44), -1), ('cheeks_up', (40, 41, 46, 47), -1), ('nose_up', (31, 35), -1),
    ('lip_up', (50, 51, 52), -1), ('right_corner_up', (48,), -1), ('left_corner_up', (54,), -1),
    ('corners_down', (48, 54), 1), ('jaw_down', (8, 57, 66), 1)])
def test_a_unit_moves_its_points_up_or_down(moved: str, rows: tuple[int, ...], direction: int):
    person = sample_people(1, np.random.default_rng(0))
    change = from_front(person, unit(**{moved: 1.})) - from_front(person, unit())
    assert (direction * change[0, list(rows), 1] > .02).all()


def test_parts_of_a_face_are_where_they_should_be():
    """Every point once; the person's right is on the left; from the brows down to the chin; lips within lips."""
    assert [k for rows in FACE_PARTS.values() for k in rows] == list(range(68))
    at = from_front(sample_people(1, np.random.default_rng(0)), unit())[0]
    box = {name: (at[rows].min(0), at[rows].max(0)) for name, rows in FACE_PARTS.items()}
    for what in ('brow', 'eye'): assert box[f'right {what}'][1][0] < 0 < box[f'left {what}'][0][0]
    lowest = [box[name][1][1] for name in ('left brow', 'left eye', 'nose', 'inner lips', 'outer lips', 'jaw')]
    assert lowest == sorted(lowest) and np.ptp(at[FACE_PARTS['jaw']], 0)[0] == np.ptp(at, 0)[0]
    assert (box['outer lips'][0] < box['inner lips'][0]).all() and (box['inner lips'][1] < box['outer lips'][1]).all()


def test_wide_lips_are_wider_and_tight_ones_thinner():
    person = sample_people(1, np.random.default_rng(0))
    at = {name: from_front(person, unit(**{name: 1.}))[0] if name else from_front(person, unit())[0]
          for name in ('', 'lips_wide', 'lips_tight')}
    width = {name: points[54, 0] - points[48, 0] for name, points in at.items()}
    thick = {name: points[57, 1] - points[66, 1] for name, points in at.items()}
    assert width['lips_wide'] > 1.2 * width[''] and thick['lips_tight'] < .5 * thick['']


def test_points_of_a_closed_mouth_do_not_cross():
    people, units, _ = faces(70)
    at = from_front(people, units)
    assert (at[:, 66, 1] >= at[:, 62, 1] - 1e-9).all() and (at[:, 57, 1] > at[:, 51, 1]).all()


def turn(axis: str, angle: float) -> np.ndarray:  # (3, 3)
    """A rotation."""
    cos, sin = np.cos(angle), np.sin(angle)
    return np.array(dict(yaw=[[cos, 0, sin], [0, 1, 0], [-sin, 0, cos]],
                         pitch=[[1, 0, 0], [0, cos, -sin], [0, sin, cos]],
                         roll=[[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])[axis])


@pytest.mark.parametrize('angles', [dict(yaw=-.3), dict(pitch=.2), dict(roll=.2), dict(yaw=.3, pitch=-.2, roll=.1)])
def test_views_turn_points_as_matrices_do(angles: dict[str, float]):
    """Points in front of an ellipsoid: first about the vertical axis, then a nod, then in the plane."""
    at = np.array([[[0., .1], [1.15, .1], [.4, -.5]]])
    depth = .75 * np.sqrt((1 - (at[..., 0] / 1.15) ** 2 - ((at[..., 1] - .1) / 1.5) ** 2).clip(0)) + .2
    matrix = np.eye(3)
    for axis, angle in angles.items(): matrix = turn(axis, angle) @ matrix
    expected = (np.concatenate([at, depth[..., None]], 2) @ matrix.T)[..., :2] * .78
    view = frontal(1, **{axis: np.array([angle]) for axis, angle in angles.items()})
    assert np.allclose(seen(at, view, .2), expected)


def test_the_tip_of_the_nose_stands_out():
    """By .32 from the ellipsoid, and the eyes lie .04 deeper."""
    person, yaw = sample_people(1, np.random.default_rng(0)), np.array([.3])
    at, turned = (landmarks(person, unit(), frontal(1, **view))[0] for view in ({}, dict(yaw=yaw)))
    x, y = from_front(person, unit())[0].T
    depth = .75 * np.sqrt(1 - (x / 1.15) ** 2 - ((y - .1) / 1.5) ** 2)
    out = ((turned[:, 0] - at[:, 0] * np.cos(.3)) / np.sin(.3) / .78 - depth)[[30, 36, 45]]
    assert np.allclose(out, [.32, -.04, -.04])


def test_what_is_seen_is_scaled_and_then_shifted():
    at = np.array([[[.5, -.5]]])
    assert np.allclose(seen(at, frontal(1, scale=np.array([.5]), shift=np.array([[.1, .2]]))), [[[.35, -.05]]])


def test_a_smooth_curve_stays_within_its_corners_and_keeps_the_ends():
    square, line = chaikin(4, True), chaikin(4, False)
    for matrix in (square, line): assert (matrix >= 0).all() and np.allclose(matrix.sum(1), 1)
    assert np.allclose(line[[0, -1]], np.eye(4)[[0, 3]])
    assert np.allclose(square.mean(0), .25)  # no corner counts for more


def pixels_at(image: torch.Tensor, points: np.ndarray) -> np.ndarray:  # (3, H, H); (K, 2) in [-1, 1] to (K, 3)
    """Colours of an image at some points."""
    column, row = np.rint((points + 1) / 2 * image.shape[-1] - .5).astype(int).T
    return image.numpy()[:, row, column].T.astype(float)


def test_drawings_have_their_colours_at_the_landmarks():
    """Skin on the cheeks, iris and pupil in the eyes, hair in the brows, ground in a corner, in every view."""
    people, _, views = faces(40, seed=1)
    views = views._replace(light=np.tile([0., 0, 1], (40, 1)), scale=np.full(40, .6), shift=np.zeros((40, 2)))
    at, drawn = landmarks(people, np.zeros((40, 13)), views), draw_faces(people, np.zeros((40, 13)), views, 96)
    near = {name: [] for name in ('cheek', 'brow', 'pupil', 'ground')}
    for i in range(40):
        spots = np.stack([(at[i, 2] + at[i, 31]) / 2, at[i, 19], (at[i, 36] + at[i, 39]) / 2, np.array([-.98, -.98])])
        wanted = people.skin[i], .7 * people.hair[i], np.array([35, 25, 25]), views.ground[i]
        for name, found, colour in zip(near, pixels_at(drawn[i], spots), wanted):
            near[name].append(np.abs(found - colour).max())
    assert np.median(near['cheek']) < 3 and max(near['ground']) < 2
    assert np.median(near['brow']) < 25 and np.median(near['pupil']) < 60


def test_the_light_multiplies_the_drawing():
    people, units, _ = faces(6)
    even = draw_faces(people, units, frontal(6), 32).float()
    lit = draw_faces(people, units, frontal(6, light=np.tile([.4, -.2, .8], (6, 1))), 32).float()
    place = (torch.arange(32) + .5) / 16 - 1
    expected = even * .8 * (1 + .4 * place[None, :] - .2 * place[:, None])
    assert ((lit - expected.clamp(0, 255)).abs() <= 1.1).all()


def test_an_expression_changes_the_face_and_not_what_is_around_it():
    people, units, views = faces(21)
    change = (draw_faces(people, units, views, 96).int() - draw_faces(people, 0 * units, views, 96).int()).abs().amax(1)
    assert (change.flatten(1).sum(1) > 0).all()
    assert not change[:, :6].any() and not change[:, :, :4].any() and not change[:, :, -4:].any()


def test_an_open_mouth_is_dark_and_has_teeth():
    person = sample_people(1, np.random.default_rng(2))
    view = frontal(1)
    opened, closed = (draw_faces(person, unit(jaw_down=open_), view, 96)[0] for open_ in (1., 0.))
    at = landmarks(person, unit(jaw_down=1.), view)[0]
    low, teeth = (at[66] * .8 + at[62] * .2), at[62] + [0, .03]
    assert pixels_at(opened, low[None]).mean() < 60 and pixels_at(opened, teeth[None]).mean() > 150
    assert pixels_at(closed, low[None]).mean() > 80


def test_the_experiment_is_found_by_its_name():
    assert find_experiment('drawn_faces') is drawn_faces
    with pytest.raises(ValueError, match='no other source'): find_experiment('drawn_faces:x')
