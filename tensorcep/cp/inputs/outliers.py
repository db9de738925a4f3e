"""Values that outweigh all others together: what a fit does not learn from a stream, and warns of elsewhere."""

from __future__ import annotations

import numpy as np

from tensorcep.core.checks import warn_user

# The share of values that may be errors.
ERRORS = 0.1
# A value that nothing predicts outweighs all others if its square, or its count, is so many times that of these
# together. Fewer values tell nothing of one of them.
OUTWEIGHS, FEWEST = 100.0, 20


def outweighing(size: np.ndarray, least: float = 0.0, times: float = 1.0) -> np.ndarray:
    """Which of some sizes (N,) are each larger than so many times all smaller ones and `least` together, (N,) bool.

    Of equal ones, or such as hide others, all are.
    """
    order = np.argsort(size, kind="stable")
    rest = least + np.append(0.0, np.cumsum(size[order])[:-1])
    out, found = np.zeros(len(size), dtype=bool), np.flatnonzero((size[order] > times * rest) & (rest > 0.0))
    first = found[found >= len(size) // 2]  # the most are no exceptions
    out[order[first.min(initial=len(size)) :]] = True
    return out


def deciding(values: np.ndarray, counts: bool) -> np.ndarray:
    """Which values (N,) that nothing predicts are errors, so far as they outweigh all others by far, (N,) bool.

    A tenth at most are: by their squares about the median, or as counts.
    """
    none = np.zeros(len(values), dtype=bool)
    apart = values if counts else np.abs(values - np.median(values))
    if len(values) < FEWEST or not apart.max() > 0.0:
        return none
    # Those between the median and the errors weigh at least this much, so that most data need not be sorted.
    typical, others = float(np.median(apart)), (0.5 - ERRORS) * len(values)
    if float(apart.max()) <= typical * (OUTWEIGHS * others) ** (1.0 if counts else 0.5):
        return none
    out = outweighing(apart, 1.0, OUTWEIGHS) if counts else outweighing((apart / apart.max()) ** 2, times=OUTWEIGHS)
    return out if out.sum() <= ERRORS * len(values) else none


def warn_of_deciding(y: np.ndarray) -> None:
    """Warn of real values (N,) of a fit that outweigh all others."""
    out = deciding(y, counts=False)
    if out.any():
        farthest, n = y[np.argmax(np.abs(y - np.median(y)))], int(out.sum())
        which = "a value" if n == 1 else f"{n} values"
        warn_user(
            f"{which} of {len(y)} ({farthest:g} is the farthest) outweigh all others together and can decide the fit, "
            "most of all one by a named method; check them, or leave them out.",
            UserWarning,
        )
