"""The processes that torchrun started, as a group."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

WAIT = timedelta(minutes=30)
"""How long a process waits for the others, at the end for the slowest."""


def launched_rank() -> int:
    """The number of this process among those that torchrun started; 0 for a process alone."""
    return int(os.environ.get("RANK", 0))


def own_device(device: str) -> str:
    """A GPU of its own for each process of a machine, where a command names none."""
    return f"cuda:{os.environ['LOCAL_RANK']}" if device == "cuda" and "LOCAL_RANK" in os.environ else device


@contextmanager
def launched() -> Iterator[Any]:
    """Join the other processes for as long as the block runs; None for a process alone.

    What goes between them is small, texts and features of photos, and goes through gloo also where networks are on
    GPUs.
    """
    if int(os.environ.get("WORLD_SIZE", 1)) < 2:
        yield None
        return
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=WAIT)
    try:
        yield dist.group.WORLD
    except Exception as error:
        if dist.get_rank() and str(error).endswith(f"of {dist.get_world_size()})"):  # the first process says it
            raise SystemExit(2) from error
        raise
    finally:
        dist.destroy_process_group()
