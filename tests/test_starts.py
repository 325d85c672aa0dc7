"""Where trainings are made to begin: weights that are taken over, and pairs of images that belong together."""
import cv2
import numpy as np
import pytest
import torch
from rbvae_nb.digits import digit_styles, load_digits, outline
from rbvae_nb.rbvae import RbVAE
from rbvae_nb.srbvae import SRbVAE
from rbvae_nb.starts import IgnoresE, PairedSets, begin_at, digit_pairs
from rbvae_nb.training import Run


def test_begin_at_takes_networks_and_leaves_discriminators():
    start, model = IgnoresE.preset(seed=1)[0], SRbVAE.preset(seed=2)[0]
    with torch.no_grad(): start.e_ref.fill_(.7)
    before, given = {k: v.clone() for k, v in model.state_dict().items()}, start.state_dict()
    assert begin_at(model, start) is model
    for name, value in model.state_dict().items():
        assert value.equal(given.get(name, before[name])), name
        assert (name in given) != name.startswith('discriminator')


def test_begin_at_copies():
    """What is learned afterwards does not reach the start."""
    start = IgnoresE.preset()[0]
    model = begin_at(RbVAE.preset(seed=1)[0], start)
    with torch.no_grad(): model.e_ref.add_(1)
    assert start.e_ref.abs().max() == 0


@pytest.mark.parametrize('preset, changes', [('small', dict(dim_e=7)), ('medium', {})])
def test_begin_at_refuses_other_sizes(preset: str, changes: dict):
    before, model = RbVAE.preset()[0], RbVAE.preset()[0]
    with pytest.raises(ValueError, match=r'^expected a start with networks of the same sizes, got another [\w.]+;'):
        begin_at(model, IgnoresE.preset(preset, **changes)[0])
    assert all(a.equal(b) for a, b in zip(model.state_dict().values(), before.state_dict().values()))


def test_pairs_are_drawn_together():
    images = torch.arange(40, dtype=torch.uint8).view(40, 1, 1, 1).expand(40, 3, 32, 32)
    sets = PairedSets(images, images + 40)
    for one in (sets, sets.to('cpu'), Run(RbVAE(), sets, RECIPE, torch.device('cpu')).sets):
        x_u, x_r = one.batch(16, torch.Generator().manual_seed(0))
        assert torch.allclose((x_r - x_u) * 127.5, torch.tensor(40.), atol=1e-3)
        assert len(x_u[:, 0, 0, 0].unique()) > 8


RECIPE = dict(lr=1e-3, lr_ratio={}, betas=(.5, .99), seed=0, dtype='float32')


def test_digit_pairs_are_of_one_digit():
    """The styled images are those of `digit_styles`; beside each stands the outline of the digit it was made from."""
    pairs, data, raw = digit_pairs(), digit_styles(), load_digits()
    assert pairs.unlabelled.equal(data.sets.unlabelled) and len(pairs.reference) == len(pairs.unlabelled)
    base = np.array_split(np.random.default_rng(0).permutation(len(raw.train)), 2)[1]
    for i in (0, 17, len(base) - 1, len(base), 5 * len(base) + 3):
        edges = outline(raw.train[base[i % len(base)]]).reshape(32, 2, 32, 2).mean((1, 3))
        assert np.abs(pairs.reference[i, 0].numpy() - edges).max() <= 1
    some = range(0, len(pairs.unlabelled), 199)
    styled, plain = (np.stack([filled(x[i]) for i in some]) for x in (pairs.unlabelled, pairs.reference))
    own, other = ((styled == partner).mean() for partner in (plain, np.roll(plain, 1, 0)))
    assert own > other + .1


def filled(image: torch.Tensor) -> np.ndarray:
    """Where a digit is, its inside too, in a frame of its own size."""
    light = (image.sum(0) > 60).numpy().astype(np.uint8)
    cv2.drawContours(light, cv2.findContours(light, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)[0], -1, 1, cv2.FILLED)
    x, y, w, h = cv2.boundingRect(light)
    return cv2.resize(light[y:y + h, x:x + w], (16, 16), interpolation=cv2.INTER_AREA)
