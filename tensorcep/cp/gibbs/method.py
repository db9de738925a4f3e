"""Gibbs sampling of the CP model: every chain draws, in every sweep, each part given everything else.

For likelihoods that are not Gaussian in f an auxiliary variable per entry (`tensorcep.likelihoods.augmentation`), then
the rows of one mode after the other, then the precision of the entries, where there is one. A dispersion comes first,
given the latent values, with the auxiliary variables integrated out: drawn given an old variable, whose law depends on
it, it would change the stationary law.

Two samplers differ in the auxiliary variable alone. "gibbs" has normal latent values: real values, censored or not
(Chib 1992), and probit labels (Albert and Chib 1993). "pg-gibbs" has Polya-Gamma variables: labels with the logit link,
negative-binomial counts.

Source: Klami (2014), "Polya-Gamma augmentations for factor models" (PG) sec. 2.1, 3-4 and 6, for order 2; Zhou, Li,
Dunson and Carin (2012) for r. Where we differ: any order; the partially collapsed order above; r ~ Gamma(a + sum of
tables, rate b + sum log(1 + e^f)).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.belief import Draws
from tensorcep.core.executor import Executor
from tensorcep.core.loop import Method, Sweep
from tensorcep.cp.gibbs.chains import Chains, collect, draw_factors, draw_priors, keep, latent_of_chain, start_chains
from tensorcep.cp.gibbs.held_out import HeldOut, hold_out, law_of_noise, update_noise
from tensorcep.cp.gibbs.streams import Stream, generator, stream_key
from tensorcep.cp.model import Entries
from tensorcep.cp.parameters import Learned, learned_parameter
from tensorcep.cp.problem import Problem
from tensorcep.cp.rows import augmentation_in_use, relative_change, train_score
from tensorcep.cp.settings.sampling import Gibbs, PGGibbs
from tensorcep.kernels.special import LOG_SQRT_2PI
from tensorcep.kernels.streams import new_stream
from tensorcep.likelihoods.augmentation import Augmentation
from tensorcep.likelihoods.parameter import Gamma


class GibbsState(NamedTuple):
    """The state of a sampler.

    Attributes
    ----------
    chains : Chains
    f : (C, n_blocks, LANES)
        Latent values of the entries; no blocks where no entry has an auxiliary variable.
    augmentation : Augmentation or None
        None where no entry has an auxiliary variable.
    learned : Learned or None
        What is learned of the likelihood.
    held : HeldOut or None
        Entries for the noise.
    """

    chains: Chains
    f: np.ndarray
    augmentation: Augmentation | None
    learned: Learned | None
    held: HeldOut | None

    @property
    def learns_precision(self) -> bool:
        """Whether the entries have a precision that is learned."""
        return self.learned is not None and self.learned.parameter.is_precision

    def theta(self, c: int, shape: tuple[int, ...]) -> np.ndarray:
        """The likelihood's parameter of every entry in chain c, (n_blocks, LANES)."""
        theta = self.chains.theta[c]
        return np.full(shape, theta[0]) if self.learned is None else self.learned.groups.per_entry(theta)


def init(kind: str, problem: Problem, options: Any, executor: Executor) -> GibbsState:
    """Every chain at its start, a precision at that of the data, any other parameter at its own start.

    `kind` names the augmentation of the likelihood that is used.
    """
    entries, C = problem.entries, options.n_chains
    learned = learned_parameter(problem, options)
    augmentation = augmentation_in_use(getattr(problem.likelihood, kind), problem)
    theta = np.full((C, 1 if learned is None else learned.groups.size), _start(learned, problem))
    chains, held = start_chains(problem, options, theta), None
    if augmentation is not None:
        f = np.stack([latent_of_chain(chains, c, problem, executor) for c in range(C)])
        return GibbsState(chains, f, augmentation, learned, held)
    chains.target[:] = entries.y.ravel()
    if learned is not None and options.noise == "held-out" and options.burn_in > 0:
        held = hold_out(problem, C, _spread(entries))
    return GibbsState(chains, np.zeros((C, 0, 0)), augmentation, learned, held)


def _start(learned: Learned | None, problem: Problem) -> float:
    """Where the parameter of the likelihood starts."""
    if learned is None:
        return problem.likelihood.default_theta
    start = learned.parameter.start
    return 1.0 / _spread(problem.entries) if start is None else start


def _spread(entries: Entries) -> float:
    """Variance of the data; of data that do not vary a thousandth of their mean square, or 1."""
    y = entries.y[entries.weight > 0]
    return max(float(y.var()), 1e-3 * float((y * y).mean())) or 1.0 if y.size else 1.0


def step(state: GibbsState, problem: Problem, options: Any, executor: Executor) -> tuple[GibbsState, Sweep]:
    """One sweep of every chain; the figures are means over the chains, at their present draws."""
    chains, old = draw_priors(state.chains), state.chains.factors.copy()
    state = state._replace(chains=chains)
    left_out = _leave_out(state, problem, options)
    score = np.empty(options.n_chains)
    for c in range(options.n_chains):
        score[c] = _sweep_chain(c, state, problem, left_out, executor)
    if state.held is not None and left_out:
        state = state._replace(held=update_noise(state.held, chains.sweeps, chains.factors, problem.entries.y))
    noise = float(chains.theta.mean()) if state.learns_precision else np.nan
    sweep = Sweep(relative_change(chains.factors, old), noise, 0, 0, float(score.mean()))
    return state._replace(chains=keep(chains, problem, options)), sweep


def _leave_out(state: GibbsState, problem: Problem, options: Any) -> int:
    """Give the entries that this sweep leaves out the weight 0; gives their number."""
    chains, held = state.chains, state.held
    if held is None:
        return 0
    chains.weight[:] = 1.0
    left_out = chains.sweeps < options.burn_in
    if left_out:
        chains.weight[held.place] = 0.0
    chains.target[:] = problem.entries.y.ravel() * chains.weight
    return len(held.place) if left_out else 0


def _sweep_chain(c: int, state: GibbsState, problem: Problem, left_out: int, executor: Executor) -> float:
    """Draw everything of chain c once; gives the mean log likelihood of the entries in the sweep."""
    chains, augmentation = state.chains, state.augmentation
    if state.learned is not None and not state.learns_precision:
        _draw_dispersion(c, state, state.learned, problem, executor)
    if augmentation is not None:
        _draw_sites(c, state, augmentation, problem, executor)
    precision = float(chains.theta[c, 0]) if state.learns_precision else 1.0
    weighted = left_out > 0 or (augmentation is not None and augmentation.weighted)
    squares = max(0.0, draw_factors(chains, c, problem, precision, weighted, executor))
    if state.learned is not None and state.learns_precision:
        _draw_precision(c, state, state.learned, squares, problem, left_out)
    if augmentation is not None:
        state.f[c] = latent_of_chain(chains, c, problem, executor)
        return train_score(problem, state.f[c], state.theta(c, state.f[c].shape))
    tau, n = float(chains.theta[c, 0]), len(problem.entries.permutation) - left_out
    return 0.5 * np.log(tau) - LOG_SQRT_2PI - 0.5 * tau * squares / n if n else np.nan


def _draw_precision(
    c: int, state: GibbsState, learned: Learned, squares: float, problem: Problem, left_out: int
) -> None:
    """Draw the precision of chain c given the squares of what its rows leave of the targets."""
    (a, b), n = learned.prior, len(problem.entries.permutation) - left_out
    law = Gamma(np.array([a + 0.5 * n]), np.array([b + 0.5 * squares]))
    if state.held is not None:
        law = law_of_noise(state.held, learned.prior)
    state.chains.theta[c] = law.draw(generator(problem.seed, Stream.PRECISION, state.chains.sweeps, c))


def _draw_dispersion(c: int, state: GibbsState, learned: Learned, problem: Problem, executor: Executor) -> None:
    """Draw the dispersions of chain c given its latent values, auxiliary variables integrated out."""
    chains, entries, f = state.chains, problem.entries, state.f[c]
    (a, b), groups, counting = learned.prior, learned.groups, learned.parameter.counting
    key, tables = stream_key(problem.seed, c, chains.sweeps, Stream.TABLES), np.empty(f.shape)
    record = (entries.y, entries.weight, state.theta(c, f.shape), key, tables)
    executor.run(counting.draw_tables, 0, len(f), *record, scratch=_stream)  # type: ignore[union-attr]
    softplus = counting.softplus(f)  # type: ignore[union-attr]
    law = Gamma(a + groups.totals(tables), b + groups.totals(entries.weight * softplus))
    chains.theta[c] = law.draw(generator(problem.seed, Stream.DISPERSION, chains.sweeps, c))


def _draw_sites(c: int, state: GibbsState, augmentation: Augmentation, problem: Problem, executor: Executor) -> None:
    """Draw the auxiliary variables of chain c: the weight and the target of every entry."""
    chains, entries, f = state.chains, problem.entries, state.f[c]
    key = stream_key(problem.seed, c, chains.sweeps, Stream.AUGMENTATION)
    sites = chains.weight.reshape(f.shape), chains.target.reshape(f.shape)
    record = (entries.y, entries.weight, f, state.theta(c, f.shape), key, *sites)
    executor.run(augmentation.drawn, 0, len(f), *record, scratch=_stream)


def _stream() -> tuple[np.ndarray]:
    """Room for the stream of one thread."""
    return (new_stream(),)


def finish(state: GibbsState, problem: Problem) -> Draws:
    """The draws kept, and those of what was learned of the likelihood.

    A noise precision from entries left out is that beside the draws of all chains.
    """
    learned, held = state.learned, state.held
    draws = collect(state.chains, problem, None if learned is None else learned.groups.mode, learned is not None)
    if held is None or draws.theta is None:
        return draws
    return draws._replace(theta=draws.theta * (held.noise / held.noise_of_mixture))


GIBBS = Method(
    name="gibbs",
    needs=("normal",),
    options=Gibbs,
    init=partial(init, "normal"),
    step=step,
    finish=finish,
    source="Klami, Polya-Gamma augmentations for factor models, sec. 2.1; Albert and Chib (1993)",
    sampler=True,
    learns_prior=True,
    takes_limits=True,
)
PG_GIBBS = replace(
    GIBBS,
    name="pg-gibbs",
    needs=("pg",),
    options=PGGibbs,
    init=partial(init, "pg"),
    source="Klami, Polya-Gamma augmentations for factor models, sec. 3-4 and 6",
)
