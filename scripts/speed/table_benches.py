"""The benches of the table of speed and memory (`bench_table`), with their options, in full and in --quick."""

from __future__ import annotations

from scripts.speed import table_lines as lines

TABLE: dict[str, lines.Bench] = {
    "fits": lines.Bench(
        "bench_default",
        "--repeats 1 --cases values,labels,tiny,counts --methods auto,vmp,wopt",
        "--repeats 1 --cases values,tiny --methods auto,vmp --entries 3000 --sweeps 20",
        lines.fits(),
    ),
    "fits-1e6": lines.Bench(
        "bench_default",
        "--repeats 1 --cases values --methods auto,vmp --entries 1e6",
        None,
        lines.large_fits(),
    ),
    "predictions": lines.Bench(
        "bench_predict", "--repeats 3", "--repeats 1 --entries 2000 --cells 500 --sweeps 8", lines.predictions()
    ),
    "reading": lines.Bench("bench_read", "--repeats 3", "--repeats 1 --lines 20000", lines.reading()),
    "streams": lines.Bench(
        "bench_stream",
        "--studies speed --batch-sizes 100,1000",
        "--studies speed --batch-sizes 100 --entries 2000",
        lines.streams(),
    ),
    "scaling": lines.Bench(
        "bench_engines",
        "--methods gibbs,vmp,cep --entries 1e6 --likelihoods gaussian --threads 1,2 --repeats 5",
        "--methods gibbs,vmp --entries 2e4 --likelihoods gaussian --threads 1,2 --repeats 2",
        lines.scaling("gibbs", "vmp", "cep"),
    ),
    "scaling-labels": lines.Bench(
        "bench_engines",
        "--methods pg-gibbs --entries 1e6 --likelihoods logit --threads 1,2 --repeats 5",
        "--methods pg-gibbs --entries 2e4 --likelihoods logit --threads 1,2 --repeats 2",
        lines.scaling("pg-gibbs"),
    ),
    "regressions": lines.Bench(
        "bench_glm",
        "--no-simulations --sizes 2000 --beside 2000x20x1 20000x300x1 200000x50x1 100000x1000x.01 --repeats 3",
        "--no-simulations --sizes 2000 --beside 2000x20x1 --repeats 1",
        lines.regressions(),
    ),
    "cold": lines.Bench(
        "bench_startup",
        "--likelihoods gaussian --repeats 1 --methods auto,cep,stream,usual",
        "--likelihoods gaussian --repeats 1 --methods auto",
        lines.cold(),
    ),
    "sweeps": lines.Bench(
        "bench_gibbs",
        "--entries 1e6",
        "--entries 5e4",
        lines.sweeps("1e6", {"cp": 45, "default": 200}),
    ),
    "sweeps-1e7": lines.Bench("bench_gibbs", "--entries 1e7 --columns cp", None, lines.sweeps("1e7", {"cp": 60})),
    "averaged": lines.Bench(
        "bench_engines",
        "--methods vmp,cep-averaged --ranks 32,64 --entries 1e5 --likelihoods gaussian --repeats 3",
        "--methods vmp,cep-averaged --ranks 32 --entries 5000 --likelihoods gaussian --repeats 2",
        lines.averaged(),
    ),
    "whole-fits": lines.Bench(
        "bench_default",
        "--repeats 1 --cases values --methods auto,vmp --threads 1,2",
        "--repeats 1 --cases values --methods vmp --threads 1,2 --entries 3000 --sweeps 8",
        lines.whole_fits(),
    ),
    "memory": lines.Bench(
        "bench_memory",
        "--entries 1e6 --dtypes float64 --methods gibbs,vmp,cep-averaged,cep",
        "--entries 20000 --dtypes float64 --methods gibbs,cep-averaged",
        lines.memory("1e6, one start"),
    ),
    "memory-1e7": lines.Bench(
        "bench_memory",
        "--entries 1e7 --dtypes float64 --methods gibbs,vmp,cep-averaged",
        None,
        lines.memory("1e7, one start"),
    ),
    "memory-own": lines.Bench(
        "bench_memory",
        "--entries 1e6 --dtypes float64 --own --methods gibbs,vmp,cep-averaged,cep",
        None,
        lines.memory("1e6, estimator's own starts"),
    ),
    "rows": lines.Bench(
        "bench_memory", "--entries 3e5 --rows 100000 --ranks 20 --dtypes float64 --methods gibbs", None, lines.rows()
    ),
    "pca": lines.Bench("bench_pca", "", "--shape 1000,200", lines.pca()),
    "dblp": lines.Bench("bench_default", "--repeats 1 --cases dblp --methods auto", None, lines.dblp(), needs="dblp"),
}

PEERS: dict[str, lines.Bench] = {
    "samplers": lines.Bench(
        "bench_peers",
        "--methods gibbs --folds 1 --ranks 10",
        "--methods gibbs --folds 1 --ranks 10 --sweeps 10",
        lines.samplers("Alog, rank 10", smurff="", myfm=""),
    ),
    "samplers-1e6": lines.Bench(
        "bench_peers",
        "--entries 1e6 --peers smurff --methods gibbs --folds 1 --ranks 8 --sweeps 20",
        "--entries 2e4 --peers smurff --methods gibbs --folds 1 --ranks 8 --sweeps 10",
        lines.samplers("1e6, rank 8", smurff="ratio 9"),
    ),
    "samplers-1e7": lines.Bench(
        "bench_peers",
        "--entries 1e7 --peers smurff --methods gibbs --folds 1 --ranks 8 --sweeps 6",
        None,
        lines.samplers("1e7, rank 8", smurff="ratio 6"),
    ),
    "mofapy2": lines.Bench(
        "bench_factor_models",
        "--peers mofapy2",
        "--peers mofapy2 --shape 200,40 --ranks 5 --sweeps 20",
        (
            lines.Line(
                "BayesianPCA of labels, seconds; mofapy2",
                {"data": "bernoulli hidden", "method": "vb-factorized"},
                {"data": "bernoulli hidden", "method": "mofapy2"},
                field="seconds",
            ),
        ),
    ),
}
