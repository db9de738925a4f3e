"""Every engine in the free columns against the same model with the clamped columns carried along as tight priors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from helpers.cases import each
from helpers.problems import fit, structured

from tensorcep.core.packing import unpack
from tensorcep.priors import LEARNED

# No two columns of the first are free in the same modes; of the second a whole mode is free.
UNEQUAL = np.array([[1, 0, 1, 1, 1], [0, 1, 1, 1, 0], [0, 0, 0, 1, 1]], dtype=bool)
WHOLE_MODE = np.array([[1, 1, 1], [1, 0, 1], [0, 1, 1]], dtype=bool)
TWICE = np.array([[1, 0, 1, 1, 0, 1], [0, 1, 1, 1, 0, 0], [0, 0, 0, 1, 1, 0]], dtype=bool)
SHAPES = {"a matrix": (2, None), "parts": (3, None), "unequal": (3, UNEQUAL), "a whole mode": (3, WHOLE_MODE)}
SHAPES |= {"effects twice": (3, TWICE), "four modes": (4, None)}


class Engine(NamedTuple):
    """A method with its settings, the likelihoods to try, and to how many digits it takes clamping for tight."""

    method: str
    options: dict
    likelihoods: tuple[str, ...]
    rtol: float
    precision: float = 1.7


LATENT, COUNTS = ("gaussian", "probit"), ("gaussian", "probit", "poisson")
AVERAGED = {"messages": "averaged", "damping": 0.5}
SECOND = {"damping": 0.5, "order": 2, "warm_up": 1}
ENGINES = {
    "cep": Engine("cep", {"damping": 0.3}, ("gaussian", "tobit", "probit", "poisson"), 1e-6),
    "annealed cep": Engine("cep", {"damping": 0.3, "anneal": 2}, LATENT, 1e-6),
    "parallel cep": Engine("cep", {"damping": 0.5, "schedule": "parallel"}, COUNTS, 1e-6),
    "cep of posterior moments": Engine("cep", {"damping": 0.5, "moments": "posterior", "anneal": 2}, COUNTS, 1e-6),
    # the terms of second order must stay small beside the first
    "second order": Engine("cep", SECOND, LATENT, 1e-5, 20.0),
    "second order of posterior moments": Engine("cep", {**SECOND, "moments": "posterior"}, LATENT, 1e-5, 20.0),
    "averaged": Engine("cep", AVERAGED, LATENT, 1e-5),
    "parallel averaged": Engine("cep", {**AVERAGED, "schedule": "parallel"}, LATENT, 1e-5),
    "averaged of posterior moments": Engine("cep", {**AVERAGED, "moments": "posterior"}, LATENT, 1e-5),
    "laplace": Engine("laplace", {"damping": 0.5}, COUNTS, 1e-5),
    "parallel laplace": Engine("laplace", {"damping": 0.5, "schedule": "parallel"}, COUNTS, 1e-5),
    "marginal laplace": Engine("laplace", {"damping": 0.5, "curvature": "marginal"}, COUNTS, 1e-5),
    "vmp": Engine("vmp", {}, ("gaussian", "tobit", "probit"), 1e-5),
    "pg-vb": Engine("pg-vb", {}, ("logit", "negbinomial"), 1e-5),
}


def moments(posterior, free):
    """Covariances and means of the free columns of all rows, the others at 1."""
    covs, means = [], []
    for own, Lam, eta in zip(
        np.repeat(free, posterior.shape, axis=0), unpack(posterior.Lam, posterior.rank), posterior.eta, strict=True
    ):
        cov = np.linalg.inv(Lam[np.ix_(own, own)])
        covs.append(cov.ravel())
        means.append(cov @ (eta[own] - Lam[np.ix_(own, ~own)].sum(axis=1)))
    return np.concatenate(covs), np.concatenate(means)


def assert_same(run, whole, free, rtol, kind):
    """Latent values, what a sweep tells, rows, noise and the learned prior of both."""
    np.testing.assert_allclose(run.state.f, whole.state.f, rtol=rtol, atol=rtol)
    for found, wanted in zip(moments(run.posterior, free), moments(whole.posterior, free), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=rtol * np.abs(wanted).max())
    told = {"change", "train_score", "noise_precision", *(["lower_bound"] if kind is None else [])}
    for name in told & set(run.trace):
        one, other = run.trace[name], whole.trace[name]
        np.testing.assert_allclose(one, other, rtol=1e-4 if name == "change" else rtol, atol=1e-9, err_msg=name)
    if run.posterior.noise is not None:
        assert run.posterior.noise == pytest.approx(whole.posterior.noise, rel=rtol)
    if kind is not None:
        one, other = run.posterior.mode_prior, whole.posterior.mode_prior
        np.testing.assert_allclose(one.mean, other.mean, rtol=rtol, atol=rtol)
        for found, wanted in zip(one.precision, other.precision, strict=True):
            np.testing.assert_allclose(np.linalg.inv(found), np.linalg.inv(wanted), rtol=rtol, atol=rtol)


@pytest.mark.parametrize(
    ("name", "likelihood"),
    [(name, likelihood) for name, engine in ENGINES.items() for likelihood in engine.likelihoods],
)
@each("shape", SHAPES)
@each("kind", [None, *LEARNED])
def test_free_columns_give_what_clamped_ones_do(rng, name, likelihood, shape, kind):
    engine, (K, free) = ENGINES[name], SHAPES[shape]
    p, whole = structured(rng, K, likelihood, kind, free=free, precision=engine.precision)
    run, other = (fit(x, 6, method=engine.method, **engine.options) for x in (p, whole))
    width = run.state.rows.eta.shape[1]
    assert width == p.free.sum(axis=1).max()
    assert run.posterior.rank == other.posterior.rank == whole.rank
    # of counts clamping costs digits
    assert_same(run, other, p.free, max(engine.rtol, 2e-5) if likelihood == "poisson" else engine.rtol, kind)
