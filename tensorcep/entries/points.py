"""Published points with two labels; `tensorcep.datasets` has these functions too."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.checks import check_choice, check_int
from tensorcep.entries.download import fetch, matlab

N_FOLDS = 5
# name -> (file, the label that is 1)
GP_FILES = {"ionosphere": ("gp/ionosphere.data", "g"), "sonar": ("gp/sonar.all-data", "M")}
UCI_NAMES = ("australian", "breast", "crabs", "ionos", "pima", "sonar")
LINKS = ("probit", "logistic")


class Points(NamedTuple):
    """Points (n, d) float64 with labels 0 and 1, (n,) int64."""

    X: np.ndarray
    y: np.ndarray


class PointsFold(NamedTuple):
    """Points to train on and points to test on."""

    train: Points
    test: Points


class Simulation(NamedTuple):
    """Simulated regression data, and mean (d,) and covariance (d, d) of the weights' posterior by a long NUTS run."""

    train: Points
    test: Points
    mean: np.ndarray
    cov: np.ndarray


def load_gp(name: str) -> Points:
    """Load points with two labels: "ionosphere", 351 x 34 (1: a good return), or "sonar", 208 x 60 (1: a mine).

    The second column of ionosphere is 0 throughout. Errors are those of `load_alog`.

    Source: UCI machine learning repository; the files are those of Zhang, Walder, Bonilla, Rizoiu, Xie (2020),
    Quantile propagation for Wasserstein-approximate Gaussian processes.
    """
    file, positive = GP_FILES[check_choice("name", name, GP_FILES)]
    table = np.loadtxt(fetch(file), delimiter=",", dtype=str)
    return Points(table[:, :-1].astype(np.float64), (table[:, -1] == positive).astype(np.int64))


def load_uci(name: str, link: str, fold: int) -> PointsFold:
    """Load one half-half split of a data set of the CEP paper: standardised features, factors as one column per level.

    Parameters
    ----------
    name : {"australian", "breast", "crabs", "ionos", "pima", "sonar"}
    link : {"probit", "logistic"}
        Each model has splits of its own.
    fold : int
        1 to 5.

    Returns
    -------
    PointsFold

    Raises
    ------
    FileNotFoundError, ValueError
        As in `load_alog`.

    Source: UCI machine learning repository; the splits are those of Wang and Zhe (2019), Conditional expectation
    propagation. The sizes differ from those that the paper prints.
    """
    check_choice("name", name, UCI_NAMES)
    check_choice("link", link, LINKS)
    data = matlab(f"uci/{link}/{name}/nfold-{check_int('fold', fold, maximum=N_FOLDS)}.mat")
    return PointsFold(_points(data["train"]), _points(data["test"]))


def load_simulation(name: str) -> Simulation:
    """Load simulated data of the CEP paper, 5,000 + 5,000 points with 4 features; errors are those of `load_alog`.

    `name` is "probit-1", "probit-2", "logistic-1" or "logistic-2"; the weights of the second sets are more correlated.

    Source: Wang and Zhe (2019), Conditional expectation propagation.
    """
    check_choice("name", name, [f"{link}-{k}" for link in LINKS for k in (1, 2)])
    data = matlab(f"simulation/{name}.mat")
    return Simulation(_points(data["train"]), _points(data["test"]), data["ts_mean"], data["ts_var"])


def _points(struct: Any) -> Points:
    return Points(np.ascontiguousarray(struct.x, dtype=np.float64), np.asarray(struct.y).astype(np.int64))
