"""Random streams: known bits, independence of blocks, and the distributions drawn from them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tensorcep.core.compile import kernel
from tensorcep.core.random import (
    exponential,
    gamma,
    new_stream,
    normal,
    normals,
    start_stream,
    truncated_normal,
    uniform,
)

N = 200_000


@kernel
def fill(s, what, parameter, out):
    for n in range(out.shape[0]):
        if what == 0:
            out[n] = uniform(s)
        elif what == 1:
            out[n] = exponential(s)
        elif what == 2:
            out[n] = normal(s)
        elif what == 3:
            out[n] = truncated_normal(s, parameter)
        else:
            out[n] = gamma(s, parameter)


def draws(what, parameter=0.0, n=N, key=(1, 2, 3)):
    s, out = new_stream(), np.empty(n)
    start_stream(s, *key)
    fill(s, what, parameter, out)
    return out


def test_normals_are_the_next_draws_of_normal():
    s, x, room = new_stream(), np.empty(1001), np.empty(1001)
    start_stream(s, 1, 2, 3)
    normals(s, 600, x, room)
    normals(s, 400, x[600:], room)
    np.testing.assert_allclose(x[:1000], draws(2, n=1000), rtol=1e-14)


def test_streams_follow_xoshiro256_plus_plus():
    mask = 2**64 - 1

    def rotate(x, k):
        return ((x << k) | (x >> (64 - k))) & mask

    s = new_stream()
    start_stream(s, 7, 8, 9)
    a = [int(x) for x in s]
    wanted = []
    for _ in range(5):
        bits = (rotate((a[0] + a[3]) & mask, 23) + a[0]) & mask
        wanted.append(((bits >> 11) + 0.5) * 2.0**-53)
        shifted = (a[1] << 17) & mask
        a[2] ^= a[0]
        a[3] ^= a[1]
        a[1] ^= a[2]
        a[0] ^= a[3]
        a[2] ^= shifted
        a[3] = rotate(a[3], 45)
    assert draws(0, n=5, key=(7, 8, 9)).tolist() == wanted


def test_streams_differ_by_each_of_seed_sweep_and_block():
    keys = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (2**63 - 1, 0, 0)]
    first = {draws(0, n=1, key=key)[0] for key in keys}
    assert len(first) == len(keys)
    blocks = np.stack([draws(0, n=2000, key=(5, 0, block)) for block in range(40)])
    correlation = np.corrcoef(blocks)[np.triu_indices(40, 1)]
    assert np.abs(correlation).max() < 6.0 / np.sqrt(2000)


@pytest.mark.parametrize(
    ("what", "parameter", "cdf"),
    [
        (0, 0.0, stats.uniform.cdf),
        (1, 0.0, stats.expon.cdf),
        (2, 0.0, stats.norm.cdf),
        *[(3, low, stats.truncnorm(low, np.inf).cdf) for low in (-3.0, 0.2, 0.5, 6.0, 40.0)],
        *[(4, shape, stats.gamma(shape).cdf) for shape in (0.05, 0.7, 1.0, 3.5, 200.0)],
    ],
)
def test_streams_draw_the_distribution(what, parameter, cdf):
    assert stats.kstest(draws(what, parameter), cdf).pvalue > 1e-6
