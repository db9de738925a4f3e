"""Published points with two labels; `tensorcep.datasets` has these functions too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.checks import check_choice, check_file, check_int
from tensorcep.entries.datasets import N_FOLDS, fetch, matlab

# name -> (files, between commas or blanks, the label that is 1)
GP_FILES: dict[str, tuple[tuple[str, ...], str | None, str]] = {
    "ionosphere": (("gp/ionosphere.data",), ",", "g"),
    "sonar": (("gp/sonar.all-data",), ",", "M"),
    "cancer": (("gp/breast-cancer-wisconsin.data",), ",", "4"),
    "crabs": (("gp/crabs.dat",), None, "M"),
    "pima": (("gp/pima.tr", "gp/pima.te"), None, "Yes"),
    "pima-with-duplicates": (("gp/pima.tr", "gp/pima.tr2", "gp/pima.te"), None, "Yes"),
}
# British coal mines, 1851 to 1962: disasters with ten deaths or more, by year.
COAL_MINING = (
    "4541043406334026335453144155342522342132211113001011003103220111010100021000110233112111124200014000100000100101"
)
UCI_NAMES = ("australian", "breast", "crabs", "ionos", "pima", "sonar")
LINKS = ("probit", "logistic")


class Points(NamedTuple):
    """Points (n, d) float64 with labels 0 and 1, (n,) int64.

    Examples
    --------
    >>> from tensorcep import datasets
    >>> points = datasets.load_gp("crabs")  # doctest: +SKIP
    >>> points.X.shape, points.y.shape  # doctest: +SKIP
    ((200, 7), (200,))
    """

    X: np.ndarray
    y: np.ndarray


class PointsFold(NamedTuple):
    """Points to train on and points to test on.

    Examples
    --------
    >>> from tensorcep import datasets
    >>> fold = datasets.load_uci("crabs", "probit", 1)  # doctest: +SKIP
    >>> fold.train.X.shape[1] == fold.test.X.shape[1]  # doctest: +SKIP
    True
    """

    train: Points
    test: Points


class Simulation(NamedTuple):
    """Simulated regression data, and mean (d,) and covariance (d, d) of the weights' posterior by a long NUTS run.

    Examples
    --------
    >>> from tensorcep import datasets
    >>> data = datasets.load_simulation("probit-1")  # doctest: +SKIP
    >>> data.cov.shape == 2 * data.mean.shape  # doctest: +SKIP
    True
    """

    train: Points
    test: Points
    mean: np.ndarray
    cov: np.ndarray


def load_gp(name: str) -> Points:
    """Load points with two labels, those on which Gaussian process classifiers are compared.

    "ionosphere", 351 x 34 (1: a good return; the second column is 0 throughout), "sonar", 208 x 60 (1: a mine),
    "cancer", 683 x 9 (1: malignant; patients without a missing number), "crabs", 200 x 7 (1: male; the species, a
    running number and five lengths), "pima", 532 x 7 (1: diabetes), or "pima-with-duplicates", 732 x 7: the papers'
    set, in which 200 patients are there twice, so that folds of it share patients. Errors are those of `load_alog`.

    Source: UCI machine learning repository and MASS (Venables and Ripley); the files are those of Zhang, Walder,
    Bonilla, Rizoiu, Xie (2020), Quantile propagation for Wasserstein-approximate Gaussian processes.

    Examples
    --------
    >>> from tensorcep import datasets
    >>> datasets.load_gp("sonar").X.shape  # doctest: +SKIP
    """
    files, delimiter, positive = GP_FILES[check_choice("name", name, GP_FILES)]
    lines = [line for file in files for line in _table(fetch(file), delimiter)]
    if name == "cancer":
        lines = [line[1:] for line in lines]  # without the patient's number
    if name == "crabs":
        lines = [[str(float(line[0] == "O")), *line[2:], line[1]] for line in lines]
    X = np.array([line[:-1] for line in lines], dtype=np.float64)
    return Points(X, np.array([line[-1] == positive for line in lines], dtype=np.int64))


def _table(path: Any, delimiter: str | None) -> list[list[str]]:
    """The complete lines of a file, those between blanks without the line of names."""
    lines = [line.split(delimiter) for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    lines = lines[1:] if delimiter is None else lines
    return [line for line in lines if not {"?", "NA"} & set(line)]


def load_coal_mining() -> Points:
    """British coal-mining disasters: years 1851 to 1962, (112, 1), and how many there were in each, 191 in all.

    Source: Jarrett (1979), A note on the intervals between coal-mining disasters.

    Examples
    --------
    >>> from tensorcep import datasets
    >>> year, events = datasets.load_coal_mining()
    >>> len(events), int(events.sum())
    (112, 191)
    """
    counts = np.array([int(digit) for digit in COAL_MINING], dtype=np.int64)
    return Points(np.arange(1851.0, 1963.0)[:, None], counts)


def read_glass(path: str | os.PathLike[str]) -> Points:
    """Read the glass identification data in their original form, ``glass.data`` of the UCI repository.

    214 x 10: a running number and nine measurements; 1 for window glass (types 1 to 4), 0 for others.

    Raises
    ------
    FileNotFoundError, ValueError
        If there is no such file, or a line does not hold 11 numbers.

    Examples
    --------
    >>> from tensorcep import datasets
    >>> X, y = datasets.read_glass("glass.data")  # doctest: +SKIP
    """
    table = _numbers(path, 11)
    return Points(table[:, :-1], (table[:, -1] <= 4).astype(np.int64))


def read_wine(path: str | os.PathLike[str], first: int, second: int) -> Points:
    """Read two of the three cultivars of the wine data in their original form, ``wine.data`` of the UCI repository.

    13 measurements; 1 for the cultivar `second`, 0 for `first` (each 1, 2 or 3). Errors are those of `read_glass`.

    Examples
    --------
    >>> from tensorcep import datasets
    >>> X, y = datasets.read_wine("wine.data", 1, 2)  # doctest: +SKIP
    """
    pair = [check_int(name, value, 1, 3) for name, value in (("first", first), ("second", second))]
    table = _numbers(path, 14)
    table = table[np.isin(table[:, 0], pair)]
    return Points(table[:, 1:], (table[:, 0] == pair[1]).astype(np.int64))


def _numbers(path: str | os.PathLike[str], columns: int) -> np.ndarray:
    """A file of numbers between commas."""
    file = check_file(path)
    lines = [line.split(",") for line in Path(file).read_text(encoding="utf-8").splitlines() if line.strip()]
    for number, line in enumerate(lines, 1):
        if len(line) != columns:
            raise ValueError(
                f"'{file}' must hold {columns} numbers between commas in a line; got {len(line)} in {number}."
            )
    try:
        return np.array(lines, dtype=np.float64)
    except ValueError:
        raise ValueError(f"'{file}' must hold numbers between commas; got something else.") from None


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

    Examples
    --------
    >>> from tensorcep import datasets
    >>> datasets.load_uci("pima", "probit", 1).train.X.shape  # doctest: +SKIP
    """
    check_choice("name", name, UCI_NAMES)
    check_choice("link", link, LINKS)
    data = matlab(f"uci/{link}/{name}/nfold-{check_int('fold', fold, maximum=N_FOLDS)}.mat")
    return PointsFold(_points(data["train"]), _points(data["test"]))


def load_simulation(name: str) -> Simulation:
    """Load simulated data of the CEP paper, 5,000 + 5,000 points with 4 features; errors are those of `load_alog`.

    `name` is "probit-1", "probit-2", "logistic-1" or "logistic-2"; the weights of the second sets are more correlated.

    Source: Wang and Zhe (2019), Conditional expectation propagation.

    Examples
    --------
    >>> from tensorcep import datasets
    >>> datasets.load_simulation("probit-1").train.X.shape  # doctest: +SKIP
    """
    check_choice("name", name, [f"{link}-{k}" for link in LINKS for k in (1, 2)])
    data = matlab(f"simulation/{name}.mat")
    return Simulation(_points(data["train"]), _points(data["test"]), data["ts_mean"], data["ts_var"])


def _points(struct: Any) -> Points:
    return Points(np.ascontiguousarray(struct.x, dtype=np.float64), np.asarray(struct.y).astype(np.int64))
