"""How a stream begins where its prior is left to it: the first entries are kept, and fitted again.

What the first posterior of a stream gets wrong later batches hardly mend, and a few entries per row tell nothing of
the factors. So entries are kept until there are enough, and a few times on the way all of them are fitted anew, as
`fit` would. Each time the prior is chosen that predicts some of them, which were left out, better: the paper's
positive rows, which stand for values above the least one, or rows whose prior is learned, about the mean of the values.
Labels and counts are learned with the former batch by batch, if there are more than one holds (`in_batches`). Where
neither finds anything, many quick starts are tried, too: products of more than three modes are hard to find.
A stream that forgets chooses with its first batch, and keeps none. One whose prior was named keeps entries as long as
its reservoir holds all of them: what a few of them made of the factors, revisits alone may not mend.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tensorcep.core.checks import fail_value
from tensorcep.core.loop import Run
from tensorcep.core.packing import offsets
from tensorcep.cp.diagnostics import LEAST_EXPLAINED
from tensorcep.cp.estimators.entries import Entries
from tensorcep.cp.estimators.plan import FitPlan, plan_fit
from tensorcep.cp.estimators.weighting import WHOLE_REVISITED, with_power
from tensorcep.cp.plan import Plan
from tensorcep.cp.predict import observed_logpdf, observed_moments
from tensorcep.cp.settings.names import settings_for
from tensorcep.cp.starts import run_plan
from tensorcep.cp.stream.attempts import may_be_bold
from tensorcep.cp.stream.in_batches import BATCH, run_in_batches
from tensorcep.cp.stream.standing import Kept, Predicted, Standing

if TYPE_CHECKING:
    from tensorcep.cp.estimators.base import BaseCP

# Entries that are kept: so many for each element of the factors, and not more than the last number.
PER_ELEMENT, MOST_KEPT = 20, 100_000
# All are fitted again when there are so many times as many, and at the end; not within the last factor of the end.
GROWTH, NEAR_END = 2.0, 2.0
# Priors are compared on a tenth of the entries, of few on a fifth; with fewer entries than the last number, not at all.
HELD_OUT, FEW_HELD_OUT, FEW, FEWEST = 0.1, 0.2, 500, 20
# Of many entries so many are fitted to compare priors, and the prior then stays.
SETTLED = 5000
PRIORS = ("fixed", "learned")
# The log score of a fit that went astray, and what the score of one that did not may lose.
LEAST, LEAST_LOSS = -1e100, 0.1
UNKNOWN = Standing()
# How much each entry counts, and its extent.
Beside = tuple[np.ndarray | None, ...]
PLAIN_REVISITED = "revisit= holds entries without exposures or numbers of trials, which these have; use revisit=0."


class Way(NamedTuple):
    """A prior, whether entries are learned with it batch by batch in place of together, and from many quick starts."""

    prior: str
    in_batches: bool = False
    tries: bool = False


class Begun(NamedTuple):
    """What a stream knows after its first entries were fitted."""

    plan: FitPlan
    run: Run
    standing: Standing
    kept: Kept | None


def chooses_prior(model: BaseCP) -> bool:
    """Whether the prior of a stream is left to it."""
    return isinstance(model.prior, str) and model.prior == "auto"


def begin_with(
    model: BaseCP,
    entries: Entries,
    source: Any,
    standing: Standing = UNKNOWN,
    prior: str | None = None,
    power: np.ndarray | None = None,
    extent: np.ndarray | None = None,
) -> Begun:
    """Fit the first entries of a stream. The estimator is not changed.

    `source` is the tensor that the last of them came in, if one was given; `standing` is that of the stream so far,
    `prior` its prior where there is no more doubt of it, `power` (N,) how much each entry counts, `extent` (N,) their
    exposures or numbers of trials.

    Raises
    ------
    ValueError, TypeError
        If a parameter or a value is not allowed.
    """
    coords, values, shape, _ = entries
    beside = (power, extent)
    if not chooses_prior(model):
        plan = _plan(model, entries, source, beside)
        kept = Kept(coords, values, len(values), None, power, extent) if keeps(model, len(values)) else None
        kept = kept if len(values) < enough(shape, plan.work.problem.rank) else None
        return Begun(plan, run_plan(plan.work), _begun(standing, plan, values, extent), kept)
    model._checked_targets(values, model._asked_likelihood())
    run = None
    if prior is None and len(values) >= FEWEST:
        one, plan, run = _learned(model, entries, source, beside)
        judged = {name: getattr(one.standing, name) for name in ("n", "gain", "square", "shares", "score")}
        standing = _begun(standing, plan, values, extent)._replace(**judged)
        prior = one.way.prior if len(values) >= SETTLED and not one.way.in_batches else None
    else:
        plan = _plan(model, entries, source, beside, prior=prior or PRIORS[0])
        standing = _begun(standing, plan, values, extent)
    kept = Kept(coords, values, len(values), prior, power, extent)
    stays = keeps(model, len(values)) and len(values) < enough(shape, plan.work.problem.rank)
    return Begun(plan, run or run_plan(plan.work), standing, kept if stays else None)


def keeps(model: BaseCP, n: int) -> bool:
    """Whether a stream that is beginning keeps its n entries: to choose its prior, or as its reservoir has all."""
    return model.forget == 0.0 and (chooses_prior(model) or n <= model.revisit)


def _learned(model: BaseCP, entries: Entries, source: Any, beside: Beside) -> tuple[_Tried, FitPlan, Run]:
    """The entries learned in the way that predicts some of them best."""
    tried, left_out = _tried(model, entries, source, beside, SETTLED)
    if tried[0].way.in_batches and len(entries[1]) > SETTLED:  # more are likelier to be learned better together
        tried, left_out = _tried(model, entries, source, beside, len(entries[1]))
    ways = [(one, tried[i + 1].score if i + 1 < len(tried) else LEAST) for i, one in enumerate(tried)]
    # what a trial found may be missed from the same start
    if _may_need_tries(model, entries) and not tried[0].way.in_batches and not tried[0].way.tries:
        ways.insert(1, (tried[0]._replace(way=Way("learned", tries=True)), ways[0][1]))
    for one, other in ways:
        plan = _plan(_as(model, one.way), entries, source, beside, one.way.tries, prior=one.way.prior)
        run = _run(model, plan.work, one.way)
        if run.stopped:
            break
        # a fit that is worse at what it was given than a trial was unseen, this one's or the next, has gone astray
        found = _predicted(model, plan, run, left_out).score.mean()
        if found >= other and (found >= one.score - LEAST_LOSS or one.way.tries or one.way.in_batches):
            break
    return one, plan, run


def _run(model: BaseCP, work: Plan, way: Way) -> Run:
    """The run of a plan, in this way."""
    if not way.in_batches:
        return run_plan(work)
    return run_in_batches(work, may_be_bold(settings_for(model.method, work.method.name)))


def _plan(model: BaseCP, entries: Entries, source: Any, beside: Beside, tries: bool = False, **how: Any) -> FitPlan:
    """The plan of a joint fit of a stream's entries, with how much they count and their extents.

    Raises
    ------
    ValueError, TypeError
        If a parameter, a value or a weight is not allowed.
    """
    power, extent = beside
    plan = plan_fit(model, entries, source, streaming=True, extent=extent, **how)
    plan = plan if tries else _without_tries(plan)
    if model.revisit and extent is not None:
        fail_value(PLAIN_REVISITED)
    if power is None:
        return plan
    if model.revisit:
        fail_value(WHOLE_REVISITED)
    return plan._replace(work=with_power(plan.work, power))


def _without_tries(plan: FitPlan) -> FitPlan:
    """The plan without many quick starts: all entries that are kept are fitted anew a few times on the way."""
    work = plan.work
    pilots = tuple(pilot._replace(problem=pilot.problem._replace(tries=False)) for pilot in work.pilots)
    return plan._replace(work=work._replace(problem=work.problem._replace(tries=False), pilots=pilots))


def _begun(standing: Standing, plan: FitPlan, values: np.ndarray, extent: np.ndarray | None) -> Standing:
    """The standing of a stream, with the values of its first batch."""
    return standing if standing.seen else standing.after(plan.work.problem.likelihood, values, extent=extent)


def enough(shape: Sequence[int], rank: int) -> int:
    """Entries after which a stream keeps no more."""
    return min(MOST_KEPT, PER_ELEMENT * rank * sum(shape))


def kept_with(
    model: BaseCP,
    kept: Kept | None,
    batch: tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None],
) -> Kept | None:
    """The entries that are kept and those of a batch (coords, values, powers, extents); None where none are kept."""
    coords, values, *beside = batch
    if kept is None or not keeps(model, len(kept.values) + len(values)):
        return None
    power, extent = (
        _both((old, kept.values), (new, values)) for old, new in zip((kept.power, kept.extent), beside, strict=True)
    )
    both = np.concatenate([kept.coords, coords]), np.concatenate([kept.values, values])
    return Kept(*both, kept.fitted, kept.prior, power, extent)


def _both(*parts: tuple[np.ndarray | None, np.ndarray]) -> np.ndarray | None:
    """Numbers of entries, 1 where only others have some, of pairs of them and values; None where none has any."""
    if all(own is None for own, _ in parts):
        return None
    return np.concatenate([np.ones(len(y)) if own is None else own for own, y in parts])


def due(kept: Kept | None, shape: Sequence[int], rank: int) -> bool:
    """Whether all the entries that are kept are to be fitted again."""
    if kept is None:
        return False
    wanted, end = GROWTH * kept.fitted, enough(shape, rank)
    return len(kept.values) >= (end if wanted * NEAR_END > end else wanted)


class _Tried(NamedTuple):
    """A way, how the stream stands with the entries that were left out, and their mean log score."""

    way: Way
    standing: Standing
    score: float


# Coordinates, values and extents of entries.
_LeftOut = tuple[np.ndarray, np.ndarray, np.ndarray | None]


def _tried(model: BaseCP, entries: Entries, source: Any, beside: Beside, most: int) -> tuple[list[_Tried], _LeftOut]:
    """The ways to learn, that which predicts entries best that were left out first; of so many entries at most.

    Which entries these are follows from what all of them are, not from their order.
    """
    coords, values, shape, labels = entries
    order = np.lexsort((values, *coords.T))
    order = np.random.default_rng(len(order)).permutation(order)[:most]
    held, used = np.split(order, [int(len(order) * (HELD_OUT if len(order) >= FEW else FEW_HELD_OUT))])
    some = (coords[used], values[used], shape, labels)
    apart = tuple(None if part is None else part[used] for part in beside)
    extents = [None if beside[1] is None else beside[1][which] for which in (used, held)]
    left_out: _LeftOut = (coords[held], values[held], extents[1])

    def trial(way: Way) -> _Tried:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what there is to say, the fit to all entries says
            plan = _plan(_as(model, way), some, source, apart, way.tries, prior=way.prior)
            run = _run(model, plan.work._replace(callbacks=(), verbose=False), way)
            predicted = _predicted(model, plan, run, left_out)
        likelihood = plan.work.problem.likelihood
        standing = Standing().after(likelihood, values[used], extent=extents[0])
        standing = standing.after(likelihood, values[held], predicted, extents[1])
        return _Tried(way, standing, float(predicted.score.mean()))

    found = [trial(way) for way in _ways(model, len(used))]
    nothing = all(one.standing.gain < LEAST_EXPLAINED * one.standing.n for one in found)
    if nothing and _may_need_tries(model, entries):
        found.append(trial(Way("learned", tries=True)))
    return sorted(found, key=lambda one: -one.score), left_out


def _may_need_tries(model: BaseCP, entries: Entries) -> bool:
    """Whether many quick starts may find what one does not: products of more than three modes.

    Of three, no stream was found that gained by them; of labels there are none.
    """
    return len(entries[2]) > 3 and model._asked_likelihood().observes not in ("labels", "levels")


def _ways(model: BaseCP, n: int) -> list[Way]:
    """The ways to learn n entries."""
    # entries that are revisited need the messages of one fit
    if model._asked_likelihood().observes not in ("labels", "counts") or model.revisit or n <= BATCH:
        return [Way(prior) for prior in PRIORS]
    return [Way("learned"), Way("fixed", in_batches=True)]


def _as(model: BaseCP, way: Way) -> BaseCP:
    """The estimator to learn in this way.

    A dispersion that is learned beside rows of which hardly anything is known explains all that these could, and later
    batches hardly bring it back: counts that are learned batch by batch are Poisson ones, if that is left open.
    """
    own = vars(model)
    left_open = [own.get(name) for name in ("likelihood", "dispersion")] == ["auto", "learned"]
    if not way.in_batches or not left_open:
        return model
    known = copy.copy(model)
    known.likelihood = "poisson"
    return known


def _predicted(model: BaseCP, plan: FitPlan, run: Run, left_out: _LeftOut) -> Predicted:
    """Predictions of entries, with least log scores where a fit goes astray."""
    (coords, values, extent), posterior = left_out, run.posterior
    least, likelihood = np.full(len(values), LEAST), plan.work.problem.likelihood
    if not (np.isfinite(posterior.Lam).all() and np.isfinite(posterior.eta).all()):
        return Predicted(np.full(len(values), LEAST), least)
    belief, rows = posterior.components(), coords + offsets(posterior.shape)[:-1]
    score = observed_logpdf(likelihood, belief, rows, model._checked_targets(values, likelihood), extent=extent)
    mean = observed_moments(likelihood, belief, rows, extent=extent)[0]
    return Predicted(mean, np.where(np.isfinite(score), score, least))
