"""The engine: run a network once with its linear layers and activations watched, then walk back.

Operations are seen as they are called (a ``TorchFunctionMode``), whether a module or a plain function calls them,
so the network is never changed. Linear layers and activations get a backward pass of their own; whatever merely
adds, moves or pools values keeps its gradient; anything else that depends on the input is an error.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import captum
import torch
import torch.nn.functional as F
from captum.attr import Attribution
from captum.log import log_usage
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from neonxc.lrp.composites import Composite
from neonxc.lrp.rules import LinearLayer, Rule


class UnsupportedOperation(RuntimeError):
    """A network calls a nonlinear operation for which there is no rule."""


class LRP(Attribution):
    """Layer-wise relevance propagation.

    Parameters
    ----------
    module : nn.Module
        Any network in eval mode; it is not changed.
    composite : Composite, optional
        Default: LRP-gamma with gamma 0.25 in every linear layer.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from neonxc.lrp import LRP
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    >>> LRP(net).attribute(torch.rand(2, 4), target=0).shape
    torch.Size([2, 4])
    """

    def __init__(self, module: nn.Module, composite: Composite | None = None) -> None:
        if not isinstance(module, nn.Module):
            raise TypeError(f"LRP needs an nn.Module, got {type(module).__name__}")
        if not isinstance(composite, (Composite, type(None))):
            raise TypeError(f"composite needs a neonxc.lrp.Composite, got {type(composite).__name__}")
        super().__init__(module)
        self.module = module
        self.composite = composite or Composite()

    @property
    def multiplies_by_inputs(self) -> bool:
        """Relevance is a share of the output, not a slope."""
        return True

    @log_usage(part_of_slo=True)
    def attribute(self, inputs: Tensor | tuple[Tensor, ...], target: Any = None) -> Tensor | tuple[Tensor, ...]:
        """Relevance of one output.

        Parameters
        ----------
        inputs : Tensor [N, ...] or tuple of one
        target : int, tuple of int, sequence or Tensor [N], optional
            Which output: its index for all points (a tuple for outputs of several dimensions) or one each;
            None where the output is [N] or [N, 1].

        Returns
        -------
        Tensor or tuple
            Like `inputs`.
        """
        if isinstance(inputs, tuple):
            return tuple(self.attribute(x, target) for x in only(inputs))
        recording = self.record(inputs)
        return recording.propagate(select(recording.output, target))

    def record(self, x: Tensor) -> Recording:
        """Run the network forward once; any number of backward passes may follow."""
        if not (isinstance(x, Tensor) and x.is_floating_point()):
            raise TypeError(f"LRP takes a floating-point tensor, got {getattr(x, 'dtype', type(x).__name__)}")
        rules: dict[int, Rule] = {}
        for name, module in self.module.named_modules():
            if module.training and isinstance(module, nn.modules.batchnorm._BatchNorm):  # it would count this pass
                raise ValueError(f"LRP needs BatchNorm ({name!r}) in eval mode; call .eval() on the network first")
            for parameter in module.parameters(recurse=False):
                rules.setdefault(id(parameter), self.composite.rule(name, module))
        leaf = x.detach().clone().requires_grad_()
        watch = _Watch(rules, self.composite.default)
        with torch.enable_grad(), watch:
            output = self.module(leaf)
        output = watch.current(output)
        if not isinstance(output, Tensor):
            raise TypeError(f"LRP needs a network with one tensor as its output, got {type(output).__name__}")
        return Recording(leaf, output)


@dataclass(frozen=True)
class Recording:
    """One forward pass, ready to be walked back."""

    x: Tensor
    output: Tensor

    def propagate(self, multiplier: Tensor) -> Tensor:
        """Relevance like x from the output's multipliers (relevance / output)."""
        if not self.output.requires_grad:
            return torch.zeros_like(self.x)
        (m,) = torch.autograd.grad(self.output, self.x, multiplier.to(self.output), retain_graph=True)
        return (self.x * m).detach()


def only(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Check that captum's tuple of inputs holds a single tensor, and return it."""
    if len(inputs) != 1:
        raise ValueError(f"neonxc explains networks of one input tensor, got a tuple of {len(inputs)}")
    return inputs


def select(output: Tensor, target: Any) -> Tensor:
    """Indicator, shaped like `output`, of the entries captum's `target` names."""
    indicator = torch.zeros_like(output)
    if target is None:
        if output[0].numel() != 1:
            raise ValueError(f"target is needed: the network has outputs of shape {list(output.shape)}")
        return indicator + 1
    if isinstance(target, (int, tuple)):
        index = (target,) if isinstance(target, int) else target
        if len(index) != output.ndim - 1:
            raise ValueError(f"target {target} needs {output.ndim - 1} numbers for outputs {list(output.shape)}")
        if any(not -n <= i < n for i, n in zip(index, output.shape[1:], strict=True)):
            raise ValueError(f"target {target} is outside the outputs' shape {list(output.shape)}")
        indicator[(slice(None), *index)] = 1
        return indicator
    columns = torch.as_tensor(target, device=output.device).reshape(-1)
    if output.ndim != 2 or len(columns) != len(output):
        raise ValueError(f"target has {len(columns)} entries for outputs of shape {list(output.shape)}")
    if columns.is_floating_point() or columns.min() < 0 or columns.max() >= output.shape[1]:
        raise ValueError(f"target needs whole numbers from 0 to {output.shape[1] - 1}")
    return indicator.scatter_(1, columns[:, None].long(), 1)


class _Override(torch.autograd.Function):
    """Compute ``y = forward(x)`` and pull multipliers back by ``backward(x, y, m)``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forward: Callable[..., Tensor], backward: Callable[..., Tensor]) -> Tensor:
        y = forward(x)
        ctx.save_for_backward(x, y)
        ctx.pull = backward
        return y

    @staticmethod
    def backward(ctx: Any, m: Tensor) -> tuple[Tensor, None, None]:
        x, y = ctx.saved_tensors
        return ctx.pull(x, y, m), None, None


class _Watch(TorchFunctionMode):
    """Gives every operation of a forward pass its LRP backward."""

    def __init__(self, rules: dict[int, Rule], default: Rule) -> None:
        super().__init__()
        self.rules, self.default = rules, default
        self.replaced: dict[
            int, tuple[Tensor, Tensor]
        ] = {}  # by id: what was modified in place, and its new value

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map(self.current, (args, kwargs or {})) if self.replaced else (args, kwargs or {})
        depends = [t for t in tree_leaves((args, kwargs)) if _depends_on_input(t)]
        if not depends:
            with torch.no_grad():  # what is computed from parameters alone is a constant here
                return tree_map(_constant, func(*args, **kwargs))
        handler = _HANDLERS.get(func)
        if handler is not None:
            return handler(self, func, *args, **kwargs)
        name = _name(func)
        if name in _IN_PLACE:
            func = getattr(torch, _IN_PLACE[name])
            return self.in_place(args[0], self.__torch_function__(func, types, args, kwargs))
        linear = len(depends) == 1 and (name in _PRODUCTS or (name in _QUOTIENTS and depends[0] is args[0]))
        if name in _PLAIN or linear:
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        if any(map(_depends_on_input, tree_leaves(result))):
            raise UnsupportedOperation(f"LRP has no rule for {name!r}, called {_place()}")
        return result

    def in_place(self, old: Tensor, new: Tensor) -> Tensor:
        """Let `new` stand for `old` from now on; the rules still need what `old` held."""
        if old is not new:
            self.replaced[id(old)] = (old, new)
        return new

    def current(self, value: Any) -> Any:
        """What stands for a value that may have been modified in place."""
        while id(value) in self.replaced:
            value = self.replaced[id(value)][1]
        if self.replaced and isinstance(value, Tensor) and self._shares_memory_with_replaced(value):
            raise UnsupportedOperation(
                f"LRP can't follow a tensor that shares its memory with one modified in place, used {_place()}; "
                "use the operation that is not in place"
            )
        return value

    def _shares_memory_with_replaced(self, value: Tensor) -> bool:
        base = value._base if value._is_view() else value
        return any((old._is_view() and old._base is base) or old is base for old, _ in self.replaced.values())


def _constant(value: Any) -> Any:
    """A view of a trainable parameter wants gradients even under no_grad."""
    return value.detach() if _depends_on_input(value) else value


def _name(func: Any) -> str:
    name = getattr(func, "__name__", str(func))
    return getattr(func.__self__, "__name__", name) if name == "__get__" else name  # a property: its own name


def _depends_on_input(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad and not isinstance(value, nn.Parameter)


def _convolution(
    watch: _Watch,
    func: Callable[..., Tensor],
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    n = weight.ndim - 2
    stride, dilation = _each(stride, n), _each(dilation, n)
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        input = F.pad(input, [side for t in reversed(total) for side in (t // 2, t - t // 2)])
    padding = _each(0 if isinstance(padding, str) else padding, n)

    def apply(x: Tensor, w: Tensor) -> Tensor:
        return func(x, w, None, stride, padding, dilation, groups)

    def transpose(m: Tensor, w: Tensor, x: Tensor) -> Tensor:
        wanted = [True, False, False]
        return torch.ops.aten.convolution_backward(
            m, x, w, None, stride, padding, dilation, False, [0] * n, groups, wanted
        )[0]

    column = 0.0 if bias is None else bias.detach().reshape(-1, *[1] * n)
    layer = LinearLayer(weight.detach(), column, apply, transpose)
    value = lambda x: func(x, weight, bias, stride, padding, dilation, groups)  # noqa: E731
    return _linear_layer(watch, layer, weight, input, value)


def _linear(
    watch: _Watch, func: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    offset = 0.0 if bias is None else bias.detach()
    layer = LinearLayer(weight.detach(), offset, lambda x, w: x @ w.T, lambda m, w, x: m @ w)
    return _linear_layer(watch, layer, weight, input, lambda x: func(x, weight, bias))


def _linear_layer(
    watch: _Watch, layer: LinearLayer, weight: Tensor, x: Tensor, value: Callable[[Tensor], Tensor]
) -> Tensor:
    rule = watch.rules.get(id(weight), watch.default)
    y: Tensor = _Override.apply(x, value, lambda x, y, m: rule(layer, x, y, m))
    y._neonxc_layer = (x, layer, rule)  # type: ignore[attr-defined]  # for a BatchNorm that may follow
    return y


def _batch_norm(
    watch: _Watch,
    func: Callable[..., Tensor],
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Fold into the linear layer before it; elsewhere keep the gradient, the shift absorbing its share."""
    if training or running_mean is None or running_var is None:
        raise ValueError("LRP needs BatchNorm in eval mode; call .eval() on the network first")
    norm = (running_mean, running_var, weight, bias, False, momentum, eps)
    source = getattr(input, "_neonxc_layer", None)
    if source is None:
        return func(input, *norm)
    x, layer, rule = source
    value = input.detach()
    scale = torch.rsqrt(running_var + eps) * (1.0 if weight is None else weight.detach())
    shift = (0.0 if bias is None else bias.detach()) - running_mean * scale
    column = [-1] + [1] * (value.ndim - 2)
    folded = LinearLayer(
        layer.weight * scale.reshape(-1, *[1] * (layer.weight.ndim - 1)),
        layer.bias * scale.reshape(column) + shift.reshape(column),
        layer.apply,
        layer.transpose,
    )
    return _Override.apply(x, lambda _: func(value, *norm), lambda x, y, m: rule(folded, x, y, m))


def _relu(watch: _Watch, func: Callable[..., Tensor], input: Tensor, inplace: bool = False) -> Tensor:
    result = torch.relu(input)
    return watch.in_place(input, result) if inplace or func.__name__.endswith("_") else result


def _activation(watch: _Watch, func: Callable[..., Tensor], input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Pass relevance on unchanged: the multiplier is scaled by ``a(z) / z``."""
    inplace = kwargs.pop("inplace", False)

    def backward(z: Tensor, a: Tensor, m: Tensor) -> Tensor:
        return m * torch.where(z == 0, torch.zeros_like(z), a / z)

    result = _Override.apply(input, lambda z: func(z, *args, **kwargs), backward)
    return watch.in_place(input, result) if inplace else result


def _normalize(
    watch: _Watch,
    func: Callable[..., Tensor],
    input: Tensor,
    p: float = 2.0,
    dim: Any = 1,
    eps: float = 1e-12,
    out: None = None,
) -> Tensor:
    """Hold the norm constant."""
    norm = torch.linalg.vector_norm(input.detach(), p, dim=dim, keepdim=True).clamp(min=eps)
    return input / norm


def _dropout(
    watch: _Watch,
    func: Callable[..., Tensor],
    input: Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
) -> Tensor:
    if training and p > 0:
        raise ValueError("LRP needs dropout in eval mode; call .eval() on the network first")
    return input


_HANDLERS: dict[Any, Callable[..., Tensor]] = {
    **dict.fromkeys((torch.conv1d, torch.conv2d, torch.conv3d), _convolution),
    F.linear: _linear,
    **dict.fromkeys((F.batch_norm, torch.batch_norm), _batch_norm),
    **dict.fromkeys((F.relu, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_), _relu),
    **dict.fromkeys((F.relu6, F.hardtanh), _activation),
    F.normalize: _normalize,
    **dict.fromkeys((F.dropout, F.dropout1d, F.dropout2d, F.dropout3d), _dropout),
}

# Operations through which multipliers flow as gradients do: values are added, moved, averaged or picked.
_ARITHMETIC = {"add", "__add__", "__radd__", "sub", "__sub__", "__rsub__", "rsub", "neg", "__neg__", "sum", "mean"}
_LAYOUT = {
    *("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "permute", "transpose", "movedim"),
    *(
        "t",
        "T",
        "mT",
        "swapaxes",
        "__getitem__",
        "select",
        "narrow",
        "index_select",
        "split",
        "chunk",
        "unbind",
        "expand",
    ),
    *("expand_as", "repeat", "roll", "contiguous", "clone", "detach", "cat", "concat", "stack", "pad"),
    *("to", "float", "double", "half", "bfloat16", "type"),
}
_POOLING = {f"{kind}_pool{n}d" for kind in ("avg", "max", "adaptive_avg", "adaptive_max") for n in (1, 2, 3)}
_PLAIN = _ARITHMETIC | _LAYOUT | _POOLING
# `x += y` and its like, as PyTorch calls them
_IN_PLACE = {
    **{f"{name}_": name for name in ("add", "sub", "mul", "div")},
    **{f"__i{name}__": name for name in ("add", "sub", "mul")},
    **dict.fromkeys(("__idiv__", "__itruediv__"), "div"),
}
# Linear as long as one factor does not depend on the input.
_PRODUCTS = {"mul", "__mul__", "__rmul__", "matmul", "__matmul__", "__rmatmul__", "mm", "bmm"}
_QUOTIENTS = {"div", "__truediv__"}


def _each(value: Any, n: int) -> list[int]:
    return [value] * n if isinstance(value, int) else list(value) * (n if len(value) == 1 else 1)


def _place() -> str:
    """Where the user's code called the operation now being handled."""
    skip = (torch.__path__[0] + os.sep, captum.__path__[0] + os.sep, __file__)
    for frame in reversed(traceback.extract_stack()):
        if not frame.filename.startswith(skip):
            return f"at {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
    return "inside torch"
