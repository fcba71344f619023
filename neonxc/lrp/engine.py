"""The LRP engine: trace one forward pass of a network, then propagate relevance back by autograd.

A ``TorchFunctionMode`` intercepts operations whether modules or plain functions call them, so the network is never
changed. Linear layers and activations get a backward pass of their own; operations that add, move or pool values
keep their gradient; the results of all others are held constant, and may serve as gates only.

    1. Trace the network at x. Its output gets a graph in which autograd carries multipliers, relevance / value.
    2. Start with the multiplier 1 at the output to explain, and 0 at the others: their relevance is the output.
    3. Propagate back to the multiplier m of the input; the relevance of the input is x m.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias, TypeVar, overload

import torch
from captum.attr import Attribution
from captum.log import log_usage
from torch import Tensor, nn

import neonxc.lrp.operations  # noqa: F401  # fills the table of operations
from neonxc.common.memory import at_once, network_bytes
from neonxc.common.modules import evaluated, may_vary, unwrapped
from neonxc.common.numbers import plural
from neonxc.common.progress import progress_bar
from neonxc.common.targets import as_positions, part
from neonxc.common.types import ArrayLike
from neonxc.data.inputs import JOIN, check_finite, compute_dtype
from neonxc.lrp.composites import Composite
from neonxc.lrp.kept import release_graph
from neonxc.lrp.layer import tiny_value
from neonxc.lrp.layer_names import LayerNames, UnsupportedOperation
from neonxc.lrp.lookups import warn_of_codes
from neonxc.lrp.tracer import Tracer

Target: TypeAlias = int | tuple[int, ...] | ArrayLike | None
"""The output to explain, as captum takes it: one for all inputs, or one for each."""

Input = TypeVar("Input")


class LRP(Attribution):
    """Layer-wise relevance propagation through any network.

    Parameters
    ----------
    module : nn.Module
        A network in eval mode with one tensor as input and one as output. It is not changed. ``DataParallel``,
        ``DistributedDataParallel`` and ``torch.compile`` wrappers are removed.
    composite : Composite, optional
        The rules of the layers. Default: LRP-gamma with gamma 0.25 in every linear layer.

    Raises
    ------
    TypeError
        `module` is no ``nn.Module``, or `composite` no :class:`Composite`.

    References
    ----------
    .. [1] S. Bach et al., "On pixel-wise explanations for non-linear classifier decisions by layer-wise
       relevance propagation", PLoS ONE, 2015.
    .. [2] G. Montavon et al., "Layer-wise relevance propagation: an overview", 2019.

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
        if not isinstance(composite, Composite | None):
            raise TypeError(f"composite needs a neonxc.lrp.Composite, got {type(composite).__name__}")
        super().__init__(module)
        self.module = module
        self.composite = composite or Composite()

    @property
    def multiplies_by_inputs(self) -> bool:
        """True: relevance divides up the output, and is not a gradient."""
        return True

    @overload
    def attribute(self, inputs: Tensor, target: Target = None) -> Tensor: ...
    @overload
    def attribute(self, inputs: tuple[Tensor, ...], target: Target = None) -> tuple[Tensor, ...]: ...
    @log_usage(part_of_slo=True)
    def attribute(self, inputs: Tensor | tuple[Tensor, ...], target: Target = None) -> Tensor | tuple[Tensor, ...]:
        """Compute the relevance of the inputs for one output.

        Parameters
        ----------
        inputs : Tensor [N, ...] or tuple of one Tensor
            Floating-point inputs of the network, on its device. float16 and bfloat16 are computed in float32.
        target : int, tuple of int, sequence or Tensor [N], optional
            Index of the output to explain: one for all inputs (a tuple for outputs of several dimensions), or one
            for each. None if the output is [N] or [N, 1].

        Returns
        -------
        Tensor or tuple of one Tensor
            Relevance in units of the output, with the shape of `inputs`.

        Raises
        ------
        TypeError
            `inputs` is not a floating-point tensor, or the output is not a tensor.
        ValueError
            Inputs or outputs that are not finite, an unknown target, or a network in training mode.
        UnsupportedOperation
            The network calls an operation without a rule; the message names it and its line.
        """
        if isinstance(inputs, tuple):
            return (self._attribute(only(inputs), target),)
        return self._attribute(inputs, target)

    def _attribute(self, inputs: Tensor, target: Target) -> Tensor:
        """Compute the relevance of a tensor; captum logs calls of :meth:`attribute` alone."""
        _check_input(inputs, "inputs")
        batch_size = at_once(network_bytes(inputs), inputs.device)
        starts = range(0, max(1, len(inputs)), batch_size)
        relevance = []
        for start in progress_bar(starts, desc="LRP", disable=len(starts) < 2):
            rows = slice(start, start + batch_size)
            recording = self._record(inputs[rows], several=False)
            targets = part(target, "target", rows, len(inputs))
            multiplier = select(recording.output, targets)
            explained = recording.output.detach().where(multiplier != 0, 0.0)
            check_finite(explained, name="the output of the network")
            relevance.append(recording.propagate(multiplier))
        return torch.cat(relevance)

    def record(self, x: Tensor, several: bool = True) -> Recording:
        """Run the forward pass once, for any number of backward passes.

        Parameters
        ----------
        x : Tensor [N, ...]
            Input of the network; float16 and bfloat16 are computed in float32.
        several : bool
            False: there will be a single backward pass, which then frees memory as it goes.

        Returns
        -------
        Recording
        """
        _check_input(x, "x")
        return self._record(x, several)

    def _record(self, x: Tensor, several: bool) -> Recording:
        """Record a forward pass on inputs that are checked."""
        module = unwrapped(self.module)
        _check_module(module, x)
        side = x.shape[-1] if x.ndim > 2 else None
        layers = LayerNames(self.composite, module, side)
        with torch.inference_mode(False), _full_precision(x.device), torch.enable_grad():
            x = x.detach().to(compute_dtype(x.dtype), copy=True)
            tiny = tiny_value(x.dtype)
            source = x.masked_fill(x.abs() < tiny, tiny)  # relevance of a zero needs a multiplier
            leaf = x.detach().requires_grad_()  # the network gets x itself: it may test for zeros

            before = torch.cuda.memory_allocated(x.device) if x.is_cuda else 0
            tracer = Tracer(layers, leaf, several, source)
            output = _traced(module, tracer)
            if not output.requires_grad:
                # a second input, whose ranks differ from those of x as well
                second = leaf.flatten().flip(0).view_as(leaf) / 2 + 0.25
                second = second.detach().requires_grad_()
                second_output = _traced(module, Tracer(layers, second, several))
                tracer.cuts.check(output, second_output)
        if tracer.cuts.lookup is not None:
            warn_of_codes(module, x, tracer.cuts.lookup)

        zeros_have_relevance = bool(tracer.tiny) or tracer.normalizes_input
        if zeros_have_relevance:
            x = source
        return Recording(x, output, _batch_size(x, before), leaf, several)


@dataclass(frozen=True)
class Recording:
    """A recorded forward pass, from which relevance can be propagated back; :meth:`LRP.record` returns it.

    Attributes
    ----------
    x : Tensor [N, ...]
        Input of the network.
    output : Tensor
        Output of the network.
    room : int
        How many explanations fit into memory at once: 1 on a CPU, where a batch of them is no faster.
    """

    x: Tensor
    output: Tensor
    room: int
    _leaf: Tensor
    _several: bool

    def propagate(self, multiplier: Tensor) -> Tensor:
        """Compute the relevance of the input from multipliers at the output.

        Parameters
        ----------
        multiplier : Tensor
            Relevance / output, with the shape of `output`; or [K, ...] for K explanations at once.

        Returns
        -------
        Tensor
            Relevance with the shape of `x`, or [K, ...].
        """
        return self.x * self.multiplier(multiplier)

    def multiplier(self, multiplier: Tensor) -> Tensor:
        """Compute multipliers at the input from those at the output; :meth:`propagate` multiplies them by `x`.

        Parameters
        ----------
        multiplier : Tensor
            Multipliers of the output.

        Returns
        -------
        Tensor
        """
        is_batched = multiplier.ndim > self.output.ndim
        if is_batched and len(multiplier) == 1:
            # without vmap, which takes a third of the time of a small network's backward pass
            return self.multiplier(multiplier[0])[None]
        if not self.output.requires_grad:
            explanations = multiplier.shape[:1] if is_batched else ()
            return torch.zeros_like(self.x).expand(*explanations, *self.x.shape)
        with torch.inference_mode(False), _full_precision(self.x.device):
            m_output = multiplier.to(self.output)
            (m,) = torch.autograd.grad(
                self.output, self._leaf, m_output, retain_graph=self._several, is_grads_batched=is_batched
            )
            return m.detach()


@contextmanager
def named_cut(module: nn.Module, x: Tensor) -> Iterator[None]:
    """Replace autograd's error about a value that is cut off from the input by LRP's, which names the line."""
    try:
        yield
    except RuntimeError as error:
        if any(word in str(error) for word in ("grad", "graph")):
            LRP(module).record(x.detach(), several=False)
        raise


def _traced(module: nn.Module, tracer: Tracer) -> Tensor:
    """Run a network, which keeps no value with the graph of this pass."""
    try:
        return tracer.trace(module)
    finally:
        release_graph(module, tracer.table.without_graph)


def _batch_size(x: Tensor, before: int) -> int:
    """Return how many backward passes fit into memory, if each takes twice the memory of the forward pass."""
    if not x.is_cuda:
        return 1
    recorded = max(1, torch.cuda.memory_allocated(x.device) - before)
    free, _ = torch.cuda.mem_get_info(x.device)
    return max(1, free // (2 * recorded))


def _check_input(x: object, name: str) -> None:
    """Raise an error unless inputs are a finite floating-point tensor."""
    if not isinstance(x, Tensor):
        hint = "; convert it with torch.as_tensor" if hasattr(x, "__array__") else ""
        raise TypeError(f"{name} needs a floating-point torch.Tensor, got {type(x).__name__}{hint}")
    if not x.is_floating_point():
        raise TypeError(f"{name} needs a floating-point tensor, got {x.dtype}")
    check_finite(x, name=name)


@torch.no_grad()
def _check_module(module: nn.Module, x: Tensor) -> None:
    """Raise an error for networks that LRP cannot trace, or whose output is random."""
    for name, inner in module.named_modules():
        if isinstance(inner, torch.jit.ScriptModule):
            raise UnsupportedOperation(f"LRP can't trace TorchScript ({name!r}); pass the Python module")
    if may_vary(module):  # the rules stand in for operators, which are to be seen as they are
        weights = (weight for weight in module.parameters() if weight.is_floating_point())
        dtype = next(weights, x).dtype
        evaluated(module, x.to(dtype), compare=False)


def _full_precision(device: torch.device) -> torch.autocast:
    """Switch autocast off: multipliers of deep networks leave the range of float16."""
    return torch.autocast(device.type, enabled=False)


def only(inputs: tuple[Input, ...]) -> Input:
    """Return the one input in a tuple of inputs, as captum passes them."""
    if len(inputs) != 1:
        raise ValueError(f"inputs needs one tensor, got a tuple of {len(inputs)}: {JOIN}")
    return inputs[0]


def select(output: Tensor, target: Target) -> Tensor:
    """Return the indicator, with the shape of `output`, of the entries that a target selects."""
    if target is None:
        if output[0].numel() != 1:
            raise ValueError(f"target is missing: the network's output has shape {list(output.shape)}")
        return torch.ones_like(output)

    n_indices = len(target) if isinstance(target, tuple) else 1
    n_needed = output.ndim - 1
    if n_indices != n_needed:
        numbers = plural(n_needed, "number")
        raise ValueError(f"target needs {numbers} for outputs {list(output.shape)}, got {target}")
    indicator = torch.zeros_like(output)
    if isinstance(target, tuple):
        if any(not 0 <= i < n for i, n in zip(target, output.shape[1:], strict=True)):
            raise ValueError(f"target {target} is outside the output of shape {list(output.shape)}")
        indicator[(slice(None), *target)] = 1
        return indicator
    positions = as_positions(target, len(output), output.shape[1], "target", output.device)
    return indicator.scatter_(1, positions[:, None], 1)
