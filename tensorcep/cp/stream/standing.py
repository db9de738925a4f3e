"""How a stream stands: whether its predictions are better than a constant, and the entries that it keeps."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from tensorcep.core.checks import warn_user
from tensorcep.core.records import Sized

# Entries that predictions are judged by: so many at least, for a warning more; of those before these only a share.
JUDGED, WARNED, RECENT = 20, 1000, 10_000
# The gain over a constant must lie this many standard errors above 0.
SURE = 2.0


class Standing(NamedTuple):
    """Predictions of entries before they were learned, beside the mean of all earlier values.

    Attributes
    ----------
    n : float
        Entries that were predicted; beyond `RECENT` older ones count less.
    gain, square : float
        Sums of what each prediction gained in squared error, in units of the constant's, and of its square.
    seen : int
        Values so far.
    mean : float
        Their mean.
    warned : bool
        Whether the user was told that nothing is gained.
    """

    n: float = 0.0
    gain: float = 0.0
    square: float = 0.0
    seen: int = 0
    mean: float = 0.0
    warned: bool = False

    def after(self, values: np.ndarray, predicted: np.ndarray | None) -> Standing:
        """The standing after entries with these values, of which this was predicted."""
        seen = self.seen + len(values)
        found = self._replace(seen=seen, mean=self.mean + float(np.sum(values - self.mean)) / seen)
        apart = (values - self.mean) ** 2
        if predicted is None or not self.seen or not apart.any():
            return found
        gain = (apart - (values - predicted) ** 2) / apart.mean()
        left = min(1.0, RECENT / (self.n + len(values)))
        sums = ((self.n, len(gain)), (self.gain, gain.sum()), (self.square, gain @ gain))
        n, total, square = (left * (old + float(new)) for old, new in sums)
        return found._replace(n=n, gain=total, square=square)

    @property
    def is_doubtful(self) -> bool:
        """Whether there are predictions enough to judge by, and they are no better than a constant."""
        return self.n >= JUDGED and not self.gain > SURE * self.square**0.5

    def told(self) -> tuple[Standing, bool]:
        """The standing after a warning, if one is due; and whether it is."""
        due = self.is_doubtful and self.n >= WARNED and not self.warned
        return self._replace(warned=self.warned or due), due


class Kept(NamedTuple):
    """The entries of a stream that is still beginning.

    Attributes
    ----------
    coords, values : (N, K) int64, (N,) float64
    fitted : int
        Entries of the last joint fit, which come first.
    prior : str or None
        The prior of the stream when there is no more doubt of it.
    """

    coords: Annotated[np.ndarray, Sized("N K", "i")]
    values: Annotated[np.ndarray, Sized("N")]
    fitted: int
    prior: str | None = None


def warn_of_no_gain(standing: Standing) -> None:
    """Warn that the stream learns nothing."""
    warn_user(
        f"the stream predicts its last {standing.n:.0f} entries no better than a constant: its factors are at their "
        "prior; give it more entries, a larger first_batch, another rank or prior, or fit the first entries together.",
        ConvergenceWarning,
    )
