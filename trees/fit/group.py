"""What the processes of a group agree on before a fit: the same explainer, arguments, and way to read X."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neonxc.common.processes import Ranks
from neonxc.common.registry import plain_parameters
from neonxc.common.types import ArrayLike, TableLike
from neonxc.data.distributed import without_rows
from neonxc.data.table import Table
from neonxc.trees.cuts.exact_sums import digest
from neonxc.trees.fit.batches import BatchSource
from neonxc.trees.tree import tree_of

if TYPE_CHECKING:
    from neonxc.trees.estimator import TreeExplainer


def agreed_source(X: object, source: BatchSource | None, ranks: Ranks) -> BatchSource | None:
    """Make all processes of a group read batches, or none; processes without rows follow the others.

    Raises
    ------
    ValueError
        In all processes, if some have a table in memory and others read batches.
    """
    if source is not None:
        kind = "in batches"
    elif without_rows(X, ranks):
        kind = ""
    else:
        kind = "in memory"
    kinds = ranks.texts(kind)
    if len(set(kinds) - {""}) > 1:
        raise ValueError(f"X is read in batches by some processes and in memory by others: {', '.join(kinds)}")
    if not kind and "in batches" in kinds:
        return BatchSource(lambda: iter(()))
    return source


def check_group(explainer: TreeExplainer, ranks: Ranks) -> None:
    """Refuse a group if the explainer needs all rows in one process."""
    with ranks.agreed():
        if explainer._no_group_reason is not None:
            raise ValueError(f"{type(explainer).__name__} takes no group: {explainer._no_group_reason}")


def check_same_fit(
    ranks: Ranks,
    explainer: TreeExplainer,
    centers: TableLike | None,
    labels: ArrayLike | None,
    sample_weight: ArrayLike | None,
) -> None:
    """Check that all processes fit the same explainer with the same kinds of arguments and the same centers.

    Raises
    ------
    ValueError
        In all processes, naming what differs.
    """
    ranks.same(model=f"{type(explainer).__name__}({plain_parameters(explainer)})")
    arguments = {"centers": centers, "labels": labels, "sample_weight": sample_weight}
    ranks.same(**{name: "missing" if value is None else "given" for name, value in arguments.items()})
    base = tree_of(getattr(explainer, "base", None))
    if base is not None:
        ranks.same(base=f"a tree of {base.n_leaves} leaves with digest {digest(base.feature, base.threshold)}")
    if centers is None:
        return
    with ranks.agreed():
        values = Table.read(centers, name="centers").tensor
    ranks.same(centers=f"{list(values.shape)} with digest {digest(values)}")
