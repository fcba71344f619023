"""Parts of transformers: pooling, the modules of a SentenceTransformer, and saving without pickles."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EXTRA = 'sentence encoders need the extra "text": pip install "neonxc[text]"'


class Unit(nn.Module):
    """Scales embeddings to unit length."""

    def forward(self, x: Tensor) -> Tensor:
        """Divide embeddings [N, d] by their lengths."""
        return F.normalize(x, dim=1)


class First(nn.Module):
    """Keeps the first n dimensions of embeddings."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n

    def forward(self, x: Tensor) -> Tensor:
        """Cut embeddings [N, d] off."""
        return x[:, : self.n]


READING = ("model_input_names", "truncation_side", "split_special_tokens")  # how a tokenizer is used
POOLINGS = {"mean": "mean", "cls": "cls", "lasttoken": "last"}  # sentence-transformers' names of pooling modes
LAYERS: dict[str, type[nn.Module]] = {  # those that may follow the pooling
    layer.__name__: layer for layer in (nn.Linear, nn.Identity, nn.Tanh, nn.ReLU, nn.GELU, nn.Sigmoid, Unit, First)
}


class Pooling(nn.Module):
    """Mean of the tokens, the first token ("cls") or the last one of every text, and layers after it.

    The first `skip` tokens of every text, such as those of a prompt, are left out.
    """

    def __init__(self, mode: str, *after: nn.Module, skip: int = 0) -> None:
        super().__init__()
        if mode not in ("mean", "cls", "last"):
            raise ValueError(f'pooling needs "mean", "cls", "last" or a module, got {mode!r}')
        self.mode, self.after, self.skip = mode, nn.Sequential(*after), skip

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Map states [N, T, h] of tokens, of which `mask` [N, T] tells the padding, to embeddings [N, d]."""
        inside = mask & (torch.arange(mask.shape[1], device=mask.device) >= self.skip)
        share = inside.to(torch.promote_types(hidden.dtype, torch.float32))  # half precision can't count
        if self.mode == "mean":
            share = share / share.sum(1, keepdim=True).clamp(min=1)  # the mean of no tokens is 0
        else:
            place = share.cumsum(1).argmax(1) if self.mode == "last" else share.argmax(1)
            share = share * F.one_hot(place, mask.shape[1])
        embedding: Tensor = self.after((hidden * share[..., None]).sum(1).to(hidden))
        return embedding


def longest_text(model: Any, tokenizer: Any) -> int:
    """Number of tokens of the longest text that a model and a tokenizer take."""
    positions = getattr(model.config, "max_position_embeddings", None) or 1 << 20
    if (padding := unplaced(model)) is not None:  # positions begin after the padding's
        positions -= padding + 1
    return int(min(tokenizer.model_max_length, positions))


def check_parts(model: Any, tokenizer: Any) -> None:
    """Raise ValueError unless relevance can be propagated through a transformer to the tokens of a tokenizer."""
    kind = type(model).__name__
    if not isinstance(model, nn.Module) or not hasattr(model, "get_input_embeddings"):
        raise ValueError(f"model needs a transformer or a SentenceTransformer, got {kind}")
    if takes(model, "decoder_input_ids"):
        raise ValueError(f"model needs an encoder or a decoder, and {kind} has both; pass model.get_encoder()")
    if not takes(model, "inputs_embeds"):
        raise ValueError(f"{kind} takes no inputs_embeds, to which relevance is propagated")
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
            f"tokenizer needs a fast tokenizer, which knows where tokens are, got {type(tokenizer).__name__}"
        )


def takes(model: Any, name: str) -> bool:
    """Whether a model has a parameter of this name."""
    return name in inspect.signature(model.forward).parameters


def unplaced(model: Any) -> int | None:
    """Number of the padding token of a model that counts the positions of other tokens alone, as RoBERTa does."""
    if not takes(model, "position_ids"):
        return None
    counts = (module for module in model.modules() if hasattr(module, "create_position_ids_from_inputs_embeds"))
    padding = getattr(next(counts, None), "padding_idx", None)
    return None if padding is None else int(padding)


def prompt_of(model: Any, prompt: str | None, name: str | None) -> str:
    """Text that is put before every text, by itself or by its name among the prompts of a SentenceTransformer."""
    if prompt is not None:
        if not isinstance(prompt, str) or name is not None:
            raise ValueError(f"prompt needs a text, without prompt_name, got {prompt!r} and {name!r}")
        return prompt
    prompts, name = getattr(model, "prompts", {}), name or getattr(model, "default_prompt_name", None)
    if name is not None and name not in prompts:
        raise ValueError(
            f"prompt_name needs one of the prompts of a SentenceTransformer, {[*prompts]}, got {name!r}"
        )
    return prompts[name] or "" if name else ""


def taken_apart(
    model: Any, tokenizer: Any, pooling: Any, normalize: bool | None, prompt: str
) -> tuple[Any, Any, Pooling, bool, int]:
    """Transformer, tokenizer, pooling, normalization and longest text of a SentenceTransformer.

    Raises
    ------
    ValueError
        A module or a setting with which ``model.encode`` computes something else than these parts do, or a
        tokenizer, pooling or normalization that is not the model's.
    """
    first, own, *rest = _modules(model)
    after: list[nn.Module] = []
    for module in rest:
        dense = type(module).__name__ == "Dense"
        after += [module.linear, module.activation_function] if dense else [Unit()]
    if model.truncate_dim is not None:
        after.append(First(model.truncate_dim))
    unit, mode = bool(after) and type(after[-1]) is Unit, POOLINGS[_mode(own)]
    if tokenizer not in (None, model.tokenizer) or pooling not in (None, mode):
        raise ValueError(
            f"tokenizer and pooling are those of the SentenceTransformer ({mode!r}); to use others, pass "
            "model[0].auto_model, a tokenizer and a pooling"
        )
    if unit and normalize not in (None, True):
        raise ValueError(f"normalize needs True or None, as the model has a module Normalize, got {normalize!r}")
    skip = 0
    if prompt and not own.include_prompt:  # counted as sentence-transformers does
        ids = model.tokenizer(prompt)["input_ids"]
        skip = len(ids) - (ids[-1] in model.tokenizer.all_special_ids)
    pool = Pooling(mode, *after[: len(after) - unit], skip=skip)
    length = first.max_seq_length or longest_text(first.auto_model, model.tokenizer)
    return first.auto_model, model.tokenizer, pool, unit or bool(normalize), length


def _modules(model: Any) -> list[Any]:
    """Modules of a SentenceTransformer; a ValueError for those that can't be taken apart."""
    first, *rest = model.children()
    names = [type(module).__name__ for module in (first, *rest)]
    mode = _mode(rest[0]) if names[:2] == ["Transformer", "Pooling"] else None
    if mode not in POOLINGS or not {*names[2:]} <= {"Dense", "Normalize"}:
        raise ValueError(
            "model needs a Transformer, a Pooling of mean, cls or last token, Dense layers and Normalize, and has "
            f"{', '.join(names)}" + (f" with pooling {mode!r}" if mode else "") + "; pass "
            "SentenceTransformer(modules=[...]) with such modules, as those of one route of a Router, or a "
            "transformer, its tokenizer and a pooling module of your own"
        )
    for name, got, needed in _settings(first, rest[1:]):
        if got != needed:
            raise ValueError(f"model{name} needs to be {needed!r}, got {got!r}")
    return [first, *rest]


def _mode(pooling: Any) -> Any:
    """Mode of a Pooling of sentence-transformers; before version 5.2, it has a method for it."""
    mode = getattr(pooling, "pooling_mode", None) or pooling.get_pooling_mode_str()
    return mode[0] if isinstance(mode, tuple | list) and len(mode) == 1 else mode


def _settings(first: Any, rest: list[Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, value and supported value of the settings of modules that change what ``encode`` returns."""
    for name, plain in {
        "backend": "torch",
        "transformer_task": "feature-extraction",
        "module_output_name": "token_embeddings",
        "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
        "processing_kwargs": {},
    }.items():
        yield f"[0].{name}", getattr(first, name, plain), plain
    for number, module in enumerate(rest, 2):
        yield f"[{number}].use_residual", getattr(module, "use_residual", False), False
        for name in ("module_input_name", "module_output_name"):
            yield f"[{number}].{name}", getattr(module, name, "sentence_embedding"), "sentence_embedding"


def recipe_of(model: Any, tokenizer: Any, pooling: Any, *options: Any) -> dict[str, Any]:
    """JSON values from which :func:`rebuilt` makes the parts of an encoder again, apart from its weights.

    Raises
    ------
    TypeError
        A model that is none of transformers or has other weights than its configuration tells, or a pooling of
        one's own.
    """
    import transformers  # optional, and takes seconds

    kind = type(model)
    layers = [_described(layer) for layer in pooling.after] if type(pooling) is Pooling else [None]
    if getattr(transformers, kind.__name__, None) is not kind or None in layers:
        raise TypeError("can't save a SentenceEncoder with a model or a pooling of one's own")
    config = json.loads(model.config.to_json_string(use_diff=False))
    with torch.device("meta"):  # without memory for weights
        anew = kind(kind.config_class.from_dict(config)).state_dict()
    own = model.state_dict()
    if {name: value.shape for name, value in anew.items()} != {name: value.shape for name, value in own.items()}:
        raise TypeError(
            f"can't save a SentenceEncoder whose {kind.__name__} has other weights than its configuration tells; "
            "merge adapters into the model"
        )
    special = {name: token for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
    return {
        "model": kind.__name__,
        "config": config,
        "tokenizer": tokenizer.backend_tokenizer.to_str(),
        "special": special | {name: getattr(tokenizer, name) for name in READING},
        "pooling": [pooling.mode, *layers],
        "skip": pooling.skip,
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
    if not issubclass(kind, transformers.PreTrainedModel) or not {name for name, *_ in layers} <= LAYERS.keys():
        raise ValueError(f"{recipe['model']} or one of {layers} is no part of a sentence encoder")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokens, **recipe["special"])
    after = [LAYERS[name](*sizes) for name, *sizes in layers]
    pooling = Pooling(mode, *after, skip=recipe.get("skip", 0))
    return kind(kind.config_class.from_dict(recipe["config"])), tokenizer, pooling, *recipe["options"]


def _described(layer: nn.Module) -> list[Any] | None:
    """Type and sizes of a layer after the pooling; None if it can't be described."""
    name, sizes = type(layer).__name__, list[Any]()
    if LAYERS.get(name) is not type(layer):
        return None
    if isinstance(layer, nn.Linear):
        sizes = [layer.in_features, layer.out_features, layer.bias is not None]
    elif isinstance(layer, First):
        sizes = [layer.n]
    return [name, *sizes] if repr(LAYERS[name](*sizes)) == repr(layer) else None  # else it has other options
