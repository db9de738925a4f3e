"""Gibbs sampling of the CP model: every chain draws, in every sweep, each part given everything else.

In the burn-in chains leave some entries out, which then tell how far each chain is to be believed
(`tensorcep.cp.calibration.holdout`).

For likelihoods that are not Gaussian in f an auxiliary variable per entry (`tensorcep.likelihoods.augmentation`), then
the rows of one mode after the other, then what is learned of the noise, where there is some. Other parameters come
first (`tensorcep.likelihoods.parameters.base.DrawStage`), given the latent values, with the auxiliary variables
integrated out: drawn given an old variable, whose law depends on it, they would change the stationary law.

Two samplers differ in the auxiliary variable alone. "gibbs" has normal latent values: real values, censored or not
(Chib 1992), and probit labels (Albert and Chib 1993). "pg-gibbs" has Polya-Gamma variables: labels with the logit link,
negative-binomial counts.

Source: Klami (2014), "Polya-Gamma augmentations for factor models" (PG) sec. 2.1, 3-4 and 6, for order 2; Zhou, Li,
Dunson and Carin (2012) for r. Where we differ: any order; the partially collapsed order above; r ~ Gamma(a + sum of
tables, rate b + sum log(1 + e^f)), of the entries of each row where rows have one each (Zhou and Carin 2015), whose a
and b are drawn with all r integrated out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tensorcep.core.arrays import mean_square, room_of, variance
from tensorcep.core.executor import Executor, Pass
from tensorcep.core.loop import Capabilities, Method, Sweep
from tensorcep.core.random import RandomStream
from tensorcep.cp.calibration import holdout
from tensorcep.cp.calibration.null_model import calibrated, with_constant
from tensorcep.cp.gibbs.chains import (
    NO_ENTRIES,
    GibbsState,
    RowFit,
    collect,
    draw_factors,
    draw_priors,
    keep,
    latent_of_chain,
    start_chains,
)
from tensorcep.cp.gibbs.metropolis import Around, Judge, judge_of
from tensorcep.cp.model.latent import relative_change
from tensorcep.cp.model.parameters import kernel_arguments, mix_densities, parameters_of, told_of_theta
from tensorcep.cp.model.problem import Problem, weights_of_entries
from tensorcep.cp.model.rows import augmentation_in_use, per_entry, train_score
from tensorcep.cp.posterior import Draws
from tensorcep.cp.settings import Gibbs, PGGibbs
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods.base import Augmentation
from tensorcep.likelihoods.parameters import base

# The share of the burn-in in which noise is the same everywhere: factors of entries that are not explained yet would
# take them for outliers.
EVEN_SHARE = 0.25
NO_FIT = RowFit(np.zeros(0), np.zeros(0, dtype=np.int64))


def init(kind: str, problem: Problem, options: Any, executor: Executor) -> GibbsState:
    """Every chain at its start, a precision at that of the data; `kind` names the likelihood's augmentation."""
    augmentation = augmentation_in_use(getattr(problem.likelihood, kind), problem) or Augmentation()
    auxiliary, n, weight = augmentation.auxiliary, len(problem.entries.permutation), weights_of_entries(problem)
    y = problem.entries.y.ravel()[:n]
    # the variance of the data; of data that do not vary a thousandth of their mean square, or 1
    spread = max(variance(y, weight), 1e-3 * mean_square(y, weight)) or 1.0 if y.size else 1.0
    parameters = parameters_of(problem, options, drawn=auxiliary)
    stacked = options.n_chains > 1 and options.weights == "stacked"
    wanted = stacked or getattr(options, "noise", "sampled") == "held-out"
    held = holdout.hold_out(problem, options.n_chains, spread) if wanted and options.burn_in > 0 else None
    state = start_chains(problem, options, augmentation, parameters, held, executor)
    C, f = options.n_chains, state.own.f
    if auxiliary or any(parameter.weighs for parameter in parameters):
        f = room_of(problem.entries.y).empty((C, *problem.entries.y.shape))
        for c in range(C):
            f[c] = latent_of_chain(state, c, problem, executor)
    draws = []
    for c in range(C):
        stats = _entry_stats(state, f[c], problem, executor)
        draws.append(tuple(parameter.first_draw(spread, stats) for parameter in parameters))
    told = not auxiliary and state.learns_precision and options.noise == "held-out"
    around = Around(f.copy(), np.zeros_like(f), options.burn_in) if augmentation.matched else None
    state = state.put(f=f, around=around, told_noise=told and held is not None and held.tells_noise)
    return state._replace(parameters=tuple(draws))


def _entry_stats(state: GibbsState, f: np.ndarray, problem: Problem, executor: Executor, c: int = 0) -> base.EntryStats:
    """What entries say of parameters by their latent values f, (n_blocks, LANES), in chain c."""
    entries = problem.entries

    def theta() -> np.ndarray:
        return kernel_arguments(state.setup.parameters, state.parameters[c], problem)[1]

    return base.EntryStats(entries.y, entries.weight, f, len(entries.permutation), theta, executor)


def resume(state: GibbsState, problem: Problem, executor: Executor) -> GibbsState:
    """A state that comes from a file, with the latent values of its rows."""
    if not state.own.f.size:
        return state
    return state.put(f=np.stack([latent_of_chain(state, c, problem, executor) for c in range(len(state.rows))]))


def step(state: GibbsState, problem: Problem, options: Any, executor: Executor) -> tuple[GibbsState, Sweep]:
    """One sweep of every chain; the figures are means over the chains, at their present draws."""
    own, held, sweeps, burn_in = state.own, state.held, state.sweeps, options.burn_in
    if held is not None and sweeps == burn_in and held.weights is None:
        state = with_weights(state, problem, options)
    state, old = draw_priors(state), state.rows.copy()
    even = sweeps < EVEN_SHARE * burn_in
    if not len(state.own.sites.weight):
        swept = executor.apart(_sweep_chain, len(state.rows), state, problem, even)
    else:  # chains take turns with the room for sites
        swept = [_sweep_chain(c, state, problem, even, executor) for c in range(len(state.rows))]
    state = state._replace(parameters=tuple(draws for draws, _ in swept))
    change = relative_change(state.rows, old)
    del old  # a draw may be kept in its place
    if held is not None and len(state.left_out):
        now = holdout.ChainsDrawn(sweeps, state.rows, state.setup.parameters, state.parameters, even)
        given = state.given_at(held.place, problem)
        held, draws = holdout.learn_from_held(held, now, given, problem, options, own.told_noise)
        which = holdout.promising_chains(held, sweeps, burn_in, problem.likelihood)
        state = state._replace(parameters=draws).put(held=held)
        if options.weights == "stacked" and len(which) < len(draws):
            state = state.of_chains(which).put(held=holdout.chains_of(held, which))
    noise = float(state.theta.mean()) if state.learns_precision else np.nan
    sweep = Sweep(change, noise, 0, 0, float(np.array([score for _, score in swept]).mean()))
    return keep(state, problem, options), sweep


def _sweep_chain(
    c: int, state: GibbsState, problem: Problem, even: bool, executor: Executor
) -> tuple[tuple[Any, ...], float]:
    """Draw everything of chain c once; gives the parameters and the mean log likelihood of the entries in the sweep."""
    setup, f, key = state.setup, state.own.f[c], base.DrawKey(problem.seed, state.sweeps, c)
    parameters, draws, judge = setup.parameters, list(state.parameters[c]), None
    if setup.before_rows or setup.augmentation.auxiliary:
        stats = _entry_stats(state, f, problem, executor, c)
        for i in setup.before_rows:
            draws[i], stats = parameters[i].draw(draws[i], stats, key)
        if setup.augmentation.auxiliary:
            judge = draw_sites(c, state, draws, problem, executor, stats.used)
    precision: float | base.RowPrecision = 1.0
    for i in setup.after_rows:
        if parameters[i].weighs:
            draws[i] = parameters[i].weigh(draws[i], _residual_stats(c, state, problem, even, executor), key)
        precision = parameters[i].precision(draws[i])
    fit = draw_factors(state, c, problem, precision, executor, judge)
    if f.size:
        f[:] = latent_of_chain(state, c, problem, executor)
    rest: base.ResidualStats = _residual_stats(c, state, problem, even, executor, fit)
    for i in setup.after_rows:
        draws[i], rest = parameters[i].draw(draws[i], rest, key)
    if rest.score is not None:
        return tuple(draws), rest.score
    y, theta = kernel_arguments(parameters, draws, problem)
    return tuple(draws), train_score(problem, f, theta, y, partial(mix_densities, parameters, draws))


def _residual_stats(
    c: int, state: GibbsState, problem: Problem, even: bool, executor: Executor, fit: RowFit = NO_FIT
) -> base.ResidualStats:
    """What is known of the residuals of chain c, before its rows are drawn or with the fit of those that were."""
    own, entries, left_out, validation = state.own, problem.entries, state.left_out, None
    if problem.power is None:
        n = float(len(entries.permutation)) - float(len(left_out))
    else:
        n = float(problem.power.sum()) - float(problem.power.ravel()[left_out].sum())
    if own.told_noise:
        held: Any = own.held
        validation = base.ValidationNoise(held.place, float(held.noise[held.alive[c]]))
    weight, target = (part.reshape(-1, LANES) for part in own.sites[:2])
    return base.ResidualStats(
        n=n,
        sums=fit.sums,
        sizes=fit.sizes,
        y=entries.y,
        present=entries.weight,
        f=own.f[c],
        weight=weight,
        target=target,
        left_out=left_out,
        drawn=state.setup.augmentation.auxiliary,
        even=even,
        validation=validation,
        executor=executor,
    )


def draw_sites(
    c: int, state: GibbsState, draws: Sequence[Any], problem: Problem, executor: Executor, used: np.ndarray
) -> Judge | None:
    """Draw the auxiliary variables of chain c: the weight and the target of every entry."""
    # `used` (n_blocks, LANES) is 0 where an entry says nothing of its latent value; where there are no such variables
    # weight and target are of a Gaussian that stands for the entry, and rows drawn by it need the judge
    own, setup, f = state.own, state.setup, state.own.f[c]
    room, around, known = own.sites, own.around, problem.entries.known
    sites = room.weight.reshape(f.shape), room.target.reshape(f.shape)
    y, theta = kernel_arguments(setup.parameters, draws, problem)
    theta_of_sites = theta
    for parameter, draw in zip(setup.parameters, draws, strict=True):
        theta_of_sites = parameter.of_sites(draw, theta_of_sites)
    hides = used is not problem.entries.weight
    for part in sites if hides else ():  # what was drawn in the sweep before is no more
        part *= used
    if around is not None:
        around.look(c, f, state.sweeps)
        mean = around.mean[c]
        given, unused = (y, mean, mean * mean + around.variance[c], theta), (np.empty_like(mean), np.empty_like(mean))
        per_entry(given, (*sites, *unused), setup.augmentation.expected, problem, executor)
        for part in sites if problem.power is not None else ():
            part *= problem.power
    else:
        key = base.DrawKey(problem.seed, state.sweeps, c).of_entries(RandomStream.AUGMENTATION)
        record = (y, used if hides else problem.weights, f, theta_of_sites, key, *sites)
        draw = Pass(setup.augmentation.drawn, over="entries", entries=("y", "used", "theta"), changing=("f",))
        if setup.augmentation.weighted:
            draw = draw._replace(changes=("target", "weight"))
        else:
            draw = draw._replace(changes=("target",), entries=(*draw.entries, "weight"))
        executor.run(draw, 0, len(f), *record, scratch=base.room_for_stream)
    if len(known):
        np.subtract(sites[1], sites[0] * known, out=sites[1])
    if around is None:
        return None
    return judge_of((y, theta), setup.by_row.entry, sites, problem, around.climbs(state.sweeps))


def with_weights(
    state: GibbsState, problem: Problem, options: Any, beside: Sequence[holdout.Beside] = (), before: Any = 0.0
) -> GibbsState:
    """At the end of the burn-in: the chains that go on, and how far each, and each fit beside them, is believed."""
    held: Any = state.held  # `before` is what fits beside count unless entries left out say otherwise
    shapes = holdout.noise_at(state.setup.parameters, state.parameters, held.place).shape
    held, law = calibrated(held, problem, options, beside, before, shapes, state.own.told_noise)
    return state.of_chains(held.alive).put(held=held, noise_law=law)


def finish(state: GibbsState, problem: Problem) -> Draws:
    """The draws kept, those of the constant unless fits beside the chains have draws, and of what else was learned."""
    held = state.held
    draws = collect(state, problem, None if held is None else held.shares)._replace(**told_of_theta(problem.likelihood))
    if held is None:
        return draws
    if state.own.told_noise:  # a precision from entries left out is that beside all draws
        theta, uneven = np.asarray(draws.theta) / held.noise_ratio, draws.uneven
        uneven = None if uneven is None else uneven / [held.noise_ratio, 1.0]
        draws = draws._replace(theta=theta, uneven=uneven)
    draws = draws if held.beside.any() else with_constant(draws, held, problem.free, problem.prior)
    return holdout.with_factors(draws, state.own.noise_law)


def _takes_powers(problem: Problem) -> bool:
    """Whether entries may count as any number: normals that labels or limits hide have no such power."""
    normal = problem.likelihood.normal
    return problem.likelihood.levels is None and (normal is None or augmentation_in_use(normal, problem) is None)


GIBBS = Method(
    name="gibbs",
    needs=("mean_field",),
    options=Gibbs,
    init=partial(init, "mean_field"),
    step=step,
    finish=finish,
    source="Klami, Polya-Gamma augmentations for factor models, sec. 2.1; Albert and Chib (1993)",
    capabilities=Capabilities(
        sampler=True,
        learns_prior=True,
        side_information=True,
        local=True,
        censors=True,
        censors_spikes=True,
        thresholds=True,
        heteroscedastic=("noise", "dispersion"),
        weights=_takes_powers,
        stores=lambda likelihood: likelihood.normal is not None,
        fixes_rows=True,
        workers=True,
        proposes_rows=lambda likelihood: likelihood.normal is None,
    ),
    resume=resume,
    ended=lambda state: None if state is None else state.put(setup=state.setup._replace(by_row=NO_ENTRIES)),
)
PG_GIBBS = replace(
    GIBBS,
    name="pg-gibbs",
    needs=("pg",),
    options=PGGibbs,
    capabilities=GIBBS.capabilities._replace(
        structural_zeros=True,
        heteroscedastic=("dispersion",),
        stores=lambda likelihood: likelihood.extent is None,
        proposes_rows=lambda likelihood: False,
    ),
    init=partial(init, "pg"),
    source="Klami, Polya-Gamma augmentations for factor models, sec. 3-4 and 6",
)
