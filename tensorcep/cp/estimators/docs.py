"""Text that the docstrings of the CP estimators share."""

from __future__ import annotations

from typing import Any

from tensorcep.core.examples import filled, with_examples
from tensorcep.cp.estimators.examples import EXAMPLES

_PARAMETERS = """rank : int or "auto", default="auto"
        How many components the CP part has. "auto" is the mean number of entries per row, within 3 and 20, and no more
        than the second largest mode has rows; in streams 8, with a Series or a Graph 8 at least. Of up to 25,000
        entries of three or more modes 20 become 40 where rows have as many entries and a quick fit with 40 predicts
        entries that it was not given better.
    method : str or record of settings, default="auto"
        How to infer: "cep", "gibbs", "pg-gibbs", "vmp", "pg-vb", "laplace", "wopt", or a record of one of them from
        `tensorcep.methods`, which sets what belongs to that method alone: ``CEP(order=2, damping=0.5)``. "auto" is
        "gibbs" for real values and levels, "pg-gibbs" for labels, "cep" for counts, in streams (`partial_fit`), and
        with `revisit`. A fit is kept within 0.5 GB and 4 kB per entry (at most 12 GB): where that takes it, "auto"
        keeps fewer draws, then float32 ones, takes a lower rank, then "vmp" or "pg-vb", or CEP(messages="averaged").
    prior : {{"auto", "fixed", "learned", "ard"}}, Prior, or dict of Features, Series or Graph by mode, default="auto"
        What is known of the factors beforehand. "fixed": the scale and mean below. "learned": mean and covariance of
        the rows of each mode are inferred (Normal-Wishart); "ard": one precision per component (Gamma), so that
        components that are not needed switch off; both around the scale and mean below. "auto" is "learned" for the
        methods that can, but "fixed" in streams, which would learn it from the first batch alone. A Prior holds means
        and precisions per mode or per row. ``{{"item": Features(items)}}`` is "learned", and the means of the rows of
        that mode, by name or number, depend on their features (`tensorcep.Features`): for all methods but "wopt",
        and in streams, which go on learning how. Rows that only features name are predicted as rows of the model.
        ``{{"day": Series(period="7D")}}``: the rows of that mode drift along their labels (`tensorcep.Series`), with
        the same methods, and in streams, which go on learning how; rows between and beyond those of the fit are
        predicted from their neighbours. With ``Series(local="park")`` every park deviates along the days by itself,
        too, in `fit` alone. ``{{"sensor": Graph(edges)}}``: rows that are neighbours are alike (`tensorcep.Graph`),
        with the same methods, and in streams; rows that the graph alone names become rows of the model, too.
    prior_scale : float or "auto", default="auto"
        Standard deviation of a factor element under the prior; "auto" {auto}.
    prior_mean : float or "uniform", default="uniform"
        Mean of a factor element under the prior. "uniform" draws one from U(0, 1) times the scale for every element,
        and keeps it: the prior of the CEP paper, whose positive mean acts as an intercept. Where the prior is learned,
        or with interactions, it is 0.
    interactions : {{"auto", "cp", "main+cp", "pairwise", "all"}} or dict, default="auto"
        What an entry's latent value is a sum of: the CP part ("cp"), one number per row of each mode and an intercept
        ("main"), a matrix factorisation for each pair of modes ("pair"). "pairwise" is main and pair, "all" all three.
        Each pair and the CP part have `rank` columns; a dict gives them explicitly, for example
        ``{{"main": 1, "pair": 3, "cp": 8}}``. "auto" is all three, with fewer columns for the pairs, for samplers and
        "wopt"; for "cep" with three modes or more "cp" for real values and "pairwise" for labels, or "main+cp" where a
        quick fit predicts entries left out better so; otherwise "main+cp"; and "cp" in streams, and with a Prior or an
        `init` of one's own.
    max_iter : int or "auto", default="auto"
        The most sweeps; of a sampler the sweeps of every chain. "auto" is 200, and for samplers between 150 and 1000,
        fewest where there are many entries.
    tol : float, default=3e-3
        Stop when a sweep changes the latent means of the training entries by less than this share of their size.
    init : {{"auto", "random", "prior"}} or list of arrays (n_k, R), default="auto"
        The factors to start from. "auto": the first start comes from the spectra of the data, others are random;
        under the prior of the CEP paper (see `prior_mean`) and under a Prior all are random. Where the prior is
        learned, a quick mean-field fit, the pilot, goes on from the spectra. Samplers have pilots by default, which end
        where entries that all left out gain no more: the first chain starts at the best one, and the draws are those of
        chains and pilots, as many of each as these entries say; where no chain counts, sampling ends with the burn-in.
        From 50,000 entries on chains draw the columns alone that the best pilot uses, and go on after the burn-in where
        they add 0.002 to the pilots' mean log score. "random": every start is random, and there are no pilots. "prior":
        the prior's means.
    shape : tuple of int, optional
        Rows of each mode; by default those of the tensor, or the largest index plus one.
    unknown : {{"prior", "error"}}, default="prior"
        What to predict for rows without training entries and features: what the prior says, or nothing.
    forget : float in [0, 1), default=0
        For streams that drift: the share of its information that a row loses in every batch (or unit of time, see
        `partial_fit`), by going back towards its prior. Rows of a Series forget as their drift says instead,
        those of a Graph nothing.
    revisit : int, default=0
        For streams by "cep": how many past entries, a random sample, are learned again with every batch. They and their
        messages, K * (R*(R+1)/2 + R) numbers per entry, are part of the model.
    n_jobs : int, optional
        Threads; -1 uses all processors. The result does not depend on it.
    random_state : int, RandomState, Generator or None
        Where random starts and draws come from; an int gives the same result every time.
    verbose : int, default=0
        1 shows a progress bar.
    callbacks : callable or list of callables, optional
        Called as ``callback(sweep, info, state)`` after each sweep; a true value stops the fit, which then keeps what
        it has. An exception ends the fit and leaves the model as it was."""

_ATTRIBUTES = """factors_ : list of ndarray (n_k, R)
        Posterior means of the factors, in mode order; the sum over the columns of their products is the latent value.
        Of a sampler those of its draws after their alignment: the strongest component of every part first, its scale
        shared evenly by its modes, pairs of modes by singular vectors, main effects and pairs centred (the constant is
        in the first mode's main effect). Of several fits (`n_ensemble`) those of the best one.
    factor_covs_ : list of ndarray (n_k, R, R)
        Posterior covariances of the rows.
    weights_ : ndarray (R,)
        Sizes of the components when their modes have norm 1, the largest first, as in `to_tensorly`.
    congruence_ : ndarray (R,)
        How alike the aligned draws' components are: their mean cosine with the reference, over the largest group of
        like draws, of which `factors_` is made; 1 for methods without draws.
    method_, rank_, prior_, interactions_, max_iter_ : str, int, str, dict, int
        What the parameters of these names came to.
    n_iter_, converged_ : int, bool
    trace_ : dict of ndarray
        Per sweep: change, noise_precision, skipped, shrunk, train_score, lower_bound, seconds; of a mixture fit
        after fit, the best first, and the number of the member. `n_iter_` is then the sum.
    diagnostics_ : Diagnostics or None
        How far the fit is to be believed; printed, it is a short table: R-hat and independent draws of a sampler's
        chains, what each chain and pilot counts, log scores of the fit and of a constant, the noise and how it was
        found, and whether intervals are too narrow (`tensorcep.cp.diagnostics.Diagnostics`). `fit` warns where chains
        disagree or are too short, and where nothing but the mean was found. None after `partial_fit`.
    lower_bound_ : float
        Lower bound of the log evidence after the last sweep, for methods that compute one (vmp, pg-vb). To compare
        ranks by it take prior="learned": under a fixed prior it favours too many components.
    forgotten_ : list of dict
        A record of each `forget_entries` and `forget_rows` since the last `fit`: entries, rows (by mode), how, sweeps,
        entries_left.
    n_samples_seen_, n_batches_ : int
        Entries and batches learned since the last `fit`, which counts as a batch.
    n_revisited_, n_revisits_skipped_ : int
        With `revisit`: times that a past entry was learned again, and that it was not because without its messages
        the posterior of a row would hardly be a Gaussian.
    column_modes_ : list of tuple of int
        The modes that each column of the factors belongs to; in the others it is 1.
    feature_effects_ : DataFrame
        Of a fit with `Features`: how columns of `factors_` depend on them; mode, feature, component, mean, sd, the
        surest first.
    relevance_ : ndarray (R,)
        Share of each component in the mean square of the latent values; of a main effect, in its variance.
    n_components_ : int
        Components that are not switched off: those with at least 0.001 of the largest share, main effects left
        out. With prior="ard" and more components than needed an estimate of the rank; `tensorcep.select_rank` is the
        other one.
    shape_ : tuple of int
    labels_ : tuple of Labels or None
    posterior_ : Posterior, Mixture, Draws or PointEstimate"""


def document(auto: str) -> Any:
    """Fill the shared parts of the class docstrings."""

    def fill(cls: type) -> type:
        cls.__doc__ = filled(cls, {"<parameters>": _PARAMETERS.format(auto=auto), "<attributes>": _ATTRIBUTES})
        for part in cls.__mro__:
            with_examples(EXAMPLES)(part)
        return cls

    return fill
