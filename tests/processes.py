"""Processes of a group, started once and given work after work: what runs on several ranks is tested on them."""

import contextlib
import pickle
import tempfile
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import multiprocessing

TIMEOUT = 60  # seconds, after which a test has hung


class Processes:
    """A few processes with one thread each, which rendezvous by a file and communicate by gloo.

    Parameters
    ----------
    size : int
    timeout : float
        Seconds that a collective waits.
    """

    def __init__(self, size, timeout=TIMEOUT):
        self.folder = tempfile.TemporaryDirectory()
        context = multiprocessing.get_context("forkserver")  # which imports what all need once
        context.set_forkserver_preload(["pytest", "pandas", "sklearn.datasets", "neonxc.models", "neonxc.trees"])
        self.pipes = []
        self.processes = []
        for rank in range(size):
            here, there = context.Pipe()
            process = context.Process(
                target=_serve, args=(rank, size, str(Path(self.folder.name, "rendezvous")), there, timeout)
            )
            process.daemon = True
            process.start()
            self.pipes.append(here)
            self.processes.append(process)
        for pipe in self.pipes:  # until all have started
            self._answer(pipe, 4 * TIMEOUT)

    def __call__(self, work, *arguments):
        """What ``work(group, *arguments)`` returns, or the error that it raises, on every rank.

        `work` and all that it takes and returns are pickled: a function of a module, arrays, estimators. It asks
        `torch.distributed.get_rank(group)` which rows are its own.
        """
        for pipe in self.pipes:
            pipe.send_bytes(pickle.dumps((work, arguments)))  # by value: torch would share memory
        return [self._answer(pipe) for pipe in self.pipes]

    def _answer(self, pipe, timeout=TIMEOUT):
        if not pipe.poll(timeout):
            raise TimeoutError("a process of the group hangs")
        try:
            return pickle.loads(pipe.recv_bytes())
        except EOFError:
            return EOFError("the process has ended")

    def close(self):
        for pipe in self.pipes:
            with contextlib.suppress(BrokenPipeError):
                pipe.send_bytes(pickle.dumps(None))
        for process in self.processes:
            process.join(5)
            process.kill()
        self.folder.cleanup()


def _serve(rank, size, file, pipe, timeout):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{file}", rank=rank, world_size=size, timeout=timedelta(seconds=timeout)
    )
    pipe.send_bytes(pickle.dumps("ready"))
    while (task := pickle.loads(pipe.recv_bytes())) is not None:
        work, arguments = task
        try:
            answer = work(dist.group.WORLD, *arguments)
        except Exception as error:
            error.add_note(traceback.format_exc())
            answer = error
        pipe.send_bytes(pickle.dumps(answer))
