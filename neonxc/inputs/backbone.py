"""Inputs of a feature network: LRP propagates relevance from the features to the inputs.

For features a(x) and the decision f(a) of the head with the relevance R(a), propagation starts with multipliers of
the features::

    linear rule       m_i = df / da_i
    midpoint rule     m_i = R_i(a) / a_i, and 0 where a_i = 0

LRP leads them back to multipliers, and so to relevance, of the inputs by the rules of a composite. On a map of
features [N, d, ...], every location is a point of the head.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import pandas as pd
import torch
from torch import Tensor, nn

from neonxc.common.arguments import kind_of
from neonxc.common.modules import are_separate, evaluated, parts, unwrapped
from neonxc.common.types import TableLike
from neonxc.data.inputs import as_array, check_no_bytes
from neonxc.data.sparse import SparseRows, dense
from neonxc.data.table import Table
from neonxc.head.answer import Question, answers, joined, unrows
from neonxc.inputs.base import How, Inputs, Run, check_features
from neonxc.inputs.layout import channel_dimension, check_batch

if TYPE_CHECKING:
    from neonxc.lrp import Composite

_channels_first: WeakSet[nn.Module] = WeakSet()  # networks with their channels in dimension 1


class Propagating(Inputs):
    """Base class of inputs whose relevance is propagated through a feature network."""

    rules = ("linear", "midpoint")
    propagates = True
    module: Any

    def run(self, x: Tensor, composite: Composite | None, several: bool = False) -> Run:
        """Run the feature network under LRP; `several` says whether relevance is led back more than once."""
        raise NotImplementedError

    def explain(self, x: Tensor, questions: Sequence[Question], how: How) -> Iterator[Tensor]:
        """Propagate as many decisions at once as fit into memory."""
        run = self.run(x, how.composite, len(questions) > 1)
        for first in range(0, len(questions), run.batch_size):
            batch = questions[first : first + run.batch_size]
            starts = [self.start(run.features, question, how) for question in batch]
            yield from run.back(torch.stack(starts))

    @torch.no_grad()
    def start(self, a: Tensor, question: Question, how: How) -> Tensor:
        """Compute the multipliers at the features [N, d, ...], where propagation starts."""
        multipliers = []
        for answer in answers(self.head, a.detach(), question, how.beta, how.contrast_rule):
            if how.rule == "linear":
                multipliers.append(answer.multiplier())
            else:  # relevance of an inactive feature cannot be propagated, as its multiplier is infinite
                points = dense(answer.x)
                multipliers.append(torch.where(points == 0, 0.0, answer.relevance() / points))
        n_points = sum(map(len, multipliers))
        of_points = joined(iter(multipliers), n_points)
        return unrows(of_points.to(a.dtype), a)


class Backbone(Propagating):
    """Inputs of a network of images or other tensors."""

    absent = "zero"
    has_heatmaps = True

    def _read(self, table: Table) -> Table:
        """Check inputs and convert them to the dtype of the weights."""
        table.check_no_bytes()
        x = table.tensor.to(self.device, self._dtype(table.tensor))
        weights = [weight for part in parts(self.module) for weight in part._parameters.values()]
        # the weights of a convolution have as many dimensions as a batch of its inputs: x may be a single input
        if any(weight is not None and weight.ndim == x.ndim + 1 for weight in weights):
            first_block = self.blocks(x)[0]
            check_batch(self.through, x[first_block], table.name)
        return table.holding(x)

    def _dtype(self, x: Tensor) -> torch.dtype:
        """Return the dtype of the weights; that of inputs if there are none."""
        for weight in self.module.parameters():
            if weight.is_floating_point():
                return weight.dtype
        return x.dtype

    def columns(self, X: TableLike) -> pd.DataFrame:
        """Return the features as a data frame with one row per point."""
        points = torch.cat([*self.points(X)])
        return pd.DataFrame(as_array(points), columns=self.units)

    def through(self, x: Tensor | SparseRows) -> Tensor:
        """Run the feature network."""
        assert isinstance(x, Tensor)
        check_no_bytes(x, name="x")
        with self._hints(x):
            features: Tensor = super().through(x)
        if not isinstance(features, Tensor):
            raise TypeError(
                f"the network returns {kind_of(features)}, not a tensor [N, d, ...]: return one, or pass "
                "neonxc.models.FeatureExtractor(network, layer), which takes the output of a layer"
            )
        if len(features) != len(x):
            raise ValueError(
                f"the network has features of shape {list(features.shape)} for inputs of shape {list(x.shape)}, "
                "and needs one row for each input: a single input x is x[None]"
            )
        if features.ndim > 2:
            self._check_channels(x, features)
        return features

    def _check_channels(self, x: Tensor, features: Tensor) -> None:
        """Raise a ValueError for features [N, ..., d], whose dimension 1 would be taken for the channels."""
        shape = list(features.shape)
        problem = f"the network returns features of shape {shape}, which are taken as [N, d, ...]"
        remedy = "return features.movedim(-1, 1)"
        if self.head is not None and shape[1] != self.head.n_features:
            d = self.head.n_features
            message = f"{problem}: it has {shape[1]} features, the clustering was fitted on {d}"
            if shape[-1] == d:
                message += f": for features in the last dimension, {remedy}"
            raise ValueError(message)

        # both dimensions may hold the channels only if they are of the same size
        module = unwrapped(self.module)
        if shape[1] != shape[-1] or len(shape) > 4 or hasattr(module, "wraps") or module in _channels_first:
            return
        if self._channel_dimension(module, x, features) != 1:
            raise ValueError(
                f"{problem}, and its layers seem to compute features in the last dimension, which is as large: "
                f"{remedy}[..., None], or features[..., None] if dimension 1 holds them"
            )
        _channels_first.add(module)

    def _channel_dimension(self, module: nn.Module, x: Tensor, features: Tensor) -> int:
        """Return dimension 1 of the features unless their layers write channels to another one."""
        from neonxc.models.layers import has_channels_last  # depends on this package

        run = partial(evaluated, module, compare=False)
        with suppress(Exception):  # of networks that need batches of this size, say
            dimension = channel_dimension(run, x[:2])
            if dimension is not None:
                return dimension
        return -1 if has_channels_last(module, "", features.shape) else 1

    def run(self, x: Tensor, composite: Composite | None, several: bool = False) -> Run:
        """Run the feature network under LRP."""
        self._compare_rows(x)
        with self._hints(x):
            recording = recorded(self.module, composite, x, several)
        check_features(recording.output.detach())
        return Run(recording.output, recording.propagate, recording.room)

    def between(self, base: Tensor | str, x: Tensor, t: float | Tensor, composite: Composite | None) -> Run:
        """Run the network at a point of the straight line; by default the gradient leads relevance back."""
        from neonxc.lrp import LRP, Composite, Epsilon  # loads captum, which networks of tables do without

        assert isinstance(base, Tensor)
        self._compare_rows(x)
        composite = composite or Composite(Epsilon(0.0))  # whose multipliers are the gradient
        point = base + t * (x - base)
        recording = LRP(self.module, composite).record(point, False)
        check_features(recording.output.detach())
        return Run(recording.output.detach(), lambda start: (x - base) * recording.multiplier(start))

    def _compare_rows(self, x: Tensor) -> None:
        """Run the network without LRP if it was not run before, to find out whether it mixes rows."""
        if len(x) > 1 and not are_separate(self.module):
            self.features(x)

    @contextmanager
    def _hints(self, x: Tensor) -> Iterator[None]:
        """Say more than PyTorch's errors about types, channels, and Embeddings, which never get integers."""
        try:
            yield
        except RuntimeError as error:
            if type(error) is not RuntimeError:  # LRP's errors quote the user's code
                raise
            dtype = self._dtype(x)
            if x.dtype != dtype:
                raise ValueError(f"x has dtype {x.dtype}, and the network {dtype}: pass x.to({dtype})") from error
            if "embedding" in str(error):
                raise ValueError(
                    "the network looks its inputs up in an Embedding, through which no relevance passes: leave "
                    "the Embedding out of the network, and pass X as embedding(X)"
                ) from error
            if "channels, but got" in str(error) or "input to conv" in str(error):
                shape = list(x.shape)
                raise ValueError(f"inputs {shape} are taken as [N, C, ...], channels first: {error}") from error
            raise
        except (AttributeError, TypeError) as error:  # of a model of transformers that needs texts as well
            if not hasattr(self.module, "main_input_name"):
                raise
            raise ValueError(
                f"{kind_of(self.module)} does not take X alone ({error}): pass FeatureExtractor(network) of "
                "neonxc.models for images, or SentenceEncoder(network, tokenizer) for texts"
            ) from error


def recorded(module: nn.Module, composite: Composite | None, x: Tensor, several: bool) -> Any:
    """Run a feature network under LRP, by default LRP-gamma with the weights of attention held constant.

    Every softmax is held constant, unless no relevance could pass, as the features are probabilities themselves.
    """
    from neonxc.lrp import LRP, Composite, Constant, Gamma, UnsupportedOperation  # as above

    if composite is None:
        default = Composite(Gamma(0.25), functions={torch.softmax: Constant()})
        with suppress(UnsupportedOperation):
            return LRP(module, default).record(x, several)
    return LRP(module, composite).record(x, several)
