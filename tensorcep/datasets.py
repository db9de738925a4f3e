"""Published data sets, entries or points with two labels, fetched once and checked, and those that TensorLy ships.

The files of `load_alog`, `load_enron` and `load_dblp` carry no licence, so they are not part of this package: each is
downloaded from its authors' repository when first asked for, and refused unless its SHA-256 is the one on record.
Cite the papers named in the functions. The environment variable TENSORCEP_DATA names the folder to keep them in;
without it that is pooch's cache folder for "tensorcep".
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable
from functools import cache
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.checks import check_choice, check_file, check_int, optional_module
from tensorcep.entries.labels import Labels
from tensorcep.entries.sparse_tensor import SparseTensor

logger = logging.getLogger("tensorcep")

ENVIRONMENT = "TENSORCEP_DATA"
N_FOLDS = 5
ALOG_SHAPE = (200, 100, 200)
ENRON_SHAPE = (203, 203, 200)
DBLP_SHAPE = (10_000, 200, 10_000)


# Files, and their way into the data folder.


@cache
def registry() -> dict[str, dict[str, Any]]:
    """Return, for each file by its relative name, "url" (at a fixed commit), "sha256" and "bytes".

    Examples
    --------
    >>> from tensorcep import datasets
    >>> "alog/train-fold-1.txt" in datasets.registry()
    True
    """
    text = resources.files("tensorcep.entries").joinpath("registry.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def fetch(file: str) -> Path:
    """Return the path of a published file, downloading it if it is not in the data folder yet.

    `file` is its relative name in the `registry`, such as "alog/train-fold-1.txt".

    Raises an ImportError when a download is needed and pooch is not installed, a FileNotFoundError, with the URL and
    the place where the file belongs, when it fails, and a ValueError when a file has a wrong checksum.

    Examples
    --------
    >>> tensorcep.datasets.fetch("alog/train-fold-1.txt")  # doctest: +SKIP
    """
    check_choice("file", file, registry())
    url, checksum = (str(registry()[file][fact]) for fact in ("url", "sha256"))
    if _is_cached(file):
        path = _folder() / file
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != checksum:
            again = f"delete the file to have it downloaded again, or replace it by {url}"
            raise ValueError(f"'{path}' must have the SHA-256 {checksum}; got {found}; {again}")
        return path
    needed_for = f"fetching {url} (or else save it as {file} in a folder that {ENVIRONMENT} names)"
    pooch = optional_module("pooch", needed_for, "'tensorcep[datasets]'")
    folder = _folder()
    logger.info("downloading %s from %s", file, url)
    keeper = pooch.create(path=folder, base_url="", registry={file: f"sha256:{checksum}"}, urls={file: url})
    try:
        return Path(keeper.fetch(file))
    except OSError as error:  # the network's errors are OSErrors too
        raise FileNotFoundError(
            f"{file} could not be downloaded ({type(error).__name__}); download {url} and save it as {folder / file}, "
            f"or set {ENVIRONMENT} to a folder that holds {file}."
        ) from error
    except ValueError as error:
        wanted = f"the file at {url} must have the SHA-256 {checksum}"
        raise ValueError(f"{wanted}, but what came has another and was not kept; try again later.") from error


def _folder() -> Path:
    """Where the files are kept; pooch must be there unless the environment names the folder."""
    if os.environ.get(ENVIRONMENT):
        return Path(os.environ[ENVIRONMENT])
    import pooch

    return Path(pooch.os_cache("tensorcep"))


def _is_cached(file: str) -> bool:
    known = os.environ.get(ENVIRONMENT) or find_spec("pooch")
    return bool(known) and (_folder() / file).is_file()


def published_entries(file: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the lines of a published text file as they stand, repeated cells too: 0-based (N, K) int64, (N,) float64.

    Parameters and errors are those of `fetch`.

    Examples
    --------
    >>> coords, values = tensorcep.datasets.published_entries("alog/train-fold-1.txt")  # doctest: +SKIP
    """
    check_choice("file", file, [name for name in registry() if name.endswith(".txt")])
    table = np.loadtxt(fetch(file), delimiter=",", dtype=np.float64)
    return _from_one(table[:, :-1]), table[:, -1]


def _matlab(file: str) -> dict[str, Any]:
    """The variables of a published MATLAB file."""
    from scipy.io import loadmat

    return dict(loadmat(fetch(file), squeeze_me=True, struct_as_record=False))


def _from_one(subs: np.ndarray) -> np.ndarray:
    """Indices that count from 1, as 0-based int64."""
    return np.asarray(subs).astype(np.int64) - 1


# What they hold.


class Fold(NamedTuple):
    """Entries to train on and entries to test on, of one shape."""

    train: SparseTensor
    test: SparseTensor


class DBLP(NamedTuple):
    """The ones to train on, and the test sets of ones and zeros; see `load_dblp`."""

    train: SparseTensor
    tests: list[SparseTensor]


class DatasetInfo(NamedTuple):
    """One line of `available`.

    Attributes
    ----------
    name : str
        The data set is loaded by the function ``load_NAME``.
    description, source : str
    size : int
        Bytes to download, 0 when it ships with this package or TensorLy.
    cached : bool
        Whether every file is already there; their checksums are compared when they are loaded.
    """

    name: str
    description: str
    source: str
    size: int
    cached: bool


# name -> (description, where it comes from)
CATALOGUE = {
    "alog": ("file-access log, user x action x resource, log counts, five folds", "Zhe et al. (2016); CEP repository"),
    "enron": ("e-mails, sender x receiver x time, binary, five folds", "Zhe et al. (2016); CEP repository"),
    "dblp": ("publications, author x conference x keyword, binary, 50 test sets", "Du et al. (2018); CEP repository"),
    "gp": (
        "ionosphere, sonar, cancer, crabs and Pima, points with two labels",
        "UCI repository, as kept by Zhang et al. (2020)",
    ),
    "uci": ("six sets of points with two labels, five half-half splits each", "UCI repository; CEP repository"),
    "simulation": ("probit and logistic regression data with their posteriors", "Wang, Zhe (2019); CEP repository"),
    "coal_mining": ("coal-mining disasters in Britain by year, counts", "Jarrett (1979); part of the package"),
    "covid19_serology": ("serology, sample x antigen x receptor", "Zohar et al. (2020); ships with TensorLy"),
    "il2": ("IL-2 responses, ligand x time x dose x cell, some missing", "Orcutt-Jahns et al. (2021); with TensorLy"),
}


def load_alog(fold: int) -> Fold:
    """Load one fold of the Alog tensor: user x action x resource, 200 x 100 x 200, log counts of file accesses.

    `fold` is 1 to 5. Half of the 21,076 training entries are zeros sampled by the authors of the data. The published
    test files list a few cells twice, with the same value; here each cell is there once. `published_entries` gives a
    file's lines as they are, on which the published scores were computed.

    Raises a FileNotFoundError, with what to put where, when files cannot be downloaded, and a ValueError on a wrong
    checksum or fold.

    Source: Zhe, Zhang, Wang, Lee, Xu, Qi, Ghahramani (2016), Distributed flexible nonlinear tensor factorization;
    the folds are those of Wang and Zhe (2019), Conditional expectation propagation.

    Examples
    --------
    >>> tensorcep.datasets.load_alog(1).train.nnz  # doctest: +SKIP
    """
    return _load_fold("alog", fold, ALOG_SHAPE)


def load_enron(fold: int) -> Fold:
    """Load one fold of the Enron tensor: sender x receiver x time, 203 x 203 x 200, 1 where an e-mail was sent.

    1,010 training and about 8,360 test entries, ones and sampled zeros. Parameters, errors, source and what is said of
    repeated cells are those of `load_alog`. In fold 3 one training entry, a one, is in the test set too.

    Examples
    --------
    >>> tensorcep.datasets.load_enron(1).train.nnz  # doctest: +SKIP
    """
    return _load_fold("enron", fold, ENRON_SHAPE)


def load_dblp() -> DBLP:
    """Load the DBLP tensor: author x conference x keyword, 10000 x 200 x 10000, 1 for a publication.

    The training entries are the 155,185 ones alone. The zeros that the papers trained on are not published: draw as
    many outside the ones and all test sets, with ``dblp.train.sample_zeros``. Each of the 50 test sets has 200 ones and
    1,800 zeros. Errors are those of `load_alog`.

    Source: Du, Zheng, Lee, Zhe (2018), Probabilistic streaming tensor decomposition; the test sets are those of Wang
    and Zhe (2019), Conditional expectation propagation.

    Examples
    --------
    >>> len(tensorcep.datasets.load_dblp().tests)  # doctest: +SKIP
    """
    data = _matlab("dblp/dblp.mat")["data"]
    ones = SparseTensor.from_coo(_from_one(data.Y.subs), np.ones(len(data.Y.subs)), shape=DBLP_SHAPE)
    held = ((_from_one(test.subs), test.Ymiss.astype(np.float64)) for test in np.atleast_1d(data.test))
    return DBLP(ones, [SparseTensor.from_coo(*entries, shape=DBLP_SHAPE) for entries in held])


def available() -> list[DatasetInfo]:
    """List the data sets: name, what it is, source, bytes to download, and whether its files are already there.

    Examples
    --------
    >>> from tensorcep import datasets
    >>> [info.name for info in datasets.available()][:2]
    ['alog', 'enron']
    """
    files = {name: [file for file in registry() if file.startswith(f"{name}/")] for name in CATALOGUE}
    sizes = {name: sum(registry()[file]["bytes"] for file in own) for name, own in files.items()}
    return [DatasetInfo(name, *CATALOGUE[name], sizes[name], all(map(_is_cached, own))) for name, own in files.items()]


def _load_fold(name: str, fold: int, shape: tuple[int, ...]) -> Fold:
    fold = check_int("fold", fold, maximum=N_FOLDS)
    files = [f"{name}/{part}-fold-{fold}.txt" for part in ("train", "test")]
    return Fold(*(SparseTensor.from_coo(*published_entries(f), shape=shape, duplicates="last") for f in files))


# Points with two labels.

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
    """Load points with two labels, those on which Gaussian process classifiers are compared.

    "ionosphere", 351 x 34 (1: a good return; the second column is 0 throughout), "sonar", 208 x 60 (1: a mine),
    "cancer", 683 x 9 (1: malignant; patients without a missing number), "crabs", 200 x 7 (1: male; the species, a
    running number and five lengths), "pima", 532 x 7 (1: diabetes), or "pima-with-duplicates", 732 x 7: the papers'
    set, in which 200 patients are there twice, so that folds of it share patients. Errors are those of `load_alog`.

    Source: UCI machine learning repository and MASS (Venables and Ripley); the files are those of Zhang, Walder,
    Bonilla, Rizoiu, Xie (2020), Quantile propagation for Wasserstein-approximate Gaussian processes.

    Examples
    --------
    >>> tensorcep.datasets.load_gp("sonar").X.shape  # doctest: +SKIP
    """
    files, delimiter, positive = GP_FILES[check_choice("name", name, GP_FILES)]
    lines = list[list[str]]()
    for file in files:  # those between blanks have a line of names
        found = [line.split(delimiter) for line in fetch(file).read_text(encoding="utf-8").splitlines() if line.strip()]
        lines += [line for line in found[delimiter is None :] if not {"?", "NA"} & set(line)]
    if name == "cancer":
        lines = [line[1:] for line in lines]  # without the patient's number
    if name == "crabs":
        lines = [[str(float(line[0] == "O")), *line[2:], line[1]] for line in lines]
    X = np.array([line[:-1] for line in lines], dtype=np.float64)
    return Points(X, np.array([line[-1] == positive for line in lines], dtype=np.int64))


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

    214 x 10: a running number and nine measurements; 1 for window glass (types 1 to 4), 0 for others. FileNotFoundError
    or ValueError if there is no such file, or a line does not hold 11 numbers.

    Examples
    --------
    >>> X, y = tensorcep.datasets.read_glass("glass.data")  # doctest: +SKIP
    """
    table = _numbers(path, 11)
    return Points(table[:, :-1], (table[:, -1] <= 4).astype(np.int64))


def read_wine(path: str | os.PathLike[str], first: int, second: int) -> Points:
    """Read two of the three cultivars of the wine data in their original form, ``wine.data`` of the UCI repository.

    13 measurements; 1 for the cultivar `second`, 0 for `first` (each 1, 2 or 3). Errors are those of `read_glass`.

    Examples
    --------
    >>> X, y = tensorcep.datasets.read_wine("wine.data", 1, 2)  # doctest: +SKIP
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
            wanted = f"{columns} numbers between commas in a line"
            raise ValueError(f"'{file}' must hold {wanted}; got {len(line)} in {number}.")
    try:
        return np.array(lines, dtype=np.float64)
    except ValueError:
        raise ValueError(f"'{file}' must hold numbers between commas; got something else.") from None


def load_uci(name: str, link: str, fold: int) -> PointsFold:
    """Load one half-half split of a data set of the CEP paper: standardised features, factors as one column per level.

    `name` is "australian", "breast", "crabs", "ionos", "pima" or "sonar"; `link` "probit" or "logistic", each of which
    has splits of its own; `fold` 1 to 5. Errors are those of `load_alog`.

    Source: UCI machine learning repository; the splits are those of Wang and Zhe (2019), Conditional expectation
    propagation. The sizes differ from those that the paper prints.

    Examples
    --------
    >>> tensorcep.datasets.load_uci("pima", "probit", 1).train.X.shape  # doctest: +SKIP
    """
    check_choice("name", name, UCI_NAMES)
    check_choice("link", link, LINKS)
    data = _matlab(f"uci/{link}/{name}/nfold-{check_int('fold', fold, maximum=N_FOLDS)}.mat")
    return PointsFold(_points(data["train"]), _points(data["test"]))


def load_simulation(name: str) -> Simulation:
    """Load simulated data of the CEP paper, 5,000 + 5,000 points with 4 features; errors are those of `load_alog`.

    `name` is "probit-1", "probit-2", "logistic-1" or "logistic-2"; the weights of the second sets are more correlated.

    Source: Wang and Zhe (2019), Conditional expectation propagation.

    Examples
    --------
    >>> tensorcep.datasets.load_simulation("probit-1").train.X.shape  # doctest: +SKIP
    """
    check_choice("name", name, [f"{link}-{k}" for link in LINKS for k in (1, 2)])
    data = _matlab(f"simulation/{name}.mat")
    return Simulation(_points(data["train"]), _points(data["test"]), data["ts_mean"], data["ts_var"])


def _points(struct: Any) -> Points:
    return Points(np.ascontiguousarray(struct.x, dtype=np.float64), np.asarray(struct.y).astype(np.int64))


# The data sets that TensorLy ships.


def load_covid19_serology() -> SparseTensor:
    """Load the COVID-19 systems serology tensor that TensorLy ships: sample x antigen x receptor, 438 x 6 x 11.

    Values are log-scaled and centred antibody measurements, none missing. A sample's label is its patient's group and
    its row, such as "Severe 201", because the groups alone are not unique.

    Source: Zohar et al. (2020), Cell 183(6), as prepared by Tan et al. (2021), Molecular Systems Biology 17(9).

    Examples
    --------
    >>> from tensorcep import datasets
    >>> datasets.load_covid19_serology().shape
    (438, 6, 11)
    """
    from tensorly import datasets

    bunch = datasets.load_covid19_serology()
    groups, antigens, receptors = bunch.ticks
    ticks = [f"{group} {row}" for row, group in enumerate(groups)], antigens, receptors
    return _labelled(bunch.tensor, ticks, ("sample", "antigen", "receptor"))


def load_il2() -> SparseTensor:
    """Load the IL-2 mutein response tensor that TensorLy ships: ligand x time (h) x dose (nM) x cell, 13 x 4 x 12 x 8.

    The 192 cells that were not measured are left out.

    Source: Orcutt-Jahns, Emmel, Snyder, Taylor, Meyer (2021), Multivalency enhances the specificity of Fc-cytokine
    fusions.

    Examples
    --------
    >>> from tensorcep import datasets
    >>> datasets.load_il2().shape
    (13, 4, 12, 8)
    """
    from tensorly import datasets

    bunch = datasets.load_IL2data()
    return _labelled(bunch.tensor, bunch.ticks, ("ligand", "time", "dose", "cell"))


def _labelled(array: Any, ticks: Iterable[Any], names: Iterable[str]) -> SparseTensor:
    labels = [Labels(list(tick), name=name) for tick, name in zip(ticks, names, strict=True)]
    return SparseTensor.from_dense(np.asarray(array), labels=labels)


def __dir__() -> list[str]:
    """Loaders and their records, for completion in a shell."""
    return [name for name, item in globals().items() if name[0] != "_" and getattr(item, "__module__", "") == __name__]
