"""Inputs of a feature network: LRP propagates relevance from the features to the inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any
from weakref import WeakSet

import pandas as pd
import torch
from torch import Tensor, nn

from neonxc.common.arguments import kind_of
from neonxc.common.modules import are_separate, evaluated, parts, unwrapped
from neonxc.data.inputs import as_array, check_no_bytes
from neonxc.data.sparse import dense
from neonxc.data.table import Table
from neonxc.head.answer import Question, answers, joined, unrows
from neonxc.inputs.base import How, Inputs, Run, make_inputs
from neonxc.inputs.layout import channel_dimension, check_batch

_channels_first: WeakSet[nn.Module] = WeakSet()  # networks with their channels in dimension 1


class Propagating(Inputs):
    """Base class of inputs whose relevance is propagated through a feature network."""

    rules = ("linear", "midpoint")
    propagates = True
    module: Any

    def run(self, x: Tensor, composite: Any, several: bool = False) -> Run:
        """Run the feature network under LRP; `several` says whether relevance is led back more than once."""
        raise NotImplementedError

    def explain(self, x: Tensor, questions: Sequence[Question], how: How) -> Iterator[Tensor]:
        """Propagate as many decisions at once as fit into memory."""
        run = self.run(x, how.composite, len(questions) > 1)
        for first in range(0, len(questions), run.room):
            starts = [self.start(run.features, question, how) for question in questions[first : first + run.room]]
            yield from run.back(torch.stack(starts))

    @torch.no_grad()
    def start(self, a: Tensor, question: Question, how: How) -> Tensor:
        """The multipliers at the features, where propagation starts."""
        multipliers = []
        for answer in answers(self.head, a.detach(), question, how.beta, how.share):
            if how.rule == "linear":
                multipliers.append(answer.multiplier())
            else:  # relevance of an inactive feature cannot be propagated, as its multiplier is infinite
                points = dense(answer.x)
                multipliers.append(torch.where(points == 0, 0.0, answer.relevance() / points))
        return unrows(joined(iter(multipliers), sum(map(len, multipliers))).to(a.dtype), a)


class Backbone(Propagating):
    """Inputs of a network of images or other tensors."""

    absent = "zero"
    has_heatmaps = True

    def _read(self, table: Table) -> Table:
        """Check inputs and convert them to the dtype of the weights."""
        table.check_no_bytes()
        x = table.tensor.to(self.device, self._dtype(table.tensor))
        weights = (weight for part in parts(self.module) for weight in part._parameters.values())
        if any(weight is not None and weight.ndim == x.ndim + 1 for weight in weights):  # x may be a single input
            check_batch(self.through, x[self.blocks(x)[0]], table.name)
        return table.holding(x)

    def _dtype(self, x: Tensor) -> torch.dtype:
        """The dtype of the weights; that of inputs if there are none."""
        return next((w.dtype for w in self.module.parameters() if w.is_floating_point()), x.dtype)

    def columns(self, X: Any) -> pd.DataFrame:
        """Return the features as a data frame with one row per point."""
        return pd.DataFrame(as_array(torch.cat([*self.points(X)])), columns=self.units)

    def through(self, x: Tensor) -> Tensor:
        """Run the feature network."""
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
        shown = f"the network returns features of shape {shape}, which are taken as [N, d, ...]"
        todo = "return features.movedim(-1, 1)"
        if self.head is not None and shape[1] != self.head.n_features:
            d = self.head.n_features
            last = f": for features in the last dimension, {todo}" if shape[-1] == d else ""
            raise ValueError(f"{shown}: it has {shape[1]} features, the clustering was fitted on {d}{last}")
        module = unwrapped(self.module)
        if shape[1] != shape[-1] or len(shape) > 4 or hasattr(module, "wraps") or module in _channels_first:
            return
        if self._channel_dimension(module, x, features) != 1:
            raise ValueError(
                f"{shown}, and its layers seem to compute features in the last dimension, which is as large: "
                f"{todo}[..., None], or features[..., None] if dimension 1 holds them"
            )
        _channels_first.add(module)

    def _channel_dimension(self, module: nn.Module, x: Tensor, features: Tensor) -> int:
        """Dimension 1 of the features unless their layers compute another one."""
        from neonxc.models.layers import has_channels_last  # depends on this package

        dimension = None
        with suppress(Exception):  # of networks that need batches of this size, say
            dimension = channel_dimension(partial(evaluated, module, compare=False), x[:2])
        if dimension is None:
            dimension = -1 if has_channels_last(module, "", features.shape) else 1
        return dimension

    def run(self, x: Tensor, composite: Any, several: bool = False) -> Run:
        """Run the feature network under LRP."""
        self._compare_rows(x)
        with self._hints(x):
            recording = recorded(self.module, composite, x, several)
        return Run(recording.output, recording.propagate, recording.room)

    def between(self, base: Any, x: Tensor, share: Any, composite: Any) -> Run:
        """Run a share of the way from a baseline; by default the gradient leads relevance back."""
        from neonxc.lrp import LRP, Composite, Epsilon  # loads captum, which networks of tables do without

        self._compare_rows(x)
        recording = LRP(self.module, composite or Composite(Epsilon(0.0))).record(base + share * (x - base), False)
        return Run(recording.output.detach(), lambda start: (x - base) * recording.multiplier(start))

    def _compare_rows(self, x: Tensor) -> None:
        """Run the network as it is if it was not run before, to find out whether it mixes rows."""
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
            if x.dtype != (dtype := self._dtype(x)):
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


def recorded(module: nn.Module, composite: Any, x: Tensor, several: bool) -> Any:
    """Run a feature network under LRP, by default LRP-gamma with the weights of attention held constant.

    Held constant is every softmax, unless nothing would be left, as the features are probabilities themselves.
    """
    from neonxc.lrp import LRP, Composite, Constant, Gamma, UnsupportedOperation  # as above

    if composite is None:
        held = Composite(Gamma(0.25), functions={torch.softmax: Constant()})
        with suppress(UnsupportedOperation):
            return LRP(module, held).record(x, several)
    return LRP(module, composite).record(x, several)


make_inputs.register(nn.Module, lambda module, head=None, names=None: Backbone(head, names, module))
