"""Variational inference for relations: oracles, a bound that never falls, gradients, and equal forms."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import relation_problems as p
from helpers.cases import each

from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.loop import run
from tensorcep.factor_models.settings import FactorisedVB
from tensorcep.factor_models.side_information import Moments, latent_moments
from tensorcep.factor_models.sites import polya_gamma_mean
from tensorcep.factor_models.variational import FACTORISED_ENGINE, VB_ENGINE, gradient, lower_bound

METHODS = [VB_ENGINE, FACTORISED_ENGINE]


def fit(method, problem, sweeps=60, tol=0.0, threads=1, **options):
    return run(method, problem, method.options(**options), max_iter=sweeps, tol=tol, n_threads=threads)


@pytest.mark.parametrize("options", [{}, {"step": 0.3}])
def test_relation_vb_bound_of_gaussian_oracle(options):
    known = {"alpha": p.GAUSS_ALPHA, "noise": p.GAUSS_TAU}
    if not options:
        found = fit(VB_ENGINE, p.problem(p.GAUSS, 2, "gaussian", **known), 400).trace["lower_bound"][-1]
        assert found == pytest.approx(p.GAUSS_BOUND, abs=1e-9)
    found = fit(FACTORISED_ENGINE, p.problem(p.GAUSS, 2, "gaussian", **known), 400, **options).trace["lower_bound"][-1]
    assert found == pytest.approx(p.GAUSS_BOUND, abs=1e-9)


def test_relation_vb_bound_at_a_given_state_of_gaussian_oracle():
    problem = p.problem(p.GAUSS, 2, "gaussian", alpha=p.GAUSS_ALPHA, noise=p.GAUSS_TAU, scale=0.0)
    state = FACTORISED_ENGINE.init(problem, FactorisedVB(), ThreadExecutor(1))
    u = Moments(np.zeros((2, 2)), np.full((1, 2), 0.7), True)
    v = Moments(np.zeros((2, 2)), np.array([[0.5, 0.4]]), True)
    latent = latent_moments(problem.relations[0].cells, u, v, ThreadExecutor(1))
    relation = problem.relations[0]
    sites = relation.kind.form.expected(relation, problem.priors, None, *latent)
    state = state._replace(moments=(u, v), latent=(latent,), sites=(sites,))
    assert lower_bound(state, problem) == pytest.approx(p.GAUSS_BOUND_AT_Q0, abs=1e-10)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_relation_vb_bounds_of_binary_and_count_oracles(method):
    assert fit(method, p.problem(p.BINARY, 1, "bernoulli"), 300).trace["lower_bound"][-1] == pytest.approx(
        p.BINARY_BOUND, abs=1e-9
    )
    counts = p.problem(p.COUNTS, 1, "negbinomial", r=p.COUNTS_R, seed=1)
    assert fit(method, counts, 400).trace["lower_bound"][-1] == pytest.approx(p.COUNTS_BOUND, abs=1e-7)


def test_relation_vb_weight_is_that_of_jaakkola():
    xi = np.array([1e-9, 0.3, 2.0, 40.0])
    jaakkola = (1.0 / (1.0 + np.exp(-xi)) - 0.5) / (2.0 * xi)  # lambda(xi), used twice in the bound
    np.testing.assert_allclose(polya_gamma_mean(np.ones(4), xi), 2.0 * jaakkola, rtol=1e-6)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
@each(("likelihood", "augmentation"), p.AUGMENTED)
@each("groups", ["all", "column"])
def test_relation_vb_bound_never_falls(rng, method, likelihood, augmentation, groups):
    x = p.data(rng, likelihood, missing=0.2)
    problem = p.problem(x, 3, likelihood, augmentation, learned=True, groups=groups)
    bound = fit(method, problem, 40).trace["lower_bound"]
    assert np.isfinite(bound).all()
    assert np.diff(bound).min() > -1e-9 * np.abs(bound).max()


@each("likelihood", ["bernoulli", "poisson"])
@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_relation_vb_boehning_bound_never_falls(rng, likelihood, method):
    x = p.data(rng, likelihood)
    bound = fit(method, p.problem(x, 2, likelihood, "boehning", learned=True, scale=0.1), 60).trace["lower_bound"]
    assert np.diff(bound).min() > -1e-9 * np.abs(bound).max()


def test_relation_vb_augmentation_is_tighter_than_boehning(rng):
    x = (rng.random((40, 10)) < 0.9).astype(float)
    direct, boehning = (
        fit(VB_ENGINE, p.problem(x, 1, "bernoulli", how, alpha=0.1), 100).trace["lower_bound"][-1]
        for how in ("direct", "boehning")
    )
    assert direct > boehning


@each(("likelihood", "augmentation"), p.AUGMENTED)
def test_relation_vb_methods_are_one_at_rank_one(rng, likelihood, augmentation):
    problem = p.problem(p.data(rng, likelihood), 1, likelihood, augmentation, learned=True)
    joint, factorised = (fit(method, problem, 15) for method in METHODS)
    np.testing.assert_allclose(joint.trace["lower_bound"], factorised.trace["lower_bound"], rtol=1e-12)


@each(("likelihood", "augmentation"), [("gaussian", "direct"), ("bernoulli", "noise"), ("negbinomial", "noise")])
@each("e", [0, 1])
def test_relation_vb_gradient_is_that_of_the_bound(rng, likelihood, augmentation, e):
    problem = p.problem(p.data(rng, likelihood), 2, likelihood, augmentation)
    state = fit(FACTORISED_ENGINE, problem, 3).state
    slope, curvature = gradient(state, problem, e, ThreadExecutor(1))

    def bound_at(shift):
        moments = list(state.moments)
        mean = moments[e].mean.copy()
        mean[2, 1] += shift
        moments[e] = moments[e]._replace(mean=mean)
        latent = latent_moments(problem.relations[0].cells, *moments, ThreadExecutor(1))
        return lower_bound(state._replace(moments=tuple(moments), latent=(latent,)), problem)

    h = 1e-4
    assert slope[2, 1] == pytest.approx((bound_at(h) - bound_at(-h)) / (2 * h), rel=1e-5, abs=1e-6)
    bend = (bound_at(h) - 2 * bound_at(0.0) + bound_at(-h)) / h**2
    assert np.broadcast_to(curvature, slope.shape)[2, 1] == pytest.approx(-bend, rel=1e-4)


@pytest.mark.parametrize("likelihood", ["bernoulli", "negbinomial"])
def test_relation_vb_gradient_is_that_of_the_profiled_bound(rng, likelihood):
    problem = p.problem(p.data(rng, likelihood), 2, likelihood, r=None if likelihood == "bernoulli" else 1.7)
    state = fit(FACTORISED_ENGINE, problem, 3).state
    slope, _ = gradient(state, problem, 0, ThreadExecutor(1))

    def bound_at(shift):
        mean = state.moments[0].mean.copy()
        mean[2, 1] += shift
        moments = (state.moments[0]._replace(mean=mean), state.moments[1])
        latent = latent_moments(problem.relations[0].cells, *moments, ThreadExecutor(1))
        return lower_bound(state._replace(moments=tuple(moments), latent=(latent,)), problem)

    h = 1e-5
    assert slope[2, 1] == pytest.approx((bound_at(h) - bound_at(-h)) / (2 * h), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
@each(("likelihood", "groups"), [("gaussian", "column"), ("bernoulli", "all"), ("negbinomial", "row")])
def test_relation_vb_listed_cells_are_a_masked_matrix(rng, method, likelihood, groups):
    x = p.data(rng, likelihood, missing=0.5)
    dense, listed = (
        fit(method, p.problem(x, 2, likelihood, learned=True, listed=flag, groups=groups), 8) for flag in (False, True)
    )
    np.testing.assert_allclose(dense.trace["lower_bound"], listed.trace["lower_bound"], rtol=1e-10)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_relation_vb_does_not_depend_on_row_order(rng, method):
    x = p.data(rng, "bernoulli", missing=0.1)
    problem = p.problem(x, 2, "bernoulli", learned=True)
    order = rng.permutation(len(x))
    other = p.problem(x[order], 2, "bernoulli", learned=True)
    other = other._replace(start=(problem.start[0][order], problem.start[1]))
    a, b = fit(method, problem, 10).posterior, fit(method, other, 10).posterior
    np.testing.assert_allclose(a.moments[0].mean[order], b.moments[0].mean, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_relation_vb_same_bits_on_two_threads(rng, method):
    x = p.data(rng, "bernoulli", (200, 30), missing=0.7)
    problem = p.problem(x, 3, "bernoulli", learned=True, listed=True)
    one, two = (fit(method, problem, 5, threads=n).posterior.moments for n in (1, 2))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a.mean, b.mean)


def test_relation_vb_refuses_a_step_that_is_none():
    with pytest.raises(ValueError, match="step must be 'best', or a number in"):
        FactorisedVB(step=1.5)
