"""The `neonxc` command. Arguments are checked before heavy modules such as PyTorch are imported."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from neonxc.cli.options import (
    FORMATS,
    LAYERS_FORMATS,
    RESULT_FORMATS,
    AsNumbers,
    Clusters,
    CommandOutput,
    Dialect,
    Fast,
    File,
    Format,
    Header,
    Ignore,
    Keep,
    Labels,
    LayerLabels,
    Locale,
    Missing,
    Mode,
    Model,
    MoreLayers,
    Numbers,
    Out,
    Page,
    Rules,
    Scaling,
    Weights,
    check_outputs,
    choices,
    existing_path,
    existing_weights,
    format_of_rules,
    in_words_of_commands,
    output,
    photo_files,
    visible,
    with_folder,
)
from neonxc.common.cluster_names import label_text
from neonxc.common.locales import print_in, restored
from neonxc.common.numbers import in_words, plural
from neonxc.common.progress import hide, progress

if TYPE_CHECKING:
    from pandas import DataFrame

    from neonxc.data.preparation import Preparation
    from neonxc.evaluation import Choice
    from neonxc.report.clusters import Clusters as Clustering

FAILED = 1
WRONG = 2
INTERRUPTED = 130
"""Exit codes: the call was right and failed, it was wrong, or it was ended by Ctrl-C, as shells number it."""
MOST = 20
"""Lines at most on files in the terminal."""
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zip": "zip", ".zst": "zstd"}
"""How files of these suffixes are compressed, as pandas does."""
_NOTES: ContextVar[bool] = ContextVar("notes", default=True)


class Plain(TyperCommand):
    """A command whose help shows no Python types: none of flags, and of arguments their names alone."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters as the help shows them."""
        return [_without_type(param) for param in super().get_params(ctx)]


class PlainGroup(TyperGroup):
    """The command of all commands, with such a help."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters as the help shows them."""
        return [_without_type(param) for param in super().get_params(ctx)]


def _without_type(param: Any) -> Any:
    """Take the type away from a flag or an argument, of which typer shows it if it has no ``metavar``."""
    if param.param_type_name == "argument":
        param.display_type = lambda ctx: ""  # of typer from 0.2x on; earlier ones show the name in its place
    elif param.name == "help":
        param.metavar = ""
    return param


app = typer.Typer(
    cls=PlainGroup,
    help="Explain clusterings of tables, photos and texts.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from neonxc import __version__

        typer.echo(__version__)
        raise typer.Exit


Quiet = Annotated[bool, typer.Option("--quiet", "-q", metavar="", help="Show neither progress bars nor notes.")]
NoProgress = Annotated[bool, typer.Option("--no-progress", metavar="", help="Show no progress bars.")]


@app.callback()
def common(
    context: typer.Context,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
    version: Annotated[
        bool,
        typer.Option("--version", metavar="", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Take the options that all commands share."""
    context.with_resource(restored())  # of the marks in numbers, which commands choose
    _NOTES.set(True)
    _set_shown(quiet, no_progress or not _in_terminal())


def _set_shown(quiet: bool, no_progress: bool) -> None:
    """Switch off what options of the whole program, or of a command, switch off: notes, and progress bars."""
    if quiet:
        _NOTES.set(False)
    if quiet or no_progress:
        hide()


@contextmanager
def loading() -> Iterator[None]:
    """Import modules that a command needs only once its arguments are checked, such as PyTorch.

    The garbage collector rests meanwhile, and later leaves alone what was loaded, in which there is no garbage. It
    would walk over all modules again and again while they are loaded (0.5 seconds), and then while the command
    computes and when Python ends (1.0 of 5.5 seconds of the processor for a fast report of 178 rows).
    """
    is_collecting = gc.isenabled()
    gc.collect()  # of what is garbage by now, which would stay for good
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if is_collecting:
            gc.enable()


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Register a function as a command, which also takes the options that all commands share.

    These options are thus read before the name of the command and behind it.
    """

    @wraps(function)
    def run(*, quiet: bool, no_progress: bool, **options: Any) -> None:
        _set_shown(quiet, no_progress)
        function(**options)

    hints = get_type_hints(function, include_extras=True)
    parameters = [
        parameter.replace(annotation=hints[name]) for name, parameter in signature(function).parameters.items()
    ]
    for name, annotation in (("quiet", Quiet), ("no_progress", NoProgress)):
        parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=annotation))
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    app.command(cls=Plain)(run)
    return function


@command
def demo(out: Out = Path("neonxc-demo"), clusters: Clusters = 4) -> None:
    """Explain spatial clusters of a photo of a cat with a pretrained network, without any download."""
    with loading():
        from neonxc.cli import heatmaps, photos, reports

    photo = [("chelsea", photos.demo_photo())]
    typer.echo("Clustering the locations of the photo by their features in EfficientNet-Lite0 ...")
    features = photos.extractor()
    _show(heatmaps.heatmaps(photo, clusters, out, features))
    typer.echo("Writing a report on the same clusters ...")
    reports.photo_report(photo, clusters, features).save(out / "report.html")
    typer.echo(str(out / "report.html"))


@command
def heatmap(
    images: Annotated[list[Path], typer.Argument(exists=True, help="Photos, and folders of photos.")],
    clusters: Clusters = 4,
    backbone: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Pretrained network of neonxc.models, or timm/NAME for a network of timm."
        ),
    ] = "efficientnet_lite0",
    layer: Annotated[str | None, typer.Option(metavar="MODULE", help="Module whose output is clustered.")] = None,
    mode: Annotated[
        Mode,
        typer.Option(metavar=choices(Mode), help="Cluster the locations of the photos, or whole photos."),
    ] = "spatial",
    per_photo: Annotated[
        bool,
        typer.Option(
            "--per-photo",
            metavar="",
            help="Cluster the locations of each photo alone, so that clusters differ between photos.",
        ),
    ] = False,
    size: Annotated[
        int,
        typer.Option(
            metavar="PIXELS",
            min=32,
            help="Shorter side of a photo in the network, in pixels; ignored by networks of a fixed size.",
        ),
    ] = 320,
    weights: Annotated[
        str,
        typer.Option(
            metavar="FILE|default|none",
            callback=existing_weights,
            help='File of weights, "default", or "none" for random weights.',
        ),
    ] = "default",
    composite: Annotated[Rules, typer.Option(metavar=choices(Rules), help="LRP rules.")] = "gamma",
    device: Annotated[str, typer.Option(metavar="DEVICE", help="cpu, cuda, cuda:1 ...")] = "cpu",
    out: Out = Path("neonxc-heatmaps"),
    save: Annotated[
        Path | None,
        output("File for the relevance values, .safetensors; its folder is created if needed.", ".safetensors"),
    ] = None,
) -> None:
    """Draw heatmaps of the pixels that make each cluster of photos, or of locations in photos."""
    files = photo_files(images)
    check_outputs([*files, Path(weights)], save, folder=out)
    if mode == "image" and len(files) < clusters:
        raise ValueError(
            f"{clusters} clusters need at least as many photos, got {len(files)}; or use --mode spatial"
        )
    if per_photo and mode == "image":
        raise ValueError("--per-photo is for --mode spatial; whole photos are clustered together")
    with loading():
        from neonxc.cli import heatmaps, photos

    features = photos.extractor(backbone, layer, weights, device, mode)
    named = photos.PhotoFiles(files, size, features)
    clustered: heatmaps.Mode = mode
    if per_photo:
        clustered = "per photo"
    _show(heatmaps.heatmaps(named, clusters, out, features, composite, save, clustered))


@command
def table(
    file: File,
    clusters: Numbers = None,
    labels: Labels = None,
    out: Out = Path("neonxc-table"),
    scale: Scaling = "standard",
    ignore: Ignore = None,
    keep: Keep = None,
    na: Missing = None,
    numbers: AsNumbers = None,
    header: Header = None,
    locale: Locale = None,
    weights: Weights = None,
) -> None:
    """Cluster the rows of a table, or read clusters from a column, and compute the relevance of every column."""
    check_outputs([file], folder=out)
    prepared, clustering, choice = _clustered(
        file, clusters, labels, scale, ignore, keep, na, weights, numbers=numbers, header=header
    )
    with loading():
        from neonxc.cli import tables

    _show(tables.table_attributions(prepared, clustering, out, choice))


@command
def explain(
    source: Annotated[
        Path,
        typer.Argument(
            callback=existing_path,
            help="Table (CSV or Parquet; - is standard input), cells (.h5ad), folder of photos, or .txt with one "
            "text per line.",
        ),
    ],
    clusters: Numbers = None,
    labels: Labels = None,
    out: Page = Path("report.html"),
    scale: Scaling = "standard",
    ignore: Ignore = None,
    keep: Keep = None,
    na: Missing = None,
    numbers: AsNumbers = None,
    header: Header = None,
    locale: Locale = None,
    fast: Fast = False,
    mode: Annotated[
        Mode,
        typer.Option(metavar=choices(Mode), help="For photos: cluster their locations, or whole photos."),
    ] = "spatial",
    backbone: Annotated[
        str, typer.Option(metavar="NAME", help="For photos: pretrained network.")
    ] = "efficientnet_lite0",
    size: Annotated[
        int, typer.Option(metavar="PIXELS", min=32, help="For photos: side of the network input in pixels.")
    ] = 224,
    encoder: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER|NAME", help="For texts: folder or name of a sentence encoder; default: TF-IDF."
        ),
    ] = None,
    layers: MoreLayers = None,
    weights: Weights = None,
) -> None:
    """Write a report on a whole clustering as one HTML file."""
    check_outputs([source], out)
    if source.is_dir() or source.suffix.lower() == ".txt":
        if labels is not None or clusters is None or len(clusters) > 1:
            raise ValueError("photos and texts need one number of --clusters")
        if weights is not None or layers is not None:
            option = "--layers" if weights is None else "--weights"
            raise ValueError(f"{option} is for tables: photos and texts have no columns")
        files = photo_files([source]) if source.is_dir() else []
        with loading():
            from neonxc.cli import photos, reports

        if files:
            features = photos.extractor(backbone, mode=mode)
            named = photos.PhotoFiles(files, size, features, square=True)
            report = reports.photo_report(named, clusters[0], features, mode == "image", fast)
        else:
            report = reports.text_report(source, clusters[0], encoder, fast)
    elif (
        source.suffix.lower() == ".h5ad" and labels is not None and not (ignore or keep or na or weights or layers)
    ):
        if clusters is not None:
            raise ValueError("pass --clusters or --labels, not both")
        with loading():
            from neonxc.cli import reports

        report = reports.cells_report(source, labels, fast)
    else:
        layer_columns = None
        left_out = [*(ignore or [])]
        if layers is not None:
            if weights is not None or str(source) == "-":
                raise ValueError("--layers needs a file, and takes no --weights")
            frame, _, names = _table_with_labels(source, layers, ignore, na, numbers, header)
            layer_columns = frame[names]
            left_out += [name for name in names if name != labels]
        prepared, clustering, _ = _clustered(
            source, clusters, labels, scale, left_out, keep, na, weights, False, numbers, header, is_reported=True
        )
        with loading():
            from neonxc.cli import reports

        report = reports.table_report(prepared, clustering, fast, layer_columns)
    report.save(with_folder(out))
    typer.echo(visible(f"{report}\n\n{out}"))


@command
def rules(
    file: File,
    clusters: Numbers = None,
    labels: Labels = None,
    leaves: Annotated[
        int | None,
        typer.Option(metavar="N", min=2, help="Maximum number of rules; default: one per cluster, two per label."),
    ] = None,
    format: Annotated[
        Format | None,
        typer.Option(metavar=choices(Format), help="Default: text, or the format that the suffix of --out names."),
    ] = None,
    dialect: Annotated[
        Dialect | None, typer.Option(metavar=choices(Dialect), help="Dialect of SQL; default: ansi.")
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE",
            help="Table in SQL, possibly qualified as SCHEMA.TABLE; default: the name of the file.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        output(f"File for the rules, {', '.join(FORMATS)}; neonxc apply takes a .safetensors file."),
    ] = None,
    scale: Scaling = "standard",
    ignore: Ignore = None,
    keep: Keep = None,
    na: Missing = None,
    numbers: AsNumbers = None,
    header: Header = None,
    locale: Locale = None,
    weights: Weights = None,
) -> None:
    """Describe the clusters of a table, of k-means or of a column, by short rules."""
    check_outputs([file], out)
    written = format_of_rules(format, out)
    if written != "sql" and (dialect or table) is not None:
        raise ValueError(f"--dialect and --table are for --format sql, and the rules are written as {written}")
    if leaves is not None and clusters is not None and leaves < clusters[-1]:
        raise ValueError(f"{clusters[-1]} clusters need at least as many --leaves, got {leaves}")
    # the choice is told on stderr, because rules may go to another program
    prepared, clustering, _ = _clustered(
        file, clusters, labels, scale, ignore, keep, na, weights, stderr=True, numbers=numbers, header=header
    )
    with loading():
        from neonxc.cli import tables
        from neonxc.data.files.spreadsheets import form_of

    result = tables.cluster_rules(prepared, clustering, leaves)
    without_rule = [label_text(label) for label, _ in result.without_rule]
    if without_rule:
        missing = in_words(without_rule)
        _note(f"no rule leads to cluster {missing}; a larger number of --leaves allows more rules")
    if table is not None:
        name_in_sql = table.split(".")
    elif str(file) == "-":
        name_in_sql = ["data"]
    else:
        name_in_sql = [file.name.partition(".")[0]]
    text = tables.write_rules(result, written, out, name_in_sql, dialect or "ansi", form_of(prepared.frame))
    # for another program, names in SQL and in CSV stay what they are
    is_for_program = written in ("sql", "csv") and not sys.stdout.isatty()
    if not is_for_program:
        text = visible(text)
    typer.echo(text)


@command
def apply(
    model: Model,
    file: File,
    out: Annotated[Path | None, output("CSV file; default: standard output.")] = None,
    na: Missing = None,
    header: Header = None,
) -> None:
    """Assign new rows to clusters with a saved network, tree or set of rules."""
    check_outputs([model, file], out)
    with loading():
        from neonxc.cli import tables
        from neonxc.common.atomic import staged_file
        from neonxc.data.files.spreadsheets import write_csv

    rows, form = tables.applied(model, file, na or [], header)
    _note(*rows.attrs["notes"])
    if out is not None:
        with staged_file(with_folder(out)) as partial:
            write_csv(rows, partial, compression=COMPRESSIONS.get(out.suffix.lower()), **form)
        typer.echo(str(out))
    elif sys.stdout.isatty():
        typer.echo(visible(str(write_csv(rows, **form))), nl=False)
    else:
        write_csv(rows, sys.stdout, **form)


@command
def moves(
    model: Model,
    before: File,
    after: File,
    ids: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column that identifies rows; default: their order."),
    ] = None,
    out: Annotated[
        Path | None,
        output(
            "File for a report on the later table and the moves (.html), or for the moves alone "
            "(.json, .csv, .md or .txt).",
            ".html",
            *RESULT_FORMATS,
        ),
    ] = None,
    fast: Fast = False,
    na: Missing = None,
    header: Header = None,
    locale: Locale = None,
    weights: Weights = None,
) -> None:
    """Explain which rows changed cluster between two tables, and by which columns, with a saved network."""
    check_outputs([model, before, after], out)
    with loading():
        from neonxc.cli import tables

    has_report = out is not None and out.suffix == ".html"
    moved, report, notes = tables.moved(model, before, after, ids, has_report, fast, na or [], weights, header)
    _note(*notes)
    typer.echo(visible(str(moved)))
    if out is None:
        return
    if report is not None:
        report.save(with_folder(out))
    else:
        tables.write_result(moved, out)
    typer.echo(f"\n{out}")


@command
def layers(
    file: File,
    labels: LayerLabels,
    out: Annotated[
        Path | None,
        output(
            "File for the splits (.json, .csv, .md or .txt), or a picture of them (.png, .svg or .pdf).",
            *LAYERS_FORMATS,
        ),
    ] = None,
    ignore: Ignore = None,
    na: Missing = None,
    numbers: AsNumbers = None,
    header: Header = None,
    locale: Locale = None,
) -> None:
    """Explain why the clusters of several columns of labels split, and what tells their parts apart."""
    check_outputs([file], out)
    frame, name, names = _table_with_labels(file, labels, ignore, na, numbers, header)
    if len(names) == frame.shape[1]:
        raise ValueError(f"{name} has no columns but the labels, {names}, by which clusters could be explained")
    _note(*frame.attrs.get("notes", []))
    with loading():
        from neonxc.cli import tables

    splits = tables.layers_of(frame, names)
    typer.echo(visible(tables.layers_in_words(splits)))
    if out is not None:
        tables.write_layers(splits, out)
        typer.echo(f"\n{out}")


@command
def compare(
    old: Model,
    new: Model,
    file: File,
    out: Annotated[Path | None, output("File for the result (.json, .csv, .md or .txt).", *RESULT_FORMATS)] = None,
    na: Missing = None,
    header: Header = None,
    locale: Locale = None,
) -> None:
    """Compare two saved networks on the same rows: which clusters were kept, and which columns each one uses."""
    check_outputs([old, new, file], out)
    with loading():
        from neonxc.cli import tables

    comparison, notes = tables.compared(old, new, file, na or [], header)
    _note(*notes)
    typer.echo(visible(str(comparison)))
    if out is not None:
        tables.write_result(comparison, out)
        typer.echo(f"\n{out}")


def _clustered(
    file: Path,
    clusters: range | None,
    labels: str | None,
    scale: str,
    ignore: list[str] | None,
    keep: list[str] | None,
    na: list[str] | None,
    weights: str | None = None,
    stderr: bool = False,
    numbers: list[str] | None = None,
    header: int | None = None,
    is_reported: bool = False,
) -> tuple[Preparation, Clustering, Choice | None]:
    """Read, prepare and cluster the table; return also how the number of clusters was chosen, if it was.

    Whether the chosen clusters are real is said here, unless a report says it.
    """
    if clusters is not None and labels is not None:
        raise ValueError("pass --clusters or --labels, not both")
    with loading():
        from neonxc.data.preparation import prepare

    as_numbers = numbers or []
    named = [] if labels is None else [labels]
    of_obs = [] if weights is None else [weights]
    frame, name = _table(file, named, of_obs, ignore or [], na or [], as_numbers, header)
    weight = None
    if weights is not None:
        if weights == labels:
            raise ValueError("--weights and --labels need two columns")
        from neonxc.data.weights import split_weights

        frame, weight, notes = split_weights(frame, weights, name)
        _note(*notes)
    label_column = None
    columns = frame
    if labels is not None:
        label_column = frame[labels]
        columns = frame.drop(columns=labels)
    prepared = prepare(
        columns, scale=scale, keep=keep or [], labels=label_column, sample_weight=weight, numbers=as_numbers
    )
    _note(*prepared.notes)
    with loading():
        from neonxc.report.clusters import by_choice, by_column

    if label_column is not None:
        clustering = by_column(prepared, label_column, name, weight)
        _note(*clustering.notes)
        return prepared, clustering, None
    clustering, choice = by_choice(prepared, clusters, name, weight)
    if weight is not None:
        # the first note is on the choice, which is printed below
        n_of_choice = 0 if choice is None else 1
        _note(*clustering.notes[n_of_choice:])
    if choice is not None:
        typer.echo(visible(f"k-means on {plural(choice.rows, 'row')}\n{choice}; it is used here"), err=stderr)
        if not is_reported:
            from neonxc.evaluation.real import of_kmeans  # as above

            for line in of_kmeans(clustering.model, prepared.frame, weight):
                typer.echo(visible(line), err=stderr)
    return prepared, clustering, choice


def _table_with_labels(
    file: Path,
    labels: list[str],
    ignore: list[str] | None,
    na: list[str] | None,
    numbers: list[str] | None,
    header: int | None,
) -> tuple[DataFrame, str, list[str]]:
    """Read a table with several columns of labels; return it, its name, and the names of these columns."""
    names = [*dict.fromkeys(name.strip() for joined in labels for name in joined.split(","))]
    frame, name = _table(file, names, [], ignore or [], na or [], numbers or [], header)
    return frame, name, names


def _table(
    file: Path,
    labels: list[str],
    of_obs: list[str],
    ignore: list[str],
    na: list[str],
    numbers: list[str],
    header: int | None,
) -> tuple[DataFrame, str]:
    """Read a table, and return it with its name.

    The columns `labels` have labels, and `of_obs` are further columns of the observations of cells.
    """
    with loading():
        from neonxc.common.arguments import check_columns
        from neonxc.data.files.cells import read_cells  # only data in files need it
        from neonxc.data.files.format import marks_of_file
        from neonxc.data.files.frame import as_table
        from neonxc.data.frames import is_cells_file, with_cells

    name = "standard input" if str(file) == "-" else file.name
    if is_cells_file(file):
        if na:
            raise ValueError(f"--na is for cells of text, and {name} holds numbers")
        with loading():
            from neonxc.data.expression import frame_of_cells

        frame = frame_of_cells(with_cells(file), name, [*labels, *of_obs]).reset_index(drop=True)
        check_columns(name, ignore, frame.columns)
        frame = frame.drop(columns=ignore)
    else:
        cells = read_cells(file, header)
        # labels stay what they are: they are compared, and no column of the table
        known = [label for label in labels if label in cells.columns]
        frame = as_table(cells, ignore=ignore, na=na, numbers=numbers, labels=known)
    print_in(marks=marks_of_file(frame.attrs.get("format")))
    check_columns(name, labels, frame.columns)
    return frame, name


def _in_terminal() -> bool:
    return sys.stderr.isatty()


def _show(result: CommandOutput) -> None:
    """Print the results and the names of the files."""
    console = Console()
    console.print(Text(visible(result.title)), soft_wrap=True)
    table = Table(*(Column(name, overflow="fold") for name in result.header))
    for row in result.rows:
        table.add_row(*(Text(visible(cell)) for cell in row))  # without markup, which names may look like
    console.print(table)
    for note in result.notes:
        console.print(visible(note))
    files = [visible(str(result.out / file)) for file in result.files]
    if len(files) > MOST:
        n_others = len(files) - (MOST - 1)
        files[MOST - 1 :] = [f"and {n_others} more files in {result.out}"]
    console.print(*files, sep="\n", soft_wrap=True, highlight=False, markup=False)


def _note(*notes: str) -> None:
    """Print notes, which are on what the command has understood, on stderr."""
    if _NOTES.get():
        _on_stderr("note", *notes)


def _on_stderr(kind: str, *messages: str) -> None:
    for message in messages:
        line = visible(" ".join(in_words_of_commands(message).split()))
        typer.echo(f"{kind}: {line}", err=True)


def main() -> None:
    """Run the command; print an error in one line on stderr.

    The exit code is 0 after success; 2 if the command is used wrongly, or what it is given can't be used; 1 if it
    fails otherwise; and 130 if it is interrupted.
    """
    message = ""
    try:
        with progress(True), warnings.catch_warnings():
            warnings.showwarning = lambda warning, *_: _on_stderr("note", str(warning))
            code = app(standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except ValueError as error:
        code = WRONG
        message = str(error)
    except (OSError, ImportError, MemoryError, RuntimeError) as error:
        code = FAILED
        message = str(error) or type(error).__name__
    except Exception as error:
        if not hasattr(error, "format_message"):  # no usage error of the command line: Python exits with FAILED
            raise
        code = WRONG
        message = error.format_message()
    if code == INTERRUPTED:
        message = "interrupted"
    if message:  # empty if the help was printed instead
        _on_stderr("neonxc", message)
    sys.exit(code if isinstance(code, int) else 0)
