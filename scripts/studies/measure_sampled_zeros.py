"""Probabilities of rare ones after a fit to all ones and a sample of the zeros, on simulated populations.

Every cell of a tensor has a label, about 2 % of them ones, from main effects and two components. One fit gets all ones
and a share of the zeros, and predicts every cell with and without the correction (`zero_rate`); another fit gets a
random half of the cells as they are. The ratio is that of the mean predicted probability to the share of ones among
the cells that a fit stands for: 1 is calibrated in the large.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
from scipy.special import expit, ndtr
from sklearn.exceptions import ConvergenceWarning

from scripts.lib.common import Row, parser, report, row, say, words
from tensorcep import CPClassifier, SparseTensor, metrics

# link -> P(y = 1 | f), and what the latent values of the probit are multiplied by
LINKS: dict[str, Any] = {"probit": (ndtr, 1.0), "logit": (expit, 1.8)}
BASE, FACTOR_SD, MAIN_SD, RANK = -2.6, 0.6, 0.4, 2


def population(seed: int, link: str, size: int) -> SparseTensor:
    """Every cell of a cube, with its label."""
    rng = np.random.default_rng(seed)
    shape = (size, size, size)
    f = np.einsum("ir,jr,kr->ijk", *(rng.normal(0.0, FACTOR_SD, (n, RANK)) for n in shape))
    for k, n in enumerate(shape):
        f += rng.normal(0.0, MAIN_SD, n).reshape([n if j == k else 1 for j in range(3)])
    probability, scale = LINKS[link]
    y = rng.random(f.size) < probability(scale * (f.ravel() + BASE))
    return SparseTensor.from_coo(np.stack(np.unravel_index(np.arange(f.size), shape), axis=1), y, shape)


def scores(model: CPClassifier, cells: SparseTensor, share: float) -> dict[str, float]:
    """Ratio of the mean probability to the share of ones, ranking and log loss of a fitted model."""
    p = model.predict_proba(cells)[:, 1]
    return {
        "mean probability / share of ones": float(p.mean()) / share,
        "auc": metrics.auc(cells.values, p),
        "log loss": metrics.log_loss(cells.values, p),
    }


def measure(link: str, method: str, seed: int, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Scores of the three predictions of one population."""
    cells = population(seed, link, options.size)
    ones = cells.select(cells.values == 1.0)
    n_zeros = max(1, round(options.rate * (cells.nnz - ones.nnz)))
    sample = ones.concatenate(ones.sample_zeros(n_zeros, random_state=seed))
    half, _ = cells.train_test_split(0.5, random_state=seed)
    how: dict[str, Any] = {"interactions": options.interactions, "method": method, "max_iter": options.sweeps}
    model = CPClassifier(RANK, link=link, prior="learned", zero_rate="auto", random_state=seed, **how)
    share = float(cells.values.mean())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        corrected = scores(model.fit(sample), cells, share)
        plain = scores(model.set_params(zero_rate=1.0), cells, share)
        return {
            "sampled zeros, zero_rate": corrected,
            "sampled zeros, no correction": plain,
            "half of the cells": scores(model.fit(half), cells, float(half.values.mean())),
        }


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__, methods="cep", sweeps=200, seed=0)
    p.add_argument("--links", type=words(*LINKS), default="probit,logit")
    p.add_argument("--interactions", default="cp", help="of the model (default: %(default)s)")
    p.add_argument("--rate", type=float, default=0.05, help="share of the zeros in the sample (default: %(default)s)")
    p.add_argument("--seeds", type=int, default=3, help="populations (default: %(default)s)")
    p.add_argument("--size", type=int, default=40, help="rows of each of three modes (default: %(default)s)")
    options = p.parse_args(arguments)
    rows: list[Row] = []
    for link in options.links:
        for method in options.methods if isinstance(options.methods, list) else options.methods.split(","):
            found = [measure(link, method, options.seed + n, options) for n in range(options.seeds)]
            for fit in found[0]:
                for metric in found[0][fit]:
                    values = [each[fit][metric] for each in found]
                    how = {"data": f"simulated {link}", "method": method, "fit": fit, "sd": float(np.std(values))}
                    rows.append(row(metric, np.mean(values), **how))
            say(f"{link} {method}: {options.seeds} populations")
    report(rows, options.json)


if __name__ == "__main__":
    main()
