"""The gauntlet's own parts: its problems, its scores, its file, its processes; and that it sees a bad model."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from helpers.source_graph import ROOT
from sklearn.exceptions import ConvergenceWarning

from scripts.benchmarks.gauntlet import __main__ as gauntlet
from scripts.benchmarks.gauntlet import fits, problems, scores
from scripts.benchmarks.gauntlet.fits import in_child
from scripts.benchmarks.gauntlet.problems import GRID, MAKERS, PARTS, Cell, MatrixSpec, TensorSpec, matrix, recommender
from scripts.benchmarks.gauntlet.scores import Answer, above_constant, constant, loss, regret
from tensorcep import SparseTensor

SIMULATED = [cell for cell in GRID.values() if getattr(cell.make, "func", None) in MAKERS.values()]
MATRICES = [cell for cell in GRID.values() if getattr(cell.make, "func", None) is matrix or cell.make is recommender]
QUICK = Cell("quick", "cp", "values", "small", partial(problems.values_of, TensorSpec(n=400)))


def test_gauntlet_has_the_grid_that_was_asked_for():
    assert len(GRID) >= 120
    assert {cell.size for cell in GRID.values()} == set(PARTS["all"])
    assert {cell.model for cell in GRID.values()} == {"cp", "stream", "pca", "fa", "gfa", "cmf"}
    assert {cell.observed for cell in GRID.values() if cell.model == "stream"} == {"values", "labels", "counts"}
    specs = [cell.make.args[0] for cell in SIMULATED]
    assert {spec.order for spec in specs} == {2, 3, 4, 5}
    assert {1, 3, 8, 15} <= {spec.rank for spec in specs}
    assert {0.1, 0.5, 2.0} <= {spec.noise for spec in specs}
    assert {5.0, 20.0, 100.0} <= {spec.per_row for spec in specs}
    assert {300, 1_000_000} <= {spec.n for spec in specs}
    assert {0.0, 100.0, 1e4} <= {spec.offset for spec in specs}
    assert {0.1, 3.0, 300.0} <= {spec.count for spec in specs}


@pytest.mark.parametrize("large", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_gauntlet_truth_is_better_than_the_constant_model(large):
    for cell in (c for c in SIMULATED + MATRICES if (c.size == "large") is large):
        problem = cell.make(5)
        truth = loss(cell.observed, problem, problem.truth)
        assert truth < 0.99 * loss(cell.observed, problem, constant(cell.observed, problem)), cell.name
        assert len(problem.y) >= 150, cell.name
        assert np.isfinite(problem.y).all(), cell.name
        if cell in SIMULATED:
            fitted, tested = (
                np.ravel_multi_index(c.T, problem.train.shape) for c in (problem.train.coords, problem.coords)
            )
            assert not np.intersect1d(fitted, tested).size, cell.name
            assert problem.train.nnz == pytest.approx(cell.make.args[0].n, rel=0.1), cell.name
        else:
            assert all(np.isnan(problem.train[m][i, j]) for m, i, j in problem.coords), cell.name
            assert all((~np.isnan(x)).any(axis=0).all() for x in problem.train), cell.name


def test_gauntlet_problems_are_those_of_their_seed():
    for name in ("values-order-3-rank-3-zero", "labels-zipf", "counts-zipf", "pca-unequal-scales"):
        a, b, other = (GRID[name].make(seed) for seed in (1, 1, 2))
        np.testing.assert_array_equal(a.coords, b.coords, err_msg=name)
        np.testing.assert_array_equal(a.y, b.y, err_msg=name)
        assert len(a.y) != len(other.y) or (a.y != other.y).any(), name


def spec_of(**given):
    return replace(TensorSpec(n=5000), **given)


def test_gauntlet_values_are_what_their_names_say():
    plain = problems.values_of(spec_of(), 0)
    assert np.std(plain.y - plain.truth) == pytest.approx(0.5, rel=0.1)
    assert np.std(plain.truth) == pytest.approx(1.0, rel=0.1)
    assert np.bincount(plain.train.coords[:, 1]).mean() == pytest.approx(20.0, rel=0.05)
    assert np.mean(problems.values_of(spec_of(offset=1e4), 0).y) == pytest.approx(1e4, rel=1e-3)
    spiked = problems.values_of(spec_of(floor=0.3), 0)
    assert np.mean(spiked.train.values == spiked.train.values.min()) == pytest.approx(0.3, abs=0.02)
    assert abs(np.mean(spiked.y - spiked.truth)) < 0.05  # the expectation of a censored value, not the latent one
    skewed = np.bincount(problems.values_of(spec_of(zipf=True), 0).train.coords[:, 0], minlength=375)
    assert skewed[:3].mean() > 10 * max(1.0, skewed[-100:].mean())
    tails = problems.values_of(spec_of(tails=2.5), 0)
    assert np.abs(tails.y - tails.truth).max() > 3.0
    flat = problems.values_of(spec_of(constant=3), 0)
    means = np.bincount(flat.coords[:, 0], flat.truth) / np.maximum(np.bincount(flat.coords[:, 0]), 1)
    assert means.std() < 0.5


def test_gauntlet_labels_and_counts_are_what_their_names_say():
    rare = problems.labels_of(spec_of(share=0.01), 0)
    assert np.mean(rare.train.values) == pytest.approx(0.01, abs=0.005)
    assert np.mean(rare.truth) == pytest.approx(0.01, abs=0.005)
    sampled = problems.labels_of(spec_of(share=0.01, sampled=True), 0)
    assert np.mean(sampled.train.values) == pytest.approx(0.5, abs=0.03)
    assert np.mean(sampled.truth) == pytest.approx(np.mean(sampled.y), abs=0.05)
    for mean in (0.1, 300.0):
        assert np.mean(problems.counts_of(spec_of(count=mean), 0).train.values) == pytest.approx(mean, rel=0.1)
    plain, wide = (problems.counts_of(spec_of(count=300.0, dispersion=r), 0).y for r in (None, 2.0))
    assert np.var(wide) > 1.4 * np.var(plain)


def test_gauntlet_masses_of_counts_sum_to_one():
    y = np.arange(3000.0)
    for r in (None, 0.7, 20.0):
        mass = np.exp(problems.count_log_mass(y, 8.0, r))
        assert mass.sum() == pytest.approx(1.0, abs=1e-9), r
        assert mass @ y == pytest.approx(8.0, rel=1e-6), r
        assert mass @ y**2 - 64.0 == pytest.approx(8.0 + (0.0 if r is None else 64.0 / r), rel=1e-6), r


def test_gauntlet_columns_have_the_scales_that_were_asked_for():
    problem = matrix(MatrixSpec(scales=4.0, constant=2), 0)
    sd = np.nanstd(problem.train[0], axis=0)
    assert (sd[:2] == 0.0).all()
    assert sd[2:].max() > 100.0 * sd[2:].min()
    assert loss("values", problem, problem.truth) == pytest.approx(0.5 / np.sqrt(1.25), rel=0.15)


def test_gauntlet_refuses_a_tensor_that_would_be_full():
    with pytest.raises(ValueError, match="7500 entries do not leave"):
        problems.values_of(spec_of(n=5000, shape=(20, 20, 15)), 0)


def test_gauntlet_regret_is_a_share_for_values_and_a_difference_otherwise():
    assert regret("values", 1.03, 1.0) == pytest.approx(0.03)
    assert regret("labels", 0.51, 0.5) == pytest.approx(0.01)
    assert regret("counts", 2.4, 2.5) == pytest.approx(-0.1)
    assert above_constant(0.5, 1.0) == -0.5


def test_gauntlet_scores_weigh_labels_and_measure_coverage():
    problem = GRID["labels-entries-300"].make(0)
    half = Answer(np.full(len(problem.y), 0.5), None, "")
    assert scores.scores("labels", problem, half)["score"] == pytest.approx(np.log(2.0))
    weights = np.where(problem.y > 0.0, 0.0, 1.0)
    rare = Answer(np.full(len(problem.y), 0.1), None, "")
    assert scores.scores("labels", problem._replace(weights=weights), rare)["score"] == pytest.approx(-np.log(0.9))
    values = QUICK.make(0)
    below = np.linspace(0.0, 1.0, 1001)
    held = scores.scores("values", values, Answer(values.truth, below, ""))
    assert held["coverage_50"] == pytest.approx(0.5, abs=0.01)
    assert held["coverage_90"] == pytest.approx(0.9, abs=0.01)
    assert held["score"] == held["truth"] < held["constant"]
    assert scores.scores("values", values, Answer(values.truth * np.nan, None, ""))["score"] == np.inf


class Planted:
    """A model that predicts the training mean, moved by so many standard deviations."""

    method_, rank_ = "planted", 0

    def __init__(self, moved):
        self.moved = moved

    def fit(self, tensor):
        assert isinstance(tensor, SparseTensor)
        self.mean, self.sd = tensor.values.mean(), tensor.values.std()
        return self

    def predict(self, coords):
        return np.full(len(coords), self.mean + self.moved * self.sd)

    def has_uncertainty(self):
        return False


@pytest.mark.parametrize(("moved", "found"), [(0.0, []), (0.5, ["quick"])])
def test_gauntlet_finds_a_model_that_is_worse_than_the_constant(monkeypatch, moved, found):
    monkeypatch.setattr(fits, "warm_up", lambda cell: None)
    monkeypatch.setattr(fits, "estimator", lambda cell, name, seed: Planted(moved))
    record = {"cell": "quick", "fit": "default", "seed": 0, "status": "ok", **fits.measured(QUICK, "default", 0)}
    rival = {**record, "fit": "vmp 2 cp", "score": record["truth"]}
    cells = scores.judged([record, rival], grid={"quick": QUICK})
    assert [r["cell"] for r in scores.worse_than_constant(cells)] == found
    assert cells[0]["regret"] > 1.0
    assert cells[0]["oracle"] == "vmp 2 cp"
    text = scores.in_all(cells)
    assert f"worse than the constant model by more than 1 %: {len(found)}" in text
    assert "0.0% of 1 cells" in text
    (line,), (kind,) = scores.lines_of(cells), scores.of_kinds(cells)
    assert (line["cell"], line["entries"], line["by"]) == ("quick", 400, "rmse")
    assert (kind["problems"], kind["fits"], kind["worse by 1 %"]) == ("tensors of values", 1, len(found))


def test_gauntlet_takes_coverage_of_cells_from_all_over():
    """The first thousand cells of the serology are the first fifth of its samples, whose intervals held fewer."""
    assert fits.spread(700).tolist() == [*range(700)]
    places = fits.spread(5782)
    assert len(places) == fits.CALIBRATED
    assert (places[0], places[-1]) == (0, 5781)
    assert set(np.diff(places)) == {5, 6}


def test_gauntlet_counts_a_failed_fit_among_the_worst():
    failed = {"cell": "quick", "fit": "default", "seed": 0, "status": "crash: signal 11"}
    cells = scores.judged([failed], grid={"quick": QUICK})
    assert scores.worse_than_constant(cells) == cells
    assert scores.rows_of(cells)[0]["skipped"] == "crash: signal 11"
    assert scores.lines_of(cells)[0]["by"] == "crash: signal 11"


def test_gauntlet_continues_its_file(tmp_path, monkeypatch, capsys):
    file = tmp_path / "table.csv"
    asked = []

    def record_of(cell, name, seed, seconds, gigabytes):
        asked.append((cell, name))
        numbers = dict.fromkeys(fits.MEASURED, 0.25) | {"score": 0.1 + 0.2, "ece": None}
        return {"cell": cell, "fit": name, "seed": seed, "status": "ok", **numbers, "n_train": 5, "warnings": "a, b"}

    monkeypatch.setattr(gauntlet, "record_of", record_of)
    cells = ["values-zipf-zero", "labels-zipf"]
    gauntlet.main(["--cells", cells[0], "--out", str(file)])
    assert asked == [(cells[0], "default")]
    gauntlet.main(["--cells", *cells, "--out", str(file), "--json", "-"])
    assert asked == [(name, "default") for name in cells]
    out = capsys.readouterr().out
    rows = json.loads(out[out.index("[\n") :])
    assert {row["data"] for row in rows} == set(cells)
    assert {row["value"] for row in rows if row["metric"] == "score"} == {0.1 + 0.2}
    small = ["--oracle", "--methods", "vmp,cep", "--ranks", "2,4", "--interactions", "cp"]
    gauntlet.main(["--cells", cells[0], "--out", str(file), *small])
    assert asked[2:] == [(cells[0], f"{method} {rank} cp") for method in ("cep", "vmp") for rank in (2, 4)]
    whole = file.read_text()
    file.write_text(whole[:-7])  # as if killed while it wrote
    asked.clear()
    gauntlet.main(["--cells", cells[0], "--out", str(file), *small])
    assert asked == [(cells[0], "vmp 4 cp")]
    assert file.read_text() == whole
    file.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="must have the columns cell, fit, seed"):
        gauntlet.main(["--cells", cells[0], "--out", str(file)])


def test_gauntlet_takes_oracles_of_an_earlier_file_and_refuses_unknown_cells(capsys):
    record = {"cell": "labels-zipf", "seed": 0, "status": "ok", "constant": 0.7, "score": 0.6, "fit": "default"}
    others = [{**record, "fit": "pg-vb 2 cp", "score": 0.55}, {**record, "fit": "cep 2 cp", "status": "time limit"}]
    (cell,) = scores.judged([record], others)
    assert cell["regret"] == pytest.approx(0.05)
    assert cell["best"] == 0.55
    with pytest.raises(SystemExit):
        gauntlet.main(["--cells", "no-such-cell"])
    assert "'no-such-cell' is not a cell" in capsys.readouterr().err


def test_gauntlet_names_of_oracles_are_estimators():
    for name in ("values-zipf-zero", "labels-zipf", "counts-zipf", "stream-labels-positive", "fa-rank-15"):
        cell = GRID[name]
        names = fits.oracles(cell, (), (2, 4), fits.INTERACTIONS)
        assert len(names) == len(set(names)) >= 6, name
        for asked in names:
            fits.estimator(cell, asked, 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [100, 101])
def test_few_values_with_little_noise_are_found_whichever_entries_are_left_out(seed):
    """A handful of those, of rows hardly known, once made the noise so large that no chain found the rest: 0.44."""
    cell = GRID["values-noise-0.1-per-row-20-positive"]
    problem = cell.make(12)
    model = fits.fit(fits.default(cell, seed), cell, problem)
    assert np.sqrt(np.mean((model.predict(problem.coords) - problem.y) ** 2)) < 0.25


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # that they mix slowly
def test_large_counts_that_no_chain_of_components_alone_expects_end_in_no_error_and_in_a_word():
    cell = GRID["counts-mean-300-poisson"]
    problem = cell.make(0)
    with pytest.warns(ConvergenceWarning, match="nothing but the mean was found: pg-gibbs"):
        model = fits.fit(fits.estimator(cell, "pg-gibbs 4 cp", 0), cell, problem)
    assert np.isfinite(model.predict(problem.coords)).all()


def test_gauntlet_children_end_alone():
    assert in_child(divmod, (7, 2), 5, 2) == ("ok", (3, 1))
    assert in_child(int, ("seven",), 5, 2).status.startswith("error: ValueError: invalid literal")
    assert in_child(bytearray, (10**11,), 5, 2).status.startswith("error: MemoryError")
    assert in_child(os.abort, (), 5, 2).status == "crash: signal 6"
    assert in_child(sum, (range(10**12),), 1, 2).status == "time limit"


def test_gauntlet_kept_oracle_has_a_named_fit_of_every_small_problem():
    kept = fits.read(ROOT / "data" / "measured" / "gauntlet-oracle.csv")
    assert [r["cell"] for r in kept] == [name for name, cell in GRID.items() if cell.size in PARTS["small"]]
    for r in kept:
        fits.estimator(GRID[r["cell"]], r["fit"], 0)
        assert r["status"] == "ok"


def test_gauntlet_counts_a_real_data_set_three_times():
    good, bad = ({"regret": 0.0, "kind": kind} for kind in (scores.REAL, "tensors of values"))
    assert scores.mean([good, bad], [1.0, 0.0]) == 0.75
    assert [cell.name for cell in GRID.values() if scores.kind_of(cell) == scores.REAL] == [
        name for name, cell in GRID.items() if cell.real
    ]
    assert sum(cell.real for cell in GRID.values()) == 22
