"""Tables in files, read in four steps: cells, the notation of their numbers, columns, and the frame of these.

1. `cells`: the cells of a file as they are written, from CSV in its many variants, or Parquet.
2. `notation`: the marks, units and signs with which a cell writes a number.
3. `column`: the notation that a column of cells has, and its values.
4. `frame`: the data frame of all columns, as one column may tell how another one is read.

`format` describes the columns of a table that was read, so that new rows are read alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neonxc.common.lazy import lazy_names

if TYPE_CHECKING:
    from neonxc.data.files.frame import read_table as read_table
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__)
