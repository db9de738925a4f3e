"""Options with which every script is run at a tiny size, and those scripts that need published data."""

from __future__ import annotations

TINY = {
    "papers.reproduce_bpm": "--data toy,sonar --splits 1 --tol 0.01",
    "papers.reproduce_cep_tensor": "--methods cep,vmp,wopt --folds 1 --ranks 3 --sweeps 10",
    "papers.reproduce_clutter": "--data listed --draws 200 --repeats 1",
    "papers.reproduce_dblp_streaming": (
        "--methods cep,vmp,batch,wopt --entries 600 --batch-sizes 300 --orders 2 --ranks 2 --sets 1 --sweeps 3"
    ),
    "papers.reproduce_glm": "--tables --data crabs --folds 1 --methods cep1,vb,kjit,is,is-ep --sweeps 50 --draws 500",
    "papers.reproduce_polya_gamma": (
        "--data binary-extreme,negbinomial-small,poisson-small --shape 30,12 --true-rank 2 --sweeps 6 --seeds 1 "
        "--points 2"
    ),
    "papers.reproduce_qp": "--data mining --methods ep,qp --rounds 1",
    "speed.bench_default": "--cases tiny --repeats 1 --sweeps 8",
    "speed.bench_engines": "--methods vmp,wopt --ranks 2 --entries 500 --repeats 1",
    "speed.bench_factor_models": "--shape 40,16 --ranks 3 --sweeps 4",
    "speed.bench_gaussian_process": "--data simulated --points 300 --inducing 8 --repeats 1",
    "speed.bench_gibbs": "--entries 500 --repeats 1",
    "speed.bench_knowledge": "--entries 500 --rows 200 --ranks 2 --repeats 1",
    "speed.bench_glm": "--sizes 2000 --columns 10 --sweeps 4 --no-simulations",
    "speed.bench_interactions": (
        "--methods vmp,pg-vb --ranks 2 --interactions main+pairs --shape 12,10,8 --entries 300 --sweeps 4 --repeats 1"
    ),
    "speed.bench_memory": "--entries 3000 --ranks 2 --dtypes float64,float32",
    "speed.bench_pca": "--shape 60,20 --ranks 3 --sweeps 3",
    "speed.bench_peers": "--peers none --methods vmp,wopt --folds 1 --ranks 2 --sweeps 3",
    "speed.bench_predict": "--entries 300 --cells 100 --sweeps 8 --repeats 1 --threads 1",
    "speed.bench_read": "--lines 300 --repeats 1 --batch-sizes 100",
    "speed.bench_read_tns": "--lines 200 --repeats 1",
    "speed.bench_startup": "--only-imports --repeats 1",
    "speed.bench_stream": (
        "--entries 400 --stream-entries 400 --ranks 2 --batch-sizes 100 --points 2 --orders 2 --forget 0,0.1 "
        "--revisit 0,50"
    ),
    "speed.bench_sweep": "--ranks 2 --entries 500 --repeats 1 --threads 1,2",
    "speed.bench_table": "--quick --rows sweeps-1e7,reading",
    "speed.stream_kill_test": "--kills 1 --entries 600 --batch-sizes 50 --ranks 1 --revisit 40",
    "studies.choose_defaults": (
        "--data alog,enron --folds 1 --entries 300 --methods gibbs,cep --interactions auto,pair1 --priors auto "
        "--rank-factors 1 --sweeps-factors 0.02 --limits auto,none"
    ),
    "studies.engine_calibration": (
        "--methods laplace,wopt-ridge,cep-averaged --likelihoods gaussian,logit --true-rank 1 --shape 12,10,8 "
        "--density 0.4 --seeds 1"
    ),
    "studies.fuzz": "--cases 60",
    "studies.gauntlet": "--part smoke",
    "studies.measure_accuracy": (
        "--methods default,cep,vmp --folds 1 --entries 400 --sets 2 --data alog,enron --ranks 2 --sweeps 4 "
        "--interactions main=1:cp=1 --priors learned --ensembles 2"
    ),
    "studies.measure_coverage": "--ranks 1 --true-rank 1 --shape 12,10,8 --density 0.4 --seeds 1",
    "studies.measure_distributed": "--entries 2000 --ranks 2 --sweeps 3 --threads 1 --workers 1 --engines vmp",
    "studies.check_distributed": (
        "--entries 2000 --kill-entries 2000 --ranks 2 --sweeps 5 --rounds 1 --engines vmp --kill gibbs"
    ),
    "studies.measure_factor_models": "--ranks 3 --sweeps 6 --every 20 --methods vb-factorized",
    "studies.measure_gaussian_process": "--data crabs --draws 60 --inducing crabs --counts 4",
    "studies.measure_hard_cases": "--cases one-class,stream --scale 0.01 --seeds 0",
    "studies.measure_out_of_core": "--entries 3000 --rank 2 --sweeps 2",
    "studies.measure_forgetting": "--data alog,enron --entries 300 --ranks 1 --sweeps 12 --tol 1e-3",
    "studies.measure_rank_selection": (
        "--seeds 1 --true-ranks 1 --noise 0.5 --shape 8,7,6 --entries 200 --above 1 --largest 2 --starts 1 "
        "--score-method vmp"
    ),
    "studies.measure_ratings": (
        "--folds 1 --models ordinal,gaussian+features --method vmp --rank 1 --sweeps 6 --entries 1500"
    ),
    "studies.measure_series": "--data simulated --sweeps 12",
    "studies.measure_graph": "--side 5 --method vmp --sweeps 12 --sizes 100 --timed 2",
    "studies.measure_sampled_zeros": "--links logit --size 12 --rate 0.3 --seeds 1 --sweeps 10",
}
NEEDS_DATA = {
    "papers.reproduce_bpm",
    "papers.reproduce_cep_tensor",
    "papers.reproduce_dblp_streaming",
    "papers.reproduce_glm",
    "speed.bench_peers",
    "studies.choose_defaults",
    "studies.measure_accuracy",
    "studies.measure_gaussian_process",
    "studies.measure_forgetting",
}
