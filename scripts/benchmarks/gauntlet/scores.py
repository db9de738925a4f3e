"""Scores of predictions, lower is better, and what they say of the defaults, cell by cell and in all.

RMSE of values, log loss of labels, minus the log score of counts. Regret is how much worse the default is than the best
setting: of values the share by which its RMSE is larger, of labels and counts the difference of the log scores. Beside
the constant model, which predicts the mean, the share of ones, or a negative-binomial law by the moments of the
training counts, it is a share of the constant's score.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from scripts.benchmarks.common import Row, cell_text, row
from scripts.benchmarks.gauntlet.problems import GRID, Cell, Problem, count_log_mass
from tensorcep.metrics import expected_calibration_error, log_loss

Record = dict[str, Any]
DEFAULT = "default"


class Answer(NamedTuple):
    prediction: np.ndarray  # expected values, probabilities of a one, or log masses of the test counts
    below: np.ndarray | None  # predictive probability below each of some test values: uniform if calibrated
    chosen: str  # what the default came to


METRIC = {"values": "rmse", "labels": "log loss", "counts": "minus log score"}
WITHIN = {"values": 0.03, "labels": 0.01, "counts": 0.01}
WORSE_THAN_CONSTANT = 0.01


def loss(observed: str, problem: Problem, prediction: np.ndarray) -> float:
    """The score of expected values, probabilities of a one, or log masses."""
    if observed == "values":
        return float(np.sqrt(np.mean(((problem.y - prediction) / problem.unit) ** 2)))
    if observed == "labels":
        return log_loss(problem.y, prediction, problem.weights)
    return float(-np.mean(prediction))


def constant(observed: str, problem: Problem) -> np.ndarray:
    """What the constant model predicts; of matrices, the mean of each column."""
    if isinstance(problem.train, list):
        means = [np.nanmean(x, axis=0) for x in problem.train]
        return np.array([means[m][j] for m, _, j in problem.coords])
    y = problem.train.values
    mean, variance = float(np.mean(y)), float(np.var(y))
    if observed == "counts":
        return count_log_mass(problem.y, mean, mean**2 / (variance - mean) if variance > mean else None)
    return np.full(len(problem.y), mean)


def regret(observed: str, score: float, best: float) -> float:
    """How much worse a score is than another one."""
    return score / best - 1.0 if observed == "values" else score - best


def above_constant(score: float, constant_score: float) -> float:
    """By which share a score is worse than that of the constant model; below 0 it is better."""
    return score / constant_score - 1.0


def scores(observed: str, problem: Problem, found: Answer) -> dict[str, float | None]:
    below, prediction = found.below, found.prediction
    finite = bool(np.all(np.isfinite(prediction)))
    labelled = observed == "labels" and finite
    truth = None if problem.truth is None else loss(observed, problem, problem.truth)
    return {
        "score": loss(observed, problem, prediction) if finite else float("inf"),
        "constant": loss(observed, problem, constant(observed, problem)),
        "truth": truth,
        "coverage_50": None if below is None else float(np.mean(np.abs(below - 0.5) <= 0.25)),
        "coverage_90": None if below is None else float(np.mean(np.abs(below - 0.5) <= 0.45)),
        "ece": expected_calibration_error(problem.y, prediction, problem.weights) if labelled else None,
    }


WORST = 5
REAL_WEIGHT = 3  # problems of drawn data that a real one counts for
HELD = {"coverage_50": (0.45, 0.56), "coverage_90": (0.87, 0.93)}
MEASURES = ("score", "truth", "constant", "best", "regret", "above_truth", "above_constant")
COSTS = ("coverage_50", "coverage_90", "ece", "cpu_seconds", "megabytes")


def judged(records: Sequence[Record], others: Sequence[Record] = (), grid: dict[str, Cell] = GRID) -> list[Record]:
    """One record for each cell and seed that the default was fitted to, with its regret.

    `others` are records whose named settings take part in the oracle.
    """
    result = []
    for record in (r for r in records if r["fit"] == DEFAULT):
        cell = grid[record["cell"]]
        about = {**record, "observed": cell.observed, "kind": kind_of(cell), "best": None, "oracle": None}
        rivals = [r for r in (*records, *others) if r["fit"] != DEFAULT and r["status"] == "ok"]
        rivals = [r for r in rivals if (r["cell"], r["seed"]) == (record["cell"], record["seed"])]
        if rivals:
            first = min(rivals, key=lambda r: r["score"])
            about |= {"best": first["score"], "oracle": first["fit"]}
        score, best, truth = about.get("score"), about["best"], about.get("truth")
        if about["status"] != "ok" or score is None:  # a fit that ended badly
            about |= {"score": None, "regret": float("inf"), "above_truth": None, "above_constant": float("inf")}
        else:
            about["regret"] = None if best is None else regret(cell.observed, score, best)
            about["above_truth"] = None if truth is None else regret(cell.observed, score, truth)
            about["above_constant"] = above_constant(score, about["constant"])
        result.append(about)
    return result


REAL = "real data, streams of them too"


def kind_of(cell: Cell) -> str:
    """The line of the table of kinds that a problem belongs to."""
    if cell.real or cell.model == "cp":
        return REAL if cell.real else f"tensors of {cell.observed}"
    return "simulated streams of all three" if cell.model == "stream" else "matrices with gaps"


def worse_than_constant(cells: Sequence[Record]) -> list[Record]:
    """Cells where the default is worse than the constant model by more than 1 %, or failed."""
    return [r for r in cells if r["above_constant"] > WORSE_THAN_CONSTANT]


def lost(record: Record, against: str = "regret") -> float:
    """Regret, or the difference to the truth, in units of what is allowed."""
    value = record[against]
    return -np.inf if value is None else value / WITHIN[record["observed"]]


def rows_of(cells: Sequence[Record]) -> list[Row]:
    rows = []
    for record in cells:
        about = {"data": record["cell"], "method": record.get("chosen") or "", "seed": record["seed"]}
        if record["status"] != "ok":
            rows.append(row("score", None, skipped=record["status"], **about))
            continue
        found = [(name, record.get(name)) for name in (*MEASURES, *COSTS)]
        rows += [row(name, value, **about) for name, value in found if value is not None and np.isfinite(value)]
    return rows


def lines_of(cells: Sequence[Record]) -> list[Row]:
    lines = []
    for r in cells:
        by = METRIC[r["observed"]] if r["status"] == "ok" else r["status"]
        names = (*MEASURES, "oracle", *COSTS, "chosen")
        found = {name: r.get(name) for name in names}
        lines.append({"cell": r["cell"], "entries": r.get("n_train"), "by": by, **found})
    return lines


def of_kinds(cells: Sequence[Record]) -> list[Row]:
    """A line for each kind of problem, real data first: what data/measured/out_of_the_box.csv keeps."""
    lines = []
    for kind in sorted(dict.fromkeys(r["kind"] for r in cells), key=lambda kind: kind != REAL):
        some = [r for r in cells if r["kind"] == kind]
        line = {"problems": kind, "fits": len(some), "worse by 1 %": len(worse_than_constant(some))}
        line["better than the constant by 1 %"] = sum(r["above_constant"] < -WORSE_THAN_CONSTANT for r in some)
        for name, title in (("coverage_90", "90 % intervals hold"), ("coverage_50", "50 % intervals hold")):
            held = [r[name] for r in some if r.get(name) is not None]
            line[title] = float(np.mean(held)) if held else None
        costs = [r["cpu_seconds"] for r in some if r.get("cpu_seconds") is not None]
        lines.append({**line, "CPU seconds: median": float(np.median(costs)), "most": max(costs)} if costs else line)
    return lines


def in_all(cells: Sequence[Record]) -> str:
    """What holds over the cells, of which a real one counts for several, and the worst of them."""
    known = [r for r in cells if r["regret"] is not None]
    against = "regret" if any(r["best"] is not None for r in cells) else "above_truth"
    worse, n_real = worse_than_constant(cells), sum(r["kind"] == REAL for r in cells)
    lines = [f"{len(cells)} cells, {sum(r['status'] != 'ok' for r in cells)} of them without a result"]
    lines[0] += f"; {n_real} are of real data, each of which counts for {REAL_WEIGHT} in shares and means"
    if known and against == "regret":
        within = mean(known, [lost(r) <= 1.0 for r in known])
        lines.append(f"regret within 3 % (labels and counts 0.01): {within:.1%} of {len(known)} cells")
    lines.append(f"worse than the constant model by more than 1 %: {len(worse)}")
    lines += [f"  {r['cell']}: {cell_text(r['above_constant'])} ({r['status']})" for r in worse]
    for name, (low, high) in HELD.items():
        found = [r for r in cells if r.get(name) is not None]
        if found:
            average, held = mean(found, [r[name] for r in found]), mean(found, [low <= r[name] <= high for r in found])
            lines.append(f"{name}: mean {average:.3f}, within {low:g} to {high:g} in {held:.1%} of {len(found)}")
    costs = [r["cpu_seconds"] for r in cells if r.get("cpu_seconds") is not None]
    if costs:
        lines.append(f"CPU seconds: median {np.median(costs):.1f}, most {max(costs):.1f}, in all {sum(costs):.0f}")
    worst = sorted(cells, key=lambda r: lost(r, against), reverse=True)
    for about, real in (("real data", True), ("drawn data", False)):
        some = [r for r in worst if (r["kind"] == REAL) is real][:WORST]
        lines += [f"the worst of {about} by {against}:"] if some else []
        lines += [f"  {r['cell']}: {cell_text(r[against])} (best {r['oracle'] or 'not asked for'})" for r in some]
    return "\n".join(lines)


def mean(cells: Sequence[Record], values: Sequence[float]) -> float:
    """The mean of a value of each cell, where a real one counts for several."""
    return float(np.average(values, weights=[REAL_WEIGHT if r["kind"] == REAL else 1 for r in cells]))
