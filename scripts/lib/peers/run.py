"""Fits SMURFF or myFM to one fold, in an environment that has them: python run.py PEER IN.npz OUT.npz

IN.npz holds shape, coords, y, and as JSON text the settings labels, rank, sweeps, burn_in, precision, grouped,
threads, seed; features_0, features_1, ... (n_rows, F) are what is known of the rows of a mode, which SMURFF's Macau
prior and further columns of myFM's design take. With test_coords and test_y it asks for predictions. OUT.npz holds the
seconds of every sweep, the seconds and CPU seconds of the whole fit, and with test entries the predicted mean or
probability of a one and, for real values, the log density of test_y in the predictive mixture over the draws, and a new
observation for each draw.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import logsumexp, ndtr


class Clock:
    """Wall and CPU seconds since it was made, and the wall seconds between calls of `mark`."""

    def __init__(self) -> None:
        self.marks, self.cpu = [time.perf_counter()], time.process_time()

    def mark(self, *_: Any) -> tuple[bool, None]:
        self.marks.append(time.perf_counter())
        return False, None  # for myFM: do not stop, nothing to say

    def times(self) -> dict[str, Any]:
        total, cpu = time.perf_counter() - self.marks[0], time.process_time() - self.cpu
        return {"sweep_seconds": np.diff(self.marks), "seconds": total, "cpu_seconds": cpu}


class Draws(NamedTuple):
    """Latent values (S, n) of the test entries, and the noise precision of each draw."""

    latent: np.ndarray
    precision: np.ndarray


def features_of(fold: dict[str, Any]) -> dict[int, np.ndarray]:
    """What is known of the rows of some modes."""
    order = fold["coords"].shape[1]
    return {k: fold[f"features_{k}"] for k in range(order) if f"features_{k}" in fold}


def smurff(fold: dict[str, Any], settings: dict[str, Any]) -> tuple[dict[str, Any], Draws | None]:
    """The CP model with normal priors whose hyper-parameters are drawn; its defaults where a setting is None."""
    import smurff  # type: ignore[import-not-found]

    def tensor(coords: np.ndarray, y: np.ndarray) -> Any:
        columns = [np.ascontiguousarray(column, dtype=np.int32) for column in coords.T]
        return smurff.SparseTensor((np.ascontiguousarray(y), columns), [int(n) for n in fold["shape"]])

    sweeps, burn_in, precision = settings["sweeps"], settings["burn_in"], settings["precision"]
    if settings["labels"]:
        noise = smurff.ProbitNoise(0.5)
    elif precision == "learned":
        noise = smurff.AdaptiveNoise(1.0, 100.0)
    else:
        noise = smurff.FixedNoise() if precision is None else smurff.FixedNoise(precision)
    known, order = features_of(fold), fold["coords"].shape[1]
    clock = Clock()
    session = smurff.TrainSession(
        priors=["macau" if k in known else "normal" for k in range(order)],
        num_latent=settings["rank"],
        num_threads=settings["threads"],
        burnin=burn_in,
        nsamples=None if sweeps is None else sweeps - burn_in,
        seed=settings["seed"],
        verbose=0,
        save_freq=0,
    )
    session.setTrain(tensor(fold["coords"], fold["y"]), noise)
    for mode, features in known.items():
        session.addSideInfo(mode, features)
    if "test_coords" in fold:
        cells, cell = np.unique(fold["test_coords"], axis=0, return_inverse=True)
        session.setTest(tensor(cells, np.zeros(len(cells))))
    session.init()
    while session.step() is not None:
        clock.mark()
    found = clock.times()
    if "test_coords" not in fold:
        return found, None
    predictions = {tuple(item.coords): item.pred_all for item in session.getTestPredictions()}
    latent = np.array([predictions[tuple(c)] for c in cells.tolist()]).T[:, cell]
    fixed = 5.0 if precision is None else precision  # its default
    return found, Draws(latent, np.full(len(latent), np.nan if precision == "learned" else fixed))


def myfm(fold: dict[str, Any], settings: dict[str, Any]) -> tuple[dict[str, Any], Draws | None]:
    """A factorisation machine: pairwise products of one-hot coded rows and their features; a prior per mode if grouped.

    Features have a prior of their own then, too.
    """
    import myfm  # type: ignore[import-not-found]

    known, shape = features_of(fold), [int(n) for n in fold["shape"]]
    first = np.concatenate([[0], np.cumsum(shape)])

    def design(coords: np.ndarray) -> Any:
        n, order = coords.shape
        where = (np.repeat(np.arange(n), order), (coords + first[:-1]).ravel())
        one_hot = sparse.csr_matrix((np.ones(n * order), where), shape=(n, first[-1]))
        return sparse.hstack([one_hot, *(features[coords[:, k]] for k, features in known.items())], format="csr")

    sweeps = settings["sweeps"]
    more: dict[str, Any] = {} if sweeps is None else {"n_iter": sweeps, "n_kept_samples": sweeps - settings["burn_in"]}
    if settings["grouped"]:
        more["group_shapes"] = [*shape, *(features.shape[1] for features in known.values())]
    X = design(fold["coords"])
    clock = Clock()
    model = (myfm.MyFMGibbsClassifier if settings["labels"] else myfm.MyFMGibbsRegressor)(
        rank=settings["rank"], random_seed=settings["seed"]
    )
    model.fit(X, fold["y"], callback=clock.mark, **more)
    found = clock.times()
    if "test_coords" not in fold:
        return found, None
    rows = design(fold["test_coords"])
    squares = rows.multiply(rows).tocsr()
    latent = []
    for one in model.predictor_.samples:
        v = np.asarray(one.V)
        pairs = 0.5 * ((rows @ v) ** 2 - squares @ v**2).sum(axis=1)
        latent.append(one.w0 + rows @ np.asarray(one.w) + pairs)
    kept = model.history_.hypers[-len(latent) :]
    return found, Draws(np.array(latent), np.array([item.alpha for item in kept]))


def predictions(draws: Draws, settings: dict[str, Any], y: np.ndarray) -> dict[str, np.ndarray]:
    """What is predicted from draws: the probability of a one, or mean, log density of y and new observations."""
    if settings["labels"]:
        return {"predicted": ndtr(draws.latent).mean(axis=0)}
    found = {"predicted": draws.latent.mean(axis=0)}
    if np.isfinite(draws.precision).all():
        precision = draws.precision[:, None]
        terms = 0.5 * np.log(precision / (2.0 * np.pi)) - 0.5 * precision * (y - draws.latent) ** 2
        noise = np.random.default_rng(settings["seed"]).standard_normal(draws.latent.shape) / np.sqrt(precision)
        found |= {"log_density": logsumexp(terms, axis=0) - np.log(len(terms)), "observations": draws.latent + noise}
    return found


def main() -> None:
    """Run from the command line."""
    peer, path, result = sys.argv[1:]
    with np.load(path) as loaded:
        fold = dict(loaded)
    settings = json.loads(str(fold["settings"]))
    found, draws = {"smurff": smurff, "myfm": myfm}[peer](fold, settings)
    if draws is not None:
        found |= predictions(draws, settings, fold["test_y"])
    np.savez(result, **found)


if __name__ == "__main__":
    main()
