"""Runs several tasks alternately and combines their reductions over the processes of a group."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from neonxc.common.processes import Ranks

MAX_TASKS = 32  # tasks that run together; more threads would save hardly any reductions


class BatchedReductions(Ranks):
    """The processes of a group, for tasks that need many small reductions.

    Every task has a thread of its own, but only one of them runs at a time. A task runs until it needs a reduction
    over the processes; then the next task runs. When all tasks are waiting, their values are reduced in one call
    for every operation and data type. All processes have the same tasks in the same order, so that their calls
    match.

    Parameters
    ----------
    ranks : Ranks
    """

    def __init__(self, ranks: Ranks) -> None:
        self.group, self.rank, self.size, self.ranks = ranks.group, ranks.rank, ranks.size, ranks
        self._local = threading.local()

    @property
    def alone(self) -> bool:
        """Whether there is no group."""
        return self.ranks.alone

    def run(self, functions: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run the tasks; return their results, or raise the error of the first task that fails."""
        if self.alone or len(functions) == 1:
            return [function() for function in functions]
        tasks = [_Task(function, self._local) for function in functions]
        try:
            waiting = tasks
            while waiting:
                for task in waiting:
                    task.resume()
                waiting = [task for task in tasks if task.request is not None]
                self._answer(waiting)
        finally:
            for task in tasks:
                task.stop()
        return [task.result for task in tasks]

    def _answer(self, tasks: list[_Task]) -> None:
        """Reduce the values of all waiting tasks, in one call for every operation and data type."""
        for kind in sorted({task.kind for task in tasks}, key=str):
            same_kind = [task for task in tasks if task.kind == kind]
            requests = [task.request for task in same_kind if task.request is not None]
            found = self.ranks._reduced(torch.cat([values.flatten() for values in requests]), kind[0])
            parts = found.split([values.numel() for values in requests])
            for task, values, part in zip(same_kind, requests, parts, strict=True):
                task.request, task.answer = None, part.view(values.shape)

    def _reduced(self, values: Tensor, operation: str) -> Tensor:
        task: _Task | None = getattr(self._local, "task", None)
        return self.ranks._reduced(values, operation) if task is None else task.reduce(values, operation)


class _Stopped(BaseException):
    """Raised in a task to end it, because another task has failed."""


class _Task:
    """A task in a thread, which runs only while the caller waits in :meth:`resume`."""

    def __init__(self, function: Callable[[], Any], local: threading.local) -> None:
        self.request: Tensor | None = None
        self.answer: Tensor | None = None
        self.kind = "", ""
        self.result: Any = None
        self._error: BaseException | None = None
        self._stopped = self._ended = False
        self._own, self._callers = threading.Semaphore(0), threading.Semaphore(0)
        # Settings that are local to a thread are passed on to the new one
        modes = (
            torch.is_inference_mode_enabled(),
            torch.cuda.current_stream() if torch.cuda.is_initialized() else None,
        )
        threading.Thread(target=self._run, args=(function, local, *modes), daemon=True).start()

    def resume(self) -> None:
        """Run the task until it needs a reduction or ends; raise its error."""
        self._own.release()
        self._callers.acquire()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """End the thread while it is waiting."""
        self._stopped = True
        if not self._ended:
            self._own.release()

    def reduce(self, values: Tensor, operation: str) -> Tensor:
        """Wait for the result of a reduction; called by the task."""
        self.request, self.kind = values, (operation, str(values.dtype))
        self._callers.release()
        self._own.acquire()
        if self._stopped:
            raise _Stopped
        assert self.answer is not None
        return self.answer

    def _run(self, function: Callable[[], Any], local: threading.local, inference: bool, stream: Any) -> None:
        self._own.acquire()
        local.task = self
        try:
            with torch.inference_mode(inference), torch.cuda.stream(stream):
                self.result = None if self._stopped else function()
        except _Stopped:
            pass
        except BaseException as error:  # raised again in `resume`
            self._error = error
        self._ended = True
        self._callers.release()
