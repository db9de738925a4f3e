"""Text that the docstrings of the CP estimators share."""

from __future__ import annotations

from typing import Any

from tensorcep.core.settings import fill_docstring

# Read by the shell, too, whose options these are.
PARAMETERS = """rank : int or "auto", default="auto"
        How many components the CP part has. "auto" is the mean number of entries per row, within 3 and 20, at most the
        rows of the second largest mode; in streams 8, with a Series or a Graph 8 at least. With three modes or more it
        is doubled, and doubled again, where entries left out ask for it, rows have as many entries, and N rank^2 is at
        most 4e7 (25,000 entries at rank 40). "cep" and "laplace" take no more than entries left out ask for (`rank_`).
    method : str or record of settings, default="auto"
        How to infer: "cep", "gibbs", "pg-gibbs", "vmp", "pg-vb", "laplace", "wopt", or a record of `tensorcep.methods`
        with what belongs to one of them alone: ``CEP(order=2, damping=0.5)``. "auto" is "gibbs" for real values,
        levels and up to 100,000 counts, "vmp" for more, "pg-gibbs" for labels, "cep" in streams and with `revisit`.
        Where a fit would need more than 0.5 GB and 4 kB per entry (at most 12 GB) "auto" is content with less, which
        `method_` and `rank_` tell.
    prior : {{"auto", "fixed", "learned", "ard"}}, Prior, or dict of Features, Series or Graph by mode, default="auto"
        What is known of the factors. "fixed": the scale and mean below. "learned": mean and covariance of the rows of
        each mode are inferred (Normal-Wishart). "ard": one precision per component (Gamma); components that are not
        needed switch off. "auto": "learned" for the methods that can, "fixed" in streams. A Prior holds means and
        precisions. ``{{"item": Features(items), "day": Series(period="7D"), "sensor": Graph(edges)}}`` says by mode
        what is known of its rows, and is "learned" else; for all methods but "wopt", and in streams. With
        ``Series(local="park")``, for all but "laplace" and "wopt", every park deviates along the days by itself.
    prior_scale : float or "auto", default="auto"
        Standard deviation of a factor element under the prior; "auto" {auto}.
    prior_mean : float or "uniform", default="uniform"
        Mean of a factor element under the fixed prior. "uniform" draws one from U(0, 1) times the scale for every
        element, as in the CEP paper, where it acts as an intercept; it is 0 with interactions.
    interactions : {{"auto", "cp", "main+cp", "pairwise", "all"}} or dict, default="auto"
        What a latent value is a sum of: the CP part ("cp"), an intercept and one number per row of each mode ("main"),
        a matrix factorisation for each pair of modes ("pair"). "pairwise" is main and pair, "all" all three; a dict
        gives their columns: ``{{"main": 1, "pair": 3, "cp": 8}}``. "auto" goes by method and data (`interactions_`);
        streams choose by entries left out while they keep their first ones.
    max_iter : int or "auto", default="auto"
        The most sweeps; of a sampler those of every chain. "auto" is 200, for samplers 150 to 1000, by their entries.
    tol : float, default=3e-3
        Stop when a sweep changes the latent means of the training entries by less than this share of their size.
    init : {{"auto", "random", "prior"}} or list of arrays (n_k, R), default="auto"
        The factors to start from. "auto": the spectra of the data, and random ones after the first; under a fixed prior
        of the CEP paper or a Prior all are random. Samplers add quick mean-field fits. "random": no start is from the
        data, and there are no such fits. "prior": the prior's means.
    shape : tuple of int, optional
        Rows of each mode; by default those of the tensor, or the largest index plus one.
    unknown : {{"prior", "error"}}, default="prior"
        What to predict for rows without training entries and features: what the prior says, or nothing.
    forget : float in [0, 1), default=0
        For streams that drift: the share of its information that a row loses in every batch (or unit of time, see
        `partial_fit`), by going back towards its prior. Rows of a Series forget as their drift says instead,
        those of a Graph nothing.
    revisit : int, default=0
        For streams by "cep": how many past entries, a random sample, are learned again with every batch.
    n_jobs : int, optional
        Threads; -1 uses all processors. The result does not depend on it.
    random_state : int, RandomState, Generator or None
        Where random starts and draws come from; an int gives the same result every time.
    verbose : int, default=0
        1 shows a progress bar.
    callbacks : callable or list of callables, optional
        Called as ``callback(sweep, info, state)`` after each sweep; a true value stops the fit, which keeps what it
        has. An exception ends the fit and leaves the model as it was."""

_ATTRIBUTES = """factors_, factor_covs_ : list of ndarray (n_k, R), list of ndarray (n_k, R, R)
        Posterior means and covariances of the rows, by mode; the sum over the columns of the factors' products is the
        latent value. Of a sampler those of its draws after alignment, the strongest component of every part first; of
        several fits (`n_ensemble`) those of the best one.
    weights_, relevance_, congruence_ : ndarray (R,)
        Of each component its size when its modes have norm 1; its share in the mean square of the latent values; and
        how alike the draws of it are (mean cosine; 1 for methods without draws).
    n_components_ : int
        Components that are not switched off: those with at least 0.001 of the largest share, main effects left out.
    column_modes_ : list of tuple of int
        The modes that each column of the factors belongs to; in the others it is 1.
    feature_effects_ : DataFrame
        How columns of `factors_` depend on `Features`: mode, feature, component, mean, sd, the surest first.
    method_, rank_, prior_, interactions_, max_iter_, shape_, labels_
        What the parameters of these names came to, and the labels of each mode or None.
    n_iter_, converged_, trace_ : int, bool, dict of ndarray
        Sweeps, whether the last changed less than `tol`, and of each its change, scores and seconds.
    diagnostics_ : Diagnostics or None
        How far the fit is to be believed, printed as a short table (`tensorcep.cp.fitted.diagnostics.Diagnostics`).
        `fit` warns where chains disagree or are too short, and where nothing but the mean was found. Of streams None,
        unless they warned that they gain nothing, or far less than a fit, and it is so still: then by entries predicted
        before they were learned.
    lower_bound_ : float
        Of the log evidence, from "vmp" and "pg-vb". To compare ranks by it take prior="learned".
    n_samples_seen_, n_batches_, n_revisited_, n_revisits_skipped_ : int
        Entries and batches learned since the last `fit`, which counts as a batch; entries learned again by `revisit`,
        and those that were not because without its messages the posterior of a row would hardly be a Gaussian.
    forgotten_ : list of dict
        A record of each `forget_entries` and `forget_rows` since the last `fit`.
    posterior_ : Posterior, Mixture, Draws or PointEstimate"""


def document(auto: str) -> Any:
    """Fill the shared parts of the class docstrings."""

    def fill(cls: type) -> type:
        fill_docstring(cls, {"<parameters>": PARAMETERS.format(auto=auto), "<attributes>": _ATTRIBUTES})
        return cls

    return fill
