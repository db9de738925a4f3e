"""What changes in the state of a run, as a record that a file can hold, and the state again."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.cp.calibration.holdout import HeldOut
from tensorcep.cp.gibbs.chains import GibbsState, KeptDraws, latent_of_chain
from tensorcep.cp.meanfield.row_update import MeanFieldState
from tensorcep.cp.messages.sites import MessageState, Pace, latent_values
from tensorcep.cp.model.latent import latent_at
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.rows import RowState
from tensorcep.cp.workers.site_files import Shelf, Stored, Version
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods.parameters.base import Gamma
from tensorcep.likelihoods.parameters.dispersion import DispersionLaw
from tensorcep.likelihoods.parameters.scale_mixture import MixtureLaw
from tensorcep.likelihoods.parameters.thresholds import ThresholdLaw
from tensorcep.priors.laws import ModePrior


class ChainsNow(NamedTuple):
    """Of a sampler: its chains but for the draws kept, of which there are `n_kept`, and the entries left out."""

    factors: np.ndarray
    theta: np.ndarray
    modes: tuple[ModePrior | None, ...]
    kept_theta: tuple[np.ndarray, ...]
    kept_unknown: tuple[np.ndarray, ...]
    n_kept: int
    sweeps: int
    held: HeldOut | None
    leaves_out: bool


class RowsNow(NamedTuple):
    """Of mean field: rows and what follows from them, their prior, and the law of what is learned of the likelihood.

    `weight` and `target` are what the entries say of their latent values where that is not their values: they follow
    from the law as it was before the last mode.
    """

    rows: RowState
    numbers: np.ndarray
    square: float
    Lam: np.ndarray
    eta: np.ndarray
    modes: ModePrior | None
    mean: np.ndarray
    half_log_det: np.ndarray
    bound: float
    law: Gamma
    sweeps: int
    weight: np.ndarray
    target: np.ndarray
    cut: ThresholdLaw | None


class MessagesNow(NamedTuple):
    """Of a method that passes messages, which are in files: where, their versions and checksums, (C, K + 1) each.

    `pace` has the numbers of `Pace`, `noise` the (a, b) of the noise; Lam, eta and modes are of the rows' prior.
    """

    rows: RowState
    Lam: np.ndarray
    eta: np.ndarray
    modes: ModePrior | None
    noise: np.ndarray
    law: Gamma
    sweeps: int
    pace: np.ndarray
    max_variance: float
    cut: ThresholdLaw | None
    folder: str
    latest: int
    numbers: np.ndarray
    checksums: np.ndarray


def snapshot_of(state: Any, shelf: Shelf) -> ChainsNow | RowsNow | MessagesNow:
    """What changes in a state."""
    if isinstance(state, MessageState):
        return _messages_now(state, shelf)
    if isinstance(state, GibbsState):
        kept = state.own.kept
        return ChainsNow(
            factors=state.rows,
            theta=state.theta,
            modes=tuple(prior.modes for prior in state.hyper),
            kept_theta=kept.theta,
            kept_unknown=kept.unknown,
            n_kept=len(kept.rows),
            sweeps=state.sweeps,
            held=state.held,
            leaves_out=bool(len(state.left_out)),
        )
    prior, sums, setup, none = state.hyper, state.own, state.setup, np.zeros((0, LANES))
    return RowsNow(
        rows=state.rows,
        numbers=sums.numbers,
        square=sums.square,
        Lam=prior.now.Lam,
        eta=prior.now.eta,
        modes=prior.now.modes,
        mean=prior.mean,
        half_log_det=prior.half_log_det,
        bound=prior.bound,
        law=_gamma_law(state.parameters),
        sweeps=state.sweeps,
        weight=sums.sites.weight if setup.augmentation.weighted else none,
        target=sums.sites.target if setup.auxiliary else none,
        cut=next((law for law in state.parameters if isinstance(law, ThresholdLaw)), None),
    )


def _messages_now(state: MessageState, shelf: Shelf) -> MessagesNow:
    stored, prior, laws = shelf.get(state.messages.Lam), state.hyper, state.parameters
    versions = () if stored is None else stored.versions
    return MessagesNow(
        rows=state.rows,
        Lam=prior.now.Lam,
        eta=prior.now.eta,
        modes=prior.now.modes,
        noise=np.array(state.noise),
        law=_gamma_law(laws),
        sweeps=state.sweeps,
        pace=np.array(state.own.pace),
        max_variance=prior.max_variance,
        cut=next((law for law in laws if isinstance(law, ThresholdLaw)), None),
        folder="" if stored is None else stored.folder,
        latest=0 if stored is None else stored.latest,
        numbers=np.array([[one.number for one in own] for own in versions], dtype=np.int64),
        checksums=np.array([[one.checksum for one in own] for own in versions], dtype=np.int64),
    )


def stored_by(now: MessagesNow, shelf: Shelf, state: MessageState) -> Stored | None:
    """Where the messages of a state were when the snapshot was taken; None if it has none."""
    began = shelf.get(state.messages.Lam)
    if began is None:
        return None
    versions = tuple(
        tuple(Version(*pair) for pair in zip(*own, strict=True))
        for own in zip(now.numbers.tolist(), now.checksums.tolist(), strict=True)
    )
    return began._replace(folder=now.folder, latest=now.latest, versions=versions)


def kept_of(state: Any) -> tuple[np.ndarray, ...]:
    """The draws that a sampler has kept."""
    return state.own.kept.rows if isinstance(state, GibbsState) else ()


def restored(
    now: ChainsNow | RowsNow | MessagesNow,
    kept: tuple[np.ndarray, ...],
    state: Any,
    problem: Problem,
    executor: Executor,
) -> Any:
    """The state that the snapshot is of; `state` is that with which the run began."""
    if isinstance(now, ChainsNow):
        return _with_chains(now, kept, state, problem, executor)
    if isinstance(now, MessagesNow):
        return _with_messages(now, state, problem, executor)
    return _with_rows(now, state, problem, executor)


def _with_chains(
    now: ChainsNow, kept: tuple[np.ndarray, ...], state: GibbsState, problem: Problem, executor: Executor
) -> GibbsState:
    hyper = tuple(state.hyper[0]._replace(modes=modes) for modes in now.modes)
    state = state._replace(rows=now.factors, hyper=hyper, sweeps=now.sweeps).with_theta(now.theta)
    f = state.own.f
    if f.size:
        f = np.stack([latent_of_chain(state, c, problem, executor) for c in range(len(now.factors))])
    draws = KeptDraws(rows=kept, theta=now.kept_theta, unknown=now.kept_unknown)
    return state.put(f=f[: len(now.factors)], held=now.held, kept=draws)


def _with_messages(now: MessagesNow, state: MessageState, problem: Problem, executor: Executor) -> MessageState:
    prior, noise = state.hyper.now._replace(Lam=now.Lam, eta=now.eta, modes=now.modes), Gamma(*now.noise[:, None])
    of_laws = zip(state.own.parameters, state.parameters, strict=True)
    state = state._replace(
        rows=now.rows,
        hyper=state.hyper._replace(now=prior, max_variance=now.max_variance),
        parameters=tuple(noise if p.is_precision else _law_again(law, now.law, now.cut) for p, law in of_laws),
        sweeps=now.sweeps,
    )
    return state.put(pace=Pace(*now.pace.tolist()), f=latent_values(now.rows.mean, problem, executor))


def _with_rows(now: RowsNow, state: MeanFieldState, problem: Problem, executor: Executor) -> MeanFieldState:
    prior, setup, sites = state.hyper, state.setup, state.own.sites
    conditional = prior.now._replace(Lam=now.Lam, eta=now.eta, modes=now.modes)
    prior = prior._replace(now=conditional, mean=now.mean, half_log_det=now.half_log_det, bound=now.bound)
    sites = sites._replace(f=latent_at(problem.entries, now.rows.mean, setup.columns, executor))
    for array, stored in ((sites.weight, now.weight), (sites.target, now.target)):
        if len(stored):
            array[:] = stored
    state = state._replace(rows=now.rows, hyper=prior, sweeps=now.sweeps)
    laws = tuple(_law_again(law, now.law, now.cut) for law in state.parameters)
    return state.put(numbers=now.numbers, square=now.square, sites=sites)._replace(parameters=laws)


def _gamma_law(laws: tuple[Any, ...]) -> Gamma:
    """The law of a precision or of dispersions among these; of no meaning where there is none."""
    found = (getattr(law, "noise", getattr(law, "law", law)) for law in laws)
    return next((law for law in found if isinstance(law, Gamma)), Gamma(np.zeros(1), np.ones(1)))


def _law_again(law: Any, gamma: Gamma, cut: ThresholdLaw | None) -> Any:
    """A law with the numbers that were kept of it."""
    if isinstance(law, ThresholdLaw):
        return law if cut is None else cut
    if isinstance(law, DispersionLaw):
        return law._replace(law=gamma)
    if isinstance(law, MixtureLaw):
        return law._replace(noise=gamma)
    return gamma if isinstance(law, Gamma) else law
