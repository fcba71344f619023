"""The arguments of :func:`neonxc.neuralize`, checked, and the steps of a pipeline, folded.

The points z of a clusterer are computed from the inputs x as follows, with the affine map A, b of its pipeline:

    inputs                            `features`    `encoding`      z
    table of numbers                  None          None            A x + b
    table with categories or gaps     None          Encoding e      A e(x) + b
    texts                             None          Terms t         A t(x) + b, of the counts of terms
    images and others                 network f     None            A f(x) + b, at every location

Behind a map of the rows, such as UMAP, which has no formula, z are the points that enter the map.

They are read in these steps:

    1. The model, X and the labels are checked; labels become a clusterer that stores them.
    2. A pipeline is divided into the steps before a map, the map with the steps behind it, and the clusterer.
    3. The columns that enter the first step get their names; texts become counts of terms.
    4. The steps are folded to an encoding and a map.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from neonxc.clusterings.mistaken import check_is_model
from neonxc.clusterings.readers import GivenLabels, reads_exactly
from neonxc.clusterings.verified import has_centers
from neonxc.common.arguments import kind_of
from neonxc.common.numbers import text
from neonxc.common.searches import is_search, unwrapped
from neonxc.common.types import ArrayLike, TableLike
from neonxc.common.warnings import warn
from neonxc.data.frames import as_pandas, from_named, is_texts_file, read_texts
from neonxc.data.labels import label_array, warn_of_labels
from neonxc.data.preparation import prepare, without_remedies
from neonxc.data.table import Table, is_texts
from neonxc.data.weights import weights_of
from neonxc.head.preprocessing import Preprocessing
from neonxc.inputs import Inputs, make_inputs
from neonxc.pipelines.encoding import Encoding
from neonxc.pipelines.folding import Folding, check_pipelines, encoding_and_map, first_step, fold, transform
from neonxc.pipelines.folding_check import Rows, rows_of, sample
from neonxc.pipelines.opened import Step, opened
from neonxc.pipelines.steps import marks_missing_text_by_none

if TYPE_CHECKING:
    from neonxc.inputs.terms import Terms

WIDE = 10
NARROW = 0.25
"""Columns have several units if more than this fraction of them are `WIDE` times narrower than the widest one.

It is 83% or more for the measurements of wine, cells, adults and communities, and at most 15% for columns of one
unit: pixels, letters, proteins, and features of networks.
"""
BEHIND = "behind features= or a vectorizer a pipeline has numbers, and no vectorizer, encoder or imputer"


@dataclass(frozen=True)
class ClusteringArguments:
    """The arguments of :func:`neuralize`, with the steps of a pipeline read.

    The module's docstring tells what `features`, `encoding` and `behind` make of the inputs.

    Attributes
    ----------
    model, final : estimator, tensor or nn.Module
        The model, and its last step.
    X : Table or None
        The inputs; counts of terms for texts.
    features : nn.Module or None
    steps : list of (name, step)
        The steps before the last one that are neither a vectorizer nor part of `features`, up to a map.
    behind : list of (name, step)
        A map of the rows, such as that of UMAP, and the steps between it and the last one; empty without a map.
    encoding : Encoding, Terms or None
        What encodes the inputs as columns.
    preprocessing : Preprocessing or None
        The affine map behind the encoding.
    names : list of str or None
        Names of the columns.
    raw : Table or None
        The inputs as `model` takes them.
    expression : str
        What `model` is in terms of the user's argument: the best estimator of a search, or the argument.
    weight : ndarray [N] or None
        Weights of the rows of X.
    """

    model: Any
    final: Any
    X: Table | None
    features: nn.Module | None
    steps: list[Step]
    behind: list[Step] = field(default_factory=list)
    encoding: Encoding | Terms | None = None
    preprocessing: Preprocessing | None = None
    names: list[str] | None = None
    raw: Table | None = None
    expression: str = "model"
    weight: np.ndarray | None = None

    @property
    def by_labels(self) -> bool:
        """Whether the clusterer has labels or centers, and no reader."""
        final = self.final
        if self.behind:
            return True
        if isinstance(final, type) or reads_exactly(final):
            return False
        return isinstance(final, ClusterMixin) or hasattr(final, "labels_") or has_centers(final)

    @property
    def has_terms(self) -> bool:
        """Whether the inputs are texts, encoded as counts of terms."""
        return self.encoding is not None and not isinstance(self.encoding, Encoding)

    @property
    def takes_columns(self) -> bool:
        """Whether the clusterer, or the map of the rows before it, takes the columns of X as they are."""
        return not self.steps and self.features is None

    def points(self, table: Table) -> Tensor:
        """Compute the points [n, d] of float64 that were clustered, or mapped, from inputs of the network."""
        is_encoded = isinstance(self.encoding, Encoding)
        if is_encoded and table.is_tensor:
            raise ValueError("X needs to be the table that the pipeline was fitted on, a data frame or an array")
        if self.features is not None:
            table = Table(torch.cat([*make_inputs(self.features).points(table)]).double())
        if not self.steps:
            _ = table.width  # an error if the points are not a table
            return table.tensor.double()

        pipeline = Pipeline(self.steps)
        # steps may select columns by name, also those of a class that does not tell
        may_select = hasattr(pipeline, "feature_names_in_") or not hasattr(pipeline, "n_features_in_")
        if is_encoded or (table.names and may_select):
            data = table.data
        else:
            data = table.numbers.double().cpu().numpy()
        transformed = Table.read(transform(self.steps, data)).dense()  # terms are sparse
        return torch.from_numpy(np.array(transformed, np.float64)).to(table.device)


def read_arguments(
    model: object,
    X: TableLike | None,
    features: nn.Module | None,
    labels: ArrayLike | None,
    sample_weight: ArrayLike | None = None,
) -> ClusteringArguments:
    """Check and read the arguments of :func:`neuralize`, and fold the steps of a pipeline."""
    # 1. the model, X and the labels
    _check_arguments(model, X, features, labels)
    expression = "model.best_estimator_" if is_search(model) else "model"
    model = unwrapped(model)
    if not hasattr(model, "fit") and not isinstance(model, nn.Module):
        model = as_pandas(from_named(model), "model")  # centers with names of columns
    table = None if X is None else points_of(model, X, features)
    check_is_model(model, table)
    if sample_weight is not None and table is None:
        raise TypeError("sample_weight needs the rows that it weights: neonxc.neuralize(..., X=X)")
    weight = None if table is None else weights_of(sample_weight, table)
    if labels is not None:
        model = GivenLabels(labels).fit(table)
        if features is None and table is not None:
            table, model = _on_one_scale(table, model, weight)

    # 2. the steps
    steps, final = steps_of(model)
    n_before = first_map(steps)
    arguments = ClusteringArguments(
        model,
        final,
        table,
        features,
        steps[:n_before],
        behind=steps[n_before:],
        raw=table,
        expression=expression,
        weight=weight,
    )

    # 3. the columns, and 4. the map
    arguments, width = _with_columns(arguments)
    if arguments.steps:
        arguments = _folded(arguments, width)
    if steps and not arguments.behind:
        rows = None if arguments.raw is None else _rows(arguments, arguments.raw)
        check_pipelines(model, rows)
    if features is not None and arguments.encoding is not None:
        raise ValueError(BEHIND)
    return arguments


def _with_columns(arguments: ClusteringArguments) -> tuple[ClusteringArguments, int]:
    """Read which columns enter the first step, and their number; texts become counts of terms."""
    X = arguments.X
    width = 0
    if arguments.steps:
        width = _width(arguments)
        if _begins_with_texts(arguments.steps):
            if X is not None:
                X.check_not_of_texts()
            texts = X if X is not None and is_texts(X) else None
            few_texts = None if texts is None else sample(texts).data
            from neonxc.inputs.terms import behind_terms  # which tables do without

            terms, steps = behind_terms(arguments.steps, few_texts)
            if texts is not None:
                X = Table(terms.encode(texts.data))
            return replace(arguments, X=X, steps=steps, encoding=terms, names=terms.names), terms.width
    if arguments.features is not None:
        return arguments, width

    names = fitted_names(arguments.model)
    if X is None:
        return replace(arguments, names=names or None), width
    if names is not None:
        X = X.by_name(names)
        arguments = replace(arguments, X=X, raw=X)
    return replace(arguments, names=names or X.column_names), width


def _width(arguments: ClusteringArguments) -> int:
    """Return the number of columns that enter the first step; 0 if that is not known."""
    X = arguments.X
    steps = arguments.steps
    is_table = X is not None and not is_texts(X) and arguments.features is None
    if is_table and not hasattr(steps[0][1], "n_features_in_"):
        assert X is not None
        return X.width  # a step of a class of its own may not tell, and change the number
    later = arguments.behind[0][1] if arguments.behind else arguments.final
    for step in [*(step for _, step in steps), later]:
        if hasattr(step, "n_features_in_"):
            n_columns: int = step.n_features_in_
            return n_columns
    return 0


def _on_one_scale(X: Table, model: GivenLabels, weight: np.ndarray | None) -> tuple[Table, BaseEstimator]:
    """Return X and a model of its labels that standardizes the columns of a data frame, whose units differ."""
    if X.names is None:
        if not X.is_sparse:
            warn_of_labels(X, label_array(model.labels_))
        _warn_of_units(X)
        return X, model
    table = Table(X.frame())
    table.library = X.library
    table.index = X.index
    prepared = prepare(table.data, labels=model.labels_)
    notes_of_file = table.data.attrs.get("notes", [])
    left_out = [note for note in prepared.notes if "left out" in note and note not in notes_of_file]
    if left_out:
        warn(f"columns of X without relevance: {'; '.join(map(without_remedies, left_out))}")
    if table.is_mixed:
        pipeline = fitted(prepared.pipeline, table.data, weight)
        return table, make_pipeline(pipeline, model)
    # without categories and gaps the columns are what the network computes on
    scaler = ColumnTransformer([("numbers", StandardScaler(), [*prepared.frame.columns])])
    return table, make_pipeline(fitted(scaler, table.data, weight), model)


def fitted(steps: Any, X: TableLike, weight: np.ndarray | None) -> Any:
    """Fit preprocessing steps in place to rows, which may have weights, and return them."""
    if weight is None:
        return steps.fit(X)
    from neonxc.trees.fit.weighting import fit_transform  # depends on this package

    fit_transform(steps, X, weight)
    return steps


def _warn_of_units(X: Table) -> None:
    """Warn if the columns of an array seem to have different units, of which the widest decide alone."""
    if X.is_sparse or len(X.shape) != 2 or is_texts(X):
        return
    spread = X.tensor.double().std(dim=0, correction=0)
    spread = spread[spread > 1e-9 * X.tensor.abs().amax(dim=0)]  # others are constant
    if not len(spread):
        return
    is_narrow = spread < spread.max() / WIDE
    if float(is_narrow.double().mean()) > NARROW:
        warn(
            f"the columns of X have standard deviations from {text(float(spread.min()))} to "
            f"{text(float(spread.max()))}, so that the widest ones alone tell the clusters apart: pass "
            "X=StandardScaler().fit_transform(X), or a data frame, whose columns are standardized"
        )


def is_map(step: object) -> bool:
    """Whether a step of a pipeline is a map that knows where its rows lie: UMAP, PaCMAP, t-SNE, Isomap, ..."""
    return hasattr(step, "embedding_")


def steps_of(model: object) -> tuple[list[Step], Any]:
    """Return the steps before a fitted clusterer, and the clusterer; pipelines inside are opened for their map."""
    if isinstance(model, Pipeline):
        check_is_fitted(model)
    return _with_maps_as_steps(model)


def _with_maps_as_steps(model: object) -> tuple[list[Step], Any]:
    """Open a pipeline, and of its steps the pipelines that contain a map, so that the map is a step itself."""
    steps: list[Step] = []
    outer_steps, final = opened(model)
    for name, step in outer_steps:
        inner_steps, last = _with_maps_as_steps(step)
        inner_steps.append(("", last))
        if first_map(inner_steps) < len(inner_steps):
            steps += inner_steps
        else:
            steps.append((name, step))
    return steps, final


def first_map(steps: list[Step]) -> int:
    """Return the position of the first map among the steps of a pipeline; without one, their number."""
    return next((position for position, (_, step) in enumerate(steps) if is_map(step)), len(steps))


def fitted_names(model: object) -> list[str] | None:
    """Return the names of the columns that a model was fitted on, or that centers have, if they had names."""
    if isinstance(model, pd.DataFrame):
        if isinstance(model.columns, pd.RangeIndex):
            return None
        return [*map(str, model.columns)]
    names = getattr(model, "feature_names_in_", getattr(model, "feature_names", None))  # the latter of a tree
    if names is None:
        return None
    return [*map(str, names)]


def points_of(model: object, X: TableLike, features: nn.Module | None = None, name: str = "X") -> Table:
    """Read the points of a clustering: the columns that it was fitted on, in their order, or one text per line."""
    inputs = getattr(model, "inputs", None) if features is None else make_inputs(features)
    if isinstance(inputs, Inputs):
        return inputs.given(X, name)
    if isinstance(X, str | os.PathLike) and is_texts_file(X) and _takes_texts(model):
        X = read_texts(X)
    names = fitted_names(model)
    table = Table.read(X, name=name, columns=names).ordered(names)
    is_file = table.path is not None
    return table.with_none() if is_file and marks_missing_text_by_none(model) else table


def _takes_texts(model: object) -> bool:
    return isinstance(model, Pipeline) and _begins_with_texts(model.steps)


def _begins_with_texts(steps: list[Step]) -> bool:
    return isinstance(first_step(steps), CountVectorizer | HashingVectorizer)


def _folded(arguments: ClusteringArguments, width: int) -> ClusteringArguments:
    """Fold the steps of a pipeline to an encoding and an affine map."""
    try:
        folding = _folding(arguments, width)
    except NotFittedError:
        raise
    except ValueError as error:
        raise ValueError(f"{error}; {_instead(arguments)}") from None
    if arguments.X is not None and arguments.X.is_sparse and not folding.plain:
        needs = "encoders, imputers and functions such as log1p need a dense table"
        advice = _instead(arguments) if arguments.has_terms else "pass X.toarray()"
        raise ValueError(f"X is sparse, as counts of terms are; {needs}: {advice}")
    X = arguments.X if arguments.features is None else None
    encoding, preprocessing = encoding_and_map(folding, arguments.steps, X, arguments.names)
    if encoding is None:
        return replace(arguments, preprocessing=preprocessing)
    if arguments.encoding is not None:
        raise ValueError(BEHIND)
    return replace(arguments, preprocessing=preprocessing, encoding=encoding)


def _folding(arguments: ClusteringArguments, width: int) -> Folding:
    """Fold the steps, and compare them with what they return for rows of X, or for features of some of X."""
    X = arguments.X
    has_features = arguments.features is not None
    if X is None:
        return fold(arguments.steps, width)
    if not has_features and X.is_tensor:
        with suppress(ValueError):  # a step that only rows tell about
            folding = fold(arguments.steps, width)
            if not folding.plain:  # X holds the encoded columns, which is not a table of the pipeline
                return folding
    try:
        return fold(arguments.steps, width, _rows(arguments, X))
    except ValueError:
        if has_features or fitted_names(arguments.model) is not None:
            raise
        if X.names is None or X.is_mixed:
            raise
        with suppress(ValueError):  # steps that were fitted on an array, and take no frame
            return fold(arguments.steps, width, rows_of(Table(X.data.to_numpy())))
        raise


def _rows(arguments: ClusteringArguments, X: Table) -> Rows:
    """Return rows of X as they enter the pipeline, or the features of some inputs."""
    features = arguments.features
    if features is None:
        names = fitted_names(arguments.model) if arguments.encoding is None else None
        return rows_of(X, names)
    return Rows(lambda: rows_of(Table(torch.cat([*make_inputs(features).points(sample(X))]))).data)


def _instead(arguments: ClusteringArguments) -> str:
    """Return calls that explain a clustering whose pipeline can't be folded."""
    model = arguments.expression
    final = arguments.model
    columns = "X"
    while isinstance(final, Pipeline):  # not opened(): the expression needs the slice of every level
        if len(final.steps) > 1:
            columns = f"{model}[:-1].transform({columns})"
        model = f"{model}[-1]"
        final = final.steps[-1][1]
    entering = _entering(arguments)
    if isinstance(entering, np.ndarray) and _has_names(arguments.model[:-1], entering.shape[1]):
        columns = f"pandas.DataFrame({columns}, columns={arguments.expression}[:-1].get_feature_names_out())"
    by_columns = f"neonxc.neuralize({model}, {columns}) explains the clusterer by the columns behind these steps"

    has_features = arguments.features is not None
    points = "features(X).numpy(force=True)" if has_features else "X"
    labels = f"{model}.labels_" if hasattr(final, "labels_") else f"model.predict({points})"
    features = ", features=features" if has_features else ""
    by_labels = f"neonxc.neuralize(labels={labels}, X=X{features}) explains the labels by the columns of X"

    X = arguments.X
    has_texts = not has_features and X is not None and is_texts(X)
    if has_texts or arguments.has_terms:  # texts have no columns
        return by_columns
    if has_features or arguments.behind or (X is not None and entering is None):
        return by_labels
    return f"{by_columns}, and {by_labels}"


def _entering(arguments: ClusteringArguments) -> Any:
    """Return what enters the clusterer, for some rows of X; None if that is not known."""
    if arguments.X is None or arguments.features is not None or arguments.behind:
        return None
    if arguments.has_terms:
        return None
    with suppress(Exception):  # scikit-learn takes pipelines that end in a step without attributes for unfitted
        return _rows(arguments, arguments.X).after(arguments.model[:-1]).data
    return None


def _has_names(steps: Pipeline, n_columns: int) -> bool:
    """Whether the columns behind some steps have names."""
    with suppress(Exception):  # not all steps know them
        return len(steps.get_feature_names_out()) == n_columns
    return False


def _check_arguments(model: object, X: object, features: object, labels: object) -> None:
    """Refuse arguments in the wrong order, and show the correct call."""
    for name, value, needed in (("X", X, "the data"), ("labels", labels, "a label for each row of X")):
        if isinstance(value, BaseEstimator | nn.Module):
            raise TypeError(
                f"{name} needs {needed}, got {kind_of(value)}; the model comes first: neonxc.neuralize(model, X)"
            )
    if features is not None and not isinstance(features, nn.Module):
        raise TypeError(f"features needs an nn.Module, got {type(features).__name__}")
    if (model is None) == (labels is None):
        raise TypeError("neuralize takes a model, or labels= and X=")
    if getattr(model, "ndim", 0) == 2 and getattr(X, "ndim", 0) == 1:
        raise ValueError("X looks like labels, which go by name: neonxc.neuralize(labels=labels, X=X)")
