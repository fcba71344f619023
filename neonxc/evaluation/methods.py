"""Explanation methods that are compared with NEON.

A method is a function of a network, inputs x [N, ...] and targets [N], the positions of clusters among the
outputs. It returns relevance shaped like x. With the target's logit f(x) and a baseline b (default: zero), it is

    random                  a random number, uniform in [0, 1)
    squared                 x_i^2
    gradient                df / dx_i
    sensitivity             (df / dx_i)^2
    gradient_x_input        x_i df / dx_i
    integrated_gradients    (x_i - b_i) times the mean of df / dx_i over the middles of equal steps from b to x
    shapley_sampling        the mean increase of f when x_i replaces b_i, over random orders of the features
    pda                     f(x) - f(x with feature i imputed), the mean over draws; "indicator": the same, where
                            f is 1 for inputs that are assigned to the target, and 0 for the others
    nca                     that of NEON by the nearest competitor alone (beta is infinite)
    neon, neon_with         that of NEON

Methods with settings are made by functions that return them. For groups of features, shapley_sampling and pda
divide the value of a group by its number of features.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import torch
from captum.attr import IntegratedGradients, Saliency, ShapleyValueSampling
from torch import Tensor, nn

from neonxc.attribution.neon import NEON
from neonxc.evaluation.flipping import imputed_decisions
from neonxc.evaluation.imputers import Imputer, MeanImputer, ZeroImputer
from neonxc.inputs import inputs_of
from neonxc.inputs.base import HeadRule
from neonxc.lrp import Composite
from neonxc.lrp.engine import named_cut
from neonxc.lrp.kept import without_graph
from neonxc.network import NeuralizedClustering

Method: TypeAlias = Callable[[Any, Tensor, Tensor], Tensor]
"""Returns relevance shaped like x from (net, x, target)."""


def neon(net: NeuralizedClustering, x: Tensor, target: Tensor) -> Tensor:
    """Explain by NEON with the beta of the network."""
    method = neon_with()
    return method(net, x, target)


def neon_with(
    composite: Composite | None = None,
    beta: float | None = None,
    head_rule: HeadRule | None = None,
    **options: Any,
) -> Method:
    """Return NEON with other options; see :class:`neonxc.NEON`."""

    def method(net: NeuralizedClustering, x: Tensor, target: Tensor) -> Tensor:
        explainer = NEON(net, composite, beta=beta, head_rule=head_rule, **options)
        labels = net.classes_[target.cpu().numpy()]
        relevance: Tensor = explainer.attribute(x, labels)
        return relevance

    return method


nca = neon_with(beta=math.inf)
"""Nearest centroid analysis: NEON by the nearest competitor alone."""


def random(seed: int = 0) -> Method:
    """Return a method whose relevance is drawn at random."""

    def method(net: nn.Module, x: Tensor, target: Tensor) -> Tensor:
        generator = torch.Generator(x.device).manual_seed(seed)
        return torch.rand(x.shape, generator=generator, device=x.device)

    return method


def squared(net: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    """Explain by the squared features."""
    return x.square()


def gradient(net: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    """Explain by the gradient of the target's logit."""
    module = inputs_of(net).module or net
    with without_graph(module), named_cut(module, x):
        return Saliency(net).attribute(x.detach().requires_grad_(), target, abs=False)


def sensitivity(net: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    """Explain by the squared gradient of the target's logit."""
    return gradient(net, x, target).square()


def gradient_x_input(net: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    """Explain by the gradient of the target's logit times the input."""
    return gradient(net, x, target) * x


def integrated_gradients(steps: int = 10, baseline: Tensor | None = None) -> Method:
    """Return integrated gradients (captum) along the line from a baseline, by default zero, in some steps."""

    def method(net: nn.Module, x: Tensor, target: Tensor) -> Tensor:
        module = inputs_of(net).module or net
        with without_graph(module), named_cut(module, x):
            return IntegratedGradients(net).attribute(
                x,
                baselines=_baselines(baseline, x),
                target=target,
                n_steps=steps,
                method="riemann_middle",
                internal_batch_size=max(len(x), 256),
            )

    return method


def shapley_sampling(
    samples: int = 25, groups: Tensor | None = None, seed: int = 0, baseline: Tensor | None = None
) -> Method:
    """Return Shapley values by permutation sampling (captum); a missing feature has the value of a baseline.

    The baseline is zero by default.
    """

    def method(net: nn.Module, x: Tensor, target: Tensor) -> Tensor:
        mask = None
        if groups is not None:
            mask = groups.contiguous().view(1, *x.shape[1:])  # captum needs contiguous masks

        devices = [x.device] if x.is_cuda else []
        with torch.random.fork_rng(devices=devices), torch.no_grad():
            torch.manual_seed(seed)  # captum draws from the global generator
            values = ShapleyValueSampling(net).attribute(
                x, baselines=_baselines(baseline, x), target=target, n_samples=samples, feature_mask=mask
            )
        if mask is not None:  # captum gives every feature of a group the value of the group
            sizes = torch.bincount(mask.flatten())
            values = values / sizes[mask]
        return values.to(x)

    return method


def _baselines(baseline: Tensor | None, x: Tensor) -> Tensor | None:
    """Return a baseline as a batch of one, as captum takes it."""
    if baseline is None:
        return None
    return baseline.to(x)[None]


def pda(
    imputer: Imputer | None = None,
    measure: Literal["logit", "indicator"] = "logit",
    repeats: int = 10,
    groups: Tensor | None = None,
    seed: int = 0,
) -> Method:
    """Return prediction difference analysis: how the decision decreases if a feature is imputed given the others.

    Parameters
    ----------
    imputer : Imputer, optional
        Default: zeros (PDA0 of the paper). A :class:`KDEImputer` gives PDAcs.
    measure : {"logit", "indicator"}
        The quantity whose decrease is measured.
    repeats : int
        Number of draws per feature, for imputers that draw at random.
    groups : Tensor of int, shaped like one input, optional
        Features that are imputed together.
    """
    if measure not in ("logit", "indicator"):
        raise ValueError(f'measure needs "logit" or "indicator", got {measure!r}')

    def method(net: nn.Module, x: Tensor, target: Tensor) -> Tensor:
        if groups is None:
            feature_groups = torch.arange(x[0].numel(), device=x.device)
        else:
            feature_groups = groups.flatten().to(x.device)  # [D]
        numbers, positions, sizes = feature_groups.unique(return_inverse=True, return_counts=True)
        # in step s group s is missing, and in the last step none, as there is no group -1
        missing = torch.cat([numbers, numbers.new_tensor([-1])])

        def known(rows: slice, steps: Tensor) -> Tensor:
            is_known = feature_groups != missing[steps, None]  # [S, D]
            return is_known[:, None].expand(-1, len(x[rows]), -1)

        filler = imputer or ZeroImputer()
        hits, logits = imputed_decisions(net, x, target, known, len(missing), filler, repeats, seed)
        decision = logits if measure == "logit" else hits
        decision = decision.to(x)  # [N, S]
        decrease = decision[:, -1:] - decision[:, :-1]
        return (decrease / sizes)[:, positions].view_as(x)

    return method


def default_methods(
    imputer: Imputer | None = None,
    groups: Tensor | None = None,
    seed: int = 0,
    baseline: Tensor | None = None,
    known: str = "zero",
) -> dict[str, Method]:
    """Return the methods of Table I of the NEON paper, and two more.

    Parameters
    ----------
    imputer : Imputer, optional
        Imputer for PDA by conditional sampling, which is left out if there is none.
    groups : Tensor of int, shaped like one input, optional
        Features that PDA and Shapley values treat as one.
    seed : int
        Seed of the methods that draw at random.
    baseline : Tensor, shaped like one input, optional
        Value of a missing feature for PDA, integrated gradients and Shapley values; default: zero.
    known : str
        Name of the baseline in the names of the methods.
    """
    fixed = ZeroImputer() if baseline is None else MeanImputer(baseline[None])
    methods = {
        "random": random(seed),
        "x²": squared,
        f"PDA, {known}": pda(fixed, groups=groups, seed=seed),
        f"PDA, {known}, indicator": pda(fixed, "indicator", groups=groups, seed=seed),
        "(∇f)²": sensitivity,
        "gradient × input": gradient_x_input,
        "IG-10": integrated_gradients(10, baseline),
        "Shapley": shapley_sampling(groups=groups, seed=seed, baseline=baseline),
        "NCA": nca,
        "NEON": neon,
    }
    if imputer is not None and imputer.random:
        methods["PDA, sampled"] = pda(imputer, groups=groups, seed=seed)
        methods["PDA, sampled, indicator"] = pda(imputer, "indicator", groups=groups, seed=seed)
    return methods


def word_methods(imputer: Imputer, seed: int = 0) -> dict[str, Method]:
    """Return the methods for texts: word numbers have no gradient, and their squares no meaning."""
    return {
        "random": random(seed),
        "PDA, sampled": pda(imputer, seed=seed),
        "PDA, sampled, indicator": pda(imputer, "indicator", seed=seed),
        "NCA": nca,
        "NEON": neon,
    }
