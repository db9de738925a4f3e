"""Published files: which there are, and their way into the data folder, checked."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from functools import cache
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from tensorcep.core.checks import check_checksum, check_choice, optional_module

logger = logging.getLogger("tensorcep")

ENVIRONMENT = "TENSORCEP_DATA"


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

    Parameters
    ----------
    file : str
        Relative name in `registry`, such as "alog/train-fold-1.txt".

    Raises
    ------
    ImportError
        When a download is needed and pooch is not installed.
    FileNotFoundError
        When the download fails; it names the URL and the place where the file belongs.
    ValueError
        When the file on disk, or the downloaded one, has a wrong checksum.

    Examples
    --------
    >>> from tensorcep import datasets
    >>> datasets.fetch("alog/train-fold-1.txt")  # doctest: +SKIP
    """
    check_choice("file", file, registry())
    if not is_cached(file):
        return _download(file)
    path = _folder() / file
    check_checksum(path, hashlib.sha256(path.read_bytes()).hexdigest(), registry()[file]["sha256"], _url(file))
    return path


def _folder() -> Path:
    """Where the files are kept; pooch must be there unless the environment names the folder."""
    if os.environ.get(ENVIRONMENT):
        return Path(os.environ[ENVIRONMENT])
    import pooch

    return Path(pooch.os_cache("tensorcep"))


def is_cached(file: str) -> bool:
    known = os.environ.get(ENVIRONMENT) or find_spec("pooch")
    return bool(known) and (_folder() / file).is_file()


def _url(file: str) -> str:
    return str(registry()[file]["url"])


def _download(file: str) -> Path:
    needed_for = f"fetching {_url(file)} (or else save it as {file} in a folder that {ENVIRONMENT} names)"
    pooch = optional_module("pooch", needed_for, "'tensorcep[datasets]'")
    folder, url = _folder(), _url(file)
    logger.info("downloading %s from %s", file, url)
    checksum = registry()[file]["sha256"]
    keeper = pooch.create(path=folder, base_url="", registry={file: f"sha256:{checksum}"}, urls={file: url})
    try:
        return Path(keeper.fetch(file))
    except OSError as error:  # the network's errors are OSErrors too
        raise FileNotFoundError(
            f"{file} could not be downloaded ({type(error).__name__}); download {url} and save it as {folder / file}, "
            f"or set {ENVIRONMENT} to a folder that holds {file}."
        ) from error
    except ValueError as error:
        raise ValueError(
            f"the file at {url} must have the SHA-256 {checksum}, but what came has another and was not kept; try "
            "again later."
        ) from error


def published_entries(file: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the lines of a published text file as they stand, repeated cells too: 0-based (N, K) int64, (N,) float64.

    Parameters and errors are those of `fetch`.

    Examples
    --------
    >>> from tensorcep import datasets
    >>> coords, values = datasets.published_entries("alog/train-fold-1.txt")  # doctest: +SKIP
    """
    check_choice("file", file, [name for name in registry() if name.endswith(".txt")])
    table = np.loadtxt(fetch(file), delimiter=",", dtype=np.float64)
    return from_one(table[:, :-1]), table[:, -1]


def matlab(file: str) -> dict[str, Any]:
    """Return the variables of a published MATLAB file."""
    from scipy.io import loadmat

    return dict(loadmat(fetch(file), squeeze_me=True, struct_as_record=False))


def from_one(subs: np.ndarray) -> np.ndarray:
    """Indices that count from 1, as 0-based int64."""
    return np.asarray(subs).astype(np.int64) - 1
