"""The law of new observations about their latent values, as the entries tell it that the burn-in leaves out.

Residuals are often more peaked than a normal law of their variance, with longer tails: of outliers, of noise that
differs from entry to entry, and of latent values that are known better in some cells than in others, or not at all (a
product of factors that are not known is peaked itself). Draws of the rows take the noise for normal all the same. What
is predicted is then a mixture: a factor multiplies the precision of the noise, whose law is

* Gamma, which makes Student noise, from 2.2 degrees of freedom on, or
* that of one over a Gamma variable, which makes variance-gamma noise: Laplace's is one, and that of shape 1/2 is the
  law of the product of two normal variables (Madan and Seneta 1990, Journal of Business 63, p. 511),

of several shapes, and of several sizes about the variance that the residuals have. All of these are equally likely
beforehand, and together as likely as normal noise. Where the entries left out make them likelier than that, the mean of
all counts, normal noise among them, each as likely as those entries make it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import expit, gammainc, gammaincc, logsumexp

from tensorcep.cp.calibration.holdout import LEAST_SHARE, Beside, HeldOut
from tensorcep.cp.posterior.belief import Draws
from tensorcep.kernels.special import LOG_SQRT_2PI
from tensorcep.likelihoods.parameters.scale_mixture import GOLDEN, same_size, tau_seen_through

# Logs of factors, evenly spaced, of which this one is 0.
ONE, STEP = 54, 1.0 / 6.0
LOG_FACTORS = STEP * np.arange(-ONE, 43)
# Shapes of the laws, from the longest tails and the sharpest peak to noise that is all but normal; and logs of sizes.
GAMMA_SHAPES, INVERSE_SHAPES = 1.1 * 2.0 ** (0.5 * np.arange(13)), 2.0 ** (0.5 * np.arange(-4, 11))
LOG_SIZES = np.linspace(-1.0, 1.0, 9)
# Entries that tell, at most; of how many the densities are in memory at a time.
TELLING, PIECE = 1000, 4096
# Steps of EM of Student noise, at the end of the burn-in.
LAST_STEPS = 200


class NoiseLaw(NamedTuple):
    """How new observations differ from normal ones.

    Attributes
    ----------
    mass : (97,) float64
        How likely each of `LOG_FACTORS` is, with all that are nearer to it than to others.
    gain : (n,) float64
        What it adds to the log predictive density of each entry left out.
    """

    mass: np.ndarray
    gain: np.ndarray


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
    level = np.mod((np.arange(form[0] * form[1]) + 0.5) * GOLDEN, 1.0)
    ends = np.append(LOG_FACTORS - 0.5 * STEP, LOG_FACTORS[-1] + 0.5 * STEP)
    factors = np.exp(np.interp(level, np.append(0.0, np.cumsum(law.mass)), ends))
    return draws._replace(factors=factors.reshape(form))


def ratio_of_student(held: HeldOut, shapes: np.ndarray, beside: Sequence[Beside]) -> float:
    """The variance of Student noise given the draws of all chains, of these shapes (C,), beside that given one."""
    weights = np.append(held.weights, held.beside)  # type: ignore[arg-type]
    alphas = np.append(shapes, [one.alpha for one in beside])
    noises = np.append(held.noise, [one.noise for one in beside])
    common = float(np.exp(weights @ np.log(alphas)))
    own = [1.0 / same_size(1.0 / n, a, common) for n, a in zip(noises.tolist(), alphas.tolist(), strict=True)]
    noise, some = float(weights @ np.array(own)), slice(None, None, -(-len(held.y) // TELLING))
    squares, spread = (held.y - held.mean_of_all)[some] ** 2, np.maximum(held.spread_of_all[some], 0.0)
    return 1.0 / (noise * tau_seen_through(squares, spread, 1.0 / noise, common, LAST_STEPS))
