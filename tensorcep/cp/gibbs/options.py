"""Settings of the samplers."""

from __future__ import annotations

from dataclasses import dataclass

from tensorcep.core.checks import check_choice, check_int, fail_value
from tensorcep.cp.parameters import check_parameter

# With thin=None this many draws of every chain are kept, or fewer, to keep all draws within so many bytes.
KEPT_DRAWS, LEAST_DRAWS, DRAWS_BYTES = 100, 25, 2**30


@dataclass(frozen=True)
class SamplerOptions:
    """Settings of a sampler.

    Attributes
    ----------
    max_iter : int
        Sweeps of every chain.
    burn_in : int or None
        Sweeps at the start that are not kept; None means half of max_iter.
    thin : int or None
        Every thin-th draw is kept; None keeps about 100 draws of each chain, of large models down to 25, so that all of
        them take about 1 GB at most.
    n_chains : int
        The first chain starts at the start given, the others at draws from the prior. The posterior of a factorisation
        has many modes that one chain does not leave in any practical time, so that several chains predict better.
    """

    max_iter: int = 200
    burn_in: int | None = None
    thin: int | None = None
    n_chains: int = 4

    def __post_init__(self) -> None:
        check_int("max_iter", self.max_iter)
        check_int("n_chains", self.n_chains)
        if self.thin is not None:
            check_int("thin", self.thin)
        if self.burn_in is not None and check_int("burn_in", self.burn_in, 0) >= self.max_iter:
            fail_value(f"burn_in must be below max_iter={self.max_iter}; got {self.burn_in}; increase max_iter.")

    @property
    def first_kept(self) -> int:
        """Number of the first sweep whose draw may be kept, counted from 0."""
        return self.max_iter // 2 if self.burn_in is None else self.burn_in

    def spacing(self, numbers: int) -> int:
        """Sweeps from one kept draw to the next, where a draw of all chains holds so many numbers."""
        if self.thin is not None:
            return self.thin
        kept = min(KEPT_DRAWS, max(LEAST_DRAWS, DRAWS_BYTES // (8 * max(1, numbers))))
        return max(1, -(-(self.max_iter - self.first_kept) // kept))


@dataclass(frozen=True)
class GibbsOptions(SamplerOptions):
    """Settings of `SamplerOptions`, and for real values that of the noise.

    Attributes
    ----------
    noise : {"held-out", "sampled"}
        "sampled" draws the noise precision given the rows, which is exact, and at ranks that can follow every entry
        ends at no noise. "held-out" takes it, in the burn-in, from a tenth of the entries that all chains leave out
        until then (see `tensorcep.cp.gibbs.held_out`); with fewer than 500 entries, with censored ones or without a
        burn-in it is "sampled".
    """

    noise: str = "held-out"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("noise", self.noise, ("held-out", "sampled"))


@dataclass(frozen=True)
class PGGibbsOptions(SamplerOptions):
    """Settings of `SamplerOptions`, and for counts those of the dispersion.

    Attributes
    ----------
    dispersion_prior : tuple of float
        Shape and rate of the Gamma prior of r.
    dispersion_mode : int or None
        The mode whose rows have a dispersion each; None for one that all entries share.
    """

    dispersion_prior: tuple[float, float] = (1.0, 0.1)
    dispersion_mode: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_parameter("dispersion", self.dispersion_prior, self.dispersion_mode)
