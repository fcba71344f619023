"""How scikit-learn estimators, and parts of them that are dataclasses, become named values and come back."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from neonxc.registry import Values


def pack_estimator(obj: Any, fitted: Collection[str]) -> Values:
    """Values of a fitted estimator: its plain parameters, and those of the attributes `fitted` that it has."""
    check_is_fitted(obj)
    found = {name: getattr(obj, name) for name in fitted if hasattr(obj, name)}
    return {"params": plain_parameters(obj), "fitted": list(found), **found}


def unpack_estimator(cls: type, values: Values, fitted: Collection[str]) -> Any:
    """Build an estimator again; parameters that no file can hold have their defaults."""
    obj = cls(**values["params"])
    for name in set(values["fitted"]) & set(fitted):
        setattr(obj, name, values[name])
    return obj


def pack_fields(obj: Any) -> Values:
    """Values of a dataclass."""
    return {field.name: getattr(obj, field.name) for field in fields(obj)}


def plain_parameters(estimator: Any) -> dict[str, Any]:
    """Those parameters that JSON can hold; the others (estimators, networks) are left out."""
    plain = (bool, int, float, str, np.generic, type(None))
    given = estimator.get_params(deep=False)
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in given.items()
        if isinstance(value, plain)
    }
