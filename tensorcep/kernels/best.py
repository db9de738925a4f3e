"""The best of every row of a matrix of scores, without sorting it."""

from __future__ import annotations

import numpy as np

from tensorcep.core.compile import kernel


@kernel
def best_of_rows(first, last, scores, start, stop, left_out, best):
    """best[i] = the columns of the largest scores of row i, the largest first, for rows first:last; -1 for no more.

    The columns left_out[start[i]:stop[i]] of row i do not count: their scores become -inf. Of equal scores the first
    wins.
    """
    n = best.shape[1]
    top = np.empty(n)
    for i in range(first, last):
        for q in range(start[i], stop[i]):
            scores[i, left_out[q]] = -np.inf
        found = 0
        for j in range(scores.shape[1]):
            score = scores[i, j]
            if not score > -np.inf or (found == n and not score > top[n - 1]):
                continue
            p = min(found, n - 1)
            while p > 0 and top[p - 1] < score:
                top[p] = top[p - 1]
                best[i, p] = best[i, p - 1]
                p -= 1
            top[p] = score
            best[i, p] = j
            found = min(n, found + 1)
        for p in range(found, n):
            best[i, p] = -1
