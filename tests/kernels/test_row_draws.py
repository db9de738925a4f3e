"""Row draws: their moments, one precision for all rows, and rows without a positive definite precision."""

from __future__ import annotations

import numpy as np

from tensorcep.core.packing import pack
from tensorcep.kernels.rows import draw_rows
from tensorcep.kernels.slots import LANES


def drawn(Lam, eta, seed=3, sweep=0, line=None):
    out, good = np.empty_like(eta), np.empty(len(eta))
    line = np.minimum(np.arange(len(eta)), len(Lam) - 1) if line is None else line
    draw_rows(0, -(-len(eta) // LANES), line, Lam, eta, seed, sweep, out, good)
    return out, good


def test_draw_rows_has_the_moments_of_the_normal(rng):
    R, n = 3, 60000
    root = rng.standard_normal((R, R + 2))
    Lam, eta = root @ root.T, rng.standard_normal(R)
    cov = np.linalg.inv(Lam)
    out, good = drawn(pack(Lam)[None], np.tile(eta, (n, 1)))
    assert (good == 1.0).all()
    sd = np.sqrt(np.diag(cov))
    np.testing.assert_array_less(np.abs(out.mean(axis=0) - cov @ eta), 6.0 * sd / np.sqrt(n))
    found = np.cov(out.T)
    error = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / n)
    np.testing.assert_array_less(np.abs(found - cov), 6.0 * error)


def test_draw_rows_shared_and_own_precisions_agree(rng):
    Lam, eta = pack(2.0 * np.eye(2) + 0.3)[None], rng.standard_normal((LANES + 5, 2))
    shared, _ = drawn(Lam, eta)
    own, _ = drawn(np.repeat(Lam, len(eta), axis=0), eta)
    np.testing.assert_array_equal(shared, own)
    other, _ = drawn(Lam, eta, sweep=1)
    assert (other != shared).all()


def test_draw_rows_of_shared_lines_are_those_of_a_line_each(rng):
    root, line = rng.standard_normal((3, 2, 5)), np.repeat([0, 2, 1, 2], [2 * LANES, 3, LANES, 2 * LANES + 1])
    Lam, eta = pack(root @ root.swapaxes(1, 2)), rng.standard_normal((len(line), 2))
    own, _ = drawn(Lam[line], eta)
    np.testing.assert_array_equal(drawn(Lam, eta, line=line)[0], own)


def test_draw_rows_reports_rows_that_it_cannot_draw():
    Lam = np.array([[1.0, 0.0, 1.0], [1.0, 2.0, 1.0]])
    _, good = drawn(Lam, np.zeros((2, 2)))
    np.testing.assert_array_equal(good, [1.0, 0.0])
