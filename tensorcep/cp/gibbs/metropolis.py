"""Gibbs sampling of likelihoods that no variable makes Gaussian, such as counts: proposed rows may be turned down.

A Gaussian in f stands for every entry, and the rows of a mode are drawn as if that were what the entry says. The new
row of each is then taken with the probability that Metropolis and Hastings ask for, in which all but its own entries
cancels: likelihood beside Gaussian at the new row, and at the old one. So draws are of the exact conditional.

The Gaussian is the one that mean field matches to the log likelihood (Khan and Lin 2017), at mean and variance of f
over the later part of the burn-in. After it these move less and less, as adaptive chains must (Roberts and Rosenthal
2007, Journal of Applied Probability 44, p. 458), for entries that were left out still have theirs to find. Nearly all
rows near the posterior mean are taken, whatever the counts, where steps of augmented ones are as short as a variable of
each entry makes them.

Source: proposals of generalised linear mixed models (Gamerman 1997, Statistics and Computing 7, p. 57), whose Gaussians
are expanded at the present row instead, and so twice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.compile import LOGLIK_SIGNATURE, address_of, block_kernel, call_at, inlined
from tensorcep.core.executor import Executor
from tensorcep.core.random import new_stream, start_stream, uniform
from tensorcep.cp.model.problem import Problem
from tensorcep.kernels.slots import LANES
from tensorcep.kernels.special import exp
from tensorcep.likelihoods.base import Likelihood

# What a chain remembers in the burn-in is the last one of so many parts of its past; then it forgets no more.
PARTS = 10.0
# In this share of the burn-in a chain climbs where its rows are turned down, by at least such a part of the way.
CLIMBING, LEAST_PART = 0.5, 0.1
# Numbers of streams from here on are not those of groups of rows that are drawn.
AFTER_DRAWS = 1 << 31
Pair = tuple[np.ndarray, np.ndarray]


class Around(NamedTuple):
    """What chains remember of the latent values of their entries."""

    mean: np.ndarray  # (C, n_blocks, LANES) float64
    variance: np.ndarray  # the same
    burn_in: int

    def climbs(self, sweeps: int) -> bool:
        """Whether chains look for better rows than they have, after so many sweeps."""
        return sweeps < CLIMBING * self.burn_in

    def look(self, c: int, f: np.ndarray, sweeps: int) -> None:
        """Take the present latent values of chain c, (n_blocks, LANES), into its memory."""
        known = min(sweeps, self.burn_in) / PARTS + max(0, sweeps - self.burn_in)
        gain, mean, variance = 1.0 / (1.0 + known), self.mean[c], self.variance[c]
        step = f - mean
        mean += gain * step
        variance += gain * step * step
        variance *= 1.0 - gain


class ChainEntries(NamedTuple):
    """What the entries of a chain say, in the lanes, (n,) float64, and the Gaussians that stand for them."""

    entry: np.ndarray  # (K N,) int32, their places, as the rows read them
    y: np.ndarray
    theta: np.ndarray
    power: np.ndarray  # how often each counts
    known: np.ndarray  # nothing where nothing is known
    weight: np.ndarray
    target: np.ndarray


class Judge(NamedTuple):
    """Who decides which new rows of a chain are taken: by what entries say, and their likelihood."""

    told: ChainEntries
    likelihood: Likelihood
    climbs: bool  # whether a part of the way is gone to a row that is turned down, if it says more of the entries

    def decide(self, data: tuple[Any, ...], key: Any, old: np.ndarray, factors: np.ndarray, executor: Executor) -> None:
        """Leave new rows of a mode in `factors`, or put `old` ones (n, R) there; `data` is as `draw_rows` takes it."""
        kernel = self.likelihood.in_f or self.likelihood.loglik
        record = (*data[:4], self.told, address_of(kernel, LOGLIK_SIGNATURE), key, self.climbs, old, factors)
        width = data[2].shape[1]

        def room() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            """Values of some entries, two rows in the order of the sources, and a stream."""
            return np.zeros((8, LANES)), np.zeros((2, width)), new_stream()

        executor.run(turn_down, 0, -(-len(old) // LANES), *record, scratch=room)


def judge_of(given: Pair, entry: np.ndarray, sites: Pair, problem: Problem, climbs: bool) -> Judge:
    """That of a chain whose kernels are `given` these y and theta, and whose `sites` stand for the entries."""
    each = (*given, problem.weights, problem.entries.known, *sites)
    told = ChainEntries(entry, *(np.ascontiguousarray(array).ravel() for array in each))
    return Judge(told, problem.likelihood, climbs)


@inlined
def _arranged(row, columns, out):
    """A row in the order of the sources: 1 in clamped columns, 0 in those that are not there."""
    R = len(columns.free)
    for p in range(len(out)):
        out[p] = columns.clamped[p] if len(columns.clamped) else 0.0
    for p in range(R):
        out[p] = row[columns.free[p]] if columns.free[p] >= 0 else 0.0


@inlined
def _latent(others, source, row):
    """The sum of the products of the rows `others` of the source and this one."""
    f = 0.0
    if len(others) == 2:
        for p in range(len(row)):
            f += source[others[0], p] * source[others[1], p] * row[p]
        return f
    for p in range(len(row)):
        z = source[others[0], p]
        for j in range(1, len(others)):
            z *= source[others[j], p]
        f += z * row[p]
    return f


@inlined
def _gains(row, lists, source, told, loglik, both, room):
    """How much more the first of two arranged rows says of the entries than the second: by likelihood, by Gaussian."""
    start, end, others = lists
    y, theta, new, was = room[0], room[1], room[2], room[3]
    value, before, d1, d2 = room[4], room[5], room[6], room[7]
    gain, expected = 0.0, 0.0
    for begin in range(start[row], end[row], LANES):
        used = min(LANES, end[row] - begin)
        for lane in range(LANES):
            place = begin + min(lane, used - 1)
            e = told.entry[place]
            f, f_old = _latent(others[place], source, both[0]), _latent(others[place], source, both[1])
            if lane < used:
                expected += (f - f_old) * (told.target[e] - 0.5 * told.weight[e] * (f + f_old))
            known = told.known[e] if len(told.known) else 0.0
            y[lane], theta[lane], new[lane], was[lane] = told.y[e], told.theta[e], f + known, f_old + known
        call_at(loglik, y, new, theta, value, d1, d2)
        call_at(loglik, y, was, theta, before, d1, d2)
        for lane in range(used):
            gain += told.power[told.entry[begin + lane]] * (value[lane] - before[lane])
    return gain, expected


@block_kernel
def turn_down(first, last, offset, lists, source, columns, told, loglik, key, climbs, old, factors, room, both, s):
    """Leave each new row of the groups first:last of LANES rows with its probability, or put the old one there."""
    # The arguments are those of `draw_rows`; `old` (n, R) are the rows of the mode as they were. Where a chain climbs,
    # which is no draw, and is far from what its Gaussians were matched at, a part of the way is gone that gains.
    for group in range(first, last):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + AFTER_DRAWS + group)
        for i in range(group * LANES, min(len(old), (group + 1) * LANES)):
            row, way = offset + i, 1.0
            _arranged(factors[row], columns, both[0])
            _arranged(old[i], columns, both[1])
            gain, expected = _gains(row, lists, source, told, loglik, both, room)
            if not uniform(s) < exp(min(gain - expected, 0.0)):  # nor where it is not a number
                way = 0.0
            part = 1.0
            while climbs and way == 0.0 and part > LEAST_PART:
                part *= 0.5
                for p in range(both.shape[1]):
                    both[0, p] = 0.5 * (both[0, p] + both[1, p])
                gain, expected = _gains(row, lists, source, told, loglik, both, room)
                if gain > 0.0:
                    way = part
            if way < 1.0:
                for r in range(factors.shape[1]):
                    factors[row, r] = old[i, r] if way == 0.0 else old[i, r] + way * (factors[row, r] - old[i, r])
