"""Collective operations of a process group whose processes hold different rows: sums, and errors raised by all.

Communication uses :mod:`torch.distributed`; without a group, the operations return their inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

NARROW = {torch.bool: torch.uint8, torch.int8: torch.int32, torch.int16: torch.int32}  # gloo can't reduce these


class Ranks:
    """A process group, or this process alone.

    All processes need to call the methods in the same order, with tensors of the same shape and dtype.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup, optional
        Default: this process alone.

    Attributes
    ----------
    rank : int
        Rank of this process in the group.
    size : int
        Number of processes.
    alone : bool
        Whether there is no group; a group of one process counts as a group.

    Raises
    ------
    ValueError
        `group` is no process group, or this process is not in it.
    """

    def __init__(self, group: Any = None) -> None:
        self.group = group
        self.alone = group is None
        self.rank = 0
        self.size = 1
        if group is None:
            return
        if not isinstance(group, dist.ProcessGroup):
            raise ValueError(
                "group needs a process group, such as torch.distributed.group.WORLD after init_process_group(); "
                f"got {group!r}"
            )
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        if self.rank < 0:
            raise ValueError("this process is not in group")

    def sum(self, values: Tensor) -> Tensor:
        """Return the elementwise sums over all processes."""
        return self._reduced(values, "SUM")

    def max(self, values: Tensor) -> Tensor:
        """Return the elementwise maxima over all processes."""
        return self._reduced(values, "MAX")

    def min(self, values: Tensor) -> Tensor:
        """Return the elementwise minima over all processes."""
        return self._reduced(values, "MIN")

    def gather(self, values: Tensor) -> list[Tensor]:
        """Return the tensors of all processes, whose first dimensions may differ."""
        if self.alone:
            return [values]
        lengths = values.new_tensor([len(values)], dtype=torch.int64)
        counts = [int(length) for length in self._gathered(lengths)]
        padded = values.new_zeros(max(counts), *values.shape[1:])
        padded[: len(values)] = values
        parts = self._gathered(padded) if max(counts) else [padded] * self.size
        return [part[:count] for part, count in zip(parts, counts, strict=True)]

    def texts(self, text: str) -> list[str]:
        """Return the strings of all processes."""
        if self.alone:
            return [text]
        own = torch.frombuffer(bytearray(text.encode() + b" "), dtype=torch.uint8)  # a buffer can't be empty
        return [bytes(part.tolist()).decode()[:-1] for part in self.gather(own)]

    @contextmanager
    def agreed(self) -> Iterator[None]:
        """Run a block; if it fails in one process, raise the error in all processes, so that none waits for it.

        The block may not communicate.
        """
        error: Exception | None = None
        try:
            yield
        except Exception as raised:
            error = raised
        if self.alone:
            if error is not None:
                raise error
            return
        try:
            if not int(self.sum(torch.tensor(int(error is not None)))):
                return
            raised_by = enumerate(self.texts("" if error is None else f"{_kind(error)} {error}"))
        except RuntimeError as ended:
            if error is None:
                raise
            raise error from ended  # it says more than that another process has ended
        rank, text = next((rank, text) for rank, text in raised_by if text)
        kind, _, message = text.partition(" ")
        raise KINDS[kind](f"{message} (on rank {rank} of {self.size})") from error

    def same(self, **described: Any) -> None:
        """Check that values are the same in all processes.

        Raises
        ------
        ValueError
            In all processes: a value differs; the message names it.
        """
        for name, value in described.items():
            every = self.texts(str(value))
            for rank, other in enumerate(every):
                if other != every[0]:
                    raise ValueError(
                        f"{name} differs between processes: {short(every[0])} on rank 0, {short(other)} on rank "
                        f"{rank}"
                    )

    def _reduced(self, values: Tensor, operation: str) -> Tensor:
        if self.alone:
            return values
        result = values.to(self._device(values), NARROW.get(values.dtype, values.dtype), copy=True).contiguous()
        with _answered():
            dist.all_reduce(result, getattr(dist.ReduceOp, operation), group=self.group)
        return result.to(values.device, values.dtype)

    def _gathered(self, values: Tensor) -> list[Tensor]:
        own = values.to(self._device(values)).contiguous()
        parts = [torch.empty_like(own) for _ in range(self.size)]
        with _answered():
            dist.all_gather(parts, own, group=self.group)
        return [part.to(values.device) for part in parts]

    def _device(self, values: Tensor) -> torch.device:
        """The device on which the group's backend communicates."""
        if "nccl" not in dist.get_backend(self.group):
            return torch.device("cpu")
        return values.device if values.is_cuda else torch.device("cuda", torch.cuda.current_device())


ALONE = Ranks()
"""This process alone."""
KINDS: dict[str, type[Exception]] = {kind.__name__: kind for kind in (ValueError, TypeError, RuntimeError)}


def _kind(error: Exception) -> str:
    """The name of the error class that the other processes raise."""
    return next((name for name, kind in KINDS.items() if isinstance(error, kind)), "RuntimeError")


def short(text: str, most: int = 200) -> str:
    """Return the beginning of a text."""
    return text if len(text) <= most else f"{text[:most]} ..."


@contextmanager
def _answered() -> Iterator[None]:
    """Replace the backend's error by one that says that a process of the group has ended."""
    try:
        yield
    except RuntimeError as error:
        raise RuntimeError(
            "another process of the group has ended, or did not answer before the group's timeout; see its own "
            "error, and start the job again"
        ) from error
