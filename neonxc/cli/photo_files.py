"""Photo files, given directly or in folders."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")


def photo_files(paths: Iterable[Path]) -> list[Path]:
    """Return the given files, with each folder replaced by its photo files in alphabetical order.

    Raises
    ------
    ValueError
        A folder has no photos.
    """
    found = []
    for path in paths:
        own = (
            sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES) if path.is_dir() else [path]
        )
        if not own:
            raise ValueError(f"{path} has no photos; supported suffixes are {', '.join(SUFFIXES)}")
        found += own
    return found
