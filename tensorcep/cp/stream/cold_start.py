"""How a stream begins where its prior is left to it, or learned from what is known of rows: by entries that are kept.

What the first posterior of a stream gets wrong later batches hardly mend, and a few entries per row tell nothing of
the factors. So entries are kept until there are enough, and a few times on the way all of them are fitted anew, as
`fit` would. Each time the prior is chosen that predicts some of them, which were left out, better: the paper's
positive rows, which stand for values above the least one, or rows whose prior is learned, about the mean of the values.
Where columns are left open, too, the latter may have main effects and pairs of modes beside the components, if these
predict the entries left out better beyond chance, and by what matters. A prior per mode (Features, Series, Graph)
leaves that choice alone.
Labels and counts are learned with the former batch by batch, if there are more than one holds (`run_in_batches`). Where
neither finds anything, many quick starts are tried, too: products of more than three modes are hard to find.
A stream that forgets chooses with its first batch, and keeps none. One whose prior was named keeps entries as long as
its reservoir holds all of them: what a few of them made of the factors, revisits alone may not mend. Else its first
entries are watched: now and then the predictions of the later half, each made before its batch was learned, are held
against those of a fit to the earlier half. What no stream learns is refused here, too (`check_stream`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.arrays import weighted_mean
from tensorcep.core.checks import check_random_state, fail_value
from tensorcep.core.diagnostics import THRESHOLDS, beyond_chance
from tensorcep.core.loop import Run
from tensorcep.core.packing import offsets
from tensorcep.cp.calibration.prequential import MOST, WARNED, Predicted, Standing, warn_of_no_gain
from tensorcep.cp.fit.outcome import NOTHING, result_of, warn_of_no_convergence
from tensorcep.cp.fit.select import plan_fit
from tensorcep.cp.fit.validation import falls_short
from tensorcep.cp.fitted.diagnostics import Diagnostics
from tensorcep.cp.fitted.model import FitResult
from tensorcep.cp.fitted.predict import observed_logpdf, observed_moments
from tensorcep.cp.inputs.side_information import coupled, has_features, is_local, word_of
from tensorcep.cp.inputs.weights import WHOLE_REVISITED
from tensorcep.cp.methods import refuse_unable
from tensorcep.cp.model.columns import free_columns
from tensorcep.cp.model.entries import all_coords
from tensorcep.cp.model.subsets import extents_at, places_telling, some_of, telling
from tensorcep.cp.plan.auto import every_column, leaves_columns, stream_rank
from tensorcep.cp.plan.plan import Plan
from tensorcep.cp.plan.spec import FitSpec, check_revisit, given_int, is_auto
from tensorcep.cp.posterior import Posterior, first_member
from tensorcep.cp.settings import checked_method, settings_for
from tensorcep.cp.stream import adf, modes
from tensorcep.cp.stream.reservoir import Kept, Reservoir, Stream, keys_of, with_new
from tensorcep.likelihoods.base import Likelihood
from tensorcep.priors.base import per_row
from tensorcep.priors.fixed import Prior, natural_prior

# Entries that are kept: so many for each element of the factors, and not more than the last number.
PER_ELEMENT, MOST_KEPT = 20, 100_000
# All are fitted again when there are so many times as many, and at the end; not within the last factor of the end.
GROWTH, NEAR_END = 2.0, 2.0
# Of many entries so many are fitted to compare priors, and the prior then stays.
SETTLED = 5000
PRIORS = ("fixed", "learned")
# The log score of a fit that went astray.
LEAST = -1e100
# Entries of a batch, where the first ones are learned in batches. From 100 to 1000 it made no difference.
BATCH = 500
UNKNOWN = Standing()


class Beginning(NamedTuple):
    """The first entries of a stream, in rows of this shape with these labels, and the tensor that the last came in."""

    entries: Kept
    shape: tuple[int, ...]
    labels: tuple[Any, ...]
    source: Any
    time: float = 0.0
    standing: Standing = UNKNOWN  # before them
    coding: Mapping[str, Any] = NOTHING


class Way(NamedTuple):
    """A prior, and how entries are learned with it."""

    prior: str
    in_batches: bool = False  # batch by batch in place of together
    tries: bool = False  # from many quick starts
    wide: bool = False  # rows have main effects and pairs of modes beside the components


def leaves_choice(spec: FitSpec) -> bool:
    """Whether entries left out may decide on the prior of a stream or on its columns."""
    return is_auto(spec.prior) or isinstance(spec.prior, Mapping)


def keeps_entries(spec: FitSpec, n: int) -> bool:
    """Whether a stream keeps its first n entries, to fit them together: to choose, or as its reservoir has all."""
    return spec.forget == 0.0 and (leaves_choice(spec) or n <= spec.revisit)


def _learned(spec: FitSpec, first: Beginning) -> tuple[_Tried, Plan, Run]:
    """The entries learned in the way that predicts some of them best."""
    tried, left_out = _tried(spec, first, SETTLED)
    # more are likelier to be learned better together
    if tried[0].way.in_batches and first.entries.n_telling > SETTLED:
        tried, left_out = _tried(spec, first, len(first.entries.values))
    # wider columns may come after what they were better than by chance
    ways = [(one, max((other.score for other in tried if other.score < one.score), default=LEAST)) for one in tried]
    # what a trial found may be missed from the same start
    if _may_need_tries(spec, first) and not tried[0].way.in_batches and not tried[0].way.tries:
        ways.insert(1, (tried[0]._replace(way=tried[0].way._replace(prior="learned", tries=True)), ways[0][1]))
    for one, other in ways:
        plan = _plan(spec, first, one.way)
        run = _run(spec, plan, one.way)
        if run.stopped:
            break
        # a fit that is worse at what it was given than a trial was unseen, this one's or the next, has gone astray
        found = weighted_mean(_predicted(spec, plan, run, left_out).score, left_out.power)
        least = one.score - THRESHOLDS.least_difference_in_stream
        if found >= other and (found >= least or one.way.tries or one.way.in_batches):
            break
    return one, plan, run


def _run(spec: FitSpec, plan: Plan, way: Way) -> Run:
    """The run of a plan, in this way."""
    if not way.in_batches:
        return plan.policy.run(plan)
    return run_in_batches(plan, adf.may_be_bold(settings_for(spec.method, plan.engine.method.name)))


def _plan(spec: FitSpec, first: Beginning, way: Way) -> Plan:
    """The plan of a joint fit of a stream's entries, with weights and extents; a `way` is for what the spec leaves."""
    entries, shape, labels, source, *_ = first
    if way.in_batches:
        spec = spec._replace(target=spec.target.for_batches())
    if way.wide:
        rank = given_int("rank", spec.rank, stream_rank(spec, len(entries.values), shape))
        spec = spec._replace(interactions=every_column(rank, shape))
    given, beside = (entries.coords, entries.values, shape, labels), {"extent": entries.extent, "power": entries.power}
    plan = plan_fit(spec, given, source, streaming=True, prior=way.prior, **beside)
    if not way.tries:  # all entries that are kept are fitted anew a few times on the way
        quick = tuple(one._replace(problem=one.problem._replace(tries=False)) for one in plan.policy.quick_fits)
        plan = plan.with_problem(tries=False).with_policy(quick_fits=quick)
    check_revisited(spec, entries.extent, entries.power)
    return plan


def check_revisited(spec: FitSpec, extent: np.ndarray | None, power: np.ndarray | None) -> None:
    """Refuse entries with extents or weights where some are revisited."""
    if spec.revisit and extent is not None:
        fail_value("revisit= holds entries without exposures or numbers of trials, which these have; use revisit=0.")
    if spec.revisit and power is not None:
        fail_value(WHOLE_REVISITED)


def _standing_after(standing: Standing, plan: Plan, entries: Kept, predicted: Predicted | None = None) -> Standing:
    """The standing after entries."""
    return standing.after(plan.problem.likelihood, entries.values, predicted, entries.extent, entries.power)


def enough(shape: Sequence[int], rank: int) -> int:
    """Entries after which a stream keeps no more."""
    return min(MOST_KEPT, PER_ELEMENT * rank * sum(shape))


def due(kept: Kept, shape: Sequence[int], rank: int) -> bool:
    """Whether all the entries that are kept are to be fitted again."""
    wanted, end = GROWTH * kept.at(slice(kept.fitted)).n_telling, enough(shape, rank)
    return kept.n_telling >= (end if wanted * NEAR_END > end else wanted)


def compare_with_fit(
    spec: FitSpec, watched: Kept, state: modes.StreamState, labels: Any, source: Any, standing: Standing
) -> tuple[Kept | None, Standing]:
    """What is watched on, and the standing, after a comparison with a fit to the earlier half of it, if one is due."""
    n, end = len(watched.values), min(SETTLED, enough(state.sizes, state.rank))  # of entries that are watched
    if spec.forget or watched.score is None:  # what it is to forget, a fit would not
        return None, standing
    if n < min(end, max(WARNED, int(GROWTH) * watched.fitted)):
        return watched, standing
    first, rest = Beginning(watched.at(slice(n // 2)), state.sizes, labels, source), watched.at(slice(n // 2, n))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is no fit that somebody asked for
        plan = _plan(spec, first, Way(PRIORS[0])).unseen()
        fitted = _predicted(spec, plan, plan.policy.run(plan), rest).score
    constant = _standing_after(UNKNOWN, plan, first.entries).constant(plan.problem.likelihood, rest.values, rest.extent)
    own, other = (np.clip(said - constant, -MOST, MOST)[telling(rest.power)] for said in (rest.score, fitted))
    # to predict the later half the stream had learned all before it: below half of the fit's gain it is far behind
    behind = beyond_chance(other) and beyond_chance(0.5 * other - own)
    left = watched._replace(fitted=n) if n < end else None
    return left, standing._replace(lag=float(np.mean(other - own)) if behind else 0.0)


class _Tried(NamedTuple):
    """A way, how the stream stands with the entries that were left out, their log scores (n,) and the mean of these."""

    way: Way
    standing: Standing
    scores: np.ndarray
    score: float


def _tried(spec: FitSpec, first: Beginning, most: int) -> tuple[list[_Tried], Kept]:
    """The ways to learn, that which predicts entries best that were left out first; of so many entries at most."""
    entries = first.entries
    order = np.lexsort((entries.values, *entries.coords.T))  # which are left out, their order does not tell
    told = np.isin(order, np.arange(len(order))[telling(entries.power)])  # others say nothing of what is predicted
    light, order = order[~told], order[told]
    order = np.random.default_rng(len(order)).permutation(order)[:most]
    held, used = np.split(order, [int(len(order) * THRESHOLDS.share_in_stream(len(order)))])
    some, left_out = first._replace(entries=entries.at(np.append(used, light))), entries.at(held)

    def trial(way: Way) -> _Tried:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what there is to say, the fit to all entries says
            plan = _plan(spec, some, way)
            predicted = _predicted(spec, plan, _run(spec, plan.unseen(), way), left_out)
        standing = _standing_after(_standing_after(UNKNOWN, plan, some.entries), plan, left_out, predicted)
        return _Tried(way, standing, predicted.score, weighted_mean(predicted.score, left_out.power))

    ways = [Way("learned"), Way("fixed", in_batches=True)]
    if not is_auto(spec.prior):
        ways = ways[:1]
    elif spec.asked.observes not in ("labels", "counts") or spec.revisit or len(used) <= BATCH:
        ways = [*map(Way, PRIORS)]  # entries that are revisited need the messages of one fit
    ways += [Way("learned", wide=True)] if leaves_columns(spec) else []
    found = [trial(way) for way in ways]
    nothing = all(one.standing.gain < THRESHOLDS.least_explained * one.standing.n for one in found)
    if nothing and _may_need_tries(spec, first):
        found.append(trial(Way("learned", tries=True)))
    found.sort(key=lambda one: -one.score)
    if len(found) > 1 and found[0].way.wide and not falls_short(found[1].scores, found[0].scores):
        found[:2] = found[1::-1]
    return found, left_out


def _may_need_tries(spec: FitSpec, first: Beginning) -> bool:
    """Whether many quick starts may find what one does not: products of more than three modes."""
    # of three, no stream was found that gained by them; of labels there are none
    return len(first.shape) > 3 and spec.asked.observes not in ("labels", "levels")


def _predicted(spec: FitSpec, plan: Plan, run: Run, entries: Kept) -> Predicted:
    """Predictions of entries that were left out, with least log scores where a fit goes astray."""
    posterior, likelihood, least = run.posterior, plan.problem.likelihood, np.full(len(entries.values), LEAST)
    if not (np.isfinite(posterior.Lam).all() and np.isfinite(posterior.eta).all()):
        return Predicted(least, least)
    belief, rows = posterior.components(), entries.coords + offsets(posterior.shape)[:-1]
    y, extent = spec.target.checked(entries.values, likelihood), entries.extent
    score = observed_logpdf(likelihood, belief, rows, y, extent=extent)
    mean = observed_moments(likelihood, belief, rows, extent=extent)[0]
    return Predicted(mean, np.where(np.isfinite(score), score, least))


def run_in_batches(plan: Plan, bold: bool) -> Run:
    """Learn a plan's labels or counts, of a prior that stays, batch by batch: the last run, all rows' posterior."""
    # Where a row has few entries, sweeps over all of them end surer of its factors than these make it: each message is
    # made with what the others, by way of the row's partners, have from itself. A pass that takes every batch once
    # keeps less of that. With the paper's prior simulated labels and counts (5,000 and 30,000 of 210 rows, rank 8) were
    # predicted better by it, labels by 0.01 to 0.1 nats and counts by 0.1 to 0.3; real values were not.
    problem = plan.problem
    coords, told = all_coords(problem.entries), places_telling(problem)
    light = np.setdiff1d(np.arange(len(coords)), told)
    # the order follows from how many they are
    first, *others = np.array_split(np.random.default_rng(len(told)).permutation(told), -(-len(told) // BATCH))
    others += [light] if len(light) else []
    some = plan._replace(problem=some_of(problem, np.sort(first)))
    one: Any = some.policy.run(some)
    how = {**plan.options._asdict(), "verbose": False, "bold": bold}
    lines = per_row(problem.prior.Lam, problem.shape), per_row(problem.prior.eta, problem.shape)
    state = modes.begin(one.posterior, *lines, None, 0.0)
    for places in others:
        power = None if problem.power is None else problem.power.ravel()[places]
        given = coords[places].astype(np.int64), problem.entries.y.ravel()[places], problem.likelihood
        beside: dict[str, Any] = {"power": power, "extent": extents_at(problem, places)}
        batch = adf.batch_of(state, *given, keep=1.0, time=0.0, seed=problem.seed, **beside)
        one = adf.learn(plan.engine.method, batch.problem, plan.engine.settings, **how)
        state = adf.absorb(state, batch, one.posterior)
    return one._replace(posterior=modes.posterior_of(state, 1.0))


def first_stream(
    spec: FitSpec, plan: Plan, run: Run, fit: FitResult, first: Beginning, before: Reservoir | None
) -> Stream:
    """The stream after its first entries were fitted together; `before` is the reservoir so far, for its counts."""
    problem, entries = plan.problem, first.entries
    posterior: Any = run.posterior  # by a method that streams, a Gaussian
    lines = per_row(problem.prior.Lam, problem.shape), per_row(problem.prior.eta, problem.shape)
    if posterior.mode_prior is not None:  # what the first batch says of the prior stays
        lines = _mean_prior(fit)
    told, too_much = adf.with_sure_noise(problem, posterior)
    stream = _begun(spec, fit, modes.begin(told, *lines, problem.noise_prior, first.time), problem.seed)
    if not spec.revisit:
        return stream
    empty = Reservoir.empty(len(problem.shape), problem.rank)
    if before is not None:
        again = 0 if leaves_choice(spec) else len(before.sample.y)  # as revisits would have, in one fit
        empty = empty._replace(revisited=before.revisited + again, skipped=before.skipped)
    arrived = entries.coords, spec.target.checked(entries.values, problem.likelihood), first.time
    sent = adf.messages_to_noise(run.state.own.messages, posterior.noise, too_much)
    how: dict[str, Any] = {"seed": stream.seed, "capacity": spec.revisit, "free": problem.free}
    return stream._replace(reservoir=with_new(empty, arrived, problem.entries.permutation, sent, **how))


def continued_stream(spec: FitSpec, fit: FitResult) -> Stream:
    """The stream so far; that of a model that was fitted, or loaded, begins with its posterior."""
    if fit.stream is not None:
        known: Stream = fit.stream
        return known
    posterior: Any = first_member(fit.posterior)
    seed = int(check_random_state(spec.random_state).integers(2**63))
    # of a fit the first prior of the noise is not kept: forgetting leaves the noise as it is
    return _begun(spec, fit, modes.begin(posterior, *_mean_prior(fit), posterior.noise, float(fit.n_batches - 1)), seed)


def _begun(spec: FitSpec, fit: FitResult, state: modes.StreamState, seed: int) -> Stream:
    """The stream that goes on from this state of a fit, with the laws of its rows."""
    free = free_columns(fit.interactions, len(fit.shape))
    draws_means = fit.prior == "fixed" and spec.prior_mean == "uniform" and bool(free.all())  # of new rows
    return Stream(modes.with_laws(state, fit, free), *keys_of(fit.labels), seed, draws_means)


def _mean_prior(fit: FitResult) -> tuple[np.ndarray, np.ndarray]:
    """Natural parameters of every row's prior where that is the same for all rows of a mode."""
    prior = Prior(list(fit.unseen_mean), [np.linalg.inv(item) for item in fit.unseen_cov])
    return natural_prior(prior, fit.shape, fit.posterior.rank)


class Commit(NamedTuple):
    """How a result takes the place of the one before it (`put`), and which one is there (`now`)."""

    put: Callable[[FitResult], None]
    now: Callable[[], FitResult | None]


def begin_again(
    spec: FitSpec, first: Beginning, commit: Commit, fit: FitResult | None = None, record: dict[str, Any] | None = None
) -> FitResult:
    """Fit the first entries of a stream together, and commit; `record` tells of those that the `fit` so far forgets."""
    entries, n, run, way = first.entries, len(first.entries.values), None, Way(PRIORS[0])
    prior, told, chooses, judged = entries.prior, entries.n_telling, leaves_choice(spec), {}
    if chooses:
        spec.target.checked(entries.values, spec.asked)
    if chooses and prior is None and told >= THRESHOLDS.fewest_in_stream:
        one, plan, run = _learned(spec, first)
        judged = {name: getattr(one.standing, name) for name in ("n", "gain", "square", "shares", "score")}
        prior = one.way.prior if told >= SETTLED and not one.way.in_batches else None
    else:
        if chooses:  # a prior that stays does so with its columns
            has_main = fit is not None and fit.interactions.get("main", 0) > 0
            way = Way(prior or PRIORS[0], wide=prior is not None and leaves_columns(spec) and has_main)
        plan = _plan(spec, first, way)
    standing = first.standing if first.standing.seen else _standing_after(first.standing, plan, entries)
    standing = standing._replace(**judged)
    run, rank = run or plan.policy.run(plan), plan.problem.rank
    kept, watched = None, None
    if keeps_entries(spec, n):
        kept = entries._replace(fitted=n, prior=prior) if n < enough(first.shape, rank) else None
    elif not chooses and spec.forget == 0.0 and GROWTH * n <= min(SETTLED, enough(first.shape, rank)):
        watched = entries._replace(fitted=n, prior=prior, score=np.zeros(n))
    (standing, is_due), reservoir, earlier, fields = standing.told(), None, NOTHING, dict[str, Any]()
    if fit is not None:
        reservoir, earlier = fit.stream.reservoir, fit.observation.facts
        fields = {"n_batches": fit.n_batches + (record is None), "forgotten": fit.forgotten}
        if record is not None:
            fields["forgotten"] += ({**record, "how": "fitted again", "sweeps": run.n_iter},)
    found = result_of(plan, run, spec.target, first.coding, earlier)
    stream = first_stream(spec, plan, run, found, first, reservoir)
    fields |= {"converged": run.converged and not standing.is_doubtful, "trace": without_seconds(run.trace)}
    fields["diagnostics"] = diagnostics_of(standing, found.method, run.n_iter, plan.problem.likelihood)
    found = found.changed(stream=stream._replace(standing=standing, kept=kept, watched=watched), **fields)
    commit.put(found)
    warn_of_no_convergence(plan, run)
    if is_due:
        warn_of_no_gain(standing)
    return found


def diagnostics_of(standing: Standing, method: str, n_iter: int, likelihood: Likelihood) -> Diagnostics | None:
    """What a user who was warned of a stream's standing, while it lasts, is told beside it; None otherwise."""
    figures = standing.figures(likelihood)
    return None if figures is None else Diagnostics(method, n_iter, False, {}, **figures)


def without_seconds(trace: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A trace that is the same whenever the same stream is learned, and so is the file of the model."""
    return {name: values for name, values in trace.items() if name != "seconds"}


def check_stream(spec: FitSpec, fit: FitResult | None) -> None:
    """Refuse parameters with which no stream is learned, as the result so far, if any, has it."""
    asks_features, coupling = has_features(spec.prior), coupled(spec.prior)
    if fit is not None:
        features, series = any(fit.features), [word_of(known) for known in fit.series if known is not None]
        first = None if fit.stream is not None else first_member(fit.posterior)
        pairs = fit.stream.state.pairs if first is None else getattr(first, "deviations", None)
        without = "from the first batch or fit on, and this one was without; begin with a new model"
        for what, asked, known in (
            ("Features", asks_features, features),
            (coupling, coupling is not None, bool(series)),
            ("a Series with local=", is_local(spec.prior), pairs is not None),
        ):
            if asked and not known:
                fail_value(f"partial_fit learns {what} {without}.")
        asks_features, coupling = features, coupling or next(iter(series), None)
    for what in ["Features"] * asks_features + [coupling] * (coupling is not None):
        if fit is not None and fit.stream is None:
            cannot = f"gives draws, from which partial_fit cannot go on with {what}"
            refuse_unable(fit.method, "gaussian", cannot, fit.likelihood, instead="partial_fit from the first batch on")
            first = first_member(fit.posterior)
            deviations, sites = getattr(first, "deviations", None), getattr(first, "sites", ())
            told = bool(sites) and (deviations is None or deviations.told is not None)
            if fit.expected is None or (any(known is not None for known in fit.series) and not told):
                fail_value(
                    f"partial_fit cannot go on from a file of an earlier version with {what}; fit the model again."
                )
        if spec.forget and what == coupling:
            fail_value(f"rows of {what} forget as its law says; got forget={spec.forget:g}; set forget=0.")
        if spec.revisit:
            fail_value(f"revisit holds messages beside a prior that stays, not one moved by {what}; set revisit=0.")
    target, before = spec.target, None if fit is None else fit.observation
    if target.zero_inflation or getattr(before, "inflated", False):
        fail_value("partial_fit learns no structural zeros; use fit with all entries, or zero_inflation=False.")
    by_mode = isinstance(target.dispersion, str) and target.dispersion != "learned"
    if by_mode or target.noise != "one" or getattr(before, "noise", "one") != "one":
        name, one = ("dispersion", "learned") if by_mode else ("noise", "one")
        got = f"{name}={getattr(target, name)!r}"
        fail_value(f"partial_fit learns one {name}; got {got}; use fit with all entries, or {name}={one!r}.")
    # a stream has one, and to make its posterior takes as long as a sweep
    first = None if target.dispersion is None or fit is None or fit.stream is not None else first_member(fit.posterior)
    common = isinstance(first, Posterior) and first.dispersion is not None and first.dispersion.mean is not None
    if common or getattr(first, "uneven", None) is not None:  # rows with a law in common
        fail_value("partial_fit learns one dispersion; got a fit with one for every row of a mode; fit again.")
    name, _ = checked_method(spec.method)
    if fit is None and name != "auto":
        refuse_unable(name, "streams", "learns no streams (partial_fit)")
    check_revisit(spec)
