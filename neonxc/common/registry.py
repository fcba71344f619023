"""Registry of the classes that can be saved, with functions that convert objects to JSON values and tensors."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from neonxc.common.arguments import check_whole, kind_of
from neonxc.common.declared import check_kind, check_sizes

LEFT_OUT = "custom"  # a file's placeholder for a feature network that can't be saved
JSON = (bool, int, float, str, list, tuple, dict, type(None))
Values = dict[str, Any]
Part = TypeVar("Part", bound=type[nn.Module])


class Form(NamedTuple):
    """The functions that convert objects of one class to named values and back."""

    cls: type
    pack: Callable[[Any], Values]
    unpack: Callable[[Any, Values], Any]


FORMS: dict[str, Form] = {}
"""Registered forms by class name: only these classes can be loaded from a file."""


def register(cls: type, pack: Callable[[Any], Values], unpack: Callable[[Any, Values], Any]) -> None:
    """Register a class, so that :func:`neonxc.save` and :func:`neonxc.load` support its objects.

    Parameters
    ----------
    cls : type
        The class; subclasses need to be registered themselves.
    pack : callable
        ``pack(obj)`` returns a dict of named values: tensors, arrays, JSON values, or objects of registered
        classes.
    unpack : callable
        ``unpack(cls, values)`` returns the object. It needs to raise an error for invalid values, as a file may
        hold anything.

    Raises
    ------
    ValueError
        Another class of this name is registered. A class may be registered again, for example after a reload.
    """
    known = FORMS.get(cls.__name__)
    if known is not None and (known.cls.__module__, known.cls.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(f"{cls.__name__} is registered for {known.cls.__module__}.{known.cls.__qualname__}")
    FORMS[cls.__name__] = Form(cls, pack, unpack)


def load_as(name: str, cls: type) -> None:
    """Load objects of a former class name in saved files as objects of a registered class."""
    FORMS[name] = FORMS[cls.__name__]


def pack(obj: Any) -> tuple[Values, dict[str, Tensor]]:
    """Convert an object to JSON values and named tensors.

    Raises
    ------
    TypeError
        The class of the object or of one of its parts is not registered, or the object can't be saved.
    """
    name = type(obj).__name__
    form = FORMS.get(name)
    if form is None or form.cls is not type(obj):
        raise TypeError(
            f"can't save {kind_of(obj)}; neonxc saves networks from neonxc.neuralize, trees of neonxc.trees, "
            "clusterers and features of neonxc.models, and classes registered with neonxc.common.registry.register"
        )
    described: Values = {"class": name, "values": {}, "tensors": [], "parts": {}}
    tensors: dict[str, Tensor] = {}
    for key, value in form.pack(obj).items():
        if isinstance(value, JSON):
            described["values"][key] = value
        elif isinstance(value, Tensor):
            described["tensors"].append(key)
            tensors[key] = value
        else:
            described["parts"][key], inner = pack(value)
            tensors |= {f"{key}.{inner_key}": tensor for inner_key, tensor in inner.items()}
    return described, tensors


def unpack(described: Mapping[str, Any], tensors: Mapping[str, Tensor], prefix: str = "") -> Any:
    """Rebuild an object from the result of :func:`pack`; the names of its tensors start with `prefix`."""
    if described["class"] not in FORMS:
        raise ValueError(f"{described['class']} is not registered; import the module that registers it")
    form = FORMS[described["class"]]
    values = dict(described["values"])
    check_sizes(values, tensors)
    values |= {key: tensors[prefix + key] for key in described["tensors"]}
    values |= {key: unpack(part, tensors, f"{prefix}{key}.") for key, part in described["parts"].items()}
    return form.unpack(form.cls, values)


def can_pack(obj: Any) -> bool:
    """Whether an object can be saved."""
    try:
        pack(obj)
    except TypeError:
        return False
    return True


def storable(cls: Part) -> Part:
    """Register a module class; a decorator. Objects are saved by their ``PLAIN`` attributes, buffers and children.

    The plain attributes, JSON values whose names the class lists in ``PLAIN``, become part of the `state_dict`.
    """
    part: Any = cls
    part.get_extra_state = _extra_state
    part.set_extra_state = _set_extra_state
    register(cls, _pack_module, _unpack_module)
    return cls


def _pack_module(module: Any) -> Values:
    if module._parameters:
        raise TypeError(f"can't save {kind_of(module)} with parameters; make them buffers")
    return {name: getattr(module, name) for name in (*module.PLAIN, *module._buffers, *module._modules)}


def _unpack_module(cls: Any, values: Values) -> nn.Module:
    module = cls.__new__(cls)
    nn.Module.__init__(module)
    for name in cls.PLAIN:
        if name in values or not hasattr(cls, name):  # files of earlier versions lack some that have a default
            setattr(module, name, values.pop(name))
    for name in getattr(cls, "FORMER", ()):  # plain attributes in files of earlier versions
        values.pop(name, None)
    for name, value in values.items():  # both methods raise if the class uses the name for something else
        (module.add_module if isinstance(value, nn.Module) else module.register_buffer)(name, value)
    return module


def _extra_state(module: Any) -> Tensor:
    """The plain attributes as JSON in a tensor, as some file formats hold tensors only."""
    plain = json.dumps({name: getattr(module, name) for name in module.PLAIN})
    return torch.tensor(list(plain.encode()), dtype=torch.uint8)


def _set_extra_state(module: Any, state: Tensor) -> None:
    plain = json.loads(bytes(state.tolist()))
    for name in module.PLAIN:
        setattr(module, name, plain[name])


def _pack_array(array: np.ndarray) -> Values:
    """Pack numbers as a tensor, and other items as a list of distinct items and a tensor of positions in it."""
    if array.dtype.kind in "biuf":
        wide = array.astype(np.float64 if array.dtype.kind == "f" else np.int64)
        return {"dtype": array.dtype.str, "levels": None, "data": torch.from_numpy(wide)}
    items = array.ravel().tolist()
    levels = {item: i for i, item in enumerate(dict.fromkeys(items))}
    positions = torch.tensor([levels[item] for item in items], dtype=torch.int64)
    return {"dtype": array.dtype.str, "levels": list(levels), "data": positions.view(array.shape)}


def _unpack_array(cls: type, values: Values) -> np.ndarray:
    data = values["data"].numpy()
    levels = values["levels"]
    dtype = np.dtype(str(values["dtype"]))
    written = sum(len(level) for level in levels or () if isinstance(level, str))
    check_kind(dtype, data.shape, levels, data.nbytes + written)
    return (data if levels is None else np.asarray([*dict.fromkeys(levels)], dtype)[data]).astype(dtype)


register(np.ndarray, _pack_array, _unpack_array)


def pack_estimator(obj: Any, fitted: Collection[str]) -> Values:
    """Return the plain parameters of a fitted estimator, and the fitted attributes that are named and exist."""
    check_is_fitted(obj)
    found = {name: getattr(obj, name) for name in fitted if hasattr(obj, name)}
    return {"params": plain_parameters(obj), "fitted": list(found), **found}


def unpack_estimator(cls: type, values: Values, fitted: Collection[str]) -> Any:
    """Rebuild an estimator; parameters that were not saved get their default values."""
    obj = cls(**values["params"])
    for name in set(values["fitted"]) & set(fitted):
        setattr(obj, name, values[name])
    n = values.get("n_features_in_", 1)
    names = values.get("feature_names_in_")
    check_whole("n_features_in_", n)
    if names is not None and len(names) != n:
        raise TypeError(f"it has not one name for each of {n} features")
    return obj


def pack_fields(obj: Any) -> Values:
    """Return the fields of a dataclass."""
    return {field.name: getattr(obj, field.name) for field in fields(obj)}


def plain_parameters(estimator: Any) -> dict[str, Any]:
    """Return the parameters that JSON can hold; others, such as estimators and networks, are left out."""
    plain = (bool, int, float, str, np.generic, type(None))
    given = estimator.get_params(deep=False)
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in given.items()
        if isinstance(value, plain)
    }
