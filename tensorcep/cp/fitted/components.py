"""What a fitted model tells of its components: tables, a report, chains, features, draws for ArviZ."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from scipy.special import ndtri

from tensorcep.core.checks import check_fraction, check_int, check_random_state, check_values, fail_value
from tensorcep.core.diagnostics import bulk_size, r_hat, tail_size
from tensorcep.core.packing import offsets, unpack
from tensorcep.core.reporting import Summary, arviz_container
from tensorcep.cp.fitted import predict
from tensorcep.cp.fitted.alignment import ColumnBlock, RowLayout, best_order, mean_squares, signs
from tensorcep.cp.fitted.model import FitResult, FittedModel
from tensorcep.cp.inputs.coordinates import by_mode, coords_to_predict, labels_at, mode_of, names_of, rows_of
from tensorcep.cp.model.columns import free_columns
from tensorcep.cp.posterior import Draws, Mixture, Posterior
from tensorcep.entries.labels import column_names
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.entries.tables import UNSAID, split_observed
from tensorcep.priors.base import ModeParameters
from tensorcep.priors.deviations import moments
from tensorcep.priors.normal_wishart import MEAN_ROWS
from tensorcep.priors.regression import FeaturesLaw, ready

# A component whose mean square is below this share of the largest one's is switched off.
NEGLIGIBLE = 1e-3
# Draws of the factors that effects are drawn for, those of the first that are not kept, and the smallest standard
# deviation of a column beside the largest.
DRAWS, FIRST, LEAST_SCALE = 100, 5, 1e-6


def to_tensorly(fit: FitResult) -> Any:
    """The posterior means as a TensorLy CPTensor: factors with columns of norm 1, the largest weight first."""
    from tensorly.cp_tensor import CPTensor

    norms = np.stack([np.linalg.norm(factor, axis=0) for factor in fit.factors])
    weights = norms.prod(axis=0)
    order = np.argsort(-weights, kind="stable")
    safe = np.where(norms > 0.0, norms, 1.0)
    return CPTensor((weights[order], [(f / n)[:, order] for f, n in zip(fit.factors, safe, strict=True)]))


def factor_diagnostics(model: FittedModel, mode: Any) -> pd.DataFrame:
    """R-hat and effective sample sizes of the aligned factors of a mode, for methods that draw chains."""
    fit, k = model.fit, mode_of(model.fit.labels, mode)
    model.check_chains("factor_diagnostics")
    draws = fit.aligned_draws(fit.belief.mean[:, : sum(fit.shape)], fit.layout.rows[k])
    chains = draws.reshape(fit.belief.n_chains, -1, *draws.shape[1:])
    columns = [int(r) for r in np.argsort(-fit.relevance, kind="stable") if k in fit.column_modes[r]]
    labels = pd.MultiIndex.from_product([columns, ["r_hat", "bulk_size", "tail_size"]], names=["component", None])
    each = np.stack([of(chains)[:, columns] for of in (r_hat, bulk_size, tail_size)], axis=2)
    known = fit.labels[k]
    return pd.DataFrame(each.reshape(len(each), -1), index=None if known is None else known.index, columns=labels)


def _part_name(fit: FitResult, r: int) -> str:
    modes, names = fit.column_modes[r], names_of(fit.labels)
    several = len(modes) == len(names) and len(modes) > 1
    return "all modes" if several else " x ".join(str(names[k]) for k in modes)


def components(model: FittedModel, mode: Any, coverage: float = 0.9) -> pd.DataFrame:
    """The weights of a mode's rows in its components, as a tidy table."""
    fit = model.fit
    k, z = mode_of(fit.labels, mode), float(ndtri(0.5 + 0.5 * check_fraction("coverage", coverage)))
    found, layout, of_columns = fit.aligned, fit.layout, fit.column_modes
    own, turn = layout.rows[k], signs(fit.factors, of_columns)[k]
    norms = np.stack([np.linalg.norm(found.mean[rows], axis=0) for rows in layout.rows])
    safe, name = np.where(norms > 0.0, norms, 1.0), names_of(fit.labels)[k]
    rows, parts = labels_at(fit.labels, k, np.arange(fit.shape[k])), []
    order = np.argsort(-mean_squares(found.mean, layout), kind="stable")
    for r in (int(r) for r in order if k in of_columns[int(r)]):
        mean = turn[r] * found.mean[own, r] / safe[k, r]
        sd = np.sqrt(found.variance[own, r]) / safe[k, r]
        weight = float(norms[list(of_columns[r]), r].prod())
        named = {name: rows, "component": r, "part": _part_name(fit, r), "weight": weight}
        parts.append(pd.DataFrame({**named, "mean": mean, "sd": sd, "lower": mean - z * sd, "upper": mean + z * sd}))
    return pd.concat(parts, ignore_index=True)


def variance_explained(model: FittedModel, X: Any, y: Any, modes: Any, value: Any) -> pd.DataFrame:
    """What each component explains, the largest first."""
    fit, squares = model.fit, mean_squares(model.fit.aligned.mean, model.fit.layout)
    order, total = np.argsort(-squares, kind="stable"), max(float(squares.sum()), np.finfo(float).tiny)
    frame = pd.DataFrame({"component": order, "part": [_part_name(fit, int(r)) for r in order]})
    frame["share"] = squares[order] / total
    precision = noise_precision(fit)
    if precision is not None:
        frame["share_of_all"] = squares[order] / (total + 1.0 / precision)
    if X is None:
        return frame
    X, y = split_observed(names_of(fit.labels), X, y, modes, value)
    rows = model.packed(coords_to_predict(fit.observation.without_extent(X), fit.labels))
    y = check_values(fit.observation.coded(y), len(rows), name="y")
    free = free_columns(fit.interactions, len(fit.shape))
    means = np.concatenate([fit.aligned.mean, np.where(free, 0.0, 1.0)])  # a row that is not known adds nothing
    # the share of the variance of y that the first 1, 2, ... columns explain, constants aside
    left, cumulative, f = y - y.mean(), np.empty(len(order)), np.zeros(len(y))
    for place, r in enumerate(order):
        f += np.prod(means[rows, r], axis=1)
        rest = left - (f - f.mean())
        whole, open_ = float(left @ left), float(rest @ rest)
        cumulative[place] = 1.0 - open_ / whole if whole > 0.0 else float(open_ == 0.0)  # as scikit-learn's R2
    return frame.assign(r2=np.diff(cumulative, prepend=0.0), cumulative=cumulative)


def summary(model: FittedModel, n_rows: int = 5, n_components: int = 6) -> Summary:
    """What was fitted, how far it is to be believed, and what its components look like."""
    n_rows, n_components = check_int("n_rows", n_rows), check_int("n_components", n_components)
    fit, names, health = model.fit, names_of(model.fit.labels), model.fit.diagnostics
    sizes = " x ".join(f"{n} {name}" for n, name in zip(fit.shape, names, strict=True))
    columns = ", ".join(f"{n} {part}" for part, n in fit.interactions.items() if n)
    facts = {
        "model": f"{fit.observation.ESTIMATOR}, likelihood {fit.likelihood.name}",
        "entries": f"{fit.n_samples_seen:,} of {sizes}",
        "method": f"{fit.method}, rank {fit.rank}, prior {fit.prior}, columns {columns}",
        "sweeps": f"{fit.n_iter} {'' if fit.converged else 'not '}converged ({fit.method})",
    }
    facts |= {} if health is None else health.lines()
    facts["sweeps"] += f", {fit.trace['seconds'].sum():.2g} s" if "seconds" in fit.trace else ""
    explained = variance_explained(model, None, None, None, UNSAID)
    top = explained.head(n_components)
    tables = {f"Variance explained by {len(top)} of {len(explained)} components": top}
    for name in names:
        table, lines = components(model, name), []
        for r in top["component"].tolist():
            own = table[table["component"] == r]
            own = own.iloc[np.argsort(-own["mean"].abs().to_numpy(), kind="stable")[:n_rows]]
            if len(own):
                each = zip(own[table.columns[0]], own["mean"], own["sd"], strict=True)
                rows = ", ".join(f"{row} {m:+.2g} ± {s:.1g}" for row, m, s in each)
                lines.append({"component": r, "part": own["part"].iloc[0], "rows": rows})
        tables[f"Largest weights of {name}"] = pd.DataFrame(lines)
    tables = {title: table for title, table in tables.items() if len(table)}
    return Summary(f"{fit.observation.ESTIMATOR} of {sizes}", facts, tables)


def chain_diagnostics(model: FittedModel, X: Any) -> tuple[np.ndarray, np.ndarray]:
    """R-hat and effective sample size (bulk) of the latent value of each entry, for methods that draw chains."""
    draws = chain_draws(model, X, "chain_diagnostics")
    return r_hat(draws), bulk_size(draws)


def chain_draws(model: FittedModel, X: Any, what: str = "latent_draws") -> np.ndarray:
    """The latent values of entries in all draws, (chains, draws, n)."""
    model.check_chains(what)
    belief, rows = predict.belief_at(model, X)
    f, _ = predict.latent_components(belief, rows)  # a pair without entries at its mean given those with some
    return f.reshape(belief.n_chains, -1, len(rows)) + model.fit.observation.origin


def n_components(fit: FitResult) -> int:
    """Number of components that are not switched off; main effects, which are no components, do not count."""
    several = np.array([len(modes) > 1 for modes in fit.column_modes])
    shares = fit.relevance[several]
    return int(np.count_nonzero(shares > NEGLIGIBLE * shares.max(initial=0.0)))


def lower_bound(fit: FitResult) -> float:
    """Lower bound of the log evidence after the last sweep; only methods that compute one have the attribute."""
    bounds = fit.trace["lower_bound"]
    if "member" in fit.trace:  # of a mixture it is that of the best fit, which comes first
        bounds = bounds[fit.trace["member"] == 0]
    bound = float(bounds[-1])
    if np.isnan(bound):
        raise AttributeError(f"method {fit.method!r} gives no lower bound of the evidence.")
    return bound


def noise_precision(fit: FitResult) -> float | None:
    """Posterior mean of the noise precision of real values (the estimate, for a method without a posterior)."""
    if not fit.likelihood.learns_precision:
        return None
    result = fit.posterior
    if isinstance(result, Mixture):
        return float(np.mean([member.noise.precision for member in result.members if member.noise is not None]))
    if isinstance(result, Posterior):
        return None if result.noise is None else float(result.noise.precision)
    if isinstance(result, Draws) and result.uneven is not None and result.theta_mode is not None:
        return float(np.mean(result.uneven[..., 0]))
    with np.errstate(over="ignore"):  # of constant values it has no bound
        return float(np.mean(np.asarray(result.theta)))


def feature_effects(model: FittedModel) -> pd.DataFrame:
    """How the rows' factors depend on their features, the surest effects first."""
    fit, designs = model.fit, model.fit.features
    if not designs:
        raise AttributeError("feature_effects_ needs a fit with features, such as prior={'item': Features(X)}.")
    factors, parts = predict.sample_posterior(model, DRAWS, random_state=0), []
    for k, own in enumerate(designs):
        if own is None:
            continue
        columns = free_columns(fit.interactions, len(fit.shape))[k]
        seen = np.isin(np.arange(len(own.described)), fit.layout.seen[k] - fit.layout.rows[k].start)
        rows = np.asarray(factors[k][:, : len(seen)][:, seen][:, :, columns], dtype=np.float64)
        # a draw of the linear map for each draw of the rows
        every = rows.reshape(-1, rows.shape[2])
        scale = np.maximum(every.std(axis=0), LEAST_SCALE * max(float(every.std(axis=0).max()), 1e-300))
        mean, rng, drawn = every.mean(axis=0), np.random.default_rng(0), []
        law = FeaturesLaw(np.ones(len(scale), dtype=bool), mean, scale, 1.0, ready(own.some(seen), MEAN_ROWS))
        now: Any = ModeParameters(mean, np.diag(scale**-2.0))
        for s in [0] * FIRST + list(range(len(rows))):
            now = law.draw(now, rows[s], rng)
            drawn.append(now.slopes.coef)
        coef = np.stack(drawn[FIRST:])
        F, D = coef.shape[1:]
        mean, sd = coef.mean(axis=0).ravel(), np.maximum(coef.std(axis=0, ddof=1), np.finfo(float).tiny).ravel()
        lead = {"mode": [names_of(fit.labels)[k]] * (F * D), "feature": np.repeat(np.array(own.names, dtype=object), D)}
        parts.append(pd.DataFrame({**lead, "component": np.tile(np.flatnonzero(columns), F), "mean": mean, "sd": sd}))
    table = pd.concat(parts, ignore_index=True)
    order = np.argsort(-(table["mean"].abs() / table["sd"]).to_numpy(), kind="stable")
    return table.iloc[order].reset_index(drop=True)


def to_arviz(model: FittedModel, X: Any, y: Any, n_samples: int, random_state: Any, **given: Any) -> Any:
    """Draws of the posterior, a sampler's all by chain, predictive ones at X, and the data y there, for ArviZ."""
    model.check_uncertain("to_arviz")
    if X is None and y is not None:
        fail_value("y must be None without X, the entries whose values it holds.")
    fit, likelihood = model.fit, model.fit.likelihood
    n = None if fit.belief.n_chains else check_int("n_samples", n_samples)
    extent = None if X is None else fit.observation.extent_of(X, given)
    rng, chains = check_random_state(random_state), max(1, fit.belief.n_chains)
    modes = column_names([None if labels is None else labels.name for labels in fit.labels], "component")
    cells = np.zeros((0, len(modes)), dtype=np.int64) if X is None else X
    values, theta, f, rows = predict.row_draws(model, n, cells, rng)

    def by_chain(draws: np.ndarray, *dims: Any) -> tuple[tuple[Any, ...], np.ndarray]:
        return ("chain", "draw", *dims), draws.reshape(chains, -1, *draws.shape[1:])

    factors, each = fit.aligned_draws(values[:, : sum(fit.shape)]), zip(modes, fit.layout.rows, strict=True)
    posterior = {f"factor_{k}": by_chain(factors[:, own], mode, "component") for k, (mode, own) in enumerate(each)}
    if likelihood.levels is not None and likelihood.levels.learned:
        posterior["thresholds"] = by_chain(theta.values, "threshold")
    if likelihood.zeros is not None:
        posterior["zero_share"] = by_chain(theta.values[:, -1])
    if likelihood.parameter is not None:
        drawn = np.broadcast_to(theta.values, (len(values), theta.values.shape[1]))
        dims = () if theta.mode is None else (modes[theta.mode],)
        posterior[likelihood.parameter.name] = by_chain(drawn if dims else drawn[:, 0], *dims)
    groups: dict[str, Any] = {"posterior": posterior}
    if X is not None:
        new = predict.observations(model, f, rows, theta, rng, extent)
        groups["posterior_predictive"] = {"y": by_chain(new, "entry")}
        y = X.values if y is None and isinstance(X, SparseTensor) else y
    if y is not None:
        groups["observed_data"] = {"y": (("entry",), check_values(fit.observation.coded(y), len(rows), name="y"))}
    named = zip(modes, fit.labels, strict=True)
    coords = {mode: np.asarray(labels.index) for mode, labels in named if labels is not None}
    return arviz_container(groups, coords, fit.method, approximate=n is not None)


# A latent value as the sum of its parts: level, main effects, pairs of modes, components.
#
# Constants wander between main effects and pairs, so parts are centred over the rows that have entries: with the means
# a and b of its two sides a pair (u, v) is (u - a)'(v - b), what it loses, u'b and a'v, joins the main effects, and the
# means of these the level. Components of all modes stay as they are. In every component of a belief the parts add up to
# the latent value, and so do their means.

# What a term of a latent value is called by: its modes (none for the level), and the number of a component.
Term = tuple[tuple[int, ...], "int | None"]
Terms: TypeAlias = dict[Term, tuple[float, float]]  # means and variances


def _terms(mean: np.ndarray, cov: np.ndarray | None, layout: RowLayout, rows: np.ndarray) -> Terms:
    """Mean and variance of every term in one component; Gaussian rows are independent."""
    K, R = len(rows), mean.shape[1]
    # means over the rows of each mode that have entries; 0 in columns of more than two modes
    centre = [mean[seen].mean(axis=0, dtype=np.float64) for seen in layout.seen]
    for block in layout.blocks:
        for k in range(K):
            if len(block.modes) > 2 or k not in block.modes:
                centre[k][block.columns] = 0.0
    m = mean[rows].astype(np.float64) - np.stack(centre)
    S = np.zeros((K, R, R)) if cov is None else unpack(cov[rows], R)
    effect, level = np.zeros((K, R)), 0.0
    found: Terms = {((), None): (0.0, 0.0)}
    for block in layout.blocks:
        own = block.columns
        if len(block.modes) == 1:
            effect[block.modes[0], own] = 1.0
            level += float(centre[block.modes[0]][own].sum())
        elif len(block.modes) == 2:
            a, b = block.modes
            effect[a, own], effect[b, own] = centre[b][own], centre[a][own]
            level += float(centre[a][own] @ centre[b][own])
    for k in range(K):
        if effect[k].any():
            found[((k,), None)] = (float(effect[k] @ m[k]), float(effect[k] @ S[k] @ effect[k]))
    variance = 0.0  # of the averages over independent rows which make the level
    if cov is not None:
        for weight, seen in zip(effect, layout.seen, strict=True):
            variance += float(weight @ unpack(cov[seen].sum(axis=0), R) @ weight) / max(1, len(seen)) ** 2
    found[((), None)] = (level, variance)
    for block in layout.blocks:
        columns = list(range(block.columns.start, block.columns.stop))
        if len(block.modes) == 2:
            found[(block.modes, None)] = _product(m, S, block, columns)
        elif len(block.modes) > 2:
            found |= {(block.modes, r): _product(m, S, block, [r]) for r in columns}
    return found


def _product(m: np.ndarray, S: np.ndarray, block: ColumnBlock, columns: list[int]) -> tuple[float, float]:
    """Mean and variance of the sum over columns of the product over the block's modes."""
    product, D = np.ones(len(columns)), np.zeros((len(columns), len(columns)))
    for k in block.modes:
        own, mine = S[k][np.ix_(columns, columns)], m[k, columns]
        D = D * (own + np.outer(mine, mine)) + np.outer(product, product) * own
        product = product * mine
    return float(product.sum()), float(D.sum())


def explain(model: FittedModel, cell: Any = None, **modes: Any) -> pd.DataFrame:
    """The latent value of one cell as the sum of its parts."""
    fit, belief, names = model.fit, model.fit.belief, names_of(model.fit.labels)
    if cell is not None and not isinstance(cell, dict):
        if isinstance(cell, (str, pd.DataFrame)) or len(cell) != len(names):
            got = f"a DataFrame of {len(cell)} lines" if isinstance(cell, pd.DataFrame) else repr(cell)
            fail_value(f"explain takes one cell, a row for each of the {len(names)} modes, or a dict; got {got}.")
        cell = dict(zip(range(len(names)), cell, strict=True))
    given = by_mode(fit.labels, {**(cell or {}), **modes})
    missing = [repr(names[k]) for k in range(len(names)) if k not in given]
    if missing:
        fail_value(f"explain needs a row of every mode; there is none of {', '.join(missing)}.")
    first = offsets(fit.shape)
    rows = np.array([first[k] + rows_of(fit.labels, fit.shape, k, given[k])[0] for k in range(len(names))])
    layout, reference, found = fit.layout, fit.aligned.reference, Terms()
    means, variances = [], []
    for c in range(belief.size):
        found = _terms(belief.mean[c], None if belief.cov is None else belief.cov[c], layout, rows)
        for block in layout.blocks if belief.size > 1 else ():
            if len(block.modes) > 2:  # components of all modes are called as those which they resemble after alignment
                order = best_order(belief.mean[c], reference, layout, block)
                own = [(block.modes, r) for r in range(block.columns.start, block.columns.stop)]
                found |= dict(zip(own, [found[own[i]] for i in order], strict=True))
        means.append([mean for mean, _ in found.values()])
        variances.append([variance for _, variance in found.values()])
    mean, sd = np.mean(means, axis=0), np.sqrt(np.mean(variances, axis=0) + np.var(means, axis=0))
    titles = [" x ".join(str(names[k]) for k in own) or "level" if r is None else f"component {r}" for own, r in found]
    if belief.deviations is not None:  # of a row of the first of its modes along the second one
        each, spread = moments(belief.deviations, *predict.pairs_at(belief, rows[None]))
        titles.append(" along ".join(str(names[k]) for k in belief.deviations.modes))
        mean, sd = np.append(mean, each.mean()), np.append(sd, np.sqrt(spread.mean() + each.var()))
    shift = np.zeros(len(mean))
    shift[0] = fit.observation.origin
    total, variance = predict.latent(belief, rows[None])
    frame = pd.DataFrame({"part": [*titles, "sum"], "mean": [*(mean + shift), float(total[0]) + shift[0]]})
    return frame.assign(sd=[*sd, float(np.sqrt(variance[0]))]) if model.has_uncertainty else frame
