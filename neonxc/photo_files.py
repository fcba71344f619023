"""Which files of a folder are photos."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")


def photo_files(paths: Iterable[Path]) -> list[Path]:
    """Files, with those of folders that are called as photos are in place of these.

    Raises
    ------
    ValueError
        A folder without photos.
    """
    found = []
    for path in paths:
        own = (
            sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES) if path.is_dir() else [path]
        )
        if not own:
            raise ValueError(f"{path} has no photos; known are {', '.join(SUFFIXES)}")
        found += own
    return found
