"""A layer within a feature network: its values, the multipliers that reach it, and the features without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from neonxc.common.arguments import similar
from neonxc.common.modules import evaluated, unwrapped
from neonxc.inputs.backbone import Backbone, recorded


class Halves(NamedTuple):
    """A forward pass under LRP in two parts.

    Attributes
    ----------
    features : Tensor [N, d, ...]
        The features, which the head clusters.
    values : Tensor [N, P, C]
        The values of the layer at its P places.
    upper : callable
        Multipliers of the layer [N, P, C] from those of the features.
    lower : callable
        Relevance of the inputs [N, ...] from multipliers of the layer [N, P, C].
    """

    features: Tensor
    values: Tensor
    upper: Callable[[Tensor], Tensor]
    lower: Callable[[Tensor], Tensor]
    shape: tuple[int, ...]
    """The places of the layer, such as (h, w)."""


class Layer:
    """A layer of a feature network; the features themselves if it has no name.

    Parameters
    ----------
    inputs : Propagating
        The inputs of the network of a clustering.
    name : str or None
        Name of the layer, as in ``named_modules()`` of the user's network.

    Raises
    ------
    ValueError
        An unknown layer, or a layer within a sentence encoder.
    """

    def __init__(self, inputs: Any, name: str | None) -> None:
        self.inputs, self.name, self.module = inputs, name, None
        if name is None:
            return
        if not isinstance(inputs, Backbone):
            raise ValueError(
                "layer is for networks of images and other tensors; texts have concepts of their features"
            )
        network = unwrapped(inputs.module)
        network = network.get_submodule(getattr(network, "wraps", ""))
        known = [known for known, _ in network.named_modules() if known]
        if name not in known:
            raise ValueError(f"layer needs the name of a module, got {name!r}{similar([name], known)}")
        self.module = network.get_submodule(name)
        self.vectors_last = not any(isinstance(module, nn.Conv1d) for module in network.modules())

    def halves(self, x: Tensor, composite: Any) -> Halves:
        """Run the network under LRP, for any number of backward passes of both parts."""
        if self.module is None:
            run = self.inputs.run(x, composite, several=True)
            values = run.features.detach()

            def back(multiplier: Tensor) -> Tensor:
                return run.back(self._unrows(multiplier, values)[None])[0]

            return Halves(values, self._rows(values), self._rows, back, self._places(values))
        seen: list[Tensor] = []

        def keep(_: nn.Module, __: Any, output: Tensor) -> Tensor:
            seen.append(self._checked(output))
            return output.clone()  # a layer after it may change its input in place

        with _hooked(self.module, keep):
            recording = recorded(self.inputs.module, composite, x, several=True)
        values = self._last(seen)

        def upper(start: Tensor) -> Tensor:
            (m,) = torch.autograd.grad(recording.output, values, start.to(recording.output), retain_graph=True)
            return self._rows(m)

        def lower(multiplier: Tensor) -> Tensor:
            start = self._unrows(multiplier, values).to(values)
            (m,) = torch.autograd.grad(values, recording._leaf, start, retain_graph=True)
            return recording.x * m

        features, rows = recording.output.detach(), self._rows(values.detach())
        return Halves(features, rows, upper, lower, self._places(values))

    @torch.no_grad()
    def values(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """The values [N, P, C] of the layer, and their places."""
        if self.module is None:
            values = self.inputs.features(x)
        else:
            seen: list[Tensor] = []
            with _hooked(self.module, lambda _, __, output: seen.append(output.clone())):
                evaluated(self.inputs.module, x)
            values = self._last(seen)
        return self._rows(values), self._places(values)

    @torch.no_grad()
    def without(self, x: Tensor, directions: Tensor) -> Tensor:
        """The features [N, d, ...] if orthonormal directions [k, C] are removed from the layer."""

        def removed(_: Any, __: Any, output: Tensor) -> Tensor:
            rows, axes = self._rows(output), directions.to(output)
            return self._unrows(rows - rows @ axes.mT @ axes, output)

        if self.module is None:
            return removed(None, None, self.inputs.features(x))
        with _hooked(self.module, removed):
            features: Tensor = evaluated(self.inputs.module, x)
        return features

    def _places(self, values: Tensor) -> tuple[int, ...]:
        return tuple(values.shape[1:2] if self._are_tokens(values) else values.shape[2:])

    def _last(self, seen: list[Tensor]) -> Tensor:
        if not seen:
            raise ValueError(f"layer {self.name!r} is not run before the features; choose another one")
        return seen[-1]

    def _checked(self, output: Any) -> Tensor:
        if not isinstance(output, Tensor) or output.ndim < 2 or not output.is_floating_point():
            raise ValueError(f"layer {self.name!r} has no output [N, C, ...]; choose another one")
        return output

    def _rows(self, values: Tensor) -> Tensor:
        """The values of a layer [N, C, ...] as rows [N, P, C]; tokens [N, T, C] are rows already."""
        if values.ndim == 2:
            return values[:, None]
        return values if self._are_tokens(values) else values.flatten(2).mT

    def _unrows(self, rows: Tensor, like: Tensor) -> Tensor:
        return rows.view_as(like) if like.ndim == 2 or self._are_tokens(like) else rows.mT.reshape(like.shape)

    def _are_tokens(self, values: Tensor) -> bool:
        return values.ndim == 3 and self.module is not None and self.vectors_last


@contextmanager
def _hooked(module: nn.Module, hook: Callable[..., Any]) -> Iterator[None]:
    handle = module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()
