"""Expressions that were exchanged: what stays and what arrives is found where it is known."""
import numpy as np
import pytest
import torch
from rbvae_nb.attributes import partners
from rbvae_nb.expressions import displaced, expression_shares, judge_faces, judge_swaps, read_landmarks
from rbvae_nb.faces import Faces, landmarks, sample_faces


class Judge:
    """In the place of a trained one: finds these people, expressions and landmarks, whatever the images."""
    def __init__(self, faces: Faces, at: np.ndarray): self.faces, self.at = faces, at

    def measure(self, images: torch.Tensor) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        read = {f'{axis}{k}': self.at[:, k, i] for k in range(68) for i, axis in enumerate('xy')}
        return self.faces.who, {'expression': self.faces.expression} | read


class Model:
    """Its pictures are the codes, and say which image gave **e** and which gave **z**."""
    def __init__(self, codes: tuple[str, ...] = ('z', 'e')): self.codes, self.drawn = codes, []

    def encode(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        return {code: torch.arange(len(images)) for code in self.codes}

    def decode(self, **codes: torch.Tensor) -> torch.Tensor:
        self.drawn.append({code: values.tolist() for code, values in codes.items()})
        return torch.zeros(1)

    def reconstruct(self, images: torch.Tensor) -> torch.Tensor: return self.decode(**self.encode(images))


@pytest.fixture(scope='module')
def faces() -> Faces:
    return sample_faces(n=40)['test']


@pytest.fixture(scope='module')
def giver(faces: Faces) -> np.ndarray:
    return np.random.default_rng(0).permutation(len(faces.who))


def mixed(faces: Faces, giver: np.ndarray, stays: float, arrives: float) -> np.ndarray:
    """Landmarks at rest, and parts of both displacements."""
    at = {name: landmarks(faces.people, units, faces.views)
          for name, units in dict(rest=0 * faces.units, own=faces.units, given=faces.units[giver]).items()}
    return (1 - stays - arrives) * at['rest'] + stays * at['own'] + arrives * at['given']


def by_the_normal_equations(at: np.ndarray, faces: Faces, giver: np.ndarray) -> tuple[float, float]:
    """Both shares in the closed form of a regression on two variables."""
    rest = landmarks(faces.people, 0 * faces.units, faces.views)
    a, b = (landmarks(faces.people, units, faces.views) - rest for units in (faces.units, faces.units[giver]))
    d = at - rest
    aa, bb, ab, da, db = ((x * y).sum() for x, y in ((a, a), (b, b), (a, b), (d, a), (d, b)))
    return (da * bb - db * ab) / (aa * bb - ab * ab), (db * aa - da * ab) / (aa * bb - ab * ab)


@pytest.mark.parametrize('stays, arrives', [(.3, .6), (0, 1), (1, 0), (0, 0), (-.2, .4)])
def test_what_stays_and_what_arrives_is_found(faces: Faces, giver: np.ndarray, stays: float, arrives: float):
    found = expression_shares(mixed(faces, giver, stays, arrives), faces, giver)
    assert (found['stays'], found['arrives']) == pytest.approx((stays, arrives), abs=1e-8)


def test_shares_of_any_landmarks_are_those_of_the_normal_equations(faces: Faces, giver: np.ndarray):
    at = mixed(faces, giver, .3, .6) + np.random.default_rng(1).normal(.05, .2, (len(giver), 68, 2))
    found = expression_shares(at, faces, giver)
    assert (found['stays'], found['arrives']) == pytest.approx(by_the_normal_equations(at, faces, giver), abs=1e-8)


def test_without_givers_there_is_one_share(faces: Faces, giver: np.ndarray):
    assert expression_shares(mixed(faces, giver, .3, 0), faces) == {'stays': pytest.approx(.3)}


def test_a_face_at_rest_is_not_displaced(faces: Faces):
    assert not displaced(faces, 0 * faces.units).any() and displaced(faces, faces.units).any((1, 2)).all()


def test_landmarks_are_read_in_their_order(faces: Faces, giver: np.ndarray):
    at = landmarks(faces.people, faces.units, faces.views)
    assert np.array_equal(read_landmarks(Judge(faces, at).measure(None)[1]), at)


def test_a_judge_that_sees_no_landmarks_is_refused_in_one_sentence():
    with pytest.raises(ValueError, match=r'^expected a judge that sees landmarks x0, y0, ..., y67, got one of scale, '
                                         r'width; take classifier_for\(drawn_faces\(\)\)$'):
        read_landmarks(dict(scale=np.ones(3), width=np.ones(3)))


def test_people_and_expressions_are_counted(faces: Faces, giver: np.ndarray):
    """A judge that is wrong about the first ten people, and sees everywhere the giver's expression."""
    at = mixed(faces, giver, .3, .6)
    seen = faces._replace(who=np.where(np.arange(len(giver)) < 10, -1, faces.who), expression=faces.expression[giver])
    found = judge_faces(Judge(seen, at), None, faces, giver)
    assert found['person'] == 1 - 10 / len(giver) and found['giver'] == 1
    assert found['own'] == (faces.expression == faces.expression[giver]).mean() < .5
    assert (found['stays'], found['arrives']) == pytest.approx((.3, .6), abs=1e-8)
    assert [*judge_faces(Judge(seen, at), None, faces)] == ['person', 'own', 'stays']


def test_every_face_gets_the_e_of_its_partner(faces: Faces):
    """And keeps its own **z**; the judge compares with the same partners."""
    pair, model = partners(faces.who), Model()
    rows = judge_swaps(model, torch.zeros(len(pair)), faces, Judge(faces, mixed(faces, pair, .3, .6)))
    assert model.drawn == [dict(z=[*range(len(pair))], e=[*range(len(pair))]), dict(z=[*range(len(pair))], e=[*pair])]
    assert [*rows] == ['reconstruction', 'swap']
    for row in rows.values(): assert (row['stays'], row['arrives']) == pytest.approx((.3, .6), abs=1e-8)


def test_one_code_is_reconstructed_only(faces: Faces):
    pair = partners(faces.who)
    rows = judge_swaps(Model(('z',)), torch.zeros(len(pair)), faces, Judge(faces, mixed(faces, pair, .3, .6)))
    assert [*rows] == ['reconstruction']
