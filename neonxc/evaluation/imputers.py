"""What stands in for missing features: draws given the others, zeros, means, blurred images, other words."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neonxc.common.arguments import check_whole
from neonxc.common.extras import installed_by
from neonxc.common.memory import at_once
from neonxc.data.frames import is_path
from neonxc.data.table import Table, is_texts
from neonxc.inputs import Inputs

LARGEST = 4000  # number of points for the choice of the bandwidth


class Imputer(ABC):
    """Fills in missing features; :meth:`start` takes up some inputs."""

    random: bool = False
    """Whether two fillings differ."""

    @abstractmethod
    def start(self, x: Tensor) -> Filling:
        """Start with inputs [B, ...] of which no feature is known.

        Parameters
        ----------
        x : Tensor [B, ...]
            The inputs, all of whose features are missing at first.
        """

    def points_at_once(self) -> int:
        """Maximum number of inputs per call of `start`."""
        return sys.maxsize

    def read_by(self, inputs: Inputs) -> Imputer:
        """Return the imputer of the data as a network reads them; this one, if it has no data."""
        return self


class DataImputer(Imputer):
    """Base class of imputers of some data, which are read as inputs of the network that is asked.

    Parameters
    ----------
    X : array, frame, tensor, sequence of str, or path
        As the inputs of the network; tensors are what it computes on.
    name : str
        Name of the argument in errors.
    **options
        Further arguments of the class.
    """

    def __init__(self, X: Any, name: str = "X", **options: Any) -> None:
        self._table: Any = X
        if not is_path(X):
            self._table = Table.read(X, name=name)
        self._options = options
        self._last: tuple[Inputs, Imputer] | None = None
        # the network knows how to read others, and which columns of a file it needs
        self._is_numeric = not (is_path(X) or is_texts(self._table) or self._table.is_mixed)
        if self._is_numeric:
            _ = self._table.numbers

    @property
    def data(self) -> Tensor:
        """The data [n, ...]."""
        return Table.read(self._table).tensor

    def read_by(self, inputs: Inputs) -> Imputer:
        """Return the imputer of the data as a network reads them."""
        if self._last is None or self._last[0] is not inputs:
            x = inputs.dense(self._table).tensor
            same = self._is_numeric and torch.equal(x.to(self.data), self.data)
            self._last = inputs, self if same else type(self)(x, **self._options)
        return self._last[1]


class Filling(ABC):
    """Some inputs, flattened to [B, D], of which more and more (or less and less) is known."""

    @abstractmethod
    def fill(self, known: Tensor, repeats: int, generator: torch.Generator) -> Tensor:
        """Return inputs [S, repeats, B, D]: the `known` [S, B, D] features of S steps, the others filled in.

        The cost is lowest if few features change between consecutive steps and calls.
        """


class _Fixed(Filling):
    """The same values in all steps: what `draw` returns for a number of repeats, as good as [repeats, B, D]."""

    def __init__(self, x: Tensor, draw: Callable[[int, torch.Generator], Tensor]) -> None:
        self.x = x.flatten(1)
        self.draw = lru_cache(1)(draw)

    def fill(self, known: Tensor, repeats: int, generator: torch.Generator) -> Tensor:
        """Fill in the values, which are drawn in the first call."""
        filled = torch.where(known[:, None], self.x, self.draw(repeats, generator))
        return filled.expand(-1, repeats, -1, -1)


class ZeroImputer(Imputer):
    """Zero where a feature is missing (the paper's choice for activations of networks)."""

    def start(self, x: Tensor) -> Filling:
        """Take up inputs [B, ...]."""
        return _Fixed(x, lambda *_: x.new_zeros(()))


class MeanImputer(DataImputer):
    """The mean of some data.

    Parameters
    ----------
    X : array, frame or tensor [n, ...]
        The mean is that of the data as the network computes on them.
    """

    def __init__(self, X: Any) -> None:
        super().__init__(X)

    @cached_property
    def mean(self) -> Tensor:
        """The mean, shaped like one input."""
        return self.data.mean(0)

    def start(self, x: Tensor) -> Filling:
        """Take up inputs [B, ...]."""
        mean = self.mean.to(x).expand_as(x).flatten(1)
        return _Fixed(x, lambda *_: mean)


class BlurImputer(Imputer):
    """The input itself, blurred: images [B, C, H, W].

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
        """Start with images [B, C, H, W]."""
        if x.ndim != 4:
            raise ValueError(f"BlurImputer needs images [N, C, H, W], got shape {list(x.shape)}")
        try:
            from torchvision.transforms.functional import gaussian_blur  # the import takes a second
        except ImportError as error:
            raise ImportError(f"BlurImputer needs torchvision: {installed_by('vision')}") from error
        # the padding cannot exceed the size of the image
        size = 2 * min(math.ceil(3 * self.sigma), min(x.shape[2:]) - 1) + 1
        blurred = gaussian_blur(x, [size, size], [self.sigma, self.sigma]).flatten(1)
        return _Fixed(x, lambda *_: blurred)


class WordImputer(DataImputer):
    """Words of other texts, drawn at random, where a word is missing.

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

    def __init__(self, ids: Any) -> None:
        super().__init__(ids, "ids")
        if self._is_numeric and not len(self.words):
            raise ValueError("ids has no known word to draw")

    @cached_property
    def words(self) -> Tensor:
        """The numbers of all words of the texts."""
        return self.data[self.data >= 0]

    def start(self, x: Tensor) -> Filling:
        """Start with texts [B, L]."""
        words = self.words.to(x)

        def draw(repeats: int, generator: torch.Generator) -> Tensor:
            index = torch.randint(len(words), (repeats, *x.shape), generator=generator, device=x.device)
            return torch.where(x < 0, x, words[index])  # a text gets no word where it has none

        return _Fixed(x, draw)


class MaskImputer(Imputer):
    """The mask token where a word is missing, for texts behind a :class:`neonxc.models.SentenceEncoder`.

    Parameters
    ----------
    word : int
        Number of the mask token: the encoder's ``mask_word``.

    Raises
    ------
    ValueError
        Another value, as the ``mask_word`` of an encoder whose tokenizer has no mask token.
    """

    def __init__(self, word: int) -> None:
        check_whole("word, the mask_word of a SentenceEncoder whose tokenizer has a mask token,", word, least=0)
        self.word = word

    def start(self, x: Tensor) -> Filling:
        """Start with texts [B, W]."""
        masked = torch.where(x < 0, x, self.word).flatten(1)  # a text gets no word where it has none
        return _Fixed(x, lambda *_: masked)


class KDEImputer(DataImputer):
    """Draws missing features from a kernel density estimate, given those that are known.

    The density is a mixture of Gaussians of one width h around the points of some data, in columns scaled to unit
    variance. Given the features I of z, a point n is drawn with probability proportional to
    ``exp(-|z_I - x_I^n|^2 / 2 h^2)``, and the missing features are its own plus noise of width h (NEON paper,
    Algorithm 1 and Appendix G).

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

    def __init__(self, X: Any, bandwidth: float | None = None) -> None:
        if bandwidth is not None and not 0 < bandwidth < math.inf:
            raise ValueError(f"bandwidth needs a number > 0 or None, got {bandwidth!r}")
        super().__init__(X, bandwidth=bandwidth)
        if self._is_numeric and len(self._table) < 2:
            raise ValueError("KDEImputer needs at least 2 points")

    @cached_property
    def center(self) -> Tensor:
        """Means of the columns."""
        return self.data.flatten(1).mean(0)

    @cached_property
    def scale(self) -> Tensor:
        """Standard deviations of the columns; 1 for constant ones."""
        spread = self.data.flatten(1).std(0, correction=0)
        return torch.where(spread > 0, spread, 1.0)

    @cached_property
    def points(self) -> Tensor:
        """The data in scaled columns, [n, D]."""
        return (self.data.flatten(1) - self.center) / self.scale

    @cached_property
    def bandwidth(self) -> float:
        """h, in units of the columns' standard deviations."""
        given = self._options["bandwidth"]
        return best_bandwidth(self.points) if given is None else float(given)

    def start(self, x: Tensor) -> Filling:
        """Start with inputs [B, ...] that have the same number of features as the data."""
        features = x[0].numel()
        expected = self.points.shape[1]
        if features != expected:
            raise ValueError(f"the inputs have {features} features, the data of the KDEImputer has {expected}")
        return _Conditional(self, x.flatten(1))

    def points_at_once(self) -> int:
        """Maximum number of inputs per call of `start`: each needs a distance to every point of the data."""
        return at_once(2 * self.data.element_size() * len(self.data), self.data.device)


class _Conditional(Filling):
    """Inputs, and their squared distances to the points of the data over the features that are known."""

    def __init__(self, density: KDEImputer, x: Tensor) -> None:
        self.x = x
        self.bandwidth = density.bandwidth
        self.center, self.scale, self.points = (t.to(x) for t in (density.center, density.scale, density.points))
        self.z, self.squares = (x - self.center) / self.scale, self.points.square()
        self.known = torch.zeros_like(x, dtype=torch.bool)
        self.distances = x.new_zeros(len(x), len(self.points))

    def fill(self, known: Tensor, repeats: int, generator: torch.Generator) -> Tensor:
        """Draw a point of the data and noise for each step and repeat."""
        filled = self.x.new_empty(len(known), repeats, *self.x.shape)
        for draws, now in zip(filled, known, strict=True):
            change = now.to(self.z) - self.known.to(self.z)  # only features that become known or missing count
            z = self.z * change
            self.known = now
            self.distances += (z * self.z).sum(1, keepdim=True) - 2 * z @ self.points.T + change @ self.squares.T
            weights = (self.distances.clamp_(min=0) / (-2 * self.bandwidth**2)).softmax(1)
            rows = torch.multinomial(weights, repeats, replacement=True, generator=generator).T  # [repeats, B]
            noise = draws.normal_(generator=generator)
            values = (self.points[rows] + self.bandwidth * noise) * self.scale + self.center
            draws[:] = torch.where(now, self.x, values)
        return filled


def imputer_of(imputer: Any, inputs: Inputs, x: Tensor) -> Imputer:
    """Return an imputer of what a network reads, by default that of its inputs; other objects are a TypeError."""
    if imputer is None:
        return default_imputer(inputs, x)
    if not isinstance(imputer, Imputer):
        raise TypeError(
            f"imputer needs an Imputer of neonxc.evaluation, such as KDEImputer(X), got {imputer!r:.60}; for "
            "another way to fill in features write a subclass of Imputer"
        )
    return imputer.read_by(inputs)


def default_imputer(inputs: Inputs, x: Tensor) -> Imputer:
    """What is usual for inputs of a kind: draws for tables, a mask or other words for words, zeros for all else.

    Those that draw know these inputs, or as many of them, drawn at random, as a bandwidth is chosen by.
    """
    kind = missing_as(inputs, x)
    if kind == "zero":
        return ZeroImputer()
    if inputs.mask is not None:
        return MaskImputer(inputs.mask)
    if len(x) > LARGEST:
        x = x[np.sort(np.random.default_rng(0).choice(len(x), LARGEST, replace=False))]
    return (WordImputer if kind == "word" else KDEImputer)(x)


def missing_as(inputs: Inputs, x: Tensor) -> str:
    """How a missing input is replaced: by a conditional draw ("draw", tables), by "zero", or by another "word"."""
    return "draw" if inputs.absent == "zero" and x.ndim == 2 else inputs.absent


def best_bandwidth(points: Tensor) -> float:
    """Return the bandwidth of largest leave-one-out likelihood of points [n, d], to about one percent."""
    if len(points) > LARGEST:
        order = torch.randperm(len(points), generator=torch.Generator().manual_seed(0))
        points = points[order[:LARGEST].to(points.device)]
    points = points.double()
    distances = torch.cdist(points, points).square().fill_diagonal_(torch.inf)

    def likelihood(log_h: float) -> float:
        return float((distances / (-2 * math.exp(2 * log_h))).logsumexp(1).mean()) - points.shape[1] * log_h

    grid = np.arange(28) * 0.25 + math.log(0.01)  # 0.01 ... about 9 standard deviations
    best = max(grid, key=likelihood)
    low, high = np.clip([best - 0.25, best + 0.25], grid[0], grid[-1])
    while high - low > 0.01:
        left = low + 0.382 * (high - low)
        right = high - 0.382 * (high - low)
        low, high = (low, right) if likelihood(left) > likelihood(right) else (left, high)
    return math.exp((low + high) / 2)
