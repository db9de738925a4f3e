"""Structural zeros among the entries of new rows: what a belief knows of them, and draws of which are."""

from __future__ import annotations

import numpy as np

from tensorcep.core.betas import Beta
from tensorcep.core.components import Components
from tensorcep.likelihoods.record import Likelihood
from tensorcep.likelihoods.zeros import presence

# The Beta law of a share that is one number counts so many entries.
SURE = 1e9


def dispersion_beside(belief: Components, c: int, likelihood: Likelihood) -> float:
    """The dispersion of the other counts in component c."""
    given = likelihood.parameter is None or belief.theta is None
    return float(likelihood.default_theta if given else belief.theta.values[c, 0])  # type: ignore[union-attr]


def law_of_share(belief: Components, c: int, likelihood: Likelihood) -> Beta | None:
    """What component c knows of the share of structural zeros; None where there are none."""
    if likelihood.zeros is None or belief.theta is None:
        return None
    if belief.theta.shares is None:
        share = float(belief.theta.values[c, -1])
        return Beta(SURE * share, SURE * (1.0 - share))
    a, b = belief.theta.shares
    return Beta(float(a[c, 0]), float(b[c, 0]))


def drawn_presence(
    likelihood: Likelihood, law: Beta, y: np.ndarray, f: np.ndarray, theta: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """A draw of which new entries are no structural zeros, (N,) bool."""
    log_mass = np.empty_like(f)
    likelihood.loglik(y, f, theta, log_mass, np.empty_like(f), np.empty_like(f))
    return rng.random(len(f)) < presence(y, log_mass, law.mean)
