"""Bounds of the work: on how many rows, columns and nodes a step works that would take too long on all of them.

They bound checks, estimates and searches; predictions and attributions are of all rows that are asked for.
A fraction of 0.95 that is measured on 2,000 rows has a standard error of 0.005, and a correlation one of 0.02.
Bounds of memory are in :mod:`neonxc.common.memory`; tolerances and sizes of pictures stand beside their formulas.
"""

from __future__ import annotations

# Checks: is a network the clustering that it was made from?
CHECKED_ROWS = 2000
"""Rows on which decisions are compared with labels: at least so many, and less than twice it."""
PROBED_POINTS = 256
"""Points around the centers of a module at which it is compared with the nearest center."""
REFIT_ROWS = 500
"""Rows on which a surrogate is compared with refits of it: at least so many, and less than twice it."""

# Estimates from a sample
SAMPLED_ROWS = 2000
"""Rows, or rows of each cluster, from which means are estimated: permutation, silhouette, contrasts."""
CALIBRATION_ROWS = 4000
"""Rows that calibrate a network which searches the nearest rows: at least so many, and less than twice it."""
BANDWIDTH_ROWS = 4000
"""Rows by which the bandwidth of a density is chosen, and inputs that a default imputer knows."""
GAMMA_ROWS = 1000
"""Rows on which the width of a surrogate's kernel is chosen."""
STAYED_ROWS = 500
"""Rows that did not change their cluster, from which the usual change is estimated."""
REPEATED_ROWS = 100_000
"""Rows, each as often as its weight, from which a statistic without a weighted formula is computed."""

# What is kept
KEPT_ROWS = 1000
"""Rows of each cluster that a network keeps, towards which counterfactuals are searched."""
KEPT_NUMBERS = 1 << 22
"""Numbers of all of these rows, 32 MiB: there are fewer if they have many columns."""

# Sizes of what is fitted
MAX_SUPPORTS = 3000
"""Supports of a surrogate in total; the cost of an explanation is proportional to their number."""
MAX_TESTED_COLUMNS = 200
"""Columns that the tree of a contrast may test, the most relevant ones."""

# Searches that grow exponentially
MAX_NODES = 1000
"""Nodes of a branch and bound per point, after which it returns the best solution so far."""
MAX_CONSTRAINT_NUMBERS = 1 << 22
"""Half-spaces times columns of all problems of a branch and bound, after which it does so, too."""
MAX_PIECES = 1 << 14
"""Convex pieces of the clusters of a tree, which combine the intervals of its tests."""
