"""How far a fit of the CP model is to be believed: a record of plain values that prints as a short table."""

from __future__ import annotations

from typing import NamedTuple

from tensorcep.core.diagnostics import THRESHOLDS
from tensorcep.cp.methods import methods_with

# Cells at which more than this share have an R-hat above ALIKE, while the chains' disagreement is more than the second
# share of the variance of a new observation: then another run may well predict otherwise.
ALIKE, UNLIKE_CELLS, UNLIKE_VARIANCE = 1.1, 0.1, 0.1
# So few independent draws leave an error in predictions of a third of the posterior's standard deviation.
FEWEST_DRAWS = 10.0

NOISE_SOURCES = {"held-out": "from held-out entries", "sampled": "sampled"}
NOISE_SOURCES |= {"approximate": "of the approximate posterior", "point": "a point estimate"}


class Diagnostics(NamedTuple):
    """How far a fit is to be believed. Printed, it is a short table. None stands for what a method does not have.

    Attributes
    ----------
    method : str
    n_iter, converged : int, bool
        As of the result; a sampler has no tolerance to converge to.
    weights : dict of str to float
        What each quick fit and each chain counts, by name: "pilot: all columns", "pilot: cp", "pilot: main", "chain 0",
        ... Empty without stacking.
    n_chains : int
        Chains that had draws at the end; 0 where there are none.
    r_hat : float or None
        Largest rank-normalised split R-hat of the latent values of at most 1,000 cells: entries that were left out in
        the burn-in, or, where none were, training entries. All draws of every chain count, whatever its weight.
    above_1_01, above_1_1 : float or None
        Share of these cells whose R-hat is larger.
    effective_size, least_effective_size : float or None
        Median and minimum over these cells of the effective number of independent draws (bulk).
    disagreement : float or None
        Share of the variance of a new observation of these cells that lies between the (halves of the) chains.
    score, constant_score : float or None
        Mean log predictive density of an entry by the fit, and by one law for all entries that is fitted to the same
        training values: a Gaussian (where the fit's noise is what entries left out say, with tails as they say of it,
        too), the share of ones, Poisson or negative-binomial counts of one mean.
    gain_error : float or None
        Standard error of the difference of both.
    explained, explained_error : float or None
        Share of the squared error of a constant that the fit's means take away from real values that were held out, and
        its standard error; below 0 they are farther from them than it is. None where values are at limits, or noise
        differs.
    n_held_out : int
        Entries left out in the burn-in, of which the scores are; the weights were chosen to predict them, which adds at
        most about one unit of log density per weight to their sum. Of methods that pass messages from a quick fit on,
        entries that a fit tried beforehand was not given, and its scores. 0: scores are of (at most 1,000) training
        entries, which a fit may follow too closely.
    quick_score : float or None
        Mean log predictive density of the same entries by the quick mean-field fit that the method started from, where
        the method falls short of it beyond chance.
    noise_sd, noise_sd_error : float or None
        Posterior mean and standard deviation of the noise's standard deviation.
    noise_source : {"held-out", "sampled", "approximate", "point"} or None
        "held-out": a sampler took it from the entries left out, n of N; it then knows it as n entries tell it, less
        well than the exact posterior by a factor of about sqrt(N / n). "sampled": drawn given the factors.
        "approximate": the posterior of a deterministic method. "point": an estimate without a posterior.
    noise_half : float or None
        Half of all new observations are no farther than this from their latent values, where the entries left out say
        that their noise is not normal; None where it is (then 0.674 standard deviations).
    unknown : float or None
        Share of the variance of latent values (over training entries, and given the data) that the fit says is not
        known, where the modes' posteriors are independent Gaussians: of deterministic methods, and where quick fits
        count half or more.
    narrow : bool
        Whether this share is so large that the intervals are known to be too narrow: see
        `tensorcep.cp.fit.diagnostics.NARROW`.
    widened : float or None
        What the mean variance of latent values is then multiplied by, so that intervals are as wide as entries left out
        tell how far the fit is to be believed; None where nothing could tell.
    n_widened_by : int
        These entries.

    Examples
    --------
    >>> from tensorcep import CPRegressor, simulate_cp
    >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
    >>> found = CPRegressor(1, method="vmp", random_state=0).fit(tensor).diagnostics_
    >>> found.method, found.converged, found.score > found.constant_score
    ('vmp', True, True)
    """

    method: str
    n_iter: int
    converged: bool
    weights: dict[str, float]
    n_chains: int = 0
    r_hat: float | None = None
    above_1_01: float | None = None
    above_1_1: float | None = None
    effective_size: float | None = None
    least_effective_size: float | None = None
    disagreement: float | None = None
    score: float | None = None
    constant_score: float | None = None
    gain_error: float | None = None
    n_held_out: int = 0
    noise_sd: float | None = None
    noise_sd_error: float | None = None
    noise_source: str | None = None
    unknown: float | None = None
    narrow: bool = False
    noise_half: float | None = None
    quick_score: float | None = None
    explained: float | None = None
    explained_error: float | None = None
    widened: float | None = None
    n_widened_by: int = 0

    def __str__(self) -> str:
        return "\n".join(f"{name:<12}{text}" for name, text in self.lines().items())

    def lines(self) -> dict[str, str]:
        """What the table says, by the names of its lines."""
        ending = "of every chain" if self.n_chains else "converged" if self.converged else "not converged"
        if self.weights and not self.n_chains:
            ending = "of chains that then counted for nothing"
        lines = {"sweeps": f"{self.n_iter} {ending} ({self.method})"}
        if None not in (self.r_hat, self.above_1_01, self.above_1_1):
            shares = f"{self.above_1_01:.0%} of the cells above 1.01, {self.above_1_1:.0%} above 1.1"
            sizes = f"{self.effective_size:.0f} independent draws, at least {self.least_effective_size:.0f}"
            lines["chains"] = f"R-hat at most {self.r_hat:.2f}, {shares}; as good as {sizes}"
        if self.weights:
            lines["weights"] = ", ".join(f"{name} {weight:.2f}" for name, weight in self.weights.items())
        if None not in (self.score, self.constant_score):
            what = f"{self.n_held_out} held-out entries" if self.n_held_out else "training entries"
            lines["score"] = f"{self.score:.4g}, a constant {self.constant_score:.4g} (mean log score of {what})"
            if self.explained is not None:
                lines["score"] += f"; {self.explained:.0%} of their variance explained"
        if self.noise_sd is not None:
            error = "" if self.noise_sd_error is None else f" +- {self.noise_sd_error:.2g}"
            half = "" if self.noise_half is None else f", not normal: half of it is within {self.noise_half:.2g}"
            source = NOISE_SOURCES[str(self.noise_source)]
            lines["noise"] = f"standard deviation {self.noise_sd:.4g}{error}, {source}{half}"
        if self.narrow:
            why = "much of the latent values is unknown, and the method takes the modes for independent"
            lines["intervals"] = f"too narrow: {why}"
            if self.widened is not None:
                of = f"latent variances times {self.widened:.2g}, by {self.n_widened_by} entries left out"
                lines["intervals"] = f"{of}: {why}"
        return lines

    def complaints(self, max_iter: int) -> list[str]:
        """What a user should know of a fit of at most so many sweeps, and do; nothing for a healthy fit."""
        said = []
        unlike = self.r_hat is not None and (self.above_1_1 or 0.0) > UNLIKE_CELLS
        if unlike and (self.disagreement or 0.0) > UNLIKE_VARIANCE:
            said.append(
                f"the chains of {self.method} disagree: R-hat is above 1.1 at {self.above_1_1:.0%} of the cells, and "
                f"{self.disagreement:.0%} of the variance of a new observation lies between them; increase max_iter="
                f"{max_iter}, lower the rank, or take the mean of fits with several seeds."
            )
        elif self.n_chains and (self.effective_size is None or self.effective_size < FEWEST_DRAWS):
            size = "" if self.effective_size is None else f"as good as {self.effective_size:.1f} independent ones"
            size = size or "too few to judge"
            said.append(f"{self.method} was cut short: its draws are {size}; increase max_iter={max_iter}.")
        of_score = self._complaint_of_score()
        return [*said, of_score] if of_score else said

    def _complaint_of_score(self) -> str:
        if self.score is None or self.constant_score is None or self.gain_error is None:
            return ""
        # where a fit tried beforehand tells, a gain that few entries do not prove is no proof against it; but one of
        # less than a nat for all of them is what a constant may gain by another spread
        tried = self.n_held_out and not self.n_chains and not self.weights
        weights = [weight for name, weight in self.weights.items() if weight > 0.0 and name != "constant"]
        equal = not weights or max(weights) == min(weights)
        # weights that were chosen by these entries are likely to add to their score (Akaike)
        needed = self.gain_error + (0.0 if equal or not self.n_held_out else (len(weights) - 1) / self.n_held_out)
        if tried:
            needed = min(max(self.gain_error, 1.0 / self.n_held_out), THRESHOLDS.least_difference)
        better, explained = self.score - self.constant_score >= needed, self.explained
        farther = explained is not None and explained + (self.explained_error or 0.0) <= 0.0
        if better and not farther and 1.0 - self.weights.get("constant", 0.0) > THRESHOLDS.least_found:
            if self.quick_score is None:
                return ""
            quick = methods_with("quick")
            other = "" if self.method in quick else f"method={' or '.join(map(repr, quick))}, or "
            return (
                f"{self.method} loses some of what a quick mean-field fit finds: mean log score of entries that were "
                f"held out {self.score:.4g} against {self.quick_score:.4g}; take {other}another rank."
            )
        which = "entries that were held out" if self.n_held_out else "its training entries"
        scores = f"mean log score {self.score:.4g} against {self.constant_score:.4g}"
        if self.score < self.constant_score and (explained or 0.0) > THRESHOLDS.least_explained:
            return (
                f"{self.method} explains {explained:.0%} of the variance of {which}, but takes noise for too small: "
                f"{scores} of a constant; do not trust its intervals, or take another method."
            )
        how = f"{explained:.0%} of their variance is explained" if better and explained is not None else scores
        return (
            f"nothing but the mean was found: {self.method} predicts {which} no better than a constant does, chance "
            f"aside ({how}); if there is more to find, it takes more entries per row, another rank or another method."
        )
