"""Settings of the samplers: Gibbs and PG-Gibbs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

import numpy as np

from tensorcep.core.checks import check_choice, check_int, fail_value
from tensorcep.core.settings import Settings
from tensorcep.cp.settings.base import Decided, Memory, Size
from tensorcep.cp.settings.meanfield import check_dispersion
from tensorcep.cp.settings.messages import DTYPES

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
