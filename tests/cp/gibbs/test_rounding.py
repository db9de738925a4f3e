"""Sums over the entries of a row: the same bits wherever the arrays lie in memory."""

from __future__ import annotations

import numpy as np
from helpers.cases import each

from tensorcep.cp.gibbs.row_draw import columns_of_mode, draw_rows, room_for

R, N, EACH = 2, 900, 90


@each("weighted", [False, True])
@each("beside", ["target", "weight"])
def test_fit_does_not_depend_on_what_lies_beside_the_room(weighted: bool, beside: str) -> None:
    """Where room began just behind an array, a sum was taken number by number that otherwise is one of vectors."""
    rng = np.random.default_rng(3)
    columns = columns_of_mode(np.arange(R), np.zeros(0, dtype=np.int64))
    source = rng.normal(size=(40, len(columns.order)))
    others = rng.integers(40, size=(N, 2), dtype=np.int32)
    target, weight = rng.normal(size=N), rng.uniform(0.5, 2.0, size=N)
    start = np.arange(0, N, EACH)
    lists, n = (start, start + EACH, others), len(start)
    prior, one, key = (np.array([[1.0, 0.0, 1.0]]), np.zeros((1, R))), np.ones(1), np.arange(3)
    found = []
    for gap in [0, 8, *start[1:], 3 * N]:
        room, at = room_for(R, columns)
        line = np.zeros(N + gap + len(room.rest))
        near, room = line[:N], room._replace(rest=line[N + gap :])
        near[:] = target if beside == "target" else weight
        weights = near if beside == "weight" else weight
        entries = (0, weights if weighted else np.zeros(0), near if beside == "target" else target)
        fit = np.zeros(n)
        draw_rows(0, n, 0, lists, source, columns, entries, *prior, one, key, fit, np.zeros((n, R)), room, at)
        found.append(fit)
    for fit in found:
        np.testing.assert_array_equal(fit, found[-1])
