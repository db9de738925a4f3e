"""Stars as ordered levels beside stars as real values, with and without features, on MovieLens 100k.

A fold's test entries are those of its published file, its training entries those of the other four files. Of each model
there is the RMSE of the expected star and the mean log score of the star: of the Gaussian the mass of its density
between the half stars on both sides, and beyond them at the ends. Settings are the defaults, or the sweeps asked for;
nothing is chosen by test entries.

The files come with GroupLens' licence, which forbids to pass them on: put u1.test.gz to u5.test.gz and, for features,
side.npz (F0 of users, F1 of items) in `movielens100k` of the folder that TENSORCEP_DATA names.
"""

from __future__ import annotations

import argparse
import gzip
import os
import resource
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning

from scripts.lib.common import Row, parser, report, row, words
from tensorcep import CPOrdinalClassifier, CPRegressor, Features
from tensorcep.metrics import rmse

FOLDER = "movielens100k"
FOLDS = (1, 2, 3, 4, 5)
MODELS = ("gaussian", "ordinal", "gaussian+features", "ordinal+features")
COLUMNS = ["user", "item"]
# What parts real values into stars; masses below the last number are rounding.
EDGES, LEAST_MASS = (1.5, 2.5, 3.5, 4.5), 1e-15


def folder() -> Path | None:
    """Where the ratings are; None where they are not."""
    found = Path(os.environ.get("TENSORCEP_DATA", ""), FOLDER)
    return found if all((found / f"u{k}.test.gz").is_file() for k in FOLDS) else None


def ratings(where: Path, fold: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Training and test entries of a fold, users and items counted from 0."""
    parts = {k: _read(where / f"u{k}.test.gz") for k in FOLDS}
    return pd.concat([part for k, part in parts.items() if k != fold], ignore_index=True), parts[fold]


def _read(path: Path) -> pd.DataFrame:
    with gzip.open(path, "rt") as lines:
        table = np.loadtxt(lines, dtype=np.int64)
    return pd.DataFrame({"user": table[:, 0] - 1, "item": table[:, 1] - 1, "star": table[:, 2]})


def features(where: Path) -> dict[str, Features]:
    """What is known of users and items."""
    with np.load(where / "side.npz", allow_pickle=False) as side:
        return {name: Features(pd.DataFrame(side[key])) for name, key in zip(COLUMNS, ("F0", "F1"), strict=True)}


def model_of(name: str, where: Path, given: dict[str, Any]) -> Any:
    """The estimator that a name of `MODELS` stands for."""
    prior: Any = features(where) if name.endswith("+features") else "auto"
    if name.startswith("ordinal"):
        return CPOrdinalClassifier(prior=prior, **given)
    return CPRegressor(prior=prior, lower_limit=None, **given)


def log_scores(model: Any, X: np.ndarray, stars: np.ndarray) -> np.ndarray:
    """Log predictive mass of every star, (n,)."""
    if isinstance(model, CPOrdinalClassifier):
        return np.asarray(model.log_score(X, stars))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # some items have test entries alone
        below = [model.anomaly_score(X, np.full(len(X), edge))["lower_tail"].to_numpy() for edge in EDGES]
    mass = np.diff(np.stack(below, axis=1), axis=1, prepend=0.0, append=1.0)
    return np.asarray(np.log(np.maximum(mass[np.arange(len(stars)), stars.astype(int) - 1], LEAST_MASS)))


def measure(name: str, where: Path, fold: int, entries: int | None, given: dict[str, Any]) -> list[Row]:
    """Fit one model to a fold, or to so many of its entries, and score it."""
    train, test = ratings(where, fold)
    if entries is not None:
        train = train.sample(min(entries, len(train)), random_state=fold)
    shape = tuple(1 + int(max(train[c].max(), test[c].max())) for c in COLUMNS)
    begin = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    model = model_of(name, where, {"shape": shape, **given})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the number of sweeps is in the rows
        warnings.simplefilter("ignore", UserWarning)  # some items have test entries alone
        model.fit(train[COLUMNS].to_numpy(), train["star"].to_numpy())
        seconds = resource.getrusage(resource.RUSAGE_SELF).ru_utime - begin
        X, stars = test[COLUMNS].to_numpy(), test["star"].to_numpy()
        mean = model.expected_value(X) if name.startswith("ordinal") else model.predict(X)
        found = {"rmse": rmse(stars.astype(float), mean), "log_score": float(log_scores(model, X, stars).mean())}
    common = {"data": FOLDER, "fold": fold, "method": name, "sweep": model.n_iter_, "seconds": seconds}
    return [row(metric, value, **common) for metric, value in found.items()]


def main(argv: Sequence[str] | None = None) -> None:
    options = parser(__doc__, folds="1,2", seed=0)
    options.add_argument("--models", type=words(*MODELS), default=",".join(MODELS[:2]), help=f"of {', '.join(MODELS)}")
    options.add_argument("--rank", default="auto", help="components (default: auto)")
    options.add_argument("--method", default="auto", help="inference method (default: auto)")
    options.add_argument("--sweeps", default="auto", help="sweeps of every chain (default: auto)")
    options.add_argument("--entries", type=int, help="training entries (default: all of the fold)")
    args = options.parse_args(argv)
    where = folder()
    if where is None:
        reason = f"no {FOLDER}/u1.test.gz to u5.test.gz in the folder that TENSORCEP_DATA names; see --help"
        report([row("log_score", None, data=FOLDER, skipped=reason)], args.json)
        return
    given = {"random_state": args.seed, "method": args.method, "n_jobs": 1}
    given |= {"rank": _number(args.rank), "max_iter": _number(args.sweeps)}
    rows: list[Row] = []
    for fold in args.folds:
        for name in args.models:
            rows += measure(name, where, fold, args.entries, given)
    report(rows, args.json)


def _number(text: str) -> Any:
    try:
        return text if text == "auto" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a whole number or auto is allowed; got {text!r}") from None


if __name__ == "__main__":
    main()
