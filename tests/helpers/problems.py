"""Small problems, and the compiled method and its plain twin on the same one."""

from __future__ import annotations

import numpy as np
from oracles import cep as oracle

from tensorcep.core.loop import run
from tensorcep.core.packing import offsets, unpack
from tensorcep.cp.methods import METHODS
from tensorcep.cp.model.columns import CLAMPED, free_columns
from tensorcep.cp.model.entries import pack_entries
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.posterior import GammaNoise
from tensorcep.cp.settings import SETTINGS, Sampler
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.negbinomial import DispersionLaw, DispersionParameter
from tensorcep.likelihoods.parameters.base import Gamma
from tensorcep.priors import LEARNED
from tensorcep.priors.fixed import FixedPrior, Prior, natural_prior

SHAPES = {1: (4,), 2: (7, 5), 3: (5, 4, 6), 4: (3, 4, 2, 5)}
NOISE = GammaNoise(1e-3, 1e-3)


def cells(rng, shape, n):
    flat = rng.choice(int(np.prod(shape)), size=n, replace=False)
    return np.stack(np.unravel_index(flat, shape), axis=1)


def problem(rng, K=3, R=2, n=30, likelihood="gaussian", shape=None, prior=None, noise=NOISE, sd=0.3):
    """Random entries (coords, y) and a Problem of them with a start that breaks the symmetry of signs."""
    shape = SHAPES[K] if shape is None else shape
    coords = cells(rng, shape, n)
    factors = [rng.standard_normal((m, R)) for m in shape]
    f = np.prod([u[i] for u, i in zip(factors, coords.T, strict=True)], axis=0).sum(axis=1)
    y = f + sd * rng.standard_normal(n)
    if likelihood == "probit":
        y = np.where(f + rng.standard_normal(n) > 0, 1.0, -1.0)
    elif likelihood == "tobit":
        y = np.maximum(y, 0.0)
    elif likelihood == "poisson":
        y = rng.poisson(np.exp(np.clip(0.3 * f, -3, 2))).astype(float)
    return coords, y, build(coords, y, shape, R, likelihood, prior, rng.random((sum(shape), R)), noise)


def build(coords, y, shape, R, likelihood="gaussian", prior=None, start=None, noise=NOISE):
    prior = Prior([0.0] * len(shape), [1.0] * len(shape)) if prior is None else prior
    rows_prior = FixedPrior(*natural_prior(prior, shape, R))
    noise = noise if likelihood in ("gaussian", "tobit") else None
    return Problem(pack_entries(coords, y, shape), shape, R, get_likelihood(likelihood), rows_prior, start, noise)


def twin_of(p, coords, y, options=None):
    options = settings_of("cep") if options is None else options
    return oracle.Twin(
        coords=coords + offsets(p.shape)[:-1],
        y=y,
        prior_Lam=unpack(p.prior.Lam, p.rank),
        prior_eta=p.prior.eta,
        first=offsets(p.shape),
        likelihood=p.likelihood.name,
        noise_prior=p.noise_prior,
        start=p.start,
        message_precision=options.message_precision,
        message_noise=options.message_noise,
    )


def settings_of(method, sweeps=1, **given):
    """Settings of a method as a plan gives them to it: with numbers, and neither damping nor annealing by default."""
    engine = SETTINGS[method]
    plain = {"damping": 0.0, "anneal": 0}
    settings = engine(**{**{name: plain[name] for name in plain if hasattr(engine, name)}, **given})
    return settings.for_sweeps(sweeps) if isinstance(settings, Sampler) else settings


def fit(p, sweeps, threads=1, callbacks=(), tol=0.0, method="cep", **options):
    """Run a method; gives a Run."""
    chosen = METHODS[method]
    settings = settings_of(method, sweeps, **options)
    return run(chosen, p, settings, max_iter=sweeps, tol=tol, n_threads=threads, callbacks=callbacks)


def means(posterior):
    return np.linalg.solve(unpack(posterior.Lam, posterior.rank), posterior.eta[..., None])[..., 0]


def messages(state, p):
    """Messages in the order of the input: Lam (N, K, R, R) and eta (N, K, R), float64."""
    Lam = state.own.messages.Lam.transpose(0, 3, 1, 2).reshape(-1, *state.own.messages.Lam.shape[1:3]).astype(float)
    eta = state.own.messages.eta.transpose(0, 3, 1, 2).reshape(-1, *state.own.messages.eta.shape[1:3]).astype(float)
    n = len(p.entries.permutation)
    back = np.argsort(p.entries.permutation)
    return unpack(Lam[:n][back], p.rank), eta[:n][back]


PARTS = {"main": 1, "pair": 2, "cp": 1}


def structured(rng, K=3, likelihood="gaussian", kind=None, parts=None, n=60, free=None, shape=None, precision=1.7):
    """A problem with clamped columns, and the same one whose method does not know that they are."""
    shape = SHAPES[K] if shape is None else shape
    free = free_columns(PARTS if parts is None else parts, K) if free is None else free
    R = free.shape[1]
    coords = cells(rng, shape, min(n, int(0.8 * np.prod(shape))))
    f = sum(rng.standard_normal(m)[i] for m, i in zip(shape, coords.T, strict=True))
    y = f + 0.5 * rng.standard_normal(len(f))
    if likelihood in ("probit", "logit"):
        y = np.where(y > 0, 1.0, -1.0)
    elif likelihood == "tobit":
        y = np.maximum(y, 0.0)
    elif likelihood in ("poisson", "negbinomial"):
        y = rng.poisson(np.exp(np.clip(0.3 * f, -3, 2))).astype(float)
    mean = np.where(free, 0.3 * rng.standard_normal(free.shape), 1.0)
    precision = np.where(free, precision, CLAMPED)
    start = np.where(np.repeat(free, shape, axis=0), rng.standard_normal((sum(shape), R)), 1.0)
    p = build(coords, y, shape, R, likelihood, Prior(list(mean), list(precision)), start, NOISE)
    if kind is not None:
        p = p._replace(
            prior=LEARNED[kind](p.prior.Lam, p.prior.eta, mean, np.full(free.shape, 0.8), free, strength=3.0)
        )
    return p._replace(free=free), p


def law_of_dispersion(y, m, v, share, prior, start, used=None, group=None, earlier=0.0):
    """The law of dispersions given counts y with f ~ N(m, v), (n,) each, from means to start with."""
    start, used = np.atleast_1d(start), np.ones(len(y)) if used is None else used
    state = DispersionLaw(Gamma(start, np.ones(len(start))), None)
    return DispersionParameter(prior, earlier=earlier).law_of_entries(state, (y, m, v, used), share, group)
