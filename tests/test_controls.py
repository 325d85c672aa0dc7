"""Controls of nbs/measure/controlled.py: discriminators that see no pairs of image and code, or no code at all."""
import sys
from pathlib import Path

import pytest
import torch
from rbvae_nb.digits import digit_styles
from rbvae_nb.srbvae import SRbVAE

sys.path.append(str(Path(__file__).parents[1] / 'nbs/measure'))
from controlled import ImagesOnly, NoPairs


@pytest.fixture(scope='module')
def batch():
    return digit_styles(n_styles=1).sets.batch(8, torch.Generator().manual_seed(0))


def losses(method, batch, seed: int = 0):
    model = method.preset('small', seed)[0]
    torch.manual_seed(1)
    return model, *model.losses(*batch, 1.)


@pytest.mark.parametrize('control', [NoPairs, ImagesOnly])
def test_only_the_adversarial_terms_differ(control, batch):
    """The same random numbers give the same image errors, KL, code errors and entropy."""
    *_, paired = losses(SRbVAE, batch)
    *_, other = losses(control, batch)
    differ = {name for name in paired if not torch.allclose(paired[name], other[name])}
    assert differ == {'adversarial_u', 'adversarial_r', 'discriminator', *(name for name in paired if 'ratio' in name)}


def test_no_code_meets_its_image(batch):
    """Each code is seen once, on neither side with the image it belongs to, and z and e of one image are parted."""
    model, *_ = losses(NoPairs, batch)
    q, _ = model.sample_q(*batch)
    seen = []
    model.discriminator_u.forward = lambda x, *codes: seen.append((x, codes)) or x.new_zeros(len(x))
    model.discriminator_r.forward = lambda x, *codes: seen.append((x, codes)) or x.new_zeros(len(x))
    with torch.no_grad(): model.ratio_terms(q, q)
    (x_u, (z_u, e_u)), (x_r, (z_r,)) = seen
    for images, codes, own in ((x_u, z_u, q.z_u), (x_u, e_u, q.e_u), (x_r, z_r, q.z_r)):
        assert images[:8].equal(q.x_u if codes is not z_r else q.x_r)
        assert not (codes[:8] == own).all(1).any() and codes[:8].sort(0)[0].equal(own.sort(0)[0])
    assert not ((z_u[:8] - q.z_u.roll(2, 0)).abs().sum(1) == 0).any()


def test_the_encoders_hear_of_it(batch):
    """Codes are still judged: the adversarial terms leave a gradient in both encoders."""
    model, _, terms = losses(NoPairs, batch)
    for encoder in (model.encoder_z, model.encoder_e): assert reached(encoder, terms['adversarial_u'])


def test_images_alone_say_nothing_to_the_encoders(batch):
    """They leave a gradient in the generator only; e comes detached from the aggregate."""
    model, _, terms = losses(ImagesOnly, batch)
    assert reached(model.generator, terms['adversarial_u']) and reached(model.generator, terms['adversarial_r'])
    for encoder in (model.encoder_z, model.encoder_e): assert not reached(encoder, terms['adversarial_u'])


def reached(network, term) -> bool:
    """Whether a term leaves a gradient in a network."""
    found = torch.autograd.grad(term, [*network.parameters()], retain_graph=True, allow_unused=True)
    return any(g is not None and g.abs().max() > 0 for g in found)
