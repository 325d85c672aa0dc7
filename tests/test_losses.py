"""The objective of every method, written out a second time: its terms and weights, who learns from what, and when.

Each method is called once with weights that are all different. From the random numbers it drew, its terms are rebuilt
with `torch.distributions` and plain formulas in double precision; nothing but the networks is shared. First come the
formulas, a function for each method's terms and one for their weighted sum; then FORMULAS, which says of each term
what gets gradient from it; then the tests.
"""
import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from rbvae_nb.baselines import SVAE, BetaTCVAE, DIPVAE1, DIPVAE2, Mathieu
from rbvae_nb.images import ImageSets
from rbvae_nb.methods import METHODS, Method
from rbvae_nb.rbvae import RbVAE
from rbvae_nb.related import CVAE, MMCVAE
from rbvae_nb.srbvae import SRbVAE
from rbvae_nb.starts import IgnoresE, Taught
from rbvae_nb.training import Run, alternating_step, gradient_step
from rbvae_nb.vae import VAE, BetaVAE
from torch import Tensor, nn
from torch.distributions import Independent, Laplace, Normal, kl_divergence
from torch.overrides import TorchFunctionMode

Terms = dict[str, Tensor]
N = 6  # images of each set


@pytest.fixture(scope='module', autouse=True)
def double() -> Iterator[None]:
    """Double precision throughout: `.float()` makes doubles of integers, and leaves other numbers as they are."""
    before = torch.get_default_dtype()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, 'float', lambda t: t if t.is_floating_point() else t.double())
        torch.set_default_dtype(torch.float64)
        try: yield
        finally: torch.set_default_dtype(before)


class Draws(TorchFunctionMode):
    """Keeps what is drawn inside a `with` block, in order: Gaussian noise, permutations, uniform numbers."""
    def __init__(self) -> None:
        super().__init__()
        self.normal: list[Tensor] = []
        self.order: list[Tensor] = []
        self.uniform: list[Tensor] = []
        self.kept = dict(randn=self.normal, randn_like=self.normal, randperm=self.order, rand=self.uniform)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result, name = function(*args, **(kwargs or {})), getattr(function, '__name__', '')
        if name in self.kept: self.kept[name].append(result)
        return result


# What objectives are made of
def gaussian(mean: Tensor, std: Tensor) -> Independent:
    """A diagonal Gaussian of codes."""
    return Independent(Normal(mean, std), 1)


def posterior(encoder: nn.Module, x: Tensor) -> Independent:
    """q(code|x), from an encoder's mean and log-variance."""
    mean, logvar = encoder(x)
    return gaussian(mean, (logvar / 2).exp())


def sample(q: Independent, noise: Tensor) -> Tensor:
    """Codes that keep the gradient of mean and variance."""
    return q.mean + q.stddev * noise


def kl(q: Independent) -> Tensor:
    """KL(q‖N(0, I)), averaged over images."""
    return kl_divergence(q, gaussian(torch.zeros_like(q.mean), torch.ones_like(q.mean))).mean()


def code_error(q: Independent, code: Tensor) -> Tensor:
    """-log q(code|x), averaged over images."""
    return -q.log_prob(code).mean()


def image_error(x: Tensor, mean: Tensor, scale: float, levels: int) -> Tensor:
    """-log p(x|mean), averaged over images; each further level has half of the resolution and an eighth of λ."""
    error = torch.zeros(())
    for block in (2 ** k for k in range(levels + 1)):
        x_k, mean_k = (t.reshape(N, 3, 32 // block, block, 32 // block, block).mean((3, 5)) for t in (x, mean))
        error = error - Independent(Laplace(mean_k, scale / block ** 3), 3).log_prob(x_k).mean()
    return error


def entropy(codes: Tensor) -> Tensor:
    """Entropy of a Gaussian that has the variances of the batch, and 1e-4 more."""
    return Normal(0., (codes.var(0) + 1e-4).sqrt()).entropy().sum()


def logits(discriminator: nn.Module, q: tuple, p: tuple, uniform: Iterator[Tensor], dropout: float) -> Tensor:
    """What a discriminator says of images with their codes, first of q; in training, groups of features are dropped."""
    towers = [discriminator.image_tower, *discriminator.code_towers]
    groups = [tower(torch.cat(pair)) for tower, pair in zip(towers, zip(q, p))]
    if discriminator.training: groups = [group * (next(uniform) >= dropout) for group in groups]
    return discriminator.head(torch.cat(groups, 1)).squeeze(1)


def divergence(d: Tensor) -> Tensor:
    """E_q[d] - E_p[d]."""
    d_q, d_p = d.chunk(2)
    return d_q.mean() - d_p.mean()


def logistic(d: Tensor) -> Tensor:
    """-E_q log σ(d) - E_p log(1 - σ(d)): the cross-entropy of a classifier that calls q 1 and p 0."""
    labels = (torch.arange(len(d)) < len(d) // 2).double()
    return 2 * F.binary_cross_entropy_with_logits(d, labels)


# Methods with one code, which see unlabelled images only
class Coded(NamedTuple):
    """Posteriors, a code from each, and the two terms of a VAE."""
    q: Independent
    z: Tensor
    kl: Tensor
    reconstruction: Tensor


def coded(model: VAE, w: dict, x: Tensor, noise: Tensor) -> Coded:
    """Images through a VAE."""
    q = posterior(model.encoder_z, x)
    z = sample(q, noise)
    return Coded(q, z, kl(q), image_error(x, model.generator(z), w['laplace_scale'], w['pyramid']))


def vae_terms(model: VAE, w: dict, x_u: Tensor, x_r: Tensor, draws: Draws) -> Terms:
    """KL and reconstruction error."""
    c = coded(model, w, x_u, *draws.normal)
    return {'kl': c.kl, 'reconstruction': c.reconstruction}


def vae_objective(t: Terms, w: dict) -> Tensor:
    """β weighs the KL."""
    return w['beta'] * t['kl'] + t['reconstruction']


def penalised_by(penalty: Callable[[Coded, float], Tensor]) -> Callable[..., Terms]:
    """The terms of a VAE, and a penalty weighed by β."""
    def terms(model: VAE, w: dict, x_u: Tensor, x_r: Tensor, draws: Draws) -> Terms:
        c = coded(model, w, x_u, *draws.normal)
        return {'kl': c.kl, 'reconstruction': c.reconstruction, 'penalty': penalty(c, w['beta'])}
    return terms


def penalised_objective(t: Terms, w: dict) -> Tensor:
    """The KL has the weight 1."""
    return t['kl'] + t['reconstruction'] + t['penalty']


def from_identity(C: Tensor, off_diagonal: float, diagonal: float) -> Tensor:
    """λ_od Σ_{i≠j} C_ij² + λ_d Σ_i (C_ii - 1)²."""
    own = torch.eye(len(C), dtype=torch.bool)
    return off_diagonal * C[~own].square().sum() + diagonal * (C[own] - 1).square().sum()


def dip_1(c: Coded, beta: float) -> Tensor:
    """DIP-VAE-I: the covariance of means, λ_od = β and λ_d = 10 β."""
    return from_identity(torch.cov(c.q.mean.T, correction=0), beta, 10 * beta)


def dip_2(c: Coded, beta: float) -> Tensor:
    """DIP-VAE-II: the mean variances as well, λ_od = λ_d = β."""
    return from_identity(torch.cov(c.q.mean.T, correction=0) + c.q.variance.mean(0).diag(), beta, beta)


def dependence(c: Coded, beta: float) -> Tensor:
    """β-TCVAE: (β - 1) E log q(z) / Π_d q(z_d), where q is the mean of the batch's posteriors."""
    densities = Normal(c.q.mean, c.q.stddev).log_prob(c.z[:, None]).exp()  # (sample, posterior, dimension)
    joint, single = densities.prod(2).mean(1), densities.mean(1)
    return (beta - 1) * (joint / single.prod(1)).log().mean()


def svae_terms(model: SVAE, w: dict, x_u: Tensor, x_r: Tensor, draws: Draws) -> Terms:
    """J between images with inferred codes and drawn codes with their images; and either rebuilt from the other."""
    z_hat, noise = draws.normal
    c, x_hat = coded(model, w, x_u, noise), model.generator(z_hat)
    d = logits(model.discriminator, (x_u, c.z), (x_hat, z_hat), iter(draws.uniform), w['dropout'])
    return {
        'adversarial': divergence(d),
        'reconstruction': c.reconstruction,
        'latent': code_error(posterior(model.encoder_z, x_hat), z_hat),
        'discriminator': logistic(d),
    }


def svae_objective(t: Terms, w: dict) -> Tensor:
    """β weighs J."""
    return w['beta'] * t['adversarial'] + t['reconstruction'] + t['latent']


# Methods with two codes
def eq_3(decoded: Callable[..., tuple[tuple, tuple]]) -> Callable[..., Terms]:
    """Eq. 3; `decoded` says which z and e the images of either stream are decoded from."""
    def terms(model: RbVAE, w: dict, x_u: Tensor, x_r: Tensor, draws: Draws) -> Terms:
        noise_z_u, noise_z_r = torch.cat([noise for noise in draws.normal if noise.shape[1] == model.dim_z]).split(N)
        noise_e, = (noise for noise in draws.normal if noise.shape[1] == model.dim_e)
        q_u, q_r = (posterior(model.encoder_z, x) for x in (x_u, x_r))
        q_e = posterior(model.encoder_e, x_u)
        codes = sample(q_u, noise_z_u), sample(q_r, noise_z_r), sample(q_e, noise_e[:N]), model.e_ref.expand(N, -1)
        own_u, own_r = (model.generator(*pair) for pair in decoded(*codes, noise_e))
        return {
            'kl_z_u': kl(q_u),
            'kl_e_u': kl(q_e),
            'reconstruction_u': image_error(x_u, own_u, w['laplace_scale'], w['pyramid']),
            'kl_z_r': kl(q_r),
            'reconstruction_r': image_error(x_r, own_r, w['laplace_scale'], w['pyramid']),
        }
    return terms


rbvae_terms = eq_3(lambda z_u, z_r, e_u, e_ref, noise: ((z_u, e_u), (z_r, e_ref)))  # reference images have e_ref
ignoring_terms = eq_3(lambda z_u, z_r, e_u, e_ref, noise: ((z_u, noise[:N]), (z_r, noise[N:])))  # e is noise
taught_terms = eq_3(lambda z_u, z_r, e_u, e_ref, noise: ((z_r, e_u), (z_u, e_ref)))  # z of the partner


def rbvae_objective(t: Terms, w: dict) -> Tensor:
    """No weights."""
    return t['kl_z_u'] + t['kl_e_u'] + t['reconstruction_u'] + t['kl_z_r'] + t['reconstruction_r']


def mathieu_terms(model: Mathieu, w: dict, x_u: Tensor, x_r: Tensor, draws: Draws) -> Terms:
    """Each image from its own codes; reference images also with the e of the one before; e is not sampled."""
    def error(x: Tensor, z: Tensor, e: Tensor) -> Tensor:
        return image_error(x, model.generator(z, e), w['laplace_scale'], w['pyramid'])
    q_u, q_r = (posterior(model.encoder_z, x) for x in (x_u, x_r))
    z_u, z_r = (sample(q, noise) for q, noise in zip((q_u, q_r), draws.normal[0].split(N)))
    e_u, e_r = (model.encoder_e(x)[0] for x in (x_u, x_r))
    real, fake = torch.cat([x_u, x_r]), torch.cat(composed(model, torch.cat([z_u, z_r]), (e_u, e_r), draws))
    y = torch.tensor([0.] * N + [1.] * N)[:, None]  # 1 for reference images
    d = logits(model.discriminator, (real, y), (fake, y), iter(draws.uniform), 0.)
    return {
        'reconstruction_u': error(x_u, z_u, e_u),
        'reconstruction_r': error(x_r, z_r, e_r),
        'exchange': error(x_r, z_r, torch.stack([e_r[i - 1] for i in range(N)])),
        'kl': kl(q_u) + kl(q_r),
        'adversarial': -d[2 * N:].sigmoid().log().mean(),  # least where composed images are taken for real
        'discriminator': logistic(d),
    }


def composed(model: Mathieu, z: Tensor, e: tuple[Tensor, Tensor], draws: Draws) -> list[Tensor]:
    """Images with the e of each set; half of their z are those of any images, half are drawn."""
    mixed = [torch.cat([z[order[:N // 2]], new[N // 2:]]) for order, new in zip(draws.order, draws.normal[1:])]
    return [model.generator(*codes) for codes in zip(mixed, e)]


def mathieu_objective(t: Terms, w: dict) -> Tensor:
    """One weight, of the adversarial term."""
    errors = t['reconstruction_u'] + t['reconstruction_r'] + t['exchange']
    return errors + t['kl'] + w['adversarial_weight'] * t['adversarial']


# Contrastive analysis
fixed_terms = eq_3(lambda z_u, z_r, e_u, e_ref, noise: ((z_u, e_u), (z_r, e_ref.detach())))  # e_ref learns nothing


def cvae_terms(model: CVAE, w: dict, x_u: Tensor, x_r: Tensor, draws: Draws) -> Terms:
    """Eq. 3; what the discriminator says of the two codes of unlabelled images; pairs with the e of the one before."""
    noise_z, noise_e = draws.normal
    z, e = sample(posterior(model.encoder_z, x_u), noise_z[:N]), sample(posterior(model.encoder_e, x_u), noise_e)
    others = torch.stack([e[i - 1] for i in range(N)])
    d = model.discriminator(torch.cat([torch.cat([z, z]), torch.cat([e, others])], 1)).squeeze(1)
    return fixed_terms(model, w, x_u, x_r, draws) | {'total_correlation': d[:N].mean(), 'discriminator': logistic(d)}


def cvae_objective(t: Terms, w: dict) -> Tensor:
    """γ weighs the total correlation."""
    return rbvae_objective(t, w) + w['tc_weight'] * t['total_correlation']


def discrepancy(a: Tensor, b: Tensor) -> Tensor:
    """MMD² as a quadratic form: weights 1/n for a and -1/m for b, summed over all pairs and thirteen kernels."""
    points = torch.cat([a, b])
    weights = torch.cat([torch.full((len(a),), 1 / len(a)), torch.full((len(b),), -1 / len(b))])
    distances = torch.cdist(points, points, compute_mode='donot_use_mm_for_euclid_dist')
    return sum(weights @ torch.exp(-10. ** power * distances ** 2) @ weights for power in range(-6, 7))


def mm_cvae_terms(model: MMCVAE, w: dict, x_u: Tensor, x_r: Tensor, draws: Draws) -> Terms:
    """Eq. 3; z of both sets, and e of reference images beside the point e_ref, which learns nothing."""
    before = Draws()
    *before.normal, noise_e_r = draws.normal
    noise_u, noise_r = before.normal[0].split(N)
    z_u, z_r = sample(posterior(model.encoder_z, x_u), noise_u), sample(posterior(model.encoder_z, x_r), noise_r)
    e_r = sample(posterior(model.encoder_e, x_r), noise_e_r)
    return fixed_terms(model, w, x_u, x_r, before) | {
        'mmd_z': discrepancy(z_u, z_r),
        'mmd_e': discrepancy(e_r, model.e_ref.detach()[None]),
    }


def mm_cvae_objective(t: Terms, w: dict) -> Tensor:
    """A weight for each discrepancy."""
    return rbvae_objective(t, w) + w['mmd_z_weight'] * t['mmd_z'] + w['mmd_e_weight'] * t['mmd_e']


# The symmetric objective
class Codes(NamedTuple):
    """Codes of both streams; reference images have e_ref for e."""
    z_u: Tensor
    e_u: Tensor
    z_r: Tensor


class Inferred(NamedTuple):
    """The posteriors of both sets, and samples of those that the objective needs."""
    z_u: Independent
    z_r: Independent
    e_u: Independent
    e_r: Independent
    codes: Codes


def inferred(model: SRbVAE, x_u: Tensor, x_r: Tensor, draws: Draws) -> Inferred:
    """Codes of q, from images."""
    z_u, z_r, e_u, e_r = (posterior(encoder, x) for encoder in (model.encoder_z, model.encoder_e) for x in (x_u, x_r))
    (noise_z_u, noise_z_r), (noise_e, _) = (noise.split(N) for noise in draws.normal[:2])
    return Inferred(z_u, z_r, e_u, e_r, Codes(sample(z_u, noise_z_u), sample(e_u, noise_e), sample(z_r, noise_z_r)))


def drawn(q: Codes, share: float, draws: Draws) -> Codes:
    """Codes of p, from the prior; a share of them are inferred ones: z those of the *other* set, e detached."""
    def mixed(normal: Tensor, found: Tensor, order: Tensor) -> Tensor:
        k = round(share * N)
        return torch.cat([found[order[:k]], normal[k:]])
    z_u, z_r, e_u = (mixed(*parts) for parts in zip(draws.normal[2:], (q.z_r, q.z_u, q.e_u), draws.order))
    return Codes(z_u, e_u.detach(), z_r)


def images_of(model: SRbVAE, codes: Codes) -> tuple[Tensor, Tensor]:
    """What the generator makes of codes, in both streams."""
    return model.generator(codes.z_u, codes.e_u), model.generator(codes.z_r, model.e_ref.expand(N, -1))


def with_less_gradient(x: Tensor, share: float) -> Tensor:
    """The same images or codes, through which a share of the gradient passes."""
    same = x.clone()
    same.register_hook(lambda gradient: share * gradient)
    return same


def srbvae_terms(model: SRbVAE, w: dict, x_u: Tensor, x_r: Tensor, draws: Draws, scale: float = 0.,
                 noise: tuple = (0., 0.), symmetric: float = 1.) -> Terms:
    """Eq. 3 and the anchor; after the pretraining also what the codes of p say, (a, b) and (e, f)."""
    q, scale = inferred(model, x_u, x_r, draws), scale or w['laplace_scale']
    reaches = 1 - symmetric * (1 - w['image_gradient'])
    own_u, own_r = images_of(model, Codes(*(with_less_gradient(code, reaches) for code in q.codes)))
    terms = {
        'reconstruction_u': image_error(x_u, own_u, scale, w['pyramid']),  # (c)
        'reconstruction_r': image_error(x_r, own_r, scale, w['pyramid']),  # (d)
        'kl': kl(q.z_u) + kl(q.z_r) + kl(q.e_u),
        'anchor': code_error(q.e_r, model.e_ref.expand(N, -1)),
    }
    pretraining = len(draws.normal) == 2
    return terms if pretraining else terms | symmetric_terms(model, w, x_u, x_r, q.codes, draws, noise)


def symmetric_terms(model: SRbVAE, w: dict, x_u: Tensor, x_r: Tensor, q: Codes, draws: Draws, noise: tuple) -> Terms:
    """The codes of p get no gradient through their images or the discriminators, only by being read back."""
    p = drawn(q, w['aggregate'], draws)
    fixed = Codes(*(code.detach() for code in p))
    made_u, made_r = (x + some for x, some in zip(images_of(model, fixed), noise))
    uniform = iter(draws.uniform)
    d_u = logits(model.discriminator_u, (x_u, q.z_u, q.e_u), (made_u, fixed.z_u, fixed.e_u), uniform, w['dropout'])
    d_r = logits(model.discriminator_r, (x_r, q.z_r), (made_r, fixed.z_r), uniform, w['dropout'])
    read_u, read_r = (with_less_gradient(x, w['code_gradient']) for x in (made_u, made_r))
    return {
        'adversarial_u': divergence(d_u),  # (a)
        'adversarial_r': divergence(d_r),  # (b)
        'latent_z_u': code_error(posterior(model.encoder_z, read_u), p.z_u),  # (e)
        'latent_e_u': code_error(posterior(model.encoder_e, read_u), p.e_u),  # (e)
        'latent_z_r': code_error(posterior(model.encoder_z, read_r), p.z_r),  # (f)
        'entropy': entropy(q.z_u) + entropy(q.z_r),
        'discriminator': logistic(d_u) + logistic(d_r),
        'log_ratio_u_q': d_u[:N].detach().mean(),
        'log_ratio_u_p': d_u[N:].detach().mean(),
        'log_ratio_r_q': d_r[:N].detach().mean(),
        'log_ratio_r_p': d_r[N:].detach().mean(),
    }


def srbvae_objective(t: Terms, w: dict, share: float = 1.) -> Tensor:
    """Eq. 3 and the anchor; with the share of the symmetric objective the KL's weight changes and the rest comes."""
    kl_weight = (1 - share) + share * w['kl_weight']
    images = t['reconstruction_u'] + t['reconstruction_r'] + kl_weight * t['kl'] + w['anchor_weight'] * t['anchor']
    if not share: return images
    spread = w['aggregate'] * w['entropy_weight'] * t['entropy']  # only inferred z can change theirs
    read_z, read_e = t['latent_z_u'] + t['latent_z_r'] - spread, t['latent_e_u']
    adversarial = w['adversarial_weight'] * (t['adversarial_u'] + t['adversarial_r'])
    return images + share * (adversarial + w['latent_z_weight'] * read_z + w['latent_e_weight'] * read_e)


# The formulas of all methods
class Formula(NamedTuple):
    """A method's arguments, no number twice; its terms; their weighted sum; and what each term depends on."""
    arguments: dict[str, float]
    terms: Callable[..., Terms]
    objective: Callable[..., Tensor]
    reaches: dict[str, tuple[str, str]]  # term: what gets gradient from it, and whose images do (u, r; -: not asked)


NETWORKS = dict(channels=(8, 6, 4), generator_channels=(8, 6, 5, 4), dim_z=5)
U, R = 'generator encoder_z encoder_e', 'generator encoder_z e_ref'  # whatever makes an image of either stream
ONE_CODE = {'kl': ('encoder_z', 'u'), 'reconstruction': ('generator encoder_z', 'u')}
PENALISED = ONE_CODE | {'penalty': ('encoder_z', 'u')}
FIXED = {  # Eq. 3 where e_ref does not learn
    'kl_z_u': ('encoder_z', 'u'),
    'kl_e_u': ('encoder_e', 'u'),
    'reconstruction_u': (U, 'u'),
    'kl_z_r': ('encoder_z', 'r'),
    'reconstruction_r': ('generator encoder_z', 'r'),
}
FORMULAS: dict[type[Method], Formula] = {
    VAE: Formula(dict(beta=.7, laplace_scale=1.3, pyramid=3), vae_terms, vae_objective, ONE_CODE),
    BetaVAE: Formula(dict(beta=5.3, laplace_scale=1.7, pyramid=2), vae_terms, vae_objective, ONE_CODE),
    DIPVAE1: Formula(dict(beta=2.3, laplace_scale=1.6, pyramid=0), penalised_by(dip_1), penalised_objective, PENALISED),
    DIPVAE2: Formula(dict(beta=3.1, laplace_scale=.8, pyramid=1), penalised_by(dip_2), penalised_objective, PENALISED),
    BetaTCVAE: Formula(dict(beta=4.7, laplace_scale=.6, pyramid=1), penalised_by(dependence), penalised_objective,
                       PENALISED),
    SVAE: Formula(dict(beta=1.9, laplace_scale=2.1, pyramid=1, dropout=.37), svae_terms, svae_objective, {
        'adversarial': ('generator encoder_z', '-'),
        'reconstruction': ('generator encoder_z', 'u'),
        'latent': ('generator encoder_z', ''),  # drawn codes, read back from their images
        'discriminator': ('discriminator', '-'),
    }),
    RbVAE: Formula(dict(laplace_scale=.9, pyramid=2, dim_e=3), rbvae_terms, rbvae_objective, {
        'kl_z_u': ('encoder_z', 'u'),
        'kl_e_u': ('encoder_e', 'u'),
        'reconstruction_u': (U, 'u'),
        'kl_z_r': ('encoder_z', 'r'),
        'reconstruction_r': (R, 'r'),
    }),
    IgnoresE: Formula(dict(laplace_scale=.9, pyramid=2, dim_e=3), ignoring_terms, rbvae_objective, {
        'kl_z_u': ('encoder_z', 'u'),
        'kl_e_u': ('encoder_e', 'u'),
        'reconstruction_u': ('generator encoder_z', 'u'),
        'kl_z_r': ('encoder_z', 'r'),
        'reconstruction_r': ('generator encoder_z', 'r'),
    }),
    Taught: Formula(dict(laplace_scale=.9, pyramid=2, dim_e=3), taught_terms, rbvae_objective, {
        'kl_z_u': ('encoder_z', 'u'),
        'kl_e_u': ('encoder_e', 'u'),
        'reconstruction_u': (U, 'ur'),
        'kl_z_r': ('encoder_z', 'r'),
        'reconstruction_r': (R, 'ur'),
    }),
    Mathieu: Formula(dict(adversarial_weight=7.3, laplace_scale=1.1, pyramid=2, dim_e=3), mathieu_terms,
                     mathieu_objective, {
        'reconstruction_u': (U, 'u'),
        'reconstruction_r': (U, 'r'),
        'exchange': (U, 'r'),
        'kl': ('encoder_z', 'ur'),
        'adversarial': (U, '-'),
        'discriminator': ('discriminator', '-'),
    }),
    CVAE: Formula(dict(tc_weight=2.7, laplace_scale=1.4, pyramid=1, dim_e=3), cvae_terms, cvae_objective, FIXED | {
        'total_correlation': ('encoder_z encoder_e', 'u'),
        'discriminator': ('discriminator', '-'),
    }),
    MMCVAE: Formula(dict(mmd_z_weight=4.3, mmd_e_weight=.71, laplace_scale=.7, pyramid=2, dim_e=3), mm_cvae_terms,
                    mm_cvae_objective, FIXED | {
        'mmd_z': ('encoder_z', 'ur'),
        'mmd_e': ('encoder_e', 'r'),
    }),
    SRbVAE: Formula(dict(laplace_scale=40., pretraining_scale=2.5, pyramid=2, dim_e=3, pretraining=.25, ramp=.5,
                         adversarial_weight=1.7, latent_z_weight=.31, latent_e_weight=.83, kl_weight=.43,
                         anchor_weight=.19, aggregate=1 / 3, entropy_weight=.61, code_gradient=.29, image_gradient=.53,
                         dropout=.37),
                    srbvae_terms, srbvae_objective, {
        'reconstruction_u': (U, 'u'),
        'reconstruction_r': (R, 'r'),
        'kl': ('encoder_z encoder_e', 'ur'),
        'anchor': ('encoder_e e_ref', 'r'),
        'adversarial_u': (U, '-'),
        'adversarial_r': (R, '-'),
        'latent_z_u': ('generator encoder_z', 'r'),  # drawn z are those of reference images
        'latent_e_u': ('generator encoder_e', ''),  # drawn e are detached
        'latent_z_r': (R, 'u'),  # drawn z are those of unlabelled images
        'entropy': ('encoder_z', 'ur'),
        'discriminator': ('discriminator_u discriminator_r', '-'),
        'log_ratio_u_q': ('', ''),  # to be watched
        'log_ratio_u_p': ('', ''),
        'log_ratio_r_q': ('', ''),
        'log_ratio_r_p': ('', ''),
    }),
}
PRETRAINING = {'reconstruction_u', 'reconstruction_r', 'kl', 'anchor'}  # the terms of sRb-VAE without codes of p
# Terms through a discriminator: the weight that switches them off, and the discriminator that belongs to another term.
ADVERSARIAL = {
    (SVAE, 'adversarial'): ('beta', ''),
    (Mathieu, 'adversarial'): ('adversarial_weight', ''),
    (SRbVAE, 'adversarial_u'): ('adversarial_weight', 'discriminator_r'),
    (SRbVAE, 'adversarial_r'): ('adversarial_weight', 'discriminator_u'),
}


# A method called once, beside its formula
class Losses(NamedTuple):
    """Scalars by player, and by name."""
    objectives: Terms
    terms: Terms


class Call(NamedTuple):
    """A batch that went through a model's `losses`, what was drawn meanwhile, and what came out."""
    model: Method
    x_u: Tensor
    x_r: Tensor
    draws: Draws
    ours: Losses


def made(method: type[Method], **changes) -> Method:
    """A model whose every parameter is random, also e_ref and biases, which start at 0."""
    torch.manual_seed(1)
    model = method(**NETWORKS | FORMULAS[method].arguments | changes)
    with torch.no_grad():
        for parameter in model.parameters(): parameter.add_(.1 * torch.randn_like(parameter))
    return model


def multiply_logits(discriminator: nn.Module, factor: float) -> None:
    """Make a discriminator surer, or blind."""
    with torch.no_grad():
        for parameter in discriminator.head[-1].parameters(): parameter.mul_(factor)


def called(model: Method, *elapsed: float) -> Call:
    """`losses` of random images, which are asked for their gradient too."""
    torch.manual_seed(2)
    kind = next(model.parameters()).dtype
    x_u, x_r = ((torch.rand(N, 3, 32, 32) * 2 - 1).to(kind).requires_grad_() for _ in range(2))
    with Draws() as draws: losses = model.losses(x_u, x_r, *elapsed)
    return Call(model, x_u, x_r, draws, Losses(*losses))


def formula(call: Call, w: dict, *share: float, **more) -> Losses:
    """What the losses should have been, with these weights and this share of the symmetric objective."""
    model, x_u, x_r, draws, _ = call
    terms = FORMULAS[type(model)].terms(model, w, x_u, x_r, draws, **more)
    discriminator = {name: term for name, term in terms.items() if name == 'discriminator'}
    return Losses({'model': FORMULAS[type(model)].objective(terms, w, *share)} | discriminator, terms)


@cache
def case(method: type[Method], mode: str = 'evaluation', blind: str = '', **changes) -> tuple[Call, Losses]:
    """A method at the end of its training, and its formula; 'plain' is training layer by layer, player by player."""
    model = made(method, **changes).train(mode != 'evaluation')
    for module in model.modules(): module.fast = mode != 'plain'
    if blind: multiply_logits(getattr(model, blind), 0.)
    call = called(model)
    return call, formula(call, FORMULAS[method].arguments | changes)


def gradients(value: Tensor, model: Method, who: str = 'model') -> Terms:
    """The gradient in each parameter of a player, zeros where there is none."""
    names = [name for name, _ in model.named_parameters() if name.startswith('discriminator') == (who != 'model')]
    parameters = model.players()[who]
    found = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
    return {name: torch.zeros_like(p) if g is None else g for name, p, g in zip(names, parameters, found)}


def by_network(found: Terms) -> Terms:
    """Gradients of each network (or of e_ref) in one vector."""
    networks = dict.fromkeys(name.split('.')[0] for name in found)
    return {n: torch.cat([g.flatten() for name, g in found.items() if name.split('.')[0] == n]) for n in networks}


def reached(found: Terms) -> set[str]:
    """The networks (or e_ref) that get any gradient."""
    return {name for name, gradient in by_network(found).items() if gradient.abs().max() > 1e-9}


def looked_at(value: Tensor, call: Call) -> tuple[set[int], set[int]]:
    """Which unlabelled and which reference images get gradient from a value, by number."""
    found = torch.autograd.grad(value, (call.x_u, call.x_r), retain_graph=True, allow_unused=True)
    u, r = (set() if g is None else set(g.flatten(1).any(1).nonzero().flatten().tolist()) for g in found)
    return u, r


def assert_same(ours, right) -> None:
    """Equal but for the rounding of double precision."""
    torch.testing.assert_close(ours, right, rtol=1e-7, atol=1e-9)


def each(pairs: list[tuple[type[Method], str]], what: str = 'term') -> pytest.MarkDecorator:
    """One test for each method and term, or what else."""
    return pytest.mark.parametrize(f'method, {what}', pairs, ids=[f'{m.__name__}-{name}' for m, name in pairs])


CASES = [(method, 'evaluation') for method in FORMULAS] + [
    (method, mode) for method in (SVAE, Mathieu, SRbVAE) for mode in ('training', 'plain')]
TERMS = [(method, name) for method in FORMULAS for name in FORMULAS[method].reaches]
DISCRIMINATORS = [pair for pair in TERMS if pair[1] == 'discriminator']
WATCHED = [pair for pair in TERMS if pair[1].startswith('log_ratio')]
OTHERS = [pair for pair in TERMS if pair not in {*DISCRIMINATORS, *ADVERSARIAL, *WATCHED}]


def test_every_method_of_the_package_has_a_formula():
    starts = {IgnoresE, Taught}  # no methods of the table
    assert {m for m in METHODS.all().values() if m.__module__.startswith('rbvae_nb.')} == set(FORMULAS) - starts


# Values
@each(CASES, 'mode')
def test_terms(method, mode):
    """Each is that of its formula, and there are no others."""
    call, right = case(method, mode)
    assert call.ours.terms.keys() == FORMULAS[method].reaches.keys()
    assert_same(call.ours.terms, right.terms)


@each(CASES, 'mode')
def test_objectives(method, mode):
    """What each player minimises is the weighted sum of its formula."""
    call, right = case(method, mode)
    assert call.ours.objectives.keys() == call.model.players().keys()
    assert_same(call.ours.objectives, right.objectives)


@pytest.mark.parametrize('method, groups', [(SVAE, 2), (SRbVAE, 5)])
def test_whole_groups_are_dropped_in_training(method, groups):
    """Some images and some codes, with the probability asked for, of samples of q and of p alike."""
    uniform = case(method, 'training')[0].draws.uniform
    assert [u.shape for u in uniform] == [(2 * N, 1)] * groups and not case(method)[0].draws.uniform
    dropped = torch.cat(uniform) < FORMULAS[method].arguments['dropout']
    assert dropped.any() and not dropped.all()


def test_the_discriminator_of_mathieu_drops_nothing():
    assert_same(*(case(Mathieu, mode)[0].ours.terms for mode in ('evaluation', 'training')))


# Gradients
@each(CASES, 'mode')
def test_gradients_of_objectives(method, mode):
    """Each player gets, in each of its parameters, the gradient of its formula."""
    call, right = case(method, mode)
    for who in call.model.players():
        assert_same(*(gradients(losses.objectives[who], call.model, who) for losses in (call.ours, right)))


@each(OTHERS)
def test_gradient_of_a_term(method, term):
    """A term reaches what the table says, with the gradient that its formula has."""
    call, right = case(method)
    ours = gradients(call.ours.terms[term], call.model)
    assert reached(ours) == set(FORMULAS[method].reaches[term][0].split())
    assert_same(ours, gradients(right.terms[term], call.model))


@each(list(ADVERSARIAL))
def test_gradient_of_an_adversarial_term(method, term):
    """The same of what a term adds to the objective: its gradient is right together with the model's other terms."""
    weight, other = ADVERSARIAL[method, term]
    (on, right), (off, _) = (case(method, blind=other, **change) for change in ({}, {weight: 0.}))
    rest = gradients(off.ours.objectives['model'], off.model)
    ours = {name: g - rest[name] for name, g in gradients(on.ours.objectives['model'], on.model).items()}
    assert reached(ours) == set(FORMULAS[method].reaches[term][0].split())
    assert_same(ours, gradients(FORMULAS[method].arguments[weight] * right.terms[term], on.model))


@each(DISCRIMINATORS)
def test_gradient_of_the_discriminators(method, term):
    """Every discriminator learns."""
    call, _ = case(method)
    found = gradients(call.ours.objectives[term], call.model, term)
    assert reached(found) == set(FORMULAS[method].reaches[term][0].split())


@each(WATCHED)
def test_what_is_only_watched_asks_for_nothing(method, term):
    """It has no gradient at all."""
    for mode in ('evaluation', 'plain'): assert not case(method, mode)[0].ours.terms[term].requires_grad


@each(OTHERS)
def test_images_of_a_term(method, term):
    """A term compares images, or pulls at inferred codes, of the sets that the table says."""
    call, _ = case(method)
    sets = zip('ur', looked_at(call.ours.terms[term], call))
    assert ''.join(name for name, images in sets if images) == FORMULAS[method].reaches[term][1]


@pytest.mark.parametrize('term, other', [('latent_z_u', 1), ('latent_z_r', 0)])
def test_drawn_codes_that_were_inferred_keep_their_gradient(term, other):
    """A third of the six z of either stream: those of two images of the other set."""
    call, _ = case(SRbVAE)
    images = call.draws.order['ur'.index(term[-1])][:2]
    assert looked_at(call.ours.terms[term], call)[other] == set(images.tolist())
    without, _ = case(SRbVAE, aggregate=0.)
    assert looked_at(without.ours.terms[term], without) == (set(), set())


@pytest.mark.parametrize('term', ['latent_z_u', 'latent_e_u', 'latent_z_r'])
@pytest.mark.parametrize('share', [0., .3])
def test_code_gradient(term, share):
    """That share of the gradient of (e, f) reaches what makes images, and all of it the encoders that read them."""
    whole, part = (gradients(call.ours.terms[term], call.model)
                   for call, _ in (case(SRbVAE, code_gradient=1.), case(SRbVAE, code_gradient=share)))
    assert_same(part, {name: g if name.startswith('encoder') else share * g for name, g in whole.items()})


@pytest.mark.parametrize('term', ['reconstruction_u', 'reconstruction_r'])
@pytest.mark.parametrize('share', [0., .3])
def test_image_gradient(term, share):
    """That share of the gradient of (c, d) reaches the encoders, and all of it what makes images."""
    whole, part = (gradients(call.ours.terms[term], call.model)
                   for call, _ in (case(SRbVAE, image_gradient=1.), case(SRbVAE, image_gradient=share)))
    assert_same(part, {name: share * g if name.startswith('encoder') else g for name, g in whole.items()})


@pytest.mark.parametrize('kind, rounding', [(torch.float64, 1e-9), (torch.float32, 1e-3)], ids=['double', 'single'])
@pytest.mark.parametrize('method', [SVAE, SRbVAE])
def test_gradients_where_discriminators_are_sure(method, kind, rounding):
    """Logits of a hundred and more, where the logistic loss is flat for most samples, and J is not for any."""
    model = made(method).to(kind)
    for name, network in model.named_children():
        if name.startswith('discriminator'): multiply_logits(network, 30.)
    call = called(model)
    ours = {who: by_network(gradients(call.ours.objectives[who], model, who)) for who in model.players()}
    model.double()
    for kept in (call.draws.normal, call.draws.uniform): kept[:] = [one.double() for one in kept]
    right = formula(call._replace(x_u=call.x_u.double(), x_r=call.x_r.double()), FORMULAS[method].arguments)
    for who, found in ours.items():
        for network, gradient in by_network(gradients(right.objectives[who], model, who)).items():
            assert (found[network] - gradient).norm() <= rounding * gradient.norm(), network


# Arguments of sRb-VAE
@pytest.mark.parametrize('changes', [
    dict(aggregate=0.), dict(aggregate=1.), dict(entropy_weight=0.), dict(code_gradient=0.), dict(code_gradient=1.),
    dict(image_gradient=0.), dict(image_gradient=1.),
    dict(adversarial_weight=0.), dict(latent_z_weight=0.), dict(latent_e_weight=0.), dict(kl_weight=0.),
    dict(anchor_weight=0.), dict(pyramid=0), dict(dropout=.8, aggregate=.5),
], ids=str)
def test_other_arguments(changes):
    """Each at its ends."""
    call, right = case(SRbVAE, 'training', **changes)
    assert_same(call.ours, right)
    assert_same(*(gradients(losses.objectives['model'], call.model) for losses in (call.ours, right)))


def whole(x: Tensor) -> Tensor:
    """Images of 32 pixels, also if blocks of pixels have become channels."""
    return F.pixel_shuffle(x, 32 // x.shape[-1])


def test_noise():
    """Images of p, in both streams, and no others get Laplace noise of that scale; every term of p sees it."""
    model, seen = made(SRbVAE, noise=.23).eval(), dict[str, list[Tensor]](u=[], r=[])
    for stream, images in seen.items():
        network = getattr(model, f'discriminator_{stream}')
        network.register_forward_pre_hook(lambda _, inputs, images=images: images.append(whole(inputs[0])))
    call, w = called(model), FORMULAS[SRbVAE].arguments
    (real_u, noisy_u), (real_r, noisy_r) = (torch.cat(images).split(N) for images in seen.values())
    clean = images_of(model, drawn(inferred(model, call.x_u, call.x_r, call.draws).codes, w['aggregate'], call.draws))
    noise = [(noisy - mean).detach() for noisy, mean in zip((noisy_u, noisy_r), clean)]
    assert real_u.equal(call.x_u) and real_r.equal(call.x_r)
    for one in noise:
        assert one.abs().mean() == pytest.approx(.23, rel=.03)
        assert one.std() == pytest.approx(.23 * math.sqrt(2), rel=.03)  # it would be .29 of Gaussian noise
    assert abs((noise[0] * noise[1]).mean()) < .03 * 2 * .23 ** 2  # independent
    right = formula(call, w, noise=noise)
    assert_same(call.ours, right)
    assert_same(*(gradients(losses.objectives['model'], model) for losses in (call.ours, right)))


# Phases of sRb-VAE: here a quarter of the training is pretraining and the next half is the ramp
@pytest.mark.parametrize('elapsed, share, scale', [
    (0., 0., 2.5), (.25, 0., 2.5), (.375, .25, 5.), (.5, .5, 10.), (.75, 1., 40.), (1., 1., 40.),
])
def test_phases(elapsed, share, scale):
    """λ changes geometrically and weights linearly; in the pretraining no discriminator has an objective."""
    call = called(made(SRbVAE), elapsed)
    right = formula(call, FORMULAS[SRbVAE].arguments, share, scale=scale, symmetric=share)
    assert right.terms.keys() == (FORMULAS[SRbVAE].reaches.keys() if share else PRETRAINING)
    assert ('discriminator' in call.ours.objectives) == (share > 0)
    assert_same(call.ours, right)
    assert_same(*(gradients(losses.objectives['model'], call.model) for losses in (call.ours, right)))


def test_share_and_scale():
    """The same by themselves."""
    model = made(SRbVAE)
    assert [model.share(elapsed) for elapsed in (0., .25, .5, .75, 1.)] == [0., 0., .5, 1., 1.]
    assert [model.scale_at(t) for t in (0., .5, 1.)] == pytest.approx([2.5, 10., 40.])


@pytest.mark.parametrize('share', [0., .5, 1.])
def test_weights(share):
    """Those of the formula are its derivatives by the terms."""
    terms = {name: torch.ones((), requires_grad=True) for name in FORMULAS[SRbVAE].reaches}
    srbvae_objective(terms, FORMULAS[SRbVAE].arguments, share).backward()
    right = {name: 0. if one.grad is None else one.grad.item() for name, one in terms.items()}
    assert made(SRbVAE).weights(share) == pytest.approx(right)


def test_without_a_ramp_the_symmetric_objective_is_there_at_once():
    model = made(SRbVAE, ramp=0.)
    assert [model.share(elapsed) for elapsed in (0., .2499, .25, 1.)] == [0., 0., 1., 1.]


def test_without_pretraining_it_is_there_in_the_first_step():
    call = called(made(SRbVAE, pretraining=0., ramp=0.), 0.)
    assert 'discriminator' in call.ours.objectives
    assert_same(call.ours, formula(call, FORMULAS[SRbVAE].arguments))


def test_without_a_scale_of_its_own_the_pretraining_has_that_of_later():
    call = called(made(SRbVAE, pretraining_scale=None), 0.)
    assert_same(call.ours, formula(call, FORMULAS[SRbVAE].arguments, 0., scale=40., symmetric=0.))
    assert [call.model.scale_at(t) for t in (0., .5, 1.)] == pytest.approx([40.] * 3)


# Running averages of Mathieu et al.
@pytest.mark.parametrize('mode, share', [('evaluation', 0.), ('training', .02)])
def test_averages_follow_in_training(mode, share):
    """By a fiftieth in each step: e_ref the e of reference images; mean and spread those of unlabelled images."""
    model, x_u, x_r, *_ = case(Mathieu, mode)[0]
    e_u, e_r = (model.encoder_e(x)[0].detach() for x in (x_u, x_r))
    assert_same([model.e_ref, model.e_mean, model.e_std],
                [share * e_r.mean(0), share * e_u.mean(0), (1 - share) + share * e_u.std(0)])


# Training
def run_of(**recipe) -> Run:
    """A run of sVAE on random images."""
    sets = ImageSets(*torch.randint(0, 256, (2, 8, 3, 32, 32), dtype=torch.uint8))
    plain = dict(steps=40, batch_size=N, lr=1e-3, lr_ratio={}, betas=(.5, .99), warmup=0., decay=0., alternating=False,
                 seed=0, dtype='float32')
    return Run(made(SVAE), sets, plain | recipe, torch.device('cpu'))


def test_rate():
    """Ten steps of warm-up, of which the last has the whole rate; twenty of decay, of which the first has it."""
    run = run_of(warmup=.25, decay=.5)
    for run.step, rate in {0: .1, 4: .5, 9: 1., 15: 1., 20: 1., 21: .95, 30: .5, 39: .05}.items():
        assert run.rate() == pytest.approx(rate)


def test_rate_without_warmup_and_decay():
    run = run_of()
    assert {run.rate() for run.step in range(40)} == {1}


def test_every_player_has_its_rate():
    """lr times the rate of the step, times the player's ratio."""
    run = run_of(warmup=.25, decay=.5, lr_ratio={'discriminator': 3.})
    run.step = 30
    run.advance()
    rates = {who: optimizer.param_groups[0]['lr'] for who, optimizer in run.optimizers.items()}
    assert rates == pytest.approx({'model': 5e-4, 'discriminator': 1.5e-3})


@pytest.mark.parametrize('looks', [1, 2], ids=['simultaneous', 'alternating'])
def test_losses_are_told_what_has_passed(looks, monkeypatch):
    """The share of the steps before this one: 0 in the first, short of 1 in the last."""
    run, told = run_of(steps=4, alternating=looks == 2), []
    losses = run.model.losses
    monkeypatch.setattr(run.model, 'losses', lambda u, r, elapsed: told.append(elapsed) or losses(u, r, elapsed))
    for _ in range(4): run.advance()
    assert told == [elapsed for elapsed in (0., .25, .5, .75) for _ in range(looks)]


@pytest.mark.parametrize('step, order', [
    (gradient_step, 'losses model discriminator'), (alternating_step, 'losses discriminator losses model')])
def test_order_of_moves(step, order, monkeypatch):
    """Both players move after one look at the losses; or the discriminators do, and the model after another look."""
    model, seen = made(SVAE), []
    losses = model.losses
    monkeypatch.setattr(model, 'losses', lambda *batch: seen.append('losses') or losses(*batch))
    optimizers = {who: torch.optim.SGD(parameters) for who, parameters in model.players().items()}
    for who, optimizer in optimizers.items():
        monkeypatch.setattr(optimizer, 'step', lambda who=who: seen.append(who))
    step(model, optimizers, *torch.rand(2, N, 3, 32, 32))
    assert ' '.join(seen) == order
