"""Constant scales and shifts per channel, and the linear layers that they make, or are folded into."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from neonxc.lrp.layer import LinearLayer, RecordedLayer


@dataclass(frozen=True)
class ChannelMap:
    """How a value was computed from another one: ``scale * source + shift``, constants with one value per channel.

    Attributes
    ----------
    source : Tensor [N, ...]
    scale, shift : Tensor or None
        With as many dimensions as `source`, of which at most one is longer than 1: that of the channels.
    owner : Tensor or None
        The parameter or buffer whose module's rule applies.
    """

    source: Tensor
    scale: Tensor | None = None
    shift: Tensor | None = None
    owner: Tensor | None = None

    def then(self, scale: Any, shift: Any, owner: Tensor | None) -> ChannelMap | None:
        """Return the map followed by another scale and shift; None if these are not by channel."""
        scale = self._constant(scale)
        shift = self._constant(shift)
        if self.shift is not None:
            earlier = self.shift if scale is None else self.shift * scale
            shift = earlier if shift is None else earlier + shift
        if self.scale is not None:
            scale = self.scale if scale is None else self.scale * scale
        result = ChannelMap(self.source, scale, shift, self.owner if owner is None else owner)
        return result if len(result.dimensions) < 2 and 0 not in result.dimensions else None

    @property
    def dimensions(self) -> set[int]:
        """The dimension of the channels; empty if there is one value for all of them."""
        given = [constant for constant in (self.scale, self.shift) if constant is not None]
        return set().union(*map(_varied, given))

    def folded(self, before: RecordedLayer) -> RecordedLayer | None:
        """Return the layer that computed `source` with this map folded in; None if that is not possible.

        A positive number that scales all channels, as in attention, is left out: it changes no rule, apart from
        the units of LRP-epsilon.
        """
        if self.shift is None and not self.dimensions and (self.scale is None or self.scale > 0):
            return None
        layer = before.layer
        channels = before.output_dimension % self.source.ndim
        weight = layer.weight
        bias = layer.bias
        if before.scale_outputs is None:
            if self.scale is not None:
                return None
        elif channels == 0 or not self.dimensions <= {channels}:
            return None
        elif self.scale is not None:
            weight = before.scale_outputs(weight, self._each(self.scale, channels))
            bias = bias * self.scale
        bias = bias if self.shift is None else bias + self.shift
        return replace(before, layer=replace(layer, weight=weight, bias=bias), y=None, n_uses=0)

    def alone(self) -> LinearLayer | None:
        """Return the map as a linear layer of its own; None unless it scales and shifts the channels of maps."""
        if self.scale is None or self.shift is None or not self.dimensions <= {1} or self.source.ndim < 2:
            return None
        if max(self.scale.numel(), self.shift.numel()) != self.source.shape[1]:
            return None

        def apply(x: Tensor, weight: Tensor, _: Any = None) -> Tensor:
            return x * weight.reshape(-1, *[1] * (x.ndim - 2))

        return LinearLayer(self._each(self.scale, 1), self.shift, apply, apply)

    def _each(self, constant: Tensor, channels: int) -> Tensor:
        """The value for every channel, the channels being this dimension of the source."""
        return constant.flatten().expand(self.source.shape[channels])

    def _constant(self, value: Any) -> Tensor | None:
        if value is None:
            return None
        if not isinstance(value, Tensor):
            value = self.source.new_tensor(value)
        value = value.detach().to(self.source).reshape(*[1] * (self.source.ndim - value.ndim), *value.shape)
        varied = _varied(value)
        for d in varied if len(varied) > 1 or 0 in varied else ():  # it may be one row for all inputs or positions
            if (value == value.narrow(d, 0, 1)).all():
                value = value.narrow(d, 0, 1)
        return value


def _varied(constant: Tensor) -> set[int]:
    return {d for d, n in enumerate(constant.shape) if n > 1}
