"""The interface of inputs: `read` is the way in, `explain` leads relevance back, `write` is the way out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import singledispatch
from itertools import chain
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from neonxc.common.memory import blocks, network_bytes
from neonxc.common.modules import evaluated
from neonxc.data.frames import is_texts_file, read_texts
from neonxc.data.inputs import TOKENS
from neonxc.data.sparse import check_room, dense
from neonxc.data.table import Table
from neonxc.head.answer import OWN, Answer, Question, answers, joined, rows, take_most_of
from neonxc.head.competition import Share
from neonxc.head.head import Head
from neonxc.inputs.space import Space

HeadRule = Literal["midpoint", "linear"]
Shares = Callable[[slice], Share]
"""Returns the function that computes the competitors' shares of a block of points."""


class How(NamedTuple):
    """How decisions are explained; the options of :class:`neonxc.NEON`."""

    rule: HeadRule = "midpoint"
    beta: float = 1.0
    composite: Any = None
    share: Shares = take_most_of


class Run(NamedTuple):
    """A forward pass, through which relevance is led back.

    Attributes
    ----------
    features : Tensor [N, d] or [N, d, ...]
    back : callable
        Computes relevance of the inputs [S, N, ...] from multipliers of the features, [S, N, d, ...].
    room : int
        The number S of explanations that fit into memory at once.
    """

    features: Tensor
    back: Callable[[Tensor], Tensor]
    room: int = 1


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
    """How pixel-flipping replaces a missing unit: by a conditional draw, by zero, or by another word."""
    mask: int | None = None
    """Number of the word that stands for a missing one; None: any other word does."""
    in_texts = False
    """Whether units are words or terms, whose :meth:`values` tell which texts contain them."""
    has_heatmaps = False
    """Whether relevance has places, so that there is a map of it."""
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
        holders = (holder for holder in (self.module, self.head) if holder is not None)
        tensors = (tensor for holder in holders for tensor in chain(holder.parameters(), holder.buffers()))
        return next((tensor.device for tensor in tensors), torch.device("cpu"))

    @property
    def needed(self) -> list[str] | None:
        """Names of the columns that are read from a file; None for all of them."""
        return self.names

    @property
    def units(self) -> list[str]:
        """Names of what gets relevance in summaries and trees: the head's columns, a table's columns, or words."""
        return self.names or [f"x{i}" for i in range(self.head.n_features)]

    @property
    def categories(self) -> list[int]:
        """Positions of the units that hold categories and no numbers."""
        return []

    @property
    def groups(self) -> Tensor | None:
        """The unit [D] that each input column belongs to in pixel-flipping; None: every column is a unit."""
        return None

    # --- the way in, and out ---

    def given(self, X: Any, name: str = "X", also: Sequence[str] = ()) -> Table:
        """Return what a user passes as a table that is not read yet: of a file, its columns or its lines of text.

        Parameters
        ----------
        X : as for :meth:`read`
        name : str
            Name of the argument in errors.
        also : sequence of str
            Further columns that are needed of a file.
        """
        if self.in_texts and is_texts_file(X):
            X = read_texts(X)
        table = Table.read(X, name=name, columns=self.needed and [*self.needed, *also], format=self.table_format)
        if self.in_texts and table.of_tokens:
            raise ValueError(f"{name} {TOKENS.format(name)}")
        return table

    def read(self, X: Any) -> Table:
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
        if table.reader is not self or table.tensor.device != self.device:  # one that was read stays as it is
            table = self._read(table)
            table.reader = self
        return table

    @abstractmethod
    def _read(self, table: Table) -> Table:
        """Check and convert a table that has not been read by these inputs."""

    def write(self, x: Tensor, like: Any, bounds: Mapping[int, tuple[float, float]] | None = None) -> Any:
        """Convert inputs of the network to what a user passes.

        Parameters
        ----------
        x : Tensor [N, ...]
            Inputs as :meth:`read` makes them, in the order of the rows of `like`.
        like : as for :meth:`read`
            Inputs of the type that is wanted.
        bounds : dict, optional
            Least and greatest value of some of the caller's columns, by position: rounding must not leave them.
        """
        return Table.read(like).restore(x)

    def baseline(self, along: Any, name: str = "along") -> Any:
        """Read one input in place of many: a number, or a row, a series, an array or a tensor, to [1, ...]."""
        try:
            if isinstance(along, pd.Series):
                along = along.to_frame().T.infer_objects()
            elif not hasattr(along, "columns"):
                along = along.detach() if isinstance(along, Tensor) else np.asarray(along)
                if not along.ndim:
                    base = torch.as_tensor(along)
                    if base.dtype == torch.bool or base.is_complex() or not base.isfinite():
                        raise ValueError(f"{name} needs finite numbers, got {along!r}")
                    return base
                along = along[None]
        except (TypeError, RuntimeError):
            raise ValueError(f"{name} needs a number or a baseline shaped like one input, got {along!r}") from None
        return self.read(Table.read(along, name=name)).tensor

    def collect(self, relevance: Tensor) -> Tensor:
        """Convert relevance of the head's columns to relevance [n, units] of the units."""
        return relevance

    def spread(self, relevance: Table) -> Tensor:
        """Convert relevance of the caller's columns to relevance of the network's inputs."""
        tensor: Tensor = relevance.tensor
        return tensor

    def columns(self, X: Any) -> Any:
        """Return the table that threshold trees are fitted to, with one column per unit."""
        return X

    def table(self, X: Any) -> tuple[pd.DataFrame, dict[int, Any]] | None:
        """Return the units as columns of a table, and their numbers by position; None if :meth:`values` does."""
        return None

    def space(self, table: Table) -> Space:
        """Return the columns of points that a counterfactual can change."""
        raise ValueError("counterfactual needs a network on raw columns, this one has a feature network")

    # --- to the points of the head, and back ---

    def through(self, x: Any) -> Any:
        """Run the feature network, if there is one."""
        return x if self.module is None else evaluated(self.module, x)

    @torch.no_grad()
    def features(self, x: Any) -> Any:
        """Compute features [N, d], or a map [N, d, ...] whose every location is a point."""
        return self.through(x)

    def blocks(self, x: Any) -> list[slice]:
        """Slices of the inputs that fit into memory."""
        return blocks(len(x), network_bytes(x), x.device)

    def parts(self, X: Any) -> Iterator[Any]:
        """Read inputs at once, and yield them block by block."""
        x = self.read(X).tensor
        return (x[block] for block in self.blocks(x))

    def points(self, X: Any) -> Iterator[Tensor]:
        """Yield the points [n, d] of inputs, block by block."""
        return (rows(self.features(x)) for x in self.parts(X))

    def answers(self, X: Any, question: Question = OWN, beta: float = 1.0) -> Iterator[Answer]:
        """Answer a question about inputs of any type, block by block; positions are one for all, or per input."""
        return (answer for _, answer in self.answered(X, question, beta))

    def answered(self, X: Any, question: Question = OWN, beta: float = 1.0) -> Iterator[tuple[Any, Answer]]:
        """Return the answers together with the inputs [n, ...] that they are about; X is read at once."""
        return self._answered(self.parts(X), question, beta)

    def _answered(self, parts: Iterator[Any], question: Question, beta: float) -> Iterator[tuple[Any, Answer]]:
        first = 0
        for x in parts:
            asked = question.of_block(slice(first, first + len(x)))
            first += len(x)
            a = self.features(x)
            for answer in answers(self.head, a, asked, beta):
                yield (x if a.ndim > 2 else x[answer.block]), answer

    def explain(self, x: Any, questions: Sequence[Question], how: How) -> Iterator[Tensor]:
        """Yield the relevance of inputs [N, ...] for each question, with the shape of the inputs."""
        for question in questions:
            each = answers(self.head, x, question, how.beta, how.share)
            yield joined((answer.relevance() for answer in each), len(x))

    def between(self, base: Any, x: Tensor, share: Any, composite: Any) -> Run:
        """Run a share of the way (one for all or for each feature) from a baseline to inputs.

        Relevance is that of the difference between inputs and baseline, by the linear rule.
        """
        return Run(base + share * (x - base), lambda multiplier: (x - base) * multiplier)

    # --- sums over points ---

    def values(self, x: Any, points: Any) -> Any:
        """Return the values [n, units] of the units at points, if they are numbers."""
        return points

    def of_units(self, x: Any, answer: Answer) -> Tensor:
        """Compute the relevance [n, units] of the units at points."""
        return self.collect(answer.relevance())

    def add(self, x: Any, answer: Answer, cluster: Tensor, total: Tensor, weight: Tensor | None = None) -> None:
        """Add the relevance of the units, times weights [n], to the rows `cluster` [n] of `total` [K, units]."""
        relevance = self.of_units(x, answer).cpu().double()
        if weight is not None:
            relevance = relevance * weight.cpu()[:, None]
        total.index_add_(0, cluster.cpu(), relevance)

    def dense(self, X: Any) -> Table:
        """Read inputs as a dense tensor."""
        table = self.read(X)
        check_room(table.tensor)
        return table.holding(dense(table.tensor))


@singledispatch
def make_inputs(features: Any, head: Head | None = None, names: Sequence[str] | None = None) -> Inputs:
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


class Tensors(Inputs):
    """Inputs of a network that is no clustering: arrays, frames and tensors, as they are."""

    absent = "zero"

    def _read(self, table: Table) -> Table:
        table.check_no_bytes()
        return table.holding(table.tensor)


def inputs_of(net: Any) -> Inputs:
    """Return the inputs of any network: its own, or tensors."""
    inputs = getattr(net, "inputs", None)
    return inputs if isinstance(inputs, Inputs) else Tensors()
