"""The gauntlet's problems: tensors and matrices drawn from a truth that is known, real data, and the grid of them all.

The grid, `grid.csv`, varies one thing at a time, and crosses those that interact; draws do not depend on places in it.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.io import loadmat
from scipy.optimize import brentq
from scipy.special import expit, gammaln, ndtr
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

from scripts.benchmarks.heldout import LABELLED, splits, train_share_weights
from tensorcep import SparseTensor, datasets


class Problem(NamedTuple):
    """One data set, split, with what its maker knows of the truth."""

    train: Any  # SparseTensor, or list of 2-D arrays with NaN where a cell is hidden
    coords: np.ndarray  # test cells (n, K); of matrices (number of the matrix, row, column)
    y: np.ndarray  # test values (n,)
    truth: np.ndarray | None = None  # what the maker predicts: expected values, probabilities, log masses of counts
    weights: np.ndarray | None = None  # of test labels, where their share of ones is not that of the training entries
    unit: np.ndarray | float = 1.0  # errors of values are measured in these


class Cell(NamedTuple):
    name: str
    model: str  # whose default is fitted: "cp", "stream", "pca", "fa", "gfa", "cmf"
    observed: str  # "values", "labels", "counts"
    size: str  # "smoke", "small", "large"
    make: Callable[[int], Problem]  # of a seed
    batches: int = 10  # of a stream
    real: bool = False  # whether the data are real


LEAST_TEST, MOST_TEST = 1000, 5000
LABEL_SD, COUNT_SD = 2.0, 0.7  # of the latent value of labels (log odds) and counts (log rates)
FULLEST = 0.8  # share of all cells that may be drawn
# The mean over normal noise is this weighted sum.
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


@dataclass(frozen=True)
class TensorSpec:
    """How a tensor is drawn; the latent value f has variance 1 before labels and counts scale it."""

    n: int = 2000  # training entries
    rank: int = 3
    order: int = 3
    positive: bool = False  # factors |N(0, 1)| + 0.2 in place of N(0, 1)
    noise: float = 0.5  # standard deviation of the noise of values, that of f being 1
    per_row: float = 20.0  # training entries of a row, on average over modes, whose sizes are as 1.5 : 1 : 0.5
    shape: tuple[int, ...] | None = None  # in place of `per_row`
    offset: float = 0.0  # added to values
    main: float = 0.0  # share of the variance of f that is main effects
    pairs: float = 0.0  # or pairwise terms
    constant: int = 0  # components that are the same in all rows of the first mode
    tails: float | None = None  # degrees of freedom of Student's t noise of the same standard deviation
    outliers: float = 0.0  # share of the values whose noise is 15 times as large
    floor: float = 0.0  # share of the values piled up at the least one
    logs: float = 0.0  # values are e to the power of so many times what they else are; 0: they are not
    percent: bool = False  # 100 times the logistic function of 1.5 times what values else are, less 2: most small
    zipf: bool = False  # row i of a mode is drawn in proportion to 1 / (i + 1)
    share: float = 0.5  # of ones among labels
    sampled: bool = False  # all ones of the tensor and as many zeros, in place of cells drawn at random
    count: float = 3.0  # mean of counts
    dispersion: float | None = None  # r of negative-binomial counts; without it they are Poisson

    def sizes(self) -> tuple[int, ...]:
        if self.shape is not None:
            return self.shape
        if self.sampled:  # so many cells that their ones are half of the training and test entries
            cells = 0.5 * (self.n + self.n_test()) / self.share
            return (round(cells ** (1.0 / self.order)),) * self.order
        unlike = np.linspace(1.5, 0.5, self.order)
        return tuple(int(n) for n in np.ceil(unlike * self.n / self.per_row))

    def n_test(self) -> int:
        return int(np.clip(self.n // 2, LEAST_TEST, MOST_TEST))


def draw_cells(spec: TensorSpec, rng: np.random.Generator) -> np.ndarray:
    """Distinct cells (n + tests, K) in random order."""
    shape, n = spec.sizes(), spec.n + spec.n_test()
    total = int(np.prod([float(size) for size in shape]))
    if n > FULLEST * total:
        raise ValueError(f"{n} entries do not leave {1 - FULLEST:.0%} of the {total} cells of {shape} free")
    if total <= 4 * n and not spec.zipf:
        flat = rng.choice(total, n, replace=False)
    else:
        flat = np.empty(0, dtype=np.int64)
        while len(flat) < n:  # the first draws of each cell, in the order in which they came
            drawn = [_rows(size, 2 * n, spec.zipf, rng) for size in shape]
            flat = np.concatenate([flat, np.ravel_multi_index(drawn, shape)])
            flat = flat[np.sort(np.unique(flat, return_index=True)[1])]
    return np.stack(np.unravel_index(flat[:n], shape), axis=1).astype(np.int64)


def _rows(size: int, n: int, zipf: bool, rng: np.random.Generator) -> np.ndarray:
    if not zipf:
        return rng.integers(0, size, n)
    weight = 1.0 / np.arange(1.0, size + 1.0)
    return rng.choice(size, n, p=weight / weight.sum())


def draw_latent(spec: TensorSpec, coords: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Latent values of the cells, of variance 1."""
    shape, order = spec.sizes(), spec.order
    parts = [(1.0 - spec.main - spec.pairs, tuple(range(order)), spec.rank)]
    parts += [(spec.main / order, (k,), 1) for k in range(order)]
    pairs = [(j, k) for j in range(order) for k in range(j)]
    parts += [(spec.pairs / len(pairs), pair, 2) for pair in pairs]
    f = np.zeros(len(coords))
    for share, modes, rank in parts:
        if share <= 0.0:
            continue
        product = np.ones((len(coords), rank))
        for k in modes:
            rows = rng.standard_normal((shape[k], rank))
            rows = np.abs(rows) + 0.2 if spec.positive else rows
            if k == 0 and len(modes) == order:
                rows[:, : spec.constant] = 1.0
            product *= rows[coords[:, k]]
        part = product.sum(axis=1)
        f += np.sqrt(share) * part / part.std()
    return f / f.std()


def values_of(spec: TensorSpec, seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    coords = draw_cells(spec, rng)
    f = spec.offset + draw_latent(spec, coords, rng)
    noise = rng.standard_normal(len(f))
    if spec.tails is not None:
        noise = rng.standard_t(spec.tails, len(f)) * np.sqrt((spec.tails - 2.0) / spec.tails)
    noise *= np.where(rng.random(len(f)) < spec.outliers, 15.0, 1.0)
    y = f + spec.noise * noise
    if spec.floor > 0.0:
        limit = np.quantile(y, spec.floor)
        y, z = np.maximum(y, limit), (f - limit) / spec.noise
        f = limit + spec.noise * (z * ndtr(z) + np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi))
    if spec.logs > 0.0:
        y, f = np.exp(spec.logs * y), np.exp(spec.logs * f + 0.5 * (spec.logs * spec.noise) ** 2)
    if spec.percent:
        y, f = _percent(y), sum(w * _percent(f + spec.noise * z) for z, w in zip(NODES, WEIGHTS, strict=True))
    return split(spec, coords, y, f)


def _percent(y: np.ndarray) -> np.ndarray:
    return np.asarray(100.0 * expit(1.5 * y - 2.0))


def labels_of(spec: TensorSpec, seed: int) -> Problem:
    """Labels 0 and 1, logistic in f."""
    rng = np.random.default_rng(seed)
    if spec.sampled:
        shape = spec.sizes()
        coords = np.stack(np.unravel_index(np.arange(np.prod(shape)), shape), axis=1)
    else:
        coords = draw_cells(spec, rng)
    f = LABEL_SD * draw_latent(spec, coords, rng)
    p = expit(f + brentq(lambda shift: expit(f + shift).mean() - spec.share, -60.0, 60.0))
    y = (rng.random(len(p)) < p).astype(float)
    if spec.sampled:
        ones, zeros = np.flatnonzero(y > 0.0), np.flatnonzero(y == 0.0)
        chosen = rng.permutation(np.concatenate([ones, rng.choice(zeros, len(ones), replace=False)]))
        p = p / (p + (1.0 - p) * len(ones) / len(zeros))
        coords, y, p = coords[chosen], y[chosen], p[chosen]
    return split(spec, coords, y, p)


def counts_of(spec: TensorSpec, seed: int) -> Problem:
    """Counts, log-linear in f."""
    rng = np.random.default_rng(seed)
    coords = draw_cells(spec, rng)
    rate = np.exp(COUNT_SD * draw_latent(spec, coords, rng))
    rate *= spec.count / rate.mean()
    r = spec.dispersion
    y = rng.poisson(rate if r is None else rate * rng.gamma(r, 1.0 / r, len(rate))).astype(float)
    return split(spec, coords, y, count_log_mass(y, rate, r))


def count_log_mass(y: np.ndarray, rate: np.ndarray | float, r: float | None) -> np.ndarray:
    """Log mass of Poisson counts, or of negative-binomial ones of variance rate + rate^2 / r."""
    if r is None:
        return y * np.log(rate) - rate - gammaln(y + 1.0)
    chance = rate / (rate + r)
    return gammaln(y + r) - gammaln(r) - gammaln(y + 1.0) + y * np.log(chance) + r * np.log1p(-chance)


def split(spec: TensorSpec, coords: np.ndarray, y: np.ndarray, truth: np.ndarray) -> Problem:
    """The last entries are the test entries."""
    n = len(y) - spec.n_test()
    train = SparseTensor.from_coo(coords[:n], y[:n], shape=spec.sizes())
    return Problem(train, coords[n:], y[n:], truth[n:])


RECOMMENDER = (
    ("users", "items", "gaussian"),
    ("users", "user features", "gaussian"),
    ("items", "item features", "gaussian"),
)


@dataclass(frozen=True)
class MatrixSpec:
    """How matrices are drawn; the latent value of a cell has variance 1 in units of its column."""

    shape: tuple[int, int] = (300, 30)
    rank: int = 4
    noise: float = 0.5
    hidden: float = 0.3  # share of the cells
    scales: float = 0.0  # columns are multiplied by 10^u, u uniform within as many decades
    offset: float = 0.0  # added to all columns, in units of each
    constant: int = 0  # columns that hold one value
    tails: float | None = None  # degrees of freedom of Student's t noise
    labels: bool = False
    views: int = 1  # matrices of the same rows, each with factors of its own and shared ones


def matrix(spec: MatrixSpec, seed: int) -> Problem:
    """One matrix, or views of the same rows; errors are in units of a column's standard deviation."""
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((spec.shape[0], spec.rank))
    found = [_columns(spec, scores, rng) for _ in range(spec.views)]
    return hide([x for x, _ in found], spec.hidden, rng, [truth for _, truth in found])


def _columns(spec: MatrixSpec, scores: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    loadings = rng.standard_normal((spec.rank, spec.shape[1])) / np.sqrt(spec.rank)
    f = scores @ loadings
    if spec.views > 1:
        own = rng.standard_normal((len(scores), 1)) @ rng.standard_normal((1, spec.shape[1]))
        f = np.sqrt(0.5) * (f + own)
    if spec.labels:
        p = expit(2.0 * f)
        return (rng.random(p.shape) < p).astype(float), p
    noise = rng.standard_normal(f.shape)
    if spec.tails is not None:
        noise = rng.standard_t(spec.tails, f.shape) * np.sqrt((spec.tails - 2.0) / spec.tails)
    scale = 10.0 ** rng.uniform(-0.5 * spec.scales, 0.5 * spec.scales, spec.shape[1])
    truth, x = scale * (f + spec.offset), scale * (f + spec.offset + spec.noise * noise)
    truth[:, : spec.constant] = x[:, : spec.constant] = 3.0
    return x, truth


def recommender(seed: int) -> Problem:
    """Ratings of items by users, few of them observed, with features of both."""
    rng = np.random.default_rng(seed)
    u, v = rng.standard_normal((150, 3)), rng.standard_normal((80, 3))
    a, b = rng.standard_normal((12, 3)), rng.standard_normal((10, 3))
    truths = [u @ v.T / np.sqrt(3.0), u @ a.T / np.sqrt(3.0), v @ b.T / np.sqrt(3.0)]
    full = [f + 0.5 * rng.standard_normal(f.shape) for f in truths]
    holes = hide(full[:1], 0.9, rng, truths[:1])
    return holes._replace(train=[holes.train[0], *full[1:]])


def hide(
    full: list[np.ndarray],
    share: float,
    rng: np.random.Generator,
    truths: list[np.ndarray] | None = None,
    raw: bool = False,
) -> Problem:
    """Hide a share of the observed cells of each matrix; `raw`: errors in the data's own units."""
    train, coords, y, truth, unit = [], [], [], [], []
    for m, x in enumerate(full):
        hidden = ~np.isnan(x) & (rng.random(x.shape) < share)
        hidden[:, (~np.isnan(x) & ~hidden).sum(axis=0) == 0] = False  # keep something of every column
        train.append(np.where(hidden, np.nan, x))
        rows, columns = np.nonzero(hidden)
        coords.append(np.stack([np.full(len(rows), m), rows, columns], axis=1))
        y.append(x[hidden])
        sd = np.nanstd(x, axis=0)
        unit.append(np.where(raw | (sd == 0.0), 1.0, sd)[columns])
        if truths is not None:
            truth.append(truths[m][hidden])
    known = np.concatenate(truth) if truths is not None else None
    return Problem(train, np.concatenate(coords), np.concatenate(y), known, unit=np.concatenate(unit))


HOLES = 0.3
SHARES = {"random-40": (0.4, False), "random-60": (0.6, False), "days-40": (0.4, True)}


def published(seed: int, name: str) -> Problem:
    """Alog, Enron or DBLP; labels of the test entries weigh as in the training entries."""
    data = splits(name, [1])[0]  # one split; the seed is the fit's alone
    train = SparseTensor.from_coo(*data.train, shape=data.shape)
    weights = train_share_weights(data) if name in LABELLED else None
    return Problem(train, data.held.coords, data.held.y, weights=weights)


def with_tensorly(seed: int, name: str) -> Problem:
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


def birmingham(seed: int, missing: str) -> Problem:
    """Occupied places of 30 car parks on 77 days at 18 times of day, with transdim's masks; zeros are missing."""
    tensor, (rate, days) = traffic("birmingham"), SHARES[missing]
    random = np.random.RandomState(1000)
    size = tensor.shape[:2] if days else tensor.shape
    kept = np.round(random.random_sample(size) + 0.5 - rate) > 0.0
    return cells_of(tensor, np.broadcast_to(kept[:, :, None] if days else kept, tensor.shape), tensor != 0.0)


def taxi(seed: int, hours: int) -> Problem:
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


def holed(seed: int, name: str, raw: bool) -> Problem:
    """A matrix of scikit-learn's, 30 % of its cells hidden."""
    x = {
        "digits": lambda: load_digits().data,
        "breast-cancer": lambda: load_breast_cancer().data,
        "diabetes": lambda: load_diabetes(scaled=False).data,
    }[name]()
    return hide([x], HOLES, np.random.default_rng(seed), raw=raw)


MAKERS: dict[str, Callable[[TensorSpec, int], Problem]]
MAKERS = {"values": values_of, "labels": labels_of, "counts": counts_of}
SPECS = {"tensor": TensorSpec, "matrix": MatrixSpec}
REAL_MAKERS = (published, with_tensorly, birmingham, taxi, digits_tensor, holed)
OTHERS = {make.__name__: make for make in (recommender, *REAL_MAKERS)}


def read_grid(path: Path) -> dict[str, Cell]:
    """The problems of a table, whose makers stand with their arguments."""
    with path.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines, delimiter=";", quoting=csv.QUOTE_NONE))
    grid = {}
    for row in rows:
        given = {key: json.loads(text) for key, text in (word.split("=") for word in row["arguments"].split())}
        given = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
        maker, real = row["maker"], row["maker"] not in (*SPECS, "recommender")
        if maker in SPECS:
            make = partial(MAKERS[row["observed"]] if maker == "tensor" else matrix, SPECS[maker](**given))
        else:
            make = partial(OTHERS[maker], **given)
        about = {name: row[name] for name in ("name", "model", "observed", "size")}
        grid[row["name"]] = Cell(**about, make=make, batches=int(row["batches"] or 10), real=real)
    return grid


GRID = read_grid(Path(__file__).with_name("grid.csv"))
PARTS = {"smoke": ("smoke",), "small": ("smoke", "small"), "all": ("smoke", "small", "large")}
