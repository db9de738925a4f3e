"""Real data: those of the papers, traffic, and matrices with holes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from scipy.io import loadmat
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

from scripts.lib.accuracy import train_share_weights
from scripts.lib.gauntlet.matrices import hide
from scripts.lib.gauntlet.record import Problem
from scripts.lib.heldout import LABELLED, splits
from tensorcep import SparseTensor, datasets

HOLES = 0.3
SHARES = {"random-40": (0.4, False), "random-60": (0.6, False), "days-40": (0.4, True)}


def published(name: str, fold: int = 1) -> Problem:
    """Alog, Enron or DBLP; labels of the test entries weigh as in the training entries."""
    data = splits(name, [fold])[0]
    train = SparseTensor.from_coo(*data.train, shape=data.shape)
    weights = train_share_weights(data) if name in LABELLED else None
    return Problem(train, data.held.coords, data.held.y, weights=weights)


def with_tensorly(name: str, seed: int) -> Problem:
    """The tensors that TensorLy brings, a fifth of the entries held out."""
    tensor = {"il2": datasets.load_il2, "serology": datasets.load_covid19_serology}[name]()
    train, test = tensor.train_test_split(test_size=0.2, random_state=seed)
    unlabelled = SparseTensor.from_coo(train.coords, train.values, shape=train.shape)
    return Problem(unlabelled, test.coords, test.values)


def traffic(name: str) -> np.ndarray:
    """A tensor of `traffic/`, which transdim publishes."""
    file = Path(os.environ.get("TENSORCEP_DATA", ".")) / "traffic" / f"{name}.mat"
    if not file.exists():
        raise FileNotFoundError(f"{file} is missing; copy it there from github.com/xinychen/transdim, see --help.")
    return np.asarray(loadmat(file)["tensor"], dtype=float)


def birmingham(missing: str) -> Problem:
    """Occupied places of 30 car parks on 77 days at 18 times of day, with transdim's masks; zeros are missing."""
    tensor, (rate, days) = traffic("birmingham"), SHARES[missing]
    random = np.random.RandomState(1000)
    size = tensor.shape[:2] if days else tensor.shape
    kept = np.round(random.random_sample(size) + 0.5 - rate) > 0.0
    return cells_of(tensor, np.broadcast_to(kept[:, :, None] if days else kept, tensor.shape), tensor != 0.0)


def taxi(hours: int, seed: int) -> Problem:
    """Trips between 30 x 30 zones of New York in the first hours; a fifth of the cells held out."""
    tensor = traffic("nyc-taxi")[:, :, :hours]
    kept = np.random.default_rng(seed).random(tensor.shape) < 0.8
    return cells_of(tensor, kept, np.ones(tensor.shape, dtype=bool))


def cells_of(tensor: np.ndarray, kept: np.ndarray, observed: np.ndarray) -> Problem:
    """The observed cells of a dense tensor, those kept to fit and the others to test."""
    train, test = np.argwhere(kept & observed), np.argwhere(~kept & observed)
    entries = SparseTensor.from_coo(train, tensor[tuple(train.T)], shape=tensor.shape)
    return Problem(entries, test, tensor[tuple(test.T)])


def digits_tensor(seed: int) -> Problem:
    """1797 images of 8 x 8 pixels, 30 % of them hidden."""
    images = load_digits().images
    kept = np.random.default_rng(seed).random(images.shape) >= HOLES
    return cells_of(images, kept, np.ones(images.shape, dtype=bool))


def holed(name: str, seed: int, raw: bool) -> Problem:
    """A matrix of scikit-learn's, 30 % of its cells hidden."""
    x = {
        "digits": lambda: load_digits().data,
        "breast-cancer": lambda: load_breast_cancer().data,
        "diabetes": lambda: load_diabetes(scaled=False).data,
    }[name]()
    return hide([x], HOLES, np.random.default_rng(seed), raw=raw)
