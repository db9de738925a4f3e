"""The plan of a fit: all that is decided and checked before anything is run or changed, and the policy that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.loop import AnyMethod, Run
from tensorcep.core.settings import Settings
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.plan.spec import RunOptions
from tensorcep.priors.fixed import Prior

# Annealed sweeps of a mean-field fit that starts where another has ended: more of them lose what that has found.
REFIT_ANNEAL = 2
# Components beside those that a quick fit uses.
SPARE_COMPONENTS = 3


class Engine(NamedTuple):
    """A method, and its settings with numbers where the user's say "auto"."""

    method: AnyMethod
    settings: Settings

    def with_settings(self, **values: Any) -> Engine:
        """The same with other settings."""
        return self._replace(settings=copy(self.settings).set_params(**values))


class QuickFit(NamedTuple):
    """A mean-field fit from the spectra of the data that goes before another: of all columns, or of some."""

    name: str  # of its columns
    engine: Engine
    problem: Problem
    columns: np.ndarray  # (Q,) int64, those of the plan that are the problem's


@dataclass(frozen=True)
class Policy:
    """How a plan is run: from which starts, after which quick fits, and what decides between them."""

    starts: tuple[np.ndarray | None, ...]  # row means (n_rows, R), of one member after the other; None is the prior's
    members: int = 1
    spectral: bool = False  # whether the first start is to come from the spectra of the data
    one_at_a_time: bool = False  # whether no state waits while another start is tried, since states are large
    quick_fits: tuple[QuickFit, ...] = ()  # fits that go first, by policies that have them

    def run(self, plan: Plan) -> Run:
        """Run a plan that has this policy."""
        raise NotImplementedError


class Plan(NamedTuple):
    """One fit, or the mixture of several; the problem starts at the first of the policy's starts."""

    problem: Problem
    engine: Engine
    policy: Policy
    options: RunOptions
    # what the result will know beside the run
    prior: Prior  # the rows', as it was given or made
    labels: tuple[Any, ...]
    decided: Mapping[str, Any]  # by its names in files: method_, rank_, ...

    def with_problem(self, **fields: Any) -> Plan:
        """The same with another prior, start, ... of the problem."""
        return self._replace(problem=self.problem._replace(**fields))

    def with_options(self, **values: Any) -> Plan:
        """The same with other options."""
        return self._replace(options=self.options._replace(**values))

    def with_policy(self, **fields: Any) -> Plan:
        """The same with other starts, members or quick fits."""
        return self._replace(policy=replace(self.policy, **fields))

    def from_rows(self, rows: np.ndarray) -> Plan:
        """The plan of one run from these row means (n_rows, R), without quick fits."""
        return self.with_problem(start=rows).with_policy(starts=(rows,), members=1, spectral=False, quick_fits=())

    def started_at(self, start: np.ndarray | None) -> Plan:
        """The plan whose first start is this one."""
        return self.with_problem(start=start).with_policy(starts=(start, *self.policy.starts[1:]))

    def of_one_member(self) -> Plan:
        """The plan of the first member of a mixture."""
        policy = self.policy
        return self.with_policy(members=1, starts=policy.starts[: len(policy.starts) // policy.members])

    def unseen(self) -> Plan:
        """The same without callbacks and progress."""
        return self.with_options(callbacks=(), verbose=False)
