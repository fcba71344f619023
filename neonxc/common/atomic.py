"""Files that are written completely or not at all: in a temporary place first, from which they are moved."""

from __future__ import annotations

import glob
import os
import platform
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32


@contextmanager
def staged_file(path: Path) -> Iterator[Path]:
    """Write a file atomically: yield a temporary path, which replaces `path` if the block succeeds.

    A file that exists keeps its permissions, and a link leads to the new file. Temporary files that processes of
    this computer have left for the same path when they ended are removed. A pipe or a terminal, such as
    ``/dev/stdout``, is written directly.
    """
    path = path.resolve()
    is_stream = path.exists() and not path.is_file() and not path.is_dir()
    if is_stream:
        yield path
        return
    host = f"{crc32(platform.node().encode()):08x}"
    if os.name == "posix":  # on Windows, asking for a process may end it
        _remove_leftovers(path, host)
    partial = path.with_name(f"{path.name}.{host}.{os.getpid()}.{uuid.uuid4().hex}.part")
    try:
        partial.touch()
        original = path if path.exists() else partial
        mode = original.stat().st_mode
        yield partial
        partial.chmod(mode)  # safetensors makes files readable by the owner only
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _remove_leftovers(path: Path, host: str) -> None:
    """Remove the temporary files of a path, named path.host.process.id.part, whose processes have ended."""
    for leftover in path.parent.glob(f"{glob.escape(path.name)}.{host}.*.part"):
        process = int(leftover.name.split(".")[-3])
        try:
            os.kill(process, 0)  # sends no signal, but raises an error if there is no such process
        except ProcessLookupError:
            leftover.unlink(missing_ok=True)
        except OSError:  # another user's process that runs
            pass


@contextmanager
def staged_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write several files together: yield a temporary folder, whose files move to `path` if the block succeeds.

    Files with the same names are replaced; other files of the folder are kept.
    """
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; a folder is needed")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as stage:
        yield Path(stage)
        path.mkdir(exist_ok=True)
        for file in Path(stage).iterdir():
            os.replace(file, path / file.name)
