"""The law of all entries alike: one latent value, and one parameter of the likelihood, fitted to values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from tensorcep.core.sums import variance
from tensorcep.likelihoods.record import Likelihood

# Values that it is fitted to where there is no formula.
FITTED_ENTRIES = 5000


class ConstantLaw(NamedTuple):
    """A latent value and the parameter of the likelihood."""

    f: float
    theta: float

    def logpdf(self, likelihood: Likelihood, values: np.ndarray, extent: np.ndarray | None = None) -> np.ndarray:
        """Log density or mass (n,) of values, with extents (n,) if they have some."""
        f, v, theta = (np.full(len(values), number) for number in (self.f, 0.0, self.theta))
        f, theta = (f, theta) if extent is None else likelihood.at(f, theta, extent)
        return likelihood.logpdf(values, f, v, theta)


def constant_law(likelihood: Likelihood, y: np.ndarray, start: float, extent: np.ndarray | None = None) -> ConstantLaw:
    """The law that fits values y.

    `start` is the latent value where the likelihood has no parameter or is Gaussian; elsewhere a guess.
    """
    parameter = likelihood.parameter
    if parameter is None:
        return ConstantLaw(start, likelihood.default_theta)
    theta = float(np.divide(1.0, variance(y))) if parameter.is_precision else likelihood.default_theta
    if parameter.is_precision and not likelihood.censored:
        return ConstantLaw(start, theta)
    few = slice(None, None, -(-len(y) // FITTED_ENTRIES))
    some, extents = y[few], None if extent is None else extent[few]
    step = theta**-0.5 if parameter.is_precision else 1.0

    def law(x: np.ndarray) -> ConstantLaw:
        return ConstantLaw(start + step * float(x[0]), theta * float(np.exp(x[1])))

    return law(
        minimize(lambda x: -float(law(x).logpdf(likelihood, some, extents).mean()), [0.0, 0.0], method="Nelder-Mead").x
    )
