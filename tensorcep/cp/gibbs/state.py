"""The state of a Gibbs sampler of the CP model, and what it gives to kernels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.core.components import EntryTheta
from tensorcep.core.scratch import room_of
from tensorcep.cp.gibbs.chains import Chains, some_chains
from tensorcep.cp.gibbs.held_out import HeldOut
from tensorcep.cp.gibbs.metropolis import Around
from tensorcep.cp.gibbs.noise_law import NoiseLaw
from tensorcep.cp.gibbs.uneven import UnevenDraws
from tensorcep.cp.model.entries import EntriesByRow
from tensorcep.cp.model.parameters import Learned, in_places_of, learned_levels, with_parameter
from tensorcep.cp.model.problem import Problem
from tensorcep.likelihoods.augmentation import Augmentation
from tensorcep.likelihoods.record import Likelihood

NO_ENTRIES = EntriesByRow(
    start=np.zeros(1, dtype=np.int64),
    end=np.zeros(0, dtype=np.int64),
    entry=np.zeros(0, dtype=np.int32),
    value=np.zeros(0),
    others=np.zeros((0, 0), dtype=np.int32),
    chunks=(),
)


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
        Entries that the burn-in leaves out.
    noise_held : bool
        Whether these tell the noise.
    uneven, pooled : UnevenDraws or None
        Of noise that differs; of a dispersion that does.
    leaves_out : bool
        Whether the entries that the burn-in leaves out are left out at present.
    noise_law : NoiseLaw or None
        After the burn-in, how new observations differ from normal ones; None where these are normal.
    around : Around or None
        Of likelihoods that no variable makes Gaussian, the past of the latent values.
    """

    chains: Chains
    f: np.ndarray
    augmentation: Augmentation | None
    learned: Learned | None
    held: HeldOut | None
    noise_held: bool
    uneven: UnevenDraws | None = None
    leaves_out: bool = False
    noise_law: NoiseLaw | None = None
    pooled: UnevenDraws | None = None
    around: Around | None = None

    @property
    def learns_precision(self) -> bool:
        """Whether the entries have a precision that is learned."""
        return self.learned is not None and self.learned.parameter.is_precision

    def of_chains(self, which: np.ndarray) -> GibbsState:
        """That of these chains alone, before any draw is kept."""
        f = self.f
        if f.size and len(which) < len(f):
            f = room_of(self.f).empty((len(which), *self.f.shape[1:]))
            for own, c in zip(f, which, strict=True):
                own[:] = self.f[c]
        uneven, pooled = (None if own is None else own.of_chains(which) for own in (self.uneven, self.pooled))
        around = None if self.around is None else self.around.of_chains(which)
        chains = some_chains(self.chains, which)
        return self._replace(chains=chains, f=f, uneven=uneven, pooled=pooled, around=around)

    def left_out_of(self, problem: Problem) -> float:
        """How much the entries that are left out at present count."""
        if not self.leaves_out or self.held is None:
            return 0.0
        place = self.held.place
        return float(len(place) if problem.power is None else problem.power.ravel()[place].sum())

    def theta_at(self, place: np.ndarray) -> np.ndarray:
        """The likelihood's parameter of the entries at these places in every chain, (C, n)."""
        theta = self.chains.theta
        if self.learned is None or self.learned.groups.mode is None:
            return np.broadcast_to(theta[:, :1], (len(theta), len(place)))
        return theta[:, self.learned.groups.of_entry.ravel()[place]]

    def theta(self, c: int, shape: tuple[int, ...]) -> np.ndarray:
        """The likelihood's parameter of every entry in chain c, (n_blocks, LANES)."""
        theta = self.chains.theta[c]
        if self.learned is None or self.learned.groups.mode is None:
            of_all = room_of(self.f).empty(shape)
            of_all[:] = theta[0]
            return of_all
        return self.learned.groups.per_entry(theta)

    def given(self, c: int, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
        """What kernels take as y and theta of every entry in chain c, (n_blocks, LANES) each."""
        if problem.likelihood.levels is not None:
            return in_places_of(problem, problem.entries.y, self.chains.theta[c])
        entries = problem.entries
        return entries.y, entries.theta if len(entries.theta) else self.theta(c, entries.y.shape)

    def given_at(
        self, place: np.ndarray, problem: Problem, y: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same of the entries at these places, whose values are `y` (n,), in every chain, (C, n) each."""
        y, levels = problem.entries.y.ravel()[place] if y is None else y, problem.likelihood.levels
        if levels is None:
            theta, own = self.theta_at(place), problem.entries.theta
            theta = np.broadcast_to(own.ravel()[place], theta.shape) if len(own) else theta
            return np.broadcast_to(y, theta.shape), theta
        low, high = zip(*(levels.between(y, theta) for theta in self.chains.theta), strict=True)
        return np.stack(low), np.stack(high)

    def told_of(self, held: HeldOut, problem: Problem) -> tuple[tuple[np.ndarray, np.ndarray], Likelihood]:
        """The same of the entries that are left out, and the likelihood whose kernels take them.

        Of counts with structural zeros it is that of both kinds.
        """
        given, likelihood = self.given_at(held.place, problem, held.y), problem.likelihood
        if likelihood.zeros is None:
            return given, likelihood
        likelihood, theta = self.predictive_at(held.place, likelihood)
        return (given[0], theta), likelihood

    def predictive_at(self, place: np.ndarray, likelihood: Likelihood) -> tuple[Likelihood, np.ndarray]:
        """The likelihood of new observations at these places, and its parameter in every chain, (C, n)."""
        if learned_levels(likelihood) is None and likelihood.zeros is None:
            return likelihood, self.theta_at(place)
        found, theta = with_parameter(likelihood, EntryTheta(self.chains.theta))
        return found, np.broadcast_to(theta.values, (len(theta.values), len(place)))


def without_lists(state: GibbsState | None) -> GibbsState | None:
    """The state, if there is one, without the lists of the entries."""
    return state if state is None else state._replace(chains=state.chains._replace(by_row=NO_ENTRIES))
