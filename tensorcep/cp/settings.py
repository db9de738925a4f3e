"""Settings of the engines by the names of their methods: checks, and the bytes of a fit, by sizes before any work."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from tensorcep.core.checks import check_choice, check_flag, check_int, check_range, fail_value, word_or_range
from tensorcep.core.settings import Engines, Settings

# A setting that may be "auto" or None until a fit is planned; engines see the number.
Decided = Any
# Sets of main effects and interactions that have a name (`tensorcep.cp.model.columns`).
PRESETS = ("cp", "main+cp", "pairwise", "all")


def check_pair(name: str, value: Any) -> None:
    """Refuse what is no pair of positive numbers."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        fail_value(f"{name} must be a pair (a, b) of positive numbers; got {value!r}.")
    for i, item in enumerate(value):
        check_range(f"{name}[{i}]", item, 0.0, include_low=False)


def check_starts(options: CEP | Laplace | VMP) -> None:
    """Refuse numbers of annealed sweeps, what an entry counts in them, and numbers of starts and of mixed fits."""
    if not (isinstance(options.anneal, str) and options.anneal == "auto"):
        check_int("anneal", options.anneal, 0, instead="'auto' or ")
    check_range("anneal_power", options.anneal_power, 1.0)
    check_int("n_starts", options.n_starts)
    if options.n_ensemble != "auto":
        check_int("n_ensemble", options.n_ensemble)


class Size(NamedTuple):
    """The size of a fit."""

    n_entries: int
    shape: tuple[int, ...]
    Q: int  # columns that are free in a mode
    R: int  # all columns
    cp: int  # those that belong to all modes
    beside: int = 0  # bytes of what goes before, and of what is there whatever is fitted, where these are counted
    limit: float = float("inf")  # bytes that the user allows
    n_stored: int = 0  # entries on scratch, of which memory holds `n_entries`; 0 where there are none

    @property
    def n_rows(self) -> int:
        """Rows of all modes."""
        return sum(self.shape)

    @property
    def by_row(self) -> int:
        """Bytes per entry of the entries of every row, by their places (`tensorcep.cp.model.entries.EntriesByRow`)."""
        return 4 * len(self.shape) ** 2

    @property
    def packed_entries(self) -> int:
        """Bytes of the checked coordinates and values, and of the entries in lanes."""
        return self.n_entries * (12 * len(self.shape) + 36)

    @property
    def posterior(self) -> int:
        """Bytes of natural parameters or of moments of all rows in all columns."""
        return 8 * self.n_rows * (packed(self.R) + self.R)

    @property
    def spectral(self) -> int:
        """Bytes of a spectral start."""
        return self.n_entries * (24 * len(self.shape) + 16 * self.cp)


class Memory(NamedTuple):
    """Bytes of a method at its peak: what grows with entries, with rows, and with draws."""

    entries: int
    rows: int
    draws: int = 0

    @property
    def total(self) -> int:
        return sum(self)


def packed(R: int) -> int:
    """Numbers of a packed R x R matrix."""
    return R * (R + 1) // 2


def size_of(n_entries: int, shape: Sequence[int], parts: dict[str, int]) -> Size:
    """The size of a fit with the columns of these parts (`tensorcep.cp.model.columns`)."""
    K = len(shape)
    main, pair, cp = (int(parts[name]) for name in ("main", "pair", "cp"))
    Q = main + (K - 1) * pair + cp
    return Size(n_entries, tuple(int(n) for n in shape), Q, K * main + K * (K - 1) // 2 * pair + cp, cp)


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
        check_starts(self)
        check_int("warm_up", self.warm_up, 0)
        check_range("message_precision", self.message_precision, 0.0)
        if self.message_noise is not None:
            check_pair("message_noise", self.message_noise)

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
        check_starts(self)

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


@dataclass(repr=False, kw_only=True)
class VMP(Settings):
    """Variational message passing, with a lower bound of the log evidence.

    For counts, which no latent value makes Gaussian, entries are matched to the log likelihood at the present rows; the
    bound is then that at the present dispersion, and may fall.

    Parameters
    ----------
    anneal, anneal_power : int or "auto", float
        Sweeps at the start in which every entry counts `anneal_power` times, as in `CEP`, by default 10; no bound is
        reported for those, and "auto" is 2 after a quick fit.
    n_starts, n_ensemble : int
        Random starts, and fits that are mixed, as in `CEP`; by default 3 and 1.

    Examples
    --------
    >>> from tensorcep import VMP, CPRegressor
    >>> CPRegressor(method=VMP(n_starts=1)).method
    VMP(n_starts=1)
    """

    name: ClassVar[str] = "vmp"

    anneal: Decided = "auto"
    anneal_power: float = 10.0
    n_starts: int = 3
    n_ensemble: int = 1

    def check(self) -> None:
        check_starts(self)

    def bytes_at_peak(self, size: Size, max_iter: int) -> Memory:
        # per row Lam, cov and second moments, sums over entries, and vectors; beside those, factors of such sums in the
        # order of a mode's elements, or the posterior in all columns
        # a row's sums have a line for every pair of a free and a clamped column
        n, P, W = size.n_rows, packed(size.Q), packed(size.Q) + size.Q * (size.R - size.Q)
        state = 8 * n * (3 * P + W + 6 * size.Q + 2 * size.R)
        beside = size.posterior + max(8 * (n - min(size.shape)) * (W + size.R), size.posterior)
        starts = min(2, self.n_starts)
        return Memory(starts * size.n_entries * (size.by_row + 56), starts * state + beside)


@dataclass(repr=False, kw_only=True)
class PGVB(VMP):
    """Variational inference by Polya-Gamma augmentation: labels with the logit link, negative-binomial counts.

    Parameters
    ----------
    dispersion_prior, dispersion_mode : tuple of float, int or None
        For counts, as in `Gibbs`.
    anneal, anneal_power, n_starts, n_ensemble
        As in `VMP`; for "auto" 40 sweeps are annealed, and 15 with a learned prior.

    References
    ----------
    Klami (2014), Polya-Gamma augmentations for factor models.

    Examples
    --------
    >>> from tensorcep import PGVB, CPClassifier
    >>> CPClassifier(method=PGVB(n_starts=1)).method
    PGVB(n_starts=1)
    """

    name: ClassVar[str] = "pg-vb"

    dispersion_prior: tuple[float, float] = (1.0, 0.1)
    dispersion_mode: int | None = None

    def check(self) -> None:
        super().check()
        check_dispersion(self.dispersion_prior, self.dispersion_mode)


def check_dispersion(prior: Any, mode: Any) -> None:
    """Refuse a prior that is no pair of positive numbers, or a mode that is no whole number."""
    check_pair("dispersion_prior", prior)
    if mode is not None:
        check_int("dispersion_mode", mode, 0)


# With thin=None this many draws of every chain are kept, or, to save memory, fewer.
KEPT_DRAWS, LEAST_DRAWS = 100, 25

S = TypeVar("S", bound="Sampler")


@dataclass(repr=False, kw_only=True)
class Sampler(Settings):
    """Settings that the samplers share; `max_iter` of the estimator is the number of sweeps of every chain."""

    n_chains: int = 4
    burn_in: Decided = None
    thin: Decided = None
    weights: str = "stacked"
    dtype: str | None = None

    def check(self) -> None:
        check_int("n_chains", self.n_chains)
        if self.dtype is not None:
            check_choice("dtype", self.dtype, DTYPES)
        check_choice("weights", self.weights, ("stacked", "equal"))
        if self.burn_in is not None:
            check_int("burn_in", self.burn_in, 0)
        if self.thin is not None:
            check_int("thin", self.thin)

    def for_sweeps(self: S, sweeps: int, most: float = np.inf) -> S:
        """The settings with values for burn_in, thin and dtype, for so many sweeps."""
        # most: how many draws of every chain in double precision there is room for
        burn_in = sweeps // 2 if self.burn_in is None else self.burn_in
        if burn_in >= sweeps:
            fail_value(f"burn_in must be below max_iter={sweeps}; got {burn_in}; increase max_iter.")
        n = sweeps - burn_in
        wanted = min(n, LEAST_DRAWS) if self.thin is None else -(-n // self.thin)
        dtype = self.dtype or ("float64" if wanted <= most else "float32")
        kept = min(KEPT_DRAWS, max(LEAST_DRAWS, most if dtype == "float64" else 2.0 * most))
        thin = max(1, math.ceil(n / int(kept))) if self.thin is None else self.thin
        return replace(self, burn_in=burn_in, thin=thin, dtype=dtype)

    def draws(self, size: Size, max_iter: int) -> int:
        """Bytes of all draws that are kept, of settings without None."""
        n = math.ceil((max_iter - self.burn_in) / self.thin)
        return self.n_chains * n * size.n_rows * size.R * np.dtype(self.dtype).itemsize

    def bytes_at_peak(self, size: Size, max_iter: int) -> Memory:
        # a chain's own rows; those of the sweep before, and all of them in the order of a mode's columns
        rows = size.n_rows * size.R * (16 * self.n_chains + 16)
        # values in place of the places, and what sorting takes; or sites in two orders, latent values, and parameters
        of_entry = 4 * len(size.shape) + 20 if self.name == "gibbs" else 48 + 8 * self.n_chains
        return Memory(size.n_entries * (size.by_row + of_entry), rows, 2 * self.draws(size, max_iter))


@dataclass(repr=False, kw_only=True)
class Gibbs(Sampler):
    """Gibbs sampling of real values, of labels with the probit link, and of counts.

    Of counts, which no auxiliary variable makes Gaussian, rows are proposed as mean field would update them, and taken
    or left as Metropolis and Hastings ask (Gamerman 1997).

    Parameters
    ----------
    n_chains : int, default=4
        The first chain starts at the estimator's `init`, the others at draws from the prior. The posterior of a
        factorisation has many modes that one chain does not leave in any practical time, so that several chains predict
        better. `method="auto"` has 2 from half a million entries on.
    burn_in : int, optional
        Sweeps at the start that are not kept; by default half of max_iter.
    thin : int, optional
        Every thin-th draw is kept; by default about 100 draws of each chain, of large models down to 25.
    weights : {"stacked", "equal"}, default="stacked"
        "stacked": in the burn-in all chains leave a tenth of the entries out (at least 50, at most a fifth), and at its
        end each counts as much as makes the mixture of all predict these best; chains that count for nothing end there.
        "equal": every chain counts the same, however little it has found.
    dtype : {"float64", "float32"}, optional
        Storage of the draws; by default float64, or float32 where fewer than 25 draws of every chain would fit.
        Arithmetic is float64 always.
    noise : {"held-out", "sampled"}, default="held-out"
        "sampled" draws the noise precision given the rows, which is exact, and at ranks that can follow every entry
        ends at no noise. "held-out" takes it, in the burn-in, from a tenth of the entries that all chains leave out
        until then; with fewer than 250 entries, with censored ones or without a burn-in it is "sampled". From n of N
        entries the noise is known less well than by the exact posterior, by a factor of about sqrt(N / n). Where they
        make it likelier, what is predicted has longer tails than a normal law; draws of rows do not know of that.
    dispersion_prior : tuple of float, default=(1, 0.1)
        For negative-binomial counts, shape and rate of the Gamma prior of the dispersion r.
    dispersion_mode : int, optional
        The mode whose rows have a dispersion each; None for one that all entries share.

    References
    ----------
    Klami (2014), Polya-Gamma augmentations for factor models, sec. 2.1; Albert and Chib (1993); Gamerman (1997),
    Sampling from the posterior distribution in generalized linear mixed models.

    Examples
    --------
    >>> from tensorcep import CPRegressor, Gibbs
    >>> CPRegressor(method=Gibbs(n_chains=2, burn_in=100)).method
    Gibbs(n_chains=2, burn_in=100)
    """

    name: ClassVar[str] = "gibbs"

    noise: str = "held-out"
    dispersion_prior: tuple[float, float] = (1.0, 0.1)
    dispersion_mode: int | None = None

    def check(self) -> None:
        super().check()
        check_dispersion(self.dispersion_prior, self.dispersion_mode)
        check_choice("noise", self.noise, ("held-out", "sampled"))


@dataclass(repr=False, kw_only=True)
class PGGibbs(Sampler):
    """Gibbs sampling by Polya-Gamma augmentation: labels with the logit link, negative-binomial counts.

    Parameters
    ----------
    n_chains, burn_in, thin, weights, dtype, dispersion_prior, dispersion_mode
        As in `Gibbs`.

    References
    ----------
    Klami (2014), Polya-Gamma augmentations for factor models, sec. 3-4 and 6.

    Examples
    --------
    >>> from tensorcep import CPClassifier, PGGibbs
    >>> CPClassifier(method=PGGibbs(n_chains=2)).method
    PGGibbs(n_chains=2)
    """

    name: ClassVar[str] = "pg-gibbs"

    dispersion_prior: tuple[float, float] = (1.0, 0.1)
    dispersion_mode: int | None = None

    def check(self) -> None:
        super().check()
        check_dispersion(self.dispersion_prior, self.dispersion_mode)


@dataclass(repr=False, kw_only=True)
class WOPT(Settings):
    """CP-WOPT: the factors that maximise the penalised likelihood, by gradients, without uncertainty.

    Parameters
    ----------
    ridge : float or "prior", default="prior"
        Penalty, which keeps the factors finite where the entries alone do not (labels that the model can separate, more
        parameters than entries). A number: the loss grows by ridge / 2 times the sum of squares of the factors.
        "prior": by minus the log density of the rows' prior, for real values times the noise variance. The residuals of
        a point estimate shrink as it overfits and do not tell that variance: the variance of the values stands for it.
        The search is then the same in any unit of the values; with a number, as published, it sees them as they are.
    prior_weight : float or "auto", default="auto"
        What the log density of the prior counts, where it is the penalty: a point estimate of labels or counts that
        takes the prior at its word can be so sure of what it made of noise that a constant predicts better. "auto": 1
        for real values, whose variance stands before it already, for entries with weights, and where a prior or a start
        is given. Else the weight of 1, 3, 10, 30, ... with which a fit without some of the entries predicts these best,
        unless they are too few to tell, or so many that it hardly matters; that takes some four fits.
    iterations : int, default=20
        L-BFGS-B iterations that one sweep stands for. The search forgets the curvature between sweeps.
    memory : int, default=10
        Steps from which L-BFGS-B knows the curvature.
    least_gain : float, default=1.0
        The search ends after a sweep that gains less log likelihood, the penalty in it, than so many standard
        deviations of what as many free numbers gain by following noise alone, sqrt(n / 2). 0: by the tolerance alone.

    References
    ----------
    Acar, Dunlavy, Kolda and Morup (2011), Scalable tensor factorizations for incomplete data.

    Examples
    --------
    >>> from tensorcep import WOPT, CPRegressor
    >>> CPRegressor(method=WOPT(ridge=0.0)).method
    WOPT(ridge=0.0)
    """

    name: ClassVar[str] = "wopt"

    ridge: float | str = "prior"
    prior_weight: float | str = "auto"
    iterations: int = 20
    memory: int = 10
    least_gain: float = 1.0

    def check(self) -> None:
        word_or_range("ridge", self.ridge, ("prior",), 0.0)
        word_or_range("prior_weight", self.prior_weight, ("auto",), 0.0)
        check_int("iterations", self.iterations)
        check_int("memory", self.memory)
        check_range("least_gain", self.least_gain, 0.0)

    def bytes_at_peak(self, size: Size, max_iter: int) -> Memory:
        # at the start moments of the prior; then the search's own arrays, two for every step that it knows
        numbers = max(2 * packed(size.R) + 4 * size.R, size.Q * (2 * self.memory + 8) + 8 * size.R)
        return Memory(size.n_entries * (size.by_row + 4 * len(size.shape) + 72), 8 * size.n_rows * numbers)


SETTINGS: dict[str, type[Settings]] = {cls.name: cls for cls in (CEP, Laplace, VMP, WOPT, Gibbs, PGVB, PGGibbs)}
ENGINES: Engines[Settings] = Engines(
    {name: record() for name, record in SETTINGS.items()},
    otherwise="cep",
    moved=("schedule", "moments", "order", "damping", "anneal", "n_init", "n_ensemble", "dtype", "method_options"),
    renamed={"n_init": "n_starts"},
)


def checked_method(method: Any) -> tuple[str, Settings | None]:
    """The name of a method, or "auto", and the settings that were given with it; see `Engines.settings_of`."""
    if isinstance(method, (Settings, type)):
        settings = ENGINES.settings_of(method)
        return settings.name, settings
    return check_choice("method", method, ("auto", *SETTINGS)), None


def settings_for(method: Any, name: str) -> Settings:
    """The settings of the method of this name: those that were given with `method`, if it is that, or its own."""
    given = checked_method(method)[1]
    return given if given is not None and given.name == name else SETTINGS[name]()
