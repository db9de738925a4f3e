"""Adapted trapezoidal rule for the moments of (likelihood x Gaussian).

The trapezoidal rule converges exponentially for an integrand that is analytic and decays at both ends (Trefethen and
Weideman 2014, SIAM Review 56). With the nodes placed on the tilted density, 24 to 32 of them reach rounding error where
the Gaussian is the narrower factor; where the likelihood is, the rule needs more of the same nodes. A Gauss-Hermite
rule of 32 nodes, moved and scaled to the tilted density, is as good for the logit up to a variance of 1, but its error
is 1e-6 at a variance of 4, 1e-4 at 9 and 1e-2 at 100.
"""

from __future__ import annotations

from tensorcep.core.jit import kernel

# Numbers of nodes are multiples of this, so that a vectorised loop over them leaves no remainder.
BLOCK = 8
# A standard normal density beyond 8.3 standard deviations holds less than 2^-53 of the mass; 8.3^2 / 2 = 34.4 nats.
REACH = 8.3
DROP = 34.5
# Spacing that leaves an error of 2 exp(-2 pi^2 / h^2) = 6e-17 in the integral of a Gaussian, in standard deviations.
GAUSS_STEP = 0.72
# Added to variances so that a variance of zero is a narrow Gaussian instead of 0 / 0.
TINY = 1e-300
# Reached at a standard deviation of about 1,000 of f, beyond which accuracy is lost gradually.
MAX_BLOCKS = 4096.0


@kernel
def count_nodes(width, step):
    """Return how many nodes, a multiple of BLOCK, cover `width` with at most `step` between them; BLOCK for NaN."""
    blocks = width / (step * BLOCK) + 1.0
    blocks = MAX_BLOCKS if blocks > MAX_BLOCKS else blocks
    return BLOCK * int(blocks) if blocks > 1.0 else BLOCK
