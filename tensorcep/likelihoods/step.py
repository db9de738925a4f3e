"""Step likelihood: P(y = 1 | f) = 1 - theta for f > 0 and theta below, for labels coded -1 and +1.

theta is the slack, the probability of a wrong label. It is 0 by default: a label then says on which side of 0 f lies.
"""

from __future__ import annotations

import math

import numpy as np

from tensorcep.core.compile import kernel
from tensorcep.kernels.special import INV_SQRT_2PI, TINY, exp, log, normal_cdf_parts
from tensorcep.likelihoods.binary import binary_likelihood


@kernel
def tilted(y, m, v, theta, logz, alpha, beta):
    """Write log Z, alpha = y r / s and beta = r (z + r) / s^2 with z = y m / s, s^2 = v, r = (1 - 2 theta) phi(z) / Z.

    Z = theta + (1 - 2 theta) Phi(z). Without slack z + r keeps its digits for very negative z; with slack beta may be
    negative there.

    Source: Minka (2008), EP: a quick reference, eqs 51-55.
    """
    for n in range(y.shape[0]):
        beta[n] = y[n] * m[n] / math.sqrt(v[n] + TINY)
    normal_cdf_parts(beta, logz, alpha)
    for n in range(y.shape[0]):
        s = math.sqrt(v[n] + TINY)
        r, z_plus_r = alpha[n], beta[n]
        if theta[n] > 0.0:
            z = y[n] * m[n] / s
            mass = theta[n] + (1.0 - 2.0 * theta[n]) * exp(logz[n])
            r = (1.0 - 2.0 * theta[n]) * INV_SQRT_2PI * exp(-0.5 * z * z) / mass
            z_plus_r = z + r
            logz[n] = log(mass)
        alpha[n] = y[n] * r / s
        beta[n] = (r / s) * (z_plus_r / s)


def _side(f: np.ndarray) -> np.ndarray:
    """The probability of a 1 without slack."""
    return np.heaviside(f, 0.5)


_WITHOUT_SLACK = binary_likelihood("step", tilted, None, _side)


def sample(rng: np.random.Generator, f: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Return a draw of y for each f."""
    y = _WITHOUT_SLACK.sample(rng, f, theta)
    return np.abs(y - (rng.random(y.shape) < theta))


# The log likelihood has no derivative at 0, so methods that need one (Laplace, power EP) do not apply.
STEP = _WITHOUT_SLACK._replace(default_theta=0.0, sample=sample)
