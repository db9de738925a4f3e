"""Learned priors in mean-field methods: a plain twin, a bound that never falls, limits, rows without entries."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from helpers.cases import each
from helpers.problems import NOISE, build, cells, fit, problem, structured
from oracles import vmp as oracle

from tensorcep.core.packing import offsets, unpack
from tensorcep.priors import LEARNED
from tensorcep.priors.ard import ARD_SHAPE
from tensorcep.priors.fixed import FixedPrior, Prior, natural_prior
from tensorcep.priors.normal_wishart import MEAN_ROWS

EVERY_KIND = each("kind", LEARNED)
METHODS = each(
    ("method", "likelihood"),
    [("vmp", "gaussian"), ("vmp", "probit"), ("pg-vb", "logit"), ("pg-vb", "negbinomial")],
)
CENTRE, WIDTH = 0.3, 0.8


def learning(rng, kind, likelihood="gaussian", K=3, R=2, n=60, strength=1.0, **how):
    """A problem of which every row has entries, and whose rows' prior is learned."""
    stand_in = {"logit": "poisson", "negbinomial": "poisson"}.get(likelihood, likelihood)
    coords, y, p = problem(rng, K, R, n, stand_in, **how)
    if likelihood == "logit":
        y = np.where(y > 0, 1.0, -1.0)
    # what the prior of the prior expects
    precision = (R if kind == "learned" else 1.0) / WIDTH**2
    p = build(coords, y, p.shape, R, likelihood, Prior([CENTRE] * K, [precision] * K), p.start, NOISE)
    whole = np.ones((K, R))
    prior = LEARNED[kind](p.prior.Lam, p.prior.eta, CENTRE * whole, WIDTH * whole, whole > 0.0, strength=strength)
    return coords, y, p._replace(prior=prior)


@EVERY_KIND
@each(("likelihood", "K", "R"), [("gaussian", 3, 3), ("gaussian", 2, 1), ("probit", 3, 2)])
def test_vmp_with_a_learned_prior_equals_its_plain_twin(rng, kind, likelihood, K, R):
    coords, y, p = learning(rng, kind, likelihood, K, R, 30 if K == 2 else 60, strength=1.5)
    first = offsets(p.shape)
    before = (MEAN_ROWS, R) if kind == "learned" else (ARD_SHAPE, ARD_SHAPE)
    learned = (kind, CENTRE, 1.5 * before[0], 1.5 * before[1], WIDTH)
    twin = oracle.Twin(
        coords + first[:-1], y, unpack(p.prior.Lam, R), p.prior.eta, first, p.noise_prior, p.start, learned
    )
    run = fit(p, 5, method="vmp")
    assert run.posterior.seen.all()
    bounds = []
    for _ in range(5):
        twin.sweep()
        bounds.append(twin.bound())
    np.testing.assert_allclose(run.state.rows.mean, twin.m, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(run.trace["lower_bound"], bounds, rtol=1e-9)
    rows = first[:-1]
    np.testing.assert_allclose(run.posterior.mode_prior.mean, twin.prior_mean[rows], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(run.posterior.mode_prior.precision, twin.prior_Lam[rows], rtol=1e-8, atol=1e-9)


@METHODS
@EVERY_KIND
@each("anneal", [0, 3])
def test_bound_with_a_learned_prior_never_falls(rng, method, likelihood, kind, anneal):
    _, _, p = learning(rng, kind, likelihood, 3, 3)
    bound = fit(p, 80, method=method, anneal=anneal).trace["lower_bound"]
    assert np.isnan(bound[:anneal]).all()
    assert np.isfinite(bound[anneal:]).all()
    assert np.diff(bound[anneal:]).min() > -1e-10 * np.abs(bound[anneal:]).max()
    assert bound[-1] > bound[anneal] + 1.0


@METHODS
@EVERY_KIND
def test_a_prior_of_the_prior_without_width_leaves_the_fixed_one(rng, method, likelihood, kind):
    # more digits are lost where Normal-Wisharts are compared, and an ARD prior starts weaker
    _, _, p = learning(rng, kind, likelihood, strength=1e7 if kind == "learned" else 1e10)
    tight, fixed = (fit(q, 6, method=method) for q in (p, p._replace(prior=FixedPrior(p.prior.Lam, p.prior.eta))))
    assert fixed.posterior.mode_prior is None
    np.testing.assert_allclose(tight.trace["lower_bound"], fixed.trace["lower_bound"], rtol=1e-5)
    np.testing.assert_allclose(tight.posterior.eta, fixed.posterior.eta, rtol=1e-5, atol=1e-5)


@METHODS
@EVERY_KIND
def test_rows_without_entries_have_the_learned_prior_and_teach_it_nothing(rng, method, likelihood, kind):
    coords, y, p = learning(rng, kind, likelihood)
    bigger, more = tuple(n + 4 for n in p.shape), np.array([4] * 3)
    start = np.concatenate(
        [part for a, b in itertools.pairwise(offsets(p.shape)) for part in (p.start[a:b], rng.random((4, 2)))]
    )
    Lam, eta = natural_prior(Prior([CENTRE] * 3, [unpack(p.prior.Lam, 2)[0]] * 3), bigger, 2)
    empty = build(coords, y, bigger, 2, likelihood, Prior([0.0] * 3, [1.0] * 3), start, NOISE)
    empty = empty._replace(prior=replace(p.prior, Lam=Lam, eta=eta))
    one, other = (fit(q, 6, method=method) for q in (p, empty))
    np.testing.assert_allclose(other.trace["lower_bound"], one.trace["lower_bound"], rtol=1e-10)
    prior = other.posterior.mode_prior
    np.testing.assert_allclose(prior.precision, one.posterior.mode_prior.precision, rtol=1e-10)
    unseen = ~other.posterior.seen
    assert unseen.sum() == more.sum()
    wanted = natural_prior(Prior(list(prior.mean), list(prior.precision)), bigger, 2)
    np.testing.assert_allclose(other.posterior.Lam[unseen], wanted[0][unseen], rtol=1e-10)
    np.testing.assert_allclose(other.posterior.eta[unseen], wanted[1][unseen], rtol=1e-10)


@METHODS
def test_learned_prior_gives_the_same_bits_on_any_number_of_threads(rng, method, likelihood):
    _, _, p = learning(rng, "learned", likelihood, 3, 3, 4000, shape=(30, 25, 20))
    runs = [fit(p, 3, method=method, threads=threads) for threads in (1, 2)]
    np.testing.assert_array_equal(runs[0].posterior.eta, runs[1].posterior.eta)
    np.testing.assert_array_equal(runs[0].trace["lower_bound"], runs[1].trace["lower_bound"])


@METHODS
@each("kind", [None, *LEARNED])
def test_bound_with_clamped_columns_never_falls(rng, method, likelihood, kind):
    coords = cells(rng, (5, 4, 6), 60)
    _, p = structured(rng, 3, {"negbinomial": "poisson"}.get(likelihood, likelihood), kind)
    if likelihood == "negbinomial":
        q = build(coords, rng.poisson(1.0, 60).astype(float), p.shape, p.rank, likelihood, start=p.start)
        p = q._replace(prior=p.prior)
    run = fit(p, 60, method=method)
    bound = run.trace["lower_bound"]
    assert np.isfinite(bound).all()
    assert np.diff(bound).min() > -1e-9 * np.abs(bound).max()
