"""Options and files that several commands share, and their checks, which run before heavy imports."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

from neonxc.common.arguments import as_range
from neonxc.common.locales import print_in

HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that move the cursor, colour or hide text in a terminal, or turn its direction."""
_LIST = r"""\[(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^]'"])*\]"""  # of strings, as Python writes it
WORDS = {
    r"Value error, ": "",
    r"Input should be a valid integer(, unable to parse string as an integer)?": "a whole number is needed",
    r"Input should be greater than or equal to (\d+)": r"a number of at least \1 is needed",
    rf"\b(?:X\.drop\(columns|ignore|keep|numbers|na|header)=(?:{_LIST}\)?|\d+) or (?=--)": "",
    r"^(clusters|labels|keep|ignore|numbers|header|locale|scale|table|ids)(?=: | needs | must )": r"--\1",
    r"^sample_weight(?=: | needs | must )": "--weights",
    r"^n_clusters(?=: | needs | must )": "--clusters",
    r"^max_leaves(?=: | needs | must )": "--leaves",
    r"(?<![-\w'])n_clusters=(?=\d)": "--clusters ",
    r"(?<![-\w'])max_leaves=(?=\d)": "--leaves ",
    r"(?<![-\w'])layer=(?=[\w\"'])": "--layer ",
    r'(?<![-\w\'])pool="avg"': "--mode image",
}
"""Parts of messages of libraries and of the Python interface, as patterns, and how a command says it.

Names are replaced where a message begins and in calls, not where they may be those of columns.
"""

Mode = Literal["spatial", "image"]
Scale = Literal["none", "standard", "minmax", "robust"]
Format = Literal["text", "markdown", "html", "sql", "python", "json", "csv"]
Dialect = Literal[
    "ansi",
    "duckdb",
    "postgres",
    "sqlite",
    "trino",
    "mysql",
    "spark",
    "databricks",
    "snowflake",
    "bigquery",
    "tsql",
]
FORMATS = {
    ".txt": "text",
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".sql": "sql",
    ".py": "python",
    ".json": "json",
    ".csv": "csv",
    ".safetensors": "safetensors",
}
"""Formats of rules by the suffixes of files."""
LAYERS_FORMATS = (".json", ".csv", ".md", ".txt", ".png", ".svg", ".pdf")
"""Suffixes of files for layers; the last three are pictures."""
RESULT_FORMATS = (".json", ".csv", ".md", ".txt")
"""Suffixes of files for moves and comparisons without a report."""
Rules = Literal["gamma", "paper", "zero-gamma", "epsilon", "epsilon-gamma-box"]  # the presets of neonxc.lrp
TABLES = ("relevance.csv", "clusters.csv", "columns.csv", "clusters.png", "model.safetensors")
CHOICES = ("choose-k.csv", "choose-k.png")
RESULTS = (*TABLES, *CHOICES, "contact-sheet*.png", "*-cluster-[0-9]*.png")
"""Names of the files that commands write to a folder."""


@dataclass
class CommandOutput:
    """Results of a command as a table for the terminal, notes on it, and its files in the folder `out`."""

    title: str
    header: list[str]
    out: Path
    notes: list[str]
    rows: list[list[str]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)


def creatable(*suffixes: str) -> Callable[[Path | None], Path | None]:
    """Return a check that a path can be created and has one of the suffixes; it runs before a long computation."""

    def checked(path: Path | None) -> Path | None:
        if path is None:
            return None
        if suffixes and path.suffix not in suffixes:
            raise typer.BadParameter(f"The file name must end in {' or '.join(suffixes)}, got {path}.")
        parent = next(parent for parent in path.absolute().parents if parent.exists())
        if not parent.is_dir():
            raise typer.BadParameter(f"{parent} is a file; a folder is needed there.")
        if not os.access(parent, os.W_OK):
            raise typer.BadParameter(f"Can't write to the folder {parent}.")
        return path

    return checked


def output(help: str, *suffixes: str) -> Any:
    """Return an option for a file that a command writes, with one of the suffixes."""
    return typer.Option(metavar="FILE", dir_okay=False, callback=creatable(*suffixes), help=help)


def choices(kind: Any) -> str:
    """Return what the help shows for a ``Literal``: its values."""
    return "|".join(get_args(kind))


def visible(text: str) -> str:
    """Replace the characters of a text that a terminal would take for commands."""
    return HIDDEN.sub("\ufffd", text)


def in_words_of_commands(message: str) -> str:
    """Say a message as a command does."""
    for pattern, replacement in WORDS.items():
        message = re.sub(pattern, replacement, message)
    return message


def with_folder(path: Path) -> Path:
    """Create the folder of a file that is written next."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def check_outputs(inputs: Iterable[Path], *outputs: Path | None, folder: Path | None = None) -> None:
    """Check that a command writes to none of its inputs, neither directly nor through a link.

    Of a `folder` of results, the files are checked that are called as results are.

    Raises
    ------
    ValueError
        An output is an input.
    """
    written = [path for path in outputs if path is not None]
    if folder is not None:
        written += chain.from_iterable(map(folder.glob, RESULTS))
    # a file has the same inode and device under all its names
    read = {_inode(path) for path in inputs if path.exists()}
    for path in written:
        if path.exists() and _inode(path) in read:
            raise ValueError(
                f"{path} is an input of this command, which would overwrite it; choose another output"
            )


def _inode(path: Path) -> tuple[int, int]:
    """Return the inode and the device of an existing file."""
    status = path.stat()
    return status.st_ino, status.st_dev


def format_of_rules(format: str | None, out: Path | None) -> str:
    """Return the format in which rules are written: the given one, or that of the file's suffix.

    Raises
    ------
    ValueError
        The suffix is that of no format, or of another one than the given.
    """
    if out is None:
        return format or "text"
    if format is not None and not out.suffix:
        return format
    of_suffix = FORMATS.get(out.suffix.lower())
    if of_suffix is None and format is None:
        suffixes = ", ".join(FORMATS)
        raise ValueError(f"the suffix of --out tells the format of the rules: {suffixes}; got {out}")
    if format not in (None, of_suffix):
        suffixes = " or ".join(suffix for suffix, name in FORMATS.items() if name == format)
        raise ValueError(f"the name of a file in --format {format} ends in {suffixes}, got --out {out}")
    return str(of_suffix)


def existing_path(path: Path) -> Path:
    """Check that a path is a file, a folder or "-" (standard input)."""
    if str(path) != "-" and not path.exists():
        raise typer.BadParameter(f"{str(path)!r} does not exist.")
    return path


def existing_weights(weights: str) -> str:
    """Check that a file of weights exists."""
    if weights not in ("default", "none") and not Path(weights).is_file():
        raise typer.BadParameter(f"{weights!r} is not a file; pass an existing file, 'default' or 'none'.")
    return weights


def _print_in(locale: str | None) -> str | None:
    """Print numbers with the marks of a locale until the command ends."""
    print_in(locale)
    return locale


def _cluster_range(text: str) -> range:
    """Parse a number of clusters, or a range of them."""
    try:
        return as_range(text)
    except ValueError as error:  # of which Click may print the value alone
        raise typer.BadParameter(str(error).removeprefix("clusters: ")) from None


Out = Annotated[
    Path,
    typer.Option(
        metavar="FOLDER",
        file_okay=False,
        callback=creatable(),
        help="Folder for the results, created if needed.",
    ),
]
Clusters = Annotated[int, typer.Option("--clusters", "-k", metavar="K", min=2, help="Number of clusters K.")]
Numbers = Annotated[
    range | None,
    typer.Option(
        "--clusters",
        "-k",
        parser=_cluster_range,
        metavar="K|A-B",
        help="Number of clusters of k-means, or a range to choose one from; default: 2-8.",
    ),
]
File = Annotated[
    Path,
    typer.Argument(
        dir_okay=False,
        callback=existing_path,
        help="Table: CSV or Parquet, also compressed with gzip, or cells (.h5ad); - is standard input.",
    ),
]
Model = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A .safetensors file that neonxc saved.")]
Page = Annotated[Path, output("File for the report, .html or .json.", ".html", ".json")]
Fast = Annotated[
    bool,
    typer.Option("--fast", metavar="", help="Leave out pixel-flipping and the smallest changes of points."),
]
Labels = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Column with cluster labels, of cells in obs, used instead of k-means."),
]
LayerLabels = Annotated[
    list[str],
    typer.Option(
        "--labels",
        metavar="COLUMN,COLUMN",
        help="Columns with the clusters of each layer, of cells in obs; may be repeated.",
    ),
]
MoreLayers = Annotated[
    list[str] | None,
    typer.Option(
        "--layers",
        metavar="COLUMN,COLUMN",
        help="For tables: columns with the clusters of several layers, whose splits are explained, too.",
    ),
]
Scaling = Annotated[Scale, typer.Option(metavar=choices(Scale), help="Scaling of numeric columns.")]
Ignore = Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Column to leave out; may be repeated.")]
Keep = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Column to keep although it looks like an identifier; may be repeated."),
]
AsNumbers = Annotated[
    list[str] | None,
    typer.Option("--numbers", metavar="COLUMN", help="Column of numbers that looks like codes; may be repeated."),
]
Header = Annotated[
    int | None,
    typer.Option(
        metavar="LINE", min=1, help="Line with the names of the columns; default: the first, or that below titles."
    ),
]
Locale = Annotated[
    str | None,
    typer.Option(
        metavar="LOCALE",
        callback=_print_in,
        help="Language for the marks in numbers, such as de, de_CH or en; default: those of the file.",
    ),
]
Missing = Annotated[
    list[str] | None,
    typer.Option(
        "--na", metavar="CELL", help="Further cell that counts as missing, in all columns; may be repeated."
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="COLUMN",
        help="Column of weights of the rows, as of a survey; 2 is a repeated row, 0 is none.",
    ),
]


# suffixes of photos
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")


def photo_files(paths: Iterable[Path]) -> list[Path]:
    """Return the given files, with each folder replaced by its photo files in alphabetical order.

    Raises
    ------
    ValueError
        A folder has no photos.
    """
    photos = []
    for path in paths:
        files = [path]
        if path.is_dir():
            of_folder = [file for file in path.iterdir() if file.suffix.lower() in SUFFIXES]
            files = sorted(of_folder)
        if not files:
            raise ValueError(f"{path} has no photos; supported suffixes are {', '.join(SUFFIXES)}")
        photos += files
    return photos
