"""Settings of the engines that pass messages: CEP and Laplace propagation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tensorcep.core.checks import check_choice, check_flag, check_int, check_range, fail_value, word_or_range
from tensorcep.core.settings import Settings
from tensorcep.cp.settings.base import Decided, Memory, Size, check_annealing, check_pair, check_starts, packed

SCHEDULES, DTYPES = ("modewise", "parallel"), ("float64", "float32")
# Sums per row are kept for at most so many chunks of the entries (`tensorcep.cp.model.entries.pack_entries`).
MAX_SUMS = 16
# Moments of cavities are kept from pass to pass where those of all entries take no more bytes: beyond the caches,
# reading them saves nothing.
MOST_KEPT = 32_000_000
# From so many entries on the messages of all are there once: more than a start that is tried again takes time.
MANY_SENT = 500_000


@dataclass(repr=False, kw_only=True)
class CEP(Settings):
    """Conditional expectation propagation.

    Parameters
    ----------
    messages : {"full", "averaged"}, default="full"
        "full" stores the message of every entry to every mode, K * (R*(R+1)/2 + R) numbers per entry; "averaged" one
        message per row, the average of those of its entries (stochastic EP): less accurate, for data whose messages do
        not fit the memory.
    schedule : {"modewise", "parallel"}, default="modewise"
        "modewise" updates mode after mode, each with the newest moments of the others; "parallel" computes all
        messages from one state (the paper's schedule, which needs damping and about ten times as many sweeps).
    moments : {"cavity", "posterior"}, default="cavity"
        Where the other modes' moments come from.
    noise_moments : {"tilted", "cavity"}, default="tilted"
        Moments of the latent value in the messages to the noise precision: with the entry itself, or without it as in
        the paper's code, which makes the noise too large by twice the variance of the latent value. With
        moments="posterior" they are the posterior's.
    order : {1, 2}, default=1
        Order of the Taylor approximation of the expected conditional moments (CEP eq. 10 or 11).
    damping : float in [0, 1), "auto" or "adaptive", default="auto"
        Fraction of the old natural parameters kept in an update; the paper's rho is 1 - damping. "auto" is 0.5, and for
        real values, modewise, 0, or "adaptive" where some are censored. Batches of a stream are then tried without any
        first.
    dtype : {"float64", "float32"}, default="float64"
        Storage of the messages. Arithmetic is float64 always.
    positive : bool, default=True
        Keep the messages of a log-concave likelihood positive by limiting one term of their precision for observations
        far from their prediction. Without it (the published formula) binary and count models can diverge.
    anneal : int or "auto", default="auto"
        Sweeps at the start in which every new message counts `anneal_power` times, at most half of max_iter. It lets
        the data outweigh the prior and the factors' uncertainty until the factors are aligned: from a start that knows
        nothing, the first messages otherwise shrink components towards zero, where they stay. The tolerance applies
        after them. "auto" is 15 for real values and 40 otherwise; with a learned prior 5 (15 with values at a lower
        limit) and 15.
    anneal_power : float, default=10
    warm_up : int, default=10
        First-order sweeps before second-order ones begin: far from a fixed point the second-order terms, which grow
        with the posterior covariance of the other modes, are larger than the first-order ones.
    message_precision : float, default=0
        Precision of the initial messages (the paper's code starts at 1e-6; 0 means no message).
    message_noise : tuple of float, optional
        Initial (a, b) message to the noise precision; None starts at precision 1 / mean(y^2).
    n_starts : int, default=3
        Random starts. Each gets the annealed sweeps; the one that then fits the training entries best goes on. With
        another `init` than "random" there is one start, and so there is where the spectra of the data show it.
    n_ensemble : int or "auto", default="auto"
        Fits from different random starts (each the best of `n_starts`) whose equally weighted mixture is the posterior.
        Every fit explains the data in its own way: their mean predicts better than any of them, and intervals hold what
        they disagree in. Fits that have not found what the best one has are left out: their train score falls short of
        its by more than follows from their freedom, half a nat per free number. Factors, components and streams are
        those of the fit with the best train score. "auto" is up to 4 for `fit` with a learned prior, fewer the more
        entries there are, and otherwise 1. A stream has one.
    keep_messages : bool, default=False
        Keep the entries and all their messages after `fit`, of one fit (`n_ensemble` does not count), so that
        `forget_entries` and `forget_rows` can take some out. Files do not hold them.

    References
    ----------
    Wang and Zhe, Conditional Expectation Propagation.

    Examples
    --------
    >>> from tensorcep import CEP, CPRegressor
    >>> CPRegressor(method=CEP(order=2, damping=0.5)).method
    CEP(order=2, damping=0.5)
    """

    name: ClassVar[str] = "cep"
    needs: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "censors": {"order": 1, "moments": "cavity", "messages": "full"},
        "coupled_rows": {"order": 1, "positive": True},
        "local": {"keep_messages": False},
        "revisits": {"messages": "full"},
        "stores": {"messages": "averaged"},
        "workers": {"keep_messages": False},
    }

    messages: str = "full"
    schedule: str = "modewise"
    moments: str = "cavity"
    noise_moments: str = "tilted"
    order: int = 1
    damping: Decided = "auto"
    dtype: str = "float64"
    positive: bool = True
    anneal: Decided = "auto"
    anneal_power: float = 10.0
    warm_up: int = 10
    message_precision: float = 0.0
    message_noise: tuple[float, float] | None = None
    n_starts: int = 3
    n_ensemble: Decided = "auto"
    keep_messages: bool = False

    def check(self) -> None:
        check_flag("keep_messages", self.keep_messages)
        if self.keep_messages and self.messages != "full":
            fail_value("keep_messages needs a message of every entry; got messages='averaged'; take 'full'.")
        check_choice("messages", self.messages, ("full", "averaged"))
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("moments", self.moments, ("cavity", "posterior"))
        check_choice("noise_moments", self.noise_moments, ("tilted", "cavity"))
        check_int("order", self.order, 1, 2)
        word_or_range("damping", self.damping, ("auto", "adaptive"), 0.0, 1.0, include_high=False)
        check_choice("dtype", self.dtype, DTYPES)
        check_flag("positive", self.positive)
        check_annealing(self.anneal, self.anneal_power)
        check_int("warm_up", self.warm_up, 0)
        check_range("message_precision", self.message_precision, 0.0)
        if self.message_noise is not None:
            check_pair("message_noise", self.message_noise)
        check_starts(self.n_starts, self.n_ensemble)

    def bytes_at_peak(self, size: Size, max_iter: int) -> Memory:
        tables = 1 if self.schedule == "modewise" else 2 * len(size.shape)
        return memory_of_messages(self, size, 3 + tables if self.messages == "averaged" else 0)


@dataclass(repr=False, kw_only=True)
class Laplace(Settings):
    """Laplace propagation: messages from the mode and the curvature of every entry's own posterior.

    Parameters
    ----------
    schedule : {"modewise", "parallel"}, default="modewise"
        "modewise" updates mode after mode, each with the newest moments of the others; "parallel" computes all
        messages of an entry from one mode, at a third of the price for a third-order tensor, and needs damping.
    curvature : {"conditional", "marginal"}, default="conditional"
        Precision of a row's message: from the row's own block of the joint curvature of the K rows, as if the others
        were known; or from its block of the inverse (with Gauss-Newton curvature), which counts their uncertainty.
        Both are positive definite. The second moves a row as if the others stayed where they were, and then further
        than the likelihood allows: with counts it can diverge.
    damping : float in [0, 1) or "auto", default="auto"
        Fraction of the old natural parameters kept in an update. "auto" is 0.5, and for real values, modewise, 0.
    dtype : {"float64", "float32"}, default="float64"
        Storage of the messages, K * (R*(R+1)/2 + R) numbers per entry. Arithmetic is float64 always.
    anneal, anneal_power : int or "auto", float
        Sweeps at the start in which every new message counts `anneal_power` times, as in `CEP`.
    n_starts, n_ensemble : int
        Random starts, and fits that are mixed, as in `CEP`; by default 3 and 1.

    References
    ----------
    Smola, Vishwanathan and Eskin (2003), Laplace propagation.

    Examples
    --------
    >>> from tensorcep import CPRegressor, Laplace
    >>> CPRegressor(method=Laplace(n_starts=1)).method
    Laplace(n_starts=1)
    """

    name: ClassVar[str] = "laplace"

    schedule: str = "modewise"
    curvature: str = "conditional"
    damping: Decided = "auto"
    dtype: str = "float64"
    anneal: Decided = "auto"
    anneal_power: float = 10.0
    n_starts: int = 3
    n_ensemble: int = 1

    def check(self) -> None:
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("curvature", self.curvature, ("conditional", "marginal"))
        word_or_range("damping", self.damping, ("auto",), 0.0, 1.0, include_high=False)
        check_choice("dtype", self.dtype, DTYPES)
        check_annealing(self.anneal, self.anneal_power)
        check_starts(self.n_starts, self.n_ensemble)

    def bytes_at_peak(self, size: Size, max_iter: int) -> Memory:
        return memory_of_messages(self, size)


def memory_of_messages(options: CEP | Laplace, size: Size, averages: int = 0) -> Memory:
    """Bytes of methods that pass messages; `averages` is how many more sets of rows a kernel gets in their place."""
    K, P = len(size.shape), packed(size.Q) + size.Q
    starts = 1 if has_one_state(options, size) else min(2, options.n_starts)
    n = max(size.n_entries, size.n_stored)
    sums = size.n_rows * P * (2 + min(MAX_SUMS, n * K // (4 * size.n_rows)))
    state = 8 * (sums + size.n_rows * (packed(size.Q) + 4 * size.Q))
    of_entry = 8 + (0 if averages else 16 + K * P * np.dtype(options.dtype).itemsize)
    beside = size.posterior + max(8 * averages * size.n_rows * P, size.posterior)
    kept = 0 if averages else bytes_of_cavities(size.n_entries, K, size.Q)
    return Memory(starts * (size.n_entries * of_entry + kept) + 40 * size.n_entries, starts * state + beside)


def has_one_state(options: Settings, size: Size) -> bool:
    """Whether the messages of one start do not wait while another one is tried."""
    stored = isinstance(options, Laplace) or (isinstance(options, CEP) and options.messages == "full")
    return stored and size.n_entries >= MANY_SENT


def bytes_of_cavities(n_entries: int, K: int, Q: int) -> int:
    """Bytes of what is kept of the cavities of so many entries: 0 where it would be too much."""
    needed = 8 * n_entries * K * (packed(Q) + Q + 1)
    return needed if needed <= MOST_KEPT else 0
