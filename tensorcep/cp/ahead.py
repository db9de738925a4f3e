"""Chains ahead of pilots: their first sweeps tell whether pilots are worth their time, and which columns to draw.

A sweep of mean field takes several times as long as one of a chain, and where rows have many labels chains find from
random starts what pilots find, and more (held-out training entries of DBLP: log score -.279 after 25 sweeps of four
chains; -.280 by the pilot of the CP component, in twice their time; AUC .9750 without pilots, .9745 with them). Where
chains are stuck the first fit of a pilot is ahead of them, and everything is as if they had not been asked.

Where what chains of all columns say of entries left out is said by main effects and pairs of modes, and components add
nothing, chains that have columns of pairs in place of the components are asked, too, then those without any. The first
that predict better go on, were it by chance, for components have had their say (DBLP: log score -.275 after 25 sweeps,
-.285 with components; in the end AUC .9749 by two chains, .9744 by four with fewer columns of pairs).

Two chains are asked: the fewest that are weighed and compared. In pairs alone they may be enough: what two more would
gain, by the same entries, is half of what the second gained. With components, chains differ in those that they find, so
that more starts find more, and what the first sweeps gain tells nothing of that.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from tensorcep.core.loop import Run, run
from tensorcep.cp.fleet import MANY
from tensorcep.cp.gibbs.held_out import WINDOW, HeldOut, some_of
from tensorcep.cp.model import latent_of_draws
from tensorcep.cp.plan import Plan
from tensorcep.cp.problem import Problem
from tensorcep.cp.trials import LEAST_LOSS
from tensorcep.likelihoods.record import Likelihood

# The share of the burn-in after which chains are asked; not before their running means are full.
ASKED_AFTER = 1.0 / 3.0
# Chains that are asked.
ASKED = 2
# The least share of the variance of labels left out that columns say something of them with (DBLP: pairs .59,
# components nothing beside them; labels of a CP tensor with mean zero: .0004 and .26).
LEAST_SAID = 0.01


class Ahead(NamedTuple):
    """The first sweeps of a sampler, and what they say.

    Attributes
    ----------
    plan : Plan
        The one to go on with: of all columns, or of pairs of modes alone.
    run : Run or None
        Of the chains that were asked; None where more begin anew.
    scores : (n,) float64
        Log scores of the entries that they left out.
    stands_in : int
        The number of the plan among those that may stand in for that of all columns, from 1 on; 0 is that one.
    """

    plan: Plan
    run: Run | None
    scores: np.ndarray
    stands_in: int = 0

    @property
    def score(self) -> float:
        """Their mean log score."""
        return float(self.scores.mean())

    @property
    def stopped(self) -> bool:
        """Whether a callback has stopped it."""
        return self.run is not None and self.run.stopped


def asks_chains(plan: Plan) -> bool:
    """Whether chains of a plan go ahead: those of a sampler of many labels, and of enough sweeps."""
    options, problem = plan.settings.get_params(), plan.problem
    stacked = options.get("weights") == "stacked" and options["n_chains"] >= ASKED
    asked = stacked and _sweeps(plan) >= WINDOW and problem.likelihood.observes == "labels"
    return asked and len(problem.entries.permutation) >= MANY


def chains_ahead(plan: Plan) -> Ahead | None:
    """The first sweeps of a sampler of many labels from random starts; None for other plans, and for few sweeps."""
    if not asks_chains(plan):
        return None
    found, pairs_say_all = _asked(plan)
    if found is None or found.stopped or not pairs_say_all:
        return found
    for number, paired in enumerate(plan.paired, 1):
        other, _ = _asked(*paired)
        if other is not None and (other.stopped or other.score > found.score):
            return other._replace(stands_in=number)
    return found


def _sweeps(plan: Plan) -> int:
    """The sweeps after which chains are asked."""
    return int(ASKED_AFTER * plan.settings.get_params().get("burn_in", 0))


def _asked(plan: Plan, few_may_do: bool = False) -> tuple[Ahead | None, bool]:
    """What the first sweeps of two chains say, and whether pairs say all of it; None where they left no entry out.

    `few_may_do`: whether they go on alone where two more would not gain what matters.
    """
    few = plan._replace(settings=copy(plan.settings).set_params(n_chains=ASKED))
    how = {**plan.how, "max_iter": _sweeps(plan), "stage": "first sweeps"}
    begun = run(plan.method, plan.problem, few.settings, **how)
    held = begun.state.held
    if held is None:
        return None, False
    goes_on = bool(plan.settings.get_params()["n_chains"] == ASKED)
    likelihood = plan.problem.likelihood
    if not goes_on and few_may_do and _gain_of_more(held, likelihood) < LEAST_LOSS:
        plan, goes_on = few, True
    found = Ahead(plan, begun if goes_on or begun.stopped else None, log_scores(held, likelihood))
    return found, _pairs_say_all(begun, plan.problem)


def _gain_of_more(held: HeldOut, likelihood: Likelihood) -> float:
    """What as many chains more would gain of the mean log score, by what two gain over one.

    Means of n chains differ from that of all by 1/n of what one does: from two to four is half of one to two. Without
    bound where one has ended, and the other is to be believed alone.
    """
    n = len(held.mean)
    if n < ASKED:
        return np.inf
    each = [log_scores(some_of(held, np.array([c])), likelihood).mean() for c in range(n)]
    return 0.5 * float(log_scores(held, likelihood).mean() - np.mean(each))


def _pairs_say_all(begun: Run, problem: Problem) -> bool:
    """Whether main effects and pairs say something of labels left out, and components nothing that matters beside them.

    By the last draws of all chains together, in parts of their columns.
    """
    held, factors = begun.state.held, begun.state.chains.factors
    without = _share_said(held, factors[:, :, ~problem.every_free.all(axis=0)])
    return without >= LEAST_SAID and _share_said(held, factors) - without < LEAST_SAID


def _share_said(held: HeldOut, factors: np.ndarray) -> float:
    """The squared correlation of labels left out with their mean latent values by draws (C, n_rows, Q)."""
    f = np.empty((len(factors), len(held.place)))
    latent_of_draws(np.ascontiguousarray(factors), held.rows, f)
    said, y = f.mean(axis=0), held.y - held.y.mean()
    said -= said.mean()
    scale = (said @ said) * (y @ y)
    return float((said @ y) ** 2 / scale) if scale > 0.0 else 0.0


def log_scores(held: HeldOut, likelihood: Likelihood) -> np.ndarray:
    """The log scores (n,) of entries that chains left out, by the running means of all of them together."""
    theta = np.full_like(held.y, likelihood.default_theta)
    moments = zip(held.mean, held.spread, strict=True)
    density = np.stack([likelihood.logpdf(held.y, mean, spread, theta) for mean, spread in moments])
    return np.asarray(logsumexp(density, axis=0) - np.log(len(density)))
