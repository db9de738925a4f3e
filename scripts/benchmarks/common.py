"""What the scripts share: the same options everywhere, rows of results, a table of them, and a JSON file."""

from __future__ import annotations

import argparse
import inspect
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tensorcep.core.persist.archive import atomic_write

Row = dict[str, Any]

# The columns that a row starts with, where it has them; what else a script measures comes after.
COLUMNS = ("data", "fold", "rank", "method", "sweep", "metric", "value", "seconds")


def numbers(text: str) -> list[int]:
    """Integers between commas, in any notation: "1,2" or "1e5,1e6"."""
    values = [float(word) for word in text.split(",")]
    if any(value != int(value) for value in values):
        raise argparse.ArgumentTypeError(f"whole numbers between commas are allowed; got {text!r}")
    return [int(value) for value in values]


def words(*allowed: str) -> Callable[[str], list[str]]:
    """A parser of words between commas, each one of those allowed (any when none is given)."""

    def parse(text: str) -> list[str]:
        found = [word.strip() for word in text.split(",") if word.strip()]
        wrong = [word for word in found if allowed and word not in allowed]
        if wrong or not found:
            raise argparse.ArgumentTypeError(f"{wrong[:1] or text!r} is not among {', '.join(allowed)}")
        return found

    return parse


SHARED: dict[str, tuple[Callable[[str], Any], str]] = {
    "data": (words(), "data sets, between commas"),
    "folds": (numbers, "folds, between commas"),
    "ranks": (numbers, "ranks, between commas"),
    "methods": (words(), "inference methods, between commas"),
    "sweeps": (int, "sweeps of each fit"),
    "seed": (int, "seed of the first random draw"),
    "threads": (numbers, "numbers of threads, between commas"),
}


def parser(description: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """A parser with --json and those shared options that `defaults` names, for example ``ranks="3,5", seed=0``."""
    result = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        read, text = SHARED[name]
        shown = "the estimator's own" if default is None else default
        result.add_argument(f"--{name}", type=read, default=default, help=f"{text} (default: {shown})")
    result.add_argument("--json", metavar="FILE", help="write the rows as JSON to this file, or to stdout with -")
    return result


def check_words(p: argparse.ArgumentParser, options: argparse.Namespace, **allowed: Iterable[str]) -> None:
    """End with a sentence where an option holds a word that it may not."""
    for name, known in allowed.items():
        for word in getattr(options, name):
            if word not in known:
                p.error(f"argument --{name}: {word!r} is not among {', '.join(known)}")


def row(metric: str, value: float | None, **others: Any) -> Row:
    """One flat result; columns that are None are left out, and a value that is not finite becomes None."""
    if value is not None:
        value = float(value) if math.isfinite(value) else None
    found: Row = {**others, "metric": metric, "value": value}
    found = {name: v for name, v in found.items() if v is not None or name == "value"}
    return {name: found[name] for name in sorted(found, key=_position)}


def _position(name: str) -> int:
    return COLUMNS.index(name) if name in COLUMNS else len(COLUMNS)


# The model of the CEP paper and how it is fitted, whatever the estimators' own defaults are.
PAPER = {"method": "cep", "prior": "fixed", "interactions": "cp", "n_ensemble": 1, "max_iter": 200}


def paper_model(estimator: Any, rank: int = 8, **changes: Any) -> Any:
    """An estimator of this class with the settings of the CEP paper, but for `changes`: nothing is learned of data."""
    names = inspect.signature(estimator).parameters
    own = {"likelihood": "poisson"} if "dispersion" in names else {}
    own |= {"lower_limit": None} if "lower_limit" in names else {}
    return estimator(rank, **with_settings(estimator, {**PAPER, **own, **changes}))


def with_settings(estimator: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The parameters of an estimator; what is given beside them goes into a record of its method, if that has it."""
    from tensorcep.cp.settings import SETTINGS

    names = inspect.signature(estimator).parameters
    params = {name: value for name, value in given.items() if name in names}
    engine = SETTINGS.get(params["method"]) if isinstance(params.get("method"), str) else None
    if engine is not None:
        own = {name: value for name, value in given.items() if name not in names and hasattr(engine, name)}
        params["method"] = engine(**own) if own else engine.name
    return params


def grouped(rows: Iterable[Row], names: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by what they have in these columns, None for nothing, in the order in which they come."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for item in rows:
        found.setdefault(tuple(item.get(name) for name in names), []).append(item)
    return found


def say(text: str) -> None:
    """Progress, for the person who waits: to stderr, so that stdout holds results only."""
    print(text, file=sys.stderr, flush=True)


def report(rows: Sequence[Row], json_file: str | None, tables: Sequence[Sequence[Row]] | None = None) -> None:
    """Write the rows as JSON if asked to ('-' is stdout); otherwise print them, or `tables` made from them, too."""
    text = "[\n" + ",\n".join(json.dumps(item, allow_nan=False) for item in rows) + "\n]\n"
    if json_file == "-":
        sys.stdout.write(text)
        return
    if json_file:
        with atomic_write(json_file) as handle:
            handle.write(text.encode("utf-8"))
    print("\n\n".join(table(lines) for lines in ([rows] if tables is None else tables)))


def table(rows: Sequence[Row]) -> str:
    """Columns that differ between rows, aligned, under one line with those that do not."""
    names = sorted(dict.fromkeys(name for item in rows for name in item), key=_position)
    same = [n for n in names if n != "value" and len(rows) > 1 and len({repr(item.get(n)) for item in rows}) == 1]
    shown = [n for n in names if n not in same]
    cells = [shown, *([cell_text(item.get(n)) for n in shown] for item in rows)]
    widths = [max(len(line[j]) for line in cells) for j in range(len(shown))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    return "\n".join([*([", ".join(f"{n}={cell_text(rows[0][n])}" for n in same)] if same else []), *lines])


def cell_text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
