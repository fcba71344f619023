"""Composites: maps from the layers of a network to propagation rules.

A key of a composite matches a linear layer as follows, and the first key that matches decides:

    key                  matches
    str                  the layer's name, with the wildcards * and ?
    type of modules      the module that owns the weight is an instance
    int d                the depth is d, or d counts from the end
    range                the depth, or the depth from the end, is in it
    function             it returns True for the layer's place
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Protocol, TypeAlias

from torch import Tensor, nn

from neonxc.common.arguments import similar
from neonxc.lrp.layer import PropagationRule
from neonxc.lrp.rules import Gamma
from neonxc.lrp.tensor_table import function_name


@dataclass(frozen=True)
class Place:
    """The position of a linear layer in a network, from which a composite chooses its rule.

    Attributes
    ----------
    name : str
        Name of the module that owns the weight, as in ``named_modules()``; empty if no module owns it.
    module : nn.Module or None
        The module that owns the weight.
    depth : int
        Position in the order in which the linear layers run, from 0.
    block : int or None
        1 for feature maps as large as the network's input, one more each time their size is halved; None for
        layers whose input is not a feature map.
    """

    name: str
    module: nn.Module | None
    depth: int
    block: int | None


Key: TypeAlias = str | type[nn.Module] | int | range | Callable[[Place], bool]


class FunctionRule(Protocol):
    """A rule for a function of one tensor: a callable that computes the multiplier at the function's input."""

    def __call__(self, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """Compute the multiplier at the input, relevance / x, from the one at the output, relevance / y."""


@dataclass(frozen=True)
class Pass:
    """Rule for elementwise functions: relevance passes unchanged."""

    def __call__(self, x: Tensor, y: Tensor, m: Tensor) -> Tensor:
        """Compute the multiplier at the input; see :class:`FunctionRule`."""
        # R_x = R_y, so that m_x = R_y / x = m y / x
        ratio = (y / x).where(x != 0, 0.0)
        return m * ratio


@dataclass(frozen=True)
class Constant:
    """Rule for gates: the function's result is held constant, so that no relevance flows through it."""


class Composite:
    """Map the layers of a network to propagation rules.

    Parameters
    ----------
    default : Rule, optional
        Rule of the linear layers that no key of `layers` matches. Default: LRP-gamma with gamma 0.25.
    layers : mapping to Rule, optional
        Rules of some layers. Keys are names (as in ``named_modules()``, with the wildcards ``*`` and ``?``), types
        of modules, depths (0 is the first linear layer that runs, negative ones count from the end, a ``range``
        selects several), or functions that take a :class:`Place` and return a bool. The first key that matches
        wins.
    functions : mapping of function to FunctionRule or Constant, optional
        Rules of nonlinear functions of PyTorch, such as ``{torch.exp: Pass()}``. They override the engine's own
        treatment.

    Raises
    ------
    TypeError
        A key or a rule of another kind, such as a class in place of an instance.

    Examples
    --------
    >>> from torch import nn
    >>> from neonxc.lrp import Composite, Epsilon, Flat, Gamma
    >>> composite = Composite(Gamma(0.25), {0: Flat(), "features.2*": Gamma(0.1), nn.Linear: Epsilon()})
    """

    def __init__(
        self,
        default: PropagationRule | None = None,
        layers: Mapping[Any, PropagationRule] | None = None,
        functions: Mapping[Callable[..., Any], FunctionRule | Constant] | None = None,
    ) -> None:
        self.default = default or Gamma(0.25)
        self.layers: dict[Key, PropagationRule] = dict(layers or {})
        self.functions = dict(functions or {})
        for key in self.layers:
            if not (isinstance(key, (str, int, range)) or callable(key)):
                raise TypeError(f"a key of layers needs to be a name, type, depth, range or function, got {key!r}")
        for function in self.functions:
            if not _is_function(function):
                raise TypeError(f"a key of functions needs to be a function such as torch.exp, got {function!r}")
        for rule in (self.default, *self.layers.values(), *self.functions.values()):
            if isinstance(rule, type) or not (callable(rule) or isinstance(rule, Constant)):
                raise TypeError(f"a rule needs to be an instance such as Gamma(0.25), got {rule!r}")

    @property
    def reaches_zeros(self) -> bool:
        """Whether any rule assigns relevance to inputs that are zero."""
        rules = (self.default, *self.layers.values())
        return any(getattr(rule, "reaches_zeros", False) for rule in rules)

    def rule(self, place: Place, layers: int) -> PropagationRule:
        """Return the rule of a layer.

        Parameters
        ----------
        place : Place
            Position of the layer.
        layers : int
            Number of linear layers in the network, from which negative depths count.

        Returns
        -------
        Rule
        """
        for key, rule in self.layers.items():
            if _matches(key, place, layers):
                return rule
        return self.default

    def function_rule(self, name: str) -> FunctionRule | Constant | None:
        """Return the rule for functions of this name, or None.

        Parameters
        ----------
        name : str
            Name of the function.
        """
        without_namespace = name.rpartition("::")[2]
        for function, rule in self.functions.items():
            if function_name(function) in (name, without_namespace):
                return rule
        return None

    def check_names(self, names: Iterable[str]) -> None:
        """Raise ValueError if a name among the keys of `layers` matches no layer with weights.

        Parameters
        ----------
        names : iterable of str
            Names of the layers with weights.
        """
        names = list(names)
        for key in self.layers:
            if isinstance(key, str) and not any(fnmatchcase(name, key) for name in names):
                hint = similar([key], names)
                raise ValueError(f"composite has a rule for {key!r}, which matches no layer with weights{hint}")

    def __repr__(self) -> str:
        arguments = [repr(self.default), repr(self.layers)]
        if self.functions:
            functions = {function_name(function): rule for function, rule in self.functions.items()}
            arguments.append(repr(functions))
        return f"Composite({', '.join(arguments)})"


def _is_function(key: object) -> bool:
    """Whether a key of `functions` is a function of PyTorch, or an operator of a library."""
    return not isinstance(key, type) and (hasattr(key, "__name__") or hasattr(key, "_opoverload"))


def _matches(key: Key, place: Place, layers: int) -> bool:
    """Whether a key matches a layer of a network with this number of layers; see the table of this module."""
    if isinstance(key, str):
        return fnmatchcase(place.name, key)
    if isinstance(key, type):
        return isinstance(place.module, key)
    if isinstance(key, (int, range)):
        depths = [key] if isinstance(key, int) else key
        return place.depth in depths or place.depth - layers in depths
    return bool(key(place))
