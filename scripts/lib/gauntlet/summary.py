"""Regret, calibration, time and memory of the default, cell by cell and in all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from scripts.lib.common import Row, row
from scripts.lib.gauntlet.grid import GRID
from scripts.lib.gauntlet.models import DEFAULT
from scripts.lib.gauntlet.runs import Record
from scripts.lib.gauntlet.scores import METRIC, WITHIN, WORSE_THAN_CONSTANT, above_constant, regret

WORST = 10
HELD = {"coverage_50": (0.45, 0.56), "coverage_90": (0.87, 0.93)}
MEASURES = ("score", "truth", "constant", "best", "regret", "above_truth", "above_constant")
COSTS = ("coverage_50", "coverage_90", "ece", "cpu_seconds", "megabytes")


def judged(records: Sequence[Record], others: Sequence[Record] = (), observed: Callable[[str], str] | None = None):
    """One record for each cell and seed that the default was fitted to, with its regret.

    `others` are records whose named settings take part in the oracle; `observed` tells what a cell's data are.
    """
    observed = observed or (lambda cell: GRID[cell].observed)
    result = []
    for record in (r for r in records if r["fit"] == DEFAULT):
        about = {**record, "observed": observed(record["cell"]), "best": None, "oracle": None}
        rivals = [r for r in (*records, *others) if r["fit"] != DEFAULT and r["status"] == "ok"]
        rivals = [r for r in rivals if (r["cell"], r["seed"]) == (record["cell"], record["seed"])]
        if rivals:
            first = min(rivals, key=lambda r: r["score"])
            about |= {"best": first["score"], "oracle": first["fit"]}
        result.append(about | _compared(about))
    return result


def _compared(about: Record) -> Record:
    """Differences to the oracle, the truth and the constant model; of a fit that ended badly, infinite ones."""
    kind, score = about["observed"], about.get("score")
    if about["status"] != "ok" or score is None:
        return {"score": None, "regret": float("inf"), "above_truth": None, "above_constant": float("inf")}
    best, truth, constant = about["best"], about.get("truth"), about["constant"]
    return {
        "regret": None if best is None else regret(kind, score, best),
        "above_truth": None if truth is None else regret(kind, score, truth),
        "above_constant": above_constant(score, constant),
    }


def worse_than_constant(cells: Sequence[Record]) -> list[Record]:
    """Cells where the default is worse than the constant model by more than 1 %, or failed."""
    return [r for r in cells if r["above_constant"] > WORSE_THAN_CONSTANT]


def lost(record: Record, against: str = "regret") -> float:
    """Regret, or the difference to the truth, in units of what is allowed."""
    value = record[against]
    return -np.inf if value is None else value / WITHIN[record["observed"]]


def rows_of(cells: Sequence[Record]) -> list[Row]:
    """Flat rows of all measures."""
    rows = []
    for record in cells:
        about = {"data": record["cell"], "method": record.get("chosen") or "", "seed": record["seed"]}
        if record["status"] != "ok":
            rows.append(row("score", None, skipped=record["status"], **about))
            continue
        found = [(name, record.get(name)) for name in (*MEASURES, *COSTS)]
        rows += [row(name, value, **about) for name, value in found if value is not None and np.isfinite(value)]
    return rows


def markdown(names: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    """A table."""
    cells = [[_cell(value) for value in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in [list(names), ["---"] * len(names), *cells])


def _cell(value: Any) -> str:
    if value is None or value == "":
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def table(cells: Sequence[Record]) -> str:
    """All cells."""
    names = ("cell", "entries", "measured by", *MEASURES, "oracle", *COSTS, "chosen")
    lines = [
        [
            r["cell"],
            None if r.get("n_train") in (None, "") else int(r["n_train"]),
            METRIC[r["observed"]] if r["status"] == "ok" else r["status"],
            *(r.get(name) for name in MEASURES),
            r["oracle"],
            *(r.get(name) for name in COSTS),
            r.get("chosen"),
        ]
        for r in cells
    ]
    return markdown(names, lines)


def in_all(cells: Sequence[Record]) -> str:
    """What holds over the cells, and the worst of them."""
    known = [r for r in cells if r["regret"] is not None]
    against = "regret" if any(r["best"] is not None for r in cells) else "above_truth"
    worse = worse_than_constant(cells)
    lines = [f"{len(cells)} cells, {sum(r['status'] != 'ok' for r in cells)} of them without a result"]
    if known and against == "regret":
        within = np.mean([lost(r) <= 1.0 for r in known])
        lines.append(f"regret within 3 % (labels and counts 0.01): {within:.1%} of {len(known)} cells")
    lines.append(f"worse than the constant model by more than 1 %: {len(worse)}")
    lines += [f"  {r['cell']}: {_cell(r['above_constant'])} ({r['status']})" for r in worse]
    for name, (low, high) in HELD.items():
        found = [r[name] for r in cells if r.get(name) is not None]
        if found:
            held = np.mean([low <= value <= high for value in found])
            lines.append(f"{name}: mean {np.mean(found):.3f}, within {low:g} to {high:g} in {held:.1%} of {len(found)}")
    costs = [r["cpu_seconds"] for r in cells if r.get("cpu_seconds") is not None]
    if costs:
        lines.append(
            f"CPU seconds of a fit: median {np.median(costs):.1f}, most {max(costs):.1f}, in all {sum(costs):.0f}"
        )
    worst = sorted(cells, key=lambda r: lost(r, against), reverse=True)[:WORST]
    lines.append(f"the worst by {against}:")
    lines += [f"  {r['cell']}: {_cell(r[against])} (best {r['oracle'] or 'not asked for'})" for r in worst]
    return "\n".join(lines)
