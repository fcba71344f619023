"""Random tables with the columns and the rank correlations of a table, and no clusters: a normal copula.

For a table [n, d] whose rows have weights w_i (1 without weights):

    1. Margin        Every column has levels v_1 < v_2 < ... with masses p_1, p_2, ..., the shares of the rows
                     that have them. Its quantile function Q_j(u) is the first level with p_1 + ... + p_l > u.
                     Categories without an order get that of their means of the first principal component
                     (:func:`_reciprocal_averages`).
    2. Filled        Between two modes of a column of numbers, levels are added until its density is unimodal:
                     two modes are evidence of clusters, and a table without clusters has one.
    3. Scores        z_ij = Phi^-1(mean rank of x_ij / n), with mean 0 and variance 1. A column with gaps has a
                     second score, which is high where it has a gap; the score of a gap is 0.
    4. Correlations  C = z^T z / n, without what is chance (:func:`_shrunk`). R are the correlations of normal
                     variables whose scores have the correlations C once they are made columns: ties and gaps make
                     correlations weaker, see :func:`_latent`.
    5. A table       y_i ~ N(0, R), u_ij = rank of y_ij in its column / n, x_ij = Q_j(u_ij).

R is kept by its first COMPONENTS principal components, and what is left of the variance of each variable by
independent noise, see :func:`_factors`.

Step 4: J. Baik and J. Silverstein, "Eigenvalues of large sample covariance matrices of spiked population models",
2006; J. Schäfer and K. Strimmer, "A shrinkage approach to large-scale covariance matrix estimation", 2005.
The normal copula: R. Nelsen, "An introduction to copulas", 2006, 2.4. Reciprocal averaging: A. Gifi, "Nonlinear
multivariate analysis", 1990, 3.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtr, ndtri

from neonxc.data.inputs import as_array
from neonxc.data.kinds import column_kind, computable
from neonxc.data.table import Table
from neonxc.data.weights import counted_weights

COMPONENTS = 50
"""Number of principal components of R, which is exact for tables of at most as many columns."""
MOST_COLUMNS = 1000
"""Largest number of columns. 800 columns with ties take 48 s on a busy core, most of it for their correlations."""
ATOM = 0.05
"""Share of the rows from which on a level is no part of a density: zeros of a count, the steps of a scale."""
FEWEST = 10
"""Number of rows outside of atoms below which a column has no density whose valleys could be filled."""
VALLEY = 0.05
"""Share of the rows that the valleys of a column lack, below which they may be chance. In 95% of columns of 100
to 1,500 rows they lack at most 4% (uniform), 3% (gamma) and 8% (log-normal), and 6 to 19% in the median of columns
of two groups at 4 standard deviations. With all valleys filled, 7% of 180 tables without clusters are above; drawn
from the smoothed density itself, half of the uniform tables are."""
CELLS = 400
"""Number of cells of the histogram of a column in which valleys are filled."""
BANDWIDTH = 1.06
"""Factor of Silverman's rule for the kernel with which valleys are found."""
NARROW = 0.5
"""Fraction of this bandwidth with which they are filled. The rule is too wide for two modes, whose valley would
stay half empty: of three groups at 5, 6 and 8 standard deviations behind a scaler, 2-means is above in 75, 100 and
100% of 8 tables each, and with the whole bandwidth in 62, 88 and 75%."""
ROUNDS = 5
"""Number of corrections of R. After three the correlations of balanced truth values are right to 0.01."""
DRAWS = 4000
"""Number of rows from which a correction of R is computed. All corrections use the same normal numbers, and
compare the columns with the variables that they are made of, so that the error of the draw cancels."""
AVERAGINGS = 100
"""Number of steps of reciprocal averaging."""

Floats: TypeAlias = NDArray[np.float64]


class Levels(NamedTuple):
    """The levels of a column with their masses."""

    values: pd.Index | Floats  # [L], sorted
    cumulative: Floats  # [L], p_1 + ... + p_l, of which the last one is 1

    def positions(self, u: Floats) -> NDArray[np.intp]:
        """Return the positions of the levels Q(u)."""
        return np.searchsorted(self.cumulative[:-1], u, side="right")

    @property
    def scores(self) -> Floats:
        """Phi^-1 of the middle of the ranks of each level, before they are standardized."""
        before = np.append(0.0, self.cumulative[:-1])
        scores: Floats = ndtri((before + self.cumulative) / 2)
        return scores


class Margin(NamedTuple):
    """What is kept of one column."""

    name: object
    dtype: object
    codes: NDArray[np.intp]  # [n], the level of each row, -1 for a gap
    own: Levels
    filled: Levels
    gaps: float  # share of the rows with a gap

    @property
    def is_constant(self) -> bool:
        """Whether all rows that have no gap have one level, or all rows a gap."""
        return len(self.own.cumulative) < 2

    def drawn(self, u: Floats, is_gap: NDArray[np.bool_]) -> pd.Series:
        """Return a column [n] from ranks [n] in (0, 1), of which those of gaps are ignored."""
        values = self.filled.values
        if not len(values):  # gaps alone
            return pd.Series(np.nan, range(len(u)), name=self.name).astype(self.dtype)
        positions = self.filled.positions(u)
        if isinstance(values, pd.Index):
            positions[is_gap] = -1
            drawn = pd.Series(values.array.take(positions, allow_fill=bool(is_gap.any())))
        else:
            drawn = pd.Series(values[positions]).mask(is_gap)
        return drawn.astype(self.dtype).rename(self.name)


class Copula:
    """A distribution of tables that have the margins and the rank correlations of a table, and no clusters.

    Parameters
    ----------
    table : Table [n, d]
        Numbers, categories and times, also with gaps; sparse tables become dense here, of at most 1 GiB.
    weight : ndarray [n], optional
        Weights > 0 of the rows. A drawn table has n rows with the same weights.
    """

    def __init__(self, table: Table, weight: Floats | None = None) -> None:
        frame = frame_of(table)
        self.table = table
        self.weight = np.ones(len(frame)) if weight is None else counted_weights(weight)
        self.margins = [_margin(column, self.weight) for _, column in frame.items()]
        self.margins = _ordered(self.margins, frame, self.weight)
        self.variables = _variables(self.margins)
        scores = [_standardized(variable.scores(), self.weight) for variable in self.variables]
        self.loadings = np.empty((0, 0))
        self.noise = np.empty(0)
        if len(scores) > MOST_COLUMNS:
            raise ValueError(
                f"{table.name} has {len(scores)} columns that are not constant, and tables without clusters are "
                f"drawn for at most {MOST_COLUMNS}: pass the clusterer fewer columns, as of TruncatedSVD"
            )
        if scores:
            correlations = _correlations(np.stack(scores, 1), self.weight)
            correlations = _shrunk(correlations, float(self.weight.sum()))
            self.loadings, self.noise = _factors(_latent(correlations, self.variables))

    def draw(self, generator: np.random.Generator) -> object:
        """Draw a table [n, d] of the class of the original: a data frame, an array or a sparse matrix."""
        n = len(self.weight)
        latent = _normal(self.loadings, self.noise, n, generator)
        columns = []
        position = 0
        for margin in self.margins:
            u = np.full(n, 0.5)
            is_gap = np.full(n, margin.gaps == 1)
            if not margin.is_constant:
                values = latent[:, position]
                position += 1
            if 0 < margin.gaps < 1:
                is_gap = _ranks(latent[:, position], self.weight) > 1 - margin.gaps
                position += 1
            if not margin.is_constant:
                u[~is_gap] = _ranks(values[~is_gap], self.weight[~is_gap])
            columns.append(margin.drawn(u, is_gap))
        return self._as_passed(pd.concat(columns, axis=1))

    def _as_passed(self, frame: pd.DataFrame) -> object:
        """Return a drawn data frame as the class of table that was passed."""
        data = self.table.for_sklearn
        if isinstance(data, pd.DataFrame):
            return frame
        if sparse.issparse(data):
            return type(data)(frame.to_numpy(dtype=data.dtype))
        return frame.to_numpy(dtype=np.asarray(data).dtype)


def frame_of(table: Table) -> pd.DataFrame:
    """Return a table as a data frame of columns that are numbers, categories or times.

    Raises
    ------
    ValueError
        Columns of lists or other objects, or infinite numbers.
    """
    table.check_filled()
    if table.names is not None:
        frame = table.data
    elif table.is_tensor:
        frame = pd.DataFrame(table.for_sklearn)
    else:
        frame = pd.DataFrame(as_array(table.dense(limited=True)))
        if any(dtype.kind == "O" for dtype in frame.dtypes):
            frame = frame.apply(computable)
    for name, column in frame.items():
        kind = column_kind(column)
        if kind == "object":
            raise ValueError(
                f"{table.name} has a column of objects, {name!r}: its values have no order and no shares"
            )
        if kind == "number" and np.isinf(column.to_numpy()).any():
            raise ValueError(f"{table.name} has infinite values in column {name!r}")
    return frame


# --- the margins -------------------------------------------------------------------------------------------------


def _margin(column: pd.Series, weight: Floats) -> Margin:
    """Read the levels of a column, and fill the valleys of numbers."""
    codes, levels = pd.factorize(column, sort=True)
    masses: Floats = np.bincount(codes[codes >= 0], weight[codes >= 0], len(levels)).astype(np.float64)
    gaps = 1 - masses.sum() / weight.sum() if (codes < 0).any() else 0.0
    cumulative = np.cumsum(masses)
    if len(levels):
        cumulative = cumulative / cumulative[-1]
    own = Levels(pd.Index(levels), cumulative)
    filled = own
    if column_kind(column) == "number" and len(levels) > 2:
        filled = _filled(np.asarray(levels, dtype=float), masses, column.dtype.kind in "iu")
    return Margin(column.name, column.dtype, codes, own, filled, gaps)


def _filled(values: Floats, masses: Floats, is_whole: bool) -> Levels:
    """Add levels to the valleys of a column of numbers, until its smoothed density is unimodal.

    The density is that of the values without atoms, which are parts of no density.
    """
    as_it_is = Levels(values, np.cumsum(masses) / masses.sum())
    is_smooth = masses < ATOM * masses.sum()
    n = masses[is_smooth].sum()
    if n < FEWEST or is_smooth.sum() < 3:
        return as_it_is
    smooth_values = values[is_smooth]
    smooth_masses = masses[is_smooth]
    edges = np.linspace(smooth_values[0], smooth_values[-1], CELLS + 1)
    cells = (edges[1:] + edges[:-1]) / 2
    histogram, _ = np.histogram(smooth_values, edges, weights=smooth_masses)
    width = _bandwidth(smooth_values, smooth_masses)
    if _missing(histogram, cells, width).sum() < VALLEY:
        return as_it_is
    narrow = _bandwidth(smooth_values, smooth_masses, NARROW)
    added = n * _missing(histogram, cells, narrow)

    if is_whole:
        cells = np.round(cells)
    levels = np.concatenate([values, cells])
    order = np.argsort(levels, kind="stable")
    cumulative = np.concatenate([masses, added])[order].cumsum()
    return Levels(levels[order], cumulative / cumulative[-1])


def _missing(histogram: Floats, cells: Floats, width: float) -> Floats:
    """Return what a density lacks in each cell to be unimodal, as a share of its rows.

    The density f is the histogram, smoothed by a normal kernel. Left of its highest mode the unimodal density is
    the largest value of f up to there, and right of it the largest from there on.
    """
    kernel = np.exp(-(((cells[:, None] - cells) / width) ** 2) / 2)
    density = kernel @ histogram
    mode = int(density.argmax())
    up_to = np.maximum.accumulate(density[: mode + 1])
    from_there = np.maximum.accumulate(density[mode:][::-1])[::-1]
    unimodal = np.concatenate([up_to, from_there[1:]])
    missing: Floats = (unimodal - density) / density.sum()
    return missing


def _bandwidth(values: Floats, masses: Floats, fraction: float = 1.0) -> float:
    """Return a fraction of Silverman's bandwidth for sorted values that occur as often as their masses."""
    n = masses.sum()
    mean = masses @ values / n
    spread = float(np.sqrt(masses @ (values - mean) ** 2 / n))
    low, high = np.interp([0.25 * n, 0.75 * n], masses.cumsum(), values)
    normal_spread = float(high - low) / 1.34  # 1.34: the range between the quartiles of a normal density
    if normal_spread > 0:
        spread = min(spread, normal_spread)
    cell = float(values[-1] - values[0]) / CELLS
    step = float(np.median(np.diff(values)))  # of whole or rounded numbers, between which there are no valleys
    return max(fraction * BANDWIDTH * spread * float(n) ** -0.2, cell, step)


def _ordered(margins: list[Margin], frame: pd.DataFrame, weight: Floats) -> list[Margin]:
    """Put the levels of categories without an order in that of their reciprocal averages."""
    is_unordered = [
        _is_unordered(column) and len(m.own.cumulative) > 2
        for m, (_, column) in zip(margins, frame.items(), strict=True)
    ]
    if not any(is_unordered):
        return margins
    row_scores = _reciprocal_averages(margins, is_unordered, weight)
    ordered = []
    for margin, unordered in zip(margins, is_unordered, strict=True):
        if unordered:
            margin = _by_mean(margin, row_scores, weight)
        ordered.append(margin)
    return ordered


def _is_unordered(column: pd.Series) -> bool:
    """Whether a column holds categories without an order of their own."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return not column.dtype.ordered
    inferred = pd.api.types.infer_dtype(column, skipna=True)
    return column_kind(column) == "category" and inferred != "interval"


def _by_mean(margin: Margin, row_scores: Floats, weight: Floats) -> Margin:
    """Sort the levels of a column by the mean score of their rows."""
    codes = margin.codes
    is_known = codes >= 0
    n_levels = len(margin.own.cumulative)
    masses = np.bincount(codes[is_known], weight[is_known], n_levels)
    sums = np.bincount(codes[is_known], (weight * row_scores)[is_known], n_levels)
    order = np.argsort(sums / masses, kind="stable")
    position = np.argsort(order)
    new_codes = np.where(is_known, position[codes], -1)
    cumulative = masses[order].cumsum() / masses.sum()
    levels = Levels(margin.own.values[order], cumulative)
    return margin._replace(codes=new_codes, own=levels, filled=levels)


def _reciprocal_averages(margins: list[Margin], is_unordered: list[bool], weight: Floats) -> Floats:
    """Compute the first principal component [n] of the rows, in which a category stands for its indicators.

    Step by step, a category gets the mean score of its rows, a column with an order the line through the scores,
    and a row the sum over its columns.
    """
    ordered = [m for m, unordered in zip(margins, is_unordered, strict=True) if not unordered]
    variables = _variables(ordered)
    scores = np.zeros((len(weight), 0))
    if variables:
        scores = np.stack([_standardized(variable.scores(), weight) for variable in variables], 1)
    categories = [m.codes - m.codes.min() for m, unordered in zip(margins, is_unordered, strict=True) if unordered]
    rows = _standardized(np.random.default_rng(0).normal(size=len(weight)), weight)
    for _ in range(AVERAGINGS):
        sums = scores @ (scores.T @ (weight * rows)) / weight.sum()
        for codes in categories:
            masses = np.bincount(codes, weight)
            means = np.bincount(codes, weight * rows) / np.maximum(masses, np.finfo(float).tiny)
            sums = sums + means[codes]
        rows = _standardized(sums, weight)
    return rows


# --- correlations ------------------------------------------------------------------------------------------------


class Variable(NamedTuple):
    """A normal variable: the values of a column, or its gaps."""

    margin: Margin
    is_of_gaps: bool

    def scores(self) -> Floats:
        """Return the scores [n] of the rows."""
        codes = self.margin.codes
        if self.is_of_gaps:
            return (codes < 0).astype(float)
        scores = self.margin.own.scores[codes]
        return np.where(codes < 0, np.nan, scores)


def _variables(margins: list[Margin]) -> list[Variable]:
    """List the variables of all columns, in the order in which tables are drawn from them."""
    variables = []
    for margin in margins:
        if not margin.is_constant:
            variables.append(Variable(margin, is_of_gaps=False))
        if 0 < margin.gaps < 1:
            variables.append(Variable(margin, is_of_gaps=True))
    return variables


def _standardized(scores: Floats, weight: Floats) -> Floats:
    """Give scores [n] the mean 0 and the variance 1 among all rows; NaN, the score of a gap, becomes 0."""
    is_known = ~np.isnan(scores)
    mean = np.average(scores[is_known], weights=weight[is_known])
    centered = np.where(is_known, scores - mean, 0.0)
    variance = np.average(centered**2, weights=weight)
    if not variance > 0:
        return np.zeros(len(scores))
    standardized: Floats = centered / np.sqrt(variance)
    return standardized


def _correlations(scores: Floats, weight: Floats) -> Floats:
    """Return z^T z / n of standardized scores [n, q]."""
    correlations: Floats = scores.T @ (scores * weight[:, None]) / weight.sum()
    return correlations


def _shrunk(correlations: Floats, n: float) -> Floats:
    """Remove what is chance from the correlations [q, q] of n rows.

    Tables that are drawn with the correlations of a sample have those of their own draw in addition, and are
    longer along some axes than tables of the same kind. So, with gamma = q / n,

    1. principal components with an eigenvalue l > (1 + sqrt(gamma))^2, which noise does not reach, are kept, with
       the eigenvalue of which l is the expected one (:func:`_unbiased`);
    2. of what is left, the correlations r are multiplied by 1 - lambda, with sums over all pairs of columns:
       lambda = min(1, sum (1 - r_all^2)^2 / (n - 1) / sum r^2), where (1 - r_all^2)^2 / (n - 1) is the sampling
       variance of the whole correlation r_all.
    """
    values, vectors = np.linalg.eigh(correlations)
    gamma = len(values) / n
    is_kept = values > (1 + np.sqrt(gamma)) ** 2
    loadings = vectors[:, is_kept] * np.sqrt(_unbiased(values[is_kept], gamma))
    kept: Floats = loadings @ loadings.T
    rest = correlations - kept
    is_pair = ~np.eye(len(correlations), dtype=bool)
    chance = ((1 - correlations[is_pair] ** 2) ** 2).sum() / max(n - 1, 1.0)
    squared = (rest[is_pair] ** 2).sum()
    if squared > chance:
        kept = kept + rest * (1 - chance / squared)
    np.fill_diagonal(kept, 1.0)
    return kept


def _unbiased(values: Floats, gamma: float) -> Floats:
    """Return the eigenvalues l of columns whose sample has the values l + gamma l / (l - 1)."""
    sums = values + 1 - gamma
    unbiased: Floats = (sums + np.sqrt((sums**2 - 4 * values).clip(min=0))) / 2
    return unbiased


def _latent(correlations: Floats, variables: list[Variable]) -> Floats:
    """Find R [q, q]: the correlations of normal variables whose columns have the given ones.

    With A(R) the correlations of the scores of columns that are drawn with R, and S(R) those of the variables that
    they are drawn from, the angles phi = 2/pi arcsin R move by the difference of the given ones and A. For two
    balanced truth values A is phi, so that one step is exact; without ties A is S, and nothing moves.
    """
    if not any(_has_ties(variable) for variable in variables):
        return correlations
    q = len(variables)
    latent = correlations
    normal = np.random.default_rng(0).normal(size=(DRAWS, q))
    ones = np.ones(DRAWS)
    for _ in range(ROUNDS):
        values, vectors = np.linalg.eigh(latent)
        roots = _unit_rows(vectors * np.sqrt(values.clip(min=0)))
        drawn = normal @ roots.T
        drawn = np.stack([_standardized(y, ones) for y in drawn.T], 1)
        scores = np.stack([_standardized(z, ones) for z in _scores_of(drawn, variables)], 1)
        weaker = _correlations(drawn, ones) - _correlations(scores, ones)
        angles = np.arcsin((roots @ roots.T).clip(-1, 1)) * 2 / np.pi
        # what the scores lack of the given correlations, without the error that drawn and scores have in common
        missing = correlations - (roots @ roots.T - weaker)
        latent = np.sin((angles + missing).clip(-1, 1) * np.pi / 2)
        np.fill_diagonal(latent, 1.0)
    return latent


def _has_ties(variable: Variable) -> bool:
    """Whether a column has gaps, or levels of several rows and more than a hundredth of them."""
    margin = variable.margin
    masses = np.diff(margin.own.cumulative, prepend=0.0)
    return margin.gaps > 0 or bool(masses.max() > max(0.01, 1.5 / len(margin.codes)))


def _scores_of(drawn: Floats, variables: list[Variable]) -> list[Floats]:
    """Return the scores [q][m] of the columns that normal variables [m, q] become."""
    scores = []
    for j, (margin, is_of_gaps) in enumerate(variables):
        u = ndtr(drawn[:, j])
        if is_of_gaps:
            is_gap = u > 1 - margin.gaps
            scores.append(is_gap.astype(float))
            if not margin.is_constant:
                scores[-2] = np.where(is_gap, np.nan, scores[-2])
        else:
            scores.append(margin.own.scores[margin.own.positions(u)])
    return scores


def _factors(correlations: Floats) -> tuple[Floats, Floats]:
    """Return loadings L [q, p] and deviations [q] of independent noise, with L L^T + noise^2 about R.

    With more than COMPONENTS variables, L are the first principal components without the variance s^2 that the
    other ones have on average, which the noise adds to all of them (probabilistic PCA).
    """
    values, vectors = np.linalg.eigh(correlations)
    n_rest = max(len(values) - COMPONENTS, 0)
    if not n_rest:
        return _unit_rows(vectors * np.sqrt(values.clip(min=0))), np.zeros(len(values))
    rest = values[:n_rest].mean()
    loadings = vectors[:, n_rest:] * np.sqrt((values[n_rest:] - rest).clip(min=0))
    squared = (loadings**2).sum(1)
    return loadings, np.sqrt((1 - squared).clip(min=0))


def _unit_rows(roots: Floats) -> Floats:
    """Scale rows to length 1, which negative eigenvalues have changed."""
    unit: Floats = roots / np.sqrt((roots**2).sum(1, keepdims=True)).clip(min=np.finfo(float).tiny)
    return unit


def _normal(loadings: Floats, noise: Floats, n: int, generator: np.random.Generator) -> Floats:
    """Draw normal variables [n, q]."""
    drawn: Floats = generator.normal(size=(n, loadings.shape[1])) @ loadings.T
    if noise.any():
        drawn = drawn + noise * generator.normal(size=(n, len(noise)))
    return drawn


def _ranks(values: Floats, weight: Floats) -> Floats:
    """Return the ranks [n] of values in (0, 1): the weights below each, and half of its own, of all."""
    order = np.argsort(values, kind="stable")
    sorted_weight = weight[order]
    middle = sorted_weight.cumsum() - sorted_weight / 2
    ranks = np.empty(len(values))
    ranks[order] = middle / sorted_weight.sum()
    return ranks
