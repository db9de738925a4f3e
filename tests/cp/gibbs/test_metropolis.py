"""Gibbs sampling of counts by proposals: the joint test beside planted bugs, exact conditionals, who is proposed to."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from helpers.problems import build, settings_of
from helpers.samplers import COORDS, CP, STRUCTURED, THETA_PRIOR, geweke_z
from scipy.special import gammaln

from tensorcep import CPCountRegressor, Gibbs, Series, load, simulate_cp
from tensorcep.core.loop import run
from tensorcep.cp.calibration.holdout import hold_out, promising_chains
from tensorcep.cp.gibbs import metropolis
from tensorcep.cp.methods import METHODS
from tensorcep.cp.model.problem import with_powers
from tensorcep.likelihoods import get_likelihood
from tensorcep.priors.fixed import Prior

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")
LIMIT = 4.5
EXPOSURE = np.linspace(0.3, 2.5, len(COORDS))
TRIALS = np.array([1.0, 3.0, 2.0, 8.0, 5.0, 1.0, 4.0, 2.0])


def z_of(likelihood, n=1200, **how):
    options = settings_of("gibbs", 200, burn_in=0, n_chains=1, dispersion_prior=THETA_PRIOR)
    return np.abs(geweke_z(METHODS["gibbs"], options, likelihood, n=n, **how)).max()


@pytest.mark.parametrize(
    ("likelihood", "how"),
    [
        pytest.param("poisson", {"free": STRUCTURED}, marks=pytest.mark.slow),
        ("poisson", {"extent": EXPOSURE}),
        pytest.param("negbinomial", {"learned": "learned"}, marks=pytest.mark.slow),
        ("negbinomial", {"free": STRUCTURED, "extent": EXPOSURE}),
        pytest.param("binomial", {"extent": TRIALS}, marks=pytest.mark.slow),
    ],
)
def test_proposals_pass_the_joint_test(likelihood, how):
    assert z_of(likelihood, **how) < LIMIT


def test_rows_that_are_all_taken_fail_the_joint_test(monkeypatch):
    monkeypatch.setattr(metropolis.Judge, "decide", lambda *given: None)
    assert z_of("poisson", free=CP) > LIMIT


def test_a_judge_without_the_exposures_fails_the_joint_test(monkeypatch):
    right = metropolis.judge_of

    def wrong(*given):
        judge = right(*given)
        return judge._replace(told=judge.told._replace(known=np.zeros(0)))

    monkeypatch.setattr("tensorcep.cp.gibbs.method.judge_of", wrong)
    assert z_of("poisson", extent=np.linspace(0.1, 8.0, len(COORDS))) > LIMIT


@each(("K", "power"), [(2, 2.5), (3, 1.0)])
def test_rows_are_drawn_from_their_conditional(rng, K, power):
    """One component, the other modes known: the law of each row by a grid."""
    shape = (3, 4, 5)[:K]
    coords = np.argwhere(np.ones(shape))
    others = [np.linspace(0.4, 1.2, n)[:, None] for n in shape[1:]]
    y = rng.poisson(np.exp(1.5 * np.prod([u[j, 0] for u, j in zip(others, coords[:, 1:].T, strict=True)], axis=0)))
    prior = Prior([0.2, *others], [1.5, *[1e10] * (K - 1)])
    p = build(coords, y.astype(float), shape, 1, "poisson", prior=prior)
    p = with_powers(p, np.full(len(y), power)) if power != 1.0 else p
    options = settings_of("gibbs", 6000, burn_in=200, n_chains=1, thin=1, weights="equal")
    rows = run(METHODS["gibbs"], p, options, max_iter=6000, tol=0.0).posterior.rows[0, :, : shape[0], 0]
    grid = np.linspace(-4.0, 6.0, 4001)
    for i in range(shape[0]):
        here = coords[:, 0] == i
        z = np.prod([u[j, 0] for u, j in zip(others, coords[here, 1:].T, strict=True)], axis=0)
        f = np.outer(grid, z)
        height = power * (y[here] * f - np.exp(f)).sum(axis=1) - 0.75 * (grid - 0.2) ** 2
        mass = np.exp(height - height.max())
        mass /= mass.sum()
        mean = float(mass @ grid)
        sd = float(np.sqrt(mass @ (grid - mean) ** 2))
        draws = rows[:, i]
        error = draws.reshape(29, -1).mean(axis=1).std() / np.sqrt(29)
        assert abs(draws.mean() - mean) < 5.0 * error
        assert draws.std() == pytest.approx(sd, rel=0.08)


@each("name", ["poisson", "negbinomial"])
def test_differences_in_f_are_those_of_the_log_likelihood(rng, name):
    likelihood = get_likelihood(name)
    y, theta = rng.poisson(3.0, 50).astype(float), np.full(50, 2.5)
    found = []
    for f in (rng.normal(size=50), rng.normal(size=50)):
        whole, part = np.empty((3, 50)), np.empty((3, 50))
        likelihood.loglik(y, f, theta, *whole)
        likelihood.in_f(y, f, theta, *part)
        np.testing.assert_allclose(part[1:], whole[1:], rtol=1e-13)
        found.append(whole[0] - part[0])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12, atol=1e-12)
    constant = -gammaln(y + 1.0) + (gammaln(y + theta) - gammaln(theta) if name == "negbinomial" else 0.0)
    np.testing.assert_allclose(found[0], constant, rtol=1e-10, atol=1e-12)


def counted(n=400, seed=0):
    entries = simulate_cp((12, 10, 8), 1, n, noise_precision=9.0, prior_mean=1.0, random_state=seed).tensor
    return entries.coords, np.random.default_rng(seed).poisson(3.0 * entries.values.clip(0.05)).astype(float)


def test_few_counts_are_sampled_by_default_and_others_fitted_by_mean_field():
    X, y = counted()

    def method(**given):
        return CPCountRegressor(1, max_iter=12, random_state=0, **given).fit(X, y).method_

    assert method() == "gibbs"
    assert method(likelihood="negbinomial", dispersion=2.0) == "gibbs"
    assert method(zero_inflation=True) == "vmp"
    assert method(dispersion="mode_0") == "vmp"
    assert method(prior={2: Series()}) == "vmp"
    many = np.argwhere(np.ones((50, 50, 41)))
    assert CPCountRegressor(1, max_iter=2, random_state=0).fit(many, many.sum(axis=1) % 5.0).method_ == "vmp"


def test_a_series_of_counts_is_refused_with_what_takes_it():
    X, y = counted()
    with pytest.raises(
        ValueError, match=r"'gibbs' takes no Series of 'poisson' entries; use one of the methods \['cep', .*'vmp'"
    ):
        CPCountRegressor(1, method="gibbs", likelihood="poisson", prior={2: Series()}).fit(X, y)


def test_sampled_counts_are_held_by_their_intervals_and_survive_a_file(tmp_path):
    X, y = counted(700)
    model = CPCountRegressor(2, max_iter=200, random_state=0).fit(X[:500], y[:500])
    low, high = model.predict_interval(X[500:], 0.9).T
    assert np.mean((y[500:] >= low) & (y[500:] <= high)) > 0.85
    assert model.log_score(X[500:], y[500:]).mean() > -2.2
    model.save(tmp_path / "m.npz")
    loaded = load(tmp_path / "m.npz")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    two = CPCountRegressor(2, max_iter=200, random_state=0, n_jobs=2).fit(X[:500], y[:500])
    np.testing.assert_array_equal(two.predict(X), model.predict(X))


def test_dispersions_of_rows_are_sampled_with_proposals(rng):
    coords = np.argwhere(np.ones((8, 30, 6)))
    r = np.exp(np.linspace(-1.0, 3.0, 8))
    rate = 4.0 * np.exp(rng.normal(0.0, 0.5, 30))[coords[:, 1]]
    y = rng.poisson(rate * rng.gamma(r[coords[:, 0]]) / r[coords[:, 0]]) * 1.0
    model = CPCountRegressor(1, method=Gibbs(n_chains=1), dispersion="mode_0", max_iter=150, random_state=0)
    model.fit(coords, y)
    assert np.corrcoef(np.log(model.dispersion_), np.log(r))[0, 1] > 0.9


def test_chains_of_counts_are_compared_by_logs(rng):
    """A chain that tells one huge count explains most of its variance, and little of the others'."""
    y = np.exp(rng.normal(0.0, 1.0, 200)).round()
    y[0] = 200.0
    p = build(np.argwhere(np.ones((20, 10))), y, (20, 10), 1, "poisson")
    held = hold_out(p, 2, 1.0)
    place = np.append(np.arange(1, len(held.y)), 0)
    held = held._replace(y=y[place])
    means = np.stack([np.where(held.y > 100.0, 9.0, 0.1 * rng.normal(size=len(place))), np.log(held.y + 0.5)])
    held = held._replace(mean=means)
    assert promising_chains(held, 10, 30, get_likelihood("gaussian")).tolist() == [0, 1]
    assert promising_chains(held, 10, 30, get_likelihood("poisson")).tolist() == [1]
