"""Baselines' losses beside an independent implementation (pythae) and beside numpy."""
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rbvae_nb.baselines import covariance, dip_penalty, total_correlation
from rbvae_nb.methods import Posterior


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
