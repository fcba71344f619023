"""Parts of transformers: pooling, the modules of a SentenceTransformer, and saving without pickles."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LAYERS = ("Linear", "Identity", "Tanh", "ReLU", "GELU", "Sigmoid")  # those that may follow the pooling
EXTRA = 'sentence encoders need the extra "text": pip install "neonxc[text]"'


class Pooling(nn.Module):
    """Mean of the tokens, the first token ("cls") or the last one of every text, and layers after it."""

    def __init__(self, mode: str, *after: nn.Module) -> None:
        super().__init__()
        if mode not in ("mean", "cls", "last"):
            raise ValueError(f'pooling needs "mean", "cls", "last" or a module, got {mode!r}')
        self.mode, self.after = mode, nn.Sequential(*after)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Map states [N, T, h] of tokens, of which `mask` [N, T] tells the padding, to embeddings [N, d]."""
        if self.mode == "mean":
            share = mask.to(hidden) / mask.sum(1, keepdim=True)
        else:
            place = mask.sum(1) - 1 if self.mode == "last" else torch.zeros_like(mask[:, 0], dtype=torch.int64)
            share = F.one_hot(place, mask.shape[1]).to(hidden)
        embedding: Tensor = self.after((hidden * share[..., None]).sum(1))
        return embedding


def longest_text(model: Any, tokenizer: Any) -> int:
    """Number of tokens of the longest text that a model and a tokenizer take."""
    positions = getattr(model.config, "max_position_embeddings", None) or 1 << 20
    if (padding := unplaced(model)) is not None:  # positions begin after the padding's
        positions -= padding + 1
    return int(min(tokenizer.model_max_length, positions))


def unplaced(model: Any) -> int | None:
    """Number of the padding token of a model that counts the positions of other tokens alone, as RoBERTa does."""
    if "position_ids" not in inspect.signature(model.forward).parameters:
        return None
    counts = (module for module in model.modules() if hasattr(module, "create_position_ids_from_inputs_embeds"))
    padding = getattr(next(counts, None), "padding_idx", None)
    return None if padding is None else int(padding)


def taken_apart(model: Any) -> tuple[Any, Any, nn.Module, bool, int]:
    """Transformer, tokenizer, pooling, normalization and longest text of a SentenceTransformer."""
    first, *rest = model.children()
    modes = {"mean": "mean", "cls": "cls", "lasttoken": "last"}
    names = [type(module).__name__ for module in (first, *rest)]
    plain = re.fullmatch(r"Transformer Pooling( Dense)*( Normalize)?", " ".join(names))
    mode = getattr(rest[0], "pooling_mode", None) if plain else None
    mode = mode[0] if isinstance(mode, tuple | list) and len(mode) == 1 else mode
    dense = [module for module in rest if type(module).__name__ == "Dense"]
    if plain is None or mode not in modes or any(getattr(module, "use_residual", False) for module in dense):
        raise ValueError(
            "model needs a Transformer, a Pooling of mean, cls or last token, Dense layers and Normalize, and has "
            f"{', '.join(names)}" + (f" with pooling {mode!r}" if plain else "")
        )
    after = [layer for module in dense for layer in (module.linear, module.activation_function)]
    length = first.max_seq_length or longest_text(first.auto_model, model.tokenizer)
    return first.auto_model, model.tokenizer, Pooling(modes[mode], *after), names[-1] == "Normalize", length


def recipe_of(model: Any, tokenizer: Any, pooling: Any, *options: Any) -> dict[str, Any]:
    """JSON values from which :func:`rebuilt` makes the parts of an encoder again, apart from its weights.

    Raises
    ------
    TypeError
        A model that is none of transformers, or a pooling of one's own.
    """
    layers = [_described(layer) for layer in pooling.after] if type(pooling) is Pooling else [None]
    if not type(model).__module__.startswith("transformers.") or None in layers:
        raise TypeError("can't save a SentenceEncoder with a model or a pooling of one's own")
    special = {name: token for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
    return {
        "model": type(model).__name__,
        "config": json.loads(model.config.to_json_string(use_diff=False)),
        "tokenizer": tokenizer.backend_tokenizer.to_str(),
        "special": special,
        "pooling": [pooling.mode, *layers],
        "options": options,
    }


def rebuilt(recipe: dict[str, Any]) -> tuple[Any, ...]:
    """Model with random weights, tokenizer, pooling and options of :func:`recipe_of`."""
    try:
        import transformers  # optional, and takes seconds
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ImportError(EXTRA) from error
    kind: Any = getattr(transformers, recipe["model"])
    (mode, *layers), tokens = recipe["pooling"], Tokenizer.from_str(recipe["tokenizer"])
    if not issubclass(kind, transformers.PreTrainedModel) or not {name for name, *_ in layers} <= {*LAYERS}:
        raise ValueError(f"{recipe['model']} or one of {layers} is no part of a sentence encoder")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokens, **recipe["special"])
    pooling = Pooling(mode, *(getattr(nn, name)(*sizes) for name, *sizes in layers))
    return kind(kind.config_class.from_dict(recipe["config"])), tokenizer, pooling, *recipe["options"]


def _described(layer: nn.Module) -> list[Any] | None:
    """Type and sizes of a layer after the pooling; None if it can't be described."""
    name = type(layer).__name__
    sizes = [layer.in_features, layer.out_features, layer.bias is not None] if isinstance(layer, nn.Linear) else []
    return [name, *sizes] if name in LAYERS else None
