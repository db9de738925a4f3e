"""Values of a stream that what is known makes impossible: left out, unless they go on and are a change.

One such value would decide all rows that it touches and the noise: a Gaussian likelihood follows it wherever it is. It
is told from what a stream may bring by its surprise: what it costs beside the mean, in nats, z^2 / 2 of a real value z
standard deviations from it. A sum of squares of any law with a variance outgrows its largest one, so a surprise of as
much as all n entries so far, of half a nat each, and all smaller ones of its batch together is no entry of their law,
however long its tails are. The rows' law may be wrong about what is usual, so that a value is left out only if it also
is so without them: beyond three standard deviations of all values so far, or a count above the sum of all before.

Where such values go on they are no errors. Page's cumulative sum of log likelihood ratios tells: of entries of which
half are wild, against errors in a tenth of all. While it is at its limit, all values are learned.

Source: Page (1954), Continuous inspection schemes.
"""

from __future__ import annotations

import numpy as np

from tensorcep.core.checks import printable, warn_user
from tensorcep.cp.inputs.outliers import ERRORS, outweighing
from tensorcep.cp.stream.standing import Standing
from tensorcep.entries.batch import Batch

# The least surprise of a wild value, in nats, however few entries there were: 10 standard deviations.
SURPRISING = 50.0
# So many standard deviations about their mean hold 95 % of any law with one peak (Vysochanskij and Petunin, 1980).
OUTSIDE = 3.0
# The share of wild values after a change. A change that is none is found once in about e^CERTAIN entries; five wild
# values in a row are one.
CHANGED, CERTAIN = 0.5, float(np.log(1000.0))


def wild_values(values: np.ndarray, surprise: np.ndarray, n: int, standing: Standing, counts: bool) -> np.ndarray:
    """Which values (N,) of these surprises are wild after n entries with this standing, (N,) bool."""
    if counts:
        apart = values > standing.total
    else:
        apart = (values - standing.mean) ** 2 > OUTSIDE**2 * standing.spread
    found = (surprise > SURPRISING) & (apart | (standing.seen == 0))
    return found & outweighing(surprise, 0.5 * n) if found.any() else found


def change_after(before: float, wild: np.ndarray) -> float:
    """The evidence of a change, from 0 to CERTAIN, after entries of which these are wild."""
    k, n = int(wild.sum()), len(wild)
    found = before + k * np.log(CHANGED / ERRORS) + (n - k) * np.log((1.0 - CHANGED) / (1.0 - ERRORS))
    return float(np.clip(found, 0.0, CERTAIN))


def without(batch: Batch, out: np.ndarray) -> Batch:
    """The batch without some of its entries, (N,) bool."""
    keys = tuple(None if of is None else [of[i] for i in np.flatnonzero(~out)] for of in batch.keys)
    weights, extents = (None if part is None else part[~out] for part in (batch.weights, batch.extents))
    left = batch._replace(keys=keys, coords=batch.coords[~out], values=batch.values[~out])
    return left._replace(weights=weights, extents=extents)


def warn_of_wild(batch: Batch, out: np.ndarray, order: np.ndarray, why: str) -> None:
    """Warn of values of a batch that were left out, naming the first by this order and why."""
    place = int(np.argmax(np.where(out, order, -np.inf)))
    each = (at if of is None else of for of, at in zip(batch.keys, batch.coords.T, strict=True))
    cell = ", ".join(printable(str(of[place])) for of in each)
    more = f", and {int(out.sum()) - 1} more of the batch," if out.sum() > 1 else ""
    warn_user(
        f"the value {batch.values[place]:g} of the cell ({cell}){more} was taken for an error and not learned: {why}; "
        "correct it, or, if it is right, go on: values like it are learned as soon as they are common.",
        UserWarning,
    )
