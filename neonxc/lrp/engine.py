"""The engine: run a network once with its linear layers and activations watched, then walk back.

Operations are seen as they are called (a ``TorchFunctionMode``), whether a module or a plain function calls them,
so the network is never changed. Linear layers and activations get a backward pass of their own; whatever merely
adds, moves or pools values keeps its gradient; anything else is held constant, and may only serve as a gate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from captum.attr import Attribution
from captum.log import log_usage
from torch import Tensor, nn

import neonxc.lrp.operations  # noqa: F401  # fills the table of operations
from neonxc.blocks import at_once, network_bytes
from neonxc.inputs import check_finite, compute_dtype
from neonxc.lrp.backward import tiny
from neonxc.lrp.composites import Composite
from neonxc.lrp.places import Layers, UnsupportedOperation
from neonxc.lrp.table import check_eval
from neonxc.lrp.watch import Watch
from neonxc.modules import check_evaluating, unwrapped
from neonxc.progress_bars import progress_bar
from neonxc.targets import as_columns, part


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
            return tuple(self.attribute.__wrapped__(self, x, target) for x in only(inputs))
        _check_input(inputs, "inputs")
        parts = []
        for x, first in chunks(inputs, "LRP"):
            recording = self._record(x, several=False)
            wanted = part(target, "target", slice(first, first + len(x)), len(inputs))
            parts.append(recording.propagate(select(recording.output, wanted)))
        return torch.cat(parts)

    def record(self, x: Tensor, several: bool = True) -> Recording:
        """Run the network forward once, for any number of walks back.

        Parameters
        ----------
        x : Tensor [N, ...]
            What the network takes; float16 and bfloat16 are computed in float32.
        several : bool
            False: there will be one walk back alone, which then frees memory as it goes.
        """
        _check_input(x, "x")
        return self._record(x, several)

    def _record(self, x: Tensor, several: bool) -> Recording:
        module = unwrapped(self.module)
        _check_module(module)
        layers = Layers(self.composite, module, x.shape[-1] if x.ndim > 2 else None)
        with torch.inference_mode(False), _full_precision(x.device), torch.enable_grad():
            x = x.detach().to(compute_dtype(x.dtype), copy=True)
            source = torch.where(
                x.abs() < tiny(x.dtype), tiny(x.dtype), x
            )  # relevance of a zero needs a multiplier
            leaf = source.detach().requires_grad_()
            before = torch.cuda.memory_allocated(x.device) if x.is_cuda else 0
            watch = Watch(layers, leaf, several)
            with watch:
                output = module(leaf)
            output = watch.finish(output)
        if not isinstance(output, Tensor):
            raise TypeError(f"LRP needs a network with one tensor as its output, got {type(output).__name__}")
        return Recording(source if watch.tiny or watch.shifted else x, output, _room(x, before), leaf, several)


@dataclass(frozen=True)
class Recording:
    """One forward pass, ready to be walked back.

    Attributes
    ----------
    x : Tensor [N, ...]
        The input.
    output : Tensor
        What the network made of it.
    room : int
        How many explanations memory has room for at once: 1 on a CPU, where several at once are no faster.
    """

    x: Tensor
    output: Tensor
    room: int
    _leaf: Tensor
    _several: bool

    def propagate(self, multiplier: Tensor) -> Tensor:
        """Relevance from the output's multipliers (relevance / output).

        Parameters
        ----------
        multiplier : Tensor
            Shaped like `output`, or [K, ...] with K explanations that are propagated at once.

        Returns
        -------
        Tensor
            Shaped like x, or [K, ...].
        """
        return self.x * self.multiplier(multiplier)

    def multiplier(self, multiplier: Tensor) -> Tensor:
        """Multipliers at the input from the output's; :meth:`propagate` gives ``x`` times these."""
        batched = multiplier.ndim > self.output.ndim
        if not self.output.requires_grad:
            return torch.zeros_like(self.x).expand(*multiplier.shape[:batched], *self.x.shape)
        with torch.inference_mode(False), _full_precision(self.x.device):
            m = multiplier.to(self.output)
            (m,) = torch.autograd.grad(
                self.output, self._leaf, m, retain_graph=self._several, is_grads_batched=batched
            )
            return m.detach()


def _room(x: Tensor, before: int) -> int:
    """How many walks back memory has room for, each counted as twice what the forward pass has left there."""
    if not x.is_cuda:
        return 1
    recorded = max(1, torch.cuda.memory_allocated(x.device) - before)
    free = torch.cuda.mem_get_info(x.device)[0]
    return max(1, free // (2 * recorded))


def _check_input(x: Any, name: str) -> None:
    if not (isinstance(x, Tensor) and x.is_floating_point()):
        raise TypeError(f"LRP takes a floating-point tensor, got {getattr(x, 'dtype', type(x).__name__)}")
    check_finite(x, name=name)


def _check_module(module: nn.Module) -> None:
    check_evaluating(module, "module")
    for name, inner in module.named_modules():
        if isinstance(inner, torch.jit.ScriptModule):
            raise UnsupportedOperation(f"LRP can't see into TorchScript ({name!r}); pass the Python module")
        random = type(inner).__name__ in ("StochasticDepth", "DropPath")
        check_eval(inner.training and random, f"stochastic depth ({name!r})")


def _full_precision(device: torch.device) -> Any:
    """Autocast off: multipliers of deep networks leave the range of float16."""
    return torch.autocast(device.type, enabled=False)


def chunks(x: Tensor, what: str) -> Iterator[tuple[Tensor, int]]:
    """Parts of a batch that go through a network at once, with their first index; a bar where it takes long."""
    starts = range(0, max(1, len(x)), size := at_once(network_bytes(x), x.device))
    for first in progress_bar(starts, desc=what, disable=len(starts) < 2):
        yield x[first : first + size], first


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
    if isinstance(target, tuple):
        if len(target) != output.ndim - 1:
            raise ValueError(f"target {target} needs {output.ndim - 1} numbers for outputs {list(output.shape)}")
        if any(not 0 <= i < n for i, n in zip(target, output.shape[1:], strict=True)):
            raise ValueError(f"target {target} is outside the outputs' shape {list(output.shape)}")
        indicator[(slice(None), *target)] = 1
        return indicator
    if output.ndim != 2:
        raise ValueError(f"target {target} needs {output.ndim - 1} numbers for outputs {list(output.shape)}")
    columns = as_columns(target, len(output), output.shape[1], "target", output.device)
    return indicator.scatter_(1, columns[:, None], 1)
