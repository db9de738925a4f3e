"""How far a fit is to be believed, found at its end, when the chains are still apart; and what to say of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import softmax

from tensorcep.core.diagnostics import bulk_size, r_hat
from tensorcep.core.loop import LeftOut, Run
from tensorcep.cp.calibration import null_model
from tensorcep.cp.calibration.holdout import gain_of_constant
from tensorcep.cp.fit.run import scored_few
from tensorcep.cp.fit.validation import falls_short
from tensorcep.cp.fitted.diagnostics import Diagnostics
from tensorcep.cp.fitted.model import FittedRows
from tensorcep.cp.fitted.predict import latent, observed_logpdf
from tensorcep.cp.model import subsets
from tensorcep.cp.model.entries import rows_of
from tensorcep.cp.model.latent import latent_of_points
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.plan.plan import Plan
from tensorcep.cp.posterior import Components, Draws, Mixture, PointEstimate
from tensorcep.cp.targets.base import Target
from tensorcep.likelihoods.gaussian import mixture_quantile

# Variance of latent values that a Gaussian posterior of few entries lacks, by what it says of entries left out.
#
# Of few entries a fit that has found little takes what it has not found for noise, or is sure of what it found by
# chance. Entries left out do not tell the two apart: they have the noise, too, which holds it already. They tell what
# the fit counts beside a constant, as they do for chains (`tensorcep.cp.calibration.null_model`); to the other share
# latent values lie about the constant as far as the observations let them. Of labels, that is anywhere: every chance
# between 0 and 1 is then as likely as another, and latent values have the law of a label's noise. Counts whose
# dispersion is not learned vary more than one of one mean would, by what latent values vary; before, every share of
# these beside the noise of a count is as likely as another, of which the relative variance is at most 1, as it is of
# labels. Elsewhere latent values are as far off as the fit and its means are. Means stay where they are, and so do
# predictions of observations: the doubt is of latent values alone.
#
# Source: Christiansen and Morris (1997), Hierarchical Poisson regression modeling, for the prior of counts.

# Relative variances of rates: the least beside that of a count, and the most.
LEAST_SPREAD, MOST_SPREAD = 0.01, 50.0


def doubt_of(
    told: LeftOut, scores: tuple[np.ndarray, ...], law: null_model.ConstantLaw, problem: Problem, noise: float | None
) -> float:
    """The variance to add to latent values, by what the fit, or one like it, says of entries that it was not given."""
    # `scores` are by the fit and by the constant `law`; Gaussian `noise` of this standard deviation holds the doubt
    off = told.mean - subsets.known_at(problem, told.place) - law.f
    before = null_model.CONSTANT_OF_LABELS if problem.likelihood.observes == "labels" else null_model.CONSTANT
    share = null_model.mean_share(null_model.evidence_of_shares(*scores), constant=before)
    if problem.noise_prior is not None and not problem.likelihood.censored:
        # scores gain by another spread, too; the slope, by the signs of what are next to constants
        share = min(share, null_model.slope_of(problem.entries.y.ravel()[told.place] - law.f, off))
    square, own = float(np.mean(off**2)), float(np.mean(told.variance))
    beside, most = _about_constant(law, problem, square + own), np.inf
    if noise is not None:
        beside, most = null_model.MOST_DOUBT / law.theta, null_model.MOST_DOUBT * noise**2
    return float(np.clip((1.0 - share) * (beside + square - own), 0.0, most))


def _about_constant(law: null_model.ConstantLaw, problem: Problem, otherwise: float) -> float:
    """The mean square of latent values about the constant where nothing is known of them but what values they have."""
    likelihood = problem.likelihood
    if likelihood.observes == "labels":
        return np.pi**2 / 3.0 if likelihood.f_is_log_odds else 1.0
    if likelihood.parameter is not None or not likelihood.is_of_rates:
        return otherwise
    place = subsets.places_telling(problem)
    y, f = problem.entries.y.ravel()[place], np.full(len(place), law.f) + subsets.known_at(problem, place)
    theta = np.full_like(f, law.theta)
    mean, variance = likelihood.predict(np.full(1, law.f), np.zeros(1), theta[:1])
    noise = min(1.0, float(variance[0] / mean[0] ** 2))
    spread = np.geomspace(LEAST_SPREAD * noise, MOST_SPREAD, 64)  # relative variances of rates
    share, variances = spread / (spread + noise), np.log1p(spread)
    evidence = [likelihood.logpdf(y, f - 0.5 * v, np.full_like(f, v), theta).sum() for v in variances]
    weight = softmax(evidence + np.log(share * (1.0 - share)))  # shares are uniform, the steps those of log spread
    return float(weight @ (variances + 0.25 * variances**2))


# Cells at which a fit is looked at, and draws of each chain of which observations are predicted there.
CELLS, PREDICTED_DRAWS = 1000, 25
# The least draws for R-hat.
LEAST_DRAWS = 4
# The log score of an entry is at least this, so that a fit to which one is impossible is told from one without scores.
LEAST_SCORE = -1e6
# Modes that count as independent leave out how they vary together, and Gaussians that products of uncertain numbers are
# skewed. Beside what they have, both are of the order of the squared relative uncertainty, the unknown share of latent
# values. Below this, 90 % latent intervals of 9 of 9 simulated fits (200 to 2,400 entries for 90 numbers, real values
# and labels, cep, vmp and pg-vb) held 0.85 to 0.95; above it 15 of 19 held less, down to 0.33.
NARROW = 0.05


def with_calibrated(
    target: Target, plan: Plan, result: Run, fitted: FittedRows, found: Diagnostics
) -> tuple[FittedRows, Diagnostics]:
    """The rows, and the diagnostics; of intervals known to be too narrow as entries left out tell."""
    if not found.narrow or plan.engine.method.capabilities.sampler or result.stopped or result.left_out is not None:
        return fitted, found  # entries that a trial left out of more widen fits that are right (counts: 98 % in 90 %)
    told = scored_few(plan)
    if told is None:
        return fitted, found
    with np.errstate(all="ignore"):
        scores, law = _beside_constant(target, plan, told.place, told.score, told)
        doubt = doubt_of(told, scores, law, plan.problem, found.noise_sd)
    if not np.isfinite(doubt):
        return fitted, found
    belief = fitted.belief
    own = latent(belief, rows_of(plan.problem.entries, _spread_places(plan.problem)))[1].mean()
    wide = belief._replace(doubt=np.full(belief.size, doubt))
    found_by = result.posterior
    members = [one._replace(doubt=doubt) for one in getattr(found_by, "members", (found_by,))]
    posterior = Mixture(tuple(members)) if isinstance(found_by, Mixture) else members[0]
    calibrated = fitted._replace(posterior=posterior, belief=wide)
    return calibrated, found._replace(widened=float((own + doubt) / own), n_widened_by=len(told.place))


def diagnose(target: Target, plan: Plan, result: Run, belief: Components) -> Diagnostics:
    """What the end of a run tells of it."""
    state, entries = result.state, plan.problem.entries
    held = getattr(state, "held", None)
    held = held if held is not None and held.weights is not None else None
    law = getattr(state, "noise_law", None)
    held = held if held is None or law is None else held._replace(score=held.score + law.gain)
    place = _spread_places(plan.problem) if held is None else held.place[:CELLS]
    rows = rows_of(entries, place)
    with np.errstate(all="ignore"):
        told = result.left_out if held is None else held
        of_scores = place if told is None else told.place
        tails = held is not None and state.own.told_noise and plan.problem.uneven is None
        found = {**_scores(target, plan, of_scores, told, rows, belief, tails), **_noise(result)}
        if plan.engine.method.capabilities.sampler:
            found |= _chains(state, plan.problem, place, held)
        if belief.cov is not None or (held is not None and held.beside.sum() >= 0.5):
            mean, variance = latent(belief, rows)
            unknown = float(variance.mean() / (variance.mean() + mean.var()))
            found |= {"unknown": unknown, "narrow": unknown > NARROW}
    weights: dict[str, float] = {}
    if held is not None:  # what each quick fit and each chain counts
        names = [f"pilot: {one.name}" for one in plan.policy.quick_fits]
        weights |= dict(zip(names, held.beside.tolist(), strict=False))
        weights |= {f"chain {c}": w for c, w in enumerate(held.weights.tolist())}
    if held is not None and held.share < 1.0:
        weights = {name: held.share * w for name, w in weights.items()} | {"constant": 1.0 - held.share}
    # plain values, and None where one is not finite
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in found.items()}
    plain = {name: None if isinstance(v, float) and not np.isfinite(v) else v for name, v in plain.items()}
    return Diagnostics(plan.engine.method.name, result.n_iter, result.converged, weights, **plain)


def _spread_places(problem: Problem) -> np.ndarray:
    """The places of some training entries that tell."""
    n = subsets.number_telling(problem)
    some = np.unique(np.linspace(0, n - 1, min(n, CELLS)).astype(int))
    return some if problem.power is None else subsets.places_telling(problem)[some]


def _scores(
    target: Target, plan: Plan, place: np.ndarray, told: Any, rows: np.ndarray, belief: Components, tails: bool
) -> dict[str, Any]:
    """Mean log scores of entries, those `told` if any, by the fit and a constant; the error of their difference."""
    problem, likelihood = plan.problem, plan.problem.likelihood
    y, extent = problem.entries.y.ravel()[place], subsets.extents_at(problem, place)
    mine = told.score if told is not None else observed_logpdf(likelihood, belief, rows, y, extent=extent)
    (mine, constant), law = _beside_constant(target, plan, place, mine, told)
    if tails:  # entries left out say of noise that it is not normal
        constant = constant + gain_of_constant(told, law.f)
    error = np.std(mine - constant) / np.sqrt(len(place))
    n_held_out = 0 if told is None else len(place)
    found = {"score": mine.mean(), "constant_score": constant.mean(), "gain_error": error, "n_held_out": n_held_out}
    real = likelihood.learns_precision and not likelihood.censored
    if told is not None and real and problem.uneven is None:  # the share of a constant's squared error that means take
        by_one = isinstance(told, LeftOut)
        mean = told.mean if by_one else told.share * told.mean_of_all + (1.0 - told.share) * told.constant
        of_constant = (y - law.f) ** 2
        gain = (of_constant - (y - mean) ** 2) / of_constant.mean()
        error = np.std(gain - gain.mean() * of_constant / of_constant.mean()) / np.sqrt(len(y))  # of a ratio
        found |= {"explained": gain.mean(), "explained_error": error}
    if isinstance(told, LeftOut) and falls_short(told.score, told.quick):
        found["quick_score"] = told.quick.mean()
    return found


def _beside_constant(
    target: Target, plan: Plan, place: np.ndarray, score: np.ndarray, told: Any
) -> tuple[tuple[np.ndarray, np.ndarray], null_model.ConstantLaw]:
    """Log scores of the entries at these places by the fit and by a constant; and that, of others if some `told`."""
    problem, likelihood = plan.problem, plan.problem.likelihood
    others, rest = subsets.telling_values(problem, None if told is None else place)
    centre = target.intercept(subsets.plain_values(others, likelihood, rest), likelihood)
    law = null_model.constant_law(likelihood, others, centre, rest)
    score = np.fmax(score, LEAST_SCORE)  # of numbers alone, so that NaN counts as impossible
    return (score, law.logpdf(likelihood, problem.entries.y.ravel()[place], subsets.extents_at(problem, place))), law


def _chains(state: Any, problem: Problem, place: np.ndarray, held: Any) -> dict[str, Any]:
    """R-hat, effective sizes and disagreement of the chains at some cells."""
    kept = state.own.kept.rows
    n_chains = len(state.rows) if kept else 0
    if not n_chains or len(kept) < LEAST_DRAWS:
        return {"n_chains": n_chains}
    rows = rows_of(state.own.setup.small.entries, place)  # in all modes of the run
    draws = np.stack([latent_of_points(factors, rows) for factors in kept], axis=1)
    found, sizes = r_hat(draws), bulk_size(draws)
    weights = np.ones(n_chains) if held is None else held.weights[held.alive]
    likelihood, theta = state.predictive_at(place, problem)
    # the share of the variance of new observations that lies between the halves of the chains
    half, latents = draws.shape[1] // 2, draws + subsets.known_at(problem, place)
    halves = np.concatenate([latents[:, :half], latents[:, -half:]])[:, :: -(-half // PREDICTED_DRAWS)]
    each = np.broadcast_to(np.concatenate([theta, theta])[:, None], halves.shape)
    mean, variance = likelihood.predict(halves.ravel(), np.zeros(halves.size), each.ravel())
    mean, variance = mean.reshape(halves.shape), variance.reshape(halves.shape)
    weights = weights / weights.sum()
    share, of_halves = 0.5 * np.concatenate([weights, weights]), mean.mean(axis=1)
    between = share @ (of_halves - share @ of_halves) ** 2
    within = share @ (mean.var(axis=1) + variance.mean(axis=1))
    told = {"r_hat": found.max(), "above_1_01": np.mean(found > 1.01), "above_1_1": np.mean(found > 1.1)}
    told |= {"effective_size": np.median(sizes), "least_effective_size": sizes.min()}
    return {"n_chains": n_chains, **told, "disagreement": float(between.mean() / (between + within).mean())}


def _noise(result: Run) -> dict[str, Any]:
    """The standard deviation of Gaussian noise, how well it is known, and from where."""
    posterior, state = result.posterior, result.state
    if isinstance(posterior, Draws):
        if posterior.theta is None or not state.learns_precision:
            return {}
        sd = posterior.theta.ravel() ** -0.5
        source = "held-out" if state.own.told_noise else "sampled"
        found = {"noise_sd": sd.mean(), "noise_sd_error": sd.std(), "noise_source": source}
        if posterior.factors is None:
            return found
        precision = (posterior.theta[..., 0] * posterior.factors).reshape(-1, 1)
        zero = np.zeros_like(precision)
        return found | {"noise_half": float(mixture_quantile(0.75, zero, zero, precision)[0])}
    if isinstance(posterior, PointEstimate):
        return {} if posterior.theta is None else {"noise_sd": posterior.theta**-0.5, "noise_source": "point"}
    members = posterior.members if isinstance(posterior, Mixture) else (posterior,)
    noises = [member.noise for member in members if member.noise is not None]
    if not noises:
        return {}
    # to first order; 1 / tau has a relative standard deviation of a^-1/2
    sd, own = np.array([(noise.variance**0.5, 0.5 * noise.a**-0.5) for noise in noises]).T
    error = np.sqrt(np.mean((sd * own) ** 2) + sd.var())
    return {"noise_sd": sd.mean(), "noise_sd_error": error, "noise_source": "approximate"}
