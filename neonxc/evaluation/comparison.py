"""Methods side by side: the area under their pixel-flipping curves."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from neonxc.evaluation.flipping import Flipping, fixed_seed, inputs_of, pixel_flipping, targets_of
from neonxc.evaluation.imputers import Imputer, default_baseline, default_imputer
from neonxc.evaluation.methods import Method, default_methods, word_methods
from neonxc.evaluation.units import groups_of, own_groups
from neonxc.network import NeuralizedClustering
from neonxc.progress_bars import progress_bar


@dataclass(frozen=True, repr=False)
class Comparison:
    """Pixel-flipping of several methods.

    Attributes
    ----------
    results : dict of str to Flipping
        The most relevant features first.
    reversed : dict of str to Flipping
        The least relevant first.
    seconds : dict of str to float
        What computing the relevance took.
    baseline : str or None
        What PDA, integrated gradients and Shapley values took for a missing feature: "mean" (of the data), "zero",
        or "given"; None where none of these was compared by default.
    """

    results: dict[str, Flipping]
    reversed: dict[str, Flipping]
    seconds: dict[str, float]
    baseline: str | None = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row per method: AUC and SRG with their standard errors over the inputs; whether it is the best.

        SRG, the symmetric relevance gain, is the AUC less that of the reversed order. "tied" says that the mean
        difference to the best AUC is within one standard error of that difference, over the inputs.
        """
        best = max(self.results, key=lambda name: self.results[name].auc)
        rows = []
        for name, found in self.results.items():
            gain = found.auc_per_input - self.reversed[name].auc_per_input
            behind, error = mean_error(self.results[best].auc_per_input - found.auc_per_input)
            mean, spread = mean_error(gain)
            rows.append(
                {
                    "method": name,
                    "AUC": found.auc,
                    "± AUC": found.auc_stderr,
                    "SRG": mean,
                    "± SRG": spread,
                    "seconds": self.seconds[name],
                    "best": name == best,
                    "tied": behind <= error or name == best,
                }
            )
        return rows

    @property
    def frame(self) -> pd.DataFrame:
        """The rows as a data frame."""
        return pd.DataFrame(self.rows).set_index("method")

    def markdown(self) -> str:
        """The rows as a markdown table: the best AUC bold, those within one standard error of it with a star.

        A last line says what the default methods that need one took for a missing feature.
        """
        lines = ["| method | AUC | SRG | seconds |", "|---|---|---|---|"]
        for row in self.rows:
            auc = f"{row['AUC']:.2f}"
            auc = f"**{auc}**" if row["best"] else auc + ("*" if row["tied"] else "")
            lines.append(
                f"| {row['method']} | {auc} ± {row['± AUC']:.2f} | {row['SRG']:.2f} ± {row['± SRG']:.2f} "
                f"| {row['seconds']:.3g} |"
            )
        if self.baseline is not None:
            lines += ["", f"Missing features of PDA, IG and Shapley: {self.baseline}."]
        return "\n".join(lines)

    def plot(self) -> Any:
        """Draw the curves; see :func:`neonxc.plot.flipping_curves`."""
        from neonxc.plot import flipping_curves

        return flipping_curves(self.results)

    def __str__(self) -> str:
        return self.markdown()

    __repr__ = __str__


def compare(
    net: Any,
    X: Any,
    methods: Mapping[str, Method | Any] | None = None,
    imputer: Imputer | None = None,
    repeats: int = 10,
    *,
    groups: Any = None,
    target: Any = None,
    steps: int | None = None,
    baseline: Any = None,
    random_state: Any = 0,
) -> Comparison:
    """Compare methods of explanation by pixel-flipping.

    Parameters
    ----------
    net : nn.Module
        From :func:`neonxc.neuralize`; with methods of your own, any network with logits [N, K].
    X : array, frame or tensor [N, ...]
    methods : dict of str to callable or array, optional
        Callables of (net, x, target), x a tensor and target the columns [N], that return relevance; or
        relevance itself. Default: :func:`neonxc.evaluation.methods.default_methods`; for texts, those of them that
        need no slopes.
    imputer, repeats, groups, target, steps, random_state
        As for :func:`pixel_flipping`. Draws are common to all methods.
    baseline : {"mean", "zero"} or array shaped like one input, optional
        What the default methods that need one (PDA, integrated gradients, Shapley values) take for a missing
        feature. Default: the mean over X for tables, whose zeros mean nothing by themselves, and zero where
        features are activations or pixels.

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError
        Another `baseline`, and what :func:`pixel_flipping` raises.

    Examples
    --------
    >>> import neonxc
    >>> from neonxc.evaluation import KDEImputer, compare, methods
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris().data
    >>> net = neonxc.neuralize(KMeans(3, n_init=10, random_state=0).fit(X), X)
    >>> found = compare(net, X, {"NEON": methods.neon, "random": methods.random()}, KDEImputer(X))
    >>> found.results["NEON"].auc > found.results["random"].auc
    True
    """
    x = inputs_of(net, X)
    imputer = imputer or default_imputer(net, x)
    of_words = isinstance(net, NeuralizedClustering) and net.carrier.missing == "word"
    known = None
    if baseline is not None and (methods is not None or of_words):
        raise ValueError("baseline is for the default methods of tables and images")
    if methods is None and of_words:
        methods = word_methods(imputer)
    elif methods is None:
        value, known = _baseline(baseline, net, x)
        groups = own_groups(net) if groups is None else groups
        numbers = None if groups is None and x.ndim == 2 else groups_of(groups, x)
        common = None if numbers is None or numbers.ndim > 1 else numbers
        methods = default_methods(imputer, common, baseline=value, known=known)
    with torch.no_grad():
        columns = targets_of(net, x, target)
    options = {"groups": groups, "target": columns, "steps": steps, "random_state": fixed_seed(random_state)}
    if not isinstance(methods, Mapping) or not methods:
        raise ValueError(f"methods needs a dict of names and functions (or relevance), got {methods!r:.60}")
    results, backwards, seconds = {}, {}, {}
    for name, method in progress_bar(methods.items(), desc="methods"):
        start = time.perf_counter()
        relevance = method(net, x, columns) if callable(method) else method
        seconds[name] = time.perf_counter() - start
        results[name] = pixel_flipping(net, x, relevance, imputer, repeats, **options)
        backwards[name] = pixel_flipping(net, x, relevance, imputer, repeats, order="least", **options)
    return Comparison(results, backwards, seconds, known)


def _baseline(baseline: Any, net: Any, x: Tensor) -> tuple[Tensor | None, str]:
    """The value of a missing feature, shaped like one input (None: zeros), and what it is in words."""
    if baseline is None:
        baseline = "zero" if default_baseline(net, x) is None else "mean"
    if isinstance(baseline, str):
        if baseline not in ("mean", "zero"):
            raise ValueError(f'baseline needs "mean", "zero" or an array like one input, got {baseline!r}')
        return (x.mean(0) if baseline == "mean" else None), baseline
    value = (baseline if isinstance(baseline, Tensor) else torch.tensor(np.array(baseline))).to(x)
    if value.shape != x.shape[1:]:
        raise ValueError(f"baseline needs the shape of one input, {list(x.shape[1:])}, got {list(value.shape)}")
    return value, "given"


def mean_error(values: np.ndarray) -> tuple[float, float]:
    """Mean and its standard error."""
    error = float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return float(values.mean()), error
