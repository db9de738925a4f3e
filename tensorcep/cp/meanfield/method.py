"""Mean-field inference for the CP model: coordinate ascent on a lower bound, one R x R block per row.

With q(u) a Gaussian for every row, and an auxiliary variable per entry where the likelihood is not Gaussian in f, the
update of a row adds up what its entries say (`rows`), weights and targets being expectations (`sites`). Modes are
updated in turn, the auxiliary variables and a precision of the entries after each, a dispersion or thresholds after
all. A learned prior is a factor of q too (`tensorcep.cp.model.rows`), updated before the rows in every sweep that
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
from typing import Any

import numpy as np

from tensorcep.core.arrays import on_scratch
from tensorcep.core.executor import Executor
from tensorcep.core.loop import Capabilities, Method, Sweep
from tensorcep.cp import settings
from tensorcep.cp.meanfield.row_update import (
    MeanFieldState,
    MeanFieldSums,
    Setup,
    all_second_moments,
    first_square,
    refresh_numbers,
    sources,
    update_mode,
)
from tensorcep.cp.meanfield.sites import as_observed, latent_squares, squared_targets, total_weight, update_sites
from tensorcep.cp.model.columns import encode_columns, free_problem, orders_of, posterior_of_rows
from tensorcep.cp.model.latent import latent_of_entries, relative_change
from tensorcep.cp.model.memmap import by_row_of, change_and_score
from tensorcep.cp.model.parameters import kernel_arguments, mix_densities, parameters_of, results, shared_arguments
from tensorcep.cp.model.problem import Problem, weights_of_entries
from tensorcep.cp.model.rows import (
    augmentation_in_use,
    first_prior,
    fix_rows,
    natural_again,
    refresh_rows,
    rows_at_prior,
    rows_bound,
    sites_by_mode,
    train_score,
    update_prior,
    with_seen_rows,
    with_unseen_rows,
)
from tensorcep.cp.model.subsets import tells
from tensorcep.cp.posterior import Posterior
from tensorcep.kernels.rows import packed_products
from tensorcep.likelihoods.base import Augmentation
from tensorcep.likelihoods.parameters.base import EntryStats, ExpectedSquares, PrecisionStats

# Of fewer entries, rows have too few for variances that change slowly, and a sweep takes little time.
MANY = 20_000
# The latent values of counts are logs: none that float64 counts one by one lies farther than this from another. Where
# what entries say is matched to the log likelihood, updates need not be an ascent: the Gaussian of an entry is good
# near its present latent value. With weights of many sizes in a row, as of counts of 0 and of a million, the update can
# carry the light entries far beyond what it knows, and the next one farther yet: moves are held back.
FARTHEST = math.log(2.0**53)
Move = tuple[int, np.ndarray, np.ndarray]  # a mode before its update: see `hold_back`


def init(kind: str, problem: Problem, options: Any, executor: Executor) -> MeanFieldState:
    """Rows at the starting means with the prior's covariances; `kind` names the likelihood's augmentation."""
    small, columns = with_seen_rows(free_problem(problem)), encode_columns(problem.every_free)
    augmentation = augmentation_in_use(getattr(problem.likelihood, kind), problem) or Augmentation()
    y, weight = problem.entries.y, problem.entries.weight
    stored = on_scratch(y) and augmentation.expected is None
    in_order = sorted(parameters_of(problem, options), key=lambda one: one.stage)
    parameters = tuple(one.with_observations(y, weight) for one in in_order)
    setup = Setup(
        small,
        columns,
        orders=orders_of(columns),
        augmentation=augmentation,
        parameters=parameters,
        noise=next((i for i, one in enumerate(parameters) if one.is_precision), -1),
        by_row=problem.of_entries or by_row_of(problem, values=stored, executor=executor),
        squares=float(np.einsum("bl,bl->", y, y)) if stored else None,
    )
    rows = rows_at_prior(small)
    n_rows = len(rows.good)
    refresh_rows(rows, 0, n_rows, executor)
    prior = first_prior(small, rows)
    if small.start is not None:
        rows.mean[:] = small.start
    if small.fixed is not None:
        fix_rows(rows, small)
        refresh_rows(rows, 0, n_rows, executor)
        if small.start is not None:
            rows.mean[:] = np.where(small.rows_of_fixed[:, None], rows.mean, small.start)
    P, Q, C = rows.cov.shape[1], small.rank, setup.orders.n_clamped
    sums = MeanFieldSums(
        setup,
        sites=as_observed(problem, setup.augmentation, setup.parameters),
        numbers=np.ones((n_rows, P + Q + 1 if C else P)),
        sum_Z2=np.zeros((n_rows, P + Q * C)),
        sum_yz=np.zeros((n_rows, Q + C)),
    )
    laws = tuple(one.first_law(len(problem.entries.permutation)) for one in setup.parameters)
    state = MeanFieldState(rows, prior, laws, sums, 0)
    refresh_numbers(0, n_rows, state, executor)
    if C:
        state = state.put(square=first_square(state, problem, executor))
    state = _with_latent(state, problem, executor)
    return _with_sites(state, problem, executor) if setup.augmentation.weighted else state


def _with_latent(state: MeanFieldState, problem: Problem, executor: Executor) -> MeanFieldState:
    """The latent values at the present rows; of entries on scratch none are kept."""
    if state.setup.on_scratch:
        return state
    f = latent_of_entries(problem.entries, state.rows.mean, executor, state.setup.columns.groups)
    return state.put(sites=state.own.sites._replace(f=f))


def _with_sites(
    state: MeanFieldState, problem: Problem, executor: Executor, before: Move | None = None, more: bool = False
) -> MeanFieldState:
    """The best laws of the auxiliary variables at the present rows, whose moves from `before` are not too large."""
    # Matched Gaussians of MANY entries take the variances of the latent values from the sweep before where `more` modes
    # follow: these are half the time of a sweep, change slowly after the first one, and no bound depends on them.
    augmentation, old = state.setup.augmentation, state.own.sites
    if not state.setup.auxiliary:
        return state
    if augmentation.matched or not augmentation.weighted or len(problem.entries.known):
        state = _with_latent(state, problem, executor)
    if before is not None and hold_back(*before, state, problem, executor):
        state = _with_latent(state, problem, executor)
    if augmentation.matched and more and state.sweeps and len(problem.entries.permutation) >= MANY:
        square = old.square + (state.f - old.f) * (state.f + old.f)
        state = state.put(sites=state.own.sites._replace(square=square))
    elif augmentation.weighted:
        square = latent_squares(problem, all_second_moments(state), executor, state.f)
        state = state.put(sites=state.own.sites._replace(square=square))
    update_sites(state.own.sites, augmentation, state.setup.parameters, state.parameters, problem, executor)
    return state


def step(state: MeanFieldState, problem: Problem, options: Any, executor: Executor) -> tuple[MeanFieldState, Sweep]:
    """One sweep: every mode once, with the auxiliary variables and a precision after each; then the rest."""
    setup, annealed = state.setup, state.sweeps < options.anneal
    old = state.rows.mean.copy() if setup.on_scratch else state.f
    if not annealed:
        state = state._replace(hyper=update_prior(state.hyper, setup.small, state.rows))
    modes = [k for k in range(len(problem.shape)) if not problem.is_fixed(k)]
    for k in modes:
        own = state.rows.mean[setup.by_row.chunks[k][0] : setup.by_row.chunks[k][-1]]
        before = (k, own.copy(), state.f) if setup.augmentation.matched else None
        state = update_mode(k, state, options.anneal_power if annealed else 1.0, problem, executor)
        state = _with_sites(state, problem, executor, before, more=k != modes[-1])
        state = _with_precision(k, state, problem)
    if not setup.auxiliary or setup.augmentation.weighted:
        state = _with_latent(state, problem, executor)
    state = _with_laws(state, problem, executor)
    if not annealed:
        state = _with_uneven_noise(state, problem, executor)
    state, (change, score) = _report(state, old, problem, executor)
    sweep = Sweep(
        change=change,
        noise_precision=state.precision() if setup.noise >= 0 else np.nan,
        train_score=score,
        lower_bound=np.nan if annealed else lower_bound(state, problem, executor),
    )
    return state._replace(sweeps=state.sweeps + 1), sweep


def _report(
    state: MeanFieldState, old: np.ndarray, problem: Problem, executor: Executor
) -> tuple[MeanFieldState, tuple[float, float]]:
    """The change of the latent values, relative to them, and the mean log likelihood of the entries."""
    # `old` are the latent values before the sweep; of entries on scratch the row means, and the sums of the first mode
    # are then taken for the next sweep
    setup, own, laws = state.setup, state.own, state.parameters
    if setup.on_scratch:
        seconds, means = (one.made(executor) for one in sources(0, state))
        sums = ((False, seconds, own.sum_Z2), (True, means, own.sum_yz))
        known = (setup.columns, setup.by_row, sums, shared_arguments(setup.parameters, laws)[0])
        return state.put(first_summed=True), change_and_score((state.rows.mean, old), *known, problem, executor)
    each = setup.auxiliary or any(one.uneven for one in setup.parameters)
    of_all = problem.entries.y, shared_arguments(setup.parameters, laws)[0]
    y, theta = kernel_arguments(setup.parameters, laws, problem) if each else of_all
    score = train_score(problem, state.f, theta, y, partial(mix_densities, setup.parameters, laws))
    return state, (relative_change(state.f, old, problem.power), score)


def _with_precision(k: int, state: MeanFieldState, problem: Problem) -> MeanFieldState:
    """The best law of a precision, by the sums of mode k, which was updated last."""
    own, setup, i = state.own, state.setup, state.setup.noise
    if i < 0:
        return state
    chunks, sites, Q = setup.by_row.chunks[k], own.sites, state.rows.eta.shape[1]
    mine = slice(chunks[0], chunks[-1])
    if setup.auxiliary:  # targets have changed since the sums were taken
        cross = float(np.einsum("bl,bl->", sites.target, state.f)) - 0.5 * float(sites.spread.sum())
    else:
        cross = float(np.einsum("ir,ir->", state.rows.mean[mine], own.sum_yz[mine, :Q]))
        cross += float(own.sum_yz[mine, Q:].sum())
    squared = squared_targets(sites, problem) if setup.squares is None else setup.squares
    stats = PrecisionStats(total_weight(problem), max(0.0, squared - 2.0 * cross + own.square))
    return state.learn(i, setup.parameters[i].expect(state.parameters[i], stats))


def _with_laws(state: MeanFieldState, problem: Problem, executor: Executor) -> MeanFieldState:
    """The laws that latent values tell, and the auxiliary variables that go with them."""
    # where Gaussians are matched these are at the latent values f to which rows will move (`Parameter.shift`); at where
    # f still is their weights would be wrong, and with them the next law, which then swings
    setup, sites = state.setup, state.own.sites
    shift: np.ndarray | float = 0.0
    told = [i for i, one in enumerate(setup.parameters) if one.by_latent]
    if not told:
        return state
    (f, square), power, entries = sites[:2], problem.power, problem.entries

    def marginals(place: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        m, second = (part if place is None else part.ravel()[place] for part in (f, square))
        return m, np.maximum(second - m * m, 0.0)

    laws = state.parameters
    stats = EntryStats(
        y=entries.y,
        used=sites.present if len(sites.present) else entries.weight,
        f=f,
        n=len(entries.permutation),
        theta=lambda: kernel_arguments(setup.parameters, laws, problem)[1],
        executor=executor,
        square=square,
        marginals=marginals if setup.augmentation.matched else None,
        power=np.zeros(0) if power is None else power,
    )
    for i in told:
        before = state.parameters[i]
        state = state.learn(i, setup.parameters[i].expect(before, stats))
        if setup.augmentation.matched:
            shift = shift + setup.parameters[i].shift(before, state.parameters[i])
    if np.any(shift):
        sites = sites._replace(f=sites.f + shift, square=sites.square + shift * (2.0 * sites.f + shift))
    update_sites(sites, setup.augmentation, setup.parameters, state.parameters, problem, executor)
    return state


def _with_uneven_noise(state: MeanFieldState, problem: Problem, executor: Executor) -> MeanFieldState:
    """The best factors of noise that differs, with their precision and shape, and what entries then say, in place."""
    # The factors of rows or entries are integrated out exactly given the precision tau and the shape of their prior,
    # which are points: the maximum of the bound given the rows, found after every sweep that is not annealed. The rows
    # see the factors by their means, as weights of the entries.
    setup, sites, f, i = state.setup, state.own.sites, state.f, state.setup.noise
    if i < 0 or not setup.parameters[i].uneven:
        return state
    power, second = problem.weights, latent_squares(problem, all_second_moments(state), executor)
    target, spread = problem.entries.y, np.zeros((1, 1))
    if setup.auxiliary:
        used = sites.weight > 0.0
        target, spread = (np.divide(part, sites.weight, where=used, out=np.zeros(f.shape)) for part in sites[3:5])
    squares = (target - f) ** 2 + spread + np.maximum(second - f * f, 0.0)
    law = setup.parameters[i].expect(state.parameters[i], ExpectedSquares(power, squares))
    sites.weight[:] = power * law.mean
    sites.target[:] = sites.weight * target
    if len(sites.spread):
        sites.spread[:] = sites.weight * spread
    return state.learn(i, law).put(square=float(np.einsum("bl,bl->", sites.weight, second)))


def lower_bound(state: MeanFieldState, problem: Problem, executor: Executor) -> float:
    """The evidence lower bound: what the entries say in expectation, minus the divergences of rows and parameters."""
    bound, sites, setup = rows_bound(state.hyper, state.rows, problem.shape, executor), state.own.sites, state.setup
    # with a learned precision, whose law is optimal given the rest, entries and precision together give the log
    # normaliser of q(tau) minus that of its prior, minus N log(2 pi) / 2, plus the entropies of auxiliary variables
    if setup.noise >= 0:
        noise, law = setup.parameters[setup.noise], state.parameters[setup.noise]
        return bound + noise.bound(law) + noise.log_normaliser(total_weight(problem)) + float(sites.constant.sum())
    weighted = setup.augmentation.weighted
    square = float(np.einsum("bl,bl->", sites.weight, sites.square)) if weighted else state.own.square
    bound += float(sites.constant.sum()) + float(np.einsum("bl,bl->", sites.target, sites.f)) - 0.5 * square
    for one, law in zip(setup.parameters, state.parameters, strict=True):
        bound += one.bound(law)
    return bound


def finish(state: MeanFieldState, problem: Problem) -> Posterior:
    """The posterior q of the rows and of what was learned of the likelihood."""
    prior, small, theta = state.hyper, state.setup.small, results(state.setup.parameters, state.parameters)
    axes = [None if own is None else small.prior.axis(k) for k, own in enumerate(prior.marginals)]
    for of, first in zip(axes, small.entries.offsets.tolist(), strict=False):
        if of is not None:
            natural_again(of, first, state.rows)
    sites = sites_by_mode(axes, prior.marginals)
    rows = with_unseen_rows(state.rows, small, prior.now, prior.marginals)
    return posterior_of_rows(rows, problem, prior.now.modes, sites=sites, **theta)


def hold_back(
    k: int, means: np.ndarray, f: np.ndarray, state: MeanFieldState, problem: Problem, executor: Executor
) -> bool:
    """Hold back rows of mode k, in place, until no latent value moves by more than FARTHEST; gives whether any was."""
    # before its update the rows had these means, (n_k, Q), and f were the latent values, (n_blocks, LANES), which are
    # to be computed again if a row was held back
    n, first = len(problem.entries.permutation), int(state.setup.by_row.chunks[k][0])
    moved, weight = np.abs(state.f - f).ravel()[:n], weights_of_entries(problem)
    if weight is not None and moved.max(initial=0.0) > FARTHEST:  # what weighs nothing holds no row back
        moved[~tells(weight)] = 0.0
    if moved.max(initial=0.0) <= FARTHEST:
        return False
    farthest = np.full(len(means), FARTHEST)
    np.maximum.at(farthest, problem.entries.rows[:, k].ravel()[:n] - first, moved)
    mine = state.rows.mean[first : first + len(farthest)]
    mine[:] = means + (FARTHEST / farthest)[:, None] * (mine - means)
    packed_products(first, first + len(farthest), state.rows.Lam, state.rows.mean, state.rows.eta)
    refresh_numbers(first, first + len(farthest), state, executor)
    return True


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
    resume=_with_latent,
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
