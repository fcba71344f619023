"""Comparison of explanation methods, and of the stiffness of NEON, by the area under pixel-flipping curves.

For every method m (:func:`compare`), on the same inputs and with the same draws:

    AUC(m)      area under the curve if the most relevant features are inserted first; larger is better
    removal(m)  area under the curve if the least relevant features are inserted first: read backwards, this curve
                removes the most relevant features first; smaller is better
    SRG(m)      AUC(m) - removal(m), the symmetric relevance gain
    tied        the mean of AUC(best) - AUC(m) over the inputs is at most its standard error; likewise for removal

:func:`calibrate_by_flipping` compares NEON at several multiples of the heuristic beta, and selects the beta of the
largest AUC.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from neonxc.common.arguments import check_whole, kind_of, similar
from neonxc.common.numbers import mean_error, plural, text
from neonxc.common.progress import progress_bar
from neonxc.common.result import Result, escape_markdown, markdown_table, rounded_text
from neonxc.common.shortening import shortened
from neonxc.common.types import ArrayLike, Label, RandomState, TableLike
from neonxc.common.warnings import deprecated
from neonxc.data.table import Table
from neonxc.evaluation.flipping import Flipping, fixed_seed, flipped, relevance_of_inputs, targets_of
from neonxc.evaluation.imputers import Imputer, imputer_of, missing_as
from neonxc.evaluation.methods import Method, default_methods, nca, neon, neon_with, word_methods
from neonxc.inputs import Inputs, inputs_of
from neonxc.inputs.groups import groups_of
from neonxc.network import NeuralizedClustering, check_network

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Comparison(Result):
    """Pixel-flipping results of several methods.

    Attributes
    ----------
    results : dict of str to Flipping
        Results with the most relevant features first.
    reversed : dict of str to Flipping
        Results with the least relevant features first.
    seconds : dict of str to float
        Wall-clock time of computing the relevance.
    baseline : str or None
        Value that PDA, integrated gradients and Shapley values use for a missing feature: "mean" (of the data),
        "zero" or "given". None if no such default method was compared.
    rows_ : ndarray
        Rows of X that were compared.
    of : (int, int)
        Number of rows of X, and number of features (groups) of a row.
    """

    results: dict[str, Flipping]
    reversed: dict[str, Flipping]
    seconds: dict[str, float]
    baseline: str | None
    rows_: np.ndarray
    of: tuple[int, int]

    def to_frame(self) -> pd.DataFrame:
        """Return one row per method, with standard errors over the inputs.

        Returns
        -------
        DataFrame
            Index: the method. Columns: "AUC", the area if the most relevant features are inserted first; larger is
            better. "removal", that of the reversed order, which read backwards removes the most relevant features
            first; smaller is better. "SRG", the symmetric relevance gain, which is their difference. "± AUC",
            "± removal" and "± SRG", the standard errors. "seconds". "best" and "best removal": whether the method
            is the best one. "tied" and "tied removal": whether its mean difference to the best one is within one
            standard error of this difference over the inputs.
        """
        return pd.DataFrame(self._rows()).set_index("method")

    def _rows(self) -> list[dict[str, Any]]:
        """Return the rows of the table as dictionaries."""
        insertion_areas = {name: flipping.auc_per_input for name, flipping in self.results.items()}
        removal_areas = {name: -flipping.auc_per_input for name, flipping in self.reversed.items()}
        best, tied = _ranked(insertion_areas)
        best_removal, tied_removal = _ranked(removal_areas)
        rows = []
        for name, flipping in self.results.items():
            removal = self.reversed[name]
            gain, gain_error = mean_error(flipping.auc_per_input - removal.auc_per_input)
            rows.append(
                {
                    "method": name,
                    "AUC": flipping.auc,
                    "± AUC": flipping.auc_stderr,
                    "removal": removal.auc,
                    "± removal": removal.auc_stderr,
                    "SRG": gain,
                    "± SRG": gain_error,
                    "seconds": self.seconds[name],
                    "best": name == best,
                    "tied": tied[name],
                    "best removal": name == best_removal,
                    "tied removal": tied_removal[name],
                }
            )
        return rows

    def to_markdown(self, precision: int | None = None) -> str:
        """Write a markdown table: the best AUC and removal in bold, methods tied with them marked by a star.

        The lines below the table name the numbers of points and steps that were compared, and the value that the
        default methods used for a missing feature.

        Parameters
        ----------
        precision : int, optional
            Number of significant digits; default: two decimals.

        Returns
        -------
        str
        """
        cells = []
        for row in self._rows():
            auc = _marked(rounded_text(row["AUC"], 2, precision), row["best"], row["tied"])
            auc_error = rounded_text(row["± AUC"], 2, precision)
            removal = rounded_text(row["removal"], 2, precision)
            removal = _marked(removal, row["best removal"], row["tied removal"])
            removal_error = rounded_text(row["± removal"], 2, precision)
            cells.append(
                [
                    escape_markdown(row["method"]),
                    f"{auc} ± {auc_error}",
                    f"{removal} ± {removal_error}",
                    _with_error(row["SRG"], row["± SRG"], precision),
                    _duration(row["seconds"]),
                ]
            )
        table = markdown_table(["method", "AUC (insertion) ↑", "removal ↓", "SRG ↑", "seconds"], cells)
        return "\n\n".join([table, *self._remarks()])

    def __str__(self) -> str:
        return self.to_markdown()

    def _remarks(self) -> list[str]:
        n, n_features = self.of
        n_points = len(self.rows_)
        any_result = next(iter(self.results.values()))
        n_steps = len(any_result.curve)
        # the two best methods count as tied with themselves
        n_tied = sum(row["tied"] + row["tied removal"] for row in self._rows())

        notes = []
        if n_tied > 2:
            notes.append("*: within one standard error of the best.")
        if n_points < n:
            notes.append(f"A random sample of {text(n_points)} of {plural(n, 'point')} (points=None: all).")
        if n_steps < n_features:
            per_step = n_features / n_steps
            steps = plural(n_steps, "step")
            notes.append(f"{steps} of about {per_step:.1f} features (steps=None: one at a time).")
        if self.baseline is not None:
            notes.append(f"Missing features of PDA, IG and Shapley: {self.baseline}.")
        if not notes:
            return []
        return [" ".join(notes)]

    @property
    def frame(self) -> pd.DataFrame:
        """The table; deprecated since 0.4.0, use :meth:`to_frame`."""
        deprecated("Comparison.frame", "to_frame()")
        return self.to_frame()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table as dictionaries; deprecated since 0.4.0, use :meth:`to_frame`."""
        deprecated("Comparison.rows", "to_frame()")
        return self._rows()

    def markdown(self) -> str:
        """Write the table as markdown; deprecated since 0.4.0, use :meth:`to_markdown`."""
        deprecated("Comparison.markdown", "to_markdown()")
        return self.to_markdown()

    def plot(self) -> Figure:
        """Draw the curves; see :func:`neonxc.plot.flipping_curves`."""
        from neonxc.plot import flipping_curves  # loads matplotlib

        return flipping_curves(self.results)


def _ranked(areas: dict[str, np.ndarray]) -> tuple[str, dict[str, bool]]:
    """Return the method with the largest mean area, and for every method whether it is tied with that one.

    The areas are those of every input, [N]. A method is tied if the mean difference to the best one is at most its
    standard error.
    """
    best = max(areas, key=lambda name: areas[name].mean())
    tied = {}
    for name, area in areas.items():
        difference, error = mean_error(areas[best] - area)
        tied[name] = name == best or difference <= error
    return best, tied


def _marked(area: str, is_best: bool, is_tied: bool) -> str:
    """Write an area in bold if it is the best, and with a star if it is tied with the best."""
    if is_best:
        return f"**{area}**"
    if is_tied:
        return f"{area}*"
    return area


def _duration(seconds: float) -> str:
    """Write seconds with two decimals, and without decimals from ten on."""
    if seconds < 0.01:
        return "< 0.01"
    if seconds < 10:
        return f"{seconds:.2f}"
    return text(round(seconds))


def compare(
    net: nn.Module,
    X: TableLike,
    methods: Mapping[str, Method | TableLike] | Sequence[str | Method] | None = None,
    imputer: Imputer | None = None,
    repeats: int = 10,
    *,
    groups: str | int | ArrayLike | None = None,
    target: Label | ArrayLike | None = None,
    points: int | None = 200,
    steps: int | None = 20,
    baseline: str | ArrayLike | None = None,
    random_state: RandomState = 0,
    progress: bool = True,
) -> Comparison:
    """Compare explanation methods by pixel-flipping.

    Parameters
    ----------
    net : nn.Module
        A network from :func:`neonxc.neuralize`. For methods other than NEON and NCA, any network with logits [N,
        K].
    X : array, frame or tensor [N, ...]
    methods : sequence of str or callable, or dict of str to callable or array, optional
        Names of default methods and functions of your own; or a dict of names and functions, whose values may also
        be relevance shaped like X. A function takes (net, x, target), x a tensor and target the positions [N] of
        the clusters among the outputs, as captum's methods take them (``net.classes_[target]`` are their labels),
        and returns relevance shaped like x. Default: all of :func:`neonxc.evaluation.methods.default_methods`;
        for texts, those that need no gradient.
    imputer : Imputer, optional
        As for :func:`pixel_flipping`. By default it is built from X, not from the `points` alone.
    repeats, groups, target, random_state
        As for :func:`pixel_flipping`. The random draws are the same for all methods.
    points : int or None
        Number of points to compare on, drawn at random; None: all.
    steps : int or None
        Number of steps, as for :func:`pixel_flipping`; None: one feature (group) at a time.
    baseline : {"mean", "zero"} or one input, optional
        Value that the default methods that need one (PDA, integrated gradients, Shapley values) use for a missing
        feature. Default: the mean of X for tables, and zero if features are activations or pixels.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Comparison

    Raises
    ------
    TypeError
        If `net` or `imputer` has another type, or NEON is compared on a network that is not from
        :func:`neonxc.neuralize`.
    ValueError
        If a method is unknown, or `points` or `baseline` can't be used; and what :func:`pixel_flipping` raises.

    Examples
    --------
    >>> import neonxc
    >>> from neonxc.evaluation import KDEImputer, compare
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris().data
    >>> net = neonxc.neuralize(KMeans(3, n_init=10, random_state=0).fit(X), X)
    >>> comparison = compare(net, X, ["NEON", "random"], KDEImputer(X))
    >>> comparison.results["NEON"].auc > comparison.results["random"].auc
    True
    """
    if not isinstance(net, nn.Module):
        raise TypeError(f"net needs a network, got {kind_of(net)}; neonxc.neuralize(model, X) makes one")
    inputs = inputs_of(net)
    table = inputs.dense(X)
    data: Tensor = table.tensor
    n = len(data)
    imputer = imputer_of(imputer, inputs, data)
    seed = fixed_seed(random_state)
    check_whole("points", points, optional=True)
    rows = sampled_rows(n, points, seed).to(data.device)
    x = data[rows]

    group_numbers = groups_of(net, groups, data)
    shared_groups: Tensor | None = group_numbers  # of default methods, which take the same groups for all inputs
    if group_numbers.ndim > 1:  # superpixels
        group_numbers = group_numbers[rows]
        shared_groups = None
    chosen, known = _chosen_methods(net, inputs, methods, imputer, shared_groups, baseline, data)
    if target is None:
        targets = targets_of(net, x, None)
    else:
        targets = targets_of(net, data, target)[rows]

    results = {}
    reversed_results = {}
    seconds = {}
    for name, method in progress_bar(chosen.items(), desc="methods", disable=not progress):
        argument = f"methods[{name!r}]"
        start = time.perf_counter()
        if callable(method):
            relevance = relevance_of(argument, method, net, x, targets)
        else:
            relevance = relevance_of_inputs(inputs, method, table, argument)
            if len(relevance) != n:
                raise ValueError(f"{argument} needs one entry per row of X, {n}, got {len(relevance)}")
            relevance = relevance[rows]
        seconds[name] = time.perf_counter() - start

        relevance = Table.read(relevance, name=argument).tensor.to(x.device)
        insert = partial(
            flipped, net, x, relevance, imputer, repeats, group_numbers, targets, "insert", steps=steps, seed=seed
        )
        results[name] = insert(order="most")
        reversed_results[name] = insert(order="least")
    n_groups = int(group_numbers.max()) + 1
    return Comparison(results, reversed_results, seconds, known, rows.cpu().numpy(), (n, n_groups))


def sampled_rows(n: int, points: int | None, seed: int) -> Tensor:
    """Return the sorted numbers of some of n rows, drawn at random; None selects all."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return order[:points].sort().values


def _chosen_methods(
    net: nn.Module,
    inputs: Inputs,
    methods: Mapping[str, Method | TableLike] | Sequence[str | Method] | None,
    imputer: Imputer,
    groups: Tensor | None,
    baseline: str | ArrayLike | None,
    data: Tensor,
) -> tuple[dict[str, Method | TableLike], str | None]:
    """Return {name: method}, and the name of the baseline if one of the methods uses it."""
    defaults = {}
    known = None
    if not isinstance(methods, Mapping) and missing_as(inputs, data) != "word":
        value, known = baseline_of(baseline, inputs, data)
        defaults = default_methods(imputer, groups, baseline=value, known=known)
    elif baseline is not None:
        raise ValueError("baseline is for the default methods of tables and images")
    elif not isinstance(methods, Mapping):
        defaults = word_methods(imputer)
    chosen = selected_methods(methods, defaults, net)
    with_baseline = {"IG-10", "Shapley", f"PDA, {known}", f"PDA, {known}, indicator"}
    if not with_baseline & chosen.keys():
        known = None
    return chosen, known


def baseline_of(baseline: str | ArrayLike | None, inputs: Inputs, x: Tensor) -> tuple[Tensor | None, str]:
    """Return the value of a missing feature, shaped like one input (None for zeros), and its name."""
    if baseline is None:
        baseline = "mean" if missing_as(inputs, x) == "draw" else "zero"
    if isinstance(baseline, str):
        if baseline not in ("mean", "zero"):
            raise ValueError(f'baseline needs "mean", "zero" or an array like one input, got {baseline!r}')
        mean = x.mean(0) if baseline == "mean" else None
        return mean, baseline
    value = inputs.baseline(baseline, "baseline")[0]
    if value.shape != x[0].shape:
        raise ValueError(f"baseline needs the shape of one input, {list(x[0].shape)}, got {list(value.shape)}")
    return value.to(x), "given"


def selected_methods(
    methods: object, defaults: dict[str, Method], net: nn.Module
) -> dict[str, Method | TableLike]:
    """Return {name: method} from a dict, or from names of `defaults` and functions; None selects all defaults."""
    if methods is None:
        methods = defaults
    if isinstance(methods, str) or not isinstance(methods, Iterable):
        raise ValueError(
            f"methods needs a list of names and functions, or a dict, got {shortened(repr(methods), 60)}"
        )
    named: Iterable[tuple[str, object]]
    if isinstance(methods, Mapping):
        named = methods.items()
    else:
        named = (_named(method, defaults) for method in methods)

    selected: dict[str, Method | TableLike] = {}
    for name, method in named:
        if name in selected:
            raise ValueError(f"methods has {name!r} twice; give your functions names, {{name: function}}")
        if isinstance(method, str):
            raise ValueError(f"methods[{name!r}] needs a function or relevance, got {method!r}")
        if method is neon or method is nca:
            check_network(net, name, "; neuralize it, or choose methods such as ['gradient × input', 'IG-10']")
        selected[name] = method
    if not selected:
        raise ValueError("methods needs at least one method, got none")
    return selected


def relevance_of(argument: str, method: Method, net: nn.Module, x: Tensor, target: Tensor) -> Any:
    """Call a method; an error names the argument if its function does not take or return what it needs to."""
    try:
        signature(method).bind(net, x, target)
    except TypeError as error:
        raise TypeError(f"{argument} needs three arguments, (net, x, target): {error}") from None
    except ValueError:  # built-in functions may have no signature
        pass
    relevance = method(net, x, target)
    if relevance is None:
        raise ValueError(f"{argument} returned None, it needs to return relevance shaped like x")
    return relevance


def _named(method: object, defaults: dict[str, Method]) -> tuple[str, Method]:
    """Return the name and the function of a method, from one of both; case does not matter in names."""
    if callable(method):
        name = getattr(method, "__name__", type(method).__name__)
        return name, method
    if not isinstance(method, str):
        raise ValueError(
            f"methods needs names and functions, got {type(method).__name__}; relevance needs a name: "
            "methods={name: relevance}"
        )
    for name, default in defaults.items():
        if name.casefold() == method.casefold():
            return name, default
    known = ", ".join(map(repr, defaults))
    raise ValueError(f"methods has no method {method!r}{similar([method], defaults)}. Known: {known}")


FACTORS = tuple(2.0**i for i in range(-6, 3))
"""Factors of the heuristic beta that are compared by default."""


@dataclass(frozen=True, repr=False)
class Calibration(Result):
    """The area under the pixel-flipping curve of NEON, by beta.

    Attributes
    ----------
    beta : float
        The beta with the largest AUC; ties go to the one closest to the heuristic.
    factors, betas : ndarray [F]
        The values that were tried, in units of the heuristic and in absolute units.
    auc_per_input : ndarray [F, N]
        AUC of each input for each beta, 0 to 100.
    """

    beta: float
    factors: np.ndarray
    betas: np.ndarray
    auc_per_input: np.ndarray

    def to_frame(self) -> pd.DataFrame:
        """Return one row per beta: the AUC and its difference to the best AUC, both with standard errors.

        Returns
        -------
        DataFrame
            Index: the factor, in units of the heuristic. Columns: "beta", "AUC", "± AUC", "behind", the mean
            difference of the best AUC to it, "± behind", and "best", whether it is the best one.
        """
        return pd.DataFrame(self._rows()).set_index("factor")

    def _rows(self) -> list[dict[str, Any]]:
        """Return the rows of the table as dictionaries."""
        best = self.auc_per_input[self.betas == self.beta][0]
        rows = []
        for factor, beta, area in zip(self.factors.tolist(), self.betas.tolist(), self.auc_per_input, strict=True):
            auc, auc_error = mean_error(area)
            difference, difference_error = mean_error(best - area)
            rows.append(
                {
                    "factor": factor,
                    "beta": beta,
                    "AUC": auc,
                    "± AUC": auc_error,
                    "behind": difference,
                    "± behind": difference_error,
                    "best": beta == self.beta,
                }
            )
        return rows

    def to_markdown(self, precision: int | None = None) -> str:
        """Write a markdown table with one row per beta, the best AUC in bold.

        Parameters
        ----------
        precision : int, optional
            Number of significant digits; default: two decimals of the AUC, and four digits of beta.

        Returns
        -------
        str
        """
        digits = 4 if precision is None else precision
        cells = []
        for row in self._rows():
            auc = _with_error(row["AUC"], row["± AUC"], precision)
            difference = _with_error(row["behind"], row["± behind"], precision)
            if row["best"]:
                auc = f"**{auc}**"
                difference = ""
            cells.append([text(row["factor"], digits), text(row["beta"], digits), auc, difference])
        return markdown_table(["beta / heuristic", "beta", "AUC", "behind the best"], cells)

    def __str__(self) -> str:
        return self.to_markdown()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table as dictionaries; deprecated since 0.4.0, use :meth:`to_frame`."""
        deprecated("Calibration.rows", "to_frame()")
        return self._rows()


def _with_error(value: float, error: float, precision: int | None) -> str:
    """Write a value and its standard error."""
    return f"{rounded_text(value, 2, precision)} ± {rounded_text(error, 2, precision)}"


def calibrate_by_flipping(
    net: NeuralizedClustering,
    X: TableLike,
    imputer: Imputer | None = None,
    repeats: int = 10,
    *,
    factors: Sequence[float] = FACTORS,
    groups: str | int | ArrayLike | None = None,
    random_state: RandomState = 0,
) -> Calibration:
    """Find the beta of NEON whose explanations have the largest area under the pixel-flipping curve.

    Parameters
    ----------
    net : NeuralizedClustering
        A network from :func:`neonxc.neuralize`. Its beta is not changed: set ``net.beta`` to the best value.
    X : array, frame or tensor [N, ...]
        About a hundred points. The AUC on these points is optimistic, because beta is chosen on them; use other
        points to compare with other methods.
    imputer, repeats, groups, random_state
        As for :func:`pixel_flipping`. The random draws are the same for all betas.
    factors : sequence of float
        Values to try, in units of the heuristic of :meth:`NeuralizedClustering.calibrate` on X; by default 1/64 to
        4.

    Returns
    -------
    Calibration

    Raises
    ------
    ValueError
        If a factor is not positive, if all points are on a border of their cluster, or if the network has a
        threshold, so that its relevance does not depend on beta.

    References
    ----------
    .. [1] J. Kauffmann et al., "From clustering to cluster explanations via neural networks", IV-C and VII-C.

    Examples
    --------
    >>> import neonxc
    >>> from neonxc.evaluation import KDEImputer, calibrate_by_flipping
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import scale
    >>> X = scale(load_wine().data)
    >>> net = neonxc.neuralize(KMeans(6, n_init=10, random_state=0).fit(X), X)
    >>> calibration = calibrate_by_flipping(net, X[::2], KDEImputer(X), factors=(0.25, 1, 4))
    >>> net.beta = calibration.beta
    >>> relevance = neonxc.NEON(net).attribute(X)
    """
    check_network(net, "calibrate_by_flipping")
    if net.head.competition.threshold is not None:
        raise ValueError("with threshold= the competitors' shares do not depend on beta: there is none to find")
    multiples = np.unique(np.asarray(factors, dtype=float))
    if not multiples.size or not ((multiples > 0) & (multiples < math.inf)).all():
        raise ValueError(f"factors needs numbers > 0, got {factors!r}")
    x: Tensor = net.batch(X).tensor
    imputer = imputer_of(imputer, net.inputs, x)
    heuristic = net.heuristic_beta(x)
    if not 0 < heuristic < math.inf:
        raise ValueError(
            "X needs points that are not all on a border of their cluster: there is no beta to start from"
        )
    betas = heuristic * multiples
    target = targets_of(net, x, None)
    group_numbers = groups_of(net, groups, x)
    seed = fixed_seed(random_state)
    areas = []  # [F][N]
    for beta in progress_bar(betas.tolist(), desc="betas"):
        method = neon_with(beta=beta)
        relevance = method(net, x, target)
        curve = flipped(net, x, relevance, imputer, repeats, group_numbers, target, "insert", "most", None, seed)
        areas.append(curve.auc_per_input)

    def preference(i: int) -> tuple[float, float]:
        """Return what the best beta maximizes: the AUC and, for ties, how close it is to the heuristic."""
        return areas[i].mean(), -abs(math.log(multiples[i]))

    best = max(range(len(betas)), key=preference)
    return Calibration(float(betas[best]), multiples, betas, np.stack(areas))
