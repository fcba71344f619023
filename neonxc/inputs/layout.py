"""How a network reads its inputs and writes its outputs: which dimension it takes for the channels.

Inputs are read by the first layer that they reach, for inputs [N, ...] of as many dimensions::

    a convolution over all dimensions of an input, to which channels are added  locations, without channels
    a linear layer, attention, recurrence or product along the last dimension   tokens [N, T, d]
    a convolution over one dimension of inputs [N, T, d] that are transposed    tokens [N, T, d]
    other layers                                                                channels [N, C, ...]

Outputs are read by following the dimension of the channels from layer to layer (:func:`channel_dimension`): layers
write it, and operations such as a transpose move it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

LAYERS = {"linear", "matmul", "__matmul__", "mm", "bmm", "bilinear", "lstm", "gru", "rnn_tanh", "rnn_relu"}
LAYERS |= {"multi_head_attention_forward", "scaled_dot_product_attention", "tensordot"}
LAYERS |= {f"conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3)}

# Layers that write channels into the last dimension, and products, whose result has that of the second factor
VECTORS = {"linear", "layer_norm", "rms_norm", "multi_head_attention_forward", "embedding"}
VECTORS |= {"lstm", "gru", "rnn_tanh", "rnn_relu"}
VECTORS |= {"_native_multi_head_attention", "_transformer_encoder_layer_fwd"}
PRODUCTS = {"matmul", "__matmul__", "mm", "bmm", "linalg_matmul", "tensordot", "scaled_dot_product_attention"}
_MOVES = (
    "view view_as reshape reshape_as ravel flatten unflatten squeeze unsqueeze permute transpose movedim moveaxis "
    "swapaxes swapdims t T mT H mH adjoint __getitem__ select narrow split chunk unbind expand expand_as "
    "cat concat stack mean sum amax max"
)
MOVES = {*_MOVES.split()}


class FirstLayer(NamedTuple):
    """The first layer of a network: the name of its function, and its input."""

    function: str
    input: Tensor

    @property
    def dimensions(self) -> int:
        """The number of dimensions that a convolution slides over; 0 for other layers."""
        return int(self.function[-2]) if self.function.startswith("conv") else 0


class _Reached(BaseException):
    """Ends a forward pass at the first layer; no ``except Exception`` of a network stops it."""


class _UpToFirst(TorchFunctionMode):
    """Follows the inputs of a network through operations until they are the first argument of a layer."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.derived = {id(x): x}

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        arguments = (*args, *(kwargs or {}).values())
        name = getattr(func, "__name__", "")
        if name in LAYERS and id(arguments[0]) in self.derived:
            raise _Reached(FirstLayer(name, arguments[0]))
        result = func(*args, **(kwargs or {}))
        if any(id(value) in self.derived for value in tree_leaves(arguments)):
            changed = [arguments[0]] if name == "__setitem__" else tree_leaves(result)
            self.derived |= {id(value): value for value in changed if isinstance(value, Tensor)}
        return result


@torch.no_grad()
def first_layer(run: Callable[[Tensor], object], x: Tensor) -> FirstLayer | None:
    """Run a network up to the first layer that mixes numbers of its inputs; None if there is none."""
    x = x.detach().clone()  # the network may change it
    try:
        with _UpToFirst(x):
            run(x)
    except _Reached as reached:
        first: FirstLayer = reached.args[0]
        return first
    return None


def reading(run: Callable[[Tensor], object], x: Tensor) -> Literal["channels", "tokens", "places"]:
    """Find what a network takes dimension 1 of its inputs [N, ...] for, by its first layer.

    Tokens of inputs [N, T, d], such as the steps of a series, are vectors along the last dimension, in contrast to
    channels [N, C, ...]. Places are those of inputs without channels, such as spectrograms [N, F, T], to which the
    network adds some.
    """
    first = first_layer(run, x[:2])
    if first is None:
        return "channels"
    slides_over_all = first.dimensions > 0 and x.ndim == first.dimensions + 1
    has_new_channels = first.input.ndim == x.ndim + 1
    if slides_over_all and has_new_channels:
        return "places"
    if first.dimensions == 1:  # a convolution of the transposed input
        has_vectors = first.input.shape[1:] == x.mT.shape[1:] != x.shape[1:]
    else:
        has_vectors = not first.dimensions and first.input.shape[-1] == x.shape[-1]
    return "tokens" if has_vectors and x.ndim == 3 else "channels"


class _Channels(TorchFunctionMode):
    """Follows the dimension of values that holds the channels: where a layer writes them, and where they move.

    Convolutions write channels before the dimensions that they slide over, linear layers in the last one.
    """

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self._dimensions: dict[int, int | None] = {id(x): None}  # by the id of what is computed from x
        self._kept: list[Tensor] = [x]  # so that no other tensor gets the id of one

    def dimension(self, value: object) -> int | None:
        """Return the dimension of a value that holds the channels; None if it is unknown."""
        return self._dimensions.get(id(value))

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        sources = [value for value in tree_leaves((args, kwargs)) if id(value) in self._dimensions]
        result = func(*args, **kwargs)
        if sources:
            for value in tree_leaves(result):
                if isinstance(value, Tensor):
                    self._kept.append(value)
                    self._dimensions[id(value)] = self._after(func, args, kwargs, sources, value)
        return result

    def _after(
        self,
        func: Callable[..., object],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        sources: list[Tensor],
        result: Tensor,
    ) -> int | None:
        """Return the dimension that holds the channels of a result of a function."""
        name = getattr(func, "__name__", "")
        if name == "__get__":  # of a property, such as x.T
            name = getattr(getattr(func, "__self__", None), "__name__", "")
        if name.startswith("conv") and name.endswith("d"):
            n_spatial = int(name[-2])
            return result.ndim - 1 - n_spatial
        if name in VECTORS:
            return result.ndim - 1
        if name in PRODUCTS:
            return self._after_product(args, result)
        if name == "einsum":
            return self._after_einsum(*args)
        known = [value for value in sources if self.dimension(value) is not None]
        if not known:
            return None
        if name in MOVES:
            return self._moved(func, args, kwargs)
        # an operation on values one by one keeps the dimensions
        return self.dimension(known[0]) if result.ndim == known[0].ndim else None

    def _after_product(self, args: Sequence[Any], result: Tensor) -> int | None:
        """Return the dimension of a product that is that of channels of its second factor, or of a weight."""
        first = args[0]
        second = args[-1] if isinstance(args[-1], Tensor) else args[1]
        channels = self.dimension(second)
        if id(second) not in self._dimensions or channels == second.ndim - 1:
            return result.ndim - 1
        is_weight = id(first) not in self._dimensions
        if is_weight and channels == second.ndim - 2:
            return result.ndim - 2
        return None

    def _after_einsum(self, equation: object, *operands: object) -> int | None:
        """Return the dimension of a result that is that of a weight alone, or of the channels of an operand."""
        if not isinstance(equation, str) or "->" not in equation or "." in equation:
            return None
        inputs, output = equation.replace(" ", "").split("->")
        terms = list(zip(inputs.split(","), tree_leaves(operands), strict=True))

        computed = "".join(term for term, value in terms if id(value) in self._dimensions)
        of_weights = [letter for letter in output if letter not in computed]
        if len(of_weights) == 1:
            return output.index(of_weights[0])

        for term, value in reversed(terms):
            channels = self.dimension(value)
            if channels is not None and term[channels] in output:
                return output.index(term[channels])
        return None

    def _moved(self, func: Callable[..., object], args: Sequence[Any], kwargs: Mapping[str, Any]) -> int | None:
        """Return the dimension along which a result differs if values differ along their channels alone."""

        def numbered(value: Any) -> Any:
            """Replace a value by the numbers of its channels."""
            channels = self.dimension(value)
            if channels is None:
                return value
            numbers = torch.arange(value.shape[channels], device=value.device, dtype=torch.float64)
            n_after = value.ndim - 1 - channels
            return numbers.view(-1, *[1] * n_after).expand(value.shape).contiguous()

        result = func(*tree_map(numbered, args), **tree_map(numbered, kwargs))
        numbers = tree_leaves(result)[0]
        differs = [i for i in range(numbers.ndim) if bool((numbers != numbers.narrow(i, 0, 1)).any())]
        return differs[0] if len(differs) == 1 else None


@torch.no_grad()
def channel_dimension(run: Callable[[Tensor], object], x: Tensor) -> int | None:
    """Return the dimension of a network's output that its last layers write channels to; None if unknown."""
    x = x.detach().clone()  # the network may change it
    with _Channels(x) as channels:
        output = run(x)
    return channels.dimension(output)


def check_batch(run: Callable[[Tensor], object], x: Tensor, name: str) -> None:
    """Raise a ValueError for a single input [C, ...], which convolutions take as one."""
    first = first_layer(run, x)
    if first is None:
        return
    # a batch of a convolution has two dimensions more than those that it slides over
    if first.dimensions + 1 == first.input.ndim == x.ndim:
        raise ValueError(
            f"{name} of shape {list(x.shape)} is a single input for the network, whose first layer is "
            f"{first.function}: add a batch dimension, {name}[None]; several grey images or series without a "
            f"dimension of channels are {name}[:, None]"
        )
