"""Adversarial steps: who moves whom, and what dropout does."""
import copy
import math

import pytest
import torch
from rbvae_nb.digits import Piles
from rbvae_nb.divergences import logistic_loss, symmetric_kl
from rbvae_nb.networks import Discriminator
from rbvae_nb.srbvae import SRbVAE
from rbvae_nb.training import alternating_step, gradient_step


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return tuple(torch.rand(6, 3, 32, 32, generator=draw) * 2 - 1 for _ in range(2))


def optimizers(model: SRbVAE, rates: dict[str, float]) -> dict[str, torch.optim.Optimizer]:
    return {who: torch.optim.SGD(parameters, rates[who]) for who, parameters in model.players().items()}


def changed(before: SRbVAE, after: SRbVAE) -> set[str]:
    """First name of every parameter that moved."""
    return {k.split('.')[0] for (k, a), b in zip(before.named_parameters(), after.parameters()) if not a.equal(b)}


def test_every_parameter_has_one_player():
    model = SRbVAE.preset('small')[0]
    players = [{id(p) for p in ps} for ps in model.players().values()]
    assert not set.intersection(*players)
    assert set.union(*players) == {id(p) for p in model.parameters()}


@pytest.mark.parametrize('step', [gradient_step, alternating_step])
@pytest.mark.parametrize('who, moves', [('model', {'generator', 'encoder_z', 'encoder_e', 'e_ref'}),
                                        ('discriminator', {'discriminator_u', 'discriminator_r'})])
def test_a_player_moves_only_its_own_parameters(batch, step, who, moves):
    """With a rate of 0 for the other player, nothing of the other moves, and all of its own does."""
    model = SRbVAE.preset('small')[0]
    before = copy.deepcopy(model)
    step(model, optimizers(model, {'model': 0., 'discriminator': 0.} | {who: 1e-2}), *batch, step=10 ** 6)
    assert changed(before, model) == moves


def test_simultaneous_gradients_are_those_of_each_loss_alone(batch):
    """Each player's gradient equals the one computed from a fresh, separate backward pass."""
    model = SRbVAE.preset('small')[0]
    frozen = optimizers(model, {'model': 0., 'discriminator': 0.})
    torch.manual_seed(1)
    gradient_step(model, frozen, *batch, step=10 ** 6)
    for who, parameters in model.players().items():
        together = [p.grad.clone() for p in parameters]
        torch.manual_seed(1)
        alone = torch.autograd.grad(model.losses(*batch, step=10 ** 6)[0][who], parameters)
        assert all(torch.allclose(a, b, atol=1e-6, rtol=1e-4) for a, b in zip(together, alone))


def test_group_dropout_only_in_training():
    torch.manual_seed(0)
    d = Discriminator(32, (4,), (16, 8, 8), n_convs=1, patch=2, dropout=.25)
    x, z = torch.randn(64, 3, 32, 32), torch.randn(64, 4)
    assert d.eval()(x, z).equal(d(x, z))
    assert not d.train()(x, z).equal(d(x, z))


def test_group_dropout_zeroes_whole_groups():
    """What reaches the head is, for each sample, a group as it was or all zero."""
    torch.manual_seed(0)
    d, seen = Discriminator(32, (4, 5), (16, 8, 8), n_convs=1, patch=2, features=7, dropout=.25).train(), []
    d.head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    x, z, e = torch.randn(400, 3, 32, 32), torch.randn(400, 4), torch.randn(400, 5)
    d(x, z, e), d.eval()(x, z, e)
    dropped, whole = (s.unflatten(1, (3, 7)) for s in seen)
    zeroed = (dropped == 0).all(2)
    assert (dropped[~zeroed] == whole[~zeroed]).all()
    assert abs(zeroed.float().mean() - .25) < .04


def test_sign_of_algorithm_1():
    """Whenever the logistic loss beats a coin, the logits are higher on q, in each stream, as training goes on."""
    torch.manual_seed(0)
    model = SRbVAE.preset('small')[0]
    piles = Piles(torch.randint(0, 256, (32, 3, 32, 32), dtype=torch.uint8), torch.randint(0, 256, (32, 3, 32, 32), dtype=torch.uint8))
    opt, better = {who: torch.optim.Adam(p, 1e-3) for who, p in model.players().items()}, 0
    for step in range(12):
        gradient_step(model, opt, *piles.batch(16), step=10 ** 6)
        with torch.no_grad():
            q, _ = model.infer(*piles.batch(16))
            p, _ = model.imagine(q)
        for d_q, d_p in zip(model.log_ratios(q), model.log_ratios(p)):
            if logistic_loss(d_q, d_p) < 2 * math.log(2):
                better += 1
                assert symmetric_kl(d_q, d_p) > 0
    assert better >= 6
