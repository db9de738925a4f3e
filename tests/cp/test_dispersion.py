"""The dispersion of negative-binomial counts: learned by every method, carried by streams and files, or kept."""

from __future__ import annotations

import io
import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from helpers.cases import each
from helpers.problems import law_of_dispersion
from scipy.optimize import minimize
from scipy.stats import nbinom

import tensorcep as tc
from tensorcep.cli.main import main
from tensorcep.cp.init import residual
from tensorcep.cp.model.parameters import results
from tensorcep.cp.targets.counts import overdispersion_of
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.negbinomial import MOST_STEP, NODES, WEIGHTS
from tensorcep.likelihoods.parameters.base import Gamma, Parameter

R, N, SHAPE = 2.0, 4000, (20, 15, 10)


@cache
def counts(r=R, mean=5.0, seed=0):
    """Coordinates (2 N, 3) and counts about main effects and one component; r=None: Poisson counts."""
    rng = np.random.default_rng(seed)
    coords = np.stack([rng.integers(0, n, 2 * N) for n in SHAPE], axis=1)
    f = sum(0.3 * rng.normal(size=n)[coords[:, k]] for k, n in enumerate(SHAPE))
    f = f + 0.5 * np.prod([rng.normal(size=n)[coords[:, k]] for k, n in enumerate(SHAPE)], axis=0)
    mu = mean * np.exp(f) / np.exp(f).mean()
    rate = mu if r is None else mu * rng.gamma(r, size=len(mu)) / r
    return coords, rng.poisson(rate).astype(float)


def fit(method="vmp", data=None, **params):
    coords, y = counts() if data is None else data
    params = {"rank": 2, "interactions": "main+cp", "likelihood": "negbinomial", "random_state": 0, **params}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short runs do not converge
        return tc.CPCountRegressor(method=method, **params).fit(coords[:N], y[:N])


ENGINES = {
    "cep": (tc.CEP(n_starts=1, n_ensemble=1), 0.1),
    "averaged cep": (tc.CEP(messages="averaged", n_starts=1, n_ensemble=1), 0.1),
    "second order": (tc.CEP(order=2, n_starts=1, n_ensemble=1), 0.15),
    "laplace": (tc.Laplace(n_starts=1), 0.15),
    "vmp": (tc.VMP(n_starts=1), 0.1),
    "pg-vb": (tc.PGVB(n_starts=1), 0.15),
    "gibbs": (tc.Gibbs(n_chains=1), 0.15),
    "pg-gibbs": (tc.PGGibbs(n_chains=1), 0.15),
    "wopt": ("wopt", 0.2),
}


SLOW = ("averaged cep", "second order")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in ENGINES]
)
def test_planted_dispersion_is_found_by_every_method(name):
    method, bound = ENGINES[name]
    model = fit(method, max_iter=150 if name.endswith("gibbs") else 60)
    assert abs(model.dispersion_ / R - 1.0) < bound
    if name == "wopt":  # a point has no law
        assert model.dispersion_std_ is None
    else:
        assert 0.005 < model.dispersion_std_ / R < 0.2


@cache
def at_dispersion_one(r, mean):
    """A fit that does not learn the dispersion."""
    coords, y = counts(r, mean)
    how = {"method": "vmp", "interactions": "main+cp", "likelihood": "negbinomial", "dispersion": 1.0}
    return tc.CPCountRegressor(1, random_state=0, **how).fit(coords[:N], y[:N])


LAWS = [(R, 5.0), (None, 5.0), (R, 300.0)]


@pytest.mark.parametrize(
    ("method", "r", "mean"),
    [*(("vmp", *law) for law in LAWS), *(pytest.param("auto", *law, marks=pytest.mark.slow) for law in LAWS)],
)
def test_intervals_of_new_counts_hold_what_they_say(method, r, mean):
    coords, y = counts(r, mean)
    model = fit(data=(coords, y), likelihood="auto", method=method)
    assert model.method_ == ("gibbs" if method == "auto" else "vmp")
    low, high = model.predict_interval(coords[N:], 0.9).T
    within = (y[N:] >= low) & (y[N:] <= high)
    assert 0.87 < within.mean() < 0.96  # counts are discrete
    scores = [found.log_score(coords[N:], y[N:]).mean() for found in (at_dispersion_one(r, mean), model)]
    assert scores[1] > scores[0]


@each("method", ["vmp", "cep", "wopt"])
def test_a_given_dispersion_is_kept(method):
    model = fit(method, dispersion=5.0, max_iter=5)
    assert model.dispersion_ == 5.0
    assert model.dispersion_std_ is None


@each("params", [{}, {"dispersion": 5.0}, {"likelihood": "poisson"}, {"method": "wopt"}])
def test_files_hold_the_dispersion_and_parameters_set_later_change_no_prediction(tmp_path, params):
    coords, y = counts()
    model = fit(**{"max_iter": 5, **params})
    before, dispersion = model.log_score(coords[N:], y[N:]), model.dispersion_
    model.save(tmp_path / "model.npz")
    loaded = tc.load(tmp_path / "model.npz")
    for other in (loaded, model):
        other.set_params(likelihood="auto", dispersion=77.0)
        np.testing.assert_array_equal(other.log_score(coords[N:], y[N:]), before)
        assert other.dispersion_ == dispersion
        assert other.likelihood_ == params.get("likelihood", "negbinomial")


@each("method", ["vmp", "pg-vb"])
def test_drawn_counts_have_the_predicted_spread_where_the_dispersion_is_hardly_known(method):
    """400 counts that are nearly Poisson tell r to a third; draws of r apart from f had a variance a quarter larger."""
    coords, y = counts(10.0, 3.0)
    model = fit(method, (coords[:400], y[:400]), rank=1)
    mean, sd = model.predict(coords[:200], return_std=True)
    drawn = model.sample_y(coords[:200], 3000, random_state=0)
    assert abs(np.median(drawn.var(axis=0) / sd**2) - 1.0) < 0.04  # sums go by the few whose f is no Gaussian
    np.testing.assert_allclose(drawn.mean(), mean.mean(), rtol=0.02)


@pytest.mark.parametrize("method", ["cep", pytest.param("vmp", marks=pytest.mark.slow)])
def test_a_stream_carries_the_dispersion(tmp_path, method):
    coords, y = counts()
    model = tc.CPCountRegressor(1, method=method, interactions="main+cp", random_state=0)
    for part in np.array_split(np.arange(N), 4):
        model.partial_fit(coords[part], y[part])
    assert model.likelihood_ == "negbinomial"
    assert abs(model.dispersion_ / R - 1.0) < 0.4  # the rows of a stream are known less well: they leave more
    width = model.dispersion_std_ / model.dispersion_
    model.save(tmp_path / "model.npz")
    loaded = tc.load(tmp_path / "model.npz")
    for other in (model, loaded):
        other.partial_fit(coords[N:], y[N:])
    assert loaded.dispersion_ == model.dispersion_
    assert model.dispersion_std_ / model.dispersion_ < width


def test_auto_is_poisson_only_where_counts_vary_no_more():
    coords, _ = counts()
    rng = np.random.default_rng(1)
    flat = np.exp(0.3 * rng.normal(size=20))[coords[:, 0]] * 4.0
    assert not overdispersion_of(coords, rng.poisson(flat).astype(float)).clear
    found = overdispersion_of(coords, nbinom(R, R / (R + flat)).rvs(random_state=2).astype(float))
    assert found.clear
    assert abs(found.r / R - 1.0) < 0.15
    assert fit("vmp", (coords, rng.poisson(flat).astype(float)), likelihood="auto", max_iter=3).likelihood_ == "poisson"
    assert fit("pg-vb", (coords, rng.poisson(flat).astype(float)), likelihood="auto", max_iter=3).likelihood_ == (
        "negbinomial"
    )


@pytest.mark.parametrize("n", [1000, pytest.param(2000, marks=pytest.mark.slow)])
def test_a_count_far_above_all_others_is_no_poisson_one_though_its_rows_could_explain_it(n):
    rng = np.random.default_rng(0)
    coords = np.stack([rng.integers(0, m, 2 * n) for m in (150, 100, 50)], axis=1)
    y = rng.poisson(0.03, 2 * n).astype(float)
    assert not overdispersion_of(coords[:n], y[:n]).possible
    y[[5, n + 5]] = 60.0, 150.0
    found = overdispersion_of(coords[:n], y[:n])
    assert not found.clear
    assert found.possible
    model = tc.CPCountRegressor(random_state=0).fit(coords[:n], y[:n])
    assert model.likelihood_ == "negbinomial"
    assert model.log_score(coords[n:], y[n:])[5] > -150.0  # a Poisson count of the mean: -1100


EVEN_COUNTS = {
    "CPRegressor learns": lambda rng, mu: np.round(mu + 0.5 * rng.normal(size=len(mu)) * np.sqrt(mu)).clip(0.0),
    "CPClassifier": lambda rng, mu: 1.0 * (rng.random(len(mu)) < np.minimum(mu / 6.0, 0.95)),
    "if cells that are not given hold zeros": lambda rng, mu: np.where(mu < 6.0, 1.0, 2.0),
}


@each("advice", EVEN_COUNTS)
def test_counts_that_vary_less_than_poisson_ones_are_told_of(advice):
    coords, _ = counts()
    rng = np.random.default_rng(3)
    mu = 5.0 * np.exp(sum(0.3 * rng.normal(size=n)[coords[:, k]] for k, n in enumerate(SHAPE)))
    y = EVEN_COUNTS[advice](rng, mu)
    model = tc.CPCountRegressor(1, interactions="main+cp", method="vmp", random_state=0)
    with pytest.warns(UserWarning, match=rf"the counts vary less than Poisson ones.* too wide; .*{advice}"):
        model.fit(coords[:N], y[:N])
    low, high = model.predict_interval(coords[N:], 0.9).T
    assert np.mean((low <= y[N:]) & (y[N:] <= high)) > 0.97


@each("mean", [0.05, 1.0, 300.0])
@each("n", [40, 400, N])
def test_poisson_counts_are_not_said_to_vary_less(mean, n):
    for seed in range(20):
        coords, y = counts(None, mean, seed)
        assert overdispersion_of(coords[:n], y[:n]).spread == 1.0


def test_a_wild_count_is_told_of_and_spoils_no_other():
    coords, _ = counts()
    y = np.ones(N)
    y[7] = 1e15
    with pytest.warns(UserWarning, match=r"one count, 1e\+15, is more than 100 times the 3999 others together"):
        model = tc.CPCountRegressor(2, random_state=0).fit(coords[:N], y)
    others = np.delete(model.predict(coords[:N]), 7)
    assert np.median(others) == pytest.approx(1.0, abs=0.1)
    assert np.quantile(others, 0.99) < 2.0


def test_law_of_dispersion_is_that_of_the_expected_likelihood_with_its_level_free(rng):
    y, m, v = nbinom(R, 0.3).rvs(400, random_state=3).astype(float), rng.normal(0.9, 0.3, 400), rng.uniform(0, 0.4, 400)
    loglik, prior, share = get_likelihood("negbinomial").loglik, (1.5, 0.2), 0.5

    def loss(at):
        total, (log_r, shift) = 0.0, at
        for node, weight in zip(NODES, WEIGHTS, strict=True):
            out = [np.empty(400) for _ in range(3)]
            loglik(y, m + np.sqrt(v) * node + shift, np.full(400, np.exp(log_r)), *out)
            total += weight * out[0].sum()
        return -(total / share + prior[0] * log_r - prior[1] * np.exp(log_r))

    best = minimize(loss, [np.log(R), 0.0], method="BFGS", options={"gtol": 1e-6})
    law = law_of_dispersion(y, m, v, share, prior, float(np.exp(best.x[0] + 0.3)))
    assert law.mean[0] == pytest.approx(np.exp(best.x[0]), rel=1e-4)
    step = 1e-3 * np.eye(2)
    curvature = [
        [
            (loss(best.x + a + b) - loss(best.x + a - b) - loss(best.x - a + b) + loss(best.x - a - b)) / 4e-6
            for b in step
        ]
        for a in step
    ]
    assert law.a[0] == pytest.approx(1.0 / np.linalg.inv(curvature)[0, 0], rel=0.05)
    far = law_of_dispersion(y, m, v, share, prior, 100.0)
    assert far.mean[0] == pytest.approx(100.0 * np.exp(-MOST_STEP))


def test_what_earlier_entries_said_of_the_dispersion_holds_the_level_too(rng):
    """One huge count of rows that are not known raised the level of all counts of its batch: r fell to a third."""
    m, v = rng.normal(0.1, 0.3, 500), np.full(500, 0.3)
    y = rng.poisson(rng.gamma(1.1, 1.0, 500) * np.exp(m + 0.4)).astype(float)
    y[0], m[0], v[0] = 1258.0, 5.8, 122.0
    found = {}
    for earlier in (0.0, 720.0):
        r = 800.0 / 720.0
        for _ in range(6):
            r = law_of_dispersion(y, m, v, 1.0, (800.0, 720.0), r, earlier=earlier).mean
        found[earlier] = float(r[0])
    assert found[0.0] < 0.5
    assert found[720.0] == pytest.approx(800.0 / 720.0, rel=0.15)


def test_the_shell_learns_the_dispersion(tmp_path, capsys):
    coords, y = counts()
    data = tmp_path / "data.csv"
    text = io.StringIO()
    _, first = np.unique(coords, axis=0, return_index=True)
    np.savetxt(text, np.column_stack([coords[first], y[first]]), fmt="%d", delimiter=",", header="a,b,c,y", comments="")
    data.write_text(text.getvalue())
    for likelihood in ("negbinomial", "counts"):
        model = tmp_path / f"{likelihood}.npz"
        code = main(["fit", str(data), "-o", str(model), "--likelihood", likelihood, "--rank", "2", "--method", "vmp"])
        assert code == 0
        assert "dispersion  r = " in capsys.readouterr().out
        assert abs(tc.load(model).dispersion_ / R - 1.0) < 0.15


def small_counts(seed, mean=0.5, shape=(300, 150), n=8000):
    """Cells, and Poisson counts of main effects and three components."""
    rng = np.random.default_rng(seed)
    X = np.stack(np.unravel_index(rng.choice(shape[0] * shape[1], n, replace=False), shape), axis=1)
    first, second = (rng.standard_normal((size, 3))[X[:, k]] for k, size in enumerate(shape))
    main = sum(rng.standard_normal(size)[X[:, k]] for k, size in enumerate(shape))
    rate = np.exp(0.5 * main + 0.5 * (first * second).sum(axis=1) / np.sqrt(3.0))
    return X, rng.poisson(mean * rate / rate.mean()), shape


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 3))])
def test_the_level_follows_the_dispersion_so_that_neither_swings(seed):
    X, y, shape = small_counts(seed)
    model = tc.CPCountRegressor(4, method="vmp", likelihood="negbinomial", max_iter=100, random_state=0)
    model.fit(tc.SparseTensor(X, y, shape))
    bound = model.trace_["lower_bound"]
    assert model.dispersion_ > 3.0  # far from where it started
    assert np.diff(bound[np.isfinite(bound)]).min() > -0.1


def test_what_a_fit_of_counts_leaves_over_is_seen_at_its_own_dispersion(monkeypatch):
    X, y, shape = small_counts(0, mean=4.0)
    sizes, search = [], residual.spectral_start

    def watched(coords, rest, *given, **how):
        sizes.append(float(np.std(rest)))
        return search(coords, rest, *given, **how)

    monkeypatch.setattr(residual, "spectral_start", watched)
    model = tc.CPCountRegressor(4, method="vmp", likelihood="negbinomial", random_state=0)
    model.fit(tc.SparseTensor(X, y, shape))
    assert model.dispersion_ > 10.0
    assert len(sizes) > 1
    assert max(sizes[1:]) < sizes[0]  # at dispersion 1, where the fit began, they are ten times as large


def test_results_keep_the_gamma_law_of_any_theta_that_is_learned():
    """A likelihood with a parameter of its own needs no line in the engines."""

    class Own(Parameter[Gamma]):
        is_theta = True

    law = Gamma(np.array([3.0]), np.array([2.0]))
    found = results([Own()], [law])["dispersion"]
    assert (found.mode, found.theta(0).values.tolist()) == (None, [[1.5]])
    record = replace(get_likelihood("poisson"), parameters=(Own(),))
    assert record.parameter is record.parameters[0]
