"""One fit of one cell in a process of its own, and the file that keeps what came of it."""

from __future__ import annotations

import csv
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.lib.children import in_child
from scripts.lib.gauntlet import models
from scripts.lib.gauntlet.grid import GRID
from scripts.lib.gauntlet.record import Cell, Problem
from scripts.lib.gauntlet.scores import scores
from scripts.lib.memory import forget_peak, resident

KEY = ("cell", "fit", "seed")
MEASURED = ("score", "constant", "truth", "coverage_50", "coverage_90", "ece", "cpu_seconds", "megabytes")
COLUMNS = (*KEY, "status", *MEASURED, "n_train", "n_test", "chosen", "warnings")
Record = dict[str, Any]


def measured(cell: Cell, name: str, seed: int) -> Record:
    """Make the problem, fit, and score: what the child does."""
    problem = cell.make(seed)
    models.warm_up(cell)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        forget_peak()
        before, begin = resident("VmRSS"), time.process_time()
        model = models.fit(models.estimator(cell, name, seed), cell, problem)
        spent, grown = time.process_time() - begin, resident("VmHWM") - before
        found = models.answer(model, cell, problem)
    words = {f"{item.category.__name__}: {str(item.message).split(chr(10))[0]}" for item in said}
    return {
        **scores(cell.observed, problem, found),
        "cpu_seconds": spent,
        "megabytes": grown / 1e6,
        "n_train": size_of(problem),
        "n_test": len(problem.y),
        "chosen": found.chosen,
        "warnings": " | ".join(sorted(words)),
    }


def size_of(problem: Problem) -> int:
    """Entries that are fitted."""
    if isinstance(problem.train, list):
        return int(sum((x == x).sum() for x in problem.train))
    return int(problem.train.nnz)


def measured_by_name(cell: str, name: str, seed: int) -> Record:
    return measured(GRID[cell], name, seed)


def record_of(cell: str, name: str, seed: int, seconds: float, gigabytes: float) -> Record:
    """What came of a fit, or why nothing did."""
    outcome = in_child(measured_by_name, (cell, name, seed), seconds, gigabytes, [__name__])
    return {"cell": cell, "fit": name, "seed": seed, "status": outcome.status, **(outcome.value or {})}


class Table:
    """Records in a csv file, each written as it comes; without a path they are kept in memory alone."""

    def __init__(self, path: str | None) -> None:
        self.path = None if path is None else Path(path)
        self.records: list[Record] = []
        if self.path is not None and self.path.exists():
            self.records = read(self.path)

    def __contains__(self, key: Sequence[Any]) -> bool:
        return tuple(key) in {tuple(record[name] for name in KEY) for record in self.records}

    def append(self, record: Record) -> None:
        self.records.append(record)
        if self.path is None:
            return
        new = not self.path.exists()
        with self.path.open("a", newline="", encoding="utf-8") as handle:
            writer = csv.DictWriter(handle, COLUMNS, restval="", lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow({name: "" if value is None else value for name, value in record.items()})


def read(path: Path) -> list[Record]:
    """The records of a file; a last line that was cut off is fitted again.

    Raises
    ------
    ValueError
        If its columns are not those of this study.
    """
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    rows = csv.DictReader(whole.splitlines(keepends=True))
    if tuple(rows.fieldnames or ()) != COLUMNS:
        raise ValueError(
            f"{path} must have the columns {', '.join(COLUMNS)}; got {rows.fieldnames}. Name another file."
        )
    return [_typed(row) for row in rows]


def _typed(row: dict[str, str]) -> Record:
    numbers = {name: float(row[name]) if row[name] else None for name in (*MEASURED, "n_train", "n_test")}
    return {**row, **numbers, "seed": int(row["seed"])}
