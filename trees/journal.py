"""Checkpoint file of a fit: the cuts found so far, from which an interrupted fit continues."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neonxc.common.estimators import plain_parameters
from neonxc.common.processes import Ranks
from neonxc.trees.exact import digest
from neonxc.trees.tree import tree_of

if TYPE_CHECKING:
    from neonxc.trees.problem import Problem

FORMAT = "neonxc journal of a tree, version 1"


class Journal:
    """The results of all searches for a best cut, in the order in which growth asks for them.

    Growth is deterministic, so a repeated fit asks for the same cuts in the same order. Cuts that the file
    contains are not searched again.

    Parameters
    ----------
    path : path-like
        An existing file is read. In a group, only the first process reads and writes it.
    about : str
        Description of the explainer and the data, which has to match the one in the file.
    ranks : Ranks

    Raises
    ------
    ValueError
        In all processes, if the file is not a checkpoint, belongs to another fit, or can't be read and written.
    """

    def __init__(self, path: str | os.PathLike[str], about: str, ranks: Ranks) -> None:
        self.path, self.about, self.ranks = Path(path), about, ranks
        self.asked = 0
        text = ""
        with ranks.agreed():
            if ranks.rank == 0:
                text = self._open()
        self.answers: list[Any] = [json.loads(line) for line in ranks.texts(text)[0].split("\n")[1:-1]]
        self.written = len(self.answers)

    def _open(self) -> str:
        """Read the complete lines of the file, or create it."""
        header = json.dumps([FORMAT, self.about]) + "\n"
        with _usable(self.path):
            text = self.path.read_text() if self.path.exists() else ""
            if header.startswith(text):  # no file, or a first line that was not written completely
                self.path.write_text(header)
                return header
        self._check(text)
        complete = text[: text.rfind("\n") + 1]
        if complete != text:  # the last line was not written completely
            with _usable(self.path):
                os.truncate(self.path, len(complete))
        return complete

    def _check(self, text: str) -> None:
        try:
            (kind, about), *answers = (json.loads(line) for line in text.split("\n")[:-1])
        except (ValueError, TypeError):
            kind, about, answers = None, None, []
        if kind != FORMAT or not all(isinstance(answer, list) for answer in answers):
            raise ValueError(f"checkpoint {self.path} is not a checkpoint of a tree, or is damaged")
        if about != self.about:
            raise ValueError(
                f"checkpoint {self.path} belongs to another fit: it is for {about}, this fit is for {self.about}; "
                "delete it or pass another path"
            )

    def ask(self) -> tuple[int, Any]:
        """Number of the next search, and its result if it is known."""
        number, self.asked = self.asked, self.asked + 1
        if number < len(self.answers):
            return number, self.answers[number]
        self.answers.append(None)
        return number, None

    def answer(self, number: int, found: list[Any]) -> None:
        """Record the result of a search."""
        self.answers[number] = found

    def write(self) -> None:
        """Append the results that are new since the last call to the file.

        Raises
        ------
        ValueError
            In all processes, if the first one can't write the file.
        """
        new, self.written = self.answers[self.written :], len(self.answers)
        if not new:
            return
        with self.ranks.agreed():
            if self.ranks.rank == 0:
                with _usable(self.path), self.path.open("a") as file:
                    file.write("".join(json.dumps(answer) + "\n" for answer in new))


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    """Turn errors of reading and writing into a ValueError that names the file."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"checkpoint {path} can't be read and written: {error}") from error


def describe_fit(model: Any, problem: Problem) -> str:
    """Describe an explainer and its data; the text does not depend on the distribution of rows to processes."""
    mass = problem.clusters(problem.root())[1]
    numbers = [problem.columns.size, problem.centers, mass]
    if not problem.table.sparse:
        numbers += problem.table.ends(problem.ranks)
    base = tree_of(getattr(model, "base", None))
    numbers += [] if base is None else [base.feature, base.threshold]
    described = f"{type(model).__name__}({plain_parameters(model)}) of {problem.n_total} rows"
    return f"{described} with digest {digest(*numbers)}"
