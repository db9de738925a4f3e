"""Samplers with pilots: quick mean-field fits that find where chains start, and that are believed where chains are not.

A chain hardly leaves a bad start, and a model with more columns than the data show mixes badly. Pilots are mean-field
fits of the whole model, or of some of its columns, from the spectra of the data. The best of them is the first chain's
start. What the entries that all left out say then decides how much each pilot and each chain counts (stacking: see
`tensorcep.cp.gibbs.held_out`). Where no chain counts, sampling ends with the burn-in.
"""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.belief import Draws, GammaNoise, Posterior
from tensorcep.core.components import Components, draw_rows
from tensorcep.core.loop import Run, run
from tensorcep.core.packing import pack
from tensorcep.core.settings import Settings
from tensorcep.cp.from_spectra import with_more_components, with_spectral_start
from tensorcep.cp.gibbs.chains import stacked, taken
from tensorcep.cp.gibbs.held_out import Beside, held_places
from tensorcep.cp.gibbs.method import GibbsState, with_weights
from tensorcep.cp.gibbs.streams import Stream, generator
from tensorcep.cp.model import pack_entries
from tensorcep.cp.plan import Pilot, Plan, continued
from tensorcep.cp.predict import latent, observed_logpdf
from tensorcep.cp.problem import Problem
from tensorcep.cp.rows import coords_of
from tensorcep.likelihoods import get_likelihood

# Sweeps of a pilot after the annealed ones; those of its fit to all entries, and the annealed ones of these.
PILOT_SWEEPS, REFIT_SWEEPS, REFIT_ANNEAL = 40, 12, 2
# Times that a pilot looks for more components.
ROUNDS = 4
# From this median on the log of a count tells its latent value to about a half; the prior shape of the noise of logs.
LARGE_COUNTS, NOISE_SHAPE = 5.0, 1e-3


class Flown(NamedTuple):
    """A pilot, the row means that it found without the entries that were left out, and what it says of these."""

    pilot: Pilot
    mean: np.ndarray
    beside: Beside


def run_with_pilots(plan: Plan) -> Run:
    """Run a sampler beside its pilots."""
    place, options = held_places(plan.problem), plan.settings
    flown = [_fly(pilot, plan, place) for pilot in plan.pilots]
    beside = [one.beside for one in flown]
    best = int(np.argmax([one.log_density.mean() for one in beside])) if len(place) else 0
    plan = plan._replace(problem=plan.problem._replace(start=_start(flown[best], plan.problem)))
    burn_in = options.get_params()["burn_in"]
    begun = run(plan.method, plan.problem, options, **{**plan.how, "max_iter": max(1, burn_in)})
    if begun.stopped:
        return begun
    if begun.state.held is None or not burn_in:
        return continued(plan, begun)
    state = with_weights(begun.state, options, beside)
    begun = begun._replace(state=state)
    return _joined(continued(plan, begun) if len(state.chains.factors) else begun, flown, plan)


def _fly(pilot: Pilot, plan: Plan, place: np.ndarray) -> Flown:
    """Run a pilot without the entries at these places."""
    entries, shape = plan.problem.entries, pilot.problem.shape
    kept = np.delete(np.arange(len(entries.permutation)), place)
    packed = pack_entries(coords_of(entries, kept), entries.y.ravel()[kept], shape)
    pilot_of_kept = pilot._replace(problem=pilot.problem._replace(entries=packed))
    belief = grown(pilot_of_kept, plan, _rounds(pilot, plan)).components()
    return Flown(pilot, belief.mean[0], _beside(belief, plan.problem, place))


def _rounds(pilot: Pilot, plan: Plan) -> int:
    """A pilot of all columns has the pairs of modes to find, too; beside one of the CP component it does not grow."""
    return ROUNDS if len(pilot.columns) < plan.problem.rank or len(plan.pilots) == 1 else 0


def grown(pilot: Pilot, plan: Plan, rounds: int = ROUNDS) -> Posterior:
    """What a pilot finds from the spectra of the data, and then of what it leaves over, until that is noise."""
    problem = with_spectral_start(pilot.problem)
    fitted = _run_pilot(pilot, pilot.settings, problem, plan, pilot.settings.get_params()["anneal"] + PILOT_SWEEPS)
    return _with_more(pilot._replace(problem=problem), fitted, plan, rounds)


def start_of(pilot: Pilot, plan: Plan) -> np.ndarray | None:
    """The row means that a pilot finds; None where it leaves the finite numbers, as wild counts can make it."""
    with np.errstate(all="ignore"):
        try:
            means = grown(_of_logs(pilot), plan).components().mean[0]
        except FloatingPointError:
            return None
    return means if np.isfinite(means).all() else None


def _of_logs(pilot: Pilot) -> Pilot:
    """The pilot, of the logs of counts where most are large; other pilots as they are.

    A large count holds its latent value where it is from the first sweep on, and components stay where they started.
    Real values have a noise that begins as large as they are, and falls as components are found.
    """
    problem = pilot.problem
    entries, likelihood = problem.entries, problem.likelihood
    n = len(entries.permutation)
    if likelihood.observes != "counts" or pilot.method.name != "vmp" or np.median(entries.y.ravel()[:n]) < LARGE_COUNTS:
        return pilot
    start = None if likelihood.parameter is None else likelihood.parameter.start
    logs = np.log(entries.y + 0.5) - np.log(start or likelihood.default_theta)
    y = np.where(entries.weight > 0, logs, 0.0)
    noise = GammaNoise(NOISE_SHAPE, NOISE_SHAPE * max(float(y.ravel()[:n].var()), NOISE_SHAPE))
    real = problem._replace(entries=entries._replace(y=y), likelihood=get_likelihood("gaussian"), noise_prior=noise)
    return pilot._replace(problem=real)


def _with_more(pilot: Pilot, fitted: Posterior, plan: Plan, rounds: int) -> Posterior:
    """A fit with the components that it has left over, looked for so many times."""
    again = copy(pilot.settings).set_params(anneal=REFIT_ANNEAL)
    for _ in range(rounds):
        more = with_more_components(pilot.problem, fitted)
        if more is None:
            break
        fitted = _run_pilot(pilot, again, more, plan, REFIT_ANNEAL + PILOT_SWEEPS)
    return fitted


def _run_pilot(pilot: Pilot, settings: Settings, problem: Problem, plan: Plan, max_iter: int) -> Posterior:
    how: dict[str, Any] = {"tol": plan.tol, "n_threads": plan.n_threads, "max_iter": max_iter}
    posterior: Posterior = run(pilot.method, problem, settings, **how).posterior
    return posterior


def _beside(belief: Components, problem: Problem, place: np.ndarray) -> Beside:
    """What a pilot says of the entries that were left out."""
    entries = problem.entries
    rows = coords_of(entries, place) + entries.offsets[:-1]
    mean, spread = latent(belief, rows)
    noise = 1.0 / float(belief.theta.values[0, 0]) if belief.theta is not None else 1.0
    y = entries.y.ravel()[place]
    return Beside(observed_logpdf(problem.likelihood, belief, rows, y), mean, spread, noise)


def _embedded(rows: np.ndarray, pilot: Pilot, problem: Problem) -> np.ndarray:
    """Rows (C, n, Q) in the columns of a pilot as rows (C, n, R) in all columns, of which the others are 0."""
    free = np.ones((len(problem.shape), problem.rank), dtype=bool) if problem.free is None else problem.free
    out = np.zeros((*rows.shape[:2], problem.rank))
    out[:, :, pilot.columns] = rows
    clamped = ~np.repeat(free, problem.shape, axis=0) if rows.shape[1] > len(free) else ~free
    out[:, clamped] = 1.0
    return out


def _start(flown: Flown, problem: Problem) -> np.ndarray:
    """Where the first chain starts: at the pilot's means; at the problem's start in columns that it does not have."""
    means = _embedded(flown.mean[None], flown.pilot, problem)[0]
    own = np.isin(np.arange(problem.rank), flown.pilot.columns)
    return np.where(own, means, np.asarray(problem.start))


def _joined(sampled: Run, flown: list[Flown], plan: Plan) -> Run:
    """The draws of the chains and of the pilots, as many of each as it counts."""
    state: GibbsState = sampled.state
    held: Any = state.held
    settings = plan.settings.get_params()
    n = -(-(plan.max_iter - settings["burn_in"]) // settings["thin"])
    if not held.beside.any():
        return sampled
    if not len(held.alive):
        n *= settings["n_chains"]  # no chain has draws
    parts, rows = [], []
    if len(held.alive):
        own, shares_of_chains = sampled.posterior, held.weights[held.alive] / held.heaviest
        rows = list(own.rows.reshape(-1, *own.rows.shape[2:]))
        if state.chains.kept:  # the same, of which one copy is enough
            rows = [state.chains.kept[d][c] for d, c in taken(state.chains, shares_of_chains)]
        unknown = None if own.unknown is None else own.unknown.copy()
        parts = [own._replace(rows=np.empty((1, 0, *rows[0].shape)), unknown=unknown)]
        del own
    sampled = sampled._replace(posterior=None)
    for i in np.flatnonzero(held.beside):
        size = max(1, round(n * held.beside[i] / held.heaviest))
        parts.append(_draws_of(flown[i], size, plan, int(i), held.noise_ratio))
        rows += list(parts[-1].rows[0])
    return sampled._replace(posterior=_in_one_chain(parts, rows))


def _draws_of(flown: Flown, n: int, plan: Plan, number: int, noise_ratio: float) -> Draws:
    """Draws from a pilot's posterior given all entries."""
    pilot, whole = flown.pilot, plan.problem
    problem = pilot.problem._replace(start=flown.mean)
    settings = copy(pilot.settings).set_params(anneal=REFIT_ANNEAL)
    posterior = _run_pilot(pilot, settings, problem, plan, REFIT_SWEEPS)
    posterior = _with_more(pilot, posterior, plan, _rounds(pilot, plan))
    rng = generator(whole.seed, Stream.PILOT, number)
    modes: Any = posterior.mode_prior
    unseen = Components(modes.mean[None], pack(np.linalg.inv(modes.precision))[None])
    belief = posterior.components(unseen)
    rows = draw_rows(belief.mean[0], belief.cov[0], n, rng)  # type: ignore[index]
    theta: Any = None if belief.theta is None else belief.theta.draws(np.zeros(n, dtype=int), rng)[None]
    mode = None if belief.theta is None else belief.theta.mode
    if belief.theta is not None and posterior.noise is not None:
        theta = theta / noise_ratio
    n_rows = len(posterior.eta)
    dtype = plan.settings.get_params()["dtype"]
    parts = (rows[:, :n_rows], rows[:, n_rows:])
    known, unknown = (_embedded(part, pilot, whole)[None].astype(dtype, copy=False) for part in parts)
    return Draws(whole.shape, whole.rank, known, theta, mode, posterior.seen, unknown)


def _in_one_chain(parts: list[Draws], rows: list[np.ndarray]) -> Draws:
    """All draws, one chain after the other, in one; `rows` are theirs."""
    fields: dict[str, Any] = {}
    for name in ("theta", "unknown"):
        values = [getattr(part, name) for part in parts]
        if values[0] is not None:
            fields[name] = np.concatenate([value.reshape(-1, *value.shape[2:]) for value in values])[None]
    unknown = fields["unknown"][0] if "unknown" in fields else ()
    fields["rows"], fields["unknown"] = stacked(rows, unknown, (1, len(rows)))
    return parts[0]._replace(**fields)
