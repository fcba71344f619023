"""Clusters of the rows of a table."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from neonxc.common.numbers import plural, rounded
from neonxc.data.table import Table
from neonxc.report.clustered import LARGEST, ClusteredData
from neonxc.report.description import Example
from neonxc.report.relevance import Relevance
from neonxc.report.statements import formats_of

VALUES = 6  # maximum number of columns shown for a row


class ClusteredRows(ClusteredData):
    """Clusters of the rows of a table."""

    kind = "table"
    thing = "row"

    @property
    def counted_points(self) -> str:
        """The numbers of rows and columns in words."""
        return f"{super().counted_points} with {plural(len(self.columns), 'column')}"

    def read(self, index: np.ndarray) -> Table:
        """Select rows as the network reads them; few enough rows are read once for all parts of a report."""
        if self.n > LARGEST or self.points.is_sparse:
            return super().read(index)
        if self.has_all(index):
            return self._read_rows
        return self._read_rows.take(index)

    @cached_property
    def _read_rows(self) -> Table:
        """All rows as the tensor that the network computes on."""
        return Table(self.net.inputs.read(self.points).tensor)

    def _show(self, examples: list[Example], relevance: Relevance, points: np.ndarray) -> None:
        """Add the values of the most relevant columns."""
        formats = formats_of(self, relevance.shown)
        for example, point in zip(examples, points.tolist(), strict=True):
            shares = relevance.shares[point]
            order = np.argsort(-np.abs(shares), kind="stable")[:VALUES]
            for column in order.tolist():
                value = formats[column].text(
                    relevance.table.iat[point, column], decimals=relevance.decimals[column]
                )
                example.values.append((column, value, rounded([shares[column]])[0]))
