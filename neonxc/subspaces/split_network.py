"""A layer within a feature network: its values, the multipliers that reach it, and the features without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from neonxc.common.arguments import kind_of, similar
from neonxc.common.hooks import hooked
from neonxc.common.modules import evaluated, unwrapped
from neonxc.common.numbers import plural
from neonxc.inputs.backbone import Backbone, recorded
from neonxc.inputs.base import Inputs

if TYPE_CHECKING:
    from neonxc.lrp import Composite


class _Unusable(ValueError):
    """The output of a layer has no channels; the message says why."""


class Halves(NamedTuple):
    """A forward pass under LRP in two parts.

    Attributes
    ----------
    features : Tensor [N, d, ...]
        The features, which the head clusters.
    values : Tensor [N, P, C]
        The values of the layer at its P locations.
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
    """The numbers of locations, such as (h, w)."""


class Observed(NamedTuple):
    """What a layer computes for inputs, and what the network does."""

    values: Tensor  # [N, P, C]
    shape: tuple[int, ...]  # numbers of the P locations, such as (h, w)
    features: Tensor  # [N, d, ...]


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

    def __init__(self, inputs: Inputs, name: str | None) -> None:
        self.inputs: Any = inputs  # has `run`, as all inputs through which relevance is propagated
        self.name = name
        self.module: nn.Module | None = None
        self.network: nn.Module | None = None
        if name is None:
            return
        if not isinstance(inputs, Backbone):
            raise ValueError(
                "layer is for networks of images and other tensors; texts have concepts of their features"
            )
        network = unwrapped(inputs.module)
        network = network.get_submodule(getattr(network, "wraps", ""))
        names = [module_name for module_name, _ in network.named_modules() if module_name]
        if name not in names:
            raise ValueError(f"layer needs the name of a module, got {name!r}{similar([name], names)}")
        self.network = network
        self.module = network.get_submodule(name)

    def halves(self, x: Tensor, composite: Composite | None) -> Halves:
        """Run the network under LRP, for any number of backward passes of both parts."""
        if self.module is None:
            return self._halves_at_features(x, composite)

        outputs: list[Tensor] = []  # of all calls of the layer

        def keep(module: nn.Module, args: object, output: Tensor) -> Tensor:
            outputs.append(self._checked(output, x))
            return output.clone()  # a layer after it may change its input in place

        try:
            with hooked(self.module, keep):
                recording = recorded(self.inputs.module, composite, x, several=True)
            values = self._last(outputs)
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

        features = recording.output.detach()
        return Halves(features, form.rows(values.detach()), upper, lower, form.locations)

    def _halves_at_features(self, x: Tensor, composite: Composite | None) -> Halves:
        """Run the network under LRP, if the layer is the features: there is nothing above it."""
        run = self.inputs.run(x, composite, several=True)
        features = run.features.detach()
        form = LayerShape(features.shape, channels_last=False)

        def lower(multiplier: Tensor) -> Tensor:
            return run.back(form.unrows(multiplier)[None])[0]

        return Halves(features, form.rows(features), form.rows, lower, form.locations)

    def values(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """Compute the values [N, P, C] of the layer, and the numbers of its locations, such as (h, w)."""
        observed = self.observed(x)
        return observed.values, observed.shape

    @torch.no_grad()
    def observed(self, x: Tensor) -> Observed:
        """Compute the values of the layer and the features in one pass."""
        if self.module is None:
            features = self.inputs.features(x)
            form = LayerShape(features.shape, channels_last=False)
            return Observed(form.rows(features), form.locations, features)

        outputs: list[Any] = []  # of all calls of the layer
        with hooked(self.module, lambda module, args, output: outputs.append(_copy(output))):
            features = evaluated(self.inputs.module, x)
        try:
            values = self._checked(self._last(outputs), x)
        except _Unusable as error:
            raise ValueError(f"{error}{self._usable(x)}") from None
        form = self._form(values, x)
        return Observed(form.rows(values), form.locations, features)

    @torch.no_grad()
    def without(self, x: Tensor, directions: Tensor, mean: Tensor) -> Tensor:
        """Compute the features [N, d, ...] if the layer has those of a mean [C] along directions [k, C]."""

        def removed(values: Tensor, form: LayerShape) -> Tensor:
            rows = form.rows(values)
            axes = directions.to(values)
            # a - sum_i (u_i (a - mu)) u_i
            return form.unrows(rows - (rows - mean.to(values)) @ axes.mT @ axes)

        if self.module is None:
            values = self.inputs.features(x)
            return removed(values, LayerShape(values.shape, channels_last=False))

        def hook(module: nn.Module, args: object, output: Tensor) -> Tensor:
            return removed(output, self._form(output, x))

        with hooked(self.module, hook):
            features: Tensor = evaluated(self.inputs.module, x)
        return features

    def _last(self, outputs: list[Tensor]) -> Tensor:
        """Return the output of the last call of the layer."""
        if not outputs:
            raise _Unusable(f"layer {self.name!r} is not run before the features")
        return outputs[-1]

    def _usable(self, x: Tensor) -> str:
        """Write the end of an error, with the names of layers that can be used."""
        from neonxc.models.layers import usable_layers  # depends on this package

        assert self.network is not None
        assert self.name is not None
        return usable_layers(self.network, self.name, lambda: evaluated(self.inputs.module, x), len(x))

    def _checked(self, output: object, x: Tensor) -> Tensor:
        """Return an output [N, C, ...] of the layer, and raise an error for any other one."""
        if not isinstance(output, Tensor) or output.ndim < 2 or not output.is_floating_point():
            shown = f"shape {list(output.shape)}" if isinstance(output, Tensor) else kind_of(output)
            raise _Unusable(f"layer {self.name!r} has no output [N, C, ...] but {shown}")
        if len(output) != len(x):
            inputs = plural(len(x), "input")
            raise _Unusable(
                f"layer {self.name!r} has an output of shape {list(output.shape)} for {inputs}, and needs "
                "one row for each, [N, C, ...]"
            )
        return output

    def _form(self, output: Tensor, x: Tensor) -> LayerShape:
        """Find out which dimension of the layer's output for inputs x holds the channels.

        1. Rows [N, C] and the tokens of a feature extractor are known.
        2. Else the modules around the layer tell, and for maps the proportions of the images.
        3. Else, unless the last dimension of a map has as many entries as a convolution has channels, the layer
           before it tells, if it computes vectors in the last dimension.
        """
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
        is_map = len(shape) > 3
        last = has_channels_last(self.network, self.name, shape, size)
        if last is None and len(shape) == 3:  # [N, C, T] may be a series, which has no patches of a convolution
            last = has_channels_last(self.network, self.name, shape, convolved=False)
        if last is None:
            by_convolution = is_map and has_channels_last(self.network, self.name, shape, size, convolved=True)
            if not by_convolution:
                default = False if is_map else None
                last = follows_vectors(self.network, self.name, default)
        if last is None:
            raise ValueError(
                f"{unclear_channels(self.name, shape)}: choose the linear layer or the convolution before it"
            )
        return LayerShape(shape, last)


class LayerShape(NamedTuple):
    """The shape of a layer's output: [N, C, locations], or [N, locations, C] if its channels come last."""

    shape: torch.Size
    channels_last: bool

    @property
    def locations(self) -> tuple[int, ...]:
        """The numbers of locations, such as (h, w)."""
        if self.channels_last:
            return tuple(self.shape[1:-1])
        return tuple(self.shape[2:])

    def rows(self, values: Tensor) -> Tensor:
        """Reshape the values of the layer to rows [N, P, C], one for each location."""
        if values.ndim == 2:
            return values[:, None]
        if self.channels_last:
            return values.flatten(1, -2)
        return values.flatten(2).mT

    def unrows(self, rows: Tensor) -> Tensor:
        """Reshape rows [N, P, C] to the shape of the layer."""
        if len(self.shape) == 2 or self.channels_last:
            return rows.reshape(self.shape)
        return rows.mT.reshape(self.shape)


def _copy(output: object) -> object:
    """Copy an output, which a layer after it may change in place."""
    return output.clone() if isinstance(output, Tensor) else output
