"""The likelihoods of one tensor in the shell: their estimators, and what only some of them have."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from tensorcep.cli._numbers import limit_of, number_or_auto
from tensorcep.core.checks import check_range, fail_value

# From more different values on they are no levels.
MOST_LEVELS = 20

# likelihood -> (estimator, the parameter that names the likelihood in it)
LIKELIHOODS = {
    "gaussian": ("CPRegressor", None),
    "probit": ("CPClassifier", "link"),
    "logit": ("CPClassifier", "link"),
    "counts": ("CPCountRegressor", "likelihood"),
    "poisson": ("CPCountRegressor", "likelihood"),
    "negbinomial": ("CPCountRegressor", "likelihood"),
    "binomial": ("CPCountRegressor", "likelihood"),
    "ordinal": ("CPOrdinalClassifier", None),
}


def add_special_options(group: Any) -> None:
    """Add --lower-limit, --upper-limit, --power, --zero-rate and --zero-inflation, which only some likelihoods have."""
    group.add_argument(
        "--lower-limit",
        type=limit_of,
        default="auto",
        metavar="L",
        help="for real values: those at or below L are censored there; auto: at the least value if it is a spike; or "
        "none (default: auto)",
    )
    group.add_argument(
        "--upper-limit", type=float, metavar="U", help="for real values: those at or above U are censored there"
    )
    group.add_argument(
        "--power",
        type=number_or_auto,
        metavar="P",
        help="for positive real values: the power of them that is Gaussian, 0 to 1, 0 for the logarithm, or auto "
        "(default: 1, or as auto where all are positive and very uneven)",
    )
    group.add_argument(
        "--zero-rate",
        type=number_or_auto,
        metavar="W",
        help="for labels: share of the population's zeros that DATA holds, where they were sampled, or auto (from "
        ".npz files); probabilities are then those of the population (default: 1)",
    )
    group.add_argument(
        "--zero-inflation",
        action="store_true",
        help="for poisson, negbinomial and counts: a share of the cells, which is learned, is 0 whatever its mean",
    )


def special_params(args: argparse.Namespace) -> dict[str, Any]:
    """The parameters that only the estimator of this likelihood has.

    Raises
    ------
    ValueError
        If one is not allowed, or is given for another likelihood.
    """
    name, parameter = LIKELIHOODS[args.likelihood or "gaussian"]
    params: dict[str, Any] = {} if parameter is None else {parameter: args.likelihood}
    if args.likelihood == "counts":
        params = {}
    noise = getattr(args, "noise", "one")
    if name == "CPRegressor":
        params["lower_limit"] = args.lower_limit
        params |= {} if args.upper_limit is None else {"upper_limit": args.upper_limit}
        params |= {} if args.power is None else {"power": args.power}
        params |= {} if noise == "one" else {"noise": int(noise) if noise.isdecimal() else noise}
    elif isinstance(args.lower_limit, float) or args.upper_limit is not None:
        side = "upper" if args.upper_limit is not None else "lower"
        fail_value(f"--{side}-limit is for real values; got --likelihood {args.likelihood}; leave it out.")
    elif args.power is not None:
        fail_value(f"--power is for real values; got --likelihood {args.likelihood}; leave it out.")
    if name != "CPRegressor" and noise != "one":
        fail_value(f"--noise is for real values; got --likelihood {args.likelihood}; leave it out.")
    if getattr(args, "zero_inflation", False):
        given = args.likelihood or "gaussian"
        if given not in ("counts", "poisson", "negbinomial"):
            fail_value(f"--zero-inflation is for counts; got --likelihood {given}; leave it out.")
        params["zero_inflation"] = True
    if args.zero_rate is None:
        return params
    if name != "CPClassifier":
        fail_value(f"--zero-rate is for labels; got --likelihood {args.likelihood or 'gaussian'}; leave it out.")
    if args.zero_rate != "auto":
        check_range("--zero-rate", args.zero_rate, 0.0, 1.0, include_low=False)
    return {**params, "zero_rate": args.zero_rate}


def default_likelihood(tensor: Any) -> str:
    """The default, and a hint where the values look like something else; files of any size are not looked at."""
    text = "gaussian (the default)"
    if not hasattr(tensor, "values"):
        return text
    y = tensor.values
    if ((y == 0) | (y == 1)).all():
        return f"{text}; every value is 0 or 1: for labels say --likelihood probit"
    if ((y >= 0) & (y == y.round())).all():
        levels = " and for levels such as stars --likelihood ordinal" if len(np.unique(y)) <= MOST_LEVELS else ""
        return f"{text}; every value is a whole number >= 0: for counts say --likelihood counts{levels}"
    return text
