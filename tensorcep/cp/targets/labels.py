"""Labels of two classes: which they are, their link, and the share of the population's zeros that a fit holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logit, ndtri

from tensorcep.core.checks import check_choice, check_unmasked, fail_value, word_or_range
from tensorcep.cp.inputs.batches import Coder
from tensorcep.cp.inputs.coordinates import Entries
from tensorcep.cp.methods import METHODS
from tensorcep.cp.targets.base import Chosen, Decided, Facts, Observation, OfEach, Target, classed_entries
from tensorcep.cp.targets.levels import check_none_missing, is_text, plain
from tensorcep.entries.io import Batch
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.likelihoods import get_likelihood, names_of
from tensorcep.likelihoods.base import Likelihood
from tensorcep.likelihoods.binary import MixedLabels, for_population


def two_classes(y: Any) -> list[Any]:
    """The two labels of a fit, numbers or text, sorted; [0, 1] for numbers that equal these; others are refused."""
    classes = np.unique(plain(y)).tolist()
    if len(classes) == 1:
        fail_value(
            f"y must hold labels of two classes; got only {classes[0]!r}; add entries of the other class, such as "
            "ones.concatenate(ones.sample_zeros(n)), since sample_zeros gives the zeros alone."
        )
    if len(classes) > 2:
        fail_value(
            f"y must hold labels 0 and 1, or any two labels; got {len(classes)} different ones, such as "
            f"{', '.join(map(repr, classes[:3]))}; use CPOrdinalClassifier for ordered levels such as stars, or fit "
            "whether y is above one of them."
        )
    return [0, 1] if classes == [0, 1] else classes


def coded(y: Any, classes: list[Any]) -> Any:
    """Labels as 0 and 1, refused if one is of no class; as they are where the classes are 0 and 1."""
    if classes == [0, 1]:
        return y
    labels = np.asarray(check_unmasked(y, "y"))
    check_none_missing(labels)
    comparable = is_text(labels) == isinstance(classes[0], str)
    known = np.isin(labels, classes) if comparable else np.zeros(labels.shape, dtype=bool)
    if not known.all():
        n = int(np.argmin(known))
        got = labels.ravel()[n : n + 1].tolist()[0]
        fail_value(f"y must hold labels {classes[0]!r} and {classes[1]!r}; got {got!r} at entry {n}.")
    return (labels == classes[1]).astype(np.float64)


@dataclass(frozen=True)
class LabelObservation(Observation):
    """What a fit to labels decided; `sampled_rate` is the share of zeros that its SparseTensor knew to hold."""

    ESTIMATOR = "CPClassifier"
    FACTS = ("link_", "_sampled_rate", "_classes")

    link: str = "probit"
    sampled_rate: float | None = None
    classes: tuple[Any, ...] | list[Any] = (0, 1)

    @property
    def likelihood(self) -> Likelihood:
        return get_likelihood(self.link)

    def coded(self, y: Any) -> Any:
        return coded(y, list(self.classes))

    def decoded(self, y: np.ndarray) -> np.ndarray:
        return y if list(self.classes) == [0, 1] else np.asarray(np.array(list(self.classes))[y.astype(np.int64)])


@dataclass(frozen=True)
class LabelTarget(Target):
    """What a user says of labels; see the parameters of `CPClassifier`."""

    OBSERVATION = LabelObservation

    link: str = "auto"
    zero_rate: float | str = 1.0

    def likelihoods(self) -> list[Likelihood]:
        link = check_choice("link", self.link, ("auto", *names_of("labels")))
        return [get_likelihood(name) for name in (("probit", "logit") if link == "auto" else (link,))]

    def asked(self, method: str) -> Likelihood:
        """With link="auto" the logit, whose sampler has the better log loss on held-out training entries."""
        return self.likelihoods()[-1]

    def decide(self, y: np.ndarray, chosen: Chosen, coords: np.ndarray, extent: OfEach, weight: OfEach) -> Decided:
        links = self.likelihoods()
        record = links[-1] if METHODS[chosen.method].lacks(links[0]) else links[0]
        return record, {"link_": record.name}

    def intercept(self, y: np.ndarray, likelihood: Likelihood, weight: OfEach = None) -> float:
        """The link of the share of ones, kept off 0 and 1 by half an entry."""
        ones, n = (np.count_nonzero(y > 0.0), len(y)) if weight is None else (weight[y > 0.0].sum(), weight.sum())
        share = (ones + 0.5) / (n + 1.0)
        return float(logit(share) if likelihood.f_is_log_odds else ndtri(share))

    def entries(self, X: Any, y: Any, shape: tuple[int, ...] | None) -> tuple[Entries, Facts]:
        return classed_entries(X, y, shape, two_classes, coded)

    def coder(self, before: Any) -> Coder:
        """Labels of a batch as 0 and 1, and the two labels: those of the model, or of its first batch."""

        def code(y: Any) -> tuple[Any, list[Any]]:
            known = None if before is None else before.classes
            if known is None:
                labels = np.asarray(check_unmasked(y, "y"))
                known = [0, 1] if labels.dtype.kind in "biuf" and np.isin(labels, [0, 1]).all() else two_classes(y)
            return coded(y, known), known

        return code

    def of_batch(self, batch: Batch) -> Facts:
        return {"_classes": [0, 1] if batch.classes is None else batch.classes}

    def rate(self) -> Any:
        """The parameter zero_rate after its check."""
        return word_or_range("zero_rate", self.zero_rate, ("auto",), 0.0, 1.0, include_low=False)

    def rate_of(self, observation: Any) -> float:
        """The share of the population's zeros that the entries of a fit hold."""
        rate = self.rate()
        if rate != "auto":
            return float(rate)
        if observation.sampled_rate is None:
            fail_value("zero_rate='auto' needs a fit to a SparseTensor whose zero_rate is one number; give the number.")
        return float(observation.sampled_rate)

    def of_source(self, source: Any, before: Any = None) -> Facts:
        """The share of zeros that a SparseTensor knows to hold."""
        known = source.zero_rate if isinstance(source, SparseTensor) else None
        if self.rate() == "auto":
            if known is None:
                fail_value("zero_rate='auto' needs a SparseTensor whose zero_rate is one number; give the number.")
            if before is not None and known != before.sampled_rate:
                fail_value(
                    "zero_rate='auto' needs batches whose zeros were sampled at one rate; got "
                    f"{known:g} after {before.sampled_rate}; give the number."
                )
        return {"_sampled_rate": known}

    def of_new(self, observation: Any, stream: Any, prior: Any) -> Likelihood:
        """Labels of the population, with its share of zeros; a stream that chose its prior is mixed with a constant."""
        rate = self.rate_of(observation)
        record = for_population(observation.likelihood, rate)
        standing = stream.standing if stream is not None and isinstance(prior, str) and prior == "auto" else None
        if standing is None or standing.share == 1.0:
            return record
        p = standing.share_of_ones  # among the entries
        one = rate * p / (rate * p + 1.0 - p)
        return MixedLabels(f"{record.name}, beside a constant", of=record, share=standing.share, one=one)
