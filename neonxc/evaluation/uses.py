"""Which inputs a clustering uses, and whether another clustering uses others.

The use of an input j (a column, a word, a channel) is its share of the relevance R_ij of the rows i for their own
clusters:

    use_j = sum_i R_ij / sum_k |sum_i R_ik|

Clusters of another seed may use other inputs, too. So the use in b is compared with that in models which differ
from a by their seeds alone: restarts of a and its refits from the clusters of b
(:mod:`neonxc.evaluation.restarts`), or, for clusterers that can't be started from clusters, a and its refits. With
the mean m_j and the standard deviation s_j of the use among these (s_j = 0 for a single one), the use of j has
changed if

    z_j = |use_j(b) - m_j| / max(s_j, LEAST / Z) > Z

and, without restarts, if use_j(b) also differs by more than LEAST from use_j(a). The lower bound of s_j is that of
a use that differs by less than LEAST, which no reader would call a change. An input that a model lacks is not used
by it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from neonxc.attribution.input_relevance import own_relevance
from neonxc.common.numbers import shares
from neonxc.data.table import Table
from neonxc.network import NeuralizedClustering

Z = 6.0
LEAST = 0.01


def use_of_inputs(net: NeuralizedClustering, X: Table) -> pd.Series:
    """Return the share of the relevance of all rows that each input has, -1 to 1."""
    relevance = own_relevance(net, X)
    return pd.Series(shares(relevance.to_numpy()), relevance.index)


def compared_uses(
    a: pd.Series, b: pd.Series, refits: Sequence[pd.Series], restarts: Sequence[pd.Series]
) -> pd.DataFrame:
    """Compare the use of each input in b with that in a and in models that differ from a by their seeds alone.

    Parameters
    ----------
    a, b : Series [inputs]
        The use of the inputs in two models, which may have different inputs.
    refits : sequence of Series [inputs]
        Their use in refits of a.
    restarts : sequence of Series [inputs]
        Their use in restarts of a and its refits from the clusters of b.

    Returns
    -------
    DataFrame [inputs, 6]
        Columns ``a`` and ``b``; ``low`` and ``high``, the range in the refits; ``restart``, the mean of the
        restarts; and ``z``. What is not known is missing. The largest z come first, or the largest differences
        between a and b.
    """
    kinds = ["a", "b", *["refit"] * len(refits), *["restart"] * len(restarts)]
    table = pd.concat([a, b, *refits, *restarts], axis=1).fillna(0.0)
    table.columns = pd.Index(kinds)
    uses = table[["a", "b"]].copy()
    uses["low"] = table.loc[:, np.equal(kinds, "refit")].min(axis=1)
    uses["high"] = table.loc[:, np.equal(kinds, "refit")].max(axis=1)
    uses["restart"] = table.loc[:, np.equal(kinds, "restart")].mean(axis=1)

    same_but_seed = table.loc[:, np.isin(kinds, ["restart"] if restarts else ["a", "refit"])]
    deviation = same_but_seed.std(axis=1).fillna(0.0).clip(lower=LEAST / Z)
    uses["z"] = (uses["b"] - same_but_seed.mean(axis=1)).abs() / deviation
    order = uses["z"]
    if not refits and not restarts:
        uses["z"] = np.nan
        order = (uses["b"] - uses["a"]).abs()
    return uses.loc[order.sort_values(ascending=False, kind="stable").index]


def changed_uses(uses: pd.DataFrame) -> pd.DataFrame:
    """Return the inputs whose use has changed by more than with the seed."""
    has_restart = uses["restart"].notna()
    differs = (uses["b"] - uses["a"]).abs() > LEAST
    return uses[(uses["z"] > Z) & (has_restart | differs)]
