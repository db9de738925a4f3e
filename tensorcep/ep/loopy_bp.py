"""Loopy belief propagation on factor graphs of discrete tables: EP with a fully factorised posterior.

Each factor is refined in turn: its messages are left out of the beliefs of its variables, the factor is multiplied in,
and the marginals of the result become the new beliefs. On a tree this is exact.

Source: Minka (2001), Expectation propagation for approximate Bayesian inference, sec. 4. Where we differ: the scale
Z_i belongs to a factor once, not to each of its messages; with it the evidence (eq. 11) is that of Bethe.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp, xlogy

from tensorcep.core.checks import check_int, check_range, fail_value

# The log messages that a variable gets, by the number of the factor.
Messages = dict[int, np.ndarray]


class Factor(NamedTuple):
    """One factor: the variables it joins, and its table of values >= 0 with one axis for each of them."""

    variables: tuple[int, ...]
    table: np.ndarray


class BPResult(NamedTuple):
    """A fit of belief propagation.

    Attributes
    ----------
    marginals : list of (n_states,) float64
        Probabilities of each variable's states.
    beliefs : list of ndarray
        Joint probabilities of the variables of each factor, of the shape of its table.
    log_evidence : float
        Bethe estimate of the log of the sum over all states of the product of the factors.
    n_iter : int
    converged : bool

    Examples
    --------
    >>> from tensorcep import LoopyBP
    >>> result = LoopyBP().fit([2, 2], [((0, 1), [[3.0, 1.0], [1.0, 3.0]])])
    >>> result.beliefs[0].round(3).tolist(), round(result.log_evidence, 3)
    ([[0.375, 0.125], [0.125, 0.375]], 2.079)
    """

    marginals: list[np.ndarray]
    beliefs: list[np.ndarray]
    log_evidence: float
    n_iter: int
    converged: bool


@dataclass(frozen=True)
class LoopyBP:
    """Loopy belief propagation.

    Parameters
    ----------
    damping : float in [0, 1)
        Fraction of the old log message kept.
    max_iter : int
        Largest number of sweeps over the factors.
    tol : float
        Stop when no message, undamped, would change a probability by more than this.

    Examples
    --------
    >>> from tensorcep import LoopyBP
    >>> result = LoopyBP().fit([2, 2], [((0,), [3.0, 1.0]), ((0, 1), [[2.0, 1.0], [1.0, 2.0]])])
    >>> result.marginals[0].round(3).tolist()
    [0.75, 0.25]
    """

    damping: float = 0.0
    max_iter: int = 200
    tol: float = 1e-10

    def fit(self, n_states: Sequence[int], factors: Sequence[tuple[Sequence[int], Any]]) -> BPResult:
        """Run belief propagation.

        Parameters
        ----------
        n_states : sequence of int
            Number of states of each variable.
        factors : sequence of (variables, table)
            Distinct variables by number, and an array of values >= 0 with one axis for each.

        Returns
        -------
        BPResult

        Raises
        ------
        ValueError
            On input that is not allowed, or factors that rule out every state.

        Examples
        --------
        >>> from tensorcep import LoopyBP
        >>> result = LoopyBP().fit([2, 2], [((0, 1), [[3.0, 1.0], [1.0, 3.0]])])
        >>> result.converged, result.marginals[1].tolist()
        (True, [0.5, 0.5])
        """
        damping = check_range("damping", self.damping, 0.0, 1.0, include_high=False)
        max_iter, tol = check_int("max_iter", self.max_iter), check_range("tol", self.tol, 0.0)
        sizes = [check_int("n_states", size) for size in n_states]
        graph = [_check_factor(number, item, sizes) for number, item in enumerate(factors)]
        messages: list[Messages] = [{} for _ in sizes]
        for number, factor in enumerate(graph):
            for v in factor.variables:
                messages[v][number] = np.zeros(sizes[v])
        change, n_iter = np.inf, 0
        while n_iter < max_iter and change >= tol:
            change, n_iter = 0.0, n_iter + 1
            for number, factor in enumerate(graph):
                change = max(change, _refine(number, factor, messages, damping))
        joint = [np.exp(_normalised(_log_joint(i, factor, messages))) for i, factor in enumerate(graph)]
        beliefs = [sum(own.values(), np.zeros(n)) for own, n in zip(messages, sizes, strict=True)]
        marginals = [np.exp(_normalised(belief)) for belief in beliefs]
        return BPResult(marginals, joint, _bethe(graph, joint, marginals), n_iter, bool(change < tol))


def _check_factor(number: int, item: tuple[Sequence[int], Any], sizes: Sequence[int]) -> Factor:
    variables = tuple(check_int("variables", v, 0, len(sizes) - 1) for v in item[0])
    if not variables or len(set(variables)) != len(variables):
        fail_value(f"factor {number} must join distinct variables, at least one; got {variables}.")
    table = np.asarray(item[1], dtype=np.float64)
    shape = tuple(sizes[v] for v in variables)
    if table.shape != shape:
        fail_value(f"the table of factor {number} must have shape {shape}; got {table.shape}.")
    if not (np.isfinite(table).all() and (table >= 0.0).all() and table.any()):
        fail_value(f"the table of factor {number} must hold finite numbers >= 0, not all 0.")
    return Factor(variables, table)


def _normalised(log_weights: np.ndarray) -> np.ndarray:
    return log_weights - logsumexp(log_weights)


def _cavity(messages: Messages, number: int) -> np.ndarray:
    """Log belief of a variable without one factor: a sum, because messages may be -inf and have no difference."""
    zero = np.zeros_like(messages[number])
    return sum((message for other, message in messages.items() if other != number), zero)


def _log_joint(number: int, factor: Factor, messages: list[Messages]) -> np.ndarray:
    """Log of the factor times the cavities of its variables."""
    with np.errstate(divide="ignore"):
        total = np.log(factor.table)
    for axis, v in enumerate(factor.variables):
        others = [a for a in range(total.ndim) if a != axis]
        total = total + np.expand_dims(_cavity(messages[v], number), others)
    if not total.max() > -np.inf:
        fail_value(f"the factors rule out every state of the variables {factor.variables}.")
    return total


def _refine(number: int, factor: Factor, messages: list[Messages], damping: float) -> float:
    """Replace the messages of a factor; return the largest undamped change of a message, as probabilities."""
    change = 0.0
    for axis, v in enumerate(factor.variables):
        total = _log_joint(number, factor, messages)
        others = tuple(a for a in range(total.ndim) if a != axis)
        cavity, old = _cavity(messages[v], number), messages[v][number]
        new = logsumexp(total, axis=others) - np.where(cavity > -np.inf, cavity, 0.0)
        new -= new.max()
        change = max(change, float(np.abs(np.exp(_normalised(new)) - np.exp(_normalised(old))).max()))
        messages[v][number] = (1.0 - damping) * new + damping * old if damping else new
    return change


def _bethe(graph: list[Factor], joint: list[np.ndarray], marginals: list[np.ndarray]) -> float:
    """Sum over factors of E[log factor] + entropy, less the entropy of a variable for each factor beyond its first."""
    # Source: Minka (2001), eqs 11 and 13; Yedidia, Freeman, Weiss (2000).
    total = 0.0
    for factor, b in zip(graph, joint, strict=True):
        # 0 log 0 = 0: a state that the table rules out has belief 0
        total += float((xlogy(b, np.where(b > 0.0, factor.table, 1.0)) - xlogy(b, b)).sum())
    degree = np.bincount(list(itertools.chain(*(factor.variables for factor in graph))), minlength=len(marginals))
    entropies = np.array([-xlogy(p, p).sum() for p in marginals])
    return total + float(((1 - degree) * entropies).sum())
