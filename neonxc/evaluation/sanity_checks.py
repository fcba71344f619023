"""Sanity checks: whether explanations depend on the network and on the cluster, and how much they vary.

R(f, x, c) is the relevance of the groups of features of x for cluster c by the network f, c is the cluster that f
assigns x to, and rho is Spearman's rank correlation over the groups:

    centers             |rho(R(f, x, c), R(f', x, c))|, where f' has shuffled coordinates of the centers
    i/n of parameters   the same, where f' has shuffled entries in the last i/n of the feature network's parameters
    to NAME             the same, where f' has shuffled entries in the layers up to NAME
    chance              |rho(R(f, x, c), R'')|, where R'' has the relevance of R(f', x, c) at random places:
                        R''_g = n_g R_p(g)(f', x, c) / n_p(g), with the size n_g of group g and a permutation p
    runner-up           rho(R(f, x, c), R(f, x, c')), where c' has the second largest logit
    max-sensitivity     max over r of |R(f, x + e_r, c) - R(f, x, c)| / |R(f, x, c)|, with uniform noise e_r of
                        up to `radius` standard deviations

The first three are from Adebayo et al., 2018, the last is from Yeh et al., 2019; see :func:`sanity`. There are D
draws of every f', and the sizes of the correlations are means over them. With the means m_i over the draws for
each of N inputs, m_d over the inputs for each draw, and m over both, the standard error of m is::

    the root of  sum_i (m_i - m)^2 / (N (N - 1)) + sum_d (m_d - m)^2 / (D (D - 1))

Of the patches of an image, those are compared that its edges do not cut: with slivers among them, even positive
relevance at random places correlates, as it is small on all slivers.
"""

from __future__ import annotations

import copy
import fnmatch
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from neonxc.common.arguments import check_whole
from neonxc.common.numbers import plural, text
from neonxc.common.progress import progress_bar
from neonxc.common.result import Result, escape_markdown, markdown_table, rounded_text
from neonxc.common.types import ArrayLike, RandomState, TableLike
from neonxc.common.warnings import deprecated
from neonxc.data.table import Table
from neonxc.evaluation.comparison import baseline_of, relevance_of, sampled_rows, selected_methods
from neonxc.evaluation.flipping import fixed_seed, group_sums, targets_of
from neonxc.evaluation.imputers import missing_as
from neonxc.evaluation.methods import Method, default_methods
from neonxc.head.detection import LinearDetection
from neonxc.inputs.groups import groups_of
from neonxc.lrp.kept import without_graph
from neonxc.network import NeuralizedClustering, check_network

Explain: TypeAlias = Callable[[NeuralizedClustering, Tensor, Tensor], Tensor]
"""Returns the relevance [N, G] of groups of features from (net, x, target)."""


@dataclass(frozen=True, repr=False)
class Sanity(Result):
    """Sanity checks of several explanation methods.

    Attributes
    ----------
    per_input : dict of str to DataFrame [N, checks]
        By method, the checks of every input. "centers", and "1/4 of parameters" or "to NAME": size of the rank
        correlation with the explanation by a network whose centers, or last layers, are random, in the mean over
        the draws. "chance": what it would be if the relevance by these networks were at random places.
        "runner-up": rank correlation with the explanation of the cluster of the second largest logit.
        "max-sensitivity": largest relative change of the explanation.
    per_draw : dict of str to DataFrame [draws, checks]
        By method, the checks with random centers and layers, in the mean over the inputs.
    rows_ : ndarray
        Rows of X that were explained.
    of : (int, int)
        Number of rows of X, and number of features (groups) of a row that are compared.
    """

    per_input: dict[str, pd.DataFrame]
    per_draw: dict[str, pd.DataFrame]
    rows_: np.ndarray
    of: tuple[int, int]

    def to_frame(self) -> pd.DataFrame:
        """Return one row per method with the mean of every check over the inputs.

        Returns
        -------
        DataFrame
            Index: the method. Columns: the checks, as in `per_input`.
        """
        means = {name: checks.mean() for name, checks in self.per_input.items()}
        return pd.DataFrame(means).T.rename_axis("method")

    def to_markdown(self, precision: int | None = None) -> str:
        """Write the means and standard errors as markdown; below them, what the errors are over.

        Parameters
        ----------
        precision : int, optional
            Number of significant digits; default: two decimals.

        Returns
        -------
        str
        """
        cells = []
        for name, checks in self.per_input.items():
            means = [rounded_text(mean, 2, precision) for mean in checks.mean()]
            errors = [rounded_text(error, 2, precision) for error in self._errors(name)]
            with_errors = [f"{mean} ± {error}" for mean, error in zip(means, errors, strict=True)]
            cells.append([escape_markdown(name), *with_errors])
        header = ["method", *map(escape_markdown, self.to_frame())]
        return "\n\n".join([markdown_table(header, cells), *self._remarks()])

    def __str__(self) -> str:
        return self.to_markdown()

    def _remarks(self) -> list[str]:
        n, n_features = self.of
        remark = f"{text(len(self.rows_))} of {plural(n, 'point')}, {plural(n_features, 'feature')}."
        n_draws = len(next(iter(self.per_draw.values())))
        if n_draws:
            remark += (
                f" Random centers and layers: means over {plural(n_draws, 'draw')}, with errors over points and "
                'draws. "chance" is the value of the same relevance at random places.'
            )
        return [remark]

    def _errors(self, method: str) -> pd.Series:
        """Compute the standard errors of the means of all checks, over the inputs and the draws."""
        over_inputs = self.per_input[method].sem()
        over_draws = self.per_draw[method].sem().reindex(over_inputs.index)
        return (over_inputs**2 + over_draws.fillna(0.0) ** 2) ** 0.5

    @property
    def frame(self) -> pd.DataFrame:
        """The table; deprecated since 0.4.0, use :meth:`to_frame`."""
        deprecated("Sanity.frame", "to_frame()")
        return self.to_frame()

    def markdown(self) -> str:
        """Write the table as markdown; deprecated since 0.4.0, use :meth:`to_markdown`."""
        deprecated("Sanity.markdown", "to_markdown()")
        return self.to_markdown()


def sanity(
    net: NeuralizedClustering,
    X: TableLike,
    methods: Mapping[str, Method] | Sequence[str | Method] | None = None,
    *,
    points: int | None = 8,
    groups: str | int | ArrayLike | None = None,
    stages: int | Sequence[str] = 4,
    draws: int = 3,
    radius: float = 0.1,
    repeats: int = 4,
    random_state: RandomState = 0,
    progress: bool = True,
) -> Sanity:
    """Check whether explanations depend on the network and on the cluster, and how much they vary.

    Parameters
    ----------
    net : NeuralizedClustering
        A network from :func:`neonxc.neuralize` with one decision per input. Copies of it are randomized; the
        network itself is not changed.
    X : array, frame or tensor [N, ...]
    methods : sequence of str or callable, or dict of str to callable, optional
        Methods, as for :func:`compare`, and "occlusion": the decrease of the logit if a feature (group) is
        replaced by its mean or, in images and activations, by zero. Default: NEON and occlusion.
    points : int or None
        Number of points that are explained, drawn at random; None: all.
    groups : str, int or array of int, optional
        Features whose relevance is summed before explanations are compared, and which are occluded together, as
        for :func:`pixel_flipping`. Default for images: patches of about an eighth of the shorter side, of a size
        that divides both sides if there is one. Patches that are cut by the edges of an image are not compared.
    stages : int or sequence of str
        Parameters of the feature network are randomized from the last to the first (of its
        ``named_parameters()``), in this number of stages; or names of layers and blocks, such as ``["blocks.15",
        "blocks.14"]``, one per stage. Their entries are shuffled, and stay shuffled in the later stages.
    draws : int
        Number of times that centers and layers are shuffled anew. One draw differs from the mean of three by up to
        0.1 (`python -m tests.benchmarks.sanity`).
    radius : float
        Inputs are perturbed by uniform noise of up to this number of standard deviations (of each column of a
        table).
    repeats : int
        Number of perturbations per input.
    random_state : int, RandomState or None
        The same number gives the same copies and perturbations, for any method.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Sanity

    Raises
    ------
    TypeError
        If the network is not from :func:`neonxc.neuralize`.
    ValueError
        If inputs are texts or have several decisions, or methods or layers are unknown; and what
        :func:`pixel_flipping` raises.

    Notes
    -----
    All explanations of an input are for the cluster that `net` assigns it to. A random network often assigns it to
    another one, which may turn the sign of a map and leave its locations. There, the size of the correlation
    counts.
    Low values say that an explanation depends on the parameters, and not that these have learned something: a
    network with random weights has low values, too.
    Centers are randomized by shuffling each of their coordinates between the clusters. There is no such check for
    heads that are not linear in the columns.

    References
    ----------
    .. [1] J. Adebayo et al., "Sanity checks for saliency maps", NeurIPS 2018.
    .. [2] C.-K. Yeh et al., "On the (in)fidelity and sensitivity of explanations", NeurIPS 2019.

    Examples
    --------
    >>> import neonxc
    >>> from neonxc.evaluation import sanity
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_wine
    >>> X = load_wine().data
    >>> net = neonxc.neuralize(KMeans(2, n_init=10, random_state=0).fit(X), X)
    >>> checks = sanity(net, X)
    >>> round(
    ...     float(checks.to_frame().loc["NEON", "runner-up"]), 2
    ... )  # each cluster is explained against the other one
    -1.0
    """
    check_network(net, "sanity")
    check_whole("points", points, optional=True)
    check_whole("draws", draws)
    check_whole("repeats", repeats)
    data = net.batch(X).tensor
    seed = fixed_seed(random_state)
    if missing_as(net.inputs, data) == "word":
        raise ValueError("sanity perturbs inputs, which texts do not allow for")

    def new_generator() -> torch.Generator:
        """Return a generator that draws the same numbers each time."""
        return torch.Generator().manual_seed(seed)

    rows = sampled_rows(len(data), points, seed).to(data.device)
    x = data[rows]
    if groups is None and x.ndim == 4:
        groups = patch_size(*x.shape[2:])
    group_numbers = groups_of(net, groups, x[:1])
    sizes = torch.bincount(group_numbers.flatten())
    compared = _compared_groups(sizes, are_patches=isinstance(groups, Integral)).cpu()
    baseline, known = baseline_of(None, net.inputs, data)
    defaults = default_methods(groups=group_numbers, baseline=baseline, known=known)
    defaults["occlusion"] = defaults[f"PDA, {known}"]
    if methods is None:
        methods = ["NEON", "occlusion"]
    chosen = selected_methods(methods, defaults, net)

    target = targets_of(net, x, None)
    with torch.no_grad():
        runner_up = net(x).topk(2).indices[:, 1]
    per_column = 0 if data.ndim == 2 else None
    scale = radius * data.std(per_column, correction=0)

    per_input = {}
    per_draw = {}
    for name, method in progress_bar(chosen.items(), desc="methods", disable=not progress):
        explain = partial(_explained, f"methods[{name!r}]", method, group_numbers, compared)
        relevance = explain(net, x, target)
        generator = new_generator()
        copies = [_randomized(net, x[:1], stages, generator) for _ in range(draws)]
        by_draw = _against_copies(explain, relevance, copies, x, target, sizes[compared].cpu())
        checks = {check: values.mean(axis=0) for check, values in by_draw.items()}
        checks["runner-up"] = _rank_correlation(relevance, explain(net, x, runner_up))
        sensitivity = _max_sensitivity(explain, net, x, target, relevance, scale, repeats, new_generator())
        per_input[name] = pd.DataFrame(checks | {"max-sensitivity": sensitivity})
        per_draw[name] = pd.DataFrame({check: values.mean(axis=1) for check, values in by_draw.items()})
    return Sanity(per_input, per_draw, rows.cpu().numpy(), (len(data), len(compared)))


def patch_size(height: int, width: int) -> int:
    """Choose the side of patches: an eighth of the shorter side, or up to twice as much if that divides both."""
    eighth = max(1, min(height, width) // 8)
    for size in range(eighth, 2 * eighth + 1):
        if height % size == 0 and width % size == 0:
            return size
    return eighth


def _compared_groups(sizes: Tensor, are_patches: bool) -> Tensor:
    """Return the numbers of the groups that are compared: whole patches, or all groups with features."""
    least = int(sizes.max()) if are_patches else 1
    return (sizes >= least).nonzero()[:, 0]


def _against_copies(
    explain: Explain,
    relevance: Tensor,
    copies: Sequence[Iterator[tuple[str, NeuralizedClustering]]],
    x: Tensor,
    target: Tensor,
    sizes: Tensor,
) -> dict[str, np.ndarray]:
    """Compare the relevance with that by random copies of the network.

    Returns
    -------
    dict of str to array [draws, N]
        Sizes of the rank correlations by check; those of "chance" are means over the copies of a draw.
    """
    generator = torch.Generator().manual_seed(0)
    by_check: dict[str, list[np.ndarray]] = {}
    for of_draw in copies:
        by_chance = []
        for check, randomized in of_draw:
            changed = explain(randomized, x, target)
            by_check.setdefault(check, []).append(abs(_rank_correlation(relevance, changed)))
            order = torch.randperm(len(sizes), generator=generator)
            elsewhere = (changed / sizes)[:, order] * sizes
            by_chance.append(abs(_rank_correlation(relevance, elsewhere)))
        if by_chance:
            by_check.setdefault("chance", []).append(np.mean(by_chance, axis=0))
    return {check: np.stack(values) for check, values in by_check.items()}


def _max_sensitivity(
    explain: Explain,
    net: NeuralizedClustering,
    x: Tensor,
    target: Tensor,
    relevance: Tensor,
    scale: Tensor,
    repeats: int,
    generator: torch.Generator,
) -> Tensor:
    """Return the largest relative change [N] of the relevance of perturbed inputs."""
    changes = []
    for _ in range(repeats):
        noise = 2 * torch.rand(x.shape, generator=generator, dtype=x.dtype) - 1
        perturbed = x + scale * noise.to(x.device)
        change = explain(net, perturbed, target) - relevance
        changes.append(change.norm(dim=1))
    largest = torch.stack(changes).amax(0) / relevance.norm(dim=1)
    return largest.nan_to_num()  # 0 / 0: relevance of zero that stays zero


def _explained(
    argument: str,
    method: Method,
    groups: Tensor,
    compared: Tensor,
    net: NeuralizedClustering,
    x: Tensor,
    target: Tensor,
) -> Tensor:
    """Return the relevance [N, G] of the groups that are compared, by a method."""
    relevance = relevance_of(argument, method, net, x, target)
    relevance = Table.read(relevance, name=argument).tensor.to(x.device)
    return group_sums(relevance, x, groups.expand(len(x), -1)).cpu()[:, compared]


def _rank_correlation(relevance: Tensor, changed: Tensor) -> np.ndarray:
    """Return Spearman's correlation of the rows of two tables; it is 0 where a row is constant."""
    ranks = pd.DataFrame(relevance.numpy()).rank(axis=1)
    changed_ranks = pd.DataFrame(changed.numpy()).rank(axis=1)
    return ranks.corrwith(changed_ranks, axis=1).fillna(0.0).to_numpy()


def _randomized(
    net: NeuralizedClustering, x: Tensor, stages: int | Sequence[str], generator: torch.Generator
) -> Iterator[tuple[str, NeuralizedClustering]]:
    """Yield checks and their copies of a network: with random centers, and with more and more random layers."""
    if isinstance(net.head.detection, LinearDetection):
        yield "centers", _with_random_centers(net, generator)
    for stage, names in _stages(net, x, stages).items():
        net = copy.deepcopy(net)
        with torch.no_grad():
            for name in names:
                values = _network(net).get_parameter(name)
                order = torch.randperm(values.numel(), generator=generator).to(values.device)
                shuffled = values.flatten()[order]
                values.copy_(shuffled.view_as(values))
        yield stage, net


def _with_random_centers(net: NeuralizedClustering, generator: torch.Generator) -> NeuralizedClustering:
    """Return a copy in which every column's directions and anchors are shuffled between the neurons.

    With the terms of :mod:`neonxc.head.detection`, neuron m is ``a_m = r_m + sum_i D_mi (A_mi - y_i)``. The pairs
    (D_mi, A_mi) of each column i are permuted over m; r_m stays, so that the bias is r_m plus the new sum of D A.
    """
    net = copy.deepcopy(net)
    neurons: Any = net.head.detection
    order = torch.rand(neurons.directions.shape, generator=generator).argsort(0)  # one permutation per column
    order = order.to(neurons.device)
    directions = neurons.directions.gather(0, order)
    anchors = neurons.anchors.gather(0, order)
    bias = neurons.unshared + (directions * anchors).sum(1)
    net.head.detection = neurons.changed(directions=directions, anchors=anchors, bias=bias)
    return net


def _network(net: NeuralizedClustering) -> nn.Module:
    """Return the network in which layers have the names that the user knows."""
    module: Any = net.inputs.module
    path = getattr(module, "wraps", "")
    network: nn.Module = module.get_submodule(path)
    return network


def _stages(net: NeuralizedClustering, x: Tensor, stages: int | Sequence[str]) -> dict[str, list[str]]:
    """Return the names of the parameters that each stage randomizes, by the name of its check."""
    if net.features is None or not [*net.features.parameters()]:
        return {}
    net = copy.deepcopy(net)
    names, values = zip(*_network(net).requires_grad_().named_parameters(), strict=True)
    if not isinstance(stages, int):
        by_layer = {f"to {layer}": fnmatch.filter(names, f"{layer}.*") for layer in stages}
        if not all(by_layer.values()):
            raise ValueError(f"stages needs names of layers with parameters, got {stages!r}")
        return by_layer

    # parameters without a gradient have no part in the features
    with without_graph(_network(net)):  # hooks of a copy may write to what those of the network write to
        gradients = torch.autograd.grad(net.inputs.through(x).sum(), values, allow_unused=True)
    used = [name for name, gradient in zip(names, gradients, strict=True) if gradient is not None]
    from_last = used[::-1]
    by_number = {}
    for i, chunk in enumerate(np.array_split(from_last, stages), 1):
        by_number[f"{i}/{stages} of parameters"] = chunk.tolist()
    return by_number
