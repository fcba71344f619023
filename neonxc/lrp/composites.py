"""Composites: which layer follows which rule."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Protocol

from torch import Tensor, nn

from neonxc.lrp.gamma import Gamma
from neonxc.lrp.layer import Rule


@dataclass(frozen=True)
class Place:
    """Where a linear layer stands in a network.

    Attributes
    ----------
    name : str
        Of the module whose weight it is, as in ``named_modules()``; empty if the weight is no module's own.
    module : nn.Module or None
    depth : int
        Its number in the order in which the linear layers run, from 0.
    block : int or None
        1 while maps are as large as the network's input, one more for every halving; None off maps.
    """

    name: str
    module: nn.Module | None
    depth: int
    block: int | None


Key = str | type[nn.Module] | int | range | Callable[[Place], bool]


class FunctionRule(Protocol):
    """A rule for a function of one tensor: from the output's multiplier to the input's."""

    def __call__(self, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """Multiplier at the input x from the one at the output y, relevance / y."""


@dataclass(frozen=True)
class Pass:
    """Relevance passes an elementwise function unchanged."""

    def __call__(self, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """Multiplier at the input; see :class:`FunctionRule`."""
        return m * (y / x).where(x != 0, 0.0)


@dataclass(frozen=True)
class Constant:
    """What a function gives is held constant, as are the values of gates: no relevance passes."""


class Composite:
    """Map the layers of a network to rules.

    Parameters
    ----------
    default : Rule, optional
        For every linear layer that nothing below matches; LRP-gamma with gamma 0.25 unless given.
    layers : mapping to Rule, optional
        Keys are names (as in ``named_modules()``, with ``*`` and ``?``), types of modules, depths (0 is the first
        linear layer that runs, negative ones count from the end, a ``range`` names several), or functions that
        take a :class:`Place` and say yes or no. The first match in order wins.
    functions : mapping of function to FunctionRule or Constant, optional
        Rules for nonlinear functions by PyTorch's name for them, such as ``{torch.exp: Pass()}``; they go before
        the engine's own treatment.

    Examples
    --------
    >>> from torch import nn
    >>> from neonxc.lrp import Composite, Epsilon, Flat, Gamma
    >>> composite = Composite(Gamma(0.25), {0: Flat(), "features.2*": Gamma(0.1), nn.Linear: Epsilon()})
    """

    def __init__(
        self,
        default: Rule | None = None,
        layers: Mapping[Any, Rule] | None = None,
        functions: Mapping[Callable[..., Any], FunctionRule | Constant] | None = None,
    ) -> None:
        self.default = default or Gamma(0.25)
        self.layers: dict[Key, Rule] = dict(layers or {})
        self.functions = dict(functions or {})
        for key in self.layers:
            if not (isinstance(key, (str, int, range)) or callable(key)):
                raise TypeError(f"layers has the key {key!r}; needed is a name, type, depth, range or function")
        for function in self.functions:
            if isinstance(function, type) or not hasattr(function, "__name__"):
                raise TypeError(f"functions has the key {function!r}; needed is a function such as torch.sigmoid")
        for rule in (self.default, *self.layers.values(), *self.functions.values()):
            if isinstance(rule, type) or not (callable(rule) or isinstance(rule, Constant)):
                raise TypeError(f"a rule is a callable such as Gamma(0.25), got {rule!r}")

    @property
    def reaches_zeros(self) -> bool:
        """Whether a rule gives relevance to inputs that are zero."""
        return any(getattr(rule, "reaches_zeros", False) for rule in (self.default, *self.layers.values()))

    def rule(self, place: Place, layers: int) -> Rule:
        """Return the rule of the layer at this place in a network of so many linear layers."""
        for key, rule in self.layers.items():
            if _matches(key, place, layers):
                return rule
        return self.default

    def function_rule(self, name: str) -> FunctionRule | Constant | None:
        """Return the rule that was given for functions of this name, if any."""
        return next((rule for f, rule in self.functions.items() if f.__name__ == name), None)

    def check_names(self, names: Iterable[str]) -> None:
        """Raise ValueError if a pattern matches none of the names of layers with weights."""
        names = list(names)
        for key in self.layers:
            if isinstance(key, str) and not any(fnmatchcase(name, key) for name in names):
                close = difflib.get_close_matches(key, names, n=3, cutoff=0.4)
                hint = f"; close ones: {', '.join(close)}" if close else ""
                raise ValueError(f"composite has a rule for {key!r}, which is no layer with weights{hint}")

    def __repr__(self) -> str:
        functions = {f.__name__: rule for f, rule in self.functions.items()}
        return f"Composite({self.default!r}, {self.layers!r}{f', {functions!r}' if functions else ''})"


def _matches(key: Key, place: Place, layers: int) -> bool:
    if isinstance(key, str):
        return fnmatchcase(place.name, key)
    if isinstance(key, type):
        return isinstance(place.module, key)
    if isinstance(key, (int, range)):
        depths = (key,) if isinstance(key, int) else key
        return place.depth in depths or place.depth - layers in depths
    return bool(key(place))
