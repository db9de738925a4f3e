"""Mean-field inference for the CP model: coordinate ascent on a lower bound, one R x R block per row.

With q(u) a Gaussian for every row, and an auxiliary variable per entry where the likelihood is not Gaussian in f, the
update of a row adds up what its entries say (`rows`), weights and targets being expectations (`sites`). Modes are
updated in turn, the auxiliary variables and a precision of the entries after each, a dispersion or thresholds after
all. A learned prior is a factor of q too (`tensorcep.cp.model.row_prior`), updated before the rows in every sweep that
is not annealed. The lower bound of the log evidence cannot fall.

Two methods differ in the auxiliary variable alone. VMP has normal latent values: real values, censored or not, and
labels with the probit link; to counts it matches a Gaussian per entry, with which the best Gaussian rows are a fixed
point but the bound may fall. PG-VB has Polya-Gamma variables: labels with the logit link, negative-binomial counts.

Source: the batch VMP that the CEP paper (Wang and Zhe, sec. 6) compares with, for the same model and priors; Klami
(2014), "Polya-Gamma augmentations for factor models" (PG) sec. 3-4. Where we differ from PG: any order; full R x R
covariances; for counts the bound is kept exact with a random r: E[r] stands where the paper takes
q(omega) = PG(y + <r>, .) (an approximation there), as the tangent at xi bounds the likelihood for every r.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.arrays import on_scratch
from tensorcep.core.executor import Executor
from tensorcep.core.loop import Capabilities, Method, Sweep
from tensorcep.cp.meanfield.row_update import (
    LikelihoodLaws,
    MeanFieldState,
    MeanFieldSums,
    Setup,
    all_second_moments,
    first_square,
    refresh_numbers,
    sources,
    update_mode,
)
from tensorcep.cp.meanfield.scale_mixture import even_factors, uneven_result, weigh, with_factors
from tensorcep.cp.meanfield.sites import (
    ExpectedSites,
    as_observed,
    latent_squares,
    squared_targets,
    total_weight,
    update_sites,
)
from tensorcep.cp.model.active_columns import columns_of, free_problem, posterior_of_rows
from tensorcep.cp.model.columns import orders_of
from tensorcep.cp.model.latent import latent_at, relative_change
from tensorcep.cp.model.memmap import by_row_of, change_and_score
from tensorcep.cp.model.parameters import (
    Learned,
    distinct_counts,
    first_thresholds,
    learned_levels,
    learned_parameter,
    own_law,
    sampled_entries,
)
from tensorcep.cp.model.problem import Problem, weights_of_entries
from tensorcep.cp.model.row_prior import first_prior, learned_from_rows, natural_by_mode, rows_bound, with_unseen_rows
from tensorcep.cp.model.rows import augmentation_in_use, fix_rows, learning, refresh_rows, rows_at_prior, train_score
from tensorcep.cp.model.subsets import tells
from tensorcep.cp.posterior.belief import Posterior
from tensorcep.cp.posterior.components import Thresholds
from tensorcep.cp.settings import meanfield as settings
from tensorcep.kernels.rows import packed_products
from tensorcep.likelihoods.augmentation import Augmentation
from tensorcep.likelihoods.parameters.base import Gamma
from tensorcep.likelihoods.parameters.thresholds import LevelEntries, law_of_thresholds, prior_of_thresholds
from tensorcep.likelihoods.parameters.zero_inflation import Beta

# Of fewer entries, rows have too few for variances that change slowly, and a sweep takes little time.
MANY = 20_000
# The latent values of counts are logs: none that float64 counts one by one lies farther than this from another. Where
# what entries say is matched to the log likelihood, updates need not be an ascent: the Gaussian of an entry is good
# near its present latent value. With weights of many sizes in a row, as of counts of 0 and of a million, the update can
# carry the light entries far beyond what it knows, and the next one farther yet: moves are held back.
FARTHEST = math.log(2.0**53)


def init(kind: str, problem: Problem, options: Any, executor: Executor) -> MeanFieldState:
    """Rows at the starting means with the prior's covariances; the parameter at its start; targets at the values.

    `kind` names the augmentation of the likelihood that is used.
    """
    small, learned = learning(free_problem(problem)), learned_parameter(problem, options)
    setup = _setup(getattr(problem.likelihood, kind), small, problem, executor)
    rows = rows_at_prior(small)
    n_rows = len(rows.good)
    refresh_rows(rows, 0, n_rows, executor)
    prior = first_prior(small, rows)
    if small.start is not None:
        rows.mean[:] = small.start
    if small.fixed is not None:
        fix_rows(rows, small)
        refresh_rows(rows, 0, n_rows, executor)
        rows.mean[:] = (
            rows.mean if small.start is None else np.where(small.rows_of_fixed[:, None], rows.mean, small.start)
        )
    P, Q, C = rows.cov.shape[1], small.rank, setup.orders.n_clamped
    sums = MeanFieldSums(
        setup,
        sites=as_observed(problem, setup.augmentation),
        numbers=np.ones((n_rows, P + Q + 1 if C else P)),
        sum_Z2=np.zeros((n_rows, P + Q * C)),
        sum_yz=np.zeros((n_rows, Q + C)),
    )
    laws = LikelihoodLaws(
        learned=learned,
        law=own_law(problem.likelihood.default_theta) if learned is None else learned.first_law(),
        counts=distinct_counts(learned, problem),
        cut=first_thresholds(problem),
        uneven=even_factors(problem),
        share=first_share(problem),
    )
    state = MeanFieldState(rows, prior, laws, sums, 0)
    refresh_numbers(0, n_rows, state, executor)
    if C:
        state = state.put(square=first_square(state, problem, executor))
    state = _with_latent(state, problem, executor)
    return _with_sites(state, problem, executor) if setup.augmentation.weighted else state


def _setup(augmentation: Augmentation, small: Problem, problem: Problem, executor: Executor) -> Setup:
    """What follows from the problem, which is `small` in its free columns."""
    augmentation, columns, y = (
        augmentation_in_use(augmentation, problem) or Augmentation(),
        columns_of(problem),
        problem.entries.y,
    )
    stored = on_scratch(y) and augmentation.expected is None
    by_row = problem.of_entries or by_row_of(problem, values=stored, executor=executor)
    squares = float(np.einsum("bl,bl->", y, y)) if stored else None
    return Setup(small, columns, orders_of(columns), augmentation, by_row, squares)


def _with_latent(state: MeanFieldState, problem: Problem, executor: Executor) -> MeanFieldState:
    """The latent values at the present rows; of entries on scratch none are kept."""
    if state.setup.on_scratch:
        return state
    f = latent_at(problem.entries, state.rows.mean, state.setup.columns, executor)
    return state.put(sites=state.own.sites._replace(f=f))


def _with_sites(
    state: MeanFieldState,
    problem: Problem,
    executor: Executor,
    before: Before | None = None,
    more: bool = False,
) -> MeanFieldState:
    """The best laws of the auxiliary variables at the present rows, whose moves from `before` are not too large.

    Matched Gaussians of MANY entries take the variances of the latent values from the sweep before where `more` modes
    follow: these are half the time of a sweep, change slowly after the first one, and no bound depends on them.
    """
    augmentation, old = state.setup.augmentation, state.own.sites
    if not state.setup.auxiliary:
        return state
    if augmentation.matched or not augmentation.weighted or len(problem.entries.known):
        state = _with_latent(state, problem, executor)
    if before is not None and hold_back(before, state, problem, executor):
        state = _with_latent(state, problem, executor)
    if augmentation.matched and more and state.sweeps and len(problem.entries.permutation) >= MANY:
        square = old.square + (state.f - old.f) * (state.f + old.f)
        state = state.put(sites=state.own.sites._replace(square=square))
    elif augmentation.weighted:
        square = latent_squares(problem, all_second_moments(state, executor), executor, state.f)
        state = state.put(sites=state.own.sites._replace(square=square))
    laws, sites = state.parameters, state.own.sites
    update_sites(sites, augmentation, state.given(problem), problem, executor, laws.share)
    if laws.uneven is not None:
        weigh(sites, laws.uneven)
    return state


def step(state: MeanFieldState, problem: Problem, options: Any, executor: Executor) -> tuple[MeanFieldState, Sweep]:
    """One sweep: every mode once, with the auxiliary variables and a precision after each; then the rest."""
    setup, annealed = state.setup, state.sweeps < options.anneal
    old = state.rows.mean.copy() if setup.on_scratch else state.f
    if not annealed:
        state = state._replace(hyper=learned_from_rows(state.hyper, setup.small, state.rows))
    modes = [k for k in range(len(problem.shape)) if not problem.is_fixed(k)]
    for k in modes:
        before = before_move(k, state) if setup.augmentation.matched else None
        state = update_mode(k, state, options.anneal_power if annealed else 1.0, problem, executor)
        state = _with_sites(state, problem, executor, before, more=k != modes[-1])
        if state.parameters.learns_precision:
            state = state.learn(law=law_of_precision(k, state, problem))
    if not setup.auxiliary or setup.augmentation.weighted:
        state = _with_latent(state, problem, executor)
    if state.parameters.share is not None:
        state = with_share(state, problem)
    if state.parameters.counts:
        state = _with_counts(state, problem, executor)
    elif state.parameters.share is not None:
        state = _with_law(state, state.parameters.law, problem, executor)
    if state.parameters.cut is not None:
        state = _with_thresholds(state, problem, executor)
    if state.parameters.uneven is not None and not annealed:
        state = with_factors(state, problem, executor)
    state, (change, score) = _report(state, old, problem, executor)
    sweep = Sweep(
        change=change,
        noise_precision=state.precision() if state.parameters.learns_precision else np.nan,
        train_score=score,
        lower_bound=np.nan if annealed else lower_bound(state, problem, executor),
    )
    return state._replace(sweeps=state.sweeps + 1), sweep


def _report(
    state: MeanFieldState, old: np.ndarray, problem: Problem, executor: Executor
) -> tuple[MeanFieldState, tuple[float, float]]:
    """The change of the latent values, relative to them, and the mean log likelihood of the entries.

    `old` are the latent values before the sweep; of entries on scratch the row means, and the sums of the first mode
    are then taken for the next sweep.
    """
    setup, own, laws = state.setup, state.own, state.parameters
    if setup.on_scratch:
        seconds, means = sources(0, state, executor)
        sums = ((False, seconds, own.sum_Z2), (True, means, own.sum_yz))
        known = (setup.columns, setup.by_row, sums, float(laws.law.mean[0]))
        return state.put(first_summed=True), change_and_score((state.rows.mean, old), *known, problem, executor)
    of_all = not setup.auxiliary and laws.uneven is None
    y, theta = (problem.entries.y, float(laws.law.mean[0])) if of_all else state.given(problem)
    share = None if laws.share is None else laws.share.mean
    return state, (relative_change(state.f, old, problem.power), train_score(problem, state.f, theta, y, share))


def _with_counts(state: MeanFieldState, problem: Problem, executor: Executor) -> MeanFieldState:
    """The laws of the dispersions, and the auxiliary variables that go with them."""
    learned, law = laws_of_dispersions(state, problem)
    return _with_law(state.learn(learned=learned), law, problem, executor)


def _with_thresholds(state: MeanFieldState, problem: Problem, executor: Executor) -> MeanFieldState:
    """The thresholds at which the bound is highest, and the auxiliary variables that go with them."""
    levels, law = learned_levels(problem.likelihood), state.parameters.cut
    if levels is None or law is None:
        return state
    known = LevelEntries(problem.entries.y, problem.weights, state.f)
    state = state.learn(cut=law_of_thresholds(levels, law.thresholds, known, executor))
    return _with_law(state, state.parameters.law, problem, executor)


def _with_law(state: MeanFieldState, law: Gamma, problem: Problem, executor: Executor) -> MeanFieldState:
    """The law of the parameter, and the auxiliary variables that go with it, which follow what counts tell, r e^f."""
    before, state, augmentation = state.parameters.law, state.learn(law=law), state.setup.augmentation
    moved = (
        shifted(state, np.log(before.mean / law.mean))
        if augmentation.matched and law is not before
        else state.own.sites
    )
    update_sites(moved, augmentation, state.given(problem), problem, executor, state.parameters.share)
    return state


def lower_bound(state: MeanFieldState, problem: Problem, executor: Executor) -> float:
    """The evidence lower bound: what the entries say in expectation, minus the divergences of rows and parameters.

    With a learned precision, whose law is optimal given the rest, entries and precision together give the log
    normaliser of q(tau) minus that of its prior, minus N log(2 pi) / 2, plus the entropies of auxiliary variables.
    """
    rest = rows_bound(state.hyper, state.rows, problem.shape, executor)
    sites, laws = state.own.sites, state.parameters
    learned = laws.learned
    if laws.uneven is not None:
        return rest + laws.uneven.evidence + float(sites.constant.sum())
    if learned is not None and learned.parameter.is_precision:
        (a0, b0), n = learned.prior, total_weight(problem)
        a, b = float(laws.law.a[0]), float(laws.law.b[0])
        gamma = a0 * math.log(b0) - a * math.log(b) + math.lgamma(a) - math.lgamma(a0)
        return rest + gamma - 0.5 * n * math.log(2.0 * math.pi) + float(sites.constant.sum())
    weighted = state.setup.augmentation.weighted
    square = float(np.einsum("bl,bl->", sites.weight, sites.square)) if weighted else state.own.square
    rest += float(sites.constant.sum()) + float(np.einsum("bl,bl->", sites.target, sites.f)) - 0.5 * square
    rest -= divergence_of_share(state, problem)
    levels = learned_levels(problem.likelihood)
    if levels is not None and laws.cut is not None:
        return rest + prior_of_thresholds(levels, laws.cut.thresholds).value
    return rest + learned.bound(laws.law, laws.counts) if learned else rest


def finish(state: MeanFieldState, problem: Problem) -> Posterior:
    """The posterior q of the rows and of what was learned of the likelihood."""
    laws, prior, small = state.parameters, state.hyper, state.setup.small
    theta: dict[str, Any] = {"noise": None} if laws.learned is None else laws.learned.result(laws.law)
    theta["zeros"] = laws.share
    if laws.cut is not None:
        theta["thresholds"] = Thresholds(*laws.cut)
    theta = theta if laws.uneven is None else uneven_result(state, problem)
    sites = natural_by_mode(small, state.rows, prior.marginals)
    rows = with_unseen_rows(state.rows, small, prior.now, prior.marginals)
    return posterior_of_rows(rows, problem, prior.now.modes, sites=sites, **theta)


def law_of_precision(k: int, state: MeanFieldState, problem: Problem) -> Gamma:
    """The optimal q(tau), by the sums of mode k, which was updated last."""
    own, setup, learned, Q = state.own, state.setup, state.parameters.learned, state.rows.eta.shape[1]
    chunks, (a, b), sites = setup.by_row.chunks[k], learned.prior, own.sites  # type: ignore[union-attr]
    mine, n = slice(chunks[0], chunks[-1]), total_weight(problem)
    if setup.auxiliary:  # targets have changed since the sums were taken
        cross = float(np.einsum("bl,bl->", sites.target, state.f)) - 0.5 * float(sites.spread.sum())
    else:
        cross = float(np.einsum("ir,ir->", state.rows.mean[mine], own.sum_yz[mine, :Q]))
        cross += float(own.sum_yz[mine, Q:].sum())
    squared = squared_targets(sites, problem) if setup.squares is None else setup.squares
    squares = squared - 2.0 * cross + own.square
    return Gamma(np.array([a + 0.5 * n]), np.array([b + 0.5 * max(0.0, squares)]))


def laws_of_dispersions(state: MeanFieldState, problem: Problem) -> tuple[Learned, Gamma]:
    """What rows have in common, and the laws of the dispersions."""
    learned: Any = state.parameters.learned
    laws, sites, prior = state.parameters, state.own.sites, learned.prior
    present = problem.entries.weight if laws.share is None else sites.present
    if state.setup.augmentation.matched:
        index = sampled_entries(problem, learned.groups)
        f, square, used = (part.ravel()[index] for part in (sites.f, sites.square, present))
        law = learned.law_of_marginals(laws.law, problem, index, f, np.maximum(square - f * f, 0.0), used)
    else:
        counting, groups = learned.parameter.counting, learned.groups
        rate = groups.totals(lambda at: present[at] * counting.softplus(sites.f[at], sites.square[at]))
        law = learned.parameter.law_of_counts(prior, laws.law, rate, laws.counts)
    return learned.pooled(law)


def first_share(problem: Problem) -> Beta | None:
    """The Beta law of the share of structural zeros to begin with; None where there are none."""
    zeros = problem.likelihood.zeros
    return None if zeros is None else zeros.first_law(len(problem.entries.permutation))


def with_share(state: MeanFieldState, problem: Problem) -> MeanFieldState:
    """The best law of that share given what every zero probably is: the present weights, which are not updated."""
    zeros, present = problem.likelihood.zeros, state.own.sites.present
    if zeros is None:
        return state
    n, n_present = len(problem.entries.permutation), float(present.sum())
    return state.learn(share=zeros.law_of(n - n_present, n_present))


def divergence_of_share(state: MeanFieldState, problem: Problem) -> float:
    """What the share takes off a lower bound."""
    zeros, share = problem.likelihood.zeros, state.parameters.share
    return 0.0 if zeros is None or share is None else share.divergence(zeros.prior)


class Before(NamedTuple):
    """A mode before its update: its number, the means of its rows (n_k, Q), and the latent values (n_blocks, LANES)."""

    mode: int
    means: np.ndarray
    f: np.ndarray


def before_move(k: int, state: MeanFieldState) -> Before:
    """What `hold_back` has to know of the present rows of mode k."""
    chunks = state.setup.by_row.chunks[k]
    return Before(k, state.rows.mean[chunks[0] : chunks[-1]].copy(), state.f)


def hold_back(before: Before, state: MeanFieldState, problem: Problem, executor: Executor) -> bool:
    """Shorten the moves of the rows of a mode, in place, until no latent value moves by more than FARTHEST.

    Returns whether a row was held back; latent values are then to be computed again.
    """
    n, first = len(problem.entries.permutation), int(state.setup.by_row.chunks[before.mode][0])
    moved = np.abs(state.f - before.f).ravel()[:n]
    weight = weights_of_entries(problem)
    if weight is not None and moved.max(initial=0.0) > FARTHEST:  # what weighs nothing holds no row back
        moved[~tells(weight)] = 0.0
    if moved.max(initial=0.0) <= FARTHEST:
        return False
    farthest = np.full(len(before.means), FARTHEST)
    np.maximum.at(farthest, problem.entries.rows[:, before.mode].ravel()[:n] - first, moved)
    mine = state.rows.mean[first : first + len(farthest)]
    mine[:] = before.means + (FARTHEST / farthest)[:, None] * (mine - before.means)
    packed_products(first, first + len(farthest), state.rows.Lam, state.rows.mean, state.rows.eta)
    refresh_numbers(first, first + len(farthest), state, executor)
    return True


def shifted(state: MeanFieldState, log_ratio: np.ndarray) -> ExpectedSites:
    """The sites at the latent values f to which rows will move: f plus that, one for each dispersion or for all.

    Entries tell the mean count r e^f: as log r rises, rows will take f down. At where f still is the weights of matched
    Gaussians would be wrong, and with them the next r, which then swings.
    """
    sites, learned = state.own.sites, state.parameters.learned
    by_mode = learned is not None and learned.groups.mode is not None
    shift = learned.groups.per_entry(log_ratio) if by_mode else log_ratio[0]  # type: ignore[union-attr]
    return sites._replace(f=sites.f + shift, square=sites.square + shift * (2.0 * sites.f + shift))


VMP = Method(
    name="vmp",
    needs=("mean_field",),
    options=settings.VMP,
    init=partial(init, "mean_field"),
    step=step,
    finish=finish,
    source="Wang & Zhe, Conditional Expectation Propagation, sec. 6; Albert & Chib (1993)",
    capabilities=Capabilities(
        quick=True,
        learns_prior=True,
        side_information=True,
        local=True,
        censors=True,
        censors_spikes=True,
        thresholds=True,
        structural_zeros=True,
        heteroscedastic=("noise", "dispersion"),
        weights=lambda problem: True,
        stores=lambda likelihood: likelihood.extent != "trials",
        streams=True,
        fixes_rows=True,
        workers=True,
    ),
    trial_sweeps=lambda options: options.anneal,
    of_entries=lambda state: state.setup.by_row,
)
PG_VB = replace(
    VMP,
    name="pg-vb",
    needs=("pg",),
    options=settings.PGVB,
    capabilities=VMP.capabilities._replace(heteroscedastic=("dispersion",), streams=False),
    init=partial(init, "pg"),
    source="Klami, Polya-Gamma augmentations for factor models, sec. 3-4",
)
