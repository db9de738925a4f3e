"""Special functions, quadrature and roots in compiled code."""

from __future__ import annotations

import numpy as np
from numba.core import types

from tensorcep.core.compile import emitted_by, kernel
from tensorcep.kernels.slots_rules import array_rule

# A step longer than this share of the last one may be one of steps that go back and forth for ever.
SHORTER = 0.6


@kernel
def newton_or_middle(x, step, low, high, before, close):
    """Return the next guess of a root between `low` and `high`, and how far that goes, which is the next `before`."""
    # It is x + step where the step is no longer than `close`, or ends inside and goes much less far than the last guess
    # did; else the middle. Begin with twice the length of the bracket for `before`.
    length = abs(step)
    if length <= close or (low <= x + step <= high and length < SHORTER * before):
        return x + step, length
    return 0.5 * (low + high), high - low


# Adapted trapezoidal rule for the moments of (likelihood x Gaussian).
#
# The trapezoidal rule converges exponentially for an integrand that is analytic and decays at both ends (Trefethen and
# Weideman 2014, SIAM Review 56). With the nodes placed on the tilted density, 24 to 32 of them reach rounding error
# where the Gaussian is the narrower factor; where the likelihood is, the rule needs more of the same nodes. A
# Gauss-Hermite rule of 32 nodes, moved and scaled to the tilted density, is as good for the logit up to a variance of
# 1, but its error is 1e-6 at a variance of 4, 1e-4 at 9 and 1e-2 at 100.

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


# Special functions that inline into a caller's loop and vectorise there: no library call, no branch, no table.
#
# Each is a polynomial fitted at Chebyshev points with 60 digits and rounded once. Kernels are compiled with fast-math
# flags that let the compiler re-associate sums, so a step whose rounding matters goes through `fma` or through the bit
# pattern of a number. An fma with the factor 1 would be turned back into a sum; hence the halves below.

LOG2_E = 1.4426950408889634
# ln 2 in two parts; products of the first with an integer below 2**11 are exact.
LN2_HIGH = 6.93147180369123816490e-01
LN2_LOW = 1.90821492927058770002e-10
TWO_LN2 = 1.38629436111989061883
# Adding 1.5 * 2**52 leaves the nearest integer in the low bits of the sum.
ROUND = 6755399441055744.0
ONE_BITS = 0x3FF0000000000000
SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
TWO_52 = 4503599627370496.0
TWO_52_BITS = 0x4330000000000000
MANTISSA_MASK = 0x000FFFFFFFFFFFFF
# The results of exp stay normal numbers: at the ends it returns 3.3e-308 and 8.2e307.
EXP_LOWEST = -708.0
EXP_HIGHEST = 709.0
LARGEST = 1.7976931348623157e308
SMALLEST = 2.2250738585072014e-308
LOG_SQRT_2PI = 0.91893853320467274178
INV_SQRT_2PI = 0.39894228040143267794

# (e^r - 1 - r) / r^2 on |r| <= ln(2) / 2, error 1e-18.
_EXP = (
    0.5, 0.1666666666666667, 0.04166666666666668, 0.008333333333326112, 0.0013888888888879043, 0.00019841269874902947,
    2.480158733652737e-05, 2.755725529609744e-06, 2.7557263188176176e-07, 2.5105260230519278e-08, 2.091817130916585e-09,
)  # fmt: skip

# (atanh(s) / s - 1) / s^2 in s^2 on |s| <= 1/3, error 5e-18 of atanh(s) / s.
_ATANH = (
    0.3333333333333333, 0.20000000000007456, 0.1428571428351453, 0.11111111362409382, 0.09090894546491375,
    0.07692789505129312, 0.06657003641335145, 0.060011469977136564, 0.04397433369474833, 0.08087903454072548,
)  # fmt: skip

# (x + 4) (phi(x) / Phi(-x) - x) in t = (x - 4) / (x + 4), 0 <= x < infinity, relative error 4e-17.
MILLS_CENTRE = 4.0
_MILLS = (
    1.8048571559157687, -1.1822045015192792, 0.40195670380623527, 0.06751792792276659, -0.13822449147915367,
    0.03370366765351547, 0.031656527489777486, -0.02080045431159896, -0.004488589890605869, 0.007961411150203152,
    -0.00037358596952200143, -0.00248579224219354, 0.0005948559918031812, 0.0006654957847153117, -0.0002892918027857523,
    -0.0001503312905080569, 0.00010488754870985674, 2.5598410718239395e-05, -3.170859414881326e-05,
    -1.4565187827615587e-06, 8.114172816411628e-06, -1.1267471643798478e-06, -1.6905634592427578e-06,
    5.605918542801535e-07, 2.5569143808187903e-07, -1.3529413081994808e-07, -2.071114283078507e-08,
    1.4804154022563544e-08,
)  # fmt: skip


@emitted_by(array_rule(types.float64)(lambda builder, *factors: builder.fma(*factors)), checkable=False)
def fma(a, b, c):
    """Return a * b + c of three float64 with one rounding, whatever the fast-math flags are (as Python with two)."""
    return a * b + c


@kernel
def _clamp(x):
    x = EXP_LOWEST if x < EXP_LOWEST else x
    return EXP_HIGHEST if x > EXP_HIGHEST else x


@kernel
def _reduce(x):
    """Return 2^k, k / 2 and r with x = k ln 2 + r, |r| <= ln(2) / 2, for a clamped x."""
    shifted = fma(x, LOG2_E, ROUND)
    half_k = fma(shifted, 0.5, -0.5 * ROUND)
    r = fma(half_k, -2.0 * LN2_LOW, fma(half_k, -2.0 * LN2_HIGH, x))
    bits = (np.float64(shifted).view(np.int64) << 52) + ONE_BITS
    return np.int64(bits).view(np.float64), half_k, r


@kernel
def _exp_tail(r):
    """Return (e^r - 1 - r) / r^2 for |r| <= ln(2) / 2."""
    q = r * r
    low = (_EXP[0] + r * _EXP[1]) + q * (_EXP[2] + r * _EXP[3])
    high = (_EXP[4] + r * _EXP[5]) + q * (_EXP[6] + r * _EXP[7])
    top = (_EXP[8] + r * _EXP[9]) + q * _EXP[10]
    return low + (q * q) * (high + (q * q) * top)


@kernel
def exp(x):
    """Return e^x, held between 3.3e-308 and 8.2e307; NaN stays NaN."""
    scale, _, r = _reduce(_clamp(x))
    return scale + scale * (r + r * r * _exp_tail(r))


@kernel
def exp_parts(x):
    """Return e^x, held as in `exp`, and e^x - 1 - x, both to full relative accuracy."""
    clamped = _clamp(x)
    scale, half_k, r = _reduce(clamped)
    tail = scale * (r * r * _exp_tail(r))
    # x = k ln 2 + r, so the sum is exact for k = 0; for other k it is at least 0.05 and little is lost.
    excess = tail + ((scale - 1.0) * (1.0 + r) - half_k * TWO_LN2)
    return scale + (scale * r + tail), excess + (clamped - x)


@kernel
def _two_atanh(s):
    """Return 2 atanh(s) for |s| <= 1/3."""
    q = s * s
    q2 = q * q
    low = (_ATANH[0] + q * _ATANH[1]) + q2 * (_ATANH[2] + q * _ATANH[3])
    high = (_ATANH[4] + q * _ATANH[5]) + q2 * (_ATANH[6] + q * _ATANH[7])
    top = _ATANH[8] + q * _ATANH[9]
    return 2.0 * s + 2.0 * s * q * (low + q2 * q2 * (high + q2 * q2 * top))


@kernel
def _log_parts(x):
    """Return k / 2, f - 1 and f + 1 with x = 2^k f and f between sqrt(1/2) and sqrt(2), for a normal x > 0."""
    bits = np.float64(x).view(np.int64) - SQRT_HALF_BITS
    # The exponent becomes a float as the last bits of 2**52 + 2048 + k: int64 to float64 vectorises only on AVX-512.
    shifted = np.int64(((bits >> 52) + 2048) | TWO_52_BITS).view(np.float64)
    half_k = fma(shifted, 0.5, -0.5 * (TWO_52 + 2048.0))
    f = np.int64((bits & MANTISSA_MASK) + SQRT_HALF_BITS).view(np.float64)
    return half_k, f - 1.0, f + 1.0


@kernel
def log(x):
    """Return the natural logarithm; -inf at 0 (and at numbers below 2.3e-308), NaN below 0."""
    half_k, numerator, denominator = _log_parts(x)
    result = half_k * TWO_LN2 + _two_atanh(numerator / denominator)
    result = x if not x <= LARGEST else result
    result = -np.inf if x < SMALLEST else result
    return np.nan if x < 0.0 else result


@kernel
def log1p_unit(x):
    """Return log(1 + x) for x between -1/2 and 1, to full relative accuracy."""
    return _two_atanh(x / (2.0 + x))


@kernel
def logistic(x):
    """Return p = 1 / (1 + e^-x), 1 - p and log(1 + e^-|x|)."""
    e = exp(-abs(x))
    big = 1.0 / (1.0 + e)
    small = e * big
    return (big, small, log1p_unit(e)) if x > 0.0 else (small, big, log1p_unit(e))


@kernel
def mills_excess(x):
    """Return phi(x) / Phi(-x) - x for x >= 0: positive, falling from sqrt(2 / pi) like 1 / x."""
    # Adding x gives the inverse Mills ratio without cancellation; sqrt(2 / pi) over that ratio is erfcx(x / sqrt(2)).
    scale = 1.0 / (x + MILLS_CENTRE)
    t = (x - MILLS_CENTRE) * scale
    t2 = t * t
    t4 = t2 * t2
    total = (_MILLS[24] + t * _MILLS[25]) + t2 * (_MILLS[26] + t * _MILLS[27])
    total = total * t4 + ((_MILLS[20] + t * _MILLS[21]) + t2 * (_MILLS[22] + t * _MILLS[23]))
    total = total * t4 + ((_MILLS[16] + t * _MILLS[17]) + t2 * (_MILLS[18] + t * _MILLS[19]))
    total = total * t4 + ((_MILLS[12] + t * _MILLS[13]) + t2 * (_MILLS[14] + t * _MILLS[15]))
    total = total * t4 + ((_MILLS[8] + t * _MILLS[9]) + t2 * (_MILLS[10] + t * _MILLS[11]))
    total = total * t4 + ((_MILLS[4] + t * _MILLS[5]) + t2 * (_MILLS[6] + t * _MILLS[7]))
    total = total * t4 + ((_MILLS[0] + t * _MILLS[1]) + t2 * (_MILLS[2] + t * _MILLS[3]))
    return total * scale


@kernel
def upper_tail(x, bell):
    """Return Phi(-x) for x >= 0, given bell = e^(-x^2 / 2)."""
    return INV_SQRT_2PI * bell / (x + mills_excess(x))


@kernel
def normal_cdf_parts(z, log_cdf, ratio):
    """Write log Phi(z), r = phi(z) / Phi(z), and z + r in place of z, over arrays; all keep full relative accuracy."""
    # Both arms of every choice are worked out first, so that the compiler selects instead of branching.
    for n in range(z.shape[0]):
        x = abs(z[n])
        excess = mills_excess(x)
        inv_mills = x + excess
        half_square = 0.5 * x * x
        upper = INV_SQRT_2PI * exp(-half_square) / inv_mills  # Phi(-|z|)
        # log(inv_mills) for z < 0 and log(1 - upper) for z >= 0 are both k ln 2 + 2 atanh(numerator / denominator).
        half_k, numerator, denominator = _log_parts(inv_mills)
        minus_upper = -upper
        lower = 2.0 - upper
        numerator = numerator if z[n] < 0.0 else minus_upper
        denominator = denominator if z[n] < 0.0 else lower
        logarithm = _two_atanh(numerator / denominator)
        tail = -half_square - LOG_SQRT_2PI - half_k * TWO_LN2 - logarithm
        small = upper * inv_mills / (1.0 - upper)
        shifted = z[n] + small
        ratio[n] = inv_mills if z[n] < 0.0 else small
        log_cdf[n] = tail if z[n] < 0.0 else logarithm
        z[n] = excess if z[n] < 0.0 else shifted


def log_two_cosh_half(c: np.ndarray) -> np.ndarray:
    """Return log(2 cosh(c / 2)), c >= 0: minus the bound that PG(1, c) puts on the log of a logistic term."""
    return np.asarray(0.5 * c + np.log1p(np.exp(-c)))
