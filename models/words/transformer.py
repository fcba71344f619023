"""Parts of sentence encoders: what transformers and tokenizers take, pooling, and saving without pickles.

Pooling maps the last states h_t of the tokens t of a text to its embedding x, without the first `skip` tokens:

    mean    x = 1/T sum_t h_t           over the T tokens that are not padding; 0 for T = 0
    cls     x = h of the first token
    last    x = h of the last token
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterator
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neonxc.common.arguments import installed_by
from neonxc.common.declared import check_weights

from .encoders import READING, check_encoder, check_special
from .reading import FastTokenizer
from .static import TokenVectors

EXTRA = f'sentence encoders need the extra "text": {installed_by("text")}'
CUSTOM = "can't save a SentenceEncoder with a model or a pooling of one's own"


class Transformer(Protocol):
    """What is asked of a model of transformers, or of one that is called as these are."""

    config: Any
    forward: Any

    def __call__(self, **inputs: Any) -> Any:
        """Compute the states of tokens."""

    def get_input_embeddings(self) -> nn.Module:
        """Return the layer that maps token numbers to vectors."""

    def modules(self) -> Iterator[nn.Module]:
        """Yield the modules inside."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return the weights."""


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
        """Keep the first n dimensions of embeddings [N, d]."""
        return x[:, : self.n]


UNLIMITED = 1 << 20  # tokens of a text, where nothing sets a limit
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
        self.mode = mode
        self.after = nn.Sequential(*after)
        self.skip = skip

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Map states [N, T, h] of tokens, of which `mask` [N, T] tells the padding, to embeddings [N, d]."""
        is_used = mask & (torch.arange(mask.shape[1], device=mask.device) >= self.skip)
        used = is_used.to(torch.promote_types(hidden.dtype, torch.float32))  # half precision can't count
        # The fraction [N, T] of every token in the embedding
        if self.mode == "mean":
            fractions = used / used.sum(1, keepdim=True).clamp(min=1)  # the mean of no tokens is 0
        elif self.mode == "last":
            last = used.cumsum(1).argmax(1)
            fractions = used * F.one_hot(last, mask.shape[1]).to(used)
        else:
            first = used.argmax(1)
            fractions = mask * F.one_hot(first, mask.shape[1]).to(used)
        pooled = (hidden * fractions[..., None]).sum(1).to(hidden)
        embedding: Tensor = self.after(pooled)
        return embedding


def pretrained(name: str | os.PathLike[str]) -> tuple[Any, Any]:
    """Load model and tokenizer from a folder or a model hub; a SentenceTransformer comes without a tokenizer."""
    try:
        from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding, AutoTokenizer  # optional
        from transformers.utils.hub import cached_file
    except ImportError as error:
        raise ImportError(EXTRA) from error
    try:
        modules = cached_file(name, "modules.json", _raise_exceptions_for_missing_entries=False)
    except (OSError, ValueError) as error:
        raise FileNotFoundError(f"{name} is neither a folder nor a model that can be loaded") from error
    if modules is not None:
        try:
            from sentence_transformers import SentenceTransformer  # optional
        except ImportError as error:
            raise ImportError(f"{name} needs the package sentence-transformers") from error
        return SentenceTransformer(str(name), device="cpu"), None
    kind = type(AutoConfig.from_pretrained(name))
    has_text_encoder = kind in AutoModelForTextEncoding._model_mapping  # of T5, the encoder alone
    loader = AutoModelForTextEncoding if has_text_encoder else AutoModel
    return loader.from_pretrained(name).eval(), AutoTokenizer.from_pretrained(name)


def longest_text(model: Transformer, tokenizer: FastTokenizer) -> int:
    """Count the tokens of the longest text that a model and a tokenizer take."""
    n_positions = getattr(model.config, "max_position_embeddings", None) or UNLIMITED
    padding = uncounted_padding(model)
    if padding is not None:  # positions begin after the padding's
        n_positions -= padding + 1
    return int(min(tokenizer.model_max_length, n_positions))


def check_parts(model: object, tokenizer: object) -> None:
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


def takes(model: Transformer | nn.Module, name: str) -> bool:
    """Tell whether a model has a parameter of this name."""
    return name in inspect.signature(model.forward).parameters


def uncounted_padding(model: Transformer) -> int | None:
    """Find the padding token of a model that counts the positions of other tokens alone, as RoBERTa does."""
    if not takes(model, "position_ids"):
        return None
    counting = (module for module in model.modules() if hasattr(module, "create_position_ids_from_inputs_embeds"))
    padding = getattr(next(counting, None), "padding_idx", None)
    return None if padding is None else int(padding)


def around(
    model: Transformer, tokenizer: FastTokenizer, prompt: str
) -> tuple[tuple[int, ...], tuple[int, ...], int | None]:
    """Find the tokens before a text, with those of the prompt, the tokens after it, and the type of all tokens.

    The type is None if the model or its tokenizer has no types of tokens.
    """
    letter = tokenizer("a", return_special_tokens_mask=True)
    ids = letter["input_ids"]
    special = letter["special_tokens_mask"]
    types = {*letter.get("token_type_ids", ())}
    if not takes(model, "token_type_ids"):
        types = set()
    if len(types) > 1:
        raise ValueError(f"tokenizer needs to give all tokens of a text one type, and gives {sorted(types)}")
    token_type = types.pop() if types else None

    # The tokens of the letter, which are not special, are between those before and those after a text
    n_before = (*special, 0).index(0)
    n_letter = special.count(0)
    before = ids[:n_before]
    after = ids[n_before + n_letter :]

    encoding = tokenizer([prompt], return_special_tokens_mask=True).encodings[0]
    n_without_blanks = len(prompt.rstrip())
    of_prompt = []
    for token, is_special, (start, _) in zip(
        encoding.ids, encoding.special_tokens_mask, encoding.offsets, strict=True
    ):
        if not is_special and start < n_without_blanks:
            of_prompt.append(token)
    return (*before, *of_prompt), (*after,), token_type


def recipe_of(
    model: Transformer, tokenizer: FastTokenizer, pooling: nn.Module, *options: object
) -> dict[str, Any]:
    """Describe the parts of an encoder, apart from its weights, by JSON values for :func:`rebuilt`.

    Raises
    ------
    TypeError
        A model that is none of transformers or has other weights than its configuration tells, or a pooling of
        one's own.
    """
    if type(pooling) is not Pooling:
        raise TypeError(CUSTOM)
    layers = [_described(layer) for layer in pooling.after]
    if None in layers:
        raise TypeError(CUSTOM)
    special = {name: token for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
    return {
        "model": type(model).__name__,
        "config": _configuration(model),
        "tokenizer": tokenizer.backend_tokenizer.to_str(),
        "special": special | {name: getattr(tokenizer, name) for name in READING},
        "pooling": [pooling.mode, *layers],
        "skip": pooling.skip,
        "options": options,
    }


def _configuration(model: Transformer) -> dict[str, Any]:
    """Describe a model, apart from its weights, by JSON values, or raise a TypeError if it can't be rebuilt."""
    import transformers  # optional, and takes seconds

    if isinstance(model, TokenVectors):
        n_tokens, n_dimensions = model.embedding.weight.shape
        return {"n_tokens": n_tokens, "n_dimensions": n_dimensions}
    kind: Any = type(model)
    is_of_transformers = getattr(transformers, kind.__name__, None) is kind
    if not is_of_transformers:
        raise TypeError(CUSTOM)
    config: dict[str, Any] = json.loads(model.config.to_json_string(use_diff=False))
    weights = model.state_dict()
    try:  # what can't be loaded is not saved
        check_encoder(kind.__name__, config, len(weights))
    except ValueError as error:
        raise TypeError(f"can't save a SentenceEncoder: {error}") from None
    with torch.device("meta"):  # without memory for weights
        rebuilt_weights = kind(kind.config_class.from_dict(config)).state_dict()
    if _shapes(rebuilt_weights) != _shapes(weights):
        raise TypeError(
            f"can't save a SentenceEncoder whose {kind.__name__} has other weights than its configuration tells; "
            "merge adapters into the model"
        )
    return config


def _shapes(weights: dict[str, Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in weights.items()}


def rebuilt(recipe: dict[str, Any], saved: dict[str, Tensor]) -> tuple[Any, ...]:
    """Build the model, with random weights, the tokenizer, pooling and options that :func:`recipe_of` describes.

    Raises
    ------
    ValueError
        The recipe names another class than a text encoder, something that would be fetched, or other weights than
        the `saved` ones.
    """
    if recipe["model"] != TokenVectors.__name__:
        check_encoder(recipe["model"], recipe["config"], len(saved))
    check_special(recipe["special"])
    try:
        import transformers  # optional, and takes seconds
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ImportError(EXTRA) from error
    mode, *layers = recipe["pooling"]
    if not {name for name, *_ in layers} <= LAYERS.keys():
        raise ValueError(f"one of {layers} is not a layer of a sentence encoder")

    def build_modules() -> nn.ModuleDict:
        after = [LAYERS[name](*sizes) for name, *sizes in layers]
        pooling = Pooling(mode, *after, skip=recipe.get("skip", 0))
        model = _build_model(recipe["model"], recipe["config"])
        return nn.ModuleDict({"model": model, "pooling": pooling})

    with torch.device("meta"):  # without memory, which a configuration of a few bytes may ask for
        check_weights(build_modules(), saved)
    tokens = Tokenizer.from_str(recipe["tokenizer"])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokens, **recipe["special"])
    modules = build_modules()
    return modules["model"], tokenizer, modules["pooling"], *recipe["options"]


def _build_model(name: str, config: dict[str, Any]) -> nn.Module:
    """Build a model from the name of its class and a configuration, which are checked before."""
    import transformers  # optional, and takes seconds

    if name == TokenVectors.__name__:
        return TokenVectors(**config)
    kind: Any = getattr(transformers, name, None)
    if not getattr(kind, "__module__", "").startswith("transformers.models."):
        raise ValueError(f"transformers {transformers.__version__} has no {name}, but other versions have")
    model: nn.Module = kind(kind.config_class.from_dict(config))
    return model


def _described(layer: nn.Module) -> list[Any] | None:
    """List the type and the sizes of a layer after the pooling; None if it can't be described."""
    name = type(layer).__name__
    if LAYERS.get(name) is not type(layer):
        return None
    sizes: list[int] = []
    if isinstance(layer, nn.Linear):
        sizes = [layer.in_features, layer.out_features, layer.bias is not None]
    elif isinstance(layer, First):
        sizes = [layer.n]
    has_other_options = repr(LAYERS[name](*sizes)) != repr(layer)
    return None if has_other_options else [name, *sizes]
