"""Bayesian probit and logistic regression."""

from __future__ import annotations

from tensorcep.linear.glm import BaseBayesianGLM

_DOCUMENTATION = """{model} with Gaussian priors.

    Parameters
    ----------
    method : str or record of settings, default="ep"
        "ep" (expectation propagation with a full covariance, O(n d^2) a sweep), factorised methods at a cost in
        proportion to the non-zeros of X: "ep-factorized", "cep1", "cep2" (conditional EP), "lp" (Laplace propagation)
        and "vb" (mean-field variational Bayes); or "is" (importance sampling around EP's posterior). A method's own
        settings come with it, as in ``ConditionalEP(order=2, damping=0.5)``; see `tensorcep.linear.settings`.
    prior_scale : float or "evidence", default=1.0
        Prior standard deviation of a weight. "evidence" learns it from the data: "ep" and "is" maximise EP's log
        evidence, the others take steps of EM in their sweeps.
    fit_intercept : bool, default=True
    intercept_scale : float, default=10.0
        Prior standard deviation of the intercept, which is never learned.
    max_iter : int, default=2000
        Largest number of sweeps.
    tol : float, default=1e-4
        Stop when a whole, undamped sweep would move no weight by more than this many posterior standard deviations.
    n_jobs : int, optional
        Threads; -1 uses all processors. The result does not depend on it.
    random_state : int, RandomState, Generator or None, default=0
        For "is" only.

    Attributes
    ----------
    classes_ : ndarray (2,)
    coef_, coef_std_ : ndarray (1, n_features)
        Posterior mean and standard deviation of the weights. Factorised EP, CEP and LP give 1 / sqrt(precision), which
        is less than the marginal standard deviation where weights are correlated; "vb" gives less still.
    intercept_, intercept_std_ : ndarray (1,)
    prior_scale_ : float
    log_evidence_ : float
        Log evidence of "ep", "ep-factorized" (EP's estimate), "is" (unbiased on the scale of the evidence) and "vb" (a
        lower bound); the other methods have none. After partial_fit that of the last batch given those before.
    n_iter_, converged_ : int, bool
    trace_ : dict of ndarray
        Change and seconds of every sweep.

    References
    ----------
    Wang and Zhe, Conditional Expectation Propagation, sec. 5.1. {reference}

    Examples
    --------
    >>> from tensorcep import {name}
    >>> model = {name}().fit([[-2.0], [-1.0], [0.5], [1.0], [2.0]], [0, 0, 1, 0, 1])
    >>> model.predict([[-3.0], [3.0]]).tolist(), model.coef_std_.shape
    ([0, 1], (1, 1))
    """


class BayesianProbitRegression(BaseBayesianGLM):
    __doc__ = _DOCUMENTATION.format(
        name="BayesianProbitRegression",
        model="Bayesian probit regression: P(y = 1 | x) = Phi(x'w + b)",
        reference="Minka (2001), Expectation propagation for approximate Bayesian\n    inference.",
    )
    _link = "probit"


class BayesianLogisticRegression(BaseBayesianGLM):
    __doc__ = _DOCUMENTATION.format(
        name="BayesianLogisticRegression",
        model="Bayesian logistic regression: P(y = 1 | x) = 1 / (1 + exp(-x'w - b))",
        reference="Jaakkola and Jordan (2000), Bayesian parameter\n    estimation via variational methods.",
    )
    _link = "logit"
