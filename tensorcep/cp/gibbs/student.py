"""Student noise in chains, as the entries tell it that the burn-in leaves out: its precision and shape.

Rows that can follow half of their entries would take the others for outliers. Some of the entries left out are enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorcep.cp.gibbs.held_out import Beside, HeldOut
from tensorcep.cp.gibbs.streams import Stream, generator
from tensorcep.cp.gibbs.uneven import neighbour
from tensorcep.likelihoods.uneven import ALPHAS, same_size, seen_through

if TYPE_CHECKING:
    from tensorcep.cp.gibbs.state import GibbsState

# Entries left out that tell Student noise, at most; how often they do, in sweeps; and the steps of EM each time, at the
# end of the burn-in, and the relative change that ends these.
TELLING, EVERY, EM_STEPS, LAST_STEPS, SETTLED = 1000, 4, 3, 200, 1e-4


def told_by_held(state: GibbsState, held: HeldOut, sweep: int, seed: int) -> HeldOut:
    """Precision and shape of Student noise by the entries left out, every few sweeps: the shape is changed in place."""
    uneven, noise = state.uneven, held.noise.copy()
    if uneven is None or uneven.mode is not None or not state.noise_held or sweep % EVERY:
        return held
    for c in range(len(noise)):
        rng, alpha = generator(seed, Stream.EVENNESS, sweep, c), float(ALPHAS[uneven.place[c]])
        telling = _telling(held, held.mean[c], held.spread[c])
        tau = _better(telling, 1.0 / float(noise[c]), alpha, EM_STEPS)
        new = neighbour(int(uneven.place[c]), rng)
        if 0 <= new < len(ALPHAS):
            there = same_size(tau, alpha, float(ALPHAS[new]))
            gain = seen_through(*telling, there, float(ALPHAS[new]))[0] - seen_through(*telling, tau, alpha)[0]
            if np.log(rng.random()) < gain:
                uneven.place[c], tau = new, there
        noise[c] = 1.0 / tau
    return held._replace(noise=noise)


def _telling(held: HeldOut, mean: np.ndarray, spread: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Squared residuals and variances of means of some of the entries left out."""
    some = slice(None, None, -(-len(held.y) // TELLING))
    return (held.y - mean)[some] ** 2, np.maximum(spread[some], 0.0)


def _better(telling: tuple[np.ndarray, np.ndarray], tau: float, alpha: float, steps: int) -> float:
    """tau after steps of EM."""
    for _ in range(steps):
        old, tau = tau, seen_through(*telling, tau, alpha)[1]
        if abs(tau - old) < SETTLED * tau:
            break
    return tau


def ratio_of_student(held: HeldOut, state: GibbsState, beside: Sequence[Beside]) -> float:
    """The noise variance given the draws of all chains and fits, beside that given one."""
    uneven: Any = state.uneven
    weights = np.append(held.weights, held.beside)  # type: ignore[arg-type]
    alphas = np.append(ALPHAS[uneven.place], [one.alpha for one in beside])
    noises = np.append(held.noise, [one.noise for one in beside])
    common = float(np.exp(weights @ np.log(alphas)))
    own = [1.0 / same_size(1.0 / n, a, common) for n, a in zip(noises.tolist(), alphas.tolist(), strict=True)]
    noise = float(weights @ np.array(own))
    telling = _telling(held, held.mean_of_all, held.spread_of_all)
    return 1.0 / (noise * _better(telling, 1.0 / noise, common, LAST_STEPS))
