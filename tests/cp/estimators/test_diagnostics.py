"""What `diagnostics_` says of a fit, and what `fit` warns of: healthy fits are silent, the others get one sentence."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from helpers.cases import each
from helpers.data import SHAPE, entries, fitted
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import tensorcep as tc
from tensorcep.cp.fitted.diagnostics import Diagnostics
from tensorcep.likelihoods import get_likelihood
from tensorcep.methods import CEP, VMP, Gibbs, PGGibbs

X, Y = entries("regressor")
RNG = np.random.default_rng(5)
NOISE = np.random.default_rng(0).standard_normal(len(Y))
HEALTHY = Diagnostics("gibbs", 200, False, {"chain 0": 1.0}, n_chains=4, r_hat=1.02, above_1_01=0.1, above_1_1=0.0)
HEALTHY = HEALTHY._replace(effective_size=300.0, least_effective_size=100.0, disagreement=0.01)


def sampler(**given):
    return tc.CPRegressor(3, method=Gibbs(n_chains=2, **given), interactions="cp", max_iter=200, random_state=0)


@pytest.fixture(scope="module")
def sampled():
    return sampler().fit(X, Y)  # warnings are errors: a healthy fit is silent


def test_healthy_fit_has_a_table(sampled):
    found = sampled.diagnostics_
    assert found.r_hat < 1.1
    assert found.effective_size > 50.0
    assert found.disagreement < 0.05
    assert found.score > found.constant_score + 3.0 * found.gain_error
    assert found.n_held_out == 60
    assert sum(found.weights.values()) == pytest.approx(1.0)
    assert set(found.weights) == {"pilot: all columns", "chain 0", "chain 1"}
    names = [line.split()[0] for line in str(found).splitlines()]
    assert names == ["sweeps", "chains", "weights", "score", "noise"]
    assert max(map(len, str(found).splitlines())) <= 120


def test_numbers_of_chains_are_those_of_chain_diagnostics():
    model = sampler(weights="equal", noise="sampled").fit(X, Y)
    r_hat, size = model.chain_diagnostics(X)  # all of the 600 training cells
    found = model.diagnostics_
    assert (found.n_chains, found.n_held_out, found.weights) == (2, 0, {})
    np.testing.assert_allclose(found.r_hat, r_hat.max(), rtol=1e-12)
    np.testing.assert_allclose(found.above_1_01, np.mean(r_hat > 1.01), atol=1.5 / 600)  # a cell may lie at the bound
    np.testing.assert_allclose(found.effective_size, np.median(size), rtol=1e-12)
    np.testing.assert_allclose(found.score, model.log_score(X, Y).mean(), rtol=1e-12)


def test_chains_that_are_stuck_are_told():
    def turned(sweep, info, state):
        """Every draw that is kept of the second chain has the latent values of the other sign."""
        for factors in state.own.kept.rows[-1:] if sweep > 50 else ():
            factors[1, : SHAPE[0]] *= -1.0

    model = sampler(weights="equal", burn_in=50).set_params(max_iter=100, callbacks=turned)
    with pytest.warns(
        ConvergenceWarning, match=r"chains of gibbs disagree: R-hat is above 1.1 at .* increase max_iter"
    ):
        model.fit(X, Y)
    assert model.diagnostics_.r_hat > 1.5  # of two chains it hardly exceeds 1.9, however far they are apart
    assert model.diagnostics_.disagreement > 0.3


@pytest.mark.parametrize("method", [Gibbs(n_chains=2), CEP(n_ensemble=1), VMP()], ids=lambda method: method.name)
def test_values_without_structure_are_told(method):
    model = tc.CPRegressor(3, method=method, interactions="cp", max_iter=200, random_state=0)
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(X, 5.0 + NOISE)
    sentences = [str(item.message) for item in caught if "stopped after" not in str(item.message)]
    assert len(sentences) == 1
    assert sentences[0].startswith(f"nothing but the mean was found: {method.name} predicts ")


@pytest.mark.parametrize("tails", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_constant_of_values_with_long_tails_has_them_too(tails):
    """Where tails alone made the scores of a fit better than a normal constant's, nothing was said of it."""
    rng = np.random.default_rng(3)
    coords = np.unique(rng.integers(0, [60, 40, 20], (2000, 3)), axis=0)
    y = rng.standard_normal((3, len(coords))).prod(axis=0) if tails else rng.standard_normal(len(coords))
    with pytest.warns(ConvergenceWarning, match="nothing but the mean was found: gibbs"):
        model = tc.CPRegressor(random_state=0).fit(coords, y)
    found = model.diagnostics_
    normal = stats.norm(0.0, y.std()).logpdf(y).mean()
    assert (found.constant_score - normal > 0.2) == tails
    assert (found.score - normal > 0.2) == tails
    assert abs(found.explained) < 0.05


def test_share_of_variance_explained_is_that_of_entries_left_out(sampled):
    found = sampled.diagnostics_
    assert found.explained == pytest.approx(1.0 - (found.noise_sd / Y.std()) ** 2, abs=0.1)
    assert 0.0 < found.explained_error < 0.1
    assert f"{found.explained:.0%} of their variance explained" in str(found)
    vmp = tc.CPRegressor(3, method="vmp", interactions="cp", random_state=0).fit(X, Y)
    assert vmp.diagnostics_.explained in (None, pytest.approx(found.explained, abs=0.1))


def test_values_that_are_all_equal_have_no_score_of_a_constant():
    model = tc.CPRegressor(2, method="vmp", random_state=0).fit(X, np.full(len(X), 3.0))
    assert model.diagnostics_.constant_score is None
    np.testing.assert_allclose(model.predict(X), 3.0, rtol=1e-3)


def test_sampler_that_was_cut_short_is_told():
    with pytest.warns(
        ConvergenceWarning, match="gibbs was cut short: its draws are too few to judge; increase max_iter=6"
    ):
        sampler(weights="equal").set_params(max_iter=6).fit(X, Y)


def test_fit_that_a_callback_stops_is_not_blamed():
    model = sampler().set_params(callbacks=lambda sweep, *_: sweep == 3).fit(X, Y)
    assert model.diagnostics_.n_chains in (0, 2)


@each(
    ("change", "sentence"),
    [
        ({}, ""),
        ({"r_hat": 3.0, "above_1_1": 0.9}, ""),  # they differ, in what hardly matters beside the noise
        ({"r_hat": 3.0, "above_1_1": 0.9, "disagreement": 0.4}, "the chains of gibbs disagree"),
        ({"effective_size": 5.0}, "gibbs was cut short: its draws are as good as 5.0 independent ones"),
        ({"score": -1.0, "constant_score": -1.02, "gain_error": 0.1}, "nothing but the mean"),
        ({"score": -1.0, "constant_score": -1.2, "gain_error": 0.1}, ""),
    ],
)
def test_complaints_begin_where_something_matters(change, sentence):
    found = HEALTHY._replace(**change).complaints(200)
    assert [text[: len(sentence)] for text in found] == ([sentence] if sentence else [])


def test_a_gain_of_less_than_a_nat_for_all_entries_left_out_is_none_however_sure():
    tried = Diagnostics("cep", 90, True, {}, score=-1.3, constant_score=-1.3005, gain_error=2e-4, n_held_out=300)
    (said,) = tried.complaints(200)
    assert said.startswith("nothing but the mean was found: cep")
    assert tried._replace(constant_score=-1.304).complaints(200) == []
    assert tried._replace(n_held_out=30_000).complaints(200) == []


def test_complaints_of_predictions_that_are_no_better_than_a_constant():
    found = HEALTHY._replace(score=-1.0, constant_score=-1.2, gain_error=0.05, n_held_out=200, explained=0.3)
    assert found.complaints(200) == []
    chosen = {"pilot: cp": 0.5, "chain 0": 0.3, "chain 1": 0.2}
    for bad, how in [
        (found._replace(explained=-0.1, explained_error=0.05), "-10% of their variance is explained"),
        (found._replace(weights={"chain 0": 0.01, "constant": 0.99}), "30% of their variance is explained"),
        (found._replace(constant_score=-1.02), "mean log score -1 against -1.02"),
        # two of three weights were chosen to predict these entries
        (found._replace(constant_score=-1.055, weights=chosen), "mean log score -1 against -1.055"),
    ]:
        (said,) = bad.complaints(200)
        assert said.startswith("nothing but the mean was found: gibbs predicts entries that were held out no better")
        assert f"({how})" in said
    equal = dict.fromkeys(chosen, 1.0 / 3.0)
    assert found._replace(explained=-0.01, explained_error=0.05).complaints(200) == []  # by chance
    assert found._replace(constant_score=-1.055, weights=equal).complaints(200) == []
    (said,) = found._replace(score=-3.0).complaints(200)
    assert said.startswith("gibbs explains 30% of the variance of entries that were held out, but takes noise for too")


def test_noise_says_where_it_is_from(sampled):
    expected = {"gibbs": sampled.diagnostics_, "cep": fitted("regressor").diagnostics_}
    assert expected["gibbs"].noise_source == "held-out"
    assert expected["cep"].noise_source == "approximate"
    for found in expected.values():
        assert found.noise_sd == pytest.approx(0.2, rel=0.25)  # as simulated
    # known from 60 entries and from 600
    assert expected["gibbs"].noise_sd_error == pytest.approx(expected["gibbs"].noise_sd / np.sqrt(2 * 60), rel=0.35)
    assert expected["cep"].noise_sd_error == pytest.approx(expected["cep"].noise_sd / np.sqrt(2 * 600), rel=0.05)
    assert fitted("counts").diagnostics_.noise_sd is None


def constant_score(model, X, y):
    return model.fit(X, y).diagnostics_.constant_score


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_constant_is_the_best_one():
    # cep would tell of entries that it left out
    few = {"method": VMP(n_starts=1), "interactions": "cp", "max_iter": 3, "random_state": 0}
    y = np.round(np.exp(Y - Y.min()) / 3.0)
    mean, share = y.mean(), np.mean(Y > 0.5)
    found = constant_score(tc.CPRegressor(2, **few), X, Y)
    assert found == pytest.approx(stats.norm(Y.mean(), Y.std()).logpdf(Y).mean())
    found = constant_score(tc.CPClassifier(2, **few), X, (Y > 0.5).astype(float))
    assert found == pytest.approx(share * np.log(share) + (1 - share) * np.log1p(-share), abs=1e-4)
    found = constant_score(tc.CPCountRegressor(2, likelihood="poisson", **few), X, y)
    assert found == pytest.approx(stats.poisson(mean).logpmf(y).mean(), abs=1e-6)
    found = constant_score(tc.CPCountRegressor(2, likelihood="negbinomial", **few), X, y)
    best = max(stats.nbinom(r, r / (r + mean)).logpmf(y).mean() for r in np.geomspace(0.01, 100.0, 2000))
    assert found == pytest.approx(best, abs=1e-4)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_intervals_that_are_too_narrow_say_so():
    labels = (get_likelihood("logit").sample(RNG, Y, np.ones(len(Y))) > 0.0).astype(float)
    model = tc.CPClassifier(3, link="logit", method=CEP(n_ensemble=1), random_state=0)
    many, few = (model.fit(X[:n], labels[:n]).diagnostics_ for n in (len(X), 200))
    assert many.narrow
    assert many.widened is None
    assert "intervals   too narrow" in str(many)
    assert few.narrow
    assert few.widened > 1.0
    assert "intervals   latent variances times" in str(few)
    assert not fitted("regressor").diagnostics_.narrow
    exact = tc.CPClassifier(2, link="logit", method=PGGibbs(n_chains=1), max_iter=40, random_state=0).fit(X, labels)
    assert not exact.diagnostics_.narrow


def test_diagnostics_come_back_from_a_file_and_a_pickle(sampled, tmp_path):
    sampled.save(tmp_path / "model.npz")
    assert tc.load(tmp_path / "model.npz").diagnostics_ == sampled.diagnostics_
    assert pickle.loads(pickle.dumps(sampled)).diagnostics_ == sampled.diagnostics_
    assert clone(sampled).diagnostics_ is None


def test_a_batch_after_the_fit_makes_them_old(tmp_path):
    model = tc.CPRegressor(2, method="cep", interactions="cp", prior="fixed", random_state=0, tol=1e-2).fit(X, Y)
    assert model.diagnostics_.method == "cep"
    model.partial_fit(X[:50], Y[:50])
    assert model.diagnostics_ is None
    model.save(tmp_path / "model.npz")
    assert tc.load(tmp_path / "model.npz").diagnostics_ is None
