"""Imputers, which fill in missing features.

    imputer        value of a missing feature
    ZeroImputer    0
    MeanImputer    the mean of the feature in some data
    BlurImputer    the pixel of the blurred image
    WordImputer    a word of other texts, drawn at random
    MaskImputer    the mask token
    KDEImputer     mu_i + s_i (x_i^n + h epsilon), where point n is drawn by how close it is to the known features

The kernel density estimate of :class:`KDEImputer` (NEON paper, Algorithm 1 and Appendix G) has points x^n, in
columns that are scaled from mean mu_i and standard deviation s_i to 0 and 1. Given the known features I of z,

    d_n = |z_I - x_I^n|^2 = sum over i in I of z_i^2 - 2 z_i x_i^n + (x_i^n)^2
    p_n = softmax_n(-d_n / 2 h^2)

is the probability of point n, and epsilon is standard normal. From one step to the next, only those terms of d_n
change whose features become known or missing. The bandwidth h maximizes the leave-one-out likelihood:

    L(log h) = mean_n log sum_(m != n) exp(-|x^n - x^m|^2 / 2 h^2) - d log h
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from neonxc.common.arguments import check_whole, installed_by
from neonxc.common.memory import at_once
from neonxc.common.numbers import plural
from neonxc.common.precision import in_full_precision
from neonxc.common.shortening import shortened
from neonxc.common.sizes import BANDWIDTH_ROWS
from neonxc.common.types import TableLike
from neonxc.data.frames import is_path
from neonxc.data.table import Table, is_texts
from neonxc.inputs import Inputs

# share of entries up to which sparse products with points take less time than dense ones: 0.4 of it at 3%, 0.7 at
# 5%, 1.4 at 10% (500 points of 500 to 5,000 columns)
FEW_ENTRIES = 0.05

Draw: TypeAlias = Callable[[int, torch.Generator], Tensor]
"""Returns the values of missing features for a number of repeats, which broadcast to [repeats, B, D]."""


class Imputer(ABC):
    """An imputer fills in missing features; :meth:`start` returns the filling of a batch of inputs."""

    random: bool = False
    """Whether two fillings differ."""

    @abstractmethod
    def start(self, x: Tensor) -> Filling:
        """Return the filling of inputs [B, ...].

        Parameters
        ----------
        x : Tensor [B, ...]
            The inputs, all of whose features are missing at first.
        """

    def points_at_once(self) -> int:
        """Maximum number of inputs per call of `start`."""
        return sys.maxsize

    def read_by(self, inputs: Inputs) -> Imputer:
        """Return the imputer for data as a network reads them, which is this one if it has no data."""
        return self


class DataImputer(Imputer):
    """Base class of imputers that draw from data or average them; the data are read as inputs of a network.

    Parameters
    ----------
    X : array, frame, tensor, sequence of str, or path
        Data of the same kind as the inputs of the network; a tensor has the values that the network computes on.
    name : str
        Name of the argument in errors.
    **options
        Further arguments of the class.
    """

    def __init__(self, X: TableLike, name: str = "X", **options: float | None) -> None:
        is_file = is_path(X)
        self._table: Any = X
        if not is_file:
            self._table = Table.read(X, name=name)
        self._options: dict[str, Any] = options
        self._last: tuple[Inputs, Imputer] | None = None
        # the network knows how to read data of other types, and which columns of a file it needs
        self._is_numeric = not (is_file or is_texts(self._table) or self._table.is_mixed)
        if self._is_numeric:
            _ = self._table.numbers  # raises the errors of unusable values where the imputer is made

    @property
    def data(self) -> Tensor:
        """The data [n, ...]."""
        return Table.read(self._table).tensor

    def read_by(self, inputs: Inputs) -> Imputer:
        """Return the imputer for the data as a network reads them."""
        if self._last is not None:
            last_inputs, last_imputer = self._last
            if last_inputs is inputs:
                return last_imputer

        x = inputs.dense(self._table).tensor
        imputer: Imputer = self
        if not self._is_numeric or not torch.equal(x.to(self.data), self.data):
            imputer = type(self)(x, **self._options)
        self._last = (inputs, imputer)
        return imputer


class Filling(ABC):
    """A batch of inputs, flattened to [B, D], of which more and more (or fewer and fewer) features are known."""

    @abstractmethod
    def fill(self, known: Tensor, repeats: int, generator: torch.Generator) -> Tensor:
        """Return inputs [S, repeats, B, D] of S steps; all but the `known` features [S, B, D] are imputed.

        The cost is lowest if few features change between consecutive steps and calls.
        """

    def fill_both(self, known: Tensor, repeats: int, generator: torch.Generator) -> Tensor:
        """Return inputs [2, S, repeats, B, D]: all but the `known` features [S, B, D] are imputed, and only these.

        Calls of one filling may share draws of what does not depend on the known features, and the memory of the
        result.
        """
        return torch.stack([self.fill(part, repeats, generator) for part in (known, ~known)])


class _Fixed(Filling):
    """The filling of inputs whose missing features have the same values in all steps."""

    def __init__(self, x: Tensor, draw: Draw) -> None:
        self.x = x.flatten(1)  # [B, D]
        self.draw = lru_cache(1)(draw)

    def fill(self, known: Tensor, repeats: int, generator: torch.Generator) -> Tensor:
        """Fill in the values, which are drawn in the first call."""
        values = self.draw(repeats, generator)
        filled = torch.where(known[:, None], self.x, values)
        return filled.expand(-1, repeats, -1, -1)


class ZeroImputer(Imputer):
    """An imputer that replaces missing features by zero (the paper's choice for activations of networks)."""

    def start(self, x: Tensor) -> Filling:
        """Return the filling of inputs [B, ...]."""
        return _Fixed(x, lambda *_: x.new_zeros(()))


class MeanImputer(DataImputer):
    """An imputer that replaces missing features by their means in some data.

    Parameters
    ----------
    X : array, frame or tensor [n, ...]
        The mean is that of the data as the network computes on them.
    """

    def __init__(self, X: TableLike) -> None:
        super().__init__(X)

    @cached_property
    def mean(self) -> Tensor:
        """The mean, shaped like one input."""
        return self.data.mean(0)

    def start(self, x: Tensor) -> Filling:
        """Return the filling of inputs [B, ...]."""
        mean = self.mean.to(x).expand_as(x).flatten(1)
        return _Fixed(x, lambda *_: mean)


class BlurImputer(Imputer):
    """An imputer that replaces missing pixels of images [B, C, H, W] by those of the blurred image.

    Parameters
    ----------
    sigma : float
        Standard deviation of the Gaussian, in pixels.

    Raises
    ------
    ImportError
        When it is used: torchvision is not installed, ``pip install -e ".[vision]"``.
    """

    def __init__(self, sigma: float = 8.0) -> None:
        if not 0 < sigma < math.inf:
            raise ValueError(f"sigma needs a number > 0, got {sigma!r}")
        self.sigma = sigma

    def start(self, x: Tensor) -> Filling:
        """Return the filling of images [B, C, H, W]."""
        if x.ndim != 4:
            raise ValueError(f"BlurImputer needs images [N, C, H, W], got shape {list(x.shape)}")
        try:
            from torchvision.transforms.functional import gaussian_blur  # the import takes a second
        except ImportError as error:
            raise ImportError(f"BlurImputer needs torchvision: {installed_by('vision')}") from error
        radius = math.ceil(3 * self.sigma)
        radius = min(radius, min(x.shape[2:]) - 1)  # the padding cannot exceed the size of the image
        size = 2 * radius + 1
        blurred = gaussian_blur(x, [size, size], [self.sigma, self.sigma]).flatten(1)
        return _Fixed(x, lambda *_: blurred)


class WordImputer(DataImputer):
    """An imputer that replaces missing words by words of other texts, drawn at random.

    Parameters
    ----------
    ids : array or tensor [n, L], or sequence of n str
        Texts, or their word numbers, -1 where a word is unknown or the text has ended, as of
        :meth:`neonxc.models.WordVectors.encode`.

    Raises
    ------
    ValueError
        No word in any text.
    """

    random = True

    def __init__(self, ids: TableLike) -> None:
        super().__init__(ids, "ids")
        if self._is_numeric and not len(self.words):
            raise ValueError("ids has no known word to draw")

    @cached_property
    def words(self) -> Tensor:
        """The numbers of all words of the texts."""
        return self.data[self.data >= 0]

    def start(self, x: Tensor) -> Filling:
        """Return the filling of texts [B, L]."""
        words = self.words.to(x)

        def draw(repeats: int, generator: torch.Generator) -> Tensor:
            index = torch.randint(len(words), (repeats, *x.shape), generator=generator, device=x.device)
            return torch.where(x < 0, x, words[index])  # a text gets no word where it has none

        return _Fixed(x, draw)


class MaskImputer(Imputer):
    """An imputer that replaces missing words by the mask token of a :class:`neonxc.models.SentenceEncoder`.

    Parameters
    ----------
    word : int
        Number of the mask token: the encoder's ``mask_word``.

    Raises
    ------
    ValueError
        If `word` is not a number of a word; the ``mask_word`` of an encoder without a mask token is none.
    """

    def __init__(self, word: int) -> None:
        check_whole("word, the mask_word of a SentenceEncoder whose tokenizer has a mask token,", word, least=0)
        self.word = word

    def start(self, x: Tensor) -> Filling:
        """Return the filling of texts [B, W]."""
        masked = torch.where(x < 0, x, self.word).flatten(1)  # a text gets no word where it has none
        return _Fixed(x, lambda *_: masked)


class KDEImputer(DataImputer):
    """An imputer that draws missing features from a kernel density estimate, given those that are known.

    The density is a mixture of Gaussians of one width h around the points of some data, in columns scaled to unit
    variance. Given the features I of z, a point n is drawn with probability proportional to
    ``exp(-|z_I - x_I^n|^2 / 2 h^2)``, and the missing features are those of the point plus noise of width h (NEON
    paper, Algorithm 1 and Appendix G).

    Parameters
    ----------
    X : array, frame or tensor [n, ...]
        Data from the distribution of the inputs. Densities are those of the data as the network computes on them.
    bandwidth : float, optional
        h, in units of the columns' standard deviations. The default maximizes the leave-one-out likelihood of X.

    Attributes
    ----------
    bandwidth : float
    """

    random = True

    def __init__(self, X: TableLike, bandwidth: float | None = None) -> None:
        if bandwidth is not None and not 0 < bandwidth < math.inf:
            raise ValueError(f"bandwidth needs a number > 0 or None, got {bandwidth!r}")
        super().__init__(X, bandwidth=bandwidth)
        self._mixture: _Mixture | None = None
        if self._is_numeric and len(self._table) < 2:
            raise ValueError("KDEImputer needs at least 2 points")

    @cached_property
    def center(self) -> Tensor:
        """Means of the columns."""
        return self.data.flatten(1).mean(0)

    @cached_property
    def scale(self) -> Tensor:
        """Standard deviations of the columns; 1 for constant ones."""
        deviations = self.data.flatten(1).std(0, correction=0)
        return torch.where(deviations > 0, deviations, 1.0)

    @cached_property
    def points(self) -> Tensor:
        """The data in scaled columns, [n, D]."""
        return (self.data.flatten(1) - self.center) / self.scale

    @cached_property
    def bandwidth(self) -> float:
        """h, in units of the columns' standard deviations."""
        bandwidth = self._options["bandwidth"]
        if bandwidth is None:
            return best_bandwidth(self.points)
        return float(bandwidth)

    def start(self, x: Tensor) -> Filling:
        """Return the filling of inputs [B, ...] that have the same number of features as the data."""
        n_features = x[0].numel()
        expected = self.points.shape[1]
        if n_features != expected:
            features = plural(n_features, "feature")
            raise ValueError(f"the inputs have {features}, the data of the KDEImputer has {expected}")
        x = x.flatten(1)
        if self._mixture is None or not self._mixture.is_for(self.bandwidth, x):
            self._mixture = _Mixture(self, x)
        return _Conditional(self._mixture, x)

    def points_at_once(self) -> int:
        """Maximum number of inputs per call of `start`: each needs a distance to every point of the data."""
        return at_once(2 * self.data.element_size() * len(self.data), self.data.device)


class _Matrix:
    """A matrix [n, D] by which rows are multiplied, stored as a sparse one if it has few entries."""

    def __init__(self, values: Tensor) -> None:
        self.values: Tensor | csr_array = values
        if values.device.type == "cpu" and _has_few_entries(values):
            self.values = csr_array(values.numpy())

    @in_full_precision
    def times(self, rows: Tensor) -> Tensor:
        """Multiply rows [..., D] by the transposed matrix, to [..., n]."""
        if isinstance(self.values, Tensor):
            return rows @ self.values.T
        products = rows.flatten(0, -2).numpy() @ self.values.T
        return torch.from_numpy(products).unflatten(0, rows.shape[:-1])


def _has_few_entries(values: Tensor) -> bool:
    """Whether a sparse matrix of these values is multiplied faster than a dense one."""
    return int(values.count_nonzero()) <= FEW_ENTRIES * values.numel()


class _Mixture:
    """A kernel density estimate in the dtype and on the device of inputs, which their fillings share.

    Distances are computed relative to an origin. If most of the data are zeros, these are the origin, so that the
    points have few coordinates other than 0.
    """

    def __init__(self, density: KDEImputer, like: Tensor) -> None:
        self.dtype = like.dtype
        self.device = like.device
        self.bandwidth = density.bandwidth
        self.center = density.center.to(like)
        self.scale = density.scale.to(like)
        self.points = density.points.to(like)  # [n, D], x^n
        origin = torch.zeros_like(density.center)
        if _has_few_entries(density.data):
            origin = (origin - density.center) / density.scale
        self.origin = origin.to(like)
        coordinates = self.points - self.origin
        self.coordinates = _Matrix(coordinates)
        self.squares = _Matrix(coordinates.square())
        self._pool = like.new_empty(0, like.shape[1])

    def is_for(self, bandwidth: float, like: Tensor) -> bool:
        """Whether this is the estimate of some bandwidth for inputs of the type and on the device of others."""
        return (self.bandwidth, self.dtype, self.device) == (bandwidth, like.dtype, like.device)

    @cached_property
    def unscaled(self) -> Tensor:
        """The points in the units of the columns, [n, D]."""
        return self.points * self.scale + self.center

    def noise(self, n: int) -> Tensor:
        """Return noise [n, D] of width h, in the units of the columns; drawn once for each n in turn."""
        if len(self._pool) != n:
            generator = torch.Generator(self.device).manual_seed(0)
            shape = (n, self.points.shape[1])
            drawn = torch.randn(shape, generator=generator, dtype=self.dtype, device=self.device)
            self._pool = drawn.mul_(self.bandwidth * self.scale)
        return self._pool


class _Conditional(Filling):
    """The filling of inputs by draws from a kernel density estimate, given the features that are known."""

    def __init__(self, mixture: _Mixture, x: Tensor) -> None:
        self.mixture = mixture
        self.x = x  # [B, D]
        self.z = (x - mixture.center) / mixture.scale - mixture.origin
        self.known = torch.zeros_like(x, dtype=torch.bool)  # [B, D], I of the previous step
        self.distances = x.new_zeros(len(x), len(mixture.points))  # [B, n], d_n of the previous step
        self.both = x.new_empty(0)

    def fill(self, known: Tensor, repeats: int, generator: torch.Generator) -> Tensor:
        """Draw a point of the data and noise for each step and repeat."""
        mixture = self.mixture
        filled = self.x.new_empty(len(known), repeats, *self.x.shape)
        for draws, step_known in zip(filled, known, strict=True):
            # 1 for features that become known, -1 for those that become missing, 0 for the others
            change = step_known.to(self.z) - self.known.to(self.z)
            self.known = step_known
            self.distances += self.sums_over(change)
            self.distances.clamp_(min=0)  # differences of large numbers may be rounded to less than 0

            weights = self.weights(self.distances)
            rows = torch.multinomial(weights, repeats, replacement=True, generator=generator).T  # [repeats, B]
            noise = draws.normal_(generator=generator)  # uses the memory of the result
            values = (mixture.points[rows] + mixture.bandwidth * noise) * mixture.scale + mixture.center
            is_known = step_known.to(self.x)
            _choose(self.x * is_known, values, 1 - is_known, draws)
        return filled

    def fill_both(self, known: Tensor, repeats: int, generator: torch.Generator) -> Tensor:
        """Draw a point of the data for each step and repeat, and noise from a pool that all calls share."""
        n_inputs, n_features = self.x.shape
        is_known = known.to(self.z)  # [S, B, D], 0 or 1
        of_known = self.sums_over(is_known)
        distances = torch.stack([of_known, self.all_distances - of_known]).clamp(min=0)  # [2, S, B, n]
        weights = self.weights(distances)
        points = torch.multinomial(weights.flatten(0, 2), repeats, replacement=True, generator=generator)
        points = points.unflatten(0, weights.shape[:3]).movedim(3, 2)  # [2, S, repeats, B]
        pool = self.mixture.noise(2 * repeats * n_inputs)
        n_starts = len(pool) // 2
        starts = torch.randint(n_starts, points.shape[:2], generator=generator, device=pool.device).tolist()

        shape = (*points.shape, n_features)
        if self.both.shape != shape:
            self.both = self.x.new_empty(shape)
        is_missing = 1 - is_known
        for way, (kept, drawn) in enumerate([(is_known, is_missing), (is_missing, is_known)]):
            for step, start in enumerate(starts[way]):
                draws = self.both[way, step]  # [repeats, B, D]
                values = draws.flatten(0, 1)
                torch.index_select(self.mixture.unscaled, 0, points[way, step].flatten(), out=values)
                values += pool[start : start + len(values)]
                _choose(self.x * kept[step], draws, drawn[step], draws)
        return self.both

    def weights(self, distances: Tensor) -> Tensor:
        """Compute the probabilities p_n [..., n] of the points."""
        return (distances / (-2 * self.mixture.bandwidth**2)).softmax(-1)

    def sums_over(self, selected: Tensor) -> Tensor:
        """Sum the terms of d_n over features, each of them times a factor, [..., B, D]; to [..., B, n]."""
        z = self.z * selected
        products = self.mixture.coordinates.times(z)
        return (z * self.z).sum(-1, keepdim=True) - 2 * products + self.mixture.squares.times(selected)

    @cached_property
    def all_distances(self) -> Tensor:
        """The distances [B, n] if all features are known, as the sums over known features are computed."""
        return self.sums_over(torch.ones_like(self.z))


def _choose(known: Tensor, values: Tensor, is_missing: Tensor, out: Tensor) -> None:
    """Write the values [repeats, B, D] of missing features, which are 0 in `known` [B, D], and all others.

    Products with 0 and 1 are exact, and take a fifth of the time of torch.where.
    """
    torch.addcmul(known, values, is_missing, out=out)


def imputer_of(imputer: object, inputs: Inputs, x: Tensor) -> Imputer:
    """Return an imputer for what a network reads; None selects :func:`default_imputer`.

    An object of another type is a TypeError.
    """
    if imputer is None:
        return default_imputer(inputs, x)
    if not isinstance(imputer, Imputer):
        got = shortened(repr(imputer), 60)
        raise TypeError(
            f"imputer needs an Imputer of neonxc.evaluation, such as KDEImputer(X), got {got}; for "
            "another way to fill in features write a subclass of Imputer"
        )
    return imputer.read_by(inputs)


def default_imputer(inputs: Inputs, x: Tensor) -> Imputer:
    """Return the imputer that is usual for a kind of inputs.

        tables      a KDEImputer of x
        texts       a MaskImputer if the network has a mask token, else a WordImputer of x
        all else    a ZeroImputer

    Imputers that draw know x, or a random sample of it that is as large as that by which a bandwidth is chosen.
    """
    kind = missing_as(inputs, x)
    if kind == "zero":
        return ZeroImputer()
    if inputs.mask is not None:
        return MaskImputer(inputs.mask)
    if len(x) > BANDWIDTH_ROWS:
        rows = np.random.default_rng(0).choice(len(x), BANDWIDTH_ROWS, replace=False)
        x = x[np.sort(rows)]
    if kind == "word":
        return WordImputer(x)
    return KDEImputer(x)


def missing_as(inputs: Inputs, x: Tensor) -> str:
    """Return how a missing feature is imputed: by "draw" (tables), by "zero", or by another "word"."""
    if inputs.absent == "zero" and x.ndim == 2:
        return "draw"
    return inputs.absent


def best_bandwidth(points: Tensor) -> float:
    """Find the bandwidth of the largest leave-one-out likelihood of points [n, d], to about one percent."""
    if len(points) > BANDWIDTH_ROWS:
        order = torch.randperm(len(points), generator=torch.Generator().manual_seed(0))
        points = points[order[:BANDWIDTH_ROWS].to(points.device)]
    points = points.double()
    squared_distances = torch.cdist(points, points).square()
    squared_distances = squared_distances.fill_diagonal_(torch.inf)  # no point takes part in its own density
    # exponents are relative to the largest of each point, so that their sum is 1 or more
    nearest = squared_distances.amin(1, keepdim=True)
    excess = squared_distances - nearest

    def likelihood(log_h: float) -> float:
        """Return L(log h), up to a constant."""
        factor = -1 / (2 * math.exp(2 * log_h))
        # exp(-50) adds nothing to 1, and smaller results take ten times longer
        logarithms = (excess * factor).clamp_(min=-50).exp_().sum(1).log() + nearest[:, 0] * factor
        return float(logarithms.mean()) - points.shape[1] * log_h

    # 1. the best of a grid from 0.01 to about 9 standard deviations
    grid = np.arange(28) * 0.25 + math.log(0.01)
    best = max(grid, key=likelihood)

    # 2. golden-section search between its neighbours: 0.382 = 1 - 1 / golden ratio
    low, high = np.clip([best - 0.25, best + 0.25], grid[0], grid[-1])
    while high - low > 0.01:
        left = low + 0.382 * (high - low)
        right = high - 0.382 * (high - low)
        if likelihood(left) > likelihood(right):
            high = right
        else:
            low = left
    return math.exp((low + high) / 2)
