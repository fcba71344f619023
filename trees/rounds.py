"""Several works in turns, whose sums over processes are taken in one call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from neonxc.ranks import Ranks

MOST = 32  # works in turns that are worth a thread each; more of them save hardly any calls


class Rounds(Ranks):
    """The processes of a group, for works that ask for many small sums.

    A work runs until it asks for a sum over the processes; then the next one does. Once all of them wait, what
    they ask for is summed in one call for every kind of numbers. One work runs at a time, and all processes have
    the same works in the same order, so that their calls meet.

    Parameters
    ----------
    ranks : Ranks
    """

    def __init__(self, ranks: Ranks) -> None:
        self.group, self.rank, self.size, self.ranks = ranks.group, ranks.rank, ranks.size, ranks
        self._here = threading.local()

    @property
    def alone(self) -> bool:
        """Whether there is no group."""
        return self.ranks.alone

    def run(self, works: Sequence[Callable[[], Any]]) -> list[Any]:
        """What every work returns, or the error that one raises."""
        if self.alone or len(works) == 1:
            return [work() for work in works]
        turns = [_Turn(work, self._here) for work in works]
        try:
            waiting = turns
            while waiting:
                for turn in waiting:
                    turn.go_on()
                waiting = [turn for turn in turns if turn.asked is not None]
                self._answer(waiting)
        finally:
            for turn in turns:
                turn.stop()
        return [turn.result for turn in turns]

    def _answer(self, turns: list[_Turn]) -> None:
        """Reduce what is asked for, in one call for every operation and type."""
        for kind in sorted({turn.kind for turn in turns}, key=str):
            mine = [turn for turn in turns if turn.kind == kind]
            asked = [turn.asked for turn in mine if turn.asked is not None]
            found = self.ranks._reduced(torch.cat([values.flatten() for values in asked]), kind[0])
            parts = found.split([values.numel() for values in asked])
            for turn, values, part in zip(mine, asked, parts, strict=True):
                turn.asked, turn.answer = None, part.view(values.shape)

    def _reduced(self, values: Tensor, operation: str) -> Tensor:
        turn: _Turn | None = getattr(self._here, "turn", None)
        return self.ranks._reduced(values, operation) if turn is None else turn.ask(values, operation)


class _Stopped(BaseException):
    """Another work has failed."""


class _Turn:
    """A work in a thread that runs only while the caller waits in :meth:`go_on`."""

    def __init__(self, work: Callable[[], Any], here: threading.local) -> None:
        self.asked: Tensor | None = None
        self.answer: Tensor | None = None
        self.kind = "", ""
        self.result: Any = None
        self._error: BaseException | None = None
        self._stopped = self._ended = False
        self._own, self._callers = threading.Semaphore(0), threading.Semaphore(0)
        # What is set for a thread is handed on to the new one
        modes = (
            torch.is_inference_mode_enabled(),
            torch.cuda.current_stream() if torch.cuda.is_initialized() else None,
        )
        threading.Thread(target=self._run, args=(work, here, *modes), daemon=True).start()

    def go_on(self) -> None:
        """Run until the work asks for a sum or ends; raise its error."""
        self._own.release()
        self._callers.acquire()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """End the thread, wherever it waits."""
        self._stopped = True
        if not self._ended:
            self._own.release()

    def ask(self, values: Tensor, operation: str) -> Tensor:
        """Wait for a sum; called by the work."""
        self.asked, self.kind = values, (operation, str(values.dtype))
        self._callers.release()
        self._own.acquire()
        if self._stopped:
            raise _Stopped
        assert self.answer is not None
        return self.answer

    def _run(self, work: Callable[[], Any], here: threading.local, inference: bool, stream: Any) -> None:
        self._own.acquire()
        here.turn = self
        try:
            with torch.inference_mode(inference), torch.cuda.stream(stream):
                self.result = None if self._stopped else work()
        except _Stopped:
            pass
        except BaseException as error:  # it is raised where the work was started
            self._error = error
        self._ended = True
        self._callers.release()
