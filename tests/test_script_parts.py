"""What the scripts measure with: baselines of papers, scores, peers."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest

from scripts.benchmarks import heldout, peers
from scripts.benchmarks.heldout import Entries, Split
from scripts.benchmarks.quality.accuracy import measure_peer
from scripts.papers import glm_baselines, reproduce_glm
from tensorcep import datasets
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.base import tilted_moments
from tensorcep.likelihoods.binary import PROBIT
from tensorcep.linear.glm import fit_glm
from tensorcep.metrics import crps_gaussian


@pytest.mark.parametrize("link", ["probit", "logistic"])
def test_just_in_time_moments_are_near_the_exact_ones_and_ask_less(link):
    rng = np.random.default_rng(0)
    points = datasets.Points(rng.standard_normal((400, 3)), rng.integers(2, size=400))
    learned = glm_baselines.JustInTime(reproduce_glm.problem_of(points, link, False, seed=1), 20_000)
    m, v = rng.normal(0.0, 1.0, 400), rng.uniform(0.05, 4.0, 400)
    likelihood = get_likelihood("probit" if link == "probit" else "logit")
    exact = np.column_stack(tilted_moments(likelihood.tilted, 1.0, m, v, 1.0)[1:])
    error = np.abs(learned.scalar(m, v) - exact)
    assert np.quantile(error, 0.99) < 0.05
    assert np.median(error) < 0.005
    assert 5 < learned.oracle.asked < 120
    before = learned.oracle.asked
    learned.scalar(m, v)
    assert learned.oracle.asked == before


def test_the_oracle_knows_the_curvature_of_narrow_messages():
    points = datasets.Points(np.ones((2, 1)), np.array([0, 1]))
    oracle = glm_baselines.Oracle(reproduce_glm.problem_of(points, "probit", False), 100_000)
    m = np.array([-3.0, 0.0, 2.0])
    exact = np.column_stack(tilted_moments(PROBIT.tilted, 1.0, m, np.full(3, 1e-3), 1.0)[1:])
    np.testing.assert_allclose([oracle(at, 1e-3) for at in m], exact, rtol=0, atol=5e-3)


def test_just_in_time_ep_is_near_factorised_ep_and_repeats():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 2))
    X[:5, 0] = 0.0
    problem = reproduce_glm.problem_of(datasets.Points(X, (X[:, 1] > 0.3).astype(int)), "logistic", False, seed=1)
    exact = fit_glm(problem, "ep-factorized", max_iter=500, tol=1e-6).posterior
    effort = reproduce_glm.Effort(500, 20_000, 0)
    found = [reproduce_glm.fit_sampled(problem, "kjit", "converged", effort).posterior for _ in range(2)]
    np.testing.assert_array_equal(found[0].mean, found[1].mean)
    np.testing.assert_allclose(found[0].mean, exact.mean, rtol=0, atol=0.05)
    np.testing.assert_allclose(found[0].cov, exact.cov, rtol=0.1)


def test_sampled_moments_are_near_the_exact_ones_for_wide_cavities():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 3))
    x[:10, 1] = 0.0
    problem = reproduce_glm.problem_of(datasets.Points(x, rng.integers(2, size=40)), "probit", False)
    mu, s = rng.normal(0.0, 0.5, x.shape), rng.uniform(0.3, 0.9, x.shape)
    _, alpha, beta = tilted_moments(PROBIT.tilted, problem.y, (x * mu).sum(axis=1), (x**2 * s).sum(axis=1), 1.0)
    a, b = (np.where(x == 0.0, 0.0, found) for found in glm_baselines.importance_moments(problem, 100_000)(mu, s))
    np.testing.assert_allclose(a, x * alpha[:, None], rtol=0, atol=0.1)
    np.testing.assert_allclose(b, x**2 * beta[:, None], rtol=0, atol=0.2)
    assert np.sqrt(np.mean((a - x * alpha[:, None]) ** 2)) < 0.03


def test_accuracy_spreads_are_over_folds_and_over_seeds():
    about = {"data": "enron", "method": "cep", "rank": 3, "metric": "auc"}
    values = {(1, 0): 0.90, (1, 1): 0.92, (2, 0): 0.94, (2, 1): 0.98}
    rows = [{**about, "fold": fold, "seed": seed, "value": value} for (fold, seed), value in values.items()]
    refused = {**about, "fold": 3, "seed": 0, "value": None, "skipped": "why"}
    found = {item["fold"]: item["value"] for item in heldout.summary([*rows, refused])}
    over_folds = np.sqrt((np.var([0.90, 0.94], ddof=1) + np.var([0.92, 0.98], ddof=1)) / 2)
    over_seeds = np.sqrt((np.var([0.90, 0.92], ddof=1) + np.var([0.94, 0.98], ddof=1)) / 2)
    assert found == pytest.approx({"mean": 0.935, "sd_folds": over_folds, "sd_seeds": over_seeds})
    ((line,),) = heldout.tables(heldout.summary(rows))
    assert line["auc"] == f"0.9350 ± {over_folds:.4f}"


def test_accuracy_of_labels_is_that_of_the_training_share_of_ones():
    # half of the training entries are ones and a tenth of the test entries; the probabilities are right at half
    y = np.array([1.0] * 8 + [0.0] * 18 + [1.0] * 2 + [0.0] * 72)
    p = np.array([0.8] * 26 + [0.2] * 74)
    coords = np.zeros((100, 3), dtype=np.int64)
    split = Split("enron", 1, (1, 1, 1), Entries(coords[:4], np.array([0.0, 1.0, 0.0, 1.0])), [Entries(coords, y)])
    found = heldout.label_scores(split, p)
    assert found["ece"] == pytest.approx(0.0, abs=1e-12)
    assert found["log_loss"] == pytest.approx(-0.8 * np.log(0.8) - 0.2 * np.log(0.2))
    assert heldout.shifted(p, split)[[0, -1]] == pytest.approx([8 / 26, 2 / 74])


FAKE_MYFM = """
import numpy as np

class Sample:
    alpha, w0, w, V = 4.0, 1.0, np.arange(6.0), np.array([[1.0], [2.0], [0.0], [3.0], [0.0], [0.5]])

class MyFMGibbsRegressor:
    def __init__(self, rank, random_seed):
        assert (rank, random_seed) == (1, 7)

    def fit(self, X, y, callback, n_iter, n_kept_samples, group_shapes):
        assert X.shape == (len(y), 6) and group_shapes == [2, 2, 2]
        for _ in range(n_iter):
            assert callback() == (False, None)
        self.predictor_ = type("Predictor", (), {"samples": [Sample] * n_kept_samples})
        self.history_ = type("History", (), {"hypers": [Sample] * n_iter})
"""


def test_peer_predictions_are_those_of_its_draws(monkeypatch, tmp_path):
    (tmp_path / "myfm.py").write_text(FAKE_MYFM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    coords = np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]])
    f = 1.0 + np.array([0 + 3 + 5 + 3 + 0.5 + 1.5, 1 + 2 + 5 + 0 + 1 + 0, 1 + 3 + 4 + 6 + 0 + 0])
    split = Split("alog", 1, (2, 2, 2), Entries(coords, np.zeros(3)), [Entries(coords, f + np.array([0.0, 0.5, 5.0]))])
    setting = peers.PeerSetting(rank=1, sweeps=300, burn_in=50, grouped=True)
    rows = measure_peer(Path(sys.executable), "myfm", split, setting, 7, False)
    found = {row["metric"]: row["value"] for row in rows}
    assert found["rmse"] == pytest.approx(np.sqrt((0.25 + 25.0) / 3))
    assert found["coverage_90_pit"] == pytest.approx(2 / 3)
    density = 0.5 * np.log(4.0 / (2.0 * np.pi)) - 0.5 * 4.0 * np.array([0.0, 0.25, 25.0])
    assert found["log_score"] == pytest.approx(density.mean())
    assert found["sweeps_done"] == 300


def test_features_are_further_columns_of_a_peer(monkeypatch, tmp_path):
    text = FAKE_MYFM.replace("np.arange(6.0)", "np.arange(8.0)").replace("[0.5]]", "[0.5], [2.0], [0.0]]")
    text = text.replace("(len(y), 6)", "(len(y), 8)").replace("[2, 2, 2]", "[2, 2, 2, 2]")
    (tmp_path / "myfm.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    coords, known = np.array([[0, 1, 1], [1, 0, 1]]), np.array([[0.5, 0.0], [2.0, 1.0]])
    split = Split("alog", 1, (2, 2, 2), Entries(coords, np.zeros(2)), [Entries(coords, np.zeros(2))])
    setting = peers.PeerSetting(rank=1, sweeps=3, burn_in=0, grouped=True)
    found = peers.sample(Path(sys.executable), "myfm", split, setting, seed=7, features_0=known)
    # of the first: 8 of the rows and 3 for the feature's weight; pairs of 1, 3, .5 and of these with half of 2
    assert found["predicted"] == pytest.approx([1 + 8 + 3 + 5 + 4.5, 1 + 8 + 12 + 7 + 1 + 2.5 * 4])


def test_items_held_out_whole_have_no_training_entries(tmp_path):
    table = [(user, item, 1 + (user + item) % 5) for user in range(1, 5) for item in range(1, 9)]
    for fold in peers.FOLDS:
        lines = "".join(f"{user}\t{item}\t{star}\t0\n" for user, item, star in table[fold - 1 :: 5])
        (tmp_path / f"u{fold}.test.gz").write_bytes(gzip.compress(lines.encode()))
    train, test = peers.read_stars(tmp_path, 1, cold=3, seed=0)
    assert (len(train), len(test), test["item"].nunique()) == (20, 12, 3)
    assert not set(train["item"]) & set(test["item"])


def test_accuracy_of_draws_is_that_of_their_distribution(rng):
    y = rng.standard_normal(4000)
    coords = np.zeros((4000, 3), dtype=np.int64)
    split = Split("alog", 1, (1, 1, 1), Entries(coords, y), [Entries(coords, y)])
    draws = rng.standard_normal((100, 4000))
    found = heldout.draw_scores(split, draws, heldout.probability_below(split.held.y, draws))
    assert found["coverage_90_pit"] == pytest.approx(0.9, abs=6 * np.sqrt(0.09 / 4000))
    assert found["crps"] == pytest.approx(crps_gaussian(y, np.zeros(4000), np.ones(4000)), abs=0.01)
    # values and draws that pile up at a limit
    censored, piled = split._replace(tests=[Entries(coords, np.maximum(y, 0.0))]), np.maximum(draws, 0.0)
    found = heldout.draw_scores(censored, piled, heldout.probability_below(censored.held.y, piled))
    assert found["coverage_90_pit"] == pytest.approx(0.9, abs=6 * np.sqrt(0.09 / 4000))
