"""Categories that a network looks up by their codes: no relevance passes from a row of a table to its number.

Codes are numbers of X that were moved, shifted, rounded or cast on their own, and then are the index into a table
that is the same for every input: an Embedding, a matrix, or one-hot vectors. Positions and indices of other kinds,
such as those of maxima, are no codes.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from neonxc.common.warnings import warn
from neonxc.lrp.tensor_info import FunctionCall

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

_compared: WeakSet[nn.Module] = WeakSet()  # networks whose look-ups were reported, or are none of codes


def is_lookup(name: str) -> bool:
    """Whether a function of this name takes rows of a table by their numbers."""
    return name.removesuffix("_") in LOOKUPS if not name.endswith("__") else name in LOOKUPS


class _Codes(TorchFunctionMode):
    """Follows single numbers of x through a forward pass, up to tables in which they are looked up."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        numbers = torch.arange(x[0].numel(), device=x.device, dtype=torch.float64)
        # by the id of a tensor, which numbers of a row it consists of; several for their sum, say
        self._sources: dict[int, list[Tensor]] = {id(x): [numbers.view(x[0].shape).expand(x.shape)]}
        self._kept: list[Tensor] = [x]  # so that no other tensor gets the id of one
        self.codes: set[int] = set()  # positions within a row of x

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = tree_leaves((args, kwargs))
        known = [value for value in given if id(value) in self._sources]
        name = getattr(func, "__name__", "")
        if name == "__get__":
            name = getattr(func.__self__, "__name__", "")
        result = func(*args, **kwargs)
        if not known:
            return result
        indices = [value for value in known if not value.is_floating_point()]
        if is_lookup(name) and len(indices) == len(known):
            for index in indices:
                self.codes |= {int(code) for source in self._sources[id(index)] for code in source.unique()}
        sources = self._after(name, func, args, kwargs, known, result)
        values = [result] if isinstance(result, Tensor) else list(result) if sources else []
        for value, source in zip(values, sources, strict=False):
            self._kept.append(value)
            self._sources[id(value)] = source
        return result

    def _after(
        self, name: str, func: Any, args: Any, kwargs: Any, known: list[Tensor], result: Any
    ) -> list[list[Tensor]]:
        """What each result of a function consists of; empty if it mixes numbers."""
        single = name if name.endswith("__") else name.removesuffix("_")
        if single in BY_NUMBER and isinstance(result, Tensor):
            sources = [source for value in known for source in self._sources[id(value)]]
            try:
                return [[source.expand(result.shape) for source in sources]]
            except RuntimeError:  # of another shape
                return []
        if single not in MOVES:
            return []
        moved = []
        for k in range(max(len(self._sources[id(value)]) for value in known)):

            def source(value: Any, k: int = k) -> Any:
                sources = self._sources.get(id(value))
                return value if sources is None else sources[min(k, len(sources) - 1)]

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
    if module in _compared or not len(x):
        return
    _compared.add(module)
    x = x[:2].detach().clone()
    try:
        with _Codes(x) as seen:
            module(x)
    except Exception:  # of a network that needs batches of another size
        return
    if seen.codes:
        warn(
            f"no relevance passes from {_columns(sorted(seen.codes), x.shape[1:])} of X, whose numbers are codes "
            f"that the network looks up ({call.name}, called {call.place}): compute what is looked up before the "
            "network, and pass it as columns of X; or pass a column of zeros and ones for each category, and a "
            "linear layer in place of the table"
        )


def _columns(codes: list[int], shape: torch.Size) -> str:
    """Describe positions within a row [D], or within a row [C, ...] by the numbers in each dimension."""
    if len(shape) == 1:
        names = ", ".join(map(str, codes[:20])) + (", ..." if len(codes) > 20 else "")
        return f"column {names}" if len(codes) == 1 else f"columns {names}"
    along = []
    for numbers, size in zip(torch.unravel_index(torch.tensor(codes), shape), shape, strict=True):
        used = sorted({*numbers.tolist()})
        along.append(":" if len(used) == size else str(used[0] if len(used) == 1 else used[:20]))
    return f"X[:, {', '.join(along)}]"
