"""Taking a SentenceTransformer apart, so that its embeddings are those of its ``encode``.

    module of the SentenceTransformer        part of the encoder
    Transformer                              transformer and tokenizer
    StaticEmbedding                          vectors of tokens, a plain tokenizer, and the mean of the tokens
    Pooling                                  pooling
    Dense                                    a linear layer and an activation after the pooling
    Normalize                                unit length: of the embeddings where it is last, else a layer
    ``truncate_dim``                         the first dimensions, after all modules

Other modules and settings are refused, and the embeddings of a few texts are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings

import torch
from torch import nn

from .reading import FastTokenizer
from .static import TokenVectors, plain_tokenizer
from .transformer import UNLIMITED, First, Pooling, Unit, longest_text

if TYPE_CHECKING:
    from .sentences import SentenceEncoder

POOLINGS = {"mean": "mean", "cls": "cls", "lasttoken": "last"}  # names of pooling modes there and here
PARTS = "its transformer (model[0].auto_model), a tokenizer and a pooling of your own"
PROBES = ["a", " Texts of DIFFERENT lengths. "]  # whose embeddings are compared


def prompt_of(model: object, prompt: str | None, name: str | None) -> str:
    """Read the prompt, as it is or by its name among the prompts of a SentenceTransformer."""
    if prompt is not None:
        if not isinstance(prompt, str) or name is not None:
            raise ValueError(f"prompt needs a text, without prompt_name, got {prompt!r} and {name!r}")
        return prompt
    prompts = getattr(model, "prompts", {})
    name = name or getattr(model, "default_prompt_name", None)
    if name is not None and name not in prompts:
        raise ValueError(
            f"prompt_name needs one of the prompts of a SentenceTransformer, {[*prompts]}, got {name!r}"
        )
    if not name:
        return ""
    return str(prompts[name] or "")


def is_sentence_transformer(model: object) -> bool:
    """Tell whether a model is one of sentence-transformers, which is optional and not loaded here."""
    return any(base.__module__.startswith("sentence_transformers") for base in type(model).__mro__)


def taken_apart(
    model: Any, tokenizer: object, pooling: object, normalize: bool | None, prompt: str
) -> tuple[Any, FastTokenizer, Pooling, bool, int]:
    """Take the transformer, tokenizer, pooling, normalization and longest text out of a SentenceTransformer.

    Raises
    ------
    ValueError
        A module or a setting with which ``model.encode`` computes something else than these parts do, or a
        tokenizer, pooling or normalization that is not the model's.
    """
    first, *rest = _modules(model)
    own_pooling = None
    if type(first).__name__ == "StaticEmbedding":
        transformer = TokenVectors.of(first.embedding.weight)
        mode = "mean"
        own_tokenizer, longest = plain_tokenizer(first.tokenizer)
    else:
        own_pooling = rest.pop(0)
        transformer = first.auto_model
        mode = POOLINGS[_mode(own_pooling)]
        own_tokenizer = tokenizer_of(first)
        longest = first.max_seq_length or longest_text(transformer, own_tokenizer)

    layers: list[nn.Module] = []
    for module in rest:
        if type(module).__name__ == "Dense":
            layers += [module.linear, module.activation_function]
        else:
            layers.append(Unit())
    if model.truncate_dim is not None:
        layers.append(First(model.truncate_dim))
    has_unit_length = bool(layers) and type(layers[-1]) is Unit

    if tokenizer not in (None, model.tokenizer) or pooling not in (None, mode):
        raise ValueError(
            f"tokenizer and pooling are those of the SentenceTransformer, {mode!r}; to use others, pass {PARTS}"
        )
    if has_unit_length and normalize not in (None, True):
        raise ValueError(f"normalize needs True or None, as the model has a module Normalize, got {normalize!r}")

    skip = 0
    if prompt and own_pooling is not None and not own_pooling.include_prompt:
        # counted as sentence-transformers does
        ids = own_tokenizer(prompt)["input_ids"]
        skip = len(ids) - (ids[-1] in own_tokenizer.all_special_ids)
    if has_unit_length:
        layers.pop()
    pool = Pooling(mode, *layers, skip=skip)
    return (
        transformer,
        own_tokenizer,
        pool,
        has_unit_length or bool(normalize),
        min(longest or UNLIMITED, UNLIMITED),
    )


@torch.no_grad()
def check_embeddings(model: Any, encoder: SentenceEncoder) -> None:
    """Raise ValueError unless an encoder gives texts the embeddings that its SentenceTransformer gives them."""
    options = {"normalize_embeddings": encoder.normalize, "prompt": encoder.prompt, "show_progress_bar": False}
    expected = model.encode(PROBES, convert_to_tensor=True, **options)
    with catch_warnings(action="ignore"):  # texts may be cut off
        embeddings = encoder(encoder.encode(PROBES))
    differences = (embeddings - expected).norm(dim=1) / expected.norm(dim=1).clamp(min=1e-6)
    largest = float(differences.max())
    if not largest < max(0.01, torch.finfo(expected.dtype).eps ** 0.5):
        side = getattr(model.tokenizer, "padding_side", "right")
        cause = "a setting of the model or its tokenizer is not supported"
        if side != "right":
            cause = f"it gives tokens other positions; model.tokenizer.padding_side needs 'right', got {side!r}"
        raise ValueError(
            f"model.encode returns embeddings that differ from those of its modules by {largest:.1%}: {cause}"
        )


def _modules(model: Any) -> list[Any]:
    """List the modules of a SentenceTransformer; raise a ValueError for those that can't be taken apart."""
    first, *rest = model.children()
    names = [type(module).__name__ for module in (first, *rest)]
    is_static = names[0] == "StaticEmbedding"
    n_embedding = 1 if is_static else 2  # modules that embed a text; the others change its embedding
    mode = _mode(rest[0]) if names[:2] == ["Transformer", "Pooling"] else None
    is_known = is_static or mode in POOLINGS
    if not is_known or not {*names[n_embedding:]} <= {"Dense", "Normalize"}:
        with_mode = f" with pooling {mode!r}" if mode else ""
        raise ValueError(
            "model needs a Transformer and a Pooling of mean, cls or last token, or a StaticEmbedding, then Dense "
            f"layers and Normalize, and has {', '.join(names)}{with_mode}; "
            "pass SentenceTransformer(modules=[...]) with such modules, as those of one route of a Router, or "
            f"{PARTS}"
        )
    settings = _static_settings(first) if is_static else _settings(first)
    after = rest[n_embedding - 1 :]
    for name, value, supported in (*settings, *_settings_after(after, n_embedding)):
        if value != supported:
            raise ValueError(f"model{name} needs to be {supported!r}, got {value!r}; or pass {PARTS}")
    return [first, *rest]


def tokenizer_of(first: Any) -> Any:
    """Find the tokenizer of a Transformer; before version 5.4, texts are changed before they are given to it."""
    tokenizer = first.tokenizer
    if hasattr(first, "preprocess") or not tokenizer.is_fast:
        return tokenizer
    from tokenizers.normalizers import Lowercase, Sequence, Strip  # optional

    tokenizer = deepcopy(tokenizer)
    backend = tokenizer.backend_tokenizer
    normalizers: list[Any] = [Strip()]
    if first.do_lower_case:
        normalizers.append(Lowercase())
    if backend.normalizer is not None:
        normalizers.append(backend.normalizer)
    backend.normalizer = Sequence(normalizers)
    return tokenizer


def _mode(pooling: Any) -> Any:
    """Find the mode of a Pooling of sentence-transformers, for which older versions have a method."""
    mode = getattr(pooling, "pooling_mode", None) or pooling.get_pooling_mode_str()
    is_single = isinstance(mode, tuple | list) and len(mode) == 1
    return mode[0] if is_single else mode


def _static_settings(first: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, value and supported value of the settings of a StaticEmbedding."""
    for name, supported in {"mode": "mean", "padding_idx": None, "max_norm": None}.items():
        yield f"[0].embedding.{name}", getattr(first.embedding, name), supported


def _settings(first: nn.Module) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, value and supported value of the settings of a Transformer that change its embeddings."""
    all_supported: dict[str, Any] = {
        "backend": "torch",
        "transformer_task": "feature-extraction",
        "module_output_name": "token_embeddings",
        "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
        "processing_kwargs": {},
    }
    for name, supported in all_supported.items():
        yield f"[0].{name}", getattr(first, name, supported), supported


def _settings_after(modules: list[Any], start: int) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, value and supported value of the settings of the modules of numbers `start` and later."""
    for number, module in enumerate(modules, start):
        yield f"[{number}].use_residual", getattr(module, "use_residual", False), False
        activation = getattr(module, "activation_function", None)
        if activation is not None and not isinstance(activation, nn.Module):
            yield f"[{number}].activation_function", activation, nn.Module
        for name in ("module_input_name", "module_output_name"):
            yield f"[{number}].{name}", getattr(module, name, "sentence_embedding"), "sentence_embedding"
