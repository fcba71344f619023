"""What commands make of tables, photos and texts: explanations, reports, rules, and clusters of new rows.

    command    reads                               makes
    table      a prepared and clustered table      files of relevance, clusters and columns, a picture, the network
    explain    the same; photos; texts; cells      a report
    rules      the same                            rules of a tree, measured on a fifth of the rows
    apply      a saved model and a table           the table, with the cluster of every row
    moves      a saved model and two tables        the rows that changed cluster, and a report on the second table
    layers     a table with columns of labels      why clusters of several resolutions split, as texts or a picture
    compare    two saved models and a table        which columns they use, and the rows that changed cluster

A model is applied to the columns that it was fitted to, which are read in the notation of its own table. Files of
cells (``.h5ad``) are tables of ``adata.X``, whose labels, weights and identifiers are columns of ``adata.obs``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from neonxc.cli.options import CHOICES, TABLES, CommandOutput, with_folder
from neonxc.common.arguments import check_columns, result_names
from neonxc.common.atomic import staged_file, staged_folder
from neonxc.common.cluster_names import label_text
from neonxc.common.storage import load, save
from neonxc.convert import neuralize
from neonxc.data.expression import frame_of_cells
from neonxc.data.files.cells import read_cells
from neonxc.data.files.frame import as_table, read_table, read_with_ids
from neonxc.data.files.spreadsheets import form_of, write_csv
from neonxc.data.frames import is_cells_file, with_cells
from neonxc.data.identifiers import as_index
from neonxc.data.labels import are_labels, written_labels
from neonxc.data.preparation import Preparation
from neonxc.data.weights import weight_column
from neonxc.evaluation.choice import Choice
from neonxc.network import NeuralizedClustering, clusters_of
from neonxc.report.clusters import Clusters
from neonxc.rules import Rules

if TYPE_CHECKING:
    from neonxc.attribution.moved_rows import Moves
    from neonxc.attribution.summary import ClusterSummary
    from neonxc.evaluation.clusterings_compared import ClusteringComparison
    from neonxc.hierarchy.result import Layers
    from neonxc.report.report import Report

HELD_OUT = 0.2
"""Fraction of the rows on which rules are measured."""
PICTURES = (".png", ".svg", ".pdf")
CHOSEN = "relevance: NEON, chosen by pixel-flipping with insertion: the most relevant columns are revealed first"
ENOUGH = 50
"""Rows from which on some are held out."""


def table_attributions(
    prepared: Preparation, clusters: Clusters, out: str | Path, choice: Choice | None = None
) -> CommandOutput:
    """Explain the clusters of a table by its raw columns, and write the results to the folder `out`."""
    from neonxc import plot  # each command loads what it needs
    from neonxc.attribution.neon import NEON

    table = prepared.frame
    net = neuralize(clusters.model, table, sample_weight=clusters.weight)
    neon = NEON(net)
    relevance = neon.attribute(table)
    summary = neon.summary(table, sample_weight=clusters.weight)
    files = [*TABLES]
    form = form_of(table)
    relevance_file, clusters_file, columns_file, picture, model_file = TABLES
    with staged_folder(out) as folder:
        write_csv(_explained_rows(relevance, clusters_of(net, table), clusters), folder / relevance_file, **form)
        write_csv(_described_clusters(summary), folder / clusters_file, **form)
        columns = summary.to_frame().rename_axis(["cluster", "column"]).reset_index()
        write_csv(columns, folder / columns_file, **form)
        plot.summary_bars(summary).savefig(folder / picture, dpi=200)
        save(net, folder / model_file)
        if choice is not None:
            choices_file, choices_picture = CHOICES
            write_csv(choice.to_frame().reset_index(), folder / choices_file, **form)
            choice.plot().savefig(folder / choices_picture, dpi=200)
            files += CHOICES
    header = ["cluster", "rows", "what speaks for it: mean relevance (mean in the cluster vs overall)"]
    lines = []
    for label, size in zip(summary.classes, summary.sizes, strict=True):
        reasons = "\n".join(summary.reasons(label, 4))
        lines.append([label_text(label), f"{size:.12g}", reasons])
    return CommandOutput(clusters.what, header, Path(out), [CHOSEN], lines, files)


def _explained_rows(
    relevance: pd.DataFrame, assigned: Mapping[str, np.ndarray], clusters: Clusters
) -> pd.DataFrame:
    """Return a table of all rows: number, given label if there is one, cluster, logit and relevance.

    The relevance of a row sums to its logit, for the surrogate of labels up to a residual.
    """
    row, label, cluster, logit = result_names(["row", "label", "cluster", "logit"], relevance.columns)
    rows = pd.DataFrame({cluster: assigned["cluster"], logit: assigned["logit"]}, index=relevance.index)
    if clusters.given:
        rows.insert(0, label, clusters.labels)
    rows = pd.concat([rows, relevance], axis=1).reset_index(drop=True)
    rows.insert(0, row, range(len(rows)))
    return rows


def _described_clusters(summary: ClusterSummary) -> pd.DataFrame:
    """Return a table of the clusters: size, prototypes, and the columns that speak for each."""
    described = {
        "cluster": summary.classes,
        "rows": summary.sizes,
        "prototype_rows": [" ".join(map(str, prototypes)) for prototypes in summary.prototypes],
        "what_speaks_for_it": [", ".join(summary.reasons(label)) for label in summary.classes],
    }
    return pd.DataFrame(described)


def applied(
    model: str | os.PathLike[str],
    file: str | os.PathLike[str],
    na: Sequence[str] = (),
    header: int | None = None,
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return a table with the cluster that a saved network, tree or set of rules assigns to every row.

    Parameters
    ----------
    model : path-like
        A file that :func:`neonxc.save` has written.
    file : path-like, or "-"
        A table as for :func:`~neonxc.data.files.read_table`, which reads it as the one that the model was fitted
        to. It may have further columns.
    na : sequence of str
        Further cells that count as missing.
    header : int, optional
        Line with the names of the columns.

    Returns
    -------
    rows : DataFrame
        All columns as they are written in the file, with the column ``cluster`` and, for a network, ``logit``, the
        margin of the cluster over the others. If the table has columns of these names, the new columns are
        numbered. Its ``attrs["notes"]`` are those of the table.
    form : dict
        Options of :func:`~neonxc.data.files.spreadsheets.write_csv` for a file like the one that was read: its
        separator and its decimal mark.

    Raises
    ------
    ValueError
        If the file contains an object without clusters, or the table lacks columns.
    """
    fitted, names, format = _fitted(model)
    if is_cells_file(file):
        return _applied_to_cells(fitted, names, file), {}
    cells = read_cells(file, header)
    table = as_table(cells, needed=names, na=na, format=format)
    points = table if names is None else table[names]
    rows = _with_clusters(cells.written(), fitted, points)
    rows.attrs["notes"] = table.attrs["notes"]
    return rows, form_of(table)


def _applied_to_cells(fitted: Any, names: list[str] | None, file: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the observations of an AnnData, their names first, with the cluster of every cell."""
    adata = with_cells(file)
    points = _of_cells(adata, str(file), names)
    rows = adata.obs.reset_index(names=result_names(["cell"], adata.obs.columns)[0])
    rows = _with_clusters(rows, fitted, points)
    rows.attrs["notes"] = []
    return rows


def _of_cells(adata: Any, name: str, needed: Sequence[str] | None, columns: Sequence[str] = ()) -> pd.DataFrame:
    """Return the genes that are needed of an AnnData, and some columns of ``adata.obs`` behind them."""
    frame = frame_of_cells(adata, name, columns)
    if needed is None:
        return frame
    check_columns(name, needed, frame.columns)
    return frame[[*needed, *columns]]


def _with_clusters(rows: pd.DataFrame, fitted: Any, points: pd.DataFrame) -> pd.DataFrame:
    """Return rows with the clusters of the points behind them, and with their logits if a network is fitted."""
    if isinstance(fitted, NeuralizedClustering):
        columns = clusters_of(fitted, points)
    else:
        columns = {"cluster": fitted.predict(points)}
    for name, values in zip(result_names([*columns], rows.columns), columns.values(), strict=True):
        rows.insert(rows.shape[1], name, values)
    return rows


def _fitted(model: str | os.PathLike[str]) -> tuple[Any, list[str] | None, str | None]:
    """Load a network, tree or set of rules, the names of the columns it needs, and how its table was read."""
    fitted = load(model)
    if not hasattr(fitted, "predict"):
        raise ValueError(f"{model} contains no clustering, but an object of class {type(fitted).__name__}")
    format = getattr(getattr(fitted, "tree_", fitted), "table_format", None)
    names = _columns_of(fitted)
    if names is not None and all(isinstance(name, str) for name in names):
        return fitted, names, format
    return fitted, None, format


def _columns_of(fitted: Any) -> list[Any] | None:
    """Return the keys of the columns that a network, tree or set of rules needs; None if it does not know them."""
    if isinstance(fitted, Rules):
        return [column.key for column in fitted.columns]
    for attribute in ("feature_names_", "feature_names_in_", "feature_names"):
        names = getattr(fitted, attribute, None)
        if names is not None:
            return list(names)
    return None


def moved(
    model: Path,
    before: Path,
    after: Path,
    ids: str | None = None,
    report: bool = False,
    fast: bool = False,
    na: Sequence[str] = (),
    weights: str | None = None,
    header: int | None = None,
) -> tuple[Moves, Report | None, list[str]]:
    """Explain which rows of a table changed cluster, by a saved network or tree; with a report, if one is wanted.

    Rows are matched by the column `ids`, whose cells are compared as they are written. The column `weights` of
    both tables holds the weights of the rows. The notes are those on both tables, behind their names.

    Raises
    ------
    ValueError
        If the file contains no clustering, a table lacks columns, or rows can't be matched.
    """
    from neonxc.attribution.moves import moves
    from neonxc.report.report import explain

    fitted, names, format = _fitted(model)
    if isinstance(fitted, Rules):
        raise ValueError(f"{model} contains rules; moves needs a network or a tree")
    net = fitted
    if not isinstance(fitted, NeuralizedClustering):
        net = neuralize(fitted)
    tables = []
    weights_of_tables = []
    notes = []
    for file in (before, after):
        reading: dict[str, Any] = {"needed": names, "na": na, "format": format, "header": header}
        if is_cells_file(file):
            table = _version_of_cells(file, names, ids, weights)
        elif ids is None:
            table = read_table(file, **reading)
        else:
            table = read_with_ids(file, ids, **reading)
        format = format or table.attrs.get("format")  # both tables are read alike
        notes += [f"{file.name}: {note}" for note in table.attrs.get("notes", [])]
        if weights is not None:
            weights_of_tables.append(weight_column(table, weights, file.name))
            if names is None:
                table = table.drop(columns=weights)
        if names is not None:
            table = table[names]
        tables.append(table)
    moved_rows = moves(net, *tables, sample_weight=tuple(weights_of_tables) or None)
    if not report:
        return moved_rows, None, notes
    title = f"{after.name} since {before.name}"
    weight = None
    if weights_of_tables:
        _, weight = weights_of_tables
    page = explain(net, tables[1], before=tables[0], title=title, fast=fast, sample_weight=weight)
    return moved_rows, page, notes


def _version_of_cells(file: Path, names: list[str] | None, ids: str | None, weights: str | None) -> pd.DataFrame:
    """Return a version of cells, whose index are their names or the identifiers in a column of ``adata.obs``."""
    adata = with_cells(file)
    columns = []
    if weights is not None:
        columns.append(weights)
    frame = _of_cells(adata, file.name, names, columns)
    if ids is None:
        return frame
    check_columns(f"adata.obs of {file.name}", [ids], adata.obs.columns)
    return frame.set_axis(as_index(adata.obs[ids]), axis=0)


def compared(
    old: Path, new: Path, file: Path, na: Sequence[str] = (), header: int | None = None
) -> tuple[ClusteringComparison, list[str]]:
    """Compare two saved networks or trees on the rows of a table, which has the columns of both; with its notes.

    Raises
    ------
    ValueError
        If a file contains no clustering, or the table lacks columns.
    """
    from neonxc.evaluation.transitions import compare_clusterings

    networks = []
    needed: list[str] | None = []
    table_format = None
    for model in (old, new):
        fitted, names, format = _fitted(model)
        if isinstance(fitted, Rules):
            raise ValueError(f"{model} contains rules; compare needs networks or trees")
        networks.append(fitted if isinstance(fitted, NeuralizedClustering) else neuralize(fitted))
        table_format = table_format or format
        needed = None if names is None or needed is None else [*needed, *names]
    columns = None if needed is None else [*dict.fromkeys(needed)]
    if is_cells_file(file):
        table = _of_cells(with_cells(file), file.name, columns)
    else:
        table = read_table(file, needed=columns, na=na, format=table_format, header=header)
    notes = table.attrs.get("notes", [])
    if columns is not None:
        table = table[columns]
    a, b = networks
    return compare_clusterings(a, b, table), notes


def write_result(result: Moves | ClusteringComparison | Layers, out: Path) -> None:
    """Write a result to a file, in the format that its suffix names: as JSON, a table, markdown or a text."""
    match out.suffix:
        case ".json":
            text = json.dumps(result.to_dict(), indent=1, ensure_ascii=False)
        case ".csv":
            frame = result.to_frame().reset_index().map(_joined)
            text = str(write_csv(frame, lineterminator="\n")).removesuffix("\n")
        case ".md":
            text = result.to_markdown()
        case _:
            text = str(result)
    with staged_file(with_folder(out)) as partial:
        partial.write_text(text + "\n", encoding="utf-8")


def _joined(cell: object) -> object:
    """Return a cell of a table, and of a list its items as one text."""
    return " | ".join(map(str, cell)) if isinstance(cell, list) else cell


def layers_of(frame: pd.DataFrame, names: Sequence[str]) -> Layers:
    """Explain the layers of clusters that columns of a table name."""
    from neonxc.hierarchy.layered import layers

    return layers(frame[[*names]].apply(written_labels), frame.drop(columns=[*names]))


def write_layers(layers: Layers, out: Path) -> None:
    """Write layers to a file, or draw them, as its suffix says."""
    if out.suffix not in PICTURES:
        write_result(layers, out)
        return
    with staged_file(with_folder(out)) as partial:
        layers.plot().savefig(partial, format=out.suffix[1:])


def layers_in_words(layers: Layers) -> str:
    """Write what the splits of layers are, one after the other, behind the table of all of them."""
    return "\n\n".join([str(layers), *(str(split) for split in layers.splits)])


def cluster_rules(prepared: Preparation, clusters: Clusters, leaves: int | None = None) -> Rules:
    """Return the rules of a tree: ExShallow for k-means, CART for the labels of a column.

    The tree is fitted to four fifths of the rows, and the rules are measured on the others. If there are few rows,
    or a cluster has a single row, the tree is fitted to all rows. `leaves` is the maximum number of rules; the
    default is one per cluster of k-means, and two per label.
    """
    from neonxc.trees import CART, ExShallow  # depends on this package
    from neonxc.trees.rules import with_noise  # depends on this package

    table = prepared.frame
    labels = clusters.labels

    def weights(rows: np.ndarray) -> np.ndarray | None:
        """Return the weights of some rows; None without weights."""
        if clusters.weight is None:
            return None
        return clusters.weight[rows]

    fitted = clusters.clustered
    noise = np.flatnonzero(~are_labels(labels))
    held_out = noise[:0]
    _, sizes = np.unique(labels[fitted], return_counts=True)
    # a stratified draw needs two rows of every cluster, and a held-out row of each
    if len(fitted) >= ENOUGH and sizes.min() > 1 and HELD_OUT * len(fitted) >= len(sizes):
        training, test = train_test_split(fitted, test_size=HELD_OUT, stratify=labels[fitted], random_state=0)
        fitted = np.sort(training)
        held_out = np.union1d(test, noise[:: round(1 / HELD_OUT)])
    if clusters.given:
        explainer: Any = CART(n_clusters=clusters.k, max_leaves=leaves or 2 * clusters.k)
        explainer.fit(table.iloc[fitted], labels=labels[fitted], sample_weight=weights(fitted))
    else:
        explainer = ExShallow(n_clusters=clusters.k, reference=clusters.model, max_leaves=leaves)
        explainer.fit(table.iloc[fitted], sample_weight=weights(fitted))
    noise_in_training = np.setdiff1d(noise, held_out)
    rules = with_noise(explainer.tree_, table.iloc[noise_in_training], weights(noise_in_training)).rules()
    if not len(held_out):
        return rules
    return rules.measure(table.iloc[held_out], labels[held_out], weights(held_out))


def write_rules(
    rules: Rules,
    format: str,
    out: Path | None,
    table: Sequence[str],
    dialect: str,
    form: Mapping[str, str],
) -> str:
    """Write rules in a format, and return what to print: the name of the file, or the rules if there is none.

    In SQL they are about a table, whose name has one part or several. `form` are the options of
    :func:`~neonxc.data.files.spreadsheets.write_csv` for a file, which a person may open in a spreadsheet.
    """
    if format == "safetensors" and out is not None:
        save(rules, with_folder(out))
        return str(out)
    match format:
        case "sql":
            text = str(rules.to_sql(table, dialect))
        case "json":
            text = json.dumps(rules.to_dict(), indent=1, ensure_ascii=False)
        case "csv":
            if out is not None:
                with staged_file(with_folder(out)) as partial:
                    write_csv(rules.to_frame(), partial, **form)
                return str(out)
            text = str(write_csv(rules.to_frame(), lineterminator="\n")).removesuffix("\n")
        case _:
            text = getattr(rules, f"to_{format}")()
    if out is None:
        return text
    with staged_file(with_folder(out)) as partial:
        partial.write_text(text + "\n", encoding="utf-8")
    return str(out)
