"""Explanation methods that are compared with NEON; each returns relevance shaped like its inputs.

A method is a function of a network, inputs [N, ...] and targets [N], the positions of clusters among the
outputs. Methods with settings are made by
functions that return them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from captum.attr import IntegratedGradients, Saliency, ShapleyValueSampling
from torch import Tensor, nn

from neonxc.attribution.neon import NEON
from neonxc.evaluation.flipping import imputed_decisions
from neonxc.evaluation.imputers import Imputer, MeanImputer, ZeroImputer
from neonxc.inputs import inputs_of
from neonxc.lrp import Composite
from neonxc.lrp.engine import named_cut
from neonxc.lrp.kept import without_graph

Method = Callable[[Any, Tensor, Tensor], Tensor]


def neon(net: Any, x: Tensor, target: Tensor) -> Tensor:
    """NEON with the network's own beta."""
    return neon_with()(net, x, target)


def neon_with(
    composite: Composite | None = None, beta: float | None = None, head_rule: Any = None, **options: Any
) -> Method:
    """NEON with other options; see :class:`neonxc.NEON`."""

    def method(net: Any, x: Tensor, target: Tensor) -> Tensor:
        explainer = NEON(net, composite, beta=beta, head_rule=head_rule, **options)
        return explainer.attribute(x, net.classes_[target.cpu().numpy()])

    return method


nca = neon_with(beta=math.inf)
"""Nearest centroid analysis: NEON by the nearest competitor alone."""


def random(seed: int = 0) -> Method:
    """Relevance drawn at random."""

    def method(net: Any, x: Tensor, target: Tensor) -> Tensor:
        return torch.rand(x.shape, generator=torch.Generator(x.device).manual_seed(seed), device=x.device)

    return method


def squared(net: Any, x: Tensor, target: Tensor) -> Tensor:
    """The squared features."""
    return x.square()


def gradient(net: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    """Gradient of the target's logit."""
    module = inputs_of(net).module or net
    with without_graph(module), named_cut(module, x):
        return Saliency(net).attribute(x.detach().requires_grad_(), target, abs=False)


def sensitivity(net: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    """Squared gradient of the target's logit."""
    return gradient(net, x, target).square()


def gradient_x_input(net: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    """Gradient of the target's logit times the input."""
    return gradient(net, x, target) * x


def integrated_gradients(steps: int = 10, baseline: Tensor | None = None) -> Method:
    """Integrated gradients along the path from a baseline, by default zero, with a number of steps (captum)."""

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
    """Shapley values by permutation sampling, with a baseline, by default zero, as the missing value (captum)."""

    def method(net: nn.Module, x: Tensor, target: Tensor) -> Tensor:
        with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []), torch.no_grad():
            torch.manual_seed(seed)
            # captum needs contiguous masks
            mask = None if groups is None else groups.contiguous().view(1, *x.shape[1:])
            values = ShapleyValueSampling(net).attribute(
                x, baselines=_baselines(baseline, x), target=target, n_samples=samples, feature_mask=mask
            )
            if mask is not None:  # every feature of a group has the value of the whole group
                values = values / torch.bincount(mask.flatten())[mask]
            return values.to(x)

    return method


def _baselines(baseline: Tensor | None, x: Tensor) -> Tensor | None:
    return None if baseline is None else baseline.to(x)[None]


def pda(
    imputer: Imputer | None = None,
    measure: Literal["logit", "indicator"] = "logit",
    repeats: int = 10,
    groups: Tensor | None = None,
    seed: int = 0,
) -> Method:
    """Prediction difference analysis: the decrease of the decision when one feature is imputed given the others.

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
        numbers = torch.arange(x[0].numel(), device=x.device) if groups is None else groups.flatten().to(x.device)
        units, unit, sizes = numbers.unique(return_inverse=True, return_counts=True)
        units = torch.cat([units, units.new_tensor([-1])])  # in the last step no feature is missing

        def known(rows: slice, steps: Tensor) -> Tensor:
            return (numbers != units[steps, None])[:, None].expand(-1, len(x[rows]), -1)

        hits, logits = imputed_decisions(
            net, x, target, known, len(units), imputer or ZeroImputer(), repeats, seed
        )
        decision = (logits if measure == "logit" else hits).to(x)
        return ((decision[:, -1:] - decision[:, :-1]) / sizes)[:, unit].view_as(x)

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
