"""Stand-in until the registry lands."""

from typing import Any, TypeVar

T = TypeVar("T")
PARTS: dict[str, Any] = {}


def storable(cls: type[T]) -> type[T]:
    """Register."""
    PARTS[cls.__name__] = cls
    return cls
