"""How pilots fly: quick mean-field fits from the spectra of the data, without the entries that a sampler leaves out."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.belief import GammaNoise, Posterior
from tensorcep.core.components import EVEN, Components
from tensorcep.core.loop import run
from tensorcep.core.settings import Settings
from tensorcep.cp.extents import extents_at, known_at
from tensorcep.cp.from_spectra import NOTHING, shown, with_more_components, with_spectral_start
from tensorcep.cp.gibbs.held_out import Beside
from tensorcep.cp.model import Entries
from tensorcep.cp.plan import Pilot, Plan
from tensorcep.cp.predict import latent, observed_logpdf
from tensorcep.cp.problem import Problem
from tensorcep.cp.rows import rows_of
from tensorcep.cp.sampled import entries_in_memory
from tensorcep.likelihoods import get_likelihood

# Sweeps of a pilot after the annealed ones; those of its fit to all entries, and the annealed ones of these.
PILOT_SWEEPS, REFIT_SWEEPS, REFIT_ANNEAL = 40, 12, 2
# Times that a pilot looks for more components.
ROUNDS = 4
# From so many entries on, spectra tell what a pilot leaves over, and chains of all columns take more than ten seconds.
MANY = 50_000
# Columns that explain at least this share of the values by themselves deserve to be columns of their own.
LEAST_SHOWN = 0.05
# From this median on the log of a count tells its latent value to about a half; the prior shape of the noise of logs.
LARGE_COUNTS, NOISE_SHAPE = 5.0, 1e-3


class Flown(NamedTuple):
    """A pilot, its number in the plan, the row means that it found, and what it says of the entries left out."""

    pilot: Pilot
    number: int
    mean: np.ndarray
    beside: Beside


def fly_all(plan: Plan, place: np.ndarray) -> list[Flown]:
    """Every pilot that stays finite, those of fewer columns first, without the entries at these places.

    The one of all columns flies where it is likely to be the best: columns that others do not have say much, or say
    what others leave over.
    """
    packed = entries_in_memory(plan.problem, place)
    flown: list[Flown] = []
    for number in np.argsort([len(pilot.columns) for pilot in plan.pilots], kind="stable").tolist():
        pilot = plan.pilots[number]
        whole = len(pilot.columns) == plan.problem.rank
        if whole and flown and len(packed.permutation) >= MANY and not _lacks_some(flown, plan, packed):
            continue
        rounds = ROUNDS if not whole or len(plan.pilots) == 1 else 0  # what pairs of modes say, it has to find, too
        belief = grown(pilot._replace(problem=pilot.problem._replace(entries=packed)), plan, rounds)
        if belief is not None:
            flown.append(Flown(pilot, number, belief.mean[0], _beside(belief, plan.problem, place)))
    return flown


def best_of(flown: list[Flown]) -> Flown:
    """The pilot that predicts the entries left out best; the first in the plan where there are none."""
    if not len(flown[0].beside.mean):
        return min(flown, key=lambda one: one.number)
    return max(flown, key=lambda one: float(one.beside.log_density.mean()))


def _lacks_some(flown: list[Flown], plan: Plan, packed: Entries) -> bool:
    """Whether the data show main effects or pairs of modes of which the best pilot has no columns."""
    best, free = best_of(flown), plan.problem.free
    if free is None:
        return False
    others = np.delete(free, best.pilot.columns, axis=1)
    others = others[:, ~others.all(axis=0)]
    problem = best.pilot.problem._replace(entries=packed)
    return shown(problem, others) >= LEAST_SHOWN or shown(problem, others, best.mean) > 0.0


def grown(pilot: Pilot, plan: Plan, rounds: int = ROUNDS) -> Components | None:
    """What a pilot finds from the spectra of the data, and then of what it leaves over, until that is noise.

    None where it leaves the finite numbers, as wild counts can make it.
    """

    def fit() -> Posterior:
        problem = with_spectral_start(pilot.problem)
        settings = pilot.settings
        fitted = _run_pilot(pilot, settings, problem, plan, settings.get_params()["anneal"] + PILOT_SWEEPS)
        again = copy(settings).set_params(anneal=REFIT_ANNEAL)
        for _ in range(rounds):
            more = with_more_components(problem, fitted)
            if more is None:
                break
            fitted = _run_pilot(pilot, again, more, plan, REFIT_ANNEAL + PILOT_SWEEPS)
        return fitted

    fitted = _guarded(fit)
    return None if fitted is None else fitted.components()


def of_logs(pilot: Pilot) -> Pilot:
    """The pilot, of the logs of counts where most are large; other pilots as they are.

    A large count holds its latent value where it is from the first sweep on, and components stay where they started.
    Real values have a noise that begins as large as they are, and falls as components are found.
    """
    problem = pilot.problem
    entries, likelihood = problem.entries, problem.likelihood
    n = len(entries.permutation)
    if likelihood.extent != "exposure" or pilot.method.name != "vmp" or np.median(entries.y.ravel()[:n]) < LARGE_COUNTS:
        return pilot
    start = None if likelihood.parameter is None else likelihood.parameter.start
    logs = np.log(entries.y + 0.5) - np.log(start or likelihood.default_theta)
    logs = logs - entries.known if len(entries.known) else logs
    y = np.where(entries.weight > 0, logs, 0.0)
    noise = GammaNoise(NOISE_SHAPE, NOISE_SHAPE * max(float(y.ravel()[:n].var()), NOISE_SHAPE))
    real = problem._replace(
        entries=entries._replace(y=y, known=NOTHING), likelihood=get_likelihood("gaussian"), noise_prior=noise
    )
    return pilot._replace(problem=real)


def refitted(flown: Flown, plan: Plan) -> Posterior | None:
    """A pilot's posterior given all entries; None as for `grown`."""
    pilot = flown.pilot
    problem = pilot.problem._replace(start=flown.mean)
    settings = copy(pilot.settings).set_params(anneal=REFIT_ANNEAL)
    return _guarded(lambda: _run_pilot(pilot, settings, problem, plan, REFIT_SWEEPS))


def _guarded(fit: Callable[[], Posterior]) -> Posterior | None:
    with np.errstate(all="ignore"):
        try:
            fitted = fit()
            finite = bool(np.isfinite(fitted.components().mean).all())
        except (FloatingPointError, np.linalg.LinAlgError):
            return None
    return fitted if finite else None


def _run_pilot(pilot: Pilot, settings: Settings, problem: Problem, plan: Plan, max_iter: int) -> Posterior:
    how: dict[str, Any] = {"tol": plan.tol, "n_threads": plan.how["n_threads"], "max_iter": max_iter}
    posterior: Posterior = run(pilot.method, problem, settings, **how).posterior
    return posterior


def _beside(belief: Components, problem: Problem, place: np.ndarray) -> Beside:
    """What a pilot says of the entries that were left out."""
    entries = problem.entries
    rows = rows_of(entries, place)
    mean, spread = latent(belief, rows)
    mean = mean + known_at(problem, place)
    noise = 1.0
    if belief.theta is not None:
        theta, own = belief.theta.values[0, 0], belief.theta.mode is not None and len(rows)
        noise = float(np.exp(-np.log(belief.theta.of(rows)).mean())) if own else 1.0 / float(theta)
    y = entries.y.ravel()[place]
    alpha = EVEN if belief.theta is None or belief.theta.uneven is None else float(belief.theta.uneven[0, 1])
    density = observed_logpdf(problem.likelihood, belief, rows, y, extent=extents_at(problem, place))
    return Beside(density, mean, spread, noise, alpha)
