"""A batch before it is learned: its predictions, its anomaly scores, and values that what is known makes impossible."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import numpy as np
import pandas as pd

from tensorcep.core.checks import printable, warn_user
from tensorcep.cp.calibration.prequential import Predicted, Standing
from tensorcep.cp.fitted.anomaly import scored, with_scores
from tensorcep.cp.fitted.predict import BLOCK_CELLS, given_at
from tensorcep.cp.model.parameters import with_parameter
from tensorcep.cp.posterior.belief import Posterior
from tensorcep.cp.posterior.components import Components
from tensorcep.cp.stream.adf import BatchProblem
from tensorcep.cp.targets.base import ERRORS, outweighing
from tensorcep.entries.io import Batch
from tensorcep.likelihoods.base import Likelihood


def belief_before(batch: BatchProblem) -> Components:
    """What is known of the rows of a batch before it is learned, at its time."""
    known, prior = batch.problem, batch.problem.prior
    none = np.zeros(len(prior.eta), dtype=bool)
    rows = (known.shape, known.rank, prior.Lam, prior.eta)
    return Posterior(*rows, known.noise_prior, none, batch.dispersion).components()


def predictions(batch: BatchProblem, belief: Components, rows: np.ndarray, y: np.ndarray | None = None) -> Predicted:
    """What a belief says of the entries of a batch, which lie in these of its rows (n, K), or had they these values.

    It is one Gaussian, whose noise is the same everywhere.
    """
    likelihood, parameter = with_parameter(batch.problem.likelihood, belief.theta)
    y = batch.y if y is None else y
    mean, score, variance = np.empty((3, len(y)))
    for first in range(0, len(score), BLOCK_CELLS):
        part = slice(first, first + BLOCK_CELLS)
        m, v, theta = given_at(likelihood, parameter, belief, rows, batch.extent, part)
        given = (m[0], v[0], theta[0])
        score[part] = likelihood.logpdf(y[part], *given)
        if likelihood.observes == "labels":
            mean[part] = np.where(y[part] > 0.0, np.exp(score[part]), -np.expm1(score[part]))
            variance[part] = mean[part] * (1.0 - mean[part])
        else:
            mean[part], variance[part] = likelihood.predict(*given)
    return Predicted(mean, score, variance)


# Values that what is known makes impossible: left out, unless they go on and are a change.
#
# One such value would decide all rows that it touches and the noise: a Gaussian likelihood follows it wherever it is.
# It is told from what a stream may bring by its surprise: what it costs beside the mean, in nats, z^2 / 2 of a real
# value z standard deviations from it. A sum of squares of any law with a variance outgrows its largest one, so a
# surprise of as much as all n entries so far, of half a nat each, and all smaller ones of its batch together is no
# entry of their law, however long its tails are. The rows' law may be wrong about what is usual, so that a value is
# left out only if it also is so without them: beyond three standard deviations of all values so far, or a count above
# the sum of all before.
#
# Where such values go on they are no errors. Page's cumulative sum of log likelihood ratios tells (Page 1954,
# Continuous inspection schemes): of entries of which half are outliers, against errors in a tenth of all. While it is
# at its limit, all values are learned.

# The least surprise of an outlier, in nats, however few entries there were: 10 standard deviations.
SURPRISING = 50.0
# So many standard deviations about their mean hold 95 % of any law with one peak (Vysochanskij and Petunin, 1980).
OUTSIDE = 3.0
# The share of outliers after a change. A change that is none is found once in about e^CERTAIN entries; five outliers
# in a row are one.
CHANGED, CERTAIN = 0.5, float(np.log(1000.0))


def outliers_of(batch: BatchProblem, values: np.ndarray, before: Predicted, n: int, standing: Standing) -> np.ndarray:
    """Which values (N,) of a batch are outliers after n entries with this standing, (N,) bool."""
    surprise = _surprises(batch, values, before)
    if batch.problem.likelihood.observes == "counts":
        outside = values > standing.total
    else:
        outside = (values - standing.mean) ** 2 > OUTSIDE**2 * standing.spread
    found = (surprise > SURPRISING) & (outside | (standing.seen == 0))
    return found & outweighing(surprise, 0.5 * n) if found.any() else found


def _surprises(batch: BatchProblem, values: np.ndarray, before: Predicted) -> np.ndarray:
    """What the values (N,) of a batch cost beside their means, in nats; what is no number costs all."""
    with np.errstate(all="ignore"):
        if batch.problem.likelihood.observes == "values":
            found = 0.5 * (values - before.mean) ** 2 / before.variance
        else:
            found = -before.score
            if found.max() > SURPRISING:  # the mean costs something, too
                best = predictions(batch, belief_before(batch), batch.rows, np.floor(before.mean)).score
                found = found + np.where(np.isfinite(best), best, 0.0)
    return np.where(np.isnan(found), np.inf, found)


def change_after(before: float, out: np.ndarray) -> float:
    """The evidence of a change, from 0 to CERTAIN, after entries of which these are outliers."""
    k, n = int(out.sum()), len(out)
    found = before + k * np.log(CHANGED / ERRORS) + (n - k) * np.log((1.0 - CHANGED) / (1.0 - ERRORS))
    return float(np.clip(found, 0.0, CERTAIN))


def without(batch: Batch, out: np.ndarray) -> Batch:
    """The batch without some of its entries, (N,) bool."""
    keys = tuple(None if of is None else [of[i] for i in np.flatnonzero(~out)] for of in batch.keys)
    weights, extents = (None if part is None else part[~out] for part in (batch.weights, batch.extents))
    left = batch._replace(keys=keys, coords=batch.coords[~out], values=batch.values[~out])
    return left._replace(weights=weights, extents=extents)


def warn_of_outliers(batch: Batch, out: np.ndarray, order: np.ndarray, why: Callable[[int], str]) -> None:
    """Warn of values of a batch that were left out, if any were, naming the first by this order and why."""
    if not out.any():
        return
    place = int(np.argmax(np.where(out, order, -np.inf)))
    each = (at if of is None else of for of, at in zip(batch.keys, batch.coords.T, strict=True))
    cell = ", ".join(printable(str(of[place])) for of in each)
    more = f", and {int(out.sum()) - 1} more of the batch," if out.sum() > 1 else ""
    warn_user(
        f"the value {batch.values[place]:g} of the cell ({cell}){more} was taken for an error and not learned: "
        f"{why(place)}; correct it, or, if it is right, go on: values like it are learned as soon as they are common.",
        UserWarning,
    )


def anomaly_scores(batch: Batch, predicted: tuple[np.ndarray, ...] | None = None) -> pd.DataFrame:
    """The anomaly scores of the entries of a batch; of a first one, which nothing predicts, they are missing."""
    names, n = [k if name is None else name for k, name in enumerate(batch.names)], len(batch.values)
    keys = zip(batch.keys, batch.coords.T, strict=True)
    frame = pd.DataFrame(dict(zip(names, (at if own is None else own for own, at in keys), strict=True)))
    return with_scores(frame, (batch.values, *(predicted or (*np.full((5, n), np.nan), np.ones(n, dtype=bool)))))


def predicted_scores(likelihood: Likelihood, batch: BatchProblem, unseen: np.ndarray) -> tuple[np.ndarray, ...]:
    """The anomaly scores of the entries of a batch before it is learned, and which are of unseen rows (N,) bool."""
    return *scored(likelihood, belief_before(batch), batch.rows, batch.y, batch.extent), unseen


@contextlib.contextmanager
def watching(scores: Any) -> Iterator[Callable[[pd.DataFrame], Any] | None]:
    """What is called with the scores of every batch: None, what was given, or what writes them to a csv file."""
    if scores is None or callable(scores):
        yield scores
        return
    if not isinstance(scores, (str, os.PathLike)):
        raise TypeError(f"scores must be a path or callable; got {type(scores).__name__}.")
    with open(scores, "wb") as handle:
        yield lambda frame: write_scores(handle, frame)


def write_scores(handle: BinaryIO, frame: pd.DataFrame) -> None:
    """Write the scores of a batch to an open file, with the names of the columns if they are the first there."""
    names = [f"mode_{name}" if isinstance(name, int) else name for name in frame.columns]
    table = frame.set_axis(names, axis=1)
    text = table.to_csv(index=False, header=handle.tell() == 0, float_format="%.8g", lineterminator="\n")
    handle.write(text.encode())
