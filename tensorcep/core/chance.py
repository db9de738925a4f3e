"""Whether a gain is more than chance, and all thresholds of choices by entries left out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Thresholds(NamedTuple):
    """How many entries are left out of a choice, and from where on what they say decides it.

    Log scores are means over the entries left out, in nats.

    Attributes
    ----------
    share, share_of_small, share_of_few : float
        Of the entries, at least; of small data at most, to have `fewest`; and to have `fewest_of_few`.
    fewest, fewest_of_few, fewest_of_all : int
        Entries that tell noise and choices (50: the noise to a fifth of its value), that tell what was found from a
        constant, and without which none are left out.
    fewest_in_stream : int
        Entries of a stream of which some are left out: its prior is worth more than how surely it is chosen.
    folds : int
        Parts of the entries that are left out in turn.
    standard_errors : float
        From which on a gain is no chance.
    surely : float
        The same where there are many to choose among, as in spectra, or a choice ends before all entries were asked.
    least_difference : float
        Of log scores that matters.
    least_explained : float
        The share of the variance that matters.
    least_found : float
        Where all but the constant count no more than this, nothing else is predicted, whatever chance says of scores.
    least_gain_by_power : float
        What a power of values gains, whatever their cells, where it is tried: what a standard deviation wrong by a
        factor of 1.3 would cost. Exponential values gain 0.37, log-normal ones 0.25 where the standard deviation of
        their logarithms is 0.58.
    most_off : float
        Mean squares of errors that are so many times those of another fit are far off.
    mostly : float
        The share of its components that a fit uses where more could find something; the fit by chance leaves some.
    """

    share: float = 0.1
    share_of_small: float = 0.2
    share_of_few: float = 1.0 / 3.0
    fewest: int = 50
    fewest_of_few: int = 10
    fewest_of_all: int = 4
    fewest_in_stream: int = 20
    folds: int = 5
    standard_errors: float = 2.0
    surely: float = 4.0
    least_difference: float = 0.01
    least_explained: float = 0.05
    least_found: float = 0.02
    least_gain_by_power: float = 0.25
    most_off: float = 2.0
    mostly: float = 0.8

    def share_of(self, n: int) -> float:
        """The share of n entries to leave out."""
        return max(self.share, min(self.fewest / max(1, n), self.share_of_small))


THRESHOLDS = Thresholds()


def beyond_chance(gain: np.ndarray, standard_errors: float = THRESHOLDS.standard_errors) -> bool:
    """Whether the mean of independent gains (n,) lies so many of its standard errors above 0."""
    return bool(gain.mean() > standard_errors * gain.std() / np.sqrt(len(gain)))
