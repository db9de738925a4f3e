"""Figures of the pages, each drawn once and kept until this file, or what was measured, changes: how a fit is run, and
what ways of fitting approximate, on problems small enough to be solved exactly.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr
from scipy.stats import norm

from scripts.docs.measured import FOLDER, figures

# Okabe and Ito's colours, which colour-blind readers tell apart; styles of lines differ as well.
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#777777"

GRID = np.linspace(-8.0, 8.0, 4001)
STEP = GRID[1] - GRID[0]
UV = np.linspace(-3.0, 3.0, 241)


def panels(n: int = 1, width: float = 7.0, height: float = 3.2, **options: Any) -> Any:
    """A figure of n panels side by side, and its axes."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, n, figsize=(width, height), layout="constrained", **options)
    for ax in axes if n > 1 else [axes]:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def moments(density: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of a density on the grid."""
    p = density / density.sum()
    mean = float(p @ GRID)
    return mean, float(np.sqrt(p @ (GRID - mean) ** 2))


def normalised(density: np.ndarray) -> np.ndarray:
    return density / (density.sum() * STEP)


def nearest_in_wasserstein(density: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of the nearest Gaussian in the L2 Wasserstein distance, by its quantiles."""
    cdf = np.cumsum(density) / density.sum()
    u = (np.arange(4000) + 0.5) / 4000
    return moments(density)[0], float(np.mean(np.interp(u, cdf, GRID) * norm.ppf(u)))


def ep_tilted() -> Any:
    """A cavity times a probit likelihood, and the Gaussian of the same moments."""
    figure, ax = panels(width=6.5)
    cavity, likelihood = norm.pdf(GRID, -1.0, 1.5), ndtr(3.0 * GRID)
    tilted = normalised(cavity * likelihood)
    ax.plot(GRID, cavity, color=GREY, ls=":", label="cavity: what all other entries say")
    ax.plot(GRID, likelihood * 0.4, color=GREEN, ls="-.", label="likelihood of this entry (scaled)")
    ax.plot(GRID, tilted, color=BLUE, label="both together, exact")
    ax.plot(GRID, norm.pdf(GRID, *moments(tilted)), color=ORANGE, ls="--", label="EP: the Gaussian of the same moments")
    ax.set(xlim=(-5, 5), xlabel="latent value", ylabel="density")
    ax.legend(frameon=False, fontsize=9)
    return figure


def lp_mode() -> Any:
    """The same product, and the Gaussian at its mode."""
    figure, ax = panels(width=6.5)
    log_tilted = norm.logpdf(GRID, 0.0, 1.5) - np.exp(1.5 * GRID)
    tilted = normalised(np.exp(log_tilted - log_tilted.max()))
    best = int(np.argmax(log_tilted))
    curvature = -(log_tilted[best + 1] - 2 * log_tilted[best] + log_tilted[best - 1]) / STEP**2
    ax.plot(GRID, tilted, color=BLUE, label="cavity times a Poisson count of 0, exact")
    ax.plot(GRID, norm.pdf(GRID, *moments(tilted)), color=ORANGE, ls="--", label="EP: the same moments")
    at_mode = norm.pdf(GRID, GRID[best], curvature**-0.5)
    ax.plot(GRID, at_mode, color=PURPLE, ls="-.", label="Laplace: mode and curvature")
    ax.set(xlim=(-6, 2.5), xlabel="latent value", ylabel="density")
    ax.legend(frameon=False, fontsize=9)
    return figure


def qp_wasserstein() -> Any:
    """The two projections of a skew density, and how much smaller the second's standard deviation is."""
    figure, (left, right) = panels(2, width=8.0)
    tilted = normalised(norm.pdf(GRID, -1.0, 2.5) * ndtr(8.0 * GRID))
    mean, sd = moments(tilted)
    _, near = nearest_in_wasserstein(tilted)
    left.plot(GRID, tilted, color=BLUE, label="exact")
    left.plot(GRID, norm.pdf(GRID, mean, sd), color=ORANGE, ls="--", label=f"EP, sd {sd:.2f}")
    left.plot(GRID, norm.pdf(GRID, mean, near), color=GREEN, ls="-.", label=f"QP, sd {near:.2f}")
    left.set(xlim=(-4, 7), xlabel="latent value", ylabel="density")
    left.legend(frameon=False, fontsize=9)
    widths = np.linspace(0.3, 3.0, 25)
    ratio = []
    for width in widths:
        density = norm.pdf(GRID, -0.5 * width, width) * ndtr(GRID)
        ratio.append(nearest_in_wasserstein(density)[1] / moments(density)[1])
    right.plot(widths, ratio, color=GREEN)
    right.axhline(1.0, color=GREY, ls=":")
    right.set(xlabel="sd of the cavity", ylabel="sd of QP / sd of EP", ylim=(0.9, 1.01))
    return figure


def product_posterior(y: float = 2.0, noise: float = 0.35) -> np.ndarray:
    """The exact posterior of two factors u and v with standard normal priors, given y = u v + noise, on UV x UV."""
    u, v = np.meshgrid(UV, UV, indexing="ij")
    log_p = -0.5 * (u**2 + v**2) - 0.5 * ((y - u * v) / noise) ** 2
    return np.exp(log_p - log_p.max())


def mean_field(y: float = 2.0, noise: float = 0.35) -> tuple[float, float]:
    """Mean and standard deviation of u (and of v, by symmetry) under the best product of two Gaussians."""
    m, s = 1.0, 0.5
    for _ in range(500):
        precision = 1.0 + (m**2 + s**2) / noise**2
        m, s = 0.5 * m + 0.5 * y * m / noise**2 / precision, precision**-0.5
    return m, s


def vmp_product() -> Any:
    """Two factors of one entry: exact posterior, and the best product of independent Gaussians."""
    figure, ax = panels(width=4.6, height=4.2)
    ax.contour(UV, UV, product_posterior().T, levels=5, colors=BLUE, linewidths=1.0)
    m, s = mean_field()
    angle = np.linspace(0, 2 * np.pi, 100)
    for radius in (1.0, 2.0):
        ax.plot(m + radius * s * np.cos(angle), m + radius * s * np.sin(angle), color=ORANGE, ls="--")
    ax.plot([], [], color=BLUE, label="exact posterior")
    ax.plot([], [], color=ORANGE, ls="--", label="mean field, 1 and 2 sd")
    ax.set(xlabel="u", ylabel="v", xlim=(-3, 3), ylim=(-3, 3))
    ax.legend(frameon=False, fontsize=9, loc="upper left")
    return figure


def gibbs_product() -> Any:
    """A chain of draws that goes along one ridge of the same posterior and does not cross to the other."""
    figure, ax = panels(width=4.6, height=4.2)
    ax.contour(UV, UV, product_posterior().T, levels=5, colors=GREY, linewidths=0.8)
    rng, y, noise = np.random.default_rng(0), 2.0, 0.35
    u, path = 1.0, []
    for _ in range(60):
        v_precision = 1 + u**2 / noise**2
        v = y * u / noise**2 / v_precision + rng.normal() * v_precision**-0.5
        path.append((u, v))
        u_precision = 1 + v**2 / noise**2
        u = y * v / noise**2 / u_precision + rng.normal() * u_precision**-0.5
        path.append((u, v))
    points = np.array(path)
    ax.plot(points[:, 0], points[:, 1], color=BLUE, lw=0.6)
    ax.plot(points[1::2, 0], points[1::2, 1], "o", color=BLUE, ms=3, label="60 draws of one chain")
    ax.plot([], [], color=GREY, label="exact posterior")
    ax.set(xlabel="u", ylabel="v", xlim=(-3, 3), ylim=(-3, 3))
    ax.legend(frameon=False, fontsize=9, loc="upper left")
    return figure


def cep_conditional() -> Any:
    """The mean of u given v, and the two ways of averaging it over what is known of v."""
    figure, (left, right) = panels(2, width=8.0, height=3.8)
    v = np.linspace(-0.5, 3.0, 200)
    m, s, y, noise = 0.8, 0.9, 2.0, 0.7
    conditional = m + s**2 * v * (y - v * m) / (v**2 * s**2 + noise**2)
    centre, spread = 1.2, 0.5
    weight = norm.pdf(v, centre, spread)
    left.plot(v, conditional, color=BLUE, label="mean of u given v, exact")
    left.fill_between(v, 0.8 * weight, color=GREY, alpha=0.3, label="what is known of v (scaled)")
    at = centre
    slope = np.interp(at, v, np.gradient(conditional, v))
    value = float(np.interp(at, v, conditional))
    left.plot(v, value + slope * (v - at), color=ORANGE, ls="--", label="its tangent at E[v]: first order")
    left.axvline(at, color=GREY, ls=":")
    left.set(xlabel="v", ylabel="mean of u", ylim=(0, 2.4))
    above = {"frameon": False, "fontsize": 9, "loc": "lower left", "bbox_to_anchor": (0.0, 1.0)}
    left.legend(**above)
    sds = np.linspace(0.05, 1.0, 20)
    exact = [np.average(conditional, weights=norm.pdf(v, centre, sd)) for sd in sds]
    second = float(np.interp(at, v, np.gradient(np.gradient(conditional, v), v)))
    right.plot(sds, exact, color=BLUE, label="average over v, exact")
    right.plot(sds, np.full_like(sds, value), color=ORANGE, ls="--", label="first order")
    right.plot(sds, value + 0.5 * second * sds**2, color=GREEN, ls="-.", label="second order")
    right.set(xlabel="sd of v", ylabel="average mean of u", ylim=(0.8, 2.0))
    right.legend(**above)
    return figure


def engine_coverage() -> Any:
    """The coverage of each method's 90 % intervals, by likelihood, as measured."""
    rows = [row for row in figures("coverage") if "prior of its paper" not in row["row"]]
    methods, kinds = (list(dict.fromkeys(row[name] for row in rows)) for name in ("row", "column"))
    figure, ax = panels(width=7.0, height=3.8)
    colours = [BLUE, ORANGE, GREEN, PURPLE, GREY]
    for k, (kind, mark, colour) in enumerate(zip(kinds, "os^Dv", colours, strict=True)):
        found = [(methods.index(row["row"]), float(row["value"])) for row in rows if row["column"] == kind]
        at = [i + 0.13 * (k - 2) for i, _ in found]
        ax.plot([value for _, value in found], at, mark, color=colour, label=kind, ms=7)
    ax.axvline(0.9, color="black", ls=":", lw=1)
    ax.set(xlabel="share of values inside their 90 % interval", xlim=(0.4, 1.0))
    ax.set_yticks(range(len(methods)), [method.replace("`", "") for method in methods])
    ax.invert_yaxis()
    for between in range(1, len(methods)):
        ax.axhline(between - 0.5, color=GREY, lw=0.3)
    ax.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def cp_model() -> Any:
    """A block of data as a sum of components, each one weight for every row of every mode."""
    from matplotlib.patches import Polygon, Rectangle

    figure, ax = panels(width=8.0, height=2.4)
    ax.set_axis_off()
    ax.set(xlim=(0, 16), ylim=(0, 4.6), aspect="equal")
    ax.add_patch(Rectangle((0.2, 0.5), 2.4, 2.4, fc="#dbe7f1", ec="black"))
    ax.add_patch(Polygon([(0.2, 2.9), (1.2, 3.7), (3.6, 3.7), (2.6, 2.9)], fc="#c3d6e6", ec="black"))
    ax.add_patch(Polygon([(2.6, 0.5), (3.6, 1.3), (3.6, 3.7), (2.6, 2.9)], fc="#a9c4da", ec="black"))
    rng = np.random.default_rng(3)
    for x, y in rng.uniform(0.4, 2.3, (26, 2)):
        ax.add_patch(Rectangle((x, y + 0.2), 0.18, 0.18, fc="white", ec=GREY, lw=0.5))
    ax.text(1.4, 0.02, "white: unobserved", fontsize=9, ha="center")
    ax.text(4.2, 2.0, "≈", fontsize=18, ha="center", va="center")
    for n, (x, colour) in enumerate([(5.3, BLUE), (9.0, ORANGE), (12.7, GREEN)]):
        ax.add_patch(Rectangle((x, 0.5), 0.3, 2.2, fc=colour, alpha=0.7, ec="black"))
        ax.add_patch(Rectangle((x + 0.5, 2.9), 2.0, 0.3, fc=colour, alpha=0.7, ec="black"))
        ax.add_patch(Polygon([(x, 2.9), (x + 0.25, 2.9), (x + 1.15, 3.8), (x + 0.9, 3.8)], fc=colour, ec="black"))
        ax.text(x + 1.4, 1.5, f"component {n + 1}", fontsize=9, ha="center")
        if n < 2:
            ax.text(x + 3.1, 2.0, "+", fontsize=16, ha="center", va="center")
    return figure


def default_fit() -> Any:
    """From entries to the policy that runs a fit."""
    from matplotlib.patches import FancyBboxPatch

    figure, ax = panels(width=9.0, height=5.6)
    ax.set(xlim=(0, 100), ylim=(0, 62))
    ax.axis("off")

    def box(x: float, y: float, width: float, text: str, colour: str, height: float = 10.0) -> None:
        ax.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=9, linespacing=1.4)
        corners = {"boxstyle": "round,pad=0,rounding_size=1.2", "facecolor": "none", "edgecolor": colour}
        ax.add_patch(FancyBboxPatch((x, y), width, height, linewidth=1.6, **corners))

    def arrow(start: tuple[float, float], end: tuple[float, float], text: str = "") -> None:
        ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": GREY, "shrinkA": 0, "shrinkB": 0})
        if text:
            ax.text((start[0] + end[0]) / 2, (start[1] + end[1]) / 2 + 1.0, text, fontsize=8, color=GREY, ha="center")

    box(0, 50, 26, "entries, and what\nthe user said", GREY)
    box(36, 50, 28, "by rule: method, rank, prior,\ncolumns, sweeps", BLUE)
    box(72, 50, 28, "quick fits without some entries:\ncolumns, noise, power", ORANGE)
    arrow((26, 55), (36, 55))
    arrow((64, 55), (72, 55), "open")
    columns = [(0, PURPLE), (27, GREEN), (54, BLUE), (81, GREY)]
    policies = [
        ("gibbs, pg-gibbs", "three quick fits;\nchains start at the best;\nburn-in in fewer columns?"),
        ("vmp, pg-vb, cep, laplace", "one quick fit;\nthe method goes on from it,\ntried without a tenth first"),
        ("prior or init of the user", "spectra and random starts;\nthe best goes on"),
        ("wopt", "spectra; weight of\nthe prior by\nentries left out"),
    ]
    for (x, colour), (name, what) in zip(columns, policies, strict=True):
        width = 19 if x == 81 else 25
        arrow((86 if x == 81 else min(86, 78 + x / 8), 50), (x + width / 2, 39))
        box(x, 20, width, f"{name}\n\n{what}", colour, height=19)
        arrow((x + width / 2, 20), (min(max(x + width / 2, 24), 76), 11))
    box(20, 1, 60, "posterior, and a record of what decided: rank_, interactions_, noise_, power_,\n"
        "diagnostics_ (weights of chains and quick fits, scores of entries left out)", GREY)  # fmt: skip
    return figure


DRAWN = (cp_model, default_fit, cep_conditional, ep_tilted, lp_mode, vmp_product, gibbs_product, qp_wasserstein)
FIGURES = {draw.__name__: draw for draw in (*DRAWN, engine_coverage)}


def file_of(name: str, cache: Path) -> Path:
    """The svg file of a figure, drawn if it is not there yet; the same bytes every time."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    key = hashlib.sha256(Path(__file__).read_bytes() + (FOLDER / "calibration.csv").read_bytes()).hexdigest()[:12]
    file = cache / f"{name}-{key}.svg"
    if not file.exists():
        cache.mkdir(parents=True, exist_ok=True)
        figure = FIGURES[name]()
        with mpl.rc_context({"svg.hashsalt": "tensorcep", "svg.fonttype": "path"}):
            figure.savefig(file, metadata={"Date": None}, facecolor="white")
        plt.close(figure)
    return file
