"""How a stream begins where its prior is left to it: joint fits, the choice of a prior, and what it says of itself."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pytest
from helpers.models import paper
from scipy.optimize import minimize_scalar
from scipy.stats import bernoulli, nbinom, poisson
from sklearn.exceptions import ConvergenceWarning

import tensorcep as tc
from tensorcep.cp.calibration.prequential import Predicted, Standing
from tensorcep.cp.stream import cold_start
from tensorcep.likelihoods import get_likelihood

quiet = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@cache
def signed():
    """Entries of a zero-mean CP: 3000 to learn, 400 to predict."""
    s = tc.simulate_cp((20, 15, 12), 2, 3400, noise_precision=10.0, latent_sd=1.0, random_state=0)
    X, y = s.tensor.coords, s.tensor.values
    order = np.random.default_rng(0).permutation(len(y))
    return (X[order[:3000]], y[order[:3000]]), (X[order[3000:]], y[order[3000:]])


def streamed(X, y, size=300, **params):
    model = tc.CPRegressor(random_state=0, **{"rank": 2, **params})
    return model.stream((X[a : a + size], y[a : a + size]) for a in range(0, len(y), size))


def rmse(model, X, y):
    return np.sqrt(np.mean((model.predict(X) - y) ** 2))


@quiet
def test_stream_learns_values_of_either_sign():
    """The paper's prior, which a stream had before, stays at its mean: RMSE 1 where the noise is 0.32."""
    train, test = signed()
    model = streamed(*train)
    assert rmse(model, *test) < 0.36
    assert model.converged_
    assert 7.0 < model.noise_precision_ < 13.0


@quiet
@pytest.mark.parametrize(
    ("factor", "shift"),
    [(1e-3, 5.0), *(pytest.param(*given, marks=pytest.mark.slow) for given in ((1.0, 100.0), (1e3, 0.0)))],
)
def test_stream_does_not_depend_on_the_scale_of_values_or_where_it_begins(factor, shift):
    (X, y), (Z, _) = signed()
    plain, moved = streamed(X[:900], y[:900]), streamed(X[:900], factor * y[:900] + shift)
    assert moved.prior_ == plain.prior_
    np.testing.assert_allclose(moved.predict(Z), factor * plain.predict(Z) + shift, atol=1e-5 * factor)


@quiet
def test_positive_rows_stand_for_values_above_the_least():
    s = tc.simulate_cp((12, 10, 8), 2, 800, noise_precision=25.0, prior_mean=0.9, prior_sd=0.3, random_state=3)
    X, y = s.tensor.coords, s.tensor.values
    model = tc.CPRegressor(8, random_state=0)
    model.partial_fit(X[:19], y[:19])  # too few to compare priors
    assert (model.prior_, model.level_) == ("fixed", y[:19].min())
    named = tc.CPRegressor(8, prior="fixed", lower_limit=None, random_state=0).partial_fit(X[:19], y[:19])
    assert named.level_ == 0.0


@quiet
def test_few_entries_of_noise_are_mostly_not_taken_for_more():
    """The paper's prior, which so few had before, was a third worse than the mean."""
    lost = []
    for seed in range(2, 7):
        rng = np.random.default_rng(seed)
        X = rng.permutation(np.argwhere(np.ones((10, 8, 6))))
        y = 3.0 + rng.standard_normal(len(X))
        model = tc.CPRegressor(random_state=0)
        for part in np.array_split(np.arange(40), 4):
            model.partial_fit(X[part], y[part])
        lost.append(rmse(model, X[40:], y[40:]) / y[40:].std())
    assert np.mean(lost) < 1.1


@pytest.mark.slow
@quiet
def test_products_of_five_modes_are_found():
    """From one start CEP ends at the mean."""
    shape = (12, 10, 8, 7, 6)
    s = tc.simulate_cp(shape, 3, 2800, noise_precision=4.0, prior_mean=0.0, prior_sd=1.0, random_state=3)
    X, y = s.tensor.coords, s.tensor.values
    new = np.random.default_rng(0).random(len(y)) < 0.2
    model = tc.CPRegressor(random_state=0).partial_fit(X[~new], y[~new])
    assert rmse(model, X[new], y[new]) < 0.65


@quiet
def test_a_fit_that_goes_astray_after_its_trial_gives_way_to_the_other(monkeypatch):
    (X, y), _ = signed()
    plain = tc.CPRegressor(2, random_state=0).partial_fit(X[:900], y[:900])
    assert plain.prior_ == "learned"
    run = cold_start._run

    def astray(model, work, way):
        found = run(model, work, way)
        whole = len(work.problem.entries.permutation) == 900
        if way.prior == "fixed" or not whole:
            return found
        return found._replace(posterior=found.posterior._replace(eta=-found.posterior.eta))  # three modes: -f

    monkeypatch.setattr(cold_start, "_run", astray)
    model = tc.CPRegressor(2, random_state=0).partial_fit(X[:900], y[:900])
    assert model.prior_ == "fixed"
    assert rmse(model, X[:900], y[:900]) < 1.05 * y[:900].std()


@quiet
@pytest.mark.parametrize(("main", "found"), [(True, 1), (False, 0)])
def test_columns_that_are_left_open_are_those_that_predict_entries_left_out(main, found):
    """Main effects and pairs of modes are what `fit` would take, and components alone do not find them."""
    (X, y), (Z, z) = signed()
    rng = np.random.default_rng(1)
    tables = [np.outer(rng.standard_normal(n), rng.standard_normal(m)) for n, m in ((20, 15), (15, 12), (20, 12))]

    def of(cells):
        a, b, c = cells.T
        return tables[0][a, b] + tables[1][b, c] + tables[2][a, c] if main else 0.0

    y, z = 0.3 * y + of(X) if main else y, 0.3 * z + of(Z) if main else z
    model, alone = (streamed(X, y, 1500, interactions=word) for word in ("auto", "cp"))
    assert model.interactions_["main"] == found
    assert rmse(model, Z, z) < (0.8 * rmse(alone, Z, z) if main else 0.36)
    named = streamed(X[:300], y[:300], interactions="main+cp")
    assert named.interactions_ == {"main": 1, "pair": 0, "cp": 2}


@quiet
def test_joint_fits_of_a_beginning_stream_are_few_and_end():
    X, y = signed()[0]
    model, fitted = tc.CPRegressor(2, random_state=0), []
    for a in range(0, 2400, 200):
        model.partial_fit(X[a : a + 200], y[a : a + 200])
        kept = model._result.stream.kept
        assert kept is None or len(kept.values) == a + 200
        fitted.append(None if kept is None else kept.fitted)
        assert (model.n_samples_seen_, model.n_batches_) == (a + 200, a // 200 + 1)
    # 20 for each of 94 elements are enough
    assert fitted == [200, 400, 400, 800, 800, 800, 800, 800, 800, None, None, None]
    whole = tc.CPRegressor(2, random_state=0).partial_fit(X[:2000], y[:2000])
    model = streamed(X[:2000], y[:2000], 200)
    np.testing.assert_array_equal(model.predict(X), whole.predict(X))
    assert model._result.stream.kept is None


@quiet
@pytest.mark.parametrize("params", [{}, pytest.param({"revisit": 40}, marks=pytest.mark.slow), {"method": "vmp"}])
def test_beginning_stream_goes_on_after_save_and_load_with_the_same_bits(params, tmp_path):
    X, y = signed()[0]
    model = streamed(X[:300], y[:300], 150, **params)
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    for a in (300, 450, 600):
        for one in (model, again):
            one.partial_fit(X[a : a + 150] + np.array([a, 0, 0]), y[a : a + 150])  # new rows too
    np.testing.assert_array_equal(again.posterior_.eta, model.posterior_.eta)
    assert again._result.stream.standing == model._result.stream.standing
    assert again.n_revisited_ == model.n_revisited_


@quiet
def test_stream_that_forgets_or_has_a_named_prior_keeps_no_entries():
    X, y = signed()[0]
    assert streamed(X[:200], y[:200], 100, forget=0.1)._result.stream.kept is None
    assert paper(tc.CPRegressor, 2, random_state=0).partial_fit(X[:100], y[:100])._result.stream.kept is None
    model = paper(tc.CPRegressor, 2, random_state=0).partial_fit(X[:100], y[:100])
    assert len(model._result.stream.watched.values) == 100  # which it compares, but does not learn again
    assert model.set_params(forget=0.1).partial_fit(X[100:200], y[100:200])._result.stream.watched is None
    model = streamed(X[:200], y[:200], 100)
    assert model._result.stream.kept is not None
    model.set_params(forget=0.1).partial_fit(X[200:300], y[200:300])
    assert model._result.stream.kept is None


@quiet
def test_refused_or_interrupted_joint_fit_leaves_the_stream_as_it_was():
    X, y = signed()[0]
    model = streamed(X[:60], y[:60], 60)
    before = dict(vars(model))

    def stop(*_):
        raise KeyboardInterrupt

    model.callbacks = stop
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(X[60:300] + np.array([30, 0, 0]), y[60:300])
    model.callbacks = None
    assert {name: value for name, value in vars(model).items() if before[name] is not value} == {}
    assert len(model._result.stream.kept.values) == 60


@quiet
def test_labels_of_a_new_batch_are_known_after_a_joint_fit():
    import pandas as pd

    X, y = signed()[0]
    frame = pd.DataFrame({name: [f"{name}{i}" for i in X[:300, k]] for k, name in enumerate("abc")})
    model = tc.CPRegressor(2, random_state=0)
    for part in (slice(0, 60), slice(60, 300)):
        model.partial_fit(frame[part], y[part])
    assert model._result.stream.kept.fitted == 300
    plain = np.stack([model.labels_[k].rows(frame[name]) for k, name in enumerate("abc")], axis=1)
    assert plain.min() == 0
    assert [len(labels) for labels in model.labels_] == list(model.shape_)
    assert np.isfinite(model.predict(frame)).all()


def test_stream_of_noise_is_never_converged_and_says_so_once():
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, (20, 15, 12), (3000, 3)), rng.standard_normal(3000)
    model, told = tc.CPRegressor(2, random_state=0), []
    for a in range(0, 3000, 300):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.partial_fit(X[a : a + 300], y[a : a + 300])
        told += [item for item in caught if "no better than a constant" in str(item.message)]
        assert not model.converged_
        assert (model.diagnostics_ is not None) == bool(told)
    assert len(told) == 1
    assert told[0].category is ConvergenceWarning
    found = model.diagnostics_
    assert (found.converged, found.n_held_out > 1000, found.explained < 0.05) == (False, True, True)
    assert "a constant" in str(found)


def told_of(model, X, y, size):
    """Learn batches, and give the entries seen at each warning of a fit that gains far more."""
    told = []
    for a in range(0, len(y), size):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.partial_fit(X[a : a + size], y[a : a + size])
        told += [a + size for item in caught if "less than half of what a fit" in str(item.message)]
    return told


def test_stream_whose_named_prior_finds_far_less_than_a_fit_says_so_once_and_one_that_keeps_entries_finds_it(tmp_path):
    """A first batch of 200 leaves the named prior at the mean, and those after it do not mend that."""
    (X, y), test = signed()
    X, y = X[:2000], y[:2000]
    named, left_open = (tc.CPRegressor(2, prior=prior, random_state=0) for prior in ("learned", "auto"))
    assert told_of(named, X, y, 200) == [1000]
    assert told_of(left_open, X, y, 200) == []
    assert rmse(left_open, *test) < 0.36
    assert rmse(named, *test) > 0.8
    assert (named.converged_, named.diagnostics_.converged) == (False, False)
    assert (left_open.converged_, left_open.diagnostics_) == (True, None)
    assert named._result.stream.standing.lag > 0.3
    assert named._result.stream.watched is None  # 20 for each of 94 elements, and no more
    begun = tc.CPRegressor(2, prior="learned", random_state=0)
    assert told_of(begun, X[:800], y[:800], 200) == []
    begun.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    assert told_of(again, X[800:], y[800:], 200) == [200]
    assert again._result.stream.standing == named._result.stream.standing


@quiet
def test_stream_with_weights_and_exposures_is_compared_with_a_fit_that_has_them():
    rng = np.random.default_rng(0)
    X, row, exposure = rng.integers(0, (6, 5, 4), (400, 3)), np.exp(rng.standard_normal(6)), rng.choice([1.0, 9.0], 400)
    y, weight = rng.poisson(3.0 * row[X[:, 0]] * exposure).astype(float), rng.choice([0.5, 1.0], 400)
    model, found = tc.CPCountRegressor(1, prior="fixed", likelihood="poisson", random_state=0), []
    for part in np.split(np.arange(400), 4):
        model.partial_fit(X[part], y[part], exposure=exposure[part], sample_weight=weight[part])
        found.append((model._result.stream.standing.lag, model._result.stream.watched is None))
    assert found == [(0.0, False)] * 2 + [(0.0, True)] * 2  # 20 for each of 15 elements


@pytest.mark.parametrize("seed", range(3))
def test_stream_of_noise_is_not_far_worse_than_a_fit(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.integers(0, (20, 15, 12), (2000, 3)), rng.standard_normal(2000)
    model = tc.CPRegressor(2, prior="fixed", random_state=0)
    assert told_of(model, X, y, 100) == []
    assert (model._result.stream.standing.lag, model._result.stream.watched) == (0.0, None)


REAL, COUNTS, NB, LABELS = (get_likelihood(name) for name in ("gaussian", "poisson", "negbinomial", "logit"))


def of(mean, score=None):
    return Predicted(mean, np.zeros(len(mean)) if score is None else score)


def test_standing_knows_a_gain_from_none_and_forgets():
    rng = np.random.default_rng(1)
    values = rng.standard_normal(400) + 7.0
    start = Standing().after(REAL, values)
    assert start.mean == pytest.approx(values.mean())
    assert (start.n, start.is_doubtful) == (0, False)
    assert not start.after(REAL, values, of(values + 0.5 * rng.standard_normal(400))).is_doubtful
    assert start.after(REAL, values, of(np.full(400, values.mean()))).is_doubtful
    assert start.after(REAL, values, of(values + 1.1 * rng.standard_normal(400))).is_doubtful
    assert not start.after(REAL, np.full(400, start.mean), of(np.full(400, 3.0))).is_doubtful  # no gain of a constant
    bad = start
    for _ in range(100):
        bad = bad.after(REAL, values, of(-values))
    for _ in range(200):
        bad = bad.after(REAL, values, of(values))
    assert bad.n <= 10_000
    assert not bad.is_doubtful
    assert bad.mean == pytest.approx(values.mean())


def test_standing_of_single_entries_is_that_of_all_of_them():
    """Of an entry near the mean of those before it the constant has no error to count by."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal(400)
    good = bad = Standing().after(REAL, values[:100])
    for value in values[100:, None]:
        good = good.after(REAL, value, of(value + 0.5 * rng.standard_normal(1)))
        bad = bad.after(REAL, value, of(np.full(1, bad.mean)))
    assert not good.is_doubtful
    assert bad.is_doubtful
    assert good.gain / good.n == pytest.approx(0.75, abs=0.1)


def test_standing_of_counts_that_vary_much_goes_by_log_scores():
    """By squared errors, of which a few counts decide, the true law of these counts is no better than a constant."""
    rng = np.random.default_rng(0)
    mean, r = np.exp(1.5 * rng.standard_normal(3000)), 0.3
    y = rng.poisson(rng.gamma(r, size=3000) / r * mean).astype(float)
    true, constant = nbinom(r, r / (r + mean)), nbinom(0.2, 0.2 / (0.2 + y.mean()))
    good = start = Standing()
    for part in np.array_split(np.arange(3000), 6):
        good = good.after(NB, y[part], of(mean[part], true.logpmf(y)[part]))
        start = start.after(NB, y[part], of(np.full(len(part), y.mean()), constant.logpmf(y)[part]))
    assert not good.is_doubtful
    assert start.is_doubtful
    # the constant is the best one: that of a fit to all counts
    best = minimize_scalar(lambda t: -nbinom(np.exp(t), 1 / (1 + y.mean() * np.exp(-t))).logpmf(y).sum())
    assert start.dispersion.mean == pytest.approx(best.x, abs=0.1)


@pytest.mark.parametrize("record", [COUNTS, LABELS], ids=["poisson", "logit"])
def test_standing_of_labels_and_poisson_counts_goes_by_log_scores(record):
    rng = np.random.default_rng(0)
    p = rng.choice([0.01, 0.2], 4000)
    y = (rng.random(4000) < p).astype(float) if record is LABELS else rng.poisson(10 * p).astype(float)
    score = bernoulli(p).logpmf(y) if record is LABELS else poisson(10 * p).logpmf(y)
    mean = y[:1000].mean()  # of what was seen before
    flat = bernoulli(mean).logpmf(y) if record is LABELS else poisson(mean).logpmf(y)
    start = Standing().after(record, y[:1000])
    assert not start.after(record, y[1000:], of(p[1000:], score[1000:])).is_doubtful
    assert start.after(record, y[1000:], of(p[1000:], flat[1000:])).is_doubtful
    assert start.after(record, y[1000:], of(p[1000:], flat[1000:] - rng.exponential(1.0, 3000))).is_doubtful


def labelled(seed, scale):
    """Labels of a zero-mean CP, logistic in `scale` times it: 1200 to learn, 500 to predict."""
    s = tc.simulate_cp((15, 12, 10), 1, 1700, noise_precision=1e6, latent_sd=1.0, random_state=seed)
    X, f = s.tensor.coords, s.tensor.values
    order = np.random.default_rng(seed).permutation(len(f))
    y = (np.random.default_rng(seed + 1).random(len(f)) < 1.0 / (1.0 + np.exp(-scale * f)))[order].astype(float)
    return X[order[:1200]], y[:1200], X[order[1200:]], y[1200:]


@quiet
@pytest.mark.parametrize(("scale", "low", "high"), [(0.0, 0.0, 0.2), (5.0, 0.8, 1.0)])
def test_stream_of_labels_is_mixed_with_the_share_of_ones_as_its_scores_say(scale, low, high, tmp_path):
    X, y, Z, z = labelled(3, scale)
    model = tc.CPClassifier(2, random_state=0).stream((X[a : a + 200], y[a : a + 200]) for a in range(0, 1200, 200))
    standing = model._result.stream.standing
    assert low <= standing.share <= high
    p = model.predict_proba(Z)[:, 1]
    constant = -bernoulli(standing.share_of_ones).logpmf(z).mean()
    assert -bernoulli(p).logpmf(z).mean() < 1.01 * constant
    np.testing.assert_allclose(model.log_score(Z, z), bernoulli(p).logpmf(z), rtol=1e-6)
    model.save(tmp_path / "stream.npz")
    again = tc.load(tmp_path / "stream.npz")
    np.testing.assert_array_equal(again.predict_proba(Z)[:, 1], p)
    alone = again.set_params(prior="learned").predict_proba(Z)[:, 1]  # the prior that was asked for is believed
    np.testing.assert_allclose(p, standing.share * alone + (1.0 - standing.share) * standing.share_of_ones, rtol=1e-9)
