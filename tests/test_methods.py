"""Presets and weight files of every method; adversarial steps: who moves whom, and what dropout does."""
import copy
import math
from pathlib import Path

import pytest
import torch
from rbvae_nb.divergences import logistic_loss, symmetric_kl
from rbvae_nb.files import load_tensors
from rbvae_nb.images import ImageSets
from rbvae_nb.methods import METHODS, Method, load, player_of
from rbvae_nb.networks import Discriminator
from rbvae_nb.srbvae import SRbVAE
from rbvae_nb.training import Run, alternating_step, gradient_step, train

each_method = pytest.mark.parametrize('method', METHODS.all().values(), ids=METHODS.all())
adversarial = [method for method in METHODS.all().values() if 'discriminator' in method().players()]


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return tuple(torch.rand(6, 3, 32, 32, generator=draw) * 2 - 1 for _ in range(2))


def equal(ours: Method, theirs: Method) -> bool:
    """Whether all parameters and buffers are the same."""
    ours, theirs = ours.state_dict(), theirs.state_dict()
    return ours.keys() == theirs.keys() and all(value.equal(theirs[name]) for name, value in ours.items())


# Presets
@each_method
def test_no_arguments_are_the_small_preset(method: type[Method]):
    plain, small = method(), method.preset('small')[0]
    assert plain.arguments == small.arguments
    shapes = [{name: value.shape for name, value in model.state_dict().items()} for model in (plain, small)]
    assert shapes[0] == shapes[1]


@each_method
def test_a_preset_has_its_own_random_numbers(method: type[Method]):
    """The same weights for the same seed, others for another; and nobody else's random numbers are used up."""
    torch.manual_seed(11)
    before = torch.get_rng_state()
    one = method.preset('small', seed=4)[0].state_dict()
    assert torch.get_rng_state().equal(before)
    torch.manual_seed(12)
    same, other = (method.preset('small', seed=seed)[0].state_dict() for seed in (4, 5))
    assert all(value.equal(same[name]) for name, value in one.items())
    assert not any(value.equal(other[name]) for name, value in one.items() if value.dim() > 1)  # biases are 0


@each_method
def test_a_model_is_called_on_images_to_rebuild_them(method: type[Method], batch):
    model = method.preset('small')[0].eval()
    assert model(batch[0]).equal(model.reconstruct(batch[0]))
    assert not model(batch[0])[0].equal(model(batch[0])[1])


def run_of(steps: int) -> Run:
    """A run of sRb-VAE's small preset, which is that long."""
    model, recipe = SRbVAE.preset('small')
    sets = ImageSets(*torch.randint(0, 256, (2, 8, 3, 32, 32), dtype=torch.uint8))
    more = dict(steps=steps, batch_size=2, lr_ratio={}, dtype='float32', alternating=False)
    return Run(model, sets, recipe | more, torch.device('cpu'))


def test_schedules_are_shares_of_the_training():
    """100 steps, and 900: each of the first is nine of the second, of which it has the last rate, or the first."""
    short, long = run_of(100), run_of(900)
    rates = []
    for step in range(100):
        short.step, long.step = step, 9 * step + 8 * (step < 4)  # the rate grows to what it is after a step
        assert short.rate() == pytest.approx(long.rate())
        elapsed = step / 100
        assert short.model.weights(short.model.share(elapsed)) == long.model.weights(long.model.share(9 * step / 900))
        rates.append(short.rate())
    assert rates[:5] == pytest.approx([.25, .5, .75, 1, 1])  # 4 % of warm-up
    assert rates[69:72] == pytest.approx([1, 1, 29 / 30]) and rates[99] == pytest.approx(1 / 30)  # 30 % of decay


@pytest.mark.parametrize('steps', [100, 900])
def test_every_length_ends_with_the_whole_symmetric_objective(steps: int):
    """Eq. 3 alone in the first fifth; in the last step all terms have their full weights, and discriminators learn."""
    run, symmetric = run_of(steps), {'adversarial_u', 'adversarial_r', 'latent_e_u', 'discriminator'}
    for run.step, on in ((0, False), (steps // 5, False), (steps // 5 + 1, True), (steps - 1, True)):
        before = copy.deepcopy(run.model)
        assert run.advance().keys() & symmetric == (symmetric if on else set())
        assert ({'discriminator_u', 'discriminator_r'} <= changed(before, run.model)) == on
    weights = run.model.weights(run.model.share((steps - 1) / steps))
    assert weights == run.model.weights(1.)
    assert weights['adversarial_u'] == weights['adversarial_r'] == 6


def test_no_preset_has_the_anchor_and_medium_is_small_with_one_level_more():
    """Eight times the λ and one level of the pyramid: from 32 pixels down the same objective."""
    for name in SRbVAE.presets: assert SRbVAE.preset_arguments(name)['anchor_weight'] == 0
    for name, method in METHODS.all().items():
        if 'medium' not in method.presets: continue
        small, medium = (method.preset_arguments(preset) for preset in ('small', 'medium'))
        scales = small.keys() & {'laplace_scale', 'pretraining_scale'}
        assert {key: medium[key] for key in scales} == {key: 8 * small[key] for key in scales}, name
        assert medium['pyramid'] == small['pyramid'] + 1 and medium['image_size'] == 2 * small['image_size'], name


@pytest.mark.parametrize('wrong', [dict(pretraining=1000), dict(ramp=400.), dict(pretraining=-.1)])
def test_pretraining_and_ramp_are_shares(wrong: dict):
    """Steps in their place would leave the symmetric objective off for good."""
    (name, value), = wrong.items()
    with pytest.raises(ValueError, match=rf'^expected {name} as a share of the training in \[0, 1\], got {value}$'):
        SRbVAE.preset('small', **wrong)


# Weight files
@pytest.mark.parametrize('method', adversarial)
def test_a_training_goes_on_from_a_file_with_discriminators(method: type[Method], batch, tmp_path: Path):
    """Loaded, every tensor is as it was, and so is what the next step makes of it."""
    def step(model: Method) -> Method:
        torch.manual_seed(2)
        gradient_step(model, optimizers(model, {'model': 1e-6, 'discriminator': 1e-3}), *batch)
        return model
    model = step(method.preset('small', seed=1)[0])
    again = load(model.save(tmp_path / 'whole.safetensors', discriminators=True)).train()
    assert equal(model, again)
    before = copy.deepcopy(model)
    assert equal(step(model), step(again)) and not equal(before, again)


@pytest.mark.parametrize('method', adversarial)
def test_a_file_without_discriminators_encodes_and_decodes(method: type[Method], batch, tmp_path: Path):
    model = method.preset('small', seed=1)[0].eval()
    file = model.save(tmp_path / 'small.safetensors')
    assert {player_of(name) for name in load_tensors(file)[0]} == {'model'}
    again = load(file)
    assert again(batch[0]).equal(model(batch[0]))
    moved = changed(model, again)
    assert moved and all(player_of(name) == 'discriminator' for name in moved)


@each_method
def test_half_precision_files(method: type[Method], batch, tmp_path: Path):
    """Each tensor rounded to float16, and loaded as float32."""
    model = method.preset('small')[0]
    file = model.save(tmp_path / 'half.safetensors', dtype='float16', discriminators=True)
    assert {value.dtype for value in load_tensors(file)[0].values()} == {torch.float16}
    again = load(file).state_dict()
    assert all(again[name].equal(value.half().float()) for name, value in model.state_dict().items())


@pytest.mark.parametrize('dtype', ['float8', 'int8', 'load'])
def test_files_of_other_types(dtype: str, tmp_path: Path):
    """Whole numbers would make zeros of the weights."""
    with pytest.raises(ValueError, match=f"^expected dtype .*'float32'.*, got '{dtype}'$"):
        SRbVAE().save(tmp_path / 'other.safetensors', dtype=dtype)
    assert not [*tmp_path.iterdir()]


# Players
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
    step(model, optimizers(model, {'model': 0., 'discriminator': 0.} | {who: 1e-2}), *batch, elapsed=1.)
    assert changed(before, model) == moves


@pytest.mark.parametrize('name', ['cvae', 'mm_cvae'])
@pytest.mark.parametrize('step', [gradient_step, alternating_step])
def test_a_fixed_reference_code_stays_at_zero(batch, name, step):
    """While everything else of the model moves; that of Rb-VAE moves too."""
    def moved(model: Method) -> set[str]:
        before = copy.deepcopy(model)
        step(model, {who: torch.optim.Adam(p, 1e-3) for who, p in model.players().items()}, *batch)
        return changed(before, model)
    model = METHODS.find(name).preset('small')[0]
    assert {'generator', 'encoder_z', 'encoder_e'} <= moved(model) and model.e_ref.equal(torch.zeros(8))
    assert 'e_ref' in moved(METHODS.find('rbvae').preset('small')[0])


def test_a_total_correlation_needs_two_images(batch):
    with pytest.raises(ValueError, match='^expected at least two unlabelled images, to exchange codes, got 1$'):
        METHODS.find('cvae').preset('small')[0].losses(*(x[:1] for x in batch))


def test_simultaneous_gradients_are_those_of_each_loss_alone(batch):
    """Each player's gradient equals the one computed from a fresh, separate backward pass."""
    model = SRbVAE.preset('small')[0]
    frozen = optimizers(model, {'model': 0., 'discriminator': 0.})
    torch.manual_seed(1)
    gradient_step(model, frozen, *batch, elapsed=1.)
    for who, parameters in model.players().items():
        together = [p.grad.clone() for p in parameters]
        torch.manual_seed(1)
        alone = torch.autograd.grad(model.losses(*batch, elapsed=1.)[0][who], parameters)
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
    sets = ImageSets(*torch.randint(0, 256, (2, 32, 3, 32, 32), dtype=torch.uint8))
    opt, better = {who: torch.optim.Adam(p, 1e-3) for who, p in model.players().items()}, 0
    for _ in range(12):
        gradient_step(model, opt, *sets.batch(16), elapsed=1.)
        with torch.no_grad():
            q, _ = model.sample_q(*sets.batch(16))
            _, p, _ = model.sample_p(q)
        for d_q, d_p in zip(model.log_ratios(q), model.log_ratios(p)):
            if logistic_loss(d_q, d_p) < 2 * math.log(2):
                better += 1
                assert symmetric_kl(d_q, d_p) > 0
    assert better >= 6


def noise() -> ImageSets:
    draw = torch.Generator().manual_seed(0)
    return ImageSets(*(torch.randint(0, 256, (8, 3, 32, 32), generator=draw, dtype=torch.uint8) for _ in range(2)))


def test_training_goes_on_from_a_released_model(tmp_path):
    """With its discriminators, and without another pretraining: the whole objective from the first step on."""
    model = SRbVAE.preset('small')[0]
    model.save(tmp_path / 'released', discriminators=True)
    again = load(tmp_path / 'released', pretraining=0., ramp=0.)
    assert all(a.equal(b) for a, b in zip(model.parameters(), again.parameters()))
    before = copy.deepcopy(again)
    history = train(again, noise(), steps=2, batch_size=4, log_every=1, device='cpu', progress=False)
    assert 'adversarial_u' in history[0] and 'discriminator_u' in changed(before, again)
    with pytest.raises(ValueError, match='do not fit .*pretrainig'): load(tmp_path / 'released', pretrainig=0.)


def test_phases_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match='pretraining and ramp to fit into the training, got 1.4 of it'):
        SRbVAE(pretraining=.9, ramp=.5)
    with pytest.raises(ValueError, match='warmup and decay to fit'):
        train(SRbVAE(), noise(), steps=2, warmup=.6, decay=.6)


def test_a_method_that_does_not_store_its_arguments_says_so():
    class Forgetful(Method):
        def __init__(self, dim_z: int = 4): super().__init__()
    with pytest.raises(TypeError, match='Forgetful to store its arguments, got no dim_z'): Forgetful().save('never')
