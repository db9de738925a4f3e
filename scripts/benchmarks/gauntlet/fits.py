"""The default of every model and the settings that the oracle chooses among; one fit in a process of its own.

What came of a fit is a record of a csv file, written as it comes.
"""

from __future__ import annotations

import csv
import itertools
import multiprocessing
import resource
import signal
import time
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

import tensorcep as tc
from scripts.benchmarks.gauntlet.problems import GRID, RECOMMENDER, Cell, Problem
from scripts.benchmarks.gauntlet.scores import DEFAULT, Answer, Record, scores
from scripts.benchmarks.heldout import DRAWS, probability_below
from scripts.benchmarks.speed.memory import resident

RANKS = (2, 4, 8, 16, 32)
INTERACTIONS = ("cp", "main+cp", "all")
CP = {"values": tc.CPRegressor, "labels": tc.CPClassifier, "counts": tc.CPCountRegressor}
ENGINES = {
    "values": ("cep", "laplace", "vmp", "gibbs", "wopt"),
    "labels": ("cep", "laplace", "vmp", "gibbs", "pg-gibbs", "pg-vb", "wopt"),
    "counts": ("cep", "laplace", "wopt", "pg-gibbs", "pg-vb"),
}
STREAM_ENGINES = {"values": ("cep", "vmp"), "labels": ("cep", "vmp"), "counts": ("cep",)}
FACTOR_ENGINES = ("vb-factorized", "vb", "gibbs")
CALIBRATED = 1000  # test cells of which the predictive probability below the value is taken, by draws
WARM_UP = {"values": 0.5, "labels": 1.0, "counts": 2.0}  # multiples of 0 and 1 that serve as y


class Standardised:
    """A factor model of columns of unit scale: what a careful user would do by hand."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, x: np.ndarray) -> Standardised:
        self.mean, sd = np.nanmean(x, axis=0), np.nanstd(x, axis=0)
        self.sd = np.where(sd > 0.0, sd, 1.0)
        self.model.fit((x - self.mean) / self.sd)
        return self

    def predict_missing(self, return_std: bool) -> tuple[np.ndarray, np.ndarray]:
        mean, sd = self.model.predict_missing(return_std=True)
        return self.mean + self.sd * mean, self.sd * sd


def default(cell: Cell, seed: int) -> Any:
    """The estimator with nothing set but the seed, and what data the model is for."""
    if cell.model in ("cp", "stream"):
        return CP[cell.observed](random_state=seed)
    if cell.model == "cmf":
        return tc.CollectiveMatrixFactorization(RECOMMENDER, random_state=seed)
    if cell.model == "gfa":
        return tc.GroupFactorAnalysis(random_state=seed)
    if cell.model == "fa":
        return tc.BayesianFactorAnalysis(random_state=seed)
    return tc.BayesianPCA(likelihood="bernoulli" if cell.observed == "labels" else "gaussian", random_state=seed)


def oracles(cell: Cell, engines: Sequence[str], ranks: Sequence[int], interactions: Sequence[str]) -> list[str]:
    """Names of the settings that the oracle chooses among; `engines`: of these alone, where any are given."""
    if cell.model == "cp":
        named = itertools.product(ENGINES[cell.observed], ranks, interactions)
    elif cell.model == "stream":
        named = itertools.product(STREAM_ENGINES[cell.observed], ranks, ("fixed", "learned"))
    elif cell.model in ("pca", "fa") and cell.observed == "values":
        models = itertools.product(("pca", "fa"), ("as-they-are", "standardised"))
        named = itertools.product(FACTOR_ENGINES, ranks, ("/".join(words) for words in models))
    else:
        named = itertools.product(FACTOR_ENGINES, ranks, ("",))
    return [" ".join(str(word) for word in words).strip() for words in named if not engines or words[0] in engines]


def estimator(cell: Cell, name: str, seed: int) -> Any:
    """The estimator that a name of `oracles` stands for, or the default."""
    if name == DEFAULT:
        return default(cell, seed)
    method, rank, *rest = name.split()
    how: dict[str, Any] = {"method": method, "random_state": seed}
    if cell.model == "cp":
        if method in ("pg-gibbs", "pg-vb") and cell.observed == "counts":
            how["likelihood"] = "negbinomial"
        return CP[cell.observed](rank=int(rank), interactions=rest[0], **how)
    if cell.model == "stream":
        return CP[cell.observed](rank=int(rank), prior=rest[0], **how)
    if rest:
        kind, columns = rest[0].split("/")
        model = {"pca": tc.BayesianPCA, "fa": tc.BayesianFactorAnalysis}[kind](n_components=int(rank), **how)
        return Standardised(model) if columns == "standardised" else model
    return default(cell, seed).set_params(n_components=int(rank), **how)


def fit(model: Any, cell: Cell, problem: Problem) -> Any:
    if cell.model == "cp":
        return model.fit(problem.train)
    if cell.model == "stream":
        ends = np.linspace(0, problem.train.nnz, cell.batches + 1).astype(int)
        for part in (slice(a, b) for a, b in itertools.pairwise(ends) if b > a):
            model.partial_fit(problem.train.coords[part], problem.train.values[part])
        return model
    return model.fit(problem.train[0] if cell.model in ("pca", "fa") else problem.train)


def warm_up(cell: Cell) -> None:
    """Fit a few entries, so that what the timed fit runs is compiled."""
    if cell.model not in ("cp", "stream"):
        return
    rng = np.random.default_rng(0)
    coords = np.unique(rng.integers(0, 8, (200, 3)), axis=0)
    y = WARM_UP[cell.observed] * rng.integers(0, 2, len(coords))
    y = y + rng.standard_normal(len(y)) if cell.observed == "values" else y
    tensor = tc.SparseTensor.from_coo(coords, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few sweeps do not converge
        fit(CP[cell.observed](max_iter=20, random_state=0), cell._replace(batches=2), Problem(tensor, coords, y))


def answer(model: Any, cell: Cell, problem: Problem) -> Answer:
    if cell.model not in ("cp", "stream"):  # hidden cells are (number of the matrix, row, column)
        number, rows, columns = problem.coords.T
        one = cell.model in ("pca", "fa")
        views = range(1 if one else len(problem.train))
        filled = [model.predict_missing(*(() if one else (m,)), return_std=True) for m in views]
        cells = list(zip(number, rows, columns, strict=True))
        mean, sd = (np.array([filled[m][k][i, j] for m, i, j in cells]) for k in (0, 1))
        below = ndtr((problem.y - mean) / np.maximum(sd, np.finfo(float).tiny)) if cell.observed != "labels" else None
        return Answer(mean, below, "" if isinstance(model, Standardised) else str(model.method))
    chosen = f"{model.method_} {model.rank_} {model.prior_}" if hasattr(model, "prior_") else model.method_
    if cell.observed == "labels":
        return Answer(model.predict_proba(problem.coords)[:, 1], None, chosen)
    if cell.observed == "counts":
        prediction = np.asarray(model.log_score(problem.coords, problem.y))
    else:
        prediction = np.asarray(model.predict(problem.coords))
    below = None
    if model.has_uncertainty():
        some = spread(len(problem.y))
        draws = model.sample_y(problem.coords[some], DRAWS, random_state=0)
        below = probability_below(problem.y[some], draws)
    return Answer(prediction, below, chosen)


def spread(n: int) -> np.ndarray:
    """Places of CALIBRATED of n cells, all over: the first ones of a real tensor are those of its first rows."""
    return np.unique(np.linspace(0, n - 1, min(n, CALIBRATED)).astype(int))


GRACE = 1.5  # times the CPU seconds, plus a minute: what a child may take by the clock


class Outcome(NamedTuple):
    """What a child hands back, or why it did not: "ok", "time limit", "crash: signal 11", "error: ValueError: ..."."""

    status: str
    value: Any = None


def in_child(work: Callable[..., Any], arguments: Sequence[Any], seconds: float, gigabytes: float) -> Outcome:
    """Call a function in a process of its own, whose time and memory are limited and whose end ends nothing else."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # imported once for all children
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_call, args=(there, work, tuple(arguments), seconds, gigabytes))
    child.start()
    there.close()
    try:
        outcome = here.recv() if here.poll(GRACE * seconds + 60.0) else Outcome("time limit")
    except EOFError:
        outcome = None
    child.join(1.0)
    if child.is_alive():
        child.kill()
        child.join()
    if outcome is not None:
        return outcome
    code = child.exitcode or 0
    known = {-signal.SIGXCPU: "time limit", -signal.SIGKILL: "killed (time or memory)"}
    return Outcome(known.get(code, f"crash: signal {-code}" if code < 0 else f"crash: exit code {code}"))


def _call(
    answer: Connection, work: Callable[..., Any], given: tuple[Any, ...], seconds: float, gigabytes: float
) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (max(1, int(seconds)), max(1, int(seconds)) + 5))
    resource.setrlimit(resource.RLIMIT_AS, (int(gigabytes * 1e9), int(gigabytes * 1e9)))
    try:
        answer.send(Outcome("ok", work(*given)))
    except Exception as error:
        sentence = " ".join(str(error).split())
        answer.send(Outcome(f"error: {type(error).__name__}: {sentence[:300]}"))
        if not isinstance(error, (ValueError, TypeError, OSError, ArithmeticError, MemoryError)):
            raise  # with its traceback: it may be the study's own


KEY = ("cell", "fit", "seed")
MEASURED = ("score", "constant", "truth", "coverage_50", "coverage_90", "ece", "cpu_seconds", "megabytes")
COLUMNS = (*KEY, "status", *MEASURED, "n_train", "n_test", "chosen", "warnings")


def measured(cell: Cell | str, name: str, seed: int) -> Record:
    """Make the problem, fit, and score: what the child does."""
    cell = GRID[cell] if isinstance(cell, str) else cell
    problem = cell.make(seed)
    warm_up(cell)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if Path("/proc/self/clear_refs").exists():
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is the present value again
        before, begin = resident("VmRSS"), time.process_time()
        model = fit(estimator(cell, name, seed), cell, problem)
        spent, grown = time.process_time() - begin, resident("VmHWM") - before
        found = answer(model, cell, problem)
    said_once = {f"{item.category.__name__}: {str(item.message).split(chr(10))[0]}" for item in said}
    train = problem.train
    n_train = int(sum((x == x).sum() for x in train) if isinstance(train, list) else train.nnz)
    record = {**scores(cell.observed, problem, found), "cpu_seconds": spent, "megabytes": grown / 1e6}
    record |= {"n_train": n_train, "n_test": len(problem.y), "chosen": found.chosen}
    return record | {"warnings": " | ".join(sorted(said_once))}


def record_of(cell: str, name: str, seed: int, seconds: float, gigabytes: float) -> Record:
    """What came of a fit, or why nothing did."""
    outcome = in_child(measured, (cell, name, seed), seconds, gigabytes)
    return {"cell": cell, "fit": name, "seed": seed, "status": outcome.status, **(outcome.value or {})}


class Table:
    """Records in a csv file, each written as it comes; without a path they are kept in memory alone."""

    def __init__(self, path: str | None) -> None:
        self.path = None if path is None else Path(path)
        self.records = read(self.path) if self.path is not None and self.path.exists() else []

    def __contains__(self, key: Sequence[Any]) -> bool:
        return tuple(key) in {tuple(record[name] for name in KEY) for record in self.records}

    def append(self, record: Record) -> None:
        self.records.append(record)
        if self.path is not None:
            new = not self.path.exists()
            with self.path.open("a", newline="", encoding="utf-8") as handle:
                writer = csv.DictWriter(handle, COLUMNS, restval="", lineterminator="\n")
                if new:
                    writer.writeheader()
                writer.writerow({name: "" if value is None else value for name, value in record.items()})


def read(path: Path) -> list[Record]:
    """The records of a file, a ValueError where its columns differ; a last line that was cut off is fitted again."""
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    rows = csv.DictReader(whole.splitlines(keepends=True))
    if tuple(rows.fieldnames or ()) != COLUMNS:
        wanted = f"{path} must have the columns {', '.join(COLUMNS)}"
        raise ValueError(f"{wanted}; got {rows.fieldnames}. Name another file.")
    named, found = (*MEASURED, "n_train", "n_test"), []
    for row in rows:
        numbers = {name: float(row[name]) if row[name] else None for name in named}
        found.append({**row, **numbers, "seed": int(row["seed"])})
    return found
