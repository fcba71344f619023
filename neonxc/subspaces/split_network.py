"""A layer within a feature network: its values, the multipliers that reach it, and the features without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from neonxc.common.arguments import kind_of, similar
from neonxc.common.hooks import hooked
from neonxc.common.modules import evaluated, unwrapped
from neonxc.inputs.backbone import Backbone, recorded


class _Unusable(ValueError):
    """The output of a layer has no channels; the message says why."""


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
        self.network: nn.Module | None = None
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
        self.network = network
        self.module = network.get_submodule(name)

    def halves(self, x: Tensor, composite: Any) -> Halves:
        """Run the network under LRP, for any number of backward passes of both parts."""
        if self.module is None:
            run = self.inputs.run(x, composite, several=True)
            values = run.features.detach()
            form = LayerShape(values.shape, channels_last=False)

            def back(multiplier: Tensor) -> Tensor:
                return run.back(form.unrows(multiplier)[None])[0]

            return Halves(values, form.rows(values), form.rows, back, form.places)
        seen: list[Tensor] = []

        def keep(_: nn.Module, __: Any, output: Tensor) -> Tensor:
            seen.append(self._checked(output, x))
            return output.clone()  # a layer after it may change its input in place

        try:
            with hooked(self.module, keep):
                recording = recorded(self.inputs.module, composite, x, several=True)
            values = self._last(seen)
        except _Unusable as error:  # without the hook, so that the network can be run
            raise ValueError(f"{error}{self._usable(x)}") from None
        form = self._form(values, x)

        def upper(start: Tensor) -> Tensor:
            (m,) = torch.autograd.grad(recording.output, values, start.to(recording.output), retain_graph=True)
            return form.rows(m)

        def lower(multiplier: Tensor) -> Tensor:
            start = form.unrows(multiplier).to(values)
            (m,) = torch.autograd.grad(values, recording._leaf, start, retain_graph=True)
            return recording.x * m

        return Halves(recording.output.detach(), form.rows(values.detach()), upper, lower, form.places)

    @torch.no_grad()
    def values(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """The values [N, P, C] of the layer, and their places."""
        if self.module is None:
            values = self.inputs.features(x)
            form = LayerShape(values.shape, channels_last=False)
            return form.rows(values), form.places
        seen: list[Any] = []
        with hooked(self.module, lambda _, __, output: seen.append(_copy(output))):
            evaluated(self.inputs.module, x)
        try:
            values = self._checked(self._last(seen), x)
        except _Unusable as error:
            raise ValueError(f"{error}{self._usable(x)}") from None
        form = self._form(values, x)
        return form.rows(values), form.places

    @torch.no_grad()
    def without(self, x: Tensor, directions: Tensor) -> Tensor:
        """The features [N, d, ...] if orthonormal directions [k, C] are removed from the layer."""

        def removed(values: Tensor, form: LayerShape) -> Tensor:
            rows = form.rows(values)
            axes = directions.to(values)
            return form.unrows(rows - rows @ axes.mT @ axes)

        if self.module is None:
            values = self.inputs.features(x)
            return removed(values, LayerShape(values.shape, channels_last=False))

        def hook(_: Any, __: Any, output: Tensor) -> Tensor:
            return removed(output, self._form(output, x))

        with hooked(self.module, hook):
            features: Tensor = evaluated(self.inputs.module, x)
        return features

    def _last(self, seen: list[Tensor]) -> Tensor:
        if not seen:
            raise _Unusable(f"layer {self.name!r} is not run before the features")
        return seen[-1]

    def _usable(self, x: Tensor) -> str:
        """The end of an error, with the names of layers that can be used."""
        from neonxc.models.layers import usable_layers  # depends on this package

        assert self.network is not None
        assert self.name is not None
        return usable_layers(self.network, self.name, lambda: evaluated(self.inputs.module, x), len(x))

    def _checked(self, output: Any, x: Tensor) -> Tensor:
        if not isinstance(output, Tensor) or output.ndim < 2 or not output.is_floating_point():
            shown = f"shape {list(output.shape)}" if isinstance(output, Tensor) else kind_of(output)
            raise _Unusable(f"layer {self.name!r} has no output [N, C, ...] but {shown}")
        if len(output) != len(x):
            raise _Unusable(
                f"layer {self.name!r} has an output of shape {list(output.shape)} for {len(x)} inputs, and needs "
                "one row for each, [N, C, ...]"
            )
        return output

    def _form(self, output: Tensor, x: Tensor) -> LayerShape:
        """Which dimension of the layer's output for inputs x holds the channels."""
        from neonxc.models.layers import (  # depends on this package
            follows_vectors,
            has_channels_last,
            unclear_channels,
        )

        assert self.network is not None
        assert self.name is not None
        shape = output.shape
        if len(shape) == 2:
            return LayerShape(shape, channels_last=False)
        extractor = unwrapped(self.inputs.module)
        if getattr(extractor, "layer", None) == self.name and getattr(extractor, "tokens", None) is not None:
            return LayerShape(shape, channels_last=True)
        size = x.shape[-2:] if x.ndim in (3, 4) else None
        last = has_channels_last(self.network, self.name, shape, size)
        if last is None and len(shape) == 3:  # [N, C, T] may be a series, which has no patches of a convolution
            last = has_channels_last(self.network, self.name, shape, convolved=False)
        is_map = len(shape) > 3
        if last is None and not (
            is_map and has_channels_last(self.network, self.name, shape, size, convolved=True)
        ):
            last = follows_vectors(self.network, self.name, default=False if is_map else None)
        if last is None:
            raise ValueError(
                f"{unclear_channels(self.name, shape)}: choose the linear layer or the convolution before it"
            )
        return LayerShape(shape, last)


class LayerShape(NamedTuple):
    """The shape of a layer's output: [N, C, places], or [N, places, C] if its channels come last."""

    shape: torch.Size
    channels_last: bool

    @property
    def places(self) -> tuple[int, ...]:
        """The numbers of places, such as (h, w)."""
        return tuple(self.shape[1:-1] if self.channels_last else self.shape[2:])

    def rows(self, values: Tensor) -> Tensor:
        """The values of the layer as rows [N, P, C], one for each place."""
        if values.ndim == 2:
            return values[:, None]
        return values.flatten(1, -2) if self.channels_last else values.flatten(2).mT

    def unrows(self, rows: Tensor) -> Tensor:
        """Rows [N, P, C] in the shape of the layer."""
        if len(self.shape) == 2 or self.channels_last:
            return rows.reshape(self.shape)
        return rows.mT.reshape(self.shape)


def _copy(output: Any) -> Any:
    return output.clone() if isinstance(output, Tensor) else output
