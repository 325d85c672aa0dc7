"""Training: rates, players and steps as the recipe says, resumed with everything; and what it starts from."""
import copy
import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from rbvae_nb import training
from rbvae_nb.digits import digit_styles
from rbvae_nb.files import load_tensors
from rbvae_nb.images import ImageSets
from rbvae_nb.methods import METHODS, RECIPES, Method, load
from rbvae_nb.networks import Discriminator, Encoder, Generator, ImageTower, PixelNorm
from rbvae_nb.srbvae import SRbVAE, latent_use_gap
from rbvae_nb.training import (
    History,
    Run,
    TrainingStopped,
    _judged,
    alternating_step,
    clip_gradients,
    gradient_step,
    out_of_line,
    train,
)
from rbvae_nb.vae import VAE


def noise(seed: int = 0, n: int = 12) -> ImageSets:
    """Two sets of random images."""
    draw = torch.Generator().manual_seed(seed)
    return ImageSets(*(torch.randint(0, 256, (n, 3, 32, 32), generator=draw, dtype=torch.uint8) for _ in range(2)))


def quickly(model: Method, out: Path | None = None, steps: int = 4, **more):
    """A training of a few small steps."""
    recipe = dict(steps=steps, batch_size=4, device='cpu', dtype='float32', log_every=1, progress=False)
    return train(model, noise(), out=out, **recipe | more)


def equal(ours: torch.nn.Module, theirs: torch.nn.Module) -> bool:
    """Whether all parameters and buffers are the same."""
    theirs = theirs.state_dict()
    return all(value.equal(theirs[name]) for name, value in ours.state_dict().items())


# Gradients
@pytest.mark.parametrize('step', [gradient_step, alternating_step])
@pytest.mark.parametrize('layout', [torch.contiguous_format, torch.channels_last], ids=['contiguous', 'channels last'])
def test_the_fused_adam_takes_the_steps_of_the_plain_one(step, layout):
    """It pairs numbers by their place in memory, so gradients must lie there as their parameters do."""
    found = []
    for fused in (True, False):
        model, _ = SRbVAE.preset('small', 0, pretraining=0., ramp=0.)
        model = model.double().to(memory_format=layout).train()
        adam = {who: torch.optim.Adam(weights, 1e-3, fused=fused) for who, weights in model.players().items()}
        torch.manual_seed(0)
        for _ in range(2): step(model, adam, *torch.rand(2, 4, 3, 32, 32, dtype=torch.float64))
        found.append(model.state_dict())
    for name, value in found[0].items(): assert (value - found[1][name]).abs().max() < 1e-6, name


def exploding(model: Method, factor: float) -> Method:
    """The same model with its own objective, not the discriminators', multiplied."""
    losses = model.losses
    def multiplied(*batch):
        objectives, terms = losses(*batch)
        return objectives | {'model': factor * objectives['model']}, terms
    model.losses = multiplied
    return model


@pytest.mark.parametrize('step', [gradient_step, alternating_step])
def test_a_gradient_that_is_too_long_is_shortened_by_what_its_player_is_used_to(step):
    """The other player's is left alone, and so is everything as long as nothing is unusual."""
    model, batch = SRbVAE(pretraining=0., ramp=0.).double().train(), torch.rand(2, 4, 3, 32, 32, dtype=torch.float64)
    adam = {who: torch.optim.Adam(weights, 0., betas=(.5, .9)) for who, weights in model.players().items()}
    def length(who): return math.sqrt(sum(float((p.grad ** 2).sum()) for p in model.players()[who]))
    def lengths(model, clip):
        torch.manual_seed(0)  # the same noise, so the same gradients
        step(model, adam, *batch, clip=clip)
        return {who: length(who) for who in adam}
    usual = lengths(model, 2.)
    for _ in range(3): assert lengths(model, 2.) == pytest.approx(usual, rel=1e-9)
    clipped = lengths(exploding(model, 50.), 2.)
    assert clipped['model'] == pytest.approx(2 * usual['model'], rel=1e-6)
    assert clipped['discriminator'] == pytest.approx(usual['discriminator'], rel=1e-9)
    assert lengths(model, None)['model'] == pytest.approx(50 * usual['model'], rel=1e-6)


def test_what_is_usual_is_the_root_of_the_mean_square_so_far():
    """Lengths 1, 2 and 3, weighted as Adam weights them; parameters without a gradient do not count."""
    p, idle = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(1))
    adam, seen = torch.optim.Adam([p, idle], betas=(.5, .8)), [1., 2., 3.]
    for long in seen:
        p.grad = torch.tensor([.6, .8]) * long
        adam.step()
    p.grad = torch.tensor([0., -1000.])
    clip_gradients(adam, 1.5)
    weights = [.8 ** 2, .8, 1.]
    usual = math.sqrt(sum(w * long ** 2 for w, long in zip(weights, seen)) / sum(weights))
    assert p.grad.tolist() == pytest.approx([0., -1.5 * usual], rel=1e-5) and idle.grad is None


def test_a_player_that_stood_still_may_start():
    """Gradients of exactly zero say nothing about what is usual."""
    p = torch.nn.Parameter(torch.zeros(2))
    adam = torch.optim.Adam([p], betas=(.5, .99))
    for gradient in (torch.zeros(2), torch.tensor([3., 4.])):
        p.grad = gradient.clone()
        clip_gradients(adam, 3.)
        adam.step()
    assert p.grad.tolist() == [3., 4.] and p.abs().min() > 0


def test_a_clip_out_of_reach_changes_nothing_and_one_within_reach_does():
    start, ends = SRbVAE.preset('small', seed=1, pretraining=0., ramp=0.)[0], []
    for clip in (None, 1e9, 1.):
        ends.append(copy.deepcopy(start))
        quickly(ends[-1], clip=clip)
    assert equal(ends[0], ends[1]) and not equal(ends[0], ends[2])


# Runs that break
@pytest.mark.parametrize('steps', [60, 33])
def test_a_run_that_breaks_stops_with_its_last_good_checkpoint(tmp_path: Path, monkeypatch, steps: int):
    """All weights are tripled in mid-training: codes far from the prior, images that nobody asked for.

    Two odd rows at the end of a training are no break yet, and what it ends with is saved.
    """
    monkeypatch.setattr(training, 'JUDGED_EVERY', 1)
    model = VAE.preset('small', seed=0)[0]
    def damage(step, row):
        if step == 31:
            with torch.no_grad():
                for weights in model.parameters(): weights.mul_(3)
    def broken(): quickly(model, tmp_path, steps, callback=damage, checkpoint_every=2, lr=1e-4)
    if steps == 60:
        sentence = r'expected a training that holds, got .* at step 34 and before; .*good'
        with pytest.raises(TrainingStopped, match=sentence): broken()
    else: broken()
    assert load_tensors(tmp_path / 'checkpoint.safetensors')[1]['step'] == (30 if steps == 60 else 33)


@pytest.mark.parametrize('kl, error, odd', [(81., 101., True), (79., 101., False), (81., 99., False)])
def test_a_break_needs_twice_the_kl_and_worse_images(kl: float, error: float, odd: bool):
    """Both sets' terms are added up; the KL is compared with the median, the error with the worst."""
    rows = [dict(kl_z=15. + i % 3, kl_e=24., reconstruction_u=60. - i % 4, reconstruction_r=40.) for i in range(20)]
    last = dict(kl_z=1., kl_e=kl - 1, reconstruction_u=error, reconstruction_r=0.)
    assert out_of_line([*rows, last, last, last]) == [odd] * 3


def test_a_run_is_compared_with_itself_within_one_phase():
    """In the ramp of sRb-VAE, λ and with it the errors change from step to step. Rows are 25 steps apart, or more."""
    run = run_of(SRbVAE(pretraining=.25, ramp=.25), steps=1000)
    def compared(step, every):
        run.history = History(dict(step=i, kl=1.) for i in range(every, step + 1, every))
        return [row['step'] for row in _judged(run, every)]
    for every in (1, 5, 25):
        assert compared(100, every) == [25, 50, 75, 100] and compared(400, every) == []
        assert compared(600, every) == [525, 550, 575, 600] and compared(1000, every)[0] == 525
    assert compared(1000, 100) == [600, 700, 800, 900, 1000]


# Recipes
def test_the_paper_preset_is_that_of_the_paper():
    """Adam 1e-4 with (.5, .99), batches of 36, 30 epochs of 60,000 images; 64 pixels, 32 dimensions each."""
    assert RECIPES['paper'] == dict(steps=30 * 60_000 // 36, batch_size=36, lr=1e-4, betas=(.5, .99))
    for name, method in METHODS.all().items():
        if 'paper' not in method.presets: continue
        model, recipe = method.preset_arguments('paper'), method.presets['paper']['recipe']
        dims = {key: value for key, value in model.items() if key.startswith('dim_')}
        assert recipe == RECIPES['paper'] and {*dims.values()} == {32} and model['image_size'] == 64, name
        assert model['pyramid'] == 0 and model['patch'] == 1 and model['n_convs'] == 2 and model['latent_norm'], name
        assert model['laplace_scale'] == .01 and model.get('noise', .01) == .01, name  # λ, in both of its roles


def test_a_preset_changes_defaults_and_arguments_change_a_preset():
    small, large = VAE.preset_arguments('small'), VAE.preset_arguments('paper')
    assert small['channels'] != large['channels'] and VAE.preset('small', 3, dim_z=5)[0].dim_z == 5
    assert VAE.preset('small', 3)[1] == RECIPES['small'] | {'seed': 3}


def run_of(model: Method, **recipe) -> Run:
    every = dict(steps=4, batch_size=4, lr=1e-3, lr_ratio={}, betas=[.3, .7], warmup=0., decay=0., alternating=False,
                 seed=0, dtype='float32')
    return Run(model, noise(), every | recipe, torch.device('cpu'))


def test_every_player_has_adam_with_the_betas_of_the_recipe():
    for optimizer in run_of(SRbVAE()).optimizers.values():
        assert isinstance(optimizer, torch.optim.Adam) and optimizer.defaults['betas'] == (.3, .7)
        assert optimizer.defaults['weight_decay'] == 0 and optimizer.defaults['eps'] == 1e-8


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_the_precision_is_around_the_losses(dtype: str):
    run, seen = run_of(VAE(), dtype=dtype), []
    run.model.encoder_z.tower.layers[-1].register_forward_hook(lambda *_: seen.append(torch.is_autocast_enabled('cpu')))
    run.advance()
    assert {*seen} == {dtype == 'bfloat16'} and all(p.dtype == torch.float32 for p in run.model.parameters())


def test_a_seed_gives_batches_and_noise():
    """The same seed, the same training, whatever was drawn before; another one, another training."""
    start, ends = VAE.preset('small', seed=1)[0], []
    for seed in (0, 0, 1):
        torch.rand(len(ends) + 1)
        ends.append(copy.deepcopy(start))
        quickly(ends[-1], seed=seed)
    assert equal(ends[0], ends[1]) and not equal(ends[0], ends[2])
    batches = [run_of(VAE(), seed=seed) for seed in (0, 1)]
    assert not batches[0].sets.batch(4, batches[0].draw)[0].equal(batches[1].sets.batch(4, batches[1].draw)[0])


# Steps
def by_hand(model: Method, batch: tuple, rates: dict[str, float], alternating: bool):
    """Plain gradient descent; players in turn, discriminators first, or both from the same losses."""
    players = model.players()
    for group in (('discriminator',), ('model',)) if alternating else (('discriminator', 'model'),):
        objectives, _ = model.losses(*batch, 1.)
        grads = {who: torch.autograd.grad(objectives[who], players[who], retain_graph=True, allow_unused=True)
                 for who in group}
        with torch.no_grad():
            for who in group:
                for p, g in zip(players[who], grads[who]):
                    if g is not None: p -= rates[who] * g


@pytest.mark.parametrize('step', [gradient_step, alternating_step])
def test_two_steps_are_those_by_hand(step):
    """Nothing of the first gradient is left in the second step; who moves first is seen by the other, or is not."""
    start, batch, rates = SRbVAE.preset('small', seed=1)[0], noise().batch(4), dict(model=1e-6, discriminator=1e-1)
    ours, theirs = copy.deepcopy(start), copy.deepcopy(start)
    optimizers = {who: torch.optim.SGD(parameters, rates[who]) for who, parameters in ours.players().items()}
    torch.manual_seed(3)
    for _ in range(2): step(ours, optimizers, *batch, 1.)
    torch.manual_seed(3)
    for _ in range(2): by_hand(theirs, batch, rates, step is alternating_step)
    for (name, a), b, before in zip(ours.named_parameters(), theirs.parameters(), start.parameters()):
        moved = (b - before).norm()
        assert moved > 0 and (a - b).norm() < .02 * moved, name


# Checkpoints
def test_a_resumed_training_has_its_whole_history(tmp_path: Path):
    """Weights, moments and rows as if it had never stopped, the seconds apart."""
    def stop(step, row):
        if step == 3: raise RuntimeError('stopped')
    def rows(history): return [{key: value for key, value in row.items() if key != 'seconds'} for row in history]
    start = SRbVAE.preset('small', seed=2, pretraining=.25, ramp=.25)[0]
    whole, first, second = (copy.deepcopy(start) for _ in range(3))
    expected = quickly(whole, tmp_path / 'whole', 5, checkpoint_every=2)
    with pytest.raises(RuntimeError, match='stopped'):
        quickly(first, tmp_path / 'cut', 5, checkpoint_every=2, callback=stop)
    found = quickly(second, tmp_path / 'cut', 5, checkpoint_every=2)
    assert equal(whole, second) and rows(found) == rows(expected) and [row['step'] for row in found] == [1, 2, 3, 4, 5]
    assert all(a['seconds'] <= b['seconds'] for a, b in pairwise(found))
    ours, theirs = (load_tensors(tmp_path / name / 'checkpoint.safetensors')[0] for name in ('whole', 'cut'))
    assert ours.keys() == theirs.keys() and all(ours[name].equal(theirs[name]) for name in ours)
    assert {'model', 'optimizer', 'random'} == {name.split('.')[0] for name in ours}


def test_pictures_are_drawn_without_dropout_and_training_goes_on_with_it(tmp_path: Path, monkeypatch):
    model, modes = SRbVAE(), []
    draw = SRbVAE.pictures
    monkeypatch.setattr(SRbVAE, 'pictures', lambda self, images: modes.append(self.training) or draw(self, images))
    after = []
    quickly(model, tmp_path, 3, checkpoint_every=2, samples=noise().first(2), snapshots=True,
            callback=lambda step, row: after.append(model.training))
    assert modes == [False, False] and after == [True] * 3 and not model.training
    each = [f'{kind}-00000{step}' for kind in ('model', 'samples') for step in (2, 3)]
    assert sorted(path.stem for path in tmp_path.iterdir()) == ['checkpoint', *each]
    assert not load(tmp_path / 'model-000002.safetensors').training


# What a training starts from
@pytest.fixture(scope='module')
def digits() -> torch.Tensor:
    """Styled digits in [-1, 1]."""
    return digit_styles(n_styles=1).test.images[:300] / 127.5 - 1


@pytest.mark.parametrize('kind', ['generator', 'tower'])
def test_layers_in_common_forms_are_those_layer_by_layer(kind: str):
    """Outputs, and gradients of inputs and weights, in double precision."""
    torch.manual_seed(0)
    if kind == 'tower': network, x = ImageTower(32, 5, (7, 6, 4), n_convs=2, patch=2), torch.randn(3, 3, 32, 32)
    else: network, x = Generator(32, 5, (7, 6, 5, 4), n_convs=2), torch.randn(3, 5)
    network, x, found = network.double(), x.double().requires_grad_(), {}
    weights = None
    for fast in (True, False):
        for module in network.modules(): module.fast = fast
        out = network(x)
        weights = torch.randn_like(out) if weights is None else weights
        found[fast] = out, *torch.autograd.grad((out * weights).sum(), [x, *network.parameters()])
    torch.testing.assert_close(found[True], found[False])


def test_pixel_norm_is_over_channels():
    h = torch.randn(3, 5, 4, 4)
    torch.testing.assert_close(PixelNorm()(h), h / h.square().mean(1, keepdim=True).sqrt())


def test_new_encoders_say_something(digits):
    """Means spread over digits, and standard deviations well below that, nearly the same for all images."""
    torch.manual_seed(0)
    mean, logvar = Encoder(32, 8, (96, 64, 32), n_convs=1, patch=2)(digits)
    assert .4 < mean.std(0).mean() < 1 and abs(logvar.mean() + 3) < .1 and logvar.std() < .1


def test_log_variances_stay_in_bounds(digits):
    encoder = Encoder(32, 8, (96, 64, 32), n_convs=1, patch=2)
    bias = encoder.tower.layers[-1].bias.data
    for value, bound in ((100, 4), (-100, -10)):
        bias.fill_(value)
        mean, logvar = encoder(digits[:4])
        assert (logvar == bound).all() and (mean - value).abs().max() < 20


def test_new_generators_are_not_saturated():
    """Pixels of both signs, in (-1, 1), most of them far from the ends."""
    torch.manual_seed(0)
    pixels = Generator(32, 8, (64, 48, 24, 12), n_convs=1, latent_norm=False)(torch.randn(50, 8))
    assert pixels.shape == (50, 3, 32, 32) and pixels.abs().max() <= 1
    assert .1 < pixels.std() < .6 and (pixels.abs() > .95).float().mean() < .02


@pytest.mark.parametrize('norm', [True, False])
def test_codes_are_normalised_where_the_paper_does_it(norm: bool):
    torch.manual_seed(0)
    codes, generator = torch.randn(2, 6), Generator(32, 6, (8, 8, 4, 4), latent_norm=norm)
    generator.layers[int(norm)].bias.data.normal_()  # or the next normalisation would leave no trace of their size
    assert torch.allclose(generator(codes), generator(3 * codes), atol=1e-3) == norm


def test_new_discriminators_are_undecided():
    """Logits near 0, so the logistic loss of both starts near 4 log 2."""
    model = SRbVAE.preset('small', seed=0)[0]
    terms = model.losses(*noise().batch(8), 1.)[1]
    assert terms['discriminator'].item() == pytest.approx(4 * math.log(2), abs=.15)


def test_codes_of_the_prior():
    """Standard normal; e of Mathieu et al. as the running averages say that those of unlabelled images are."""
    model = METHODS.all()['mathieu']()
    for name, value in dict(e_ref=-7., e_mean=3., e_std=.5).items(): getattr(model, name).fill_(value)
    codes = model.prior(4000, torch.Generator().manual_seed(0))
    for code, mean, std in (('z', 0, 1), ('e', 3, .5)):
        assert abs(codes[code].mean() - mean) < .02 and codes[code].std().item() == pytest.approx(std, rel=.02)


def test_how_much_the_discriminator_needs_a_code(monkeypatch):
    """Of one that measures how far e is from the image's own, and does not look at z."""
    model, batch = SRbVAE().train(), noise().batch(6)
    def ratio(x: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
        return -(e - model.encoder_e(x)[0]).square().sum(1)
    monkeypatch.setattr(SRbVAE, 'log_ratios', lambda self, joint: (ratio(joint.x_u, joint.e_u), joint.z_r.sum(1)))
    torch.manual_seed(0)
    q = model.sample_q(*batch)[0]
    others = torch.stack([q.e_u[i - 1] for i in range(6)])
    torch.manual_seed(0)
    gap = latent_use_gap(model, *batch)
    assert gap == pytest.approx({'z': 0, 'e': (ratio(q.x_u, q.e_u) - ratio(q.x_u, others)).mean().item()}, rel=1e-4)
    assert model.training and not (latent_use_gap(model.eval(), *batch) and model.training)


def test_discriminators_see_pairs():
    """What another code changes depends on the image: a sum of one part for each would be blind to what belongs."""
    torch.manual_seed(0)
    d = Discriminator(32, (4,), (16, 8, 8), n_convs=1, patch=2).eval()
    (x, y), (z, w) = torch.randn(2, 30, 3, 32, 32), torch.randn(2, 30, 4)
    by_pairs, by_code = d(x, z) - d(x, w) - d(y, z) + d(y, w), d(x, z) - d(x, w)
    assert by_pairs.std() > .1 * by_code.std()


def test_many_images_are_encoded_and_decoded_in_parts(monkeypatch):
    model, images = SRbVAE(), noise().unlabelled
    codes = model.encode(images)
    whole = model.decode(**codes)
    monkeypatch.setattr(SRbVAE, 'batch_size', 5)
    for code, values in model.encode(images).items(): torch.testing.assert_close(values, codes[code])
    torch.testing.assert_close(model.decode(**codes), whole)


@pytest.mark.parametrize('name', ['srbvae', 'rbvae'])
def test_the_weights_of_the_package_rebuild_digits(digits, name: str):
    """The networks compute what they computed when these weights were trained; black images err by the other mean."""
    model = load(name)
    assert (model(digits) - digits).abs().mean() < .4 * (digits + 1).abs().mean()


def test_reference_images_and_transfers_of_the_weights(digits):
    """The one e for all; a transfer has the e of one image and the z of the other. Codes are given by name."""
    model, some, others = load('srbvae'), digits[:50], digits[50:100]
    codes, given = model.encode(some), model.encode(others)
    assert model.with_reference(some).equal(model.decode(e=model.e_ref.detach().expand(50, -1), z=codes['z']))
    assert model.transfer(others, some).equal(model.decode(e=given['e'], z=codes['z']))
    rows = model.pictures(some)
    assert rows['e of the left one'].equal(model.transfer(some.roll(1, 0), some))
    assert rows['the same e'].equal(model.transfer(some[:1], some))
