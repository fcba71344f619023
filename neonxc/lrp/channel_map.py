"""Constant scales and shifts per channel, and the linear layers that they make, or are folded into.

A channel map is ``y = scale x + shift`` with one constant per channel, or one for all.

    before t and u        t (scale x + shift) + u     = (t scale) x + (t shift + u)         then(t, u)
    after a layer         scale (W x + b) + shift     = (scale W) x + (scale b + shift)     folded(layer)
    without any           W = diag(scale), b = shift                                        alone()
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from torch import Tensor

from neonxc.lrp.layer import LinearLayer, RecordedLayer

Factor: TypeAlias = float | Tensor | None
"""A number, or a constant that broadcasts; None for one that there is not."""


@dataclass(frozen=True)
class ChannelMap:
    """A value that was computed from another one as ``scale * source + shift``, with one constant per channel.

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

    def then(self, scale: Factor, shift: Factor, owner: Tensor | None) -> ChannelMap | None:
        """Return the map followed by another scale and shift; None if these are not by channel."""
        scale = self._constant(scale)
        shift = self._constant(shift)
        if self.shift is not None:
            scaled = self.shift if scale is None else self.shift * scale
            shift = scaled if shift is None else scaled + shift
        if self.scale is not None:
            scale = self.scale if scale is None else self.scale * scale
        if owner is None:
            owner = self.owner

        composed = ChannelMap(self.source, scale, shift, owner)
        dimensions = composed.dimensions
        if 0 in dimensions or len(dimensions) > 1:  # dimension 0 holds the inputs
            return None
        return composed

    @property
    def dimensions(self) -> set[int]:
        """The dimension of the channels; empty if there is one value for all of them."""
        constants = [constant for constant in (self.scale, self.shift) if constant is not None]
        return set().union(*map(_varied, constants))

    def folded(self, before: RecordedLayer) -> RecordedLayer | None:
        """Return the layer that computed `source` with this map folded in; None if that is not possible.

        A positive number that scales all channels, as in attention, is left out: it changes no rule but
        LRP-epsilon, whose stabilizer is in the units of y.
        """
        is_number = self.shift is None and not self.dimensions
        if is_number and (self.scale is None or self.scale > 0):
            return None
        layer = before.layer
        scale_outputs = before.scale_outputs
        channels = before.output_dimension % self.source.ndim
        if scale_outputs is None and self.scale is not None:
            return None
        if scale_outputs is not None and (channels == 0 or not self.dimensions <= {channels}):
            return None

        scale = before.scale
        bias = layer.bias
        if self.scale is not None:
            scale = self._each(self.scale, channels)
            if before.scale is not None:
                scale = scale * before.scale
            bias = bias * self.scale
        if self.shift is not None:
            bias = bias + self.shift
        return replace(before, layer=replace(layer, bias=bias), scale=scale, y=None, n_uses=0)

    def alone(self) -> LinearLayer | None:
        """Return the map as a linear layer of its own; None unless it scales and shifts the channels of maps."""
        if self.scale is None or self.shift is None:
            return None
        if self.source.ndim < 2 or not self.dimensions <= {1}:
            return None
        if max(self.scale.numel(), self.shift.numel()) != self.source.shape[1]:
            return None

        def apply(x: Tensor, weight: Tensor, _: Tensor | None = None) -> Tensor:
            return x * weight.reshape(-1, *[1] * (x.ndim - 2))  # its own transpose, as W is diagonal

        return LinearLayer(self._each(self.scale, 1), self.shift, apply, apply)

    def _each(self, constant: Tensor, channels: int) -> Tensor:
        """Return the value for every channel [C], the channels being this dimension of the source."""
        return constant.flatten().expand(self.source.shape[channels])

    def _constant(self, value: Factor) -> Tensor | None:
        """Return a scale or shift with as many dimensions as the source, of size 1 where all values are equal."""
        if value is None:
            return None
        if not isinstance(value, Tensor):
            value = self.source.new_tensor(value)
        n_missing = self.source.ndim - value.ndim
        value = value.detach().to(self.source)
        value = value.reshape(*[1] * n_missing, *value.shape)

        varied = _varied(value)
        if len(varied) < 2 and 0 not in varied:  # it is by channel, or a single number
            return value
        for dimension in varied:  # it may be one row for all inputs or positions
            first = value.narrow(dimension, 0, 1)
            if (value == first).all():
                value = first
        return value


def _varied(constant: Tensor) -> set[int]:
    """Return the dimensions along which a constant has more than one value."""
    return {dimension for dimension, size in enumerate(constant.shape) if size > 1}
