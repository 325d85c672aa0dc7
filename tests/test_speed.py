"""The training step beside the literal transcription of Algorithm 1; and what may not change with the way of computing:
resume, memory, the meaning of a switch."""
import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rbvae_nb.digits import digit_styles
from rbvae_nb.networks import Layers, plain
from rbvae_nb.rbvae import RbVAE
from rbvae_nb.speed import literal_step
from rbvae_nb.srbvae import SRbVAE, contest
from rbvae_nb.training import Run, gradient_step, train
from torch import Tensor

WEIGHTS = dict(laplace_scale=7., adversarial_weight=1.3, latent_z_weight=.7, latent_e_weight=.9, kl_weight=.35,
               anchor_weight=.15, entropy_weight=.6, code_gradient=.45, image_gradient=.7, pretraining=0.,
               ramp=0.)
SETTINGS = {
    'small': WEIGHTS,
    'as the paper': WEIGHTS | dict(n_convs=2, patch=1, channels=(20, 16, 8, 4), generator_channels=None, pyramid=0,
                                   latent_norm=True, aggregate=0., noise=.05),
    'nothing of p from q, all of the gradient': WEIGHTS | dict(aggregate=0., code_gradient=1., dropout=.6),
}


def batch(n: int = 5) -> Tensor:
    """Unlabelled and reference images, (2, n, 3, 32, 32) in [-1, 1]."""
    draw = torch.Generator().manual_seed(4)
    return torch.rand(2, n, 3, 32, 32, generator=draw, dtype=torch.float64) * 2 - 1


def stepped(step: Callable, way: Callable = lambda model: model, training: bool = True, **settings) -> dict:
    """Gradient and value of each parameter after a step of gradient descent with given noise."""
    torch.manual_seed(3)
    model = SRbVAE(**settings).double().train(training)
    with torch.no_grad(): model.e_ref.normal_()
    sgd = {who: torch.optim.SGD(weights, 1e-3) for who, weights in model.players().items()}
    way(model)
    torch.manual_seed(5)
    step(model, sgd, *batch())
    return {name: (weight.grad, weight.detach()) for name, weight in model.named_parameters()}


def listed(model: SRbVAE) -> SRbVAE:
    """From now on layer by layer, player by player."""
    for m in model.modules():
        if hasattr(m, 'fast'): m.fast = False
    return model


@pytest.mark.parametrize('settings', SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize('training', [True, False], ids=['dropout', 'no dropout'])
def test_a_step_is_that_of_the_literal_transcription(settings: dict, training: bool):
    """Gradients and parameters of both ways of computing, to 1e-9 of the largest, with the same noise and dropout."""
    literal = stepped(literal_step, listed, training, **settings)
    for way in (lambda model: model, listed):
        for name, (gradient, weight) in stepped(gradient_step, way, training, **settings).items():
            there, after = literal[name]
            assert (gradient - there).abs().max() <= 1e-9 * there.abs().max(), name
            assert (weight - after).abs().max() < 1e-9, name


@pytest.mark.parametrize('confidence', [0., 40., 200.])
def test_one_backward_pass_holds_for_confident_discriminators(confidence: float):
    """Where σ is far below the smallest float32, the samples still get the gradient of J."""
    torch.manual_seed(0)
    head = torch.nn.Linear(3, 1, dtype=torch.float64)
    def discriminator(x: Tensor) -> Tensor: return (head(x) + confidence * x.detach()[:, :1].sign()).squeeze(1)
    discriminator.parameters = head.parameters
    q = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
    p = (-torch.rand(4, 3, dtype=torch.float64)).requires_grad_()
    found = []
    for fast in (True, False):
        j, loss, *_ = contest(discriminator, [q], [p], fast)
        found.append([*torch.autograd.grad(j, [q, p], retain_graph=True),
                      *torch.autograd.grad(loss, list(head.parameters()))])
    for ours, theirs in zip(*found): assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-19)


def switches(model: SRbVAE) -> set[bool]:
    """Whether its layers and its players are computed together."""
    return {m.fast for m in model.modules() if isinstance(m, (Layers, SRbVAE))}


def test_plain_is_for_a_while_and_everywhere():
    model = SRbVAE()
    with pytest.raises(KeyError), plain(model):
        assert switches(model) == {False}
        raise KeyError
    assert switches(model) == {True}


@pytest.fixture(scope='module')
def sets():
    return digit_styles().sets


def trained(sets, out: Path | None = None, **recipe) -> dict[str, Tensor]:
    """Weights of a short training, past its pretraining."""
    model, small = SRbVAE.preset('small', 0, pretraining=.3, ramp=.2)
    train(model, sets, **small | dict(steps=6, batch_size=4, device='cpu', progress=False, out=out) | recipe)
    return copy.deepcopy(model.state_dict())


def test_the_switch_of_train_is_the_plain_loop(sets):
    """Meanwhile; in the end a model computes together what it can again."""
    model, recipe = SRbVAE.preset('small', 0)
    recipe |= dict(steps=1, batch_size=2, device='cpu', progress=False)
    seen: set[bool] = set()
    for fast in (True, False):
        train(model, sets, **recipe, fast=fast, callback=lambda *_, fast=fast: seen.add(switches(model) == {fast}))
    assert switches(model) == {True} and seen == {True}


@pytest.mark.parametrize('dtype', ['bfloat16', 'float16'])
def test_half_precision_trains_and_resumes_exactly(sets, tmp_path: Path, dtype: str):
    """In float16 the scale of the losses is a part of the state."""
    whole = trained(sets, dtype=dtype, steps=4, batch_size=2)
    def stop(step: int, row: dict):
        if step == 2: raise KeyboardInterrupt
    again = dict(dtype=dtype, steps=4, batch_size=2, out=tmp_path, checkpoint_every=2)
    with pytest.raises(KeyboardInterrupt): trained(sets, **again, callback=stop, log_every=1)
    assert all(value.equal(whole[name]) for name, value in trained(sets, **again).items())
    assert all(value.isfinite().all() for value in whole.values())


def test_float16_leaves_out_a_step_that_is_not_finite(sets):
    """Nothing moves, the scale halves, and the next step is taken."""
    model, recipe = RbVAE.preset('small', 0)
    recipe |= dict(steps=10, batch_size=2, lr_ratio={}, alternating=False, dtype='float16', fast=True)
    run = Run(model.train(), sets, recipe, torch.device('cpu'))
    run.scaler.load_state_dict(run.scaler.state_dict() | dict(scale=2. ** 60))
    before = copy.deepcopy(model.state_dict())
    run.advance()
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    assert run.scaler.get_scale() == 2. ** 59
    run.scaler.update(1.)
    run.advance()
    assert not all(value.equal(before[name]) for name, value in model.state_dict().items())


def test_recorded_steps_are_for_cuda(sets):
    with pytest.raises(ValueError, match='^expected graph=True on a CUDA device .*, got cpu in .*; leave it out$'):
        trained(sets, graph=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason='a CUDA device records steps')
def test_recorded_steps_are_those_that_are_taken_one_by_one(sets):
    """Through all phases of a training, and in a training that was stopped between two of them."""
    recipe = dict(steps=40, batch_size=8, device='cuda', dtype='float32')
    one_by_one, recorded = (trained(sets, **recipe, graph=graph) for graph in (False, True))
    assert all(torch.allclose(one_by_one[name], value, atol=1e-2) for name, value in recorded.items())


def test_phases():
    """A recording is kept as long as the losses do not change; elsewhere nothing is recorded."""
    model = SRbVAE(pretraining=.2, ramp=.1)
    assert [model.phase(at) for at in (0., .19, .2, .25, .31, 1.)] == [0, 0, 0, None, 1, 1]
    assert RbVAE().phase(.2) == RbVAE().phase(.7) is not None
