"""Selection of the methods to compare: names of default methods, functions, and relevance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import signature
from typing import Any

from torch import Tensor, nn

from neonxc.common.arguments import similar
from neonxc.evaluation.methods import Method, nca, neon
from neonxc.network import check_network


def chosen(methods: Any, defaults: dict[str, Method], net: nn.Module) -> dict[str, Any]:
    """Return {name: method} from a dict, or from names of `defaults` and functions; None selects all defaults."""
    if methods is None or isinstance(methods, Mapping):
        found = dict(defaults if methods is None else methods)
    elif isinstance(methods, Iterable) and not isinstance(methods, str):
        found = {}
        for method in methods:
            name, function = _named(method, defaults)
            if name in found:
                raise ValueError(f"methods has {name!r} twice; give your functions names, {{name: function}}")
            found[name] = function
    else:
        raise ValueError(f"methods needs a list of names and functions, or a dict, got {methods!r:.60}")
    if not found:
        raise ValueError("methods needs at least one method, got none")
    for name, method in found.items():
        if isinstance(method, str):
            raise ValueError(f"methods[{name!r}] needs a function or relevance, got {method!r}")
        if any(method is own for own in (neon, nca)):
            check_network(net, name, "; neuralize it, or choose methods such as ['gradient × input', 'IG-10']")
    return found


def relevance_of(name: str, method: Method, net: nn.Module, x: Tensor, target: Tensor) -> Any:
    """Call a method; errors name a method that takes other arguments or returns nothing."""
    try:
        signature(method).bind(net, x, target)
    except TypeError as error:
        raise TypeError(f"methods[{name!r}] needs three arguments, (net, x, target): {error}") from None
    except ValueError:  # built-in functions may have no signature
        pass
    found = method(net, x, target)
    if found is None:
        raise ValueError(f"methods[{name!r}] returned None, it needs to return relevance shaped like x")
    return found


def _named(method: Any, defaults: dict[str, Method]) -> tuple[str, Method]:
    if callable(method):
        return getattr(method, "__name__", type(method).__name__), method
    if not isinstance(method, str):
        raise ValueError(
            f"methods needs names and functions, got {type(method).__name__}; relevance needs a name: "
            "methods={name: relevance}"
        )
    spelled = {name.casefold(): name for name in defaults}
    if method.casefold() not in spelled:
        known = ", ".join(map(repr, defaults))
        raise ValueError(f"methods has no method {method!r}{similar([method], defaults)}. Known: {known}")
    name = spelled[method.casefold()]
    return name, defaults[name]
