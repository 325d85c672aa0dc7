"""Alignment: known transforms come back, mean shapes do not depend on poses, pixels follow landmarks, bad points."""
import sys
import time
import types
import weakref

import cv2
import numpy as np
import pytest
from rbvae_nb import alignment
from rbvae_nb.alignment import (HELD, KINDS, affine, align, align_many, face_alignment_detector, mean_shape, reduced,
                                scale_of, scatter, shape_of, similarity, target, transformed, warp)
from rbvae_nb.faces import FACE_PARTS


def rotation(degrees: float, scale: float = 1.) -> np.ndarray:
    """A turn, with the y-axis downwards from x to y."""
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return scale * np.array([[c, -s], [s, c]])


def face(seed: int = 0, noise: float = .03) -> np.ndarray:
    """68 points with eyes, mouth and jaw about where a face has them, around the middle of the eyes."""
    rng = np.random.default_rng(seed)
    middle = {'jaw': (0, .6), 'right brow': (-.45, -.3), 'left brow': (.45, -.3), 'nose': (0, .3),
              'right eye': (-.43, 0), 'left eye': (.43, 0), 'outer lips': (0, .8), 'inner lips': (0, .8)}
    spread = {'jaw': (1, .6), 'nose': (.15, .3), 'outer lips': (.35, .12), 'inner lips': (.25, .05)}
    points = np.zeros((68, 2))
    for name, rows in FACE_PARTS.items():
        t = np.linspace(np.pi, 0, len(rows)) if name == 'jaw' else np.linspace(-np.pi, np.pi, len(rows), endpoint=False)
        points[rows] = np.stack([np.cos(t), np.sin(t)], 1) * spread.get(name, (.2, .08)) + middle[name]
    return points + rng.normal(0, noise, (68, 2))


def posed(points: np.ndarray, degrees: float, scale: float, move: tuple[float, float]) -> np.ndarray:
    return points @ rotation(degrees, scale).T + move


@pytest.mark.parametrize('degrees', [0, 37, -150, 180])
@pytest.mark.parametrize('scale', [.01, 1, 300])
def test_similarity_comes_back(degrees: float, scale: float):
    known = np.c_[rotation(degrees, scale), [30, -400]]
    for fit in KINDS.values():
        assert np.abs(fit(face(), transformed(face(), known)) - known).max() < 1e-6


def test_affine_comes_back_and_a_similarity_cannot_shear():
    known = np.array([[1.2, .5, 3], [-.3, .7, 9]])
    assert np.abs(affine(face(), transformed(face(), known)) - known).max() < 1e-9
    near = similarity(face(), transformed(face(), known))[:, :2]
    assert near[0, 0] == near[1, 1] and near[0, 1] == -near[1, 0]


@pytest.mark.parametrize('kind', KINDS)
def test_least_squares(kind: str):
    """No transform of the same kind nearby is better, by derivatives in each of its numbers."""
    p, q, fit = face(0), posed(face(1, .2), 20, 3, (5, 5)), KINDS[kind]
    changes = {'affine': np.eye(6).reshape(6, 2, 3),
               'similarity': np.array([[[1, 0, 0], [0, 1, 0]], [[0, -1, 0], [1, 0, 0]], [[0, 0, 1], [0, 0, 0]],
                                       [[0, 0, 0], [0, 0, 1]]])}[kind]
    def error(matrix: np.ndarray) -> float: return float(((transformed(p, matrix) - q) ** 2).sum())
    for change in changes:
        slope = (error(fit(p, q) + 1e-4 * change) - error(fit(p, q) - 1e-4 * change)) / 2e-4
        assert abs(slope) < 1e-5


def test_x_is_to_the_right_and_y_downwards():
    """A face that lies further right and lower has to be moved left and up."""
    move = affine(posed(face(), 0, 1, (100, 7)), face())[:, 2]
    assert np.allclose(move, [-100, -7])
    turned = similarity(face(), face() @ rotation(90).T)  # x becomes y: clockwise, as y points down
    assert np.allclose(transformed(np.array([[1., 0]]), turned), [[0, 1]], atol=1e-9)


@pytest.mark.parametrize('points, says', [
    (np.ones((68, 2)), 'the same point'), (np.full((68, 2), np.nan), 'NaN'), (face()[:67], r'got shape \(67, 2\)'),
    (face() * [1, np.inf], 'infinity'), (face().T, r'got shape \(2, 68\)')])
def test_no_landmarks_of_a_face_are_refused_in_one_sentence(points: np.ndarray, says: str):
    for fit in KINDS.values():
        with pytest.raises(ValueError, match=f'^expected .*{says}'): fit(points, face())
    with pytest.raises(ValueError, match='^expected '): mean_shape(points[None])


def test_a_line_has_no_affine_transform():
    line = np.linspace(0, 1, 68)[:, None] * [3, 1]
    with pytest.raises(ValueError, match='^expected landmarks of a face, got 68 points on one line$'):
        affine(line, face())


# The mean shape

def test_mean_shape_does_not_depend_on_poses():
    faces = np.stack([face(seed, .08) for seed in range(30)])
    rng = np.random.default_rng(0)
    other = np.stack([posed(f, rng.uniform(0, 360), rng.uniform(.1, 50), rng.normal(0, 90, 2)) for f in faces])
    assert np.abs(mean_shape(faces) - mean_shape(other)).max() < 1e-9


def test_mean_shape_is_centred_of_unit_size_and_upright():
    shape = mean_shape(np.stack([posed(face(seed), 120, 4, (9, 9)) for seed in range(5)]))
    assert np.abs(shape.mean(0)).max() < 1e-12 and np.isclose((shape ** 2).sum(1).mean(), 1)
    left, right = (shape[FACE_PARTS[f'{side} eye']].mean(0) for side in ('left', 'right'))
    assert abs(left[1] - right[1]) < 1e-12 and left[0] > right[0]
    assert shape[8, 1] > shape[30, 1] > shape[19, 1]  # the chin below the nose, and that below the brow


def test_mean_shape_is_the_best():
    """The eigenvector fits all faces at least as well as any of them, or their plain mean, does."""
    faces = np.stack([face(seed, .1) for seed in range(8)])
    def fits(mean: np.ndarray) -> float:
        unit = [(f - f.mean(0)) / np.linalg.norm(f - f.mean(0)) for f in faces]
        goal = (mean - mean.mean(0)) / np.linalg.norm(mean - mean.mean(0))
        return sum(((transformed(f, similarity(f, goal)) - goal) ** 2).sum() for f in unit)
    best = fits(mean_shape(faces))
    assert all(best < fits(f) for f in [*faces, faces.mean(0) * [1, 1.05]])


def test_mean_shape_in_parts():
    faces = np.stack([face(seed, .1) for seed in range(9)])
    assert np.abs(shape_of(scatter(faces[:2]) + scatter(faces[2:])) - mean_shape(faces)).max() < 1e-9


# Pixels

def dots(size: int, at: np.ndarray) -> np.ndarray:
    """A dot of 9 × 9 pixels around each of some whole places."""
    image = np.zeros((size, size, 3), np.uint8)
    for x, y in at.astype(int): image[y - 4:y + 5, x - 4:x + 5] = 255
    return image


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('size', [24, 96, 250])
def test_pixels_follow_their_landmark(kind: str, size: int):
    """The tip of the nose is a white dot, and comes to lie where it is sent, reduced or not."""
    points = np.round(posed(face(2), 25, 90, (260, 210)))
    shape = mean_shape(face(3)[None])
    square = align(dots(500, points[30:31]), points, shape, size, kind)[..., 0].astype(float)
    centre = np.array([square.sum(0) @ np.arange(size), square.sum(1) @ np.arange(size)]) / square.sum()
    goal = transformed(points[30:31], KINDS[kind](points, target(shape, size)))[0]
    assert np.abs(centre - goal).max() < .12


def test_reduced_is_the_same_transform():
    """Of the middles of pixels: three pixels in a row become one, and its middle is the middle one's."""
    matrix = np.array([[.2, .1, 5], [-.1, .3, 7]])
    assert np.allclose(transformed(np.array([[2., 5]]), reduced(matrix, 3)), transformed(np.array([[7., 16]]), matrix))
    assert np.allclose(reduced(matrix, 1), matrix)


def test_a_large_image_is_averaged_before_it_is_warped():
    checks = np.indices((900, 900)).sum(0) % 2 * np.full((3, 1, 1), 255)
    grey = warp(np.ascontiguousarray(checks.transpose(1, 2, 0).astype(np.uint8)), np.c_[rotation(3, .1), [5, 5]], 64)
    assert 120 < grey[10:-10, 10:-10].min() and grey[10:-10, 10:-10].max() < 135


def test_over_the_edge_the_last_pixels_are_repeated():
    image = np.full((50, 50, 3), 200, np.uint8)
    assert (align(image, posed(face(), 0, 40, (25, 5)), mean_shape(face()[None]), 32) == 200).all()


def test_target_has_its_margin():
    goal = target(mean_shape(face()[None]), 100, .2)
    assert np.isclose(np.ptp(goal, 0).max(), 60) and np.allclose((goal.min(0) + goal.max(0)) / 2, 49.5)


@pytest.mark.parametrize('arguments, says', [
    (dict(kind='shear'), 'kind as one of affine, similarity, got .shear'), (dict(size=0), 'at least 8 pixels, got 0'),
    (dict(margin=.5), r'margin in \[0, 0.5\)'), (dict(margin=float('nan')), 'margin')])
def test_squares_that_cannot_be_cut(arguments: dict, says: str):
    with pytest.raises(ValueError, match=f'^expected .*{says}'):
        align(np.zeros((9, 9, 3), np.uint8), face(), face(), **arguments)


@pytest.mark.parametrize('image', [np.zeros((9, 9), np.uint8), np.zeros((9, 9, 3)), [[1]],
                                   np.zeros((9, 9, 4), np.uint8)])
def test_what_is_no_image(image):
    with pytest.raises(TypeError, match=r'^expected an image \(H, W, 3\) of bytes, got'): align(image, face(), face())


def test_how_many_times_larger():
    assert np.isclose(scale_of(np.c_[rotation(30, .3), [5, 7]]), .3)
    assert np.isclose(scale_of(np.array([[2., 1, 0], [0, 8, 0]])), 4)  # of areas, the root


def test_mirrored_landmarks_are_refused():
    with pytest.raises(ValueError, match='mirrored'): scale_of(affine(face(noise=0) * [-1, 1], face(noise=0)))


def test_many_are_in_order_and_bad_ones_have_a_reason():
    images = [cv2.GaussianBlur(np.random.default_rng(i).integers(0, 256, (90, 80, 3), np.uint8), (0, 0), 2)
              for i in range(70)]
    points = [posed(face(i), 5 * i, 30, (40, 40)) for i in range(70)]
    points[11] = np.zeros((68, 2))
    shape = mean_shape(face()[None])
    many = list(align_many(zip(images, points), shape, 32, 'similarity'))
    assert many.pop(11) == 'expected landmarks of a face, got 68 times the same point'
    del images[11], points[11]
    assert all((square == align(*one, shape, 32, 'similarity')).all() for square, one in zip(many, zip(images, points)))


def test_many_hold_few_images_at_once():
    """Each image says when it is freed; whoever asks takes its time, then hurries, then stops."""
    alive, most, shape = set[int](), 0, mean_shape(face()[None])
    def images():
        nonlocal most
        for i in range(400):
            image = np.zeros((60, 60, 3), np.uint8)
            alive.add(i)
            weakref.finalize(image, alive.discard, i)
            most = max(most, len(alive))
            yield image, posed(face(i), 0, 20, (30, 20))
            del image
    squares = align_many(images(), shape, 16)
    for i, _ in zip(range(300), squares):
        if i < 20: time.sleep(.01)
    squares.close()
    assert 8 <= most <= HELD == 40


# The detector

def test_detector_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, 'face_alignment', None)
    with pytest.raises(ImportError, match=r'^expected face-alignment; install it: pip install "rbvae-nb.landmarks."$'):
        face_alignment_detector()


def test_detector_asks_for_two_dimensions_and_takes_the_largest_face(monkeypatch):
    """With the interface of face-alignment 1.5: what it was asked for, and what is made of its answers."""
    asked = []
    class FaceAlignment:
        def __init__(self, kind, **options): asked.append((kind, options))
        def get_landmarks_from_image(self, image):
            return None if not image.any() else [face() * 10, face().astype(np.float32) * 50, face() * 20]
    library = types.SimpleNamespace(FaceAlignment=FaceAlignment, LandmarksType=types.SimpleNamespace(TWO_D='2-D'))
    monkeypatch.setitem(sys.modules, 'face_alignment', library)
    detect = face_alignment_detector('cpu')
    assert detect(np.zeros((9, 9, 3), np.uint8)) is None
    found = detect(np.ones((9, 9, 3), np.uint8))
    assert found.dtype == np.float64 and np.allclose(found, face() * 50, atol=1e-4)
    assert asked == [('2-D', dict(device='cpu', flip_input=False, compile=False))]
    assert alignment.largest([]) is None
