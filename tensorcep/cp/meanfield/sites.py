"""What the entries say of their latent values: the expected weight and target of every entry.

Where a likelihood is Gaussian in f as it is, that is 1 and y. Elsewhere an auxiliary variable per entry makes it so
(`tensorcep.likelihoods.augmentation`), whose best law given the rows follows from E[f], and E[f^2] where weights do.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from tensorcep.core.arrays import copy_near, empty_near
from tensorcep.core.executor import Executor
from tensorcep.cp.model.entries import SQUARES, room_for_products
from tensorcep.cp.model.parameters import Laws, Parameters, kernel_arguments
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.rows import RowSource, per_entry, times_in_sum
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods.base import Augmentation
from tensorcep.likelihoods.parameters.base import DrawStage


class ExpectedSites(NamedTuple):
    """Every entry's latent value and what it says of it, (n_blocks, LANES) each, 0 in padding lanes."""

    f: np.ndarray  # E[f]
    square: np.ndarray  # E[f^2]; no blocks where nothing depends on it
    weight: np.ndarray  # these four: see `Augmentation.expected`
    target: np.ndarray
    spread: np.ndarray
    constant: np.ndarray
    # of counts with structural zeros, the probability that the entry is none; no blocks for others
    present: np.ndarray = np.zeros((0, LANES))

    def remade(self) -> tuple[str, ...]:
        """What no file keeps: it is made before it is read."""
        return ("f", "square", "spread", "constant", "present")

    def update(
        self, augmentation: Augmentation, parameters: Parameters, laws: Laws, problem: Problem, executor: Executor
    ) -> None:
        """Set the best laws of the auxiliary variables at the latent values, in place."""
        y, theta = kernel_arguments(parameters, laws, problem)
        square = self.square if augmentation.weighted else self.f
        results = (self.weight, self.target, self.spread, self.constant)
        per_entry((y, self.f, square, theta), results, augmentation.expected, problem, executor)
        for parameter, law in zip(parameters, laws, strict=True):
            present = parameter.weigh_expected(law, y, (self.f, self.square), results)
            if present is not None:
                used = problem.entries.weight
                np.multiply(present, used, out=self.present)
                self.constant[-1:] *= used[-1:]  # only the last block may have padding lanes
        if problem.power is not None:
            for part in results:
                part *= problem.power
        for parameter, law in zip(parameters, laws, strict=True):
            for part in results[:3] if parameter.uneven else ():
                part *= law.mean


def as_observed(problem: Problem, augmentation: Augmentation, parameters: Parameters) -> ExpectedSites:
    """Weight 1 and target y, times the entry's power; latent values are not set yet."""
    y, weight, none = problem.entries.y, problem.entries.weight, np.zeros((0, LANES))
    if problem.power is not None:
        y, weight = problem.power * y, problem.power
    if augmentation.expected is None:
        weight, y = (weight, y) if problem.uneven is None else (weight.copy(), y.copy())
        return ExpectedSites(none, none, weight, y, none, none)
    spread, constant = empty_near(problem.entries.y), empty_near(problem.entries.y)
    spread[:], constant[:] = 0.0, 0.0
    sites = ExpectedSites(none, none, copy_near(weight), copy_near(y), spread, constant)
    some_present = any(one.stage == DrawStage.PRESENCE for one in parameters)
    return sites._replace(present=copy_near(weight)) if some_present else sites


def squared_targets(sites: ExpectedSites, problem: Problem) -> float:
    """The sum of weight times the square of the target of one entry."""
    y, weight = sites.target, problem.power if problem.uneven is None else sites.weight
    if weight is None:
        return float(np.einsum("bl,bl->", y, y))
    used = weight > 0.0
    return float((y[used] ** 2 / weight[used]).sum())


def latent_squares(problem: Problem, second: RowSource, executor: Executor, f: np.ndarray | None = None) -> np.ndarray:
    """E[f^2] of the entries, (n_blocks, LANES), from packed second moments of all columns; with what is known, by f."""
    rows, twice, square = problem.entries.rows, times_in_sum(problem.rank), empty_near(problem.entries.y)
    executor.run(SQUARES, 0, len(square), rows, second, twice, square, scratch=partial(room_for_products, len(twice)))
    square *= problem.entries.weight
    known = problem.entries.known
    if len(known) and f is not None:
        square += known * (2.0 * f - known)
    return np.maximum(square, 0.0, out=square)  # rounding can take one of a row with little variance below
