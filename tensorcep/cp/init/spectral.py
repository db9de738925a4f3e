"""Spectral start of a CP model: what the entries show of its factors before any engine runs.

Rows of each mode are sought in a subspace of eigenvectors (`mode_bases`); the small core tensor of the
entries in these subspaces is decomposed (`decompose`); regressions of each mode on the others, all its rows at once,
reach beyond the subspaces (`regress`); entries that were held out say which components are real, and how large they
are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix, hstack

from tensorcep.core.arrays import LEAF, mean_square
from tensorcep.core.diagnostics import THRESHOLDS
from tensorcep.core.executor import ALONE, Executor, one_blas_thread
from tensorcep.cp.init.multistart import climb
from tensorcep.cp.model.entries import entries_by_row, pack_entries, sum_chunks
from tensorcep.kernels.sorting import sorted_places

# Subspaces that hold the rows of each mode, from eigenvectors of the unfoldings of the observed entries.

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


def mode_bases(search: Search, size: int, pairs: bool = False) -> Factors:
    """For each mode rows (n_k, r), r <= `size`, whose span holds its factors; their mean square over entries is 1."""
    # With A the unfolding whose row i is divided by the root of its number of entries, they are the eigenvectors of
    # A A' without its diagonal for positive eigenvalues. The diagonal holds nothing but the squares of values, noise
    # included; what remains has the signal as its mean. Divided so, the noise is the same in every row. Memory is O(N).
    # A mode with at most `size` observed rows needs no eigenvectors: its basis are the rows themselves. `values` (N,)
    # are centred. With `pairs` A is made of the matrices of mode k and each other mode, next to each other, in place of
    # the unfolding. Modes go side by side, unless entries are so many that this would take room.
    # Source: Cai, Li, Poor and Chen (2022), Nonconvex low-rank tensor completion from noisy data, section 2 (diagonal
    # deletion); the weights of rows are ours.
    coords, values, _, shape, _, rng, executor = search
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


def core_tensor(bases: Factors, coords: np.ndarray, values: np.ndarray, executor: Executor) -> np.ndarray:
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


# The core: CP decomposition of a small dense array by alternating ridge regressions from several random starts.
#
# After some sweeps the best of them go on alone: in 261 cores of simulated spectra that took 0.42 of the time, and the
# loss was higher by 0.09 % on average, by 2.3 % at most.

Factors = list[np.ndarray]
Judged = tuple[Factors, np.ndarray, float]  # as of `_judged`
MAX_SWEEPS = 200
# A start has ended when a sweep lowers the loss by less than this share of it.
TOL = 1e-5
# So many starts have some sweeps; of them so many go on.
STARTS, TRIAL_SWEEPS, KEPT = 8, 20, 2


def decompose(core: np.ndarray, rank: int, penalty: float, rng: np.random.Generator) -> Factors:
    """Factors [(r_k, rank)] that minimise half the squared residuals plus `penalty` / 2 times their squares."""
    # the penalty, equal for all modes, sends components that are weaker than it allows to zero
    scale = (float((core * core).sum()) / rank) ** (0.5 / core.ndim)
    drawn = [[rng.standard_normal((r, rank)) * scale / np.sqrt(r) for r in core.shape] for _ in range(STARTS)]
    factors = [np.stack(parts) for parts in zip(*drawn, strict=True)]
    for kept, sweeps in ((KEPT, TRIAL_SWEEPS), (1, MAX_SWEEPS)):
        best = np.argsort(_descend(core, factors, penalty, sweeps), kind="stable")[:kept]
        factors = [factor[best] for factor in factors]
    return [factor[0] for factor in factors]


def _descend(core: np.ndarray, factors: Factors, penalty: float, sweeps: int) -> np.ndarray:
    """Let starts, factors [(n, r_k, rank)], descend in place for so many sweeps; gives what each loses in the end."""
    # side by side, because steps of small matrices take no longer for all of them than for one; threads that share them
    # would wait for Python's lock longer than they gain
    unfolded = [np.moveaxis(core, k, 0).reshape(core.shape[k], -1) for k in range(core.ndim)]
    size, ridge = float((core * core).sum()), penalty * np.eye(factors[0].shape[-1])
    losses = np.full(len(factors[0]), np.inf)
    on = np.arange(len(losses))
    for _ in range(sweeps):
        here = [factor[on] for factor in factors]
        for k in range(core.ndim):
            others = here[:k] + here[k + 1 :]
            gram = np.prod([_gram(factor) for factor in others], axis=0)
            product = others[0]  # columnwise Kronecker products, (n, prod r_k, rank)
            for factor in others[1:]:
                product = (product[:, :, None] * factor[:, None]).reshape(len(factor), -1, factor.shape[-1])
            right = unfolded[k] @ product
            here[k] = np.linalg.solve(gram + ridge, right.transpose(0, 2, 1)).transpose(0, 2, 1)
        squares = (gram * _gram(here[-1])).sum(axis=(1, 2))
        loss = 0.5 * (size - 2.0 * (right * here[-1]).sum(axis=(1, 2)) + squares)
        loss += 0.5 * penalty * sum((factor * factor).sum(axis=(1, 2)) for factor in here)
        for factor, now in zip(factors, here, strict=True):
            factor[on] = now
        before, losses[on] = losses[on], loss
        on = on[before - loss > TOL * loss]
        if not len(on):
            break
    return losses


def _gram(factors: np.ndarray) -> np.ndarray:
    return factors.transpose(0, 2, 1) @ factors


def penalty_of(n_numbers: int, N: int, K: int) -> float:
    """The penalty that just sends a component to zero that has fitted this many numbers to noise alone."""
    # its size is that of the noise in the core, s; K penalty s^(2 / K) outweighs the s^2 that it explains
    return float((n_numbers / N) ** (1.0 - 1.0 / K) / K)


def regress(factors: Factors, coords: np.ndarray, values: np.ndarray, sweeps: int, executor: Executor) -> Factors:
    """Sweeps of regressions of each mode on the others."""
    # all rows of a mode share one Gram matrix, what it would be were every cell as likely to be observed as its rows
    # say: a sweep costs N R additions, and no row with few entries runs away
    N, K = coords.shape
    rank = factors[0].shape[1]
    count = [np.maximum(np.bincount(coords[:, k], minlength=len(factors[k])), 1)[:, None] for k in range(K)]
    penalty = penalty_of(sum(int(np.count_nonzero(factor.any(1))) for factor in factors), N, K) * np.eye(rank)
    entries = pack_entries(coords, values, [len(factor) for factor in factors])
    by_row, first = entries_by_row(entries, executor=executor), entries.offsets
    source = np.concatenate(factors)
    sums = np.empty_like(source)
    record = ((entries.y.ravel(), source, sums),)
    for _ in range(sweeps):
        for k in range(K):
            gram = np.prod([factors[j].T @ (count[j] * factors[j]) / N for j in range(K) if j != k], axis=0)
            cuts = by_row.chunks[k]
            executor.run(sum_chunks, 0, len(cuts) - 1, cuts, by_row, record, scratch=lambda: (np.empty(rank),))
            right = sums[first[k] : first[k + 1]] / count[k]
            factors[k] = np.linalg.lstsq(gram + penalty, right.T, rcond=None)[0].T
            source[first[k] : first[k + 1]] = factors[k]
    return factors


# The core has at most this many elements; for each vector of a mode this many multiplications are spent on it. Modes of
# high order get fewer vectors than the rank (rank 20: 20 in orders 2 to 4 up to 500,000 entries, 11 and 7 in 5 and 6).
MAX_CORE = 200_000
MAX_WORK = 4e9
# Weak components are spread over more eigenvectors than one: at least so many are taken where the core allows it, and
# as many columns are sought as well.
MIN_SIZE = 20
# They must explain so much more, as a share of the weakest component that is found without them: else one was parted.
LEAST_MORE = 0.5
# Columns of a search where more of them show nothing, and eigenvectors of each mode in pairs of modes.
FEW = 5
# With fewer entries a search in pairs of modes takes as long as everything else in a fit.
LEAST_FOR_PAIRS = 10_000
# Regressions of every mode on the others after the core.
SWEEPS = 8
# Columns of which products at all entries are taken at a time.
COLUMNS = 4
# Values further from their mean, in standard deviations, count as so far: spectra are those of the largest values else.
LARGEST = 4.0
# Mean square, over the entries, above which a component sits on few of them; rows that they miss give it 1.
CONCENTRATED = 10.0
# Components of a smaller size, in standard deviations of the values, are none.
VANISHED = 1e-4


class Search(NamedTuple):
    """Coordinates and values of the entries that shape components and of those held out, and what all steps need."""

    coords: np.ndarray
    values: np.ndarray
    held: tuple[np.ndarray, np.ndarray]
    shape: Sequence[int]
    rank: int
    rng: np.random.Generator
    executor: Executor


class SpectralStart(NamedTuple):
    """Where a fit of a CP model may start."""

    # [(n_k, rank)], columns by falling strength, each of the same root mean square in every mode; after `n_found` of
    # them small random numbers
    factors: Factors
    n_found: int  # components that the data show
    correlation: float  # between the values held out and what the components say of them; 0 where none is found


def spectral_start(
    coords: np.ndarray,
    values: np.ndarray,
    shape: Sequence[int],
    rank: int,
    *,
    seed: int,
    spare: float = 0.1,
    least_size: int = MIN_SIZE,
    pairs: bool = True,
    starts: bool = True,
    executor: Executor = ALONE,
) -> SpectralStart:
    """Factors of a CP model from the spectra of the unfoldings of its entries. Time and memory are linear in N."""
    # Of constant values, and of few entries, no component is found. Equal seeds give equal bits, whatever the number of
    # threads. values (N,) are in the units of the latent value f; columns that the data do not show, and rows without
    # entries, have the standard deviation `spare` beside factors whose product has that of the values. least_size:
    # eigenvectors of each mode, where `rank` is not more; pairs: whether pairs of modes are searched where unfoldings
    # of 10,000 entries and more show nothing; starts: whether many quick starts are tried where a few thousand do.
    rng, centred = np.random.default_rng(seed), values - (values.mean() if len(values) else 0.0)
    spread = float(np.sqrt(mean_square(centred))) if len(values) else 0.0
    unit = (spread / np.sqrt(rank)) ** (1.0 / len(shape)) if spread > 0.0 else 1.0
    factors = [spare * unit * rng.standard_normal((n, rank)) for n in shape]
    if len(values) < THRESHOLDS.fewest or spread == 0.0:
        return SpectralStart(factors, 0, 0.0)
    with one_blas_thread():
        centred /= spread
        np.clip(centred, -LARGEST, LARGEST, out=centred)
        order, n = rng.permutation(len(values)), int(len(values) * THRESHOLDS.share)
        held, used = np.sort(order[:n]), np.sort(order[n:])
        apart = coords[held], centred[held]
        search = Search(coords[used], centred[used], apart, shape, rank, rng, executor)
        del centred, order, held, used, apart
        found, strength, correlation = _best_components(search, least_size, pairs, starts)
    order = np.argsort(-np.abs(strength), kind="stable")[:rank]
    n_found = int(np.count_nonzero(strength[order]))
    scale = np.abs(strength[order] * spread) ** (1.0 / len(shape))
    scale[n_found:] = spare * unit  # what is not sure may be there all the same
    for k, factor in enumerate(factors):
        rows = np.unique(search.coords[:, k])
        factor[rows, : len(order)] = found[k][np.ix_(rows, order)] * scale
        if k == 0:
            factor[:, :n_found] *= np.sign(strength[order[:n_found]])
    return SpectralStart(factors, n_found, correlation)


def most_vectors(N: int, K: int) -> int:
    """Eigenvectors of each of K modes that there is time and memory for, given N entries."""
    return int(min(MAX_CORE ** (1.0 / K), (MAX_WORK / N) ** (1.0 / (K - 1))) + 1e-9)


def _best_components(search: Search, least_size: int, pairs: bool, starts: bool) -> Judged:
    """Factors from some entries, the strength of each and the correlation reached on the others."""
    N, K = search.coords.shape
    size = max(1, min(max(search.rank, least_size), most_vectors(N, K)))
    best = _best_in(search, size, False)
    # where unfoldings show nothing, pairs of modes do, summed over all others: hardly two entries of a large tensor may
    # share a column of an unfolding, and components whose rows do not have a mean of 0 are seen in pairs as well
    if best[1].any() or not pairs or K == 2:
        return best
    if N + len(search.held[1]) >= LEAST_FOR_PAIRS:
        best = _best_in(search, min(size, FEW), True)
    if best[1].any() or not starts:
        return best
    climbed = climb(search.coords, search.values, search.shape, search.rng, search.executor)
    judged = best if climbed is None else _judged(search, climbed)
    return judged if judged[1].any() else best


def _best_in(search: Search, size: int, pairs: bool) -> Judged:
    """The same from unfoldings, or from pairs of modes, and so many eigenvectors of each mode."""
    # A decomposition of no more columns than there are components leaves some of these without one. Where it needs all
    # of its columns more are tried, too, and a few where it finds nothing, since components then merge with less noise.
    # A matrix has no such local optima. Regressions of as few entries as pairs are for would end on some of them.
    coords, values, _, shape, rank, rng, executor = search
    bases = mode_bases(search, size, pairs)
    best = [np.zeros((n, 0)) for n in shape], np.zeros(0), 0.0
    if min(basis.shape[1] for basis in bases) == 0:
        return best
    core = core_tensor(bases, coords, values, executor)
    width: int | None = rank
    while width is not None:
        parts = decompose(core, width, penalty_of(sum(core.shape), *coords.shape), rng)
        real = np.prod([np.sqrt((part**2).sum(0)) for part in parts], axis=0) > VANISHED
        found = [basis @ part[:, real] for basis, part in zip(bases, parts, strict=True)]
        if real.any() and not pairs:
            found = regress(found, coords, values, SWEEPS, executor)
        norms = [np.sqrt((factor**2).sum(0) / max(1, np.count_nonzero(factor.any(1)))) for factor in found]
        real = np.prod(norms, axis=0) > VANISHED
        found = [factor[:, real] / norm[real] for factor, norm in zip(found, norms, strict=True)]
        crowded = found[0].shape[1] == width and not pairs
        found, strength, correlation = _judged(search, found)
        weakest = min(best[1][best[1] != 0.0] ** 2, default=0.0)
        if width == rank or correlation**2 - best[2] ** 2 > LEAST_MORE * weakest:
            best = found, strength, correlation
        others = MIN_SIZE if crowded and rank < MIN_SIZE else FEW if rank > FEW and not strength.any() else None
        width = others if width == rank and len(shape) > 2 else None
    return best


def _products(factors: Factors, coords: np.ndarray, executor: Executor) -> np.ndarray:
    """Products of the rows of all modes at every entry: (N, R)."""
    product = np.empty((len(coords), factors[0].shape[1]))

    def multiply(first: int, last: int) -> None:
        for a in range(first, last, LEAF):
            at = slice(a, min(a + LEAF, last))
            product[at] = factors[0][coords[at, 0]]
            for factor, rows in zip(factors[1:], coords[at, 1:].T, strict=True):
                product[at] *= factor[rows]

    executor.run(multiply, 0, len(coords), align=LEAST_OF_THREAD)
    return product


def _judged(search: Search, factors: Factors) -> Judged:
    """The components that are spread out, their least-squares weights on entries held out, and the correlation."""
    # components enter one by one, the one that explains most first, while it is surely above noise, and at most as many
    # as the rank; the weight of the others is 0
    # a mean square over the entries that shaped them is to be what their rows promise, 1, or near it: one that sits on
    # the rows of a single large value lies far above it there, and explains nothing but that value
    squares, R = [np.zeros(0)], factors[0].shape[1]
    for some in np.array_split(np.arange(R), max(1, -(-R // COLUMNS))):
        z = _products([factor[:, some] for factor in factors], search.coords, search.executor)
        squares.append(np.einsum("nr,nr->r", z, z))
    kept = np.concatenate(squares) / len(search.coords) < CONCENTRATED
    factors = [factor[:, kept] for factor in factors]
    strength, (coords, values) = np.zeros(factors[0].shape[1]), search.held
    z = _products(factors, coords, search.executor)
    norm = np.sqrt((z**2).sum(0))
    norm[norm == 0.0] = np.inf
    chosen: list[int] = []
    residual = values
    while len(chosen) < min(len(strength), search.rank, len(values) - 1):
        gain = np.abs(residual @ z) / norm
        gain[chosen] = 0.0
        if gain.max() <= THRESHOLDS.surely * np.sqrt(np.mean(residual**2)):
            break
        chosen.append(int(np.argmax(gain)))
        weight = np.linalg.lstsq(z[:, chosen], values, rcond=None)[0]
        residual = values - z[:, chosen] @ weight
    if not chosen:
        return factors, strength, 0.0
    strength[chosen] = weight
    return factors, strength, float(np.corrcoef(values - residual, values)[0, 1])
