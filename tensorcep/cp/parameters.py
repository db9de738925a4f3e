"""What is learned of the likelihood of a problem: the parameter, its prior, and which entries share one."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.belief import Dispersion, GammaNoise
from tensorcep.core.checks import check_int
from tensorcep.cp.problem import Problem
from tensorcep.likelihoods.parameter import Gamma, Parameter


class Groups(NamedTuple):
    """Which entries share a parameter.

    Attributes
    ----------
    mode : int or None
    of_entry : (n_blocks, LANES) int64
        Number of the parameter of every entry (0 in padding lanes).
    size : int
        How many parameters there are.
    """

    mode: int | None
    of_entry: np.ndarray
    size: int

    def totals(self, values: np.ndarray) -> np.ndarray:
        """Sums of (n_blocks, LANES) values over the entries of each parameter."""
        return np.bincount(self.of_entry.ravel(), weights=values.ravel(), minlength=self.size)

    def per_entry(self, theta: np.ndarray) -> np.ndarray:
        """The parameter (m,) of every entry, (n_blocks, LANES)."""
        return np.full(self.of_entry.shape, theta[0]) if self.mode is None else theta[self.of_entry]


def groups_of(problem: Problem, mode: int | None) -> Groups:
    """One group, or one per row of `mode`."""
    entries = problem.entries
    if mode is None:
        return Groups(None, np.zeros(entries.y.shape, dtype=np.int64), 1)
    of_entry = entries.rows[:, mode].astype(np.int64) - entries.offsets[mode]
    return Groups(mode, np.where(entries.weight > 0, of_entry, 0), problem.shape[mode])


class Learned(NamedTuple):
    """A parameter that is learned, shape and rate of its prior, and who shares one."""

    parameter: Parameter
    prior: tuple[float, float]
    groups: Groups

    def result(self, law: Gamma) -> dict[str, Any]:
        """Its part of a `Posterior`."""
        if self.parameter.is_precision:
            return {"noise": GammaNoise(float(law.a[0]), float(law.b[0]))}
        return {"noise": None, "dispersion": Dispersion(self.groups.mode, law.a, law.b)}


def learned_parameter(problem: Problem, options: Any) -> Learned | None:
    """What is learned; None for likelihoods without a parameter, or one whose prior the problem does not give.

    The prior of a precision is the problem's. That of any other parameter, and the mode whose rows have one each, are
    settings of the method, called by its name.
    """
    parameter = problem.likelihood.parameter
    if parameter is None:
        return None
    if parameter.is_precision:
        prior = problem.noise_prior
        return None if prior is None else Learned(parameter, (prior.a, prior.b), groups_of(problem, None))
    mode = getattr(options, f"{parameter.name}_mode", None)
    if mode is not None:
        check_int(f"{parameter.name}_mode", mode, 0, len(problem.shape) - 1)
    return Learned(parameter, getattr(options, f"{parameter.name}_prior", parameter.prior), groups_of(problem, mode))
