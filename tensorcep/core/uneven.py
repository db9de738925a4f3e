"""What a posterior says of noise that differs between rows of a mode, or between entries."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from tensorcep.core.components import EntryTheta
from tensorcep.core.records import Sized


class UnevenNoise(NamedTuple):
    """Factors of mean one, Gamma(shape, shape) beforehand, that multiply the noise precision.

    Attributes
    ----------
    mode : int or None
        The mode whose rows have a factor each; None where every entry has one.
    shape : float
    a, b : (s,) float64
        Shapes and rates of the Gamma posteriors of the rows' factors; nothing where entries have them.
    """

    mode: int | None
    shape: float
    a: Annotated[np.ndarray, Sized("s")]
    b: Annotated[np.ndarray, Sized("s")]

    def theta(self, a: float, b: float, first: int) -> EntryTheta:
        """The parameter of entries where Gamma(a, b) is the law of the precision; the mode's first row is `first`."""
        tau = a / b
        both = np.array([[tau, self.shape]])
        if self.mode is None:
            return EntryTheta(np.array([[tau]]), gamma=(np.array([[a]]), np.array([[b]])), uneven=both)
        law = (self.a[None], (self.b / tau)[None])
        return EntryTheta((tau * self.a / self.b)[None], self.mode, first, law, uneven=both)
