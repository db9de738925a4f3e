"""The start of a problem from spectra (`tensorcep.cp.init.spectral`): of the values, and of what a fit leaves over."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorcep.core.arrays import RunningSum
from tensorcep.core.diagnostics import THRESHOLDS
from tensorcep.core.executor import ALONE, Executor, one_blas_thread
from tensorcep.cp.init.spectral import MIN_SIZE, most_vectors, spectral_start
from tensorcep.cp.model.entries import all_coords
from tensorcep.cp.model.latent import latent_of_entries
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.rows import ENTRIES_AT_A_TIME
from tensorcep.cp.model.subsets import of_telling
from tensorcep.cp.posterior import Components
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods.base import log_density

# Sweeps that take main effects off.
MAIN_SWEEPS = 3
# The columns of a start that the data do not show, as a share of their size were all shown: an engine then finds weak
# components in them, which it does not in smaller ones, and does not follow the noise, as it does in larger ones. A
# point estimate, in which they do not shrink, would be led by them to worse optima; it begins with smaller ones.
SPARE, SMALL_SPARE = 0.5, 0.1
# Steps to the constant latent value that fits best, and the least information of an entry that is divided by.
SCORING_STEPS, LEAST_INFORMATION = 30, 1e-6
NOTHING = np.zeros((0, LANES))
# A column of less than this share of the strongest is not used: it has a thousandth of its variance.
UNUSED = 0.03
# Eigenvectors of each mode in a wide search; with fewer entries it takes as long as everything else in a fit.
WIDE, LEAST_WIDE = 40, 10_000


def with_spectral_start(problem: Problem, spare: float = SPARE, executor: Executor = ALONE) -> Problem:
    """The problem with a start from the data; `spare` is the size of the columns that these do not show."""
    told = of_telling(problem)
    entries, start, free = told.entries, np.array(problem.start), problem.every_free
    coords, every = all_coords(entries), modes_of_products(free)
    rest, first = working_values(told), entries.offsets
    parts, part_of = np.unique(free.T, axis=0, return_inverse=True)
    for part in np.argsort(parts.sum(axis=1), kind="stable"):
        columns, modes = np.flatnonzero(part_of.ravel() == part), np.flatnonzero(parts[part])
        if len(modes) == 1:
            rest = without_main_effects(_in_modes(coords, every), rest, [problem.shape[k] for k in every])
            continue
        sizes, own = [problem.shape[k] for k in modes], _in_modes(coords, modes)
        how: dict[str, Any] = {"seed": problem.seed, "spare": spare, "starts": _tries(problem), "executor": executor}
        factors = spectral_start(own, rest, sizes, len(columns), **how).factors
        for k, factor in zip(modes, factors, strict=True):
            start[first[k] : first[k + 1], columns] = factor
        found = np.where(free[:, columns].repeat(problem.shape, axis=0), start[:, columns], 1.0)
        rest -= _latent(told, found, executor)
    return problem._replace(start=start)


def _tries(problem: Problem) -> bool:
    """Whether one of many starts may find what spectra do not: labels and levels tell too little."""
    return problem.tries and problem.likelihood.observes not in ("labels", "levels")


def _in_modes(coords: np.ndarray, modes: np.ndarray) -> np.ndarray:
    """Coordinates in these modes, of all without a copy."""
    return coords if len(modes) == coords.shape[1] else coords[:, modes]


def modes_of_products(free: np.ndarray) -> np.ndarray:
    """The modes that columns of several modes belong to: pairs of rows, which only have a main effect, hide these."""
    several = free[:, free.sum(axis=0) > 1].any(axis=1)
    return np.flatnonzero(several) if several.any() else np.arange(len(free))


def with_more_components(
    problem: Problem, fitted: Components, thorough: bool = True, executor: Executor = ALONE
) -> Problem | None:
    """The problem with a start at a fit's means, where its weakest columns hold what it leaves over; None if weaker."""
    # against less noise, spectra show what was hidden beside stronger components; a column that started empty has
    # followed the noise. A thorough search that shows nothing is made again in pairs of modes, and with more
    # eigenvectors
    entries, free, start = problem.entries, problem.every_free, fitted.mean[0].copy()
    every = modes_of_products(free)
    columns = np.flatnonzero(free[every].all(axis=0))
    if not len(columns):
        return None
    first, old = entries.offsets, strengths(problem, start)
    columns = columns[np.argsort(old[columns], kind="stable")]
    likelihood, theta = problem.likelihood, fitted.theta
    likelihood = likelihood if theta is None else likelihood.as_fitted(theta.values[0])
    told = of_telling(problem._replace(likelihood=likelihood))
    rest, coords = _left_over(told, start, executor), _in_modes(all_coords(told.entries), every)
    sizes = [problem.shape[k] for k in every]
    # more eigenvectors where fewer show nothing: a component hardly stronger than noise is spread over many of them
    wide = thorough and len(every) > 2 and len(rest) >= LEAST_WIDE and most_vectors(len(rest), len(every)) >= WIDE
    for size in (MIN_SIZE, WIDE) if wide else (MIN_SIZE,):
        how: dict[str, Any] = {"least_size": size, "pairs": thorough, "starts": _tries(problem), "executor": executor}
        more = spectral_start(coords, rest, sizes, len(columns), seed=problem.seed, **how)
        found = np.prod([np.sqrt((factor**2).mean(axis=0)) for factor in more.factors], axis=0)[: more.n_found]
        n = int(np.cumprod(found > old[columns[: len(found)]]).sum())
        if n:
            for k, factor in zip(every, more.factors, strict=True):
                start[first[k] : first[k + 1], columns[:n]] = factor[:, :n]
            return problem._replace(likelihood=told.likelihood, start=start)
    return None


def strengths(problem: Problem, rows: np.ndarray) -> np.ndarray:
    """The size (R,) of what each column of rows (n_rows, R) says: the product of its root mean squares in all modes."""
    modes = [rows[a:b] for a, b in itertools.pairwise(problem.entries.offsets)]
    return np.asarray(np.prod([np.sqrt((mode**2).mean(axis=0)) for mode in modes], axis=0))


def used(sizes: np.ndarray) -> np.ndarray:
    """Which columns of these sizes (`strengths`) say something beside the strongest one."""
    return np.asarray(sizes > UNUSED * sizes.max(initial=0.0))


def used_columns(problem: Problem, mean: np.ndarray, spare: int = 0) -> np.ndarray:
    """Main effects, the columns that row means say something in (`used`), and so many components beside these."""
    free, offsets = problem.every_free, problem.entries.offsets.tolist()
    main = free.sum(axis=0) == 1
    if problem.free is not None:  # the constant in main effects, which levels have, is no component's rival
        mean = mean.copy()
        for own, (a, b) in zip(free, itertools.pairwise(offsets), strict=True):
            mean[a:b, own & main] -= mean[a:b, own & main].mean(axis=0)
    sizes = strengths(problem, mean)
    kept = main | used(sizes)
    others = np.flatnonzero(~kept & free.all(axis=0))
    kept[others[np.argsort(-sizes[others], kind="stable")[:spare]]] = True
    return np.flatnonzero(kept)


def shown(problem: Problem, free: np.ndarray, rows: np.ndarray | None = None, executor: Executor = ALONE) -> float:
    """The largest share of the values' variance, or of what rows leave, that columns of modes `free` (K, n) explain."""
    problem, least = of_telling(problem), 0.0
    coords = all_coords(problem.entries)
    rest = working_values(problem) if rows is None else _left_over(problem, rows, executor)
    parts, sizes = np.unique(free.T, axis=0, return_counts=True)
    for k in np.flatnonzero(parts[parts.sum(axis=1) == 1].any(axis=0)):
        own = rest - rest.mean()
        count, total = np.bincount(coords[:, k]), float(np.mean(own**2))
        n = int(np.count_nonzero(count))
        square = float((np.bincount(coords[:, k], weights=own) ** 2 / np.maximum(count, 1)).sum())
        if square > (n + THRESHOLDS.surely * np.sqrt(2.0 * n)) * total:  # means of noise: a chi-square of their number
            least = max(least, (square / total - n) / len(own))
    every = modes_of_products(problem.every_free)
    rest = without_main_effects(_in_modes(coords, every), rest, [problem.shape[k] for k in every])
    several = [(np.flatnonzero(part), size) for part, size in zip(parts, sizes.tolist(), strict=True) if part.sum() > 1]

    def correlation(i: int, by: Executor) -> float:
        modes, size = several[i]
        own, shape = _in_modes(coords, modes), [problem.shape[k] for k in modes]
        return spectral_start(own, rest, shape, size, seed=problem.seed, starts=False, executor=by).correlation

    with one_blas_thread():  # spectra of some modes may end while those of others go on
        return max([least, *(found**2 for found in executor.apart(correlation, len(several)))])


def _latent(problem: Problem, rows: np.ndarray, executor: Executor) -> np.ndarray:
    """What rows (n_rows, R) say of the latent values (N,) of the entries."""
    f = latent_of_entries(problem.entries._replace(known=NOTHING), np.ascontiguousarray(rows), executor)
    return f.ravel()[: len(problem.entries.permutation)]


def _left_over(problem: Problem, rows: np.ndarray, executor: Executor) -> np.ndarray:
    """What working values (N,) are beside what rows (n_rows, R) say of them."""
    f = _latent(problem, rows, executor)
    rest = working_values(problem, f)
    rest -= f
    return rest


def working_values(problem: Problem, f: np.ndarray | None = None) -> np.ndarray:
    """What values say of what the rows say, by one step of Fisher's scoring from f, or the constant that fits best."""
    entries, likelihood, n = problem.entries, problem.likelihood, len(problem.entries.permutation)
    d1, constant, score, information = np.empty(n), 0.0, 0.0, 1.0
    for step in range(1 if f is not None else SCORING_STEPS):
        constant += float(np.clip(score / information, -1.0, 1.0)) if step else 0.0
        sums = RunningSum(n), RunningSum(n)
        for first in range(0, n, ENTRIES_AT_A_TIME):
            at = slice(first, min(n, first + ENTRIES_AT_A_TIME))
            y, latent = entries.y.ravel()[at], np.full(at.stop - first, constant) if f is None else f[at]
            theta = entries.theta.ravel()[at] if len(entries.theta) else likelihood.default_theta
            if likelihood.levels is not None:
                y, theta = likelihood.levels.between(y, likelihood.levels.start)
            latent = latent + entries.known.ravel()[at] if len(entries.known) else latent
            _, d1[at], d2 = log_density(likelihood.loglik, y, latent, theta)
            sums[0].add(d1[at])
            sums[1].add(d2)
        score, information = sums[0].sum / max(1, n), max(-sums[1].sum / max(1, n), LEAST_INFORMATION)
    d1 /= information
    d1 += constant if f is None else f
    return d1


def without_main_effects(coords: np.ndarray, values: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Values less one number per row of each mode, by sweeps of means that count one entry more than there are."""
    rest = values - (values.mean() if len(values) else 0.0)
    for _ in range(MAIN_SWEEPS):
        for k, n in enumerate(shape):
            count = np.bincount(coords[:, k], minlength=n) + 1.0
            rest -= (np.bincount(coords[:, k], weights=rest, minlength=n) / count)[coords[:, k]]
    return rest
