"""The gauntlet's problems, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from scripts.lib.gauntlet import matrices, real, tensors
from scripts.lib.gauntlet.matrices import MatrixSpec
from scripts.lib.gauntlet.record import Cell, Problem
from scripts.lib.gauntlet.tensors import TensorSpec

MAKERS: dict[str, Callable[[TensorSpec, int], Problem]] = {
    "values": tensors.values,
    "labels": tensors.labels,
    "counts": tensors.counts,
}
FACTORS = {"zero": False, "positive": True}
PUBLISHED_SHAPES = ((300, 200, 100), (500, 300, 200))
FEW: dict[str, Any] = {"n": 40, "shape": (14, 12, 10)}
FIVE_MODES: dict[str, Any] = {"order": 5, "shape": (12, 10, 8, 7, 6)}


def drawn(observed: str, name: str, size: str = "small", model: str = "cp", **spec: Any) -> Cell:
    """A cell of a simulated tensor; its draws do not depend on its place in the grid."""
    kind = observed if model == "cp" else f"stream-{observed}"
    return Cell(f"{kind}-{name}", model, observed, size, partial(MAKERS[observed], TensorSpec(**spec)))


def values() -> list[Cell]:
    """Real values: one thing at a time, and the crosses of those that interact."""
    cells = []
    for factors, positive in FACTORS.items():
        for order in (2, 3, 4):
            for rank in (1, 3, 8, 15):
                size = "small" if rank in (3, 8) else "large"
                about = {"order": order, "rank": rank, "positive": positive}
                cells.append(drawn("values", f"order-{order}-rank-{rank}-{factors}", size, **about))
        for noise in (0.1, 0.5, 2.0):
            for per_row in (5, 20, 100):
                if (noise, per_row) != (0.5, 20):
                    size = "small" if positive == (noise == 0.5) or per_row == 20 else "large"
                    about = {"noise": noise, "per_row": per_row, "positive": positive}
                    cells.append(drawn("values", f"noise-{noise}-per-row-{per_row}-{factors}", size, **about))
        for n in (300, 10_000, 100_000):
            size = "large" if n > 300 else "small" if positive else "smoke"
            cells.append(drawn("values", f"entries-{n}-{factors}", size, n=n, positive=positive))
        for offset in (100.0, 1e4):
            for n in (300, 2000):
                size = "small" if n == 300 or positive else "large"
                about = {"offset": offset, "n": n, "positive": positive}
                cells.append(drawn("values", f"offset-{offset:g}-entries-{n}-{factors}", size, **about))
        cells.append(drawn("values", f"zipf-{factors}", zipf=True, positive=positive))
    return cells + other_values()


def other_values() -> list[Cell]:
    """Structure, noise and sizes of other kinds."""
    cells = [
        drawn("values", f"main-{main}-order-{order}", "small" if order == 3 else "large", main=main, order=order)
        for main in (0.3, 0.7, 1.0)
        for order in (2, 3)
    ]
    large = {"rank": 8, "n": 100_000}
    return [
        *cells,
        drawn("values", "pairs-0.5", pairs=0.5),
        drawn("values", "main-0.3-pairs-0.7", "large", main=0.3, pairs=0.7),
        drawn("values", "one-constant-component", constant=1),
        drawn("values", "all-components-constant", constant=3),
        drawn("values", "mode-of-one-row", shape=(70, 70, 1)),
        drawn("values", "mode-of-two-rows", "large", shape=(60, 40, 2)),
        drawn("values", "heavy-tails-zero", tails=2.5),
        drawn("values", "heavy-tails-positive", "large", tails=2.5, positive=True),
        drawn("values", "outliers", outliers=0.01),
        drawn("values", "spike-0.3", floor=0.3),
        *(drawn("values", f"log-normal-{sd}-positive", logs=sd, positive=True) for sd in (0.5, 1.0)),
        drawn("values", "log-normal-1.0-per-row-100-zero", logs=1.0, per_row=100.0),
        drawn("values", "spike-0.7", "large", floor=0.7, positive=True),
        drawn("values", "zipf-entries-100000", "large", zipf=True, **large, shape=(3000, 2000, 500)),
        *(
            drawn("values", f"rank-8-{shape[0]}x{shape[1]}x{shape[2]}", "large", shape=shape, **large)
            for shape in PUBLISHED_SHAPES
        ),
        drawn("values", "thousands-of-rows", "large", n=50_000, shape=(30_000, 2_000, 20)),
        drawn("values", "percentages", "large", percent=True, order=2, rank=2, noise=0.2, shape=(80, 60)),
        drawn("values", "order-5", "large", **FIVE_MODES),
        drawn("values", "entries-40-zero", "large", **FEW),
        drawn("values", "entries-40-main-1.0", "large", main=1.0, **FEW),
        drawn("values", "entries-1000000-zero", "large", n=1_000_000, per_row=1000.0, rank=8),
        drawn("values", "entries-1000000-positive", "large", n=1_000_000, per_row=1000.0, rank=8, positive=True),
    ]


def labels() -> list[Cell]:
    """Labels 0 and 1."""
    cells = [
        drawn("labels", f"order-{order}-ones-{share}", "small", order=order, share=share)
        for order in (2, 3, 4)
        for share in (0.5, 0.01)
    ]
    large = {"rank": 8, "per_row": 100.0}
    return [
        *cells,
        *(drawn("labels", f"sampled-zeros-order-{order}", share=0.01, sampled=True, order=order) for order in (2, 3)),
        *(drawn("labels", f"rank-{rank}-entries-5000", "large", rank=rank, n=5000) for rank in (1, 8, 15)),
        drawn("labels", "entries-300", "smoke", n=300),
        drawn("labels", "entries-40", "large", **FEW),
        drawn("labels", "positive", positive=True),
        drawn("labels", "main-1.0", main=1.0),
        drawn("labels", "per-row-5", "large", per_row=5.0),
        drawn("labels", "per-row-100", per_row=100.0),
        drawn("labels", "zipf", zipf=True),
        drawn("labels", "zipf-entries-20000", "large", zipf=True, n=20_000),
        *(
            drawn("labels", f"rank-8-{shape[0]}x{shape[1]}x{shape[2]}", "large", n=100_000, rank=8, shape=shape)
            for shape in PUBLISHED_SHAPES
        ),
        drawn("labels", "ones-0.01-entries-100000", "large", n=100_000, share=0.01, **large),
    ]


def counts() -> list[Cell]:
    """Counts."""
    cells = [
        drawn("counts", f"mean-{mean:g}-{name}", "small", count=mean, dispersion=r)
        for mean in (0.1, 3.0, 300.0)
        for name, r in (("poisson", None), ("overdispersed", 2.0))
    ]
    return [
        *cells,
        drawn("counts", "entries-300", "smoke", n=300),
        drawn("counts", "entries-40", "large", **FEW),
        drawn("counts", "mean-100000-overdispersed", "large", count=1e5, dispersion=20.0),
        drawn("counts", "order-2", order=2),
        drawn("counts", "order-4", "large", order=4),
        drawn("counts", "rank-8", "large", rank=8, n=5000),
        drawn("counts", "zipf", "small", zipf=True, dispersion=2.0),
        drawn("counts", "main-1.0", "large", main=1.0),
        drawn(
            "counts", "entries-64000-overdispersed", "large", n=64_000, shape=(30, 30, 96), dispersion=4.0, count=8.5
        ),
    ]


def streams() -> list[Cell]:
    """The same as streams of ten batches."""
    shapes = {"zero": {}, "positive": {"positive": True}, "offset-100": {"offset": 100.0}, "main-0.7": {"main": 0.7}}
    more = {"zipf": {"zipf": True}, "heavy-tails": {"tails": 2.5}, "noise-2": {"noise": 2.0}, "order-2": {"order": 2}}
    sizes = {"zero": "smoke"}
    return [
        *(
            drawn("values", name, sizes.get(name, "small"), "stream", **{"n": 5000, **spec})
            for name, spec in {**shapes, **more}.items()
        ),
        drawn("values", "order-5", "large", "stream", **FIVE_MODES),
        drawn("values", "entries-40-zero", "large", "stream", **FEW),
        drawn("counts", "entries-40", "large", "stream", **FEW),
        drawn("values", "rank-8-300x200x100", "large", "stream", n=100_000, rank=8, shape=PUBLISHED_SHAPES[0]),
        drawn("labels", "ones-0.5", "small", "stream", n=5000),
        drawn("labels", "ones-0.01", "small", "stream", n=5000, share=0.01),
        drawn("labels", "positive", "small", "stream", n=5000, positive=True),
        drawn("counts", "mean-3-poisson", "small", "stream", n=5000),
        drawn("counts", "mean-3-overdispersed", "small", "stream", n=5000, dispersion=2.0),
    ]


def factor_models() -> list[Cell]:
    """Matrices with holes."""
    specs = {
        "equal-scales": MatrixSpec(),
        "unequal-scales": MatrixSpec(scales=4.0),
        "constant-columns": MatrixSpec(constant=3),
        "offset-100": MatrixSpec(offset=100.0),
        "rank-15": MatrixSpec((500, 60), rank=15),
        "heavy-tails": MatrixSpec(tails=2.5),
        "noise-2": MatrixSpec(noise=2.0),
    }
    cells = [
        Cell(f"{model}-{name}", model, "values", "small", partial(matrices.matrix, spec))
        for model in ("pca", "fa")
        for name, spec in specs.items()
    ]
    smoke = Cell("pca-few-rows", "pca", "values", "smoke", partial(matrices.matrix, MatrixSpec((60, 12), scales=2.0)))
    labelled = Cell("pca-labels", "pca", "labels", "small", partial(matrices.matrix, MatrixSpec(labels=True)))
    views = Cell("gfa-three-views", "gfa", "values", "small", partial(matrices.matrix, MatrixSpec(views=3)))
    scaled = MatrixSpec(views=3, scales=4.0)
    unlike = Cell("gfa-unequal-scales", "gfa", "values", "small", partial(matrices.matrix, scaled))
    return [*cells, smoke, labelled, views, unlike, Cell("cmf", "cmf", "values", "small", matrices.recommender)]


def real_data() -> list[Cell]:
    """Real data; `--help` says where they come from."""

    def always(make: Callable[..., Problem], *given: Any) -> Callable[[int], Problem]:
        return partial(_without_seed, make, *given)

    cells = [
        Cell("alog", "cp", "values", "small", always(real.published, "alog")),
        Cell("enron", "cp", "labels", "small", always(real.published, "enron")),
        Cell("dblp", "cp", "labels", "large", always(real.published, "dblp")),
        Cell("il2", "cp", "values", "small", partial(real.with_tensorly, "il2")),
        Cell("serology", "cp", "values", "large", partial(real.with_tensorly, "serology")),
        Cell("digits-tensor", "cp", "values", "large", real.digits_tensor),
        Cell("taxi-eight-hours", "cp", "counts", "small", partial(real.taxi, 8)),
        Cell("taxi", "cp", "counts", "large", partial(real.taxi, 96)),
        *(Cell(f"birmingham-{name}", "cp", "values", "large", always(real.birmingham, name)) for name in real.SHARES),
        Cell("stream-alog", "stream", "values", "small", always(real.published, "alog"), 21),
        Cell("stream-enron", "stream", "labels", "small", always(real.published, "enron")),
        Cell("stream-dblp", "stream", "labels", "large", always(real.published, "dblp"), 310),
    ]
    for name, raw in (("digits", True), ("breast-cancer", True), ("breast-cancer", False), ("diabetes", False)):
        unit = "raw" if raw else "column-sd"
        make = partial(_holed, name, raw)
        cells += [Cell(f"{model}-{name}-{unit}", model, "values", "small", make) for model in ("pca", "fa")]
    return cells


def _without_seed(make: Callable[..., Problem], *given: Any) -> Problem:
    """The problem of a maker with one split; the seed, the last of `given`, is the fit's alone."""
    return make(*given[:-1])


def _holed(name: str, raw: bool, seed: int) -> Problem:
    return real.holed(name, seed, raw)


GRID = {cell.name: cell for cell in (*values(), *labels(), *counts(), *streams(), *factor_models(), *real_data())}
PARTS = {"smoke": ("smoke",), "small": ("smoke", "small"), "all": ("smoke", "small", "large")}
