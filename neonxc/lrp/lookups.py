"""Categories that a network looks up by their codes: no relevance passes from a row of a table to its number.

Codes are numbers of X that were moved, shifted, rounded or cast on their own, and then are the index into a table
that is the same for every input: an Embedding, a matrix, or one-hot vectors. Positions and indices of other kinds,
such as those of maxima, are not codes.

A forward pass finds them. It keeps, for each tensor, the positions in a row of X that its numbers come from:

    x itself                                 0, 1, 2, ... in every row
    a function that moves values             the positions are moved by the same function
    a function number by number              positions of all its arguments, expanded to its shape
    any other function                       nothing: it mixes numbers
    a look-up whose indices have positions   these are positions of codes
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from neonxc.common.warnings import warn
from neonxc.lrp.tensor_info import FunctionCall
from neonxc.lrp.tensor_table import Arguments, Function, Keywords, property_name

# functions by their names: those that look up rows of a table, that move values, and that compute number by number
LOOKUPS = {"embedding", "embedding_bag", "one_hot", "__getitem__", "index_select", "gather", "take", "scatter"}
LOOKUPS |= {"take_along_dim", "index_put", "scatter_add"}
_MOVES = (
    "__getitem__ select narrow split chunk unbind view reshape flatten ravel unflatten squeeze unsqueeze permute "
    "transpose movedim moveaxis swapaxes swapdims t T mT expand expand_as repeat tile stack cat concat "
    "hstack vstack column_stack index_select flip roll diagonal"
)
MOVES = {*_MOVES.split()}
_BY_NUMBER = (
    "long int short byte to type type_as float double half bfloat16 cpu cuda detach data clone contiguous round "
    "floor ceil trunc clamp clamp_min clamp_max clip nan_to_num abs neg __neg__ add __add__ __radd__ __iadd__ sub "
    "__sub__ __rsub__ __isub__ mul __mul__ __rmul__ __imul__ div __truediv__ __itruediv__ __floordiv__ "
    "floor_divide remainder __mod__ fmod relu where masked_fill maximum minimum bucketize searchsorted"
)
BY_NUMBER = {*_BY_NUMBER.split()}

_examined: WeakSet[nn.Module] = WeakSet()  # networks whose look-ups were reported, or are none of codes


def is_lookup(name: str) -> bool:
    """Whether a function of this name takes rows of a table by their numbers."""
    return _without_suffix(name) in LOOKUPS


def _without_suffix(name: str) -> str:
    """Return the name of a function or, if it modifies its argument, that of its counterpart."""
    return name if name.endswith("__") else name.removesuffix("_")


class _Codes(TorchFunctionMode):
    """Follows single numbers of x through a forward pass, up to tables in which they are looked up."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        positions = torch.arange(x[0].numel(), device=x.device, dtype=torch.float64)
        positions = positions.view(x[0].shape).expand(x.shape)
        # by the id of a tensor, its positions; several where its numbers come from several, as sums do
        self._sources: dict[int, list[Tensor]] = {id(x): [positions]}
        self._kept: list[Tensor] = [x]  # so that no other tensor gets the id of one
        self.codes: set[int] = set()  # positions of codes within a row of x

    def __torch_function__(
        self, func: Function, types: Sequence[type], args: Arguments = (), kwargs: Keywords | None = None
    ) -> Any:
        kwargs = kwargs or {}
        leaves = tree_leaves((args, kwargs))
        sourced = [value for value in leaves if id(value) in self._sources]
        name = getattr(func, "__name__", "")
        if name == "__get__":
            name = property_name(func)
        result = func(*args, **kwargs)
        if not sourced:
            return result

        indices = [value for value in sourced if not value.is_floating_point()]
        if is_lookup(name) and len(indices) == len(sourced):
            for index in indices:
                self._add_codes(self._sources[id(index)])
        sources = self._sources_of(name, func, args, kwargs, sourced, result)
        if not sources:
            return result
        values = [result] if isinstance(result, Tensor) else list(result)
        for value, source in zip(values, sources, strict=False):
            self._kept.append(value)
            self._sources[id(value)] = source
        return result

    def _add_codes(self, sources: list[Tensor]) -> None:
        """Register the positions that an index comes from as those of codes."""
        for source in sources:
            self.codes.update(int(position) for position in source.unique())

    def _sources_of(
        self, name: str, func: Function, args: Arguments, kwargs: Keywords, sourced: list[Tensor], result: object
    ) -> list[list[Tensor]]:
        """Return the positions that each result of a function comes from; empty if it mixes numbers."""
        name = _without_suffix(name)
        if name in BY_NUMBER and isinstance(result, Tensor):
            sources = [source for value in sourced for source in self._sources[id(value)]]
            try:
                return [[source.expand(result.shape) for source in sources]]
            except RuntimeError:  # of another shape
                return []
        if name not in MOVES:
            return []

        # move the k-th positions of all arguments; an argument that has fewer contributes its last
        moved = []
        for k in range(max(len(self._sources[id(value)]) for value in sourced)):

            def source(value: object, k: int = k) -> object:
                sources = self._sources.get(id(value))
                if sources is None:
                    return value
                last = len(sources) - 1
                return sources[min(k, last)]

            try:
                output = func(*tree_map(source, args), **tree_map(source, kwargs))
            except (RuntimeError, TypeError, IndexError):  # it takes whole numbers alone
                return []
            moved.append([output] if isinstance(output, Tensor) else list(output))
        return [list(sources) for sources in zip(*moved, strict=True)]


@torch.no_grad()
def warn_of_codes(module: nn.Module, x: Tensor, call: FunctionCall) -> None:
    """Warn once for a network that looks up columns of x, through which no relevance passes.

    Parameters
    ----------
    module : nn.Module
    x : Tensor [N, ...]
    call : FunctionCall
        A look-up by numbers that were computed from x.
    """
    if module in _examined or not len(x):
        return
    _examined.add(module)
    x = x[:2].detach().clone()
    try:
        with _Codes(x) as mode:
            module(x)
    except Exception:  # of a network that needs batches of another size
        return
    if mode.codes:
        columns = _columns(sorted(mode.codes), x.shape[1:])
        warn(
            f"no relevance passes from {columns} of X, whose numbers are codes that the network looks up "
            f"({call.name}, called {call.location}): compute what is looked up before the network, and pass it as "
            "columns of X; or pass a column of zeros and ones for each category, and a linear layer in place of "
            "the table"
        )


def _columns(codes: list[int], shape: torch.Size) -> str:
    """Describe positions within a row [D], or within a row [C, ...] by the numbers in each dimension."""
    if len(shape) == 1:
        names = ", ".join(map(str, codes[:20]))
        if len(codes) == 1:
            return f"column {names}"
        if len(codes) > 20:
            names += ", ..."
        return f"columns {names}"

    indices = []  # of each dimension: all, a number, or a list
    positions = torch.unravel_index(torch.tensor(codes), shape)
    for numbers, size in zip(positions, shape, strict=True):
        used = sorted({*numbers.tolist()})
        if len(used) == size:
            indices.append(":")
        elif len(used) == 1:
            indices.append(str(used[0]))
        else:
            indices.append(str(used[:20]))
    return f"X[:, {', '.join(indices)}]"
