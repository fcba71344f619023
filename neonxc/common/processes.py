"""Collective operations of a process group whose processes hold different rows: sums, and errors raised by all.

Communication uses :mod:`torch.distributed`; without a group, the operations return their inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from neonxc.common.shortening import shortened

NARROW = {torch.bool: torch.uint8, torch.int8: torch.int32, torch.int16: torch.int32}
"""Types that gloo can't reduce, and those that they are converted to."""


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
        `group` is not a process group, or this process is not in it.
    """

    def __init__(self, group: object = None) -> None:
        self.group: Any = group
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
        n_rows = values.new_tensor([len(values)], dtype=torch.int64)
        lengths = [int(length) for length in self._gathered(n_rows)]
        longest = max(lengths)

        # all_gather needs tensors of one shape
        padded = values.new_zeros(longest, *values.shape[1:])
        padded[: len(values)] = values
        if longest:
            parts = self._gathered(padded)
        else:
            parts = [padded] * self.size
        return [part[:length] for part, length in zip(parts, lengths, strict=True)]

    def texts(self, text: str) -> list[str]:
        """Return the strings of all processes."""
        if self.alone:
            return [text]
        encoded = bytearray(text.encode() + b" ")  # a buffer can't be empty
        parts = self.gather(torch.frombuffer(encoded, dtype=torch.uint8))
        return [bytes(part.tolist()).decode()[:-1] for part in parts]

    def agreed(self) -> AbstractContextManager[None]:
        """Return a context; if its block fails in one process, the error is raised in all, so that none waits.

        The block may not communicate.
        """
        # An attribute that is one of the two would make a reference cycle, which holds a group that was destroyed.
        return nullcontext() if self.alone else self._agreed()

    @contextmanager
    def _agreed(self) -> Iterator[None]:
        """Run a block; if it fails in one process, raise the error in all processes."""
        error: Exception | None = None
        try:
            yield
        except Exception as raised:
            error = raised
        try:
            has_error = torch.tensor(int(error is not None))
            n_errors = int(self.sum(has_error))
            if not n_errors:
                return
            description = "" if error is None else f"{_kind(error)} {error}"
            descriptions = self.texts(description)
        except RuntimeError as ended:
            if error is None:
                raise
            raise error from ended  # it says more than that another process has ended

        # all processes raise the error of the first one that has failed
        rank, description = next((rank, text) for rank, text in enumerate(descriptions) if text)
        kind, _, message = description.partition(" ")
        raise KINDS[kind](f"{message} (on rank {rank} of {self.size})") from error

    def same(self, **described: Any) -> None:
        """Check that values are the same in all processes.

        Raises
        ------
        ValueError
            In all processes: a value differs; the message names it.
        """
        for name, value in described.items():
            texts = self.texts(str(value))
            for rank, text in enumerate(texts):
                if text != texts[0]:
                    first = shortened(texts[0], 200)
                    other = shortened(text, 200)
                    raise ValueError(
                        f"{name} differs between processes: {first} on rank 0, {other} on rank {rank}"
                    )

    def _reduced(self, values: Tensor, operation: str) -> Tensor:
        """Return the elementwise results of an operation over all processes, such as "SUM"."""
        if self.alone:
            return values
        dtype = NARROW.get(values.dtype, values.dtype)
        result = values.to(self._device(values), dtype, copy=True).contiguous()
        with _answered():
            dist.all_reduce(result, getattr(dist.ReduceOp, operation), group=self.group)
        return result.to(values.device, values.dtype)

    def _gathered(self, values: Tensor) -> list[Tensor]:
        """Return the tensors of all processes, which have one shape."""
        sent = values.to(self._device(values)).contiguous()
        received = [torch.empty_like(sent) for _ in range(self.size)]
        with _answered():
            dist.all_gather(received, sent, group=self.group)
        return [part.to(values.device) for part in received]

    def _device(self, values: Tensor) -> torch.device:
        """Return the device on which the group's backend communicates."""
        if "nccl" not in dist.get_backend(self.group):
            return torch.device("cpu")
        if values.is_cuda:
            return values.device
        return torch.device("cuda", torch.cuda.current_device())


ALONE = Ranks()
"""This process alone."""
KINDS: dict[str, type[Exception]] = {kind.__name__: kind for kind in (ValueError, TypeError, RuntimeError)}
"""Classes of errors that are raised in other processes, by name."""


def _kind(error: Exception) -> str:
    """Return the name of the error class that the other processes raise."""
    for name, kind in KINDS.items():
        if isinstance(error, kind):
            return name
    return "RuntimeError"


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
