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

    def logpdf(self, likelihood: Likelihood, values: np.ndarray) -> np.ndarray:
        """Log density or mass (n,) of values."""
        return likelihood.logpdf(values, *(np.full(len(values), number) for number in (self.f, 0.0, self.theta)))


def constant_law(likelihood: Likelihood, y: np.ndarray, start: float) -> ConstantLaw:
    """The law that fits values y.

    `start` is the latent value where the likelihood has no parameter or is Gaussian; elsewhere a guess.
    """
    parameter = likelihood.parameter
    if parameter is None:
        return ConstantLaw(start, likelihood.default_theta)
    theta = float(np.divide(1.0, variance(y))) if parameter.is_precision else likelihood.default_theta
    if parameter.is_precision and not likelihood.censored:
        return ConstantLaw(start, theta)
    some = y[:: -(-len(y) // FITTED_ENTRIES)]
    step = theta**-0.5 if parameter.is_precision else 1.0

    def law(x: np.ndarray) -> ConstantLaw:
        return ConstantLaw(start + step * float(x[0]), theta * float(np.exp(x[1])))

    return law(minimize(lambda x: -float(law(x).logpdf(likelihood, some).mean()), [0.0, 0.0], method="Nelder-Mead").x)
