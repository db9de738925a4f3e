"""Random numbers keyed by (seed, sweep, what, row or entry): of numpy, and of compiled kernels."""

from __future__ import annotations

import math
from enum import IntEnum

import numpy as np

from tensorcep.core.compile import block_kernel

# Random numbers inside compiled code: streams that depend on (seed, sweep, block) alone, not on threads.
#
# A stream is a (4,) uint64 array, the state of xoshiro256++ (Blackman and Vigna 2021, ACM TOMS 47), which
# `start_stream` sets by splitmix64 from three numbers. A sampler starts a new stream for every block of work of every
# sweep, so that the draws are the same whichever thread does the block.

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_U11, _U17, _U19, _U23, _U27, _U30, _U31, _U41, _U45 = (np.uint64(n) for n in (11, 17, 19, 23, 27, 30, 31, 41, 45))
UNIT = 2.0**-53
# Above this a one-sided normal comes cheaper from an exponential proposal than from normal ones (Robert 1995).
EXPONENTIAL_FROM = 0.4
# From this width on an interval around 0 holds half of the normal draws; narrower ones half of the even ones.
NORMAL_FROM = 2.5


def new_stream() -> np.ndarray:
    """Room for the state of one stream."""
    return np.zeros(4, dtype=np.uint64)


@block_kernel
def _mixed(x):
    """The output function of splitmix64."""
    x = (x ^ (x >> _U30)) * _MIX_1
    x = (x ^ (x >> _U27)) * _MIX_2
    return x ^ (x >> _U31)


@block_kernel
def start_stream(s, seed, sweep, block):
    """Set the stream s to the one of (seed, sweep, block), three integers."""
    key = _mixed(np.uint64(seed) + _GOLDEN)
    key = _mixed((key ^ np.uint64(sweep)) + _GOLDEN)
    key = _mixed((key ^ np.uint64(block)) + _GOLDEN)
    for i in range(4):
        key += _GOLDEN
        s[i] = _mixed(key)


@block_kernel
def uniform(s):
    """A number between 0 and 1, both excluded."""
    total = s[0] + s[3]
    bits = ((total << _U23) | (total >> _U41)) + s[0]
    shifted = s[1] << _U17
    s[2] ^= s[0]
    s[3] ^= s[1]
    s[1] ^= s[2]
    s[0] ^= s[3]
    s[2] ^= shifted
    s[3] = (s[3] << _U45) | (s[3] >> _U19)
    return (np.float64(np.int64(bits >> _U11)) + 0.5) * UNIT


@block_kernel
def exponential(s):
    """A draw from the exponential distribution of mean 1."""
    return -math.log(uniform(s))


@block_kernel
def normal(s):
    """A standard normal draw (Marsaglia's polar method)."""
    while True:
        x = 2.0 * uniform(s) - 1.0
        y = 2.0 * uniform(s) - 1.0
        q = x * x + y * y
        if q < 1.0 and q > 0.0:
            return x * math.sqrt(-2.0 * math.log(q) / q)


@block_kernel
def normals(s, n, x, q):
    """The next n draws of `normal` to x[:n]; x and q, room, are longer than n."""
    # What is not taken is overwritten: a jump for each would be foreseen wrongly in one case of five.
    taken = 0
    while taken < n:
        a = 2.0 * uniform(s) - 1.0
        b = 2.0 * uniform(s) - 1.0
        x[taken], q[taken] = a, a * a + b * b
        taken += 1 if 0.0 < q[taken] < 1.0 else 0
    for i in range(n):
        x[i] *= math.sqrt(-2.0 * math.log(q[i]) / q[i])


@block_kernel
def truncated_normal(s, low):
    """A standard normal draw given that it is above `low` (Robert 1995, Statistics and Computing 5)."""
    if low < EXPONENTIAL_FROM:
        x = normal(s)
        while x <= low:
            # Below 0 at least half of the proposals are above; up to EXPONENTIAL_FROM at least a third are.
            x = normal(s)
        return x
    rate = 0.5 * (low + math.sqrt(low * low + 4.0))
    while True:
        x = low + exponential(s) / rate
        if exponential(s) > 0.5 * (x - rate) ** 2:
            return x


@block_kernel
def _above_zero(s, low, high):
    """A standard normal draw between low and high, 0 <= low: by the tail, or where that is rarely below, evenly."""
    if (high - low) * max(low, 1.0) > 1.0:
        x = truncated_normal(s, low)
        while x >= high:
            x = truncated_normal(s, low)
        return x
    while True:
        x = low + (high - low) * uniform(s)
        if exponential(s) > 0.5 * (x - low) * (x + low):
            return x


@block_kernel
def interval_normal(s, low, high):
    """A standard normal draw between low and high (Robert 1995): at least a third of the proposals are taken."""
    if low >= 0.0:
        return _above_zero(s, low, high)
    if high <= 0.0:
        return -_above_zero(s, -high, -low)
    if high - low > NORMAL_FROM:
        x = normal(s)
        while x <= low or x >= high:
            x = normal(s)
        return x
    while True:
        x = low + (high - low) * uniform(s)
        if exponential(s) > 0.5 * x * x:
            return x


@block_kernel
def gamma(s, shape):
    """A draw from the Gamma distribution of this shape and rate 1 (Marsaglia and Tsang 2000, ACM TOMS 26)."""
    boost = 1.0
    if shape < 1.0:  # Gamma(a) = Gamma(a + 1) U^(1 / a)
        boost = math.exp(math.log(uniform(s)) / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = normal(s)
        v = 1.0 + c * x
        if v > 0.0:
            v, u = v * v * v, uniform(s)
            # the first bound lies below the second one: nearly all draws are taken without a logarithm
            if u < 1.0 - 0.0331 * (x * x) * (x * x) or math.log(u) < 0.5 * x * x + d - d * v + d * math.log(v):
                return d * v * boost


# The random streams of the samplers, told apart by what they draw: the same draws whichever thread makes them.

# Streams of compiled draws are numbered by sweep and chain together.
CHAINS = 1 << 16


class RandomStream(IntEnum):
    """What is drawn: first by numpy, once a sweep and chain; then compiled, where rows of mode k have the stream k."""

    PRECISION = 2
    DISPERSION = 3
    PRIOR = 4
    UNKNOWN_ROWS = 5
    HELD_OUT = 6
    PILOT = 7
    THRESHOLDS = 8
    GAPS = 9
    EVENNESS = 10
    ZEROS = 11
    AUGMENTATION = 1 << 20
    TABLES = 1 << 21
    FACTORS = 1 << 22
    FOLDED = 1 << 23
    # in place of the number of the sweep: the rows that chains start from
    START = 1 << 48


def generator(seed: int, what: RandomStream, *which: int) -> np.random.Generator:
    """A stream of numpy for a sweep and a chain."""
    words = [seed, int(what), *which]
    # each is one word of the seed as it is, which numpy takes longer to see of a list than of an array
    plain = max(words) < 1 << 32
    return np.random.default_rng(np.array(words, dtype=np.uint32) if plain else words)


def stream_key(seed: int, chain: int, sweep: int, what: int) -> tuple[int, int, int]:
    """Seed, sweep and part of the compiled streams of one step of one chain."""
    return seed, sweep * CHAINS + chain, int(what)
