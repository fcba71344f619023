"""The process group of commands that are started by torchrun."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

WAIT = timedelta(minutes=30)
"""Timeout for the other processes, of which the slowest may finish much later."""


def torchrun_rank() -> int:
    """Return the rank of this process among those that torchrun has started; 0 without torchrun."""
    return int(os.environ.get("RANK", 0))


def own_device(device: str) -> str:
    """Return the device of this process: under torchrun, "cuda" becomes a GPU for each process of a machine."""
    return f"cuda:{os.environ['LOCAL_RANK']}" if device == "cuda" and "LOCAL_RANK" in os.environ else device


@contextmanager
def torchrun_group() -> Iterator[Any]:
    """Yield the process group of torchrun, or None without torchrun.

    The messages, strings and features of photos, are small, so gloo is used even if networks are on GPUs.
    """
    if int(os.environ.get("WORLD_SIZE", 1)) < 2:
        yield None
        return
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=WAIT)
    try:
        yield dist.group.WORLD
    except Exception as error:
        if dist.get_rank() and str(error).endswith(f"of {dist.get_world_size()})"):  # rank 0 prints this error
            raise SystemExit(2) from error
        raise
    finally:
        dist.destroy_process_group()
