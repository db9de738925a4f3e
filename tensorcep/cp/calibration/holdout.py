"""Entries left out by chains: which, what chains say of them, and how much each chain then counts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit, gammainc, gammaincc, logsumexp

from tensorcep.core.diagnostics import THRESHOLDS
from tensorcep.core.random import RandomStream, generator
from tensorcep.cp.model.entries import OfEach, rows_of
from tensorcep.cp.model.latent import latent_of_draws
from tensorcep.cp.model.memmap import pieces
from tensorcep.cp.model.parameters import Laws, Pair, Parameters, mix_densities
from tensorcep.cp.model.problem import Problem, weights_of_entries
from tensorcep.cp.model.subsets import places_telling, usual_weight
from tensorcep.cp.posterior import Draws
from tensorcep.kernels.special import LOG_SQRT_2PI
from tensorcep.likelihoods.base import Likelihood, log_density, tilted_moments
from tensorcep.likelihoods.parameters import scale_mixture

# Which entries are left out: in the burn-in of chains, by quick fits, and where columns are chosen.

# More entries left out say no more about a handful of chains.
MOST_HELD = 50_000
ROUNDING = 1e-6  # of a share of a number that should be whole
# From so many entries on those that are left out are drawn by themselves, and not the first of all in any order.
MANY = 500_000


def held_out_places(problem: Problem) -> np.ndarray:
    """The places of the entries to leave out; none when there are too few entries."""
    # of labels the same share of either class, as large as the rarer one asks for; where entries have weights, those
    # that tell, the more often the more they weigh: means over them are then weighted ones
    n, rng = len(problem.entries.permutation), generator(problem.seed, RandomStream.HELD_OUT)
    y, of_labels = problem.entries.y.ravel()[:n], problem.likelihood.observes == "labels"
    weight = weights_of_entries(problem)
    if n >= MANY and weight is None:
        # each class of labels by itself, in memory of a piece
        n_above = sum(int(np.count_nonzero(y[at] > 0.0)) for at in pieces(n)) if of_labels else 0
        counts = [count for count in (n_above, n - n_above) if count]
        ranks = [np.sort(rng.choice(m, size, replace=False)) for m, size in zip(counts, _sizes(counts), strict=True)]
        if len(counts) == 1:
            return ranks[0]
        return np.concatenate([_places_of(ranks[0], y, True), _places_of(ranks[1], y, False)])
    order = rng.permutation(places_telling(problem))
    if weight is not None:
        order = order[rng.random(len(order)) * usual_weight(weight) <= weight[order]]
    above = y[order] > 0.0 if of_labels else np.ones(len(order), dtype=bool)
    parts = [part for part in (order[above], order[~above]) if len(part)]
    sizes = _sizes([len(part) for part in parts])
    held = np.concatenate([part[:size] for part, size in zip(parts, sizes, strict=True)] or [order])
    return held if len(held) >= THRESHOLDS.fewest_of_all else held[:0].copy()


def _sizes(counts: list[int]) -> list[int]:
    """How many entries of each part to leave out, of parts of so many."""
    # without those of few entries these are overfitted, and nothing says so
    bar = THRESHOLDS
    share = bar.share_of(min(counts, default=0))
    share = max(share, min(bar.fewest_of_few / max(1, sum(counts)), bar.share_of_few))
    share = min(share, MOST_HELD / max(1, sum(counts)))
    return [int(share * count + ROUNDING) for count in counts]


def _places_of(ranks: np.ndarray, y: np.ndarray, above: bool) -> np.ndarray:
    """The places of those values, counted by ascending ranks, that are above 0, or that are not."""
    found, seen = [], 0
    for at in pieces(len(y)):
        places = np.flatnonzero((y[at] > 0.0) == above)
        first, last = np.searchsorted(ranks, [seen, seen + len(places)])
        found.append(at.start + places[ranks[first:last] - seen])
        seen += len(places)
    return np.concatenate(found)


# Entries that chains leave out in the burn-in: what they say of the noise, and how far each chain is to be believed.
#
# For models with about as many parameters as entries the conditional of the noise precision given the rows is no guide:
# the rows can follow every entry, the residuals shrink, the precision grows, and a chain ends where it interpolates. In
# the burn-in all chains therefore leave some entries out, and the noise is what their residuals say. With f a draw of
# such an entry's latent value and m its mean over the chain, E[(y - f)^2] = noise + 2 var and E[(y - m)^2] = noise +
# var, hence noise = 2 E[(y - m)^2] - E[(y - f)^2]. Entries count by the information that they have on it, 1 / (noise +
# var)^2: a few of rows that hardly anything is known of would otherwise make the noise large, and a chain in large
# noise never gets to know them. After the burn-in these entries take part, and the noise keeps its law.
#
# Chains do not mix: a factorisation has many modes, some of them much worse than others. At the end of the burn-in
# every chain counts as much as makes the mixture of all of them predict the entries left out best (stacking: Yao,
# Vehtari and Gelman 2022, "Stacking for non-mixing Bayesian computations"), and chains that count for nothing end
# there.
#
# The draws of several chains together spread more than those of one. Predictions, which are means over all of them,
# therefore have a smaller noise: the squared error of the mean over the chains less that spread.

# Running means, of the latent values and of the noise, are over about this many sweeps.
WINDOW = 20
# The two expectations are estimates; their difference counts as at least this fraction of the second.
LEAST_SHARE = 0.25
# A chain ends after these shares of the burn-in if it then predicts less than such a share of what the best one does;
# after the first one only with so many entries left out, of which each sweep is long and the best one is soon known.
TRIALS, LEAST_TO_TRY_EARLY = ((1.0 / 9.0, 0.1), (1.0 / 3.0, 0.5)), 2000
# Logs of what the noise variance of a fit beside chains may be multiplied by where values are hidden by a limit.
LOG_RATIOS = (-2.0, 2.0)
# Rows that can follow half of their entries would take the others for outliers: Student noise, its precision and shape,
# is told by entries that the burn-in leaves out: by so many at most, every so many sweeps.
TELLING, EVERY = 1000, 4
# The steps that find the weights, at most; the log score within which they find the best; and the least weight with
# which a chain goes on.
STACKING_STEPS, STACKING_TOL, LEAST_WEIGHT = 500, 1e-3, 0.02


class HeldOut(NamedTuple):
    """Entries that are left out, of C chains and B fits beside them."""

    place: np.ndarray  # (n,) int64, their places in the lanes of `Entries`, counted through all blocks
    rows: np.ndarray  # (n, K) int64, packed
    y: np.ndarray  # (n,) float64
    mean: np.ndarray  # (C, n), running means of their latent values in each chain
    spread: np.ndarray  # (C, n), running variances of these
    noise: np.ndarray  # (C,), present estimates of the noise variance, given one chain
    factor: np.ndarray  # (C, n), running means of what multiplies the entries' precisions, where noise differs; else 1
    noise_ratio: float  # the noise variance given all draws, beside that given one chain
    log_density: np.ndarray  # (C, n), log of the sum, over the second half of the burn-in, of the density of the value
    weights: np.ndarray | None  # (C,), what each chain counts; None until the end of the burn-in
    beside: np.ndarray  # (B,), what each of the fits beside the chains counts
    score: np.ndarray  # (n,), log predictive density of the values, by all together; nan before these are weighed
    mean_of_all: np.ndarray  # (n,), mean of their latent values, so too
    spread_of_all: np.ndarray  # (n,), variance of these
    share: float = 1.0  # what all together count beside the constant
    constant: float = 0.0  # its latent value
    constant_theta: Any = 1.0  # its parameter of the likelihood; of ordered levels (m,), its thresholds
    constant_shape: float = scale_mixture.EVEN  # where noise differs, the shape of its factors' law
    doubt: float = 0.0  # variance of latent values beside the constant, held by its noise
    known: np.ndarray = np.zeros(1)  # (n,), what is known of their latent values beside the rows

    @property
    def heaviest(self) -> float:
        """The largest weight, that of anything beside the chains included."""
        return 1.0 if self.weights is None else float(max(self.weights.max(), self.beside.max(initial=0.0)))

    @property
    def shares(self) -> np.ndarray | None:
        """What each chain that goes on counts beside the heaviest; None before they are weighed."""
        return None if self.weights is None else self.weights[self.alive] / self.heaviest

    @property
    def alive(self) -> np.ndarray:
        """The chains that go on."""
        return np.arange(len(self.mean)) if self.weights is None else np.flatnonzero(self.weights > 0.0)


def noise_at(parameters: Parameters, draws: Sequence[Laws], place: np.ndarray) -> tuple[np.ndarray, OfEach]:
    """What multiplies the precision of entries at these places, (C, n), by the draws of parameters in each chain."""
    # second comes the shape (C, 1) of the law of these factors where each entry has one, else None
    factor, shape = np.ones((len(draws), len(place))), np.full((len(draws), 1), np.inf)
    for c, i in np.ndindex(len(draws), len(parameters)):
        own, of_shape = parameters[i].factors(draws[c][i], place)
        factor[c], shape[c] = factor[c] * own, min(shape[c, 0], of_shape)
    return factor, shape if np.isfinite(shape).all() else None


class Beside(NamedTuple):
    """What another fit, to the same entries, says of those that were left out."""

    log_density: np.ndarray  # (n,), log predictive density of the value
    mean: np.ndarray  # (n,), of its latent value
    spread: np.ndarray  # (n,), variance of that
    noise: float  # its noise variance
    alpha: float = scale_mixture.EVEN  # of noise that differs, the shape of its factors' law


def hold_out(problem: Problem, n_chains: int, noise: float) -> HeldOut | None:
    """Entries to leave out, and the noise to start with; None when there are too few entries."""
    place = held_out_places(problem)
    if not len(place):
        return None
    zeros, y = np.zeros((n_chains, len(place))), problem.entries.y.ravel()[place]
    unknown = zeros[0] + np.nan
    return HeldOut(
        place=place,
        rows=rows_of(problem.entries, place),
        y=y,
        known=problem.entries.known.ravel()[place] if len(problem.entries.known) else zeros[0],
        mean=zeros,
        spread=zeros,
        noise=np.full(n_chains, noise),
        factor=np.ones_like(zeros),
        noise_ratio=1.0,
        log_density=np.full_like(zeros, -np.inf),
        weights=None,
        beside=zeros[0, :0],
        score=unknown,
        mean_of_all=unknown,
        spread_of_all=unknown,
    )


def log_likelihoods(
    likelihood: Likelihood, y: np.ndarray, theta: np.ndarray, f: np.ndarray, shape: np.ndarray | None
) -> np.ndarray:
    """log p(y | f) for latent values f (C, n); of factors of this shape where these multiply the precisions."""
    if shape is not None and not likelihood.censored:
        return scale_mixture.student_logpdf(y - f, theta, shape)
    if shape is not None:
        factors, log_weight = scale_mixture.nodes(shape)
        each = [log_likelihoods(likelihood, y, theta * factor, f, None) for factor in factors]
        return np.asarray(logsumexp(np.stack(each) + log_weight, axis=0))
    return log_density(likelihood.loglik, y.ravel(), f.ravel(), theta.ravel())[0].reshape(f.shape)


class ChainsDrawn(NamedTuple):
    """Chains after a sweep of the burn-in."""

    sweep: int
    rows: np.ndarray  # (C, n_rows, R)
    parameters: Parameters
    draws: tuple[tuple[Any, ...], ...]  # of the parameters, in each of C chains
    even: bool  # whether noise is taken to be the same everywhere


def learn_from_held(
    held: HeldOut, now: ChainsDrawn, given: Pair, problem: Problem, options: Any, told_noise: bool
) -> tuple[HeldOut, tuple[tuple[Any, ...], ...]]:
    """The estimates after a sweep, and draws of parameters where these entries tell them (`told_noise`: the noise)."""
    # `given` is what kernels take as y and theta of the entries left out, (C, n) each
    parameters, f = now.parameters, np.empty_like(held.mean)
    precise, shape = (np.ones(1), None) if now.even else noise_at(parameters, now.draws, held.place)
    latent_of_draws(now.rows, held.rows, f)
    f += held.known
    share = 1.0 / min(now.sweep + 1, WINDOW)
    mean = held.mean + share * (f - held.mean)
    spread = held.spread + share * ((f - held.mean) * (f - mean) - held.spread)
    factor = held.factor + share * (precise - held.factor)
    unknown = held.noise[:, None] + factor * spread + np.finfo(float).tiny
    telling = (unknown.min(axis=1, keepdims=True) / unknown) ** 2
    telling /= telling.sum(axis=1, keepdims=True)
    of_mean = np.sum(telling * precise * (held.y - mean) ** 2, axis=1)
    noise = np.maximum(2.0 * of_mean - np.sum(telling * precise * (held.y - f) ** 2, axis=1), LEAST_SHARE * of_mean)
    density = held.log_density
    if now.sweep >= options.burn_in // 2:
        each = log_likelihoods(problem.likelihood, *given, f, shape)
        pairs = zip(now.draws, each, strict=True)
        density = np.logaddexp(density, [mix_densities(parameters, draws, held.y, own) for draws, own in pairs])
    share = share if shape is None else 0.0  # told in another way: `ScaleMixture.follow`
    noise = held.noise + share * (noise - held.noise)
    held = held._replace(mean=mean, spread=spread, noise=noise, factor=factor, log_density=density)
    if not told_noise or now.even or now.sweep % EVERY:
        return held, now.draws
    noise, every = held.noise.copy(), []
    some = slice(None, None, -(-len(held.y) // TELLING))
    for c, draws in enumerate(now.draws):
        rest = (held.y - held.mean[c])[some] ** 2, np.maximum(held.spread[c][some], 0.0)
        rng, told = generator(problem.seed, RandomStream.EVENNESS, now.sweep, c), float(noise[c])
        both = [one.follow(own, rest, told, rng) for one, own in zip(parameters, draws, strict=True)]
        noise[c] = next((new for _, new in both if not np.isnan(new)), told)
        every.append(tuple(own for own, _ in both))
    return held._replace(noise=noise), tuple(every)


def promising_chains(held: HeldOut, sweep: int, burn_in: int, likelihood: Likelihood) -> np.ndarray:
    """The chains that are not far behind the best, by the variance of the values left out that their means explain."""
    # by what is correlated with the values, of counts with their logs, so that a likelihood of any kind will do, after
    # some sweeps of the burn-in
    trials = TRIALS if len(held.place) >= LEAST_TO_TRY_EARLY else TRIALS[1:]
    least = [gain for share, gain in trials if sweep == int(share * burn_in) > 0]
    if not least or len(held.mean) < 2:
        return np.arange(len(held.mean))
    y = np.log(held.y + 0.5) if likelihood.extent == "exposure" else held.y
    y = y - y.mean()
    means = held.mean - held.mean.mean(axis=1, keepdims=True)
    scale = np.sqrt((means**2).sum(axis=1) * (y @ y))
    gain = np.divide(means @ y, scale, out=np.zeros(len(means)), where=scale > 0.0) ** 2
    return np.flatnonzero(gain >= least[0] * gain.max())


def chains_of(held: HeldOut, which: np.ndarray) -> HeldOut:
    """What is known of these chains."""
    mine = {name: getattr(held, name)[which] for name in ("mean", "spread", "noise", "factor", "log_density")}
    return held._replace(**mine)


def weigh_chains(held: HeldOut, options: Any, beside: Sequence[Beside] = (), before: Any = 0.0) -> HeldOut:
    """What chains and what is beside them (`before` if nothing tells) count after the burn-in; the noise given all."""
    C, others = len(held.mean), np.broadcast_to(before, len(beside))
    of_chains = held.log_density - np.log(options.burn_in - options.burn_in // 2)
    log_density = np.stack([*of_chains, *(one.log_density for one in beside)])
    weights = np.append(np.full(C, (1.0 - others.sum()) / C), others)
    weights = stacking_weights(log_density, weights) if options.weights == "stacked" else weights
    means = np.stack([*held.mean, *(one.mean for one in beside)])
    spreads = np.stack([*held.spread, *(one.spread for one in beside)])
    noise = float(weights @ np.array([*held.noise, *(one.noise for one in beside)]))
    mean, factor = weights @ means, held.factor.mean(axis=0)
    of_mixture = float(np.mean(factor * (held.y - mean) ** 2))
    spread_of_all = weights @ (spreads + (means - mean) ** 2)
    rest = max(of_mixture - float(np.mean(factor * spread_of_all)), LEAST_SHARE * of_mixture)
    score = logsumexp(log_density, axis=0, b=weights[:, None])
    held = held._replace(score=score, mean_of_all=mean, spread_of_all=spread_of_all)
    return held._replace(weights=weights[:C], beside=weights[C:], noise_ratio=rest / noise)


def ratio_beside_limits(y: np.ndarray, likelihood: Likelihood, beside: Sequence[Beside], weights: np.ndarray) -> float:
    """What the noise variances of fits that count so much are multiplied by, to tell the entries left out best."""
    # in place of `HeldOut.noise_ratio`, where a limit hides what residuals would tell
    counted = np.flatnonzero(weights).tolist()  # what counts for nothing may not be finite

    def loss(log_ratio: float) -> float:
        pairs = ((one, np.exp(-log_ratio) / one.noise) for one in (beside[i] for i in counted))
        each = [tilted_moments(likelihood.tilted, y, one.mean, one.spread, theta)[0] for one, theta in pairs]
        return -float(logsumexp(each, axis=0, b=weights[counted, None]).sum())

    return float(np.exp(minimize_scalar(loss, bounds=LOG_RATIOS, method="bounded").x))


def stacking_weights(log_density: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Weights (C,) at which the mixture of C components predicts best, from the log densities (C, n) of n values."""
    # they are `before` unless the best ones gain more than one unit of log density for each weight that was chosen
    # (Akaike), and 0 for components that hardly count; a density that is no number counts as 0
    C, log_density = len(log_density), np.where(np.isnan(log_density), -np.inf, log_density)
    log_density = log_density[:, np.isfinite(log_density.max(axis=0))]
    if not log_density.size:
        return before
    density, weights = np.exp(log_density - log_density.max(axis=0)), np.full(C, 1.0 / C)
    for _ in range(STACKING_STEPS):  # expectation maximisation: the problem is convex
        gain = (density / (weights @ density)).mean(axis=1)
        weights = weights * gain
        if len(density.T) * (gain.max() - 1.0) < STACKING_TOL:  # no weights have a score that is higher by more
            break
    with np.errstate(divide="ignore"):
        gain = np.log(weights @ density).sum() - np.log(before @ density).sum()
    if gain <= C - 1.0:
        return before
    weights = np.where(weights < LEAST_WEIGHT, 0.0, weights)
    return weights / weights.sum()


# The law of new observations about their latent values, as the entries tell it that the burn-in leaves out.
#
# Residuals are often more peaked than a normal law of their variance, with longer tails: of outliers, of noise that
# differs from entry to entry, and of latent values that are known better in some cells than in others, or not at all (a
# product of factors that are not known is peaked itself). Draws of the rows take the noise for normal all the same.
# What is predicted is then a mixture: a factor multiplies the precision of the noise, whose law is
#
# * Gamma, which makes Student noise, from 2.2 degrees of freedom on, or
# * that of one over a Gamma variable, which makes variance-gamma noise: Laplace's is one, and that of shape 1/2 is the
#   law of the product of two normal variables (Madan and Seneta 1990, Journal of Business 63, p. 511),
#
# of several shapes, and of several sizes about the variance that the residuals have. All of these are equally likely
# beforehand, and together as likely as normal noise. Where the entries left out make them likelier than that, the mean
# of all counts, normal noise among them, each as likely as those entries make it.

# Logs of factors, evenly spaced, of which this one is 0.
ONE, STEP = 54, 1.0 / 6.0
LOG_FACTORS = STEP * np.arange(-ONE, 43)
# Shapes of the laws, from the longest tails and the sharpest peak to noise that is all but normal; and logs of sizes.
GAMMA_SHAPES, INVERSE_SHAPES = 1.1 * 2.0 ** (0.5 * np.arange(13)), 2.0 ** (0.5 * np.arange(-4, 11))
LOG_SIZES = np.linspace(-1.0, 1.0, 9)
# Entries of which the densities are in memory at a time; as many tell as of Student noise.
PIECE = 4096
# Steps of EM of Student noise, at the end of the burn-in.
LAST_STEPS = 200


class NoiseLaw(NamedTuple):
    """How new observations differ from normal ones."""

    mass: np.ndarray  # (97,), how likely each of `LOG_FACTORS` is, with all that are nearer to it than to others
    gain: np.ndarray  # (n,), what it adds to the log predictive density of each entry left out


@cache
def laws_of_factors() -> np.ndarray:
    """The masses (M, 97) in each law."""
    edges = 0.5 * (LOG_FACTORS[1:] + LOG_FACTORS[:-1])
    below = [gammainc(a, (a - 1.0) * np.exp(edges - size)) for a in GAMMA_SHAPES for size in LOG_SIZES]
    below += [gammaincc(a, a * np.exp(size - edges)) for a in INVERSE_SHAPES for size in LOG_SIZES]
    return np.diff(np.array(below), axis=1, prepend=0.0, append=1.0)


def noise_law_of(held: HeldOut) -> NoiseLaw | None:
    """The law that the entries left out tell; None where they do not say that noise is not normal."""
    square = float(np.mean((held.y - held.mean_of_all) ** 2))
    noise = max(square - float(np.mean(held.spread_of_all)), LEAST_SHARE * square)
    if not (np.isfinite(noise) and noise > 0.0):
        return None
    each = _log_densities(held, noise, slice(None, None, -(-len(held.y) // TELLING)))
    laws, top = laws_of_factors(), each.max(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):  # a law that makes an entry impossible
        heights = np.log(np.exp(each - top) @ laws.T).sum(axis=0) + float(top.sum())
    evidence = float(logsumexp(heights)) - np.log(len(heights)) - float(each[:, ONE].sum())
    if not evidence > 0.0:
        return None
    mass = expit(evidence) * (np.exp(heights - logsumexp(heights)) @ laws)
    mass[ONE] += expit(-evidence)
    gain = np.empty(len(held.y))
    for a in range(0, len(gain), PIECE):
        each = _log_densities(held, noise, slice(a, a + PIECE))
        gain[a : a + PIECE] = logsumexp(each, axis=1, b=mass) - each[:, ONE]
    return NoiseLaw(mass, gain)


def gain_of_constant(held: HeldOut, f: float) -> np.ndarray:
    """What such a law adds to the log densities (n,) of the entries left out by a constant latent value."""
    zeros = np.zeros_like(held.y)
    law = noise_law_of(held._replace(mean_of_all=zeros + f, spread_of_all=zeros, share=1.0))
    return zeros if law is None else law.gain


def _log_densities(held: HeldOut, noise: float, some: slice) -> np.ndarray:
    """Log densities (n, 97) of some of the entries left out, by all together and the constant, for each factor."""
    y, mean, spread = held.y[some, None], held.mean_of_all[some, None], np.maximum(held.spread_of_all[some, None], 0.0)
    variance = np.exp(-LOG_FACTORS)
    own = _normal(y - mean, spread + noise * variance)
    if held.share >= 1.0:
        return own
    constant = _normal(y - held.constant, variance / float(held.constant_theta))
    with np.errstate(divide="ignore"):
        return np.asarray(np.logaddexp(np.log(held.share) + own, np.log1p(-held.share) + constant))


def _normal(residual: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return np.asarray(-0.5 * (np.log(variance) + residual * residual / variance) - LOG_SQRT_2PI)


def with_factors(draws: Draws, law: NoiseLaw | None) -> Draws:
    """The draws with what multiplies the noise precision of each; all together follow the law evenly."""
    if law is None or draws.theta is None:
        return draws
    form = draws.theta.shape[:2]
    level = np.mod((np.arange(form[0] * form[1]) + 0.5) * scale_mixture.GOLDEN, 1.0)
    ends = np.append(LOG_FACTORS - 0.5 * STEP, LOG_FACTORS[-1] + 0.5 * STEP)
    factors = np.exp(np.interp(level, np.append(0.0, np.cumsum(law.mass)), ends))
    return draws._replace(factors=factors.reshape(form))


def ratio_of_student(held: HeldOut, shapes: np.ndarray, beside: Sequence[Beside]) -> float:
    """The variance of Student noise given the draws of all chains, of these shapes (C,), beside that given one."""
    weights = np.append(held.weights, held.beside)  # type: ignore[arg-type]
    alphas = np.append(shapes, [one.alpha for one in beside])
    noises = np.append(held.noise, [one.noise for one in beside])
    common = float(np.exp(weights @ np.log(alphas)))
    pairs = zip(noises.tolist(), alphas.tolist(), strict=True)
    own = [1.0 / scale_mixture.same_size(1.0 / n, a, common) for n, a in pairs]
    noise, some = float(weights @ np.array(own)), slice(None, None, -(-len(held.y) // TELLING))
    squares, spread = (held.y - held.mean_of_all)[some] ** 2, np.maximum(held.spread_of_all[some], 0.0)
    return 1.0 / (noise * scale_mixture.tau_seen_through(squares, spread, 1.0 / noise, common, LAST_STEPS))
