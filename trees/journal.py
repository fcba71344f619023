"""The cuts that a fit has found, in a file from which the same fit goes on after it was broken off."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from neonxc.parameters import plain_parameters
from neonxc.ranks import Ranks

if TYPE_CHECKING:
    from neonxc.trees.problem import Problem

FORMAT = "neonxc journal of a tree, version 1"


class Journal:
    """Answers to the questions that a fit asks its search, in the order of these.

    A tree grows in the same way whenever it is grown, so that its questions come in the same order. Those that the
    file answers are not searched for again.

    Parameters
    ----------
    path : path-like
        Read if it is there. The first process of a group reads and writes it.
    about : str
        What is fitted to which data.
    ranks : Ranks

    Raises
    ------
    ValueError
        In all processes: the file is something else, or of another fit.
    """

    def __init__(self, path: str | os.PathLike[str], about: str, ranks: Ranks) -> None:
        self.path, self.about, self.first = Path(path), about, ranks.rank == 0
        self.answers: list[Any] = []
        self.asked = self.written = 0
        text = ""
        with ranks.agreed():
            if self.first:
                text = self.path.read_text() if self.path.exists() else ""
                self._check(text)
                if not text:
                    self.path.write_text(json.dumps([FORMAT, about]) + "\n")
        lines = ranks.texts(text)[0].split("\n")[1:-1]  # a last line without an end was not written in full
        self.answers = [json.loads(line) for line in lines]
        self.written = len(self.answers)
        if self.first and text:
            self.path.write_text("\n".join(text.split("\n")[:-1]) + "\n")

    def _check(self, text: str) -> None:
        if not text:
            return
        try:
            kind, about = json.loads(text.partition("\n")[0])
        except ValueError:
            kind, about = None, None
        if kind != FORMAT:
            raise ValueError(f"checkpoint {self.path} is no checkpoint of a tree")
        if about != self.about:
            raise ValueError(
                f"checkpoint {self.path} is of another fit: it has {about}, this one is {self.about}; delete it "
                "or pass another path"
            )

    def ask(self) -> tuple[int, Any]:
        """The number of the next question, and its answer, if that is known."""
        number, self.asked = self.asked, self.asked + 1
        if number < len(self.answers):
            return number, self.answers[number]
        self.answers.append(None)
        return number, None

    def answer(self, number: int, found: list[Any]) -> None:
        """Note an answer."""
        self.answers[number] = found

    def write(self) -> None:
        """Add to the file what was found since the last time."""
        new, self.written = self.answers[self.written :], len(self.answers)
        if self.first and new:
            with self.path.open("a") as file:
                file.write("".join(json.dumps(answer) + "\n" for answer in new))


def about(model: Any, problem: Problem) -> str:
    """An explainer, and data that are the same however they are distributed over processes."""
    mass = problem.clusters(problem.root())[1]
    numbers = [problem.columns.size, problem.centers, mass]
    if not problem.table.sparse:
        numbers += problem.table.ends(problem.ranks)
    digest = hashlib.sha256()
    for values in numbers:
        digest.update((values.to(torch.float64) + 0.0).cpu().contiguous().numpy().tobytes())
    described = f"{type(model).__name__}({plain_parameters(model)}) of {problem.n_total} rows"
    return f"{described} with digest {digest.hexdigest()[:12]}"
