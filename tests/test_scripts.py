"""Each measurement script at a tiny size, in a process of its own, and the rows that it hands back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.problems import settings_of
from helpers.source_graph import ROOT

SCRIPTS = ROOT / "scripts"
TINY = {
    "bench_engines.py": ["--methods", "vmp,wopt", "--ranks", "2", "--entries", "500", "--repeats", "1"],
    "bench_interactions.py": [
        *("--methods", "vmp,pg-vb", "--ranks", "2", "--interactions", "main+pairs", "--shape", "12,10,8"),
        *("--entries", "300", "--sweeps", "4", "--repeats", "1"),
    ],
    "bench_factor_models.py": ["--shape", "40,16", "--ranks", "3", "--sweeps", "4"],
    "bench_glm.py": ["--sizes", "2000", "--columns", "10", "--sweeps", "4", "--no-simulations"],
    "bench_memory.py": ["--entries", "3000", "--ranks", "2", "--dtypes", "float64,float32"],
    "bench_peers.py": ["--peers", "none", "--methods", "vmp,wopt", "--folds", "1", "--ranks", "2", "--sweeps", "3"],
    "bench_read_tns.py": ["--lines", "200", "--repeats", "1"],
    "bench_startup.py": ["--only-imports", "--repeats", "1"],
    "bench_stream.py": [
        *("--entries", "400", "--stream-entries", "400", "--ranks", "2", "--batch-sizes", "100"),
        *("--points", "2", "--orders", "2", "--forget", "0,0.1", "--revisit", "0,50"),
    ],
    "bench_sweep.py": ["--ranks", "2", "--entries", "500", "--repeats", "1", "--threads", "1,2"],
    "choose_defaults.py": [
        *("--data", "alog,enron", "--folds", "1", "--entries", "300", "--methods", "gibbs,cep"),
        *("--interactions", "auto,pair1", "--priors", "auto", "--rank-factors", "1"),
        *("--sweeps-factors", "0.02", "--limits", "auto,none"),
    ],
    "engine_calibration.py": [
        "--methods",
        "laplace,wopt-ridge,cep-averaged",
        "--likelihoods",
        "gaussian,logit",
        "--true-rank",
        "1",
        "--shape",
        "12,10,8",
        "--density",
        "0.4",
        "--seeds",
        "1",
    ],
    "factor_model_examples.py": ["--ranks", "3", "--sweeps", "6", "--every", "20", "--methods", "vb-factorized"],
    "measure_coverage.py": [
        "--ranks",
        "1",
        "--true-rank",
        "1",
        "--shape",
        "12,10,8",
        "--density",
        "0.4",
        "--seeds",
        "1",
    ],
    "measure_accuracy.py": [
        *("--methods", "default,cep,vmp", "--folds", "1,2", "--entries", "400", "--sets", "2", "--data", "alog,enron"),
        *("--ranks", "2", "--sweeps", "4", "--interactions", "main=1:cp=1", "--priors", "learned"),
        *("--ensembles", "2"),
    ],
    "measure_sampled_zeros.py": ["--links", "logit", "--size", "12", "--rate", "0.3", "--seeds", "1", "--sweeps", "10"],
    "measure_rank_selection.py": [
        *("--seeds", "1", "--true-ranks", "1", "--noise", "0.5", "--shape", "8,7,6", "--entries", "200"),
        *("--above", "1", "--largest", "2", "--starts", "1", "--score-method", "vmp"),
    ],
    "reproduce_bpm.py": ["--data", "toy,sonar", "--splits", "1", "--tol", "0.01"],
    "reproduce_clutter.py": ["--data", "listed", "--draws", "200", "--repeats", "1"],
    "reproduce_glm.py": [
        *("--tables", "--data", "crabs", "--folds", "1", "--methods", "cep1,vb,kjit,is,is-ep"),
        *("--sweeps", "50", "--draws", "500"),
    ],
    "reproduce_cep_tensor.py": ["--methods", "cep,vmp,wopt", "--folds", "1", "--ranks", "3", "--sweeps", "10"],
    "reproduce_dblp_streaming.py": [
        *("--methods", "cep,vmp,batch,wopt", "--entries", "600", "--batch-sizes", "300", "--orders", "2"),
        *("--ranks", "2", "--sets", "1", "--sweeps", "3"),
    ],
    "reproduce_polya_gamma.py": [
        "--data",
        "binary-extreme,negbinomial-small,poisson-small",
        "--shape",
        "30,12",
        "--true-rank",
        "2",
        "--sweeps",
        "6",
        "--seeds",
        "1",
        "--points",
        "2",
    ],
    "stream_kill_test.py": [
        "--kills",
        "1",
        "--entries",
        "600",
        "--batch-sizes",
        "50",
        "--ranks",
        "1",
        "--revisit",
        "40",
    ],
}
NEEDS_DATA = (
    "bench_peers.py",
    "choose_defaults.py",
    "measure_accuracy.py",
    "reproduce_glm.py",
    "reproduce_bpm.py",
    "reproduce_cep_tensor.py",
    "reproduce_dblp_streaming.py",
)


def run_script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script as a user does, with this package and without a warm-up of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, str(SCRIPTS / name), *arguments], capture_output=True, text=True, env=environment, check=False
    )


def rows_of(name: str, *arguments: str) -> list[dict[str, object]]:
    done = run_script(name, *arguments, "--json", "-")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_scripts_all_have_a_smoke_test():
    found = {path.name for path in SCRIPTS.glob("*.py") if not path.name.startswith("_")}
    assert found == set(TINY)


@pytest.mark.parametrize("name", sorted(TINY))
def test_script_hands_back_flat_rows(name, request):
    if name in NEEDS_DATA:
        request.getfixturevalue("real_data")
    rows = rows_of(name, *TINY[name])
    assert rows
    for row in rows:
        assert {"data", "metric", "value"} <= row.keys()
        assert all(value is None or isinstance(value, (str, int, float)) for value in row.values())
        assert "skipped" in row or np.isfinite(row["value"])


def test_scripts_write_the_same_rows_to_a_file_beside_a_table(tmp_path):
    file = tmp_path / "rows.json"
    done = run_script("bench_startup.py", *TINY["bench_startup.py"], "--json", str(file))
    assert done.returncode == 0, done.stderr
    metrics = {row["data"] for row in json.loads(file.read_text(encoding="utf-8"))}
    assert {"numpy", "tensorcep own"} <= metrics
    assert all(name in done.stdout for name in metrics)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.json"]


def test_bench_sweep_times_kernel_and_twin_and_skips_what_does_not_fit():
    rows = rows_of(
        "bench_sweep.py", *TINY["bench_sweep.py"], "--likelihoods", "gaussian", "--dtypes", "float64,float32"
    )
    by_metric: dict[object, list[dict[str, object]]] = {}
    for row in rows:
        by_metric.setdefault(row["metric"], []).append(row)
    assert {row["method"] for row in by_metric["us_per_entry"]} == {"cep", "plain"}
    assert {row["threads"] for row in by_metric["us_per_entry_kernel"]} == {1, 2}
    # 3 modes, 3 numbers of the precision and 2 of the natural mean, and two numbers for the noise
    messages = {row["dtype"]: row["value"] for row in by_metric["bytes_per_entry_messages"]}
    assert messages == {"float64": 3 * 5 * 8 + 16, "float32": 3 * 5 * 4 + 16}
    refused = rows_of("bench_sweep.py", "--ranks", "1000", "--entries", "1e8", "--likelihoods", "gaussian")
    assert [row["value"] for row in refused] == [None]
    assert "GB available" in str(refused[0]["skipped"])


@pytest.mark.parametrize("likelihood", ["gaussian", "probit"])
def test_plain_twin_equals_the_lane_sweep(likelihood, monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import bench_sweep
    from _plain_sweep import plain_state, plain_sweep

    from tensorcep.core.executor import ThreadExecutor
    from tensorcep.core.packing import unpack
    from tensorcep.cp.cep import method as cep

    problem = bench_sweep.simulate(bench_sweep.Case("test", 1003, (20, 15, 25), 3, likelihood), 0)
    published = {"positive": False, "message_noise": (0.5, 0.5), "noise_moments": "cavity"}
    options = settings_of("cep", schedule="parallel", damping=0.5, **published)
    threads = ThreadExecutor(1)
    state, plain = cep.init(problem, options, threads), plain_state(problem, (0.5, 0.5))
    for _ in range(2):
        state, _ = cep.step(state, problem, options, threads)
        plain = plain_sweep(plain, problem, 0.5)
    scale = np.abs(plain.row_Lam).max()
    np.testing.assert_allclose(unpack(state.rows.Lam, 3), plain.row_Lam, rtol=0, atol=1e-9 * scale)
    np.testing.assert_allclose(state.rows.eta, plain.row_eta, rtol=0, atol=1e-9 * np.abs(plain.row_eta).max())
    if likelihood == "gaussian":
        np.testing.assert_allclose(state.noise, plain.noise, rtol=1e-9)


@pytest.mark.parametrize(("name", "data"), [("reproduce_bpm.py", "toy"), ("reproduce_clutter.py", "typical")])
def test_scripts_draw_figures(name, data, tmp_path):
    pytest.importorskip("matplotlib")
    file = tmp_path / "figure.png"
    done = run_script(name, "--data", data, "--figure", str(file), *(["--draws", "100"] if "clutter" in name else []))
    assert done.returncode == 0, done.stderr
    assert file.read_bytes().startswith(b"\x89PNG")


def test_reproduce_glm_draws_both_figures(real_data, tmp_path):
    pytest.importorskip("matplotlib")
    figures = [tmp_path / "kl.png", tmp_path / "seconds.png"]
    asked = ["--simulations", "--figure", str(figures[0]), "--tables", "--seconds-figure", str(figures[1])]
    small = ["--data", "crabs", "--folds", "1", "--methods", "vb,ep,kjit,is", "--sweeps", "3", "--draws", "100"]
    rows = rows_of("reproduce_glm.py", *asked, *small)
    assert {row["data"] for row in rows} == {"probit-1", "probit-2", "logistic-1", "logistic-2", "crabs"}
    assert all(figure.read_bytes().startswith(b"\x89PNG") for figure in figures)


@pytest.mark.parametrize("link", ["probit", "logistic"])
def test_just_in_time_moments_are_near_the_exact_ones_and_ask_less(link, monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import _kjit
    import reproduce_glm

    from tensorcep import datasets
    from tensorcep.likelihoods import get_likelihood
    from tensorcep.likelihoods.arrays import tilted_moments

    rng = np.random.default_rng(0)
    points = datasets.Points(rng.standard_normal((400, 3)), rng.integers(2, size=400))
    learned = _kjit.JustInTime(reproduce_glm.problem_of(points, link, False, seed=1), 20_000)
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


def test_the_oracle_knows_the_curvature_of_narrow_messages(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import _kjit
    import reproduce_glm

    from tensorcep import datasets
    from tensorcep.likelihoods.arrays import tilted_moments
    from tensorcep.likelihoods.probit import PROBIT

    points = datasets.Points(np.ones((2, 1)), np.array([0, 1]))
    oracle = _kjit.Oracle(reproduce_glm.problem_of(points, "probit", False), 100_000)
    m = np.array([-3.0, 0.0, 2.0])
    exact = np.column_stack(tilted_moments(PROBIT.tilted, 1.0, m, np.full(3, 1e-3), 1.0)[1:])
    np.testing.assert_allclose([oracle(at, 1e-3) for at in m], exact, rtol=0, atol=5e-3)


def test_just_in_time_ep_is_near_factorised_ep_and_repeats(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import reproduce_glm

    from tensorcep import datasets

    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 2))
    X[:5, 0] = 0.0
    problem = reproduce_glm.problem_of(datasets.Points(X, (X[:, 1] > 0.3).astype(int)), "logistic", False, seed=1)
    exact = reproduce_glm.fit_glm(problem, "ep-factorized", max_iter=500, tol=1e-6).posterior
    effort = reproduce_glm.Effort(500, 20_000, 0)
    found = [reproduce_glm.fit_sampled(problem, "kjit", "converged", effort).posterior for _ in range(2)]
    np.testing.assert_array_equal(found[0].mean, found[1].mean)
    np.testing.assert_allclose(found[0].mean, exact.mean, rtol=0, atol=0.05)
    np.testing.assert_allclose(found[0].cov, exact.cov, rtol=0.1)


def test_sampled_moments_are_near_the_exact_ones_for_wide_cavities(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import _sampled_ep
    import reproduce_glm

    from tensorcep import datasets
    from tensorcep.likelihoods.arrays import tilted_moments
    from tensorcep.likelihoods.probit import PROBIT

    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 3))
    x[:10, 1] = 0.0
    problem = reproduce_glm.problem_of(datasets.Points(x, rng.integers(2, size=40)), "probit", False)
    mu, s = rng.normal(0.0, 0.5, x.shape), rng.uniform(0.3, 0.9, x.shape)
    _, alpha, beta = tilted_moments(PROBIT.tilted, problem.y, (x * mu).sum(axis=1), (x**2 * s).sum(axis=1), 1.0)
    a, b = (np.where(x == 0.0, 0.0, found) for found in _sampled_ep.importance_moments(problem, 100_000)(mu, s))
    np.testing.assert_allclose(a, x * alpha[:, None], rtol=0, atol=0.1)
    np.testing.assert_allclose(b, x**2 * beta[:, None], rtol=0, atol=0.2)
    assert np.sqrt(np.mean((a - x * alpha[:, None]) ** 2)) < 0.03


def test_bench_stream_draws_resident_size_and_latency(tmp_path):
    pytest.importorskip("matplotlib")
    file = tmp_path / "figure.png"
    small = ["--studies", "memory", "--stream-entries", "400", "--batch-sizes", "100", "--ranks", "2", "--points", "2"]
    done = run_script("bench_stream.py", *small, "--figure", str(file))
    assert done.returncode == 0, done.stderr
    assert file.read_bytes().startswith(b"\x89PNG")
    refused = run_script("bench_stream.py", "--studies", "order", "--figure", str(file))
    assert refused.returncode == 2
    assert "--figure draws the study 'memory'" in refused.stderr


def test_bench_memory_derives_what_the_arrays_add_up_to(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import bench_memory
    import bench_sweep

    from tensorcep.core.executor import ThreadExecutor
    from tensorcep.cp.cep import method as cep

    n, rank = 1600, 3  # whole blocks of lanes: no padding
    problem = bench_sweep.simulate(bench_sweep.Case("test", n, (20, 15, 25), rank, "gaussian"), 0)
    for dtype in ("float64", "float32"):
        state = cep.init(problem, settings_of("cep", dtype=dtype), ThreadExecutor(1))
        entries = problem.entries
        kept = [*state.messages, state.f, entries.rows, entries.y, entries.weight, entries.permutation]
        assert sum(array.nbytes for array in kept) == n * bench_memory.derived_bytes(rank, dtype)["all"]


def test_reproduce_cep_tensor_gives_the_published_scores_and_draws_them(real_data, tmp_path):
    figure = tmp_path / "curves.png"
    chosen = ["--methods", "cep,vmp", "--folds", "1,2", "--ranks", "3", "--sweeps", "5", "--figure", str(figure)]
    rows = rows_of("reproduce_cep_tensor.py", *chosen)
    found = {
        (r["data"], r["method"], r["fold"], r["sweep"]): round(r["value"], 4)
        for r in rows
        if r["metric"] in ("rmse", "auc")
    }
    assert found["alog", "cep", 1, 5] == 1.3902
    assert found["alog", "vmp", 1, 5] == 0.9387
    assert found["alog", "vmp", 2, 5] == 0.9625
    assert found["enron", "cep", 1, 5] == 0.8716
    assert found["enron", "vmp", 1, 5] == 0.7349
    assert found["enron", "vmp", 2, 5] == 0.7051
    assert found["enron", "vmp", "mean", 5] == pytest.approx((0.7349 + 0.7051) / 2, abs=1e-4)
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_accuracy_spreads_are_over_folds_and_over_seeds(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import _accuracy

    about = {"data": "enron", "method": "cep", "rank": 3, "metric": "auc"}
    values = {(1, 0): 0.90, (1, 1): 0.92, (2, 0): 0.94, (2, 1): 0.98}
    rows = [{**about, "fold": fold, "seed": seed, "value": value} for (fold, seed), value in values.items()]
    refused = {**about, "fold": 3, "seed": 0, "value": None, "skipped": "why"}
    found = {item["fold"]: item["value"] for item in _accuracy.summary([*rows, refused])}
    over_folds = np.sqrt((np.var([0.90, 0.94], ddof=1) + np.var([0.92, 0.98], ddof=1)) / 2)
    over_seeds = np.sqrt((np.var([0.90, 0.92], ddof=1) + np.var([0.94, 0.98], ddof=1)) / 2)
    assert found == pytest.approx({"mean": 0.935, "sd_folds": over_folds, "sd_seeds": over_seeds})
    ((line,),) = _accuracy.tables(_accuracy.summary(rows))
    assert line["auc"] == f"0.9350 ± {over_folds:.4f}"


def test_accuracy_of_labels_is_that_of_the_training_share_of_ones(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import _accuracy
    from _heldout import Entries, Split

    # half of the training entries are ones and a tenth of the test entries; the probabilities are right at half
    y = np.array([1.0] * 8 + [0.0] * 18 + [1.0] * 2 + [0.0] * 72)
    p = np.array([0.8] * 26 + [0.2] * 74)
    coords = np.zeros((100, 3), dtype=np.int64)
    split = Split("enron", 1, (1, 1, 1), Entries(coords[:4], np.array([0.0, 1.0, 0.0, 1.0])), [Entries(coords, y)])
    found = _accuracy.label_scores(split, p)
    assert found["ece"] == pytest.approx(0.0, abs=1e-12)
    assert found["log_loss"] == pytest.approx(-0.8 * np.log(0.8) - 0.2 * np.log(0.2))
    assert _accuracy.shifted(p, split)[[0, -1]] == pytest.approx([8 / 26, 2 / 74])


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
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import _peer_fits
    from _heldout import Entries, Split

    (tmp_path / "myfm.py").write_text(FAKE_MYFM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    coords = np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]])
    f = 1.0 + np.array([0 + 3 + 5 + 3 + 0.5 + 1.5, 1 + 2 + 5 + 0 + 1 + 0, 1 + 3 + 4 + 6 + 0 + 0])
    split = Split("alog", 1, (2, 2, 2), Entries(coords, np.zeros(3)), [Entries(coords, f + np.array([0.0, 0.5, 5.0]))])
    setting = _peer_fits.PeerSetting(rank=1, sweeps=300, burn_in=50, grouped=True)
    rows = _peer_fits.measure_peer(Path(sys.executable), "myfm", split, setting, seed=7, inner=False)
    found = {row["metric"]: row["value"] for row in rows}
    assert found["rmse"] == pytest.approx(np.sqrt((0.25 + 25.0) / 3))
    assert found["coverage_90_pit"] == pytest.approx(2 / 3)
    density = 0.5 * np.log(4.0 / (2.0 * np.pi)) - 0.5 * 4.0 * np.array([0.0, 0.25, 25.0])
    assert found["log_score"] == pytest.approx(density.mean())
    assert found["sweeps_done"] == 300


def test_accuracy_of_draws_is_that_of_their_distribution(monkeypatch, rng):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import _accuracy
    from _heldout import Entries, Split

    from tensorcep.metrics import crps_gaussian

    y = rng.standard_normal(4000)
    coords = np.zeros((4000, 3), dtype=np.int64)
    split = Split("alog", 1, (1, 1, 1), Entries(coords, y), [Entries(coords, y)])
    draws = rng.standard_normal((100, 4000))
    found = _accuracy.draw_scores(split, draws, _accuracy.probability_below(split, draws))
    assert found["coverage_90_pit"] == pytest.approx(0.9, abs=6 * np.sqrt(0.09 / 4000))
    assert found["crps"] == pytest.approx(crps_gaussian(y, np.zeros(4000), np.ones(4000)), abs=0.01)
    # values and draws that pile up at a limit
    censored, piled = split._replace(tests=[Entries(coords, np.maximum(y, 0.0))]), np.maximum(draws, 0.0)
    found = _accuracy.draw_scores(censored, piled, _accuracy.probability_below(censored, piled))
    assert found["coverage_90_pit"] == pytest.approx(0.9, abs=6 * np.sqrt(0.09 / 4000))


def test_measure_accuracy_draws_curves_and_says_what_it_cannot_fit(real_data, tmp_path):
    pytest.importorskip("matplotlib")
    figure, others = tmp_path / "curves.png", tmp_path / "others.json"
    others.write_text(
        json.dumps([{"data": "alog", "metric": "rmse", "value": 0.5, "fold": 1, "seed": 0, "method": "x"}])
    )
    small = ["--folds", "1", "--entries", "300", "--ranks", "1", "--sweeps", "3", "--data", "alog,enron", "--inner"]
    chosen = ["--methods", "vmp,pg-gibbs", "--figure", str(figure), "--with", str(others)]
    done = run_script("measure_accuracy.py", *small, *chosen, "--json", str(tmp_path / "rows.json"))
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [(row["data"], row["method"]) for row in rows if "skipped" in row] == [("alog", "pg-gibbs")]
    assert {row["link"] for row in rows if row.get("method") == "pg-gibbs" and "skipped" not in row} == {"logit"}
    assert "0.5000" in done.stdout
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_bench_peers_compares_with_every_peer(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import bench_peers

    times = {"smurff": (0.8, 1.0), "myfm": (0.4, 0.2), "vmp": (0.1, 0.2)}
    rows = [
        {"metric": "seconds_per_sweep", "value": value, "fold": fold, "rank": 10, "threads": 1, "method": name}
        for name, values in times.items()
        for fold, value in enumerate(values)
    ]
    found = {(r["method"], r["metric"]): r["value"] for r in bench_peers.ratios(rows)}
    assert found == pytest.approx({("vmp", "times_faster_than_smurff"): 6, ("vmp", "times_faster_than_myfm"): 2})


def test_scripts_refuse_wrong_options_in_one_sentence():
    done = run_script("bench_sweep.py", "--likelihoods", "cauchy")
    assert done.returncode == 2
    assert "'cauchy'" in done.stderr
    assert "gaussian, probit" in done.stderr
    assert "Traceback" not in done.stderr


def test_scripts_names_do_not_hide_other_packages():
    """A script's folder comes first on the path of a script, so a name such as coverage.py would break numba."""
    for path in SCRIPTS.glob("*.py"):
        code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({path.stem!r}) is not None)"
        done = subprocess.run([sys.executable, "-I", "-c", code], cwd=Path(sys.prefix), check=False)
        assert done.returncode == 0, f"{path.name} hides the package {path.stem}"
