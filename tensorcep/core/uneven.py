"""What a posterior says of noise that differs between rows of a mode, or between entries, and of dispersions."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from tensorcep.core.components import EntryTheta
from tensorcep.core.records import Sized


class Dispersion(NamedTuple):
    """Gamma posteriors of the dispersion r of negative-binomial counts: shapes a and rates b, both (m,).

    m is 1 when all entries share one (`mode` is None), otherwise the rows of that mode. `mean` and `shape` are those of
    the Gamma law that rows have in common, where it was learned.
    """

    mode: int | None
    a: Annotated[np.ndarray, Sized("m")]
    b: Annotated[np.ndarray, Sized("m")]
    mean: float | None = None
    shape: float | None = None

    def theta(self, first: int) -> EntryTheta:
        """The parameter of entries; the mode's first row is `first`."""
        both = None if self.mean is None else np.array([[self.mean, self.shape]], dtype=float)
        law = (self.a[None], self.b[None])
        return EntryTheta((self.a / self.b)[None], self.mode, first, law, uneven=both, sure=True)

    def of_new(self, n: int) -> Dispersion:
        """The same with n more rows: of the common law, or of the mean of those there are."""
        if self.mean is None or self.shape is None:
            more = self.a.mean(), self.b.mean()
        else:
            more = self.shape, self.shape / self.mean
        a, b = (np.append(part, np.full(n, new)) for part, new in zip((self.a, self.b), more, strict=True))
        return self._replace(a=a, b=b)


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
