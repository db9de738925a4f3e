"""Text that the docstrings of the CP estimators share."""

from __future__ import annotations

from typing import Any

_PARAMETERS = """rank : int or "auto", default="auto"
        Number of components R; "auto" is the mean number of entries per row, within 3 and 20,
        and no more than the second largest mode has rows; in streams 8.
    method : str, default="auto"
        Inference method, one of `tensorcep.cp.methods.METHODS` that fits the likelihood. "auto" is "gibbs" for real
        values, "pg-gibbs" for labels, as long as the draws fit into about 1 GB, and "cep" otherwise, in streams
        (`partial_fit`), and where a parameter of CEP alone is set (schedule, moments, order, damping, dtype, revisit).
    prior_scale : float or "auto", default="auto"
        Prior standard deviation of a factor element; "auto" {auto}.
    prior_mean : float or "uniform", default="uniform"
        Prior mean of a factor element; "uniform" draws one from U(0, 1) times the scale for every element, and keeps
        it: the prior of the CEP paper, whose positive mean acts as an intercept.
    prior : {{"auto", "fixed", "learned", "ard"}} or Prior, default="auto"
        "fixed" is the prior of the two parameters above. Others are inferred: "learned", mean and covariance of the
        rows of each mode (Normal-Wishart), "ard", one precision per component (Gamma), around which prior_scale and
        prior_mean ("uniform" is then 0) are what to expect. "auto" is "learned" for the methods that can, but "fixed"
        in streams, which would learn it from the first batch alone. A Prior holds means and precisions per mode or per
        row.
    interactions : {{"auto", "cp", "main+cp", "pairwise", "all"}} or dict, default="auto"
        What the latent value is a sum of: the CP component ("cp"), one number per row of each mode and an intercept
        ("main"), a matrix factorisation for each pair of modes ("pair"). "pairwise" is main and pair, "all" all three.
        Each pair and the CP component have `rank` columns; a dict gives them explicitly, for example
        ``{{"main": 1, "pair": 3, "cp": 8}}``. "auto" is all three, with fewer columns for the pairs, for samplers and
        "wopt"; for "cep" with three modes or more "cp" for real values and "pairwise" for labels; otherwise "main+cp";
        and "cp" in streams, and with a Prior or an `init` of one's own. prior_mean ("uniform" is then 0) is
        that of the products.
    schedule : {{"modewise", "parallel"}}, default="modewise"
        Update mode after mode, or all messages from one state (the paper's; needs damping and more sweeps).
    moments : {{"cavity", "posterior"}}, default="cavity"
        Where the moments of the other modes come from.
    order : {{1, 2}}, default=1
        Order of the Taylor approximation of the expected conditional moments.
    damping : float in [0, 1), "auto" or "adaptive", default="auto"
        Fraction of the old message kept in an update; "auto" is 0.5, and for real values, modewise, 0.
    anneal : int or "auto", default="auto"
        Sweeps at the start in which every message counts ten times, so that the fit does not settle near zero; at most
        half of max_iter. The tolerance applies after them. "auto" is 15 for real values and 40 otherwise, with
        prior="learned" 5 (15 with values at a lower limit) and 15.
    max_iter : int or "auto", default="auto"
        Largest number of sweeps; of a sampler the number for every chain. "auto" is 200, and for samplers between 150
        and 1000, fewer the more entries there are.
    tol : float, default=3e-3
        Stop when the latent means of the training entries change by less than this fraction of their size.
    init : {{"random", "prior"}} or list of arrays (n_k, R), default="random"
        Row means to start from.
    n_init : int, default=3
        Random starts. Each gets the first sweeps (for cep the `anneal` ones); the one that then fits the training
        entries best goes on. With another `init`, or a method without such a phase, there is one start.
    n_ensemble : int or "auto", default="auto"
        Fits from different random starts (each the best of `n_init`) whose equally weighted mixture is the posterior.
        Every fit explains the data in its own way: their mean predicts better than any of them, and intervals hold what
        they disagree in. Factors, components and streams are those of the fit with the best train score. "auto" is 1,
        but for `fit` by "cep" with a learned prior up to 4, fewer the more entries there are.
    shape : tuple of int, optional
        Rows of each mode; by default those of the tensor, or the largest index plus one.
    unknown : {{"prior", "error"}}, default="prior"
        What to predict for rows without training entries.
    dtype : {{"float64", "float32"}}, default="float64"
        Storage of the messages, K * (R*(R+1)/2 + R) numbers per entry. Arithmetic is float64.
    method_options : dict, optional
        Settings that only this method has, by name; a wrong name is answered with those that exist.
    forget : float in [0, 1), default=0
        For streams that drift: the share of its information that a row loses in every batch (or unit of time, see
        `partial_fit`), by going back towards its prior.
    revisit : int, default=0
        For streams with method="cep": the size of a random sample of past entries, which is learned again with every
        batch; it and its messages, K * (R*(R+1)/2 + R) numbers per entry, are part of the model. 0 keeps none.
    n_jobs : int, optional
        Threads; -1 uses all processors. The result does not depend on it.
    random_state : int, RandomState, Generator or None
    verbose : int, default=0
        1 shows a progress bar.
    callbacks : callable or list of callables, optional
        Called as ``callback(sweep, info, state)`` after each sweep; a true value stops the fit."""

_ATTRIBUTES = """factors_ : list of ndarray (n_k, R)
        Posterior means of the factors, in mode order.
    factor_covs_ : list of ndarray (n_k, R, R)
        Posterior covariances of the rows.
    method_, rank_, prior_, interactions_, max_iter_ : str, int, str, dict, int
        What the parameters of these names came to.
    n_iter_, converged_ : int, bool
    trace_ : dict of ndarray
        Per sweep: change, noise_precision, skipped, shrunk, train_score, lower_bound, seconds; with n_ensemble fit
        after fit, the best first, and the number of the member. n_iter_ is then the sum.
    lower_bound_ : float
        Lower bound of the log evidence after the last sweep, for methods that compute one (vmp, pg-vb). To compare
        ranks by it take prior="learned": under a fixed prior it favours too many components.
    n_samples_seen_, n_batches_ : int
        Entries and batches learned since the last `fit`, which counts as a batch.
    n_revisited_, n_revisits_skipped_ : int
        With `revisit`: times that a past entry was learned again, and that it was not because without its messages
        the posterior of a row would hardly be a Gaussian.
    column_modes_ : list of tuple of int
        The modes that each column of the factors belongs to; in the others it is 1.
    relevance_ : ndarray (R,)
        Share of each component in the mean square of the latent values.
    n_components_ : int
        Components that are not switched off: those with at least 0.001 of the largest share. With prior="ard" and
        more components than needed an estimate of the rank; `tensorcep.select_rank` is the other one.
    shape_ : tuple of int
    labels_ : tuple of Labels or None
    posterior_ : Posterior, Mixture, Draws or PointEstimate"""


def document(auto: str) -> Any:
    """Fill the shared parts of the class docstrings."""

    def fill(cls: type) -> type:
        cls.__doc__ = (cls.__doc__ or "").replace("<parameters>", _PARAMETERS.format(auto=auto))
        cls.__doc__ = cls.__doc__.replace("<attributes>", _ATTRIBUTES)
        return cls

    return fill
