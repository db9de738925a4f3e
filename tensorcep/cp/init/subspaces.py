"""Subspaces that hold the rows of each mode, from eigenvectors of the unfoldings of the observed entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix, hstack

from tensorcep.core.executor import ALONE, Executor
from tensorcep.kernels.sorting import sorted_places

# A block Krylov space of STEPS times the wanted dimension, built from blocks of BLOCK vectors.
BLOCK = 4
STEPS = 5
# Eigenvalues below this share of the largest are rounding.
ROUNDING = 1e-10
# Elements of the arrays that a pass over the entries works with.
CHUNK = 1 << 20
# Elements of a matrix, and entries, fewer of which are not worth a thread.
LEAST_OF_THREAD = 1 << 13
# What is drawn for a mode: an odd number for each mode of each unfolding, and a block to start from.
Drawn = tuple[list[list[int]], np.ndarray | None]
# Entries up to which modes go side by side, each with an unfolding.
MOST_APART = 1 << 20


def mode_bases(
    coords: np.ndarray,
    values: np.ndarray,
    shape: Sequence[int],
    size: int,
    rng: np.random.Generator,
    executor: Executor = ALONE,
    pairs: bool = False,
) -> list[np.ndarray]:
    """For each mode rows (n_k, r), r <= `size`, whose span holds its factors; their mean square over entries is 1."""
    # With A the unfolding whose row i is divided by the root of its number of entries, they are the eigenvectors of
    # A A' without its diagonal for positive eigenvalues. The diagonal holds nothing but the squares of values, noise
    # included; what remains has the signal as its mean. Divided so, the noise is the same in every row. Memory is O(N).
    # A mode with at most `size` observed rows needs no eigenvectors: its basis are the rows themselves. `values` (N,)
    # are centred. With `pairs` A is made of the matrices of mode k and each other mode, next to each other, in place of
    # the unfolding. Modes go side by side, unless entries are so many that this would take room.
    # Source: Cai, Li, Poor and Chen (2022), Nonconvex low-rank tensor completion from noisy data, section 2 (diagonal
    # deletion); the weights of rows are ours.
    counts = [np.bincount(coords[:, k], minlength=n) for k, n in enumerate(shape)]
    seen, before = [int(np.count_nonzero(count)) for count in counts], rng.bit_generator.state
    drawn = [_draw(n, size, len(shape), rng, pairs) for n in seen]

    def basis_of(k: int, by: Executor) -> np.ndarray | None:
        occurring, of_mode = np.flatnonzero(counts[k]), drawn[k]
        count = counts[k][occurring]
        if of_mode is None:
            vectors = np.eye(len(occurring))
        else:
            row = (np.cumsum(counts[k] > 0) - 1)[coords[:, k]]
            scaled, others = values / np.sqrt(count)[row], [j for j in range(coords.shape[1]) if j != k]
            keys, start = of_mode
            parts = zip([[j] for j in others] if len(keys) > 1 else [others], keys, strict=True)
            unfolding = hstack([_unfolding(coords, *part, scaled, row, len(occurring)) for part in parts], format="csr")
            if unfolding.nnz == 0:
                return None
            vectors = _leading(unfolding, size, start, by)
        basis = np.zeros((len(counts[k]), vectors.shape[1]))
        basis[occurring] = vectors * np.sqrt(len(values) / count)[:, None]
        return basis

    many = len(values) > MOST_APART
    bases = [basis_of(k, executor) for k in range(len(shape))] if many else executor.apart(basis_of, len(shape))
    if any(basis is None for basis in bases):  # its start has not been drawn
        rng.bit_generator.state = before
        for n, basis in zip(seen, bases, strict=True):
            _draw(n, size, len(shape), rng, pairs, starts=basis is not None)
    return [np.zeros((n, 0)) if basis is None else basis for n, basis in zip(shape, bases, strict=True)]


def _draw(n: int, size: int, K: int, rng: np.random.Generator, pairs: bool, starts: bool = True) -> Drawn | None:
    """What a mode of n rows with entries needs; None if it is nothing. `starts`: whether its unfolding has elements."""
    if n <= size:
        return None
    unfoldings, modes = (K - 1, 1) if pairs else (1, K - 1)
    keys = [[2 * int(rng.integers(1, 2**62)) + 1 for _ in range(modes)] for _ in range(unfoldings)]
    iterates = starts and n > STEPS * size + BLOCK
    return keys, (rng.standard_normal((n, BLOCK)) if iterates else None)


def _unfolding(
    coords: np.ndarray, modes: list[int], keys: list[int], values: np.ndarray, row: np.ndarray, n_seen: int
) -> csr_matrix:
    """The sparse matrix of rows and cells of these modes, of which those of a single entry are left out."""
    # the sum modulo 2^64 of coordinates times random odd numbers tells cells apart, but for a chance of about n / 2^64
    cells = np.zeros(len(coords), dtype=np.uint64)
    for k, odd in zip(modes, keys, strict=True):
        cells += coords[:, k].astype(np.uint64) * np.uint64(odd)
    column = pd.factorize(cells)[0]
    shared = np.bincount(column)[column] > 1  # the others add to the diagonal alone
    column, names = pd.factorize(column[shared])
    return csr_matrix((values[shared], (row[shared], column)), shape=(n_seen, len(names)))


def _leading(A: csr_matrix, size: int, start: np.ndarray | None, executor: Executor) -> np.ndarray:
    """Eigenvectors (n, r) of A A' without its diagonal for its largest, positive eigenvalues, r <= `size`."""
    # Rayleigh-Ritz in a block Krylov space, whose cost is known beforehand, from a start (n, BLOCK); in that of all
    # rows where there is none
    n = A.shape[0]
    to_rows, to_cells = _product(A, executor), _product(A.T.tocsr(), executor)
    diagonal = np.asarray(A.multiply(A).sum(1)).reshape(-1, 1)

    def times(block: np.ndarray) -> np.ndarray:
        return np.asarray(to_rows(to_cells(block)) - diagonal * block)

    if start is None:
        space = np.eye(n)
        image = times(space)
    else:
        # an orthonormal basis of the Krylov space, and what `times` makes of it
        steps, block = STEPS * size // BLOCK, start
        space, image = np.zeros((n, BLOCK * steps)), np.zeros((n, BLOCK * steps))
        for step in range(steps):
            done, here = space[:, : BLOCK * step], slice(BLOCK * step, BLOCK * (step + 1))
            for _ in range(2):  # a second time for the digits that the first one lost
                block = np.linalg.qr(block - done @ (done.T @ block))[0]
            space[:, here] = block
            image[:, here] = block = times(block)
    value, vector = np.linalg.eigh(space.T @ image)
    kept = np.flatnonzero(value > ROUNDING * np.abs(value).max())[::-1][:size]
    return np.asarray(space @ vector[:, kept])


def _product(A: csr_matrix, executor: Executor) -> Callable[[np.ndarray], np.ndarray]:
    """What multiplies a block (m, BLOCK) by a matrix, of which every thread has rows of about as many elements."""
    parts: dict[tuple[int, int], csr_matrix] = {}

    def rows_between(first: int, last: int) -> csr_matrix:
        """The rows that begin at the elements first:last, without a copy of these."""
        a, b = np.searchsorted(A.indptr, [first, last]).tolist()
        start = A.indptr[a : b + 1] if last < A.nnz else A.indptr[a:]
        at = slice(start[0], start[-1])
        return csr_matrix((A.data[at], A.indices[at], start - start[0]), shape=(len(start) - 1, A.shape[1]))

    def product(block: np.ndarray) -> np.ndarray:
        if A.nnz < LEAST_OF_THREAD:
            return np.asarray(A @ block)
        found: dict[int, np.ndarray] = {}

        def multiply(first: int, last: int) -> None:
            part = parts.get((first, last))
            if part is None:
                part = parts[first, last] = rows_between(first, last)
            found[first] = np.asarray(part @ block)

        executor.run(multiply, 0, A.nnz)
        return found[0] if len(found) == 1 else np.concatenate([found[first] for first in sorted(found)])

    return product


def core_tensor(
    bases: list[np.ndarray], coords: np.ndarray, values: np.ndarray, executor: Executor = ALONE
) -> np.ndarray:
    """The mean over the entries of y times the outer product of the modes' rows, (r_1, ..., r_K)."""
    # row by row of the mode with the fewest, whose own vectors multiply sums over entries in place of entries
    sizes: list[int] = [basis.shape[1] for basis in bases]
    last = int(np.argmin([len(basis) for basis in bases]))
    others = [k for k in range(len(bases)) if k != last]
    half = (len(others) + 1) // 2
    order, first = sorted_places(coords[:, last], len(bases[last]))
    coords, values = coords[order], values[order]
    shape = [int(np.prod([sizes[k] for k in part])) for part in (others[:half], others[half:])]
    core = np.zeros((shape[0] * shape[1], sizes[last]))
    step, most = max(1, CHUNK // len(core)), max(1, CHUNK // sum(shape))

    def add(from_row: int, to_row: int, start: int, sums: np.ndarray) -> None:
        for i in range(from_row, to_row):
            for at in range(first[start + i], first[start + i + 1], most):
                part = slice(at, min(at + most, first[start + i + 1]))
                rows = [bases[k][coords[part, k]] for k in others]
                rows[0] *= values[part, None]
                sums[i] += _outer(rows[:half]).T @ (_outer(rows[half:]) if rows[half:] else np.ones((len(rows[0]), 1)))

    for start in range(0, len(bases[last]), step):
        own = bases[last][start : start + step]
        sums = np.zeros((len(own), *shape))
        executor.run(add, 0, len(own), start, sums)
        core += sums.reshape(len(own), -1).T @ own
    return np.moveaxis((core / len(values)).reshape(*[sizes[k] for k in others], sizes[last]), -1, last)


def _outer(rows: list[np.ndarray]) -> np.ndarray:
    """Outer products of the rows of an entry: (n, prod r)."""
    product = rows[0]
    for row in rows[1:]:
        product = (product[:, :, None] * row[:, None, :]).reshape(len(row), -1)
    return product
