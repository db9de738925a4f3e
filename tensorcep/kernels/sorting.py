"""Whole numbers in order by counting, entries by row, the best of scores, and digests of arrays."""

from __future__ import annotations

import numpy as np

from tensorcep.core.compile import block_kernel, inlined, kernel
from tensorcep.kernels.slots import LANES

# Two hashes of a number: the leading bits of its product with one of these odd numbers.
FIRST_FACTOR, SECOND_FACTOR = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
ONE, WORD, IN_WORD = np.uint64(1), np.uint64(6), np.uint64(63)


@block_kernel
def sort_lines(lines, c, start, out):
    """out = the lines (n, C) in the stable order of column c; start (size + 2,), zeros, tells where each key begins."""
    n, width = lines.shape
    for q in range(n):
        start[lines[q, c] + 2] += 1
    for i in range(2, len(start)):
        start[i] += start[i - 1]
    for q in range(n):
        key = lines[q, c] + 1
        to = start[key]
        start[key] = to + 1
        for j in range(width):
            out[to, j] = lines[q, j]


@block_kernel
def lay_out(lines, first, values, rows, y, permutation):
    """Rows, values and places of entries in lanes (see `tensorcep.cp.model.entries.Entries`)."""
    # Sorted ``lines`` (N, K + 1) hold their coordinates and their places among ``values``; ``first`` the first packed
    # row of each mode. ``y`` may lie where the lines do, from the same byte on, if these have 12 bytes or more: a value
    # is written where lines were read already.
    N, K = len(lines), rows.shape[1]
    for b in range(len(rows)):
        n = b * LANES
        used = min(LANES, N - n)
        for k in range(K):
            for lane in range(used):
                rows[b, k, lane] = lines[n + lane, k] + first[k]
        for lane in range(used):
            place = lines[n + lane, K]
            permutation[n + lane] = place
            y[b, lane] = values[place]


@block_kernel
def list_rows(first, last, rows, offsets, late, y, end, entry, value, others):
    """The entries of every row of the modes first:last, by stable counting (`cp.model.entries.EntriesByRow`)."""
    # ``late`` (N,) is 1 for entries that come last in their rows; ``end`` (n_rows, 2), zeros, where each part ends.
    N, K = len(late), rows.shape[1]
    for k in range(first, last):
        for b in range(len(rows)):
            for lane in range(min(LANES, N - b * LANES)):
                end[rows[b, k, lane], late[b * LANES + lane]] += 1
        total = k * N
        for i in range(offsets[k], offsets[k + 1]):  # where each part begins
            for part in range(2):
                count = end[i, part]
                end[i, part] = total
                total += count
        for b in range(len(rows)):
            for lane in range(min(LANES, N - b * LANES)):
                n = b * LANES + lane
                i, part = rows[b, k, lane], late[n]
                to = end[i, part]
                end[i, part] = to + 1
                for j in range(K - 1):
                    others[to, j] = rows[b, j + (j >= k), lane]
                if len(value) > 0:
                    value[to] = y[b, lane]
                else:
                    entry[to] = n


@block_kernel
def seen_before(numbers, shift, marks, found):
    """How many of numbers (N,) may have occurred before, which ``found`` (N + 1,) begins with: all that have, too."""
    # ``marks`` (M,) uint64 holds zeros: a bit for each of 64 M = 2^(64 - shift) hashes.
    n = 0
    for i in range(len(numbers)):
        place = (np.uint64(numbers[i]) * FIRST_FACTOR) >> shift
        bit = ONE << (place & IN_WORD)
        marked = marks[place >> WORD]
        found[n] = numbers[i]
        n += (marked & bit) != 0
        marks[place >> WORD] = marked | bit
    return n


@block_kernel
def perhaps_among(numbers, some, shift, marks, found):
    """How many of the numbers (N,) may be among some others; ``found`` and ``marks`` as in `seen_before`."""
    for number in some:
        place = (np.uint64(number) * SECOND_FACTOR) >> shift
        marks[place >> WORD] |= ONE << (place & IN_WORD)
    n = 0
    for i in range(len(numbers)):
        place = (np.uint64(numbers[i]) * SECOND_FACTOR) >> shift
        found[n] = numbers[i]
        n += (marks[place >> WORD] & (ONE << (place & IN_WORD))) != 0
    return n


# Whole numbers in order, by counting: of many of them several times as fast as by comparisons.


def sorted_places(key: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The places (n,) of keys (n,) below `size`, in stable order: those of key i are place[start[i]:start[i + 1]]."""
    lines = number_lines(key[:, None])
    out, start = np.empty_like(lines), np.zeros(size + 2, dtype=np.int64)
    sort_lines(lines, 0, start, out)
    return np.ascontiguousarray(out[:, 1]), start[:-1]


def number_lines(columns: np.ndarray, spare: int = 0) -> np.ndarray:
    """Columns (n, K) of whole numbers and each line's number, in int32 if it can be; `spare` lines of no meaning."""
    n, K = columns.shape
    lines = np.empty((n + spare, K + 1), dtype=np.int32 if n < np.iinfo(np.int32).max else np.int64)
    lines[:n, :K], lines[:n, K] = columns, np.arange(n, dtype=lines.dtype)
    return lines


@kernel
def best_of_rows(first, last, scores, start, stop, left_out, best):
    """best[i] = the columns of the largest scores of row i, the largest first, for rows first:last; -1 for no more."""
    # The columns left_out[start[i]:stop[i]] of row i do not count. Of equal scores the first wins.
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


HALF, TURN, REST = np.uint64(32), np.uint64(29), np.uint64(35)


@inlined
def _mix_word(state, word):
    """The state after one more word."""
    x = state ^ word
    x = (x ^ (x >> HALF)) * FIRST_FACTOR
    return (x << TURN) | (x >> REST)


@kernel
def digest(words):
    """64 bits that depend on every word (N,) uint64 and its place, at the speed of reading them."""
    # In a plain sum two changed signs would cancel.
    state = np.arange(1, 9).astype(np.uint64)
    whole = len(words) // 8 * 8
    for n in range(0, whole, 8):
        for lane in range(8):
            state[lane] = _mix_word(state[lane], words[n + lane])
    total = np.uint64(len(words))
    for n in range(whole, len(words)):
        total = _mix_word(total, words[n])
    for lane in range(8):
        total = _mix_word(total, state[lane])
    return total
