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

from neonxc.lrp.composites import Composite, Place
from neonxc.lrp.known import Owner
from neonxc.lrp.layer import Rule

OTHERS = tuple(
    os.path.dirname(file) + os.sep for file in (torch.__file__, captum.__file__, __file__) if file is not None
)


class UnsupportedOperation(RuntimeError):
    """A network calls a nonlinear operation for which there is no rule."""


class Layers:
    """The layers of a network: their names, and which rules the linear ones follow.

    Names are those in the user's network: inside a feature extractor, and of a layer rather than of its
    parametrization.
    """

    def __init__(self, composite: Composite, network: nn.Module, side: int | None) -> None:
        self.composite = composite
        self.count = 0  # of linear layers, in the order in which they run
        self._side = side  # width of the network's input, if it is a map
        wrapped = f"{network.wraps}." if hasattr(network, "wraps") else ""
        self._names: dict[int, str] = {}
        self.owners: list[tuple[Tensor, Owner]] = []  # of parameters and buffers; tied ones come twice
        modules = dict(network.named_modules())
        for path, module in modules.items():
            layer = path.partition(".parametrizations.")[0]
            self._names[id(module)] = name = layer.removeprefix(wrapped)
            tensors = (*module.parameters(recurse=False), *module.buffers(recurse=False))
            self.owners += [(tensor, (name, modules[layer])) for tensor in tensors]
        composite.check_names({name for _, (name, _) in self.owners})

    def rule(self, owner: Owner | None, weight: Tensor, x: Tensor) -> Callable[[], Rule]:
        """Give the next layer its place; the rule can be asked for once all layers are known."""
        name, module = owner or ("", None)
        place = Place(name, module, self.count, self._block(weight, x))
        self.count += 1
        return lambda: self.composite.rule(place, self.count)

    def _block(self, weight: Tensor, x: Tensor) -> int | None:
        matrix = weight.ndim == 2  # its inputs are the last dimension
        if self._side is None or x.ndim < (4 if matrix else 3):
            return None
        return 1 + max(0, round(math.log2(self._side / x.shape[-2 if matrix else -1])))

    def where(self) -> str:
        """Where the user's code called the operation now being handled: its line, and the innermost module."""
        frame: Any = sys._getframe(1)
        inside = ""
        while frame is not None:
            inside = inside or self._module(frame)
            file, line = frame.f_code.co_filename, frame.f_lineno
            if not file.startswith(OTHERS):
                code = linecache.getline(file, line).strip()
                return f"at {file}:{line} in {frame.f_code.co_name}{inside}: {code}"
            frame = frame.f_back
        return f"inside torch{inside}"

    def _module(self, frame: Any) -> str:
        module = frame.f_locals.get("self")
        name = self._names.get(id(module))
        return f" (module {name!r}, {type(module).__name__})" if name else ""
