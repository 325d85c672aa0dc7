"""Losses of baselines and related methods beside independent implementations (pythae, sklearn) and beside numpy."""
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rbvae_nb.baselines import covariance, dip_penalty, total_correlation
from rbvae_nb.methods import Posterior
from rbvae_nb.related import gaussian_kernels, mmd


@pytest.fixture(params=range(3))
def batch(request) -> tuple[Posterior, torch.Tensor]:
    """Posteriors of 24 images in 6 dimensions, and a sample of each, in double precision."""
    torch.manual_seed(request.param)
    q = Posterior(torch.randn(24, 6, dtype=torch.float64) * 2, torch.randn(24, 6, dtype=torch.float64) - 1)
    return q, q.sample()


def pythae_terms(q: Posterior, z: torch.Tensor, dataset_size: int, **weights: float) -> float:
    """What pythae's β-TCVAE adds to the reconstruction error, with these weights of its three parts."""
    model = pytest.importorskip('pythae.models.beta_tc_vae.beta_tc_vae_model').BetaTCVAE
    def log_density(*args): return model._compute_log_gauss_density(None, *args)
    parts = SimpleNamespace(model_config=SimpleNamespace(reconstruction_loss='mse'), use_mss=False,
                            _compute_log_gauss_density=log_density, **dict(alpha=0., beta=0., gamma=0.) | weights)
    blank = torch.zeros(len(z), 1, dtype=z.dtype)
    return model.loss_function(parts, blank, blank, *q, z, dataset_size)[2].item()


@pytest.mark.parametrize('dataset_size', [1, 24, 5000])
def test_total_correlation_is_that_of_pythae(batch, dataset_size):
    """Theirs has 1/NB where ours has 1/B, which adds (D - 1) log N."""
    q, z = batch
    theirs = pythae_terms(q, z, dataset_size, beta=1.) - (z.shape[1] - 1) * math.log(dataset_size)
    assert total_correlation(q, z).item() == pytest.approx(theirs, rel=1e-5)


def test_the_parts_of_pythae_add_up_to_the_kl(batch):
    """Information, total correlation and dimensions: together E log q(z|x)/p(z), the KL's own samples."""
    q, z = batch
    ours = (q.log_density(z) - Posterior(torch.zeros_like(z), torch.zeros_like(z)).log_density(z)).mean().item()
    assert pythae_terms(q, z, 24, alpha=1., beta=1., gamma=1.) == pytest.approx(ours, rel=1e-5)


def test_kl_is_that_of_pythae(batch):
    vae = pytest.importorskip('pythae.models.vae.vae_model').VAE
    q, z = batch
    blank = torch.zeros(len(z), 1, dtype=z.dtype)
    plain = SimpleNamespace(model_config=SimpleNamespace(reconstruction_loss='mse'))
    theirs = vae.loss_function(plain, blank, blank, *q, z)[2].item()
    assert q.kl().mean().item() == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize('off_diagonal, diagonal', [(10., 100.), (3., 3.)])
def test_dip_penalty_is_that_of_numpy(batch, off_diagonal, diagonal):
    """λ_od Σ_{i≠j} C_ij² + λ_d Σ_i (C_ii - 1)², C normalised by B; II adds the mean variances on the diagonal."""
    q, _ = batch
    for extra in (torch.zeros(6, dtype=torch.float64), q.logvar.exp().mean(0)):
        C = np.cov(q.mean.numpy().T, ddof=0) + np.diag(extra.numpy())
        expected = off_diagonal * (C[~np.eye(6, dtype=bool)] ** 2).sum() + diagonal * ((np.diag(C) - 1) ** 2).sum()
        ours = dip_penalty(covariance(q.mean) + extra.diag(), off_diagonal, diagonal).item()
        assert ours == pytest.approx(expected, rel=1e-5)


def test_kernels_are_those_of_sklearn(batch):
    """Thirteen of them, one for each power of ten."""
    rbf_kernel = pytest.importorskip('sklearn.metrics.pairwise').rbf_kernel
    (a, _), b = batch
    theirs = sum(rbf_kernel(a.numpy(), b.numpy()[:7], gamma=float(f'1e{power}')) for power in range(-6, 7))
    assert gaussian_kernels(a, b[:7]).numpy() == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize('shift', [0., .7, 3.])
def test_mmd_is_the_closed_form_and_its_bias(shift):
    """N(0, I) against N(μ, I) in 5 dimensions, in batches of 24 and 40: a point paired with itself counts 13."""
    torch.manual_seed(0)
    mean = torch.tensor([0., shift, 0., 0., 0.], dtype=torch.float64)
    found = torch.stack([mmd(torch.randn(24, 5, dtype=torch.float64), torch.randn(40, 5, dtype=torch.float64) + mean)
                         for _ in range(500)])
    gammas = 10. ** np.arange(-6, 7)
    alike = (1 + 4 * gammas) ** -2.5  # expected kernels of two points of one side
    apart = alike * np.exp(-gammas * shift ** 2 / (1 + 4 * gammas))  # and of a point of either
    expected = 2 * (alike - apart).sum() + (13 - alike.sum()) * (1 / 24 + 1 / 40)
    assert found.mean().item() == pytest.approx(expected, abs=4 * found.std().item() / 500 ** .5)


def test_mmd_of_a_point():
    """It is 13 + 13 - 26 at the point itself, and nearly 13/n + 13 where no two codes see each other."""
    point, n = torch.zeros(1, 3, dtype=torch.float64), 4
    assert mmd(point.expand(n, 3), point).item() == 0
    far = torch.arange(1, n + 1, dtype=torch.float64)[:, None].expand(n, 3) * 1e6
    assert mmd(far, point).item() == pytest.approx(13 / n + 13, rel=.01)


def test_mmd_refuses_other_dimensions():
    with pytest.raises(ValueError, match=r'^expected codes of one dimension, got shapes \(4, 3\) and \(4, 1\)$'):
        mmd(torch.zeros(4, 3), torch.zeros(4, 1))
