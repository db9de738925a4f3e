"""Stars as ordered levels beside stars as real values, with and without features, on MovieLens 100k.

A fold's test entries are those of its published file, its training entries those of the other four files; with --cold
they are all of so many items, drawn at random, and the training entries those of the other items. Of each model there
is the RMSE of the expected star, the share of stars in its 90 % intervals, and the mean log score of the star: of the
Gaussian the mass of its density between the half stars on both sides, and beyond them at the ends. Settings are the
defaults, or the sweeps asked for; nothing is chosen by test entries. Of myFM and SMURFF, which are installed into an
environment of their own, there is the RMSE, at --peer-rank with 600 sweeps, of which the first half are left out,
learned noise and a prior for each mode; with features these are further columns of myFM's, Macau's of SMURFF.

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

from scripts.lib.common import Row, parser, report, row, say, words
from scripts.lib.heldout import Entries, Split
from scripts.lib.peers.environment import prepare
from scripts.lib.peers.fits import ENVIRONMENT, PEERS, PeerSetting, run_peer
from tensorcep import CPOrdinalClassifier, CPRegressor, Features
from tensorcep.metrics import coverage, rmse

FOLDER = "movielens100k"
FOLDS = (1, 2, 3, 4, 5)
MODELS = (
    "gaussian",
    "ordinal",
    "gaussian+features",
    "ordinal+features",
    *PEERS,
    *(f"{name}+features" for name in PEERS),
)
PEER_SWEEPS = 600
COLUMNS = ["user", "item"]
Parts = tuple[pd.DataFrame, pd.DataFrame]  # training and test entries
# What parts real values into stars; masses below the last number are rounding.
EDGES, LEAST_MASS = (1.5, 2.5, 3.5, 4.5), 1e-15


def folder() -> Path | None:
    """Where the ratings are; None where they are not."""
    found = Path(os.environ.get("TENSORCEP_DATA", ""), FOLDER)
    return found if all((found / f"u{k}.test.gz").is_file() for k in FOLDS) else None


def ratings(where: Path, fold: int) -> Parts:
    """Training and test entries of a fold, users and items counted from 0."""
    parts = {k: _read(where / f"u{k}.test.gz") for k in FOLDS}
    return pd.concat([part for k, part in parts.items() if k != fold], ignore_index=True), parts[fold]


def cold(where: Path, n_items: int, seed: int) -> Parts:
    """All ratings, but those of so many items at random; and these."""
    table = pd.concat([_read(where / f"u{k}.test.gz") for k in FOLDS], ignore_index=True)
    items = np.random.default_rng(seed).choice(np.unique(table["item"]), n_items, replace=False)
    out = table["item"].isin(items)
    return table[~out], table[out]


def _read(path: Path) -> pd.DataFrame:
    with gzip.open(path, "rt") as lines:
        table = np.loadtxt(lines, dtype=np.int64)
    return pd.DataFrame({"user": table[:, 0] - 1, "item": table[:, 1] - 1, "star": table[:, 2]})


def features(where: Path) -> list[np.ndarray]:
    """What is known of users and items."""
    with np.load(where / "side.npz", allow_pickle=False) as side:
        return [side["F0"], side["F1"]]


def model_of(name: str, where: Path, given: dict[str, Any]) -> Any:
    """The estimator that a name of `MODELS` stands for."""
    prior: Any = "auto"
    if name.endswith("+features"):
        prior = {mode: Features(pd.DataFrame(X)) for mode, X in enumerate(features(where))}
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


def scores(name: str, where: Path, parts: Parts, given: dict[str, Any]) -> dict[str, float]:
    """Fit one of our models to training entries, and score it on test entries."""
    train, test = parts
    begin = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    model = model_of(name, where, {"shape": shape_of(parts), **given})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the number of sweeps is in the rows
        warnings.simplefilter("ignore", UserWarning)  # some items have test entries alone
        model.fit(train[COLUMNS].to_numpy(), train["star"].to_numpy())
        seconds = resource.getrusage(resource.RUSAGE_SELF).ru_utime - begin
        X, stars = test[COLUMNS].to_numpy(), test["star"].to_numpy()
        ordinal = name.startswith("ordinal")
        found = {"rmse": rmse(stars.astype(float), model.expected_value(X) if ordinal else model.predict(X))}
        if not ordinal:
            found["coverage_90"] = coverage(stars, *model.predict_interval(X, 0.9).T)
        found["log_score"] = float(log_scores(model, X, stars).mean())
    return {**found, "sweeps": model.n_iter_, "cpu_seconds": seconds}


def scores_of_peer(name: str, where: Path, parts: Parts, rank: int, seed: int, python: Path) -> dict[str, float]:
    """The same of another package, which says no law of the stars."""
    train, test = (Entries(part[COLUMNS].to_numpy(), part["star"].to_numpy(dtype=float)) for part in parts)
    peer, setting = name.split("+")[0], PeerSetting(rank, PEER_SWEEPS, PEER_SWEEPS // 2, "learned", grouped=True)
    known = features(where) if name.endswith("+features") else None
    found = run_peer(python, peer, Split(FOLDER, 0, shape_of(parts), train, [test]), setting, seed=seed, features=known)
    error = rmse(test.y, found["predicted"])
    return {"rmse": error, "sweeps": PEER_SWEEPS, "cpu_seconds": float(found["cpu_seconds"])}


def shape_of(parts: Parts) -> tuple[int, ...]:
    """Users and items, of the training and the test entries."""
    return tuple(1 + max(int(part[column].max()) for part in parts) for column in COLUMNS)


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    options = parser(__doc__, folds="1,2", seed=0)
    options.add_argument("--models", type=words(*MODELS), default=",".join(MODELS[:2]), help=f"of {', '.join(MODELS)}")
    options.add_argument("--rank", default="auto", help="components (default: auto)")
    options.add_argument("--method", default="auto", help="inference method (default: auto)")
    options.add_argument("--sweeps", default="auto", help="sweeps of every chain (default: auto)")
    options.add_argument("--entries", type=int, help="training entries (default: all of the fold)")
    options.add_argument("--cold", type=int, help="in place of folds: hold out all ratings of so many items")
    options.add_argument("--peer-rank", type=int, default=10, help="components of peers (default: %(default)s)")
    options.add_argument("--environment", type=Path, default=ENVIRONMENT, help="of peers (default: %(default)s)")
    args = options.parse_args(argv)
    where = folder()
    if where is None:
        reason = f"no {FOLDER}/u1.test.gz to u5.test.gz in the folder that TENSORCEP_DATA names; see --help"
        report([row("log_score", None, data=FOLDER, skipped=reason)], args.json)
        return
    given = {"random_state": args.seed, "method": args.method, "n_jobs": 1}
    given |= {"rank": _number(args.rank), "max_iter": _number(args.sweeps)}
    peers = [peer for peer in PEERS if any(name.startswith(peer) for name in args.models)]
    python = prepare(args.environment, peers) if peers else Path()
    rows: list[Row] = []
    for fold in args.folds if args.cold is None else [0]:
        train, test = ratings(where, fold) if args.cold is None else cold(where, args.cold, args.seed)
        if args.entries is not None:
            train = train.sample(min(args.entries, len(train)), random_state=fold)
        for name in args.models:
            if name.startswith(PEERS):
                found = scores_of_peer(name, where, (train, test), args.peer_rank, args.seed, python)
            else:
                found = scores(name, where, (train, test), given)
            say(f"{name}, fold {fold}: " + ", ".join(f"{metric} {value:.4g}" for metric, value in found.items()))
            common = {"data": FOLDER, "fold": fold, "cold": args.cold or 0, "method": name, "seed": args.seed}
            rows += [row(metric, value, **common) for metric, value in found.items()]
    report(rows, args.json)


def _number(text: str) -> Any:
    try:
        return text if text == "auto" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a whole number or auto is allowed; got {text!r}") from None


if __name__ == "__main__":
    main()
