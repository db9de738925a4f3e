"""The share of structural zeros in mean field: its Beta law is the best one given what every zero probably is."""

from __future__ import annotations

from tensorcep.core.betas import Beta
from tensorcep.cp.meanfield.state import MeanFieldState
from tensorcep.cp.model.problem import Problem


def first_share(problem: Problem) -> Beta | None:
    """The law to begin with; None where no zeros are structural."""
    zeros = problem.likelihood.zeros
    return None if zeros is None else zeros.first_law(len(problem.entries.permutation))


def with_share(state: MeanFieldState, problem: Problem) -> MeanFieldState:
    """The best law given the present weights of the entries, which are not updated."""
    zeros, present = problem.likelihood.zeros, state.sites.present
    if zeros is None:
        return state
    n, n_present = len(problem.entries.permutation), float(present.sum())
    return state._replace(share=zeros.law_of(n - n_present, n_present))


def divergence_of_share(state: MeanFieldState, problem: Problem) -> float:
    """What the share takes off a lower bound."""
    zeros = problem.likelihood.zeros
    return 0.0 if zeros is None or state.share is None else state.share.divergence(zeros.prior)
