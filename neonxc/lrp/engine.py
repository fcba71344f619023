"""The engine: run a network once with its linear layers and activations watched, then walk back.

Operations are seen as they are called (a ``TorchFunctionMode``), whether a module or a plain function calls them,
so the network is never changed. Linear layers and activations get a backward pass of their own; whatever merely
adds, moves or pools values keeps its gradient; anything else that depends on the input is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from captum.attr import Attribution
from captum.log import log_usage
from torch import Tensor, nn

from neonxc.lrp.composites import Composite
from neonxc.lrp.rules import Rule
from neonxc.lrp.watch import UnsupportedOperation, Watch


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
        scripted = [n for n, m in self.module.named_modules() if isinstance(m, torch.jit.ScriptModule)]
        if scripted:
            raise UnsupportedOperation(f"LRP can't see into TorchScript ({scripted[0]!r}); pass the Python module")
        for name, module in self.module.named_modules():
            if module.training and isinstance(module, nn.modules.batchnorm._BatchNorm):  # it would count this pass
                raise ValueError(f"LRP needs BatchNorm ({name!r}) in eval mode; call .eval() on the network first")
            for parameter in module.parameters(recurse=False):
                rules.setdefault(id(parameter), self.composite.rule(name, module))
        with torch.inference_mode(False):
            return self._record(x, Watch(rules, self.composite.default))

    def _record(self, x: Tensor, watch: Watch) -> Recording:
        leaf = x.detach().clone().requires_grad_()
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
        with torch.inference_mode(False):
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
