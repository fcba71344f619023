"""The interface of inputs, between what users pass and the points of the head.

1. `given` makes a table of what a user passes, without a look at its values; of a file it reads the columns.
2. `read` checks the table and converts it to the tensor x that the network computes on.
3. `features` runs the feature network, if there is one. On a map [N, d, ...], every location is a point of the
   head.
4. `explain` leads the relevance of the points back to x, and `collect` sums it by what the user's columns are.
5. `write` converts other values of x, such as counterfactuals, to what the user passed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import singledispatch
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from neonxc.common.locales import Marks
from neonxc.common.memory import blocks, network_bytes
from neonxc.common.numbers import plural
from neonxc.common.types import TableLike
from neonxc.data.files.format import ColumnFormat, column_formats, marks_of_file
from neonxc.data.frames import is_texts_file, read_texts
from neonxc.data.inputs import TOKENS
from neonxc.data.sparse import SparseRows, check_room, dense
from neonxc.data.table import Table
from neonxc.head.answer import OWN, Answer, Question, answers, joined, rows
from neonxc.head.competition import TAKE_MOST, ContrastRule
from neonxc.head.head import Head
from neonxc.inputs.space import Space

if TYPE_CHECKING:
    from neonxc.lrp import Composite

HeadRule = Literal["midpoint", "linear"]


class How(NamedTuple):
    """How decisions are explained; the options of :class:`neonxc.NEON`."""

    rule: HeadRule = "midpoint"
    beta: float = 1.0
    composite: Composite | None = None
    contrast_rule: ContrastRule = TAKE_MOST


class Run(NamedTuple):
    """A forward pass, through which relevance is led back.

    Attributes
    ----------
    features : Tensor [N, d] or [N, d, ...]
    back : callable
        Computes relevance of the inputs [S, N, ...] from multipliers of the features, [S, N, d, ...].
    batch_size : int
        The number S of explanations that fit into memory at once.
    """

    features: Tensor
    back: Callable[[Tensor], Tensor]
    batch_size: int = 1


class Inputs(nn.Module, ABC):
    """Base class of what networks take.

    Attributes
    ----------
    head : Head or None
        The head of the network, which owns it; None if inputs are only read.
    names : list of str or None
        Names of the head's columns.
    module : nn.Module or None
        The feature network.
    """

    rules: ClassVar[tuple[HeadRule, ...]] = ("midpoint",)
    """The head rules that are supported (see :class:`neonxc.NEON`), the default first."""
    absent: Literal["draw", "zero", "word"] = "draw"
    """How pixel-flipping replaces a missing feature: by a conditional draw, by zero, or by another word."""
    mask: int | None = None
    """Number of the word that stands for a missing one; None: any other word does."""
    in_texts = False
    """Whether features are words or terms, whose :meth:`values` tell which texts contain them."""
    has_heatmaps = False
    """Whether relevance has locations, so that there is a map of it."""
    propagates = False
    """Whether relevance is propagated by rules of LRP, those of a composite."""
    encoding: Any = None
    """The encoding of texts or tables as columns of the head."""
    table_format: str | None = None
    """How the table in X was read from a file; tables of new rows are read like it."""

    head: Head
    module: Any

    def __init__(
        self, head: Head | None = None, names: Sequence[str] | None = None, module: nn.Module | None = None
    ) -> None:
        super().__init__()
        object.__setattr__(self, "head", head)  # a reference: the network has it as a part of its own
        self.names = None if names is None else list(names)
        self.register_module("module", module)

    @property
    def device(self) -> torch.device:
        """Device of the network."""
        if self.module is not None:
            for tensor in chain(self.module.parameters(), self.module.buffers()):
                return tensor.device
        return torch.device("cpu") if self.head is None else self.head.detection.device

    @property
    def needed(self) -> list[str] | None:
        """Names of the columns that are read from a file; None for all of them."""
        return self.names

    @property
    def units(self) -> list[str]:
        """Names of what gets relevance in summaries and trees: the head's columns, a table's columns, or words."""
        return self.names or [f"x{i}" for i in range(self.head.n_features)]

    @property
    def formats(self) -> tuple[ColumnFormat, ...]:
        """How the numbers of the features in :attr:`units` are printed: with which unit and marks."""
        return column_formats(self.table_format, self.units)

    @property
    def marks(self) -> Marks | None:
        """The marks with which numbers are printed: those of the file that X is from; None for no file."""
        return marks_of_file(self.table_format)

    @property
    def categories(self) -> list[int]:
        """Positions of the features that hold categories and no numbers."""
        return []

    @property
    def groups(self) -> Tensor | None:
        """The feature [D] that each input column belongs to in pixel-flipping; None: every column is one."""
        return None

    # --- from what users pass to the input of the network, and back ---

    def given(self, X: TableLike | Table, name: str = "X", also: Sequence[str] = ()) -> Table:
        """Return what a user passes as a table that is not checked yet: of a file, its columns or lines of text.

        The columns of a data frame with the names of the network's columns have the order of these.

        Parameters
        ----------
        X : as for :meth:`read`
        name : str
            Name of the argument in errors.
        also : sequence of str
            Further columns that are needed of a file.
        """
        if self.in_texts and is_texts_file(X):
            X = read_texts(X)  # type: ignore[arg-type]  # it is a path
        columns = self.needed
        if columns:
            columns = [*columns, *also]
        table = Table.read(X, name=name, columns=columns, format=self.table_format)
        if self.in_texts and table.of_tokens:
            raise ValueError(f"{name} {TOKENS.format(name)}")
        if self.in_texts:
            table.check_not_of_texts()
        return table.ordered(columns)

    def read(self, X: TableLike | Table) -> Table:
        """Check what a user passes, and convert it to what the network computes on.

        Parameters
        ----------
        X : array, sparse matrix, data frame, tensor, sequence of str, path, or Table
            The path of a CSV or Parquet file, which may have further columns, and columns in any order; or, for
            networks of texts, of a ``.txt`` file with one text per line.

        Returns
        -------
        Table
            Its `tensor` is the input of the network, on its device; sparse points stay sparse. The table converts
            results back to the caller's type.

        Raises
        ------
        ValueError
            Columns that differ from those of the network, values that are not finite, or no points.
        """
        table = self.given(X)
        # a table that was read by these inputs stays as it is
        if table.reader is not self or table.tensor.device != self.device:
            table = self._read(table)
            table.reader = self
        return table

    @abstractmethod
    def _read(self, table: Table) -> Table:
        """Check and convert a table that has not been read by these inputs."""

    def write(
        self, x: Tensor, like: TableLike | Table, bounds: Mapping[int, tuple[float, float]] | None = None
    ) -> Any:
        """Convert inputs of the network to what a user passes.

        Parameters
        ----------
        x : Tensor [N, ...]
            Inputs as :meth:`read` makes them, in the order of the rows of `like`.
        like : as for :meth:`read`
            Inputs of the type of the result.
        bounds : dict, optional
            Least and greatest value of some of the caller's columns, by position: rounding must not leave them.
        """
        return Table.read(like).restore(x)

    def baseline(self, baseline: TableLike | float, name: str = "baseline") -> Any:
        """Read one input in place of many: a number, or a row, a series, an array or a tensor, to [1, ...]."""
        try:
            if isinstance(baseline, pd.Series):
                baseline = baseline.to_frame().T.infer_objects()
            elif not hasattr(baseline, "columns"):
                values = baseline.detach() if isinstance(baseline, Tensor) else np.asarray(baseline)
                if not values.ndim:
                    return _number(values, baseline, name)
                baseline = values[None]
        except (TypeError, RuntimeError):
            raise ValueError(
                f"{name} needs a number or a baseline shaped like one input, got {baseline!r}"
            ) from None
        return self.read(Table.read(baseline, name=name)).tensor

    def collect(self, relevance: Tensor) -> Tensor:
        """Convert relevance of the head's columns to relevance [n, units] of the features in :attr:`units`."""
        return relevance

    def spread(self, relevance: Table) -> Tensor:
        """Convert relevance of the caller's columns to relevance of the network's inputs."""
        tensor: Tensor = relevance.tensor
        return tensor

    def columns(self, X: TableLike) -> Any:
        """Return the table that threshold trees are fitted to, with one column per feature in :attr:`units`."""
        return X

    def table(self, X: TableLike | Table) -> tuple[pd.DataFrame, dict[int, np.ndarray]] | None:
        """Return the features as a table, and their numbers by position; None if :meth:`values` does."""
        return None

    def space(self, table: Table) -> Space:
        """Return the columns of points that a counterfactual can change."""
        raise ValueError("counterfactual needs a network on raw columns, this one has a feature network")

    # --- to the points of the head, and back ---

    def through(self, x: Tensor | SparseRows) -> Any:
        """Run the feature network, if there is one."""
        if self.module is None:
            return x
        assert isinstance(x, Tensor)
        from neonxc.common.modules import evaluated  # which tables do without

        return evaluated(self.module, x)

    @torch.no_grad()
    def features(self, x: Tensor | SparseRows) -> Any:
        """Compute features [N, d], or a map [N, d, ...] whose every location is a point.

        Raises
        ------
        ValueError
            The feature network returns values that are not finite.
        """
        features = self.through(x)
        if self.module is not None:
            check_features(features)
        return features

    def blocks(self, x: Tensor | SparseRows) -> list[slice]:
        """Slices of the inputs that fit into memory."""
        assert isinstance(x, Tensor)
        return blocks(len(x), network_bytes(x), x.device)

    def parts(self, X: TableLike | Table) -> Iterator[Any]:
        """Read inputs at once, and yield them block by block."""
        x = self.read(X).tensor
        return (x[block] for block in self.blocks(x))

    def points(self, X: TableLike | Table) -> Iterator[Tensor]:
        """Yield the points [n, d] of inputs, block by block."""
        return (rows(self.features(x)) for x in self.parts(X))

    def answers(self, X: TableLike | Table, question: Question = OWN, beta: float = 1.0) -> Iterator[Answer]:
        """Answer a question about inputs of any type, block by block; positions are one for all, or per input."""
        return (answer for _, answer in self.answered(X, question, beta))

    def answered(
        self, X: TableLike | Table, question: Question = OWN, beta: float = 1.0
    ) -> Iterator[tuple[Any, Answer]]:
        """Return the answers together with the inputs [n, ...] that they are about; X is read at once."""
        return self._answered(self.parts(X), question, beta)

    def _answered(self, parts: Iterator[Any], question: Question, beta: float) -> Iterator[tuple[Any, Answer]]:
        """Yield the inputs [n, ...] and answers of parts that are read already."""
        first = 0
        for x in parts:
            block = slice(first, first + len(x))
            question_of_block = question.of_block(block)
            first += len(x)
            a = self.features(x)
            for answer in answers(self.head, a, question_of_block, beta):
                # on a map, the points of an answer are locations of all inputs
                yield (x if a.ndim > 2 else x[answer.block]), answer

    def explain(self, x: Any, questions: Sequence[Question], how: How) -> Iterator[Tensor]:
        """Yield the relevance of inputs [N, ...] for each question, with the shape of the inputs."""
        for question in questions:
            block_answers = answers(self.head, x, question, how.beta, how.contrast_rule)
            yield joined((answer.relevance() for answer in block_answers), len(x))

    def relevance_parts(self, x: Any, question: Question, how: How) -> Iterator[Tensor]:
        """Yield the relevance of inputs [N, ...] for a question, in parts if it is computed in parts."""
        yield from self.explain(x, [question], how)

    def between(self, base: Tensor | str, x: Tensor, t: float | Tensor, composite: Composite | None) -> Run:
        """Run the point ``base + t (x - base)`` of the straight line from a baseline to inputs.

        The fraction t is one for all features, or one for each. Relevance is that of the difference between inputs
        and baseline, by the linear rule: ``(x - base)`` times the multiplier at this point.
        """
        assert isinstance(base, Tensor)
        return Run(base + t * (x - base), lambda multiplier: (x - base) * multiplier)

    # --- sums over points ---

    def values(self, x: Tensor | SparseRows, points: Tensor | SparseRows) -> Tensor | SparseRows:
        """Return the values [n, units] of the features in :attr:`units` at points, if they are numbers."""
        return points

    def of_units(self, x: Tensor | SparseRows, answer: Answer) -> Tensor:
        """Compute the relevance [n, units] of the features in :attr:`units` at points."""
        return self.collect(answer.relevance())

    def add(
        self,
        x: Tensor | SparseRows,
        answer: Answer,
        cluster: Tensor,
        total: Tensor,
        weight: Tensor | None = None,
    ) -> None:
        """Add the relevance of features, times weights [n], to the rows `cluster` [n] of `total` [K, units]."""
        relevance = self.of_units(x, answer).cpu().double()
        if weight is not None:
            relevance = relevance * weight.cpu()[:, None]
        total.index_add_(0, cluster.cpu(), relevance)

    def dense(self, X: TableLike | Table) -> Table:
        """Read inputs as a dense tensor."""
        table = self.read(X)
        check_room(table.tensor)
        return table.holding(dense(table.tensor))


def _number(values: np.ndarray | Tensor, baseline: object, name: str) -> Tensor:
    """Return a baseline that is one number as a tensor."""
    base = torch.as_tensor(values)
    if base.dtype == torch.bool or base.is_complex() or not base.isfinite():
        raise ValueError(f"{name} needs finite numbers, got {baseline!r}")
    return base


def check_features(features: Tensor) -> None:
    """Raise a ValueError for features [N, ...] that are not finite, which are nearest to no center."""
    if math.isfinite(features.sum().item()):  # faster than of all; a sum may overflow in half precision
        return
    is_finite = features.isfinite()
    n_bad = int((~is_finite).flatten(1).any(1).sum())
    if n_bad:
        value = features[~is_finite][0].item()
        raise ValueError(
            f"the network returns features that are not finite, such as {value}, for {n_bad} of "
            f"{plural(len(features), 'input')}, which therefore have no cluster: it may divide by zero, or its "
            "values may overflow in half precision"
        )


@singledispatch
def make_inputs(features: object, head: Head | None = None, names: Sequence[str] | None = None) -> Inputs:
    """Return the inputs of a network with these features; every kind of inputs is registered for its features.

    Parameters
    ----------
    features : nn.Module, Encoding, Terms or None
        What stands before the head.
    head : Head, optional
        The head; inputs without one can only be read and run.
    names : sequence of str, optional
        Names of the head's columns.
    """
    raise TypeError(f"features needs a network or an encoding, got {type(features).__name__}")


@make_inputs.register
def _of_network(features: nn.Module, head: Head | None = None, names: Sequence[str] | None = None) -> Inputs:
    from neonxc.inputs.backbone import Backbone  # which tables do without

    return Backbone(head, names, features)


class Tensors(Inputs):
    """Inputs of a network that is not a clustering: arrays, frames and tensors, as they are."""

    absent = "zero"

    def _read(self, table: Table) -> Table:
        table.check_no_bytes()
        return table.holding(table.tensor)


def inputs_of(net: object) -> Inputs:
    """Return the inputs of any network: those of a clustering, or tensors."""
    inputs = getattr(net, "inputs", None)
    if isinstance(inputs, Inputs):
        return inputs
    return Tensors()
