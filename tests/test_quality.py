"""Numbers about pictures, on pictures whose right answer is known."""
from functools import partial

import pytest
import torch
from rbvae_nb import quality
from rbvae_nb.digits import digit_styles
from rbvae_nb.images import to_bytes
from rbvae_nb.quality import picture_scores, sure, tint, told_from_real, use_of_code
from rbvae_nb.rbvae import RbVAE
from torch import Tensor


def noise(n: int, seed: int = 0) -> Tensor:
    """Random images in [-1, 1]."""
    return torch.rand(n, 3, 32, 32, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def deaf(*silent: str) -> RbVAE:
    """A model whose generator does not look at some codes."""
    torch.manual_seed(0)
    model = RbVAE(dim_z=6, dim_e=3).eval()
    with torch.no_grad():
        weight = model.generator.layers[0].weight
        for encoder in (model.encoder_z, model.encoder_e):  # codes that differ from image to image
            encoder.tower.layers[-1].weight.mul_(100)
        if 'z' in silent: weight[:, :6] = 0
        if 'e' in silent: weight[:, 6:] = 0
    return model


class Decided(torch.nn.Module):
    """In place of an attribute classifier: the mean of an image says how likely the first of two classes is."""
    def __init__(self, factor: float = 10.) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> tuple[Tensor]:
        odds = self.factor * x.mean((1, 2, 3))
        return torch.stack([odds, torch.zeros_like(odds)], 1),


@pytest.mark.parametrize('colour, expected', [
    ((1, 1, 1), 0.), ((1, -1, -1), 8 / 9), ((1, 1, -1), 8 / 9), ((.5, 0, -.5), 1 / 3)])
def test_tint(colour: tuple, expected: float):
    """Half of the image has a colour, the rest is grey."""
    x = torch.zeros(4, 3, 8, 8)
    x[:, :, :4] = torch.tensor(colour).view(3, 1, 1)
    assert tint(x) == pytest.approx(expected / 2, abs=1e-6)
    assert tint(to_bytes(x)) == pytest.approx(expected / 2, abs=.01)


def test_tint_is_not_a_mean_that_cancels():
    x = torch.zeros(2, 3, 4, 4)
    x[0, 0], x[1, 0] = 1., -1.
    assert tint(x) == pytest.approx(4 / 9)


def test_what_cannot_be_told_apart_and_what_can():
    """The same noise twice, and noise beside brighter noise; as bytes too."""
    brighter = (noise(400) + .3).clamp(-1, 1)
    assert .4 < told_from_real(noise(800), noise(800, 1)) < .6 and told_from_real(brighter, noise(400, 1)) > .95
    assert told_from_real(to_bytes(noise(400)), to_bytes(noise(400, 1) * .2)) > .95


def test_images_that_were_learned_by_heart_do_not_count():
    """Of few images of noise every one can be remembered; the held-out ones are like neither kind."""
    drawn, real = noise(120), noise(120, 1)
    assert told_from_real(drawn, real, steps=200) < .75


def test_a_judge_that_says_one_thing_is_right_half_of_the_time():
    assert told_from_real(noise(400), noise(400, 1), steps=0) == pytest.approx(.5, abs=.1)


def test_telling_apart_leaves_the_random_state_and_repeats_itself():
    ends = []
    for seed in (0, 0):
        torch.rand(len(ends) + 1)
        state = torch.get_rng_state()
        ends.append(told_from_real(noise(400), noise(400, 1) * .9, steps=20, seed=seed))
        assert torch.get_rng_state().equal(state)
    assert ends[0] == ends[1]


def test_use_of_a_code():
    """Nothing where it is not looked at, everything where nothing else is."""
    images = noise(60)
    assert use_of_code(deaf('e'), images) == 0 and use_of_code(deaf('e'), images, 'z') == pytest.approx(1)
    assert use_of_code(deaf('z'), images) == pytest.approx(1) and use_of_code(deaf('z'), images, 'z') == 0


def test_use_of_a_code_is_measured_in_differences_of_images_with_their_own_codes():
    """By hand, of three images: each takes the code of the one before, and is compared with that image."""
    model, images = deaf(), noise(3)
    z, e = (code.split(1) for code in model.encode(images).values())
    own = [model.decode(z=z[i], e=e[i]) for i in range(3)]
    changed = [model.decode(z=z[i], e=e[i - 1]) for i in range(3)]
    change = sum((changed[i] - own[i]).abs().mean() for i in range(3))
    expected = float(change / sum((own[i] - own[i - 1]).abs().mean() for i in range(3)))
    assert use_of_code(model, images) == pytest.approx(expected, rel=1e-3)


def test_sure():
    """Log-odds of 2 are a probability of .88, of 3 one of .95; of the second class as well."""
    x = torch.tensor([.2, .3, -.3, 0.]).view(4, 1, 1, 1).expand(-1, 3, 32, 32)
    assert sure(Decided(), x) == .5 and sure(Decided(), x, at=.85) == .75


def test_refused():
    with pytest.raises(ValueError, match='at least 100 images of either kind, got 99'):
        told_from_real(noise(99), noise(200))
    with pytest.raises(ValueError, match="one of the codes .*'y'"):
        use_of_code(deaf(), noise(4), 'y')


def test_a_model_that_draws_real_reference_images_is_not_told_from_them(monkeypatch):
    data = digit_styles(n_styles=1)
    monkeypatch.setattr(RbVAE, 'with_reference', lambda self, images: data.sets.reference[1000:1000 + len(images)])
    scores = picture_scores(deaf(), data, Decided(), 200)
    assert scores['tint'] < 1e-6 and scores['told from real'] < .8


def test_scores_are_of_reference_images_and_of_samples(monkeypatch):
    """e_ref decides what is drawn, so it decides three of the four; samples do not see it."""
    quick = partial(told_from_real, steps=30)
    monkeypatch.setattr(quality, 'told_from_real', quick)
    data, found = digit_styles(n_styles=1), []
    samples = deaf().sample(500, torch.Generator().manual_seed(0))
    classifier = Decided(2.2 / float(samples.mean((1, 2, 3)).abs().median()))  # sure of about half of them
    for e_ref in (0., 5.):
        model = deaf()
        with torch.no_grad(): model.e_ref.fill_(e_ref)
        found.append(picture_scores(model, data, classifier, 100))
        images = data.sets.unlabelled[:100]
        assert found[-1]['tint'] == tint(model.with_reference(images))
        assert found[-1]['told from real'] == quick(model.with_reference(images), data.sets.reference[:100])
        assert found[-1]['use of e'] == use_of_code(model, images)
        assert found[-1]['sure samples'] == sure(classifier, samples)
    assert found[0]['tint'] != found[1]['tint'] and .3 < found[0]['sure samples'] < .7
