"""Where a network's layers stand, and where in its code something is called."""

from __future__ import annotations

import linecache
import math
import os
import sys
from collections.abc import Callable
from typing import Any

import captum
import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from neonxc.lrp.composites import Composite, Place
from neonxc.lrp.layer import Rule


class UnsupportedOperation(RuntimeError):
    """A network calls a nonlinear operation for which there is no rule."""


class Layers:
    """The layers of a network: their names, whose weights are whose, and which rules the linear ones follow.

    Names are those in the user's network: inside a feature extractor, and of a layer rather than of its
    parametrization.
    """

    def __init__(self, composite: Composite, network: nn.Module, side: int | None) -> None:
        self.composite = composite
        self.count = 0  # of linear layers, in the order in which they run
        self._side = side  # width of the network's input, if it is a map
        self._modules: dict[int, str] = {}
        self._owners: dict[int, tuple[str, nn.Module]] = {}  # by the id of a parameter or buffer
        self._derived = WeakTensorKeyDictionary()  # of constants that were computed from those
        self.names: set[str] = set()  # of the modules with weights, all that a composite can mean
        modules = dict(network.named_modules())
        wrapped = getattr(network, "wraps", None)
        for name, module in modules.items():
            layer = name.partition(".parametrizations.")[0]
            shown = layer.removeprefix(f"{wrapped}.") if wrapped else layer
            self._modules[id(module)] = shown
            for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
                self._owners.setdefault(id(tensor), (shown, modules[layer]))
                self.names.add(shown)

    def rule(self, weight: Tensor, x: Tensor) -> Callable[[], Rule]:
        """Give the next layer its place; the rule can be asked for once all layers are known."""
        name, module = self.owner(weight) or ("", None)
        place = Place(name, module, self.count, self._block(weight, x))
        self.count += 1
        return lambda: self.composite.rule(place, self.count)

    def _block(self, weight: Tensor, x: Tensor) -> int | None:
        matrix = weight.ndim == 2  # its inputs are the last dimension
        if self._side is None or x.ndim < (4 if matrix else 3):
            return None
        return 1 + max(0, round(math.log2(self._side / x.shape[-2 if matrix else -1])))

    def owner(self, weight: Tensor) -> tuple[str, nn.Module] | None:
        """Name and module of a parameter or buffer, or of what was computed from one."""
        found = self._owners.get(id(weight)) or self._derived.get(weight)
        return found

    def derive(self, value: Any, sources: list[Tensor]) -> Any:
        """Let a constant computed from a module's parameters count as that module's."""
        owner = next((owner for source in sources if (owner := self.owner(source))), None)
        if owner is not None and isinstance(value, Tensor) and id(value) not in self._owners:
            self._derived[value] = owner
        return value

    def where(self) -> str:
        """Where the user's code called the operation now being handled: its line, and the innermost module."""
        skip = (torch.__path__[0] + os.sep, captum.__path__[0] + os.sep, os.path.dirname(__file__) + os.sep)
        frame: Any = sys._getframe(1)
        inside = ""
        while frame is not None and frame.f_code.co_filename.startswith(skip):
            inside = inside or self._module(frame)
            frame = frame.f_back
        if frame is None:
            return f"inside torch{inside}"
        file, line = frame.f_code.co_filename, frame.f_lineno
        inside = inside or self._module(frame)
        code = linecache.getline(file, line).strip()
        return f"at {file}:{line} in {frame.f_code.co_name}{inside}: {code}"

    def _module(self, frame: Any) -> str:
        module = frame.f_locals.get("self")
        name = self._modules.get(id(module))
        return f" (module {name!r}, {type(module).__name__})" if name else ""
