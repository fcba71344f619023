"""The cuts that a fit has found, in a file from which the same fit goes on after it was broken off."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neonxc.parameters import plain_parameters
from neonxc.ranks import Ranks
from neonxc.trees.exact import digest
from neonxc.trees.tree import tree_of

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
        In all processes: the file is something else, of another fit, or can't be read and written.
    """

    def __init__(self, path: str | os.PathLike[str], about: str, ranks: Ranks) -> None:
        self.path, self.about, self.ranks = Path(path), about, ranks
        self.asked = 0
        text = ""
        with ranks.agreed():
            if ranks.rank == 0:
                text = self._begun()
        self.answers: list[Any] = [json.loads(line) for line in ranks.texts(text)[0].split("\n")[1:-1]]
        self.written = len(self.answers)

    def _begun(self) -> str:
        """The whole lines of the file, which is made if there is none."""
        header = json.dumps([FORMAT, self.about]) + "\n"
        with _usable(self.path):
            text = self.path.read_text() if self.path.exists() else ""
            if header.startswith(text):  # nothing, or a first line that was not written in full
                self.path.write_text(header)
                return header
        self._check(text)
        whole = text[: text.rfind("\n") + 1]
        if whole != text:  # the last line was not written in full
            with _usable(self.path):
                os.truncate(self.path, len(whole))
        return whole

    def _check(self, text: str) -> None:
        try:
            (kind, about), *answers = (json.loads(line) for line in text.split("\n")[:-1])
        except (ValueError, TypeError):
            kind, about, answers = None, None, []
        if kind != FORMAT or not all(isinstance(answer, list) for answer in answers):
            raise ValueError(f"checkpoint {self.path} is no checkpoint of a tree, or is damaged")
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
        """Add to the file what was found since the last time.

        Raises
        ------
        ValueError
            In all processes: the first one can't write the file.
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
    """Name the file that can't be read or written."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"checkpoint {path} can't be read and written: {error}") from error


def about(model: Any, problem: Problem) -> str:
    """An explainer, and data that are the same however they are distributed over processes."""
    mass = problem.clusters(problem.root())[1]
    numbers = [problem.columns.size, problem.centers, mass]
    if not problem.table.sparse:
        numbers += problem.table.ends(problem.ranks)
    base = tree_of(getattr(model, "base", None))
    numbers += [] if base is None else [base.feature, base.threshold]
    described = f"{type(model).__name__}({plain_parameters(model)}) of {problem.n_total} rows"
    return f"{described} with digest {digest(*numbers)}"
