"""Results of a command: a table for the terminal, and files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from neonxc.common.numbers import text

if TYPE_CHECKING:
    from neonxc.evaluation import Choice

OURS = "neonxc heatmap"
"""Software that made a picture, in its metadata."""

MOST = 20
"""Files at most that are listed in the terminal."""


@dataclass
class Result:
    """Results of a workflow as a table for the terminal, and the files that it has written."""

    title: str
    header: list[str]
    out: Path
    rows: list[list[str]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)


def mark(file: str) -> dict[str, str]:
    """Return the metadata of a picture by which a later run of the command recognises it."""
    return {"Software": OURS, "Title": file}


def remove_earlier(out: Path, kept: list[str]) -> None:
    """Remove pictures that an earlier run has left in a folder; all other files are kept."""
    from PIL import Image  # only results of photos need it

    for path in sorted(out.glob("*.png")):
        if path.name in kept:
            continue
        try:
            with Image.open(path) as picture:
                ours = mark(path.name).items() <= picture.info.items()
        except OSError:
            continue
        if ours:
            path.unlink()


def show(result: Result) -> None:
    """Print the results and the names of the files."""
    console = Console()
    console.print(Text(result.title), soft_wrap=True)
    table = Table()
    for name in result.header:
        table.add_column(name, overflow="fold")
    for row in result.rows:
        table.add_row(*map(Text, row))  # without markup, which names may look like
    console.print(table)
    if "inside" in result.header:
        console.print("inside: share of the positive relevance that lies in the cluster's own region")
    shown = result.files if len(result.files) <= MOST else result.files[: MOST - 1]
    for file in shown:
        console.print(str(result.out / file), soft_wrap=True, highlight=False, markup=False)
    if left := len(result.files) - len(shown):
        console.print(f"and {left} more files in {result.out}", soft_wrap=True, highlight=False, markup=False)


def show_choice(choice: Choice, stderr: bool = False) -> None:
    """Print the measures by number of clusters, the suggested number in bold, and the reason for it."""
    table = Table(title=Text(f"k-means on {choice.rows} rows"), title_justify="left")
    for name in ("k", *choice.frame.columns):
        table.add_column(name.replace("_", " "), justify="right")
    for k, values in choice.frame.iterrows():
        style = "bold" if k == choice.k else None
        table.add_row(str(k), *(text(value) for value in values), style=style)
    console = Console(stderr=stderr)
    console.print(table)
    console.print(f"{choice.reason}; it is used here", soft_wrap=True, highlight=False)
