"""Options with which every script is run at a tiny size, and those scripts that need published data."""

from __future__ import annotations

TINY = {
    "papers.reproduce_bpm": "--data toy,sonar --splits 1 --tol 0.01",
    "papers.reproduce_cep_tensor": "--methods cep,vmp,wopt --folds 1 --ranks 3 --sweeps 10",
    "papers.reproduce_clutter": "--data listed --draws 200 --repeats 1",
    "papers.reproduce_dblp_streaming": (
        "--methods cep,vmp,batch,wopt --entries 600 --batch-sizes 300 --orders 2 --ranks 2 --sets 1 --sweeps 3"
    ),
    "papers.reproduce_glm": (
        "--tables --simulations --data crabs --folds 1 --methods cep1,vb,ep,kjit,is,is-ep --sweeps 3 --draws 100"
    ),
    "papers.reproduce_polya_gamma": (
        "--data binary-extreme,negbinomial-small,poisson-small --shape 30,12 --true-rank 2 --sweeps 6 --seeds 1 "
        "--points 2"
    ),
    "papers.reproduce_qp": "--data mining --methods ep,qp --rounds 1",
    "benchmarks.gauntlet.__main__": "--part smoke",
    "benchmarks.peers": (
        "--entries 500 --ranks 2 --sweeps 4 --few 1500 --quick 6 --models ordinal,gaussian+features --shape 40,16 "
        "--data crabs --sizes 500x5x1 --repeats 1"
    ),
    "benchmarks.quality.accuracy": (
        "--methods default,cep,vmp,pg-gibbs --folds 1 --entries 400 --sets 2 --data alog,enron --ranks 2 --sweeps 4 "
        "--interactions main=1:cp=1 --priors learned"
    ),
    "benchmarks.quality.calibration": (
        "--methods laplace,wopt-ridge,cep-averaged --likelihoods gaussian,logit --true-rank 1 --shape 12,10,8 "
        "--density 0.4 --seeds 1 --observed"
    ),
    "benchmarks.quality.defaults": (
        "--data alog,enron --folds 1 --entries 300 --methods gibbs,cep --interactions auto,pair1 --priors auto "
        "--rank-factors 1 --sweeps-factors 0.02 --limits auto,none"
    ),
}
NEEDS_DATA = {
    "papers.reproduce_bpm",
    "papers.reproduce_cep_tensor",
    "papers.reproduce_dblp_streaming",
    "papers.reproduce_glm",
    "benchmarks.peers",
    "benchmarks.quality.accuracy",
    "benchmarks.quality.defaults",
}
