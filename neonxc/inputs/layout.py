"""How a network reads its inputs, by the first layer that they reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

LAYERS = {"linear", "matmul", "__matmul__", "mm", "bmm", "bilinear", "lstm", "gru", "rnn_tanh", "rnn_relu"}
LAYERS |= {"multi_head_attention_forward", "scaled_dot_product_attention", "tensordot"}
LAYERS |= {f"conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3)}


class First(NamedTuple):
    """The first layer of a network: the name of its function, and what it is given."""

    function: str
    given: Tensor

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

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given, name = (*args, *(kwargs or {}).values()), getattr(func, "__name__", "")
        if name in LAYERS and id(given[0]) in self.derived:
            raise _Reached(First(name, given[0]))
        result = func(*args, **(kwargs or {}))
        if any(id(value) in self.derived for value in tree_leaves(given)):
            changed = [given[0]] if name == "__setitem__" else tree_leaves(result)
            self.derived |= {id(value): value for value in changed if isinstance(value, Tensor)}
        return result


@torch.no_grad()
def first_layer(run: Callable[[Tensor], Any], x: Tensor) -> First | None:
    """Run a network up to the first layer that mixes numbers of its inputs; None if there is none."""
    x = x.detach().clone()  # the network may change it
    try:
        with _UpToFirst(x):
            run(x)
    except _Reached as reached:
        first: First = reached.args[0]
        return first
    return None


def reading(run: Callable[[Tensor], Any], x: Tensor) -> Literal["channels", "tokens", "places"]:
    """What a network takes dimension 1 of its inputs [N, ...] for, by its first layer.

    Tokens of inputs [N, T, d], such as the steps of a series, are vectors along the last dimension, in contrast to
    channels [N, C, ...]. Places are those of inputs without channels, such as spectrograms [N, F, T], to which the
    network adds some.
    """
    first = first_layer(run, x[:2])
    if first is None:
        return "channels"
    if first.dimensions and first.given.ndim - 1 == x.ndim == first.dimensions + 1:
        return "places"
    vectors = not first.dimensions and first.given.shape[-1] == x.shape[-1]
    if first.dimensions == 1:  # a convolution of the transposed input
        vectors = first.given.shape[1:] == x.mT.shape[1:] != x.shape[1:]
    return "tokens" if vectors and x.ndim == 3 else "channels"


def check_batch(run: Callable[[Tensor], Any], x: Tensor, name: str) -> None:
    """Raise a ValueError for a single input [C, ...], which convolutions take as one."""
    first = first_layer(run, x)
    if first is not None and first.dimensions + 1 == first.given.ndim == x.ndim:
        raise ValueError(
            f"{name} of shape {list(x.shape)} is a single input for the network, whose first layer is "
            f"{first.function}: add a batch dimension, {name}[None]; several grey images or series without a "
            f"dimension of channels are {name}[:, None]"
        )
