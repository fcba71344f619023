"""Parts of sentence encoders: what transformers and tokenizers take, pooling, and saving without pickles."""

from __future__ import annotations

import inspect
import json
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neonxc.common.declared import check_weights
from neonxc.common.extras import installed_by

from .encoders import READING, check_encoder, check_special
from .static import TokenVectors

EXTRA = f'sentence encoders need the extra "text": {installed_by("text")}'
OWN = "can't save a SentenceEncoder with a model or a pooling of one's own"


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


MOST = 1 << 20  # tokens of a text, where nothing sets a limit
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
        inside = mask & (torch.arange(mask.shape[1], device=mask.device) >= self.skip)
        share = inside.to(torch.promote_types(hidden.dtype, torch.float32))  # half precision can't count
        if self.mode == "mean":
            share = share / share.sum(1, keepdim=True).clamp(min=1)  # the mean of no tokens is 0
        else:
            place = share.cumsum(1).argmax(1) if self.mode == "last" else share.argmax(1)
            share = (mask if self.mode == "cls" else share) * F.one_hot(place, mask.shape[1]).to(share)
        embedding: Tensor = self.after((hidden * share[..., None]).sum(1).to(hidden))
        return embedding


def pretrained(name: Any) -> tuple[Any, Any]:
    """Model and tokenizer of a folder or a model hub; a SentenceTransformer comes without a tokenizer."""
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
    encoders = AutoModelForTextEncoding._model_mapping  # of T5, the encoder alone
    model = (AutoModelForTextEncoding if kind in encoders else AutoModel).from_pretrained(name)
    return model.eval(), AutoTokenizer.from_pretrained(name)


def longest_text(model: Any, tokenizer: Any) -> int:
    """Number of tokens of the longest text that a model and a tokenizer take."""
    positions = getattr(model.config, "max_position_embeddings", None) or MOST
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


def around(model: Any, tokenizer: Any, prompt: str) -> tuple[tuple[int, ...], tuple[int, ...], int | None]:
    """Tokens before the words of a text, with those of a prompt, tokens after them, and the type of all tokens.

    The type is None if the model or its tokenizer has no types of tokens.
    """
    letter = tokenizer("a", return_special_tokens_mask=True)
    ids = letter["input_ids"]
    special = letter["special_tokens_mask"]
    first = (*special, 0).index(0)
    types = {*letter.get("token_type_ids", ())}
    if not takes(model, "token_type_ids"):
        types = set()
    if len(types) > 1:
        raise ValueError(f"tokenizer needs to give all tokens of a text one type, and gives {sorted(types)}")
    read = tokenizer([prompt], return_special_tokens_mask=True).encodings[0]
    end = len(prompt.rstrip())
    tokens = zip(read.ids, read.special_tokens_mask, read.offsets, strict=True)
    of_prompt = (number for number, inner, (start, _) in tokens if not inner and start < end)
    return (*ids[:first], *of_prompt), (*ids[first + special.count(0) :],), types.pop() if types else None


def recipe_of(model: Any, tokenizer: Any, pooling: Any, *options: Any) -> dict[str, Any]:
    """JSON values from which :func:`rebuilt` makes the parts of an encoder again, apart from its weights.

    Raises
    ------
    TypeError
        A model that is none of transformers or has other weights than its configuration tells, or a pooling of
        one's own.
    """
    layers = [_described(layer) for layer in pooling.after] if type(pooling) is Pooling else [None]
    if None in layers:
        raise TypeError(OWN)
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


def _configuration(model: Any) -> dict[str, Any]:
    """JSON values from which a model is built, apart from its weights; a TypeError where it can't be."""
    import transformers  # optional, and takes seconds

    if type(model) is TokenVectors:
        n_tokens, n_dimensions = model.embedding.weight.shape
        return {"n_tokens": n_tokens, "n_dimensions": n_dimensions}
    kind = type(model)
    if getattr(transformers, kind.__name__, None) is not kind:
        raise TypeError(OWN)
    config: dict[str, Any] = json.loads(model.config.to_json_string(use_diff=False))
    own = model.state_dict()
    try:  # what can't be loaded is not saved
        check_encoder(kind.__name__, config, len(own))
    except ValueError as error:
        raise TypeError(f"can't save a SentenceEncoder: {error}") from None
    with torch.device("meta"):  # without memory for weights
        anew = kind(kind.config_class.from_dict(config)).state_dict()
    if {name: value.shape for name, value in anew.items()} != {name: value.shape for name, value in own.items()}:
        raise TypeError(
            f"can't save a SentenceEncoder whose {kind.__name__} has other weights than its configuration tells; "
            "merge adapters into the model"
        )
    return config


def rebuilt(recipe: dict[str, Any], saved: dict[str, Tensor]) -> tuple[Any, ...]:
    """Model with random weights, tokenizer, pooling and options of :func:`recipe_of`.

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
        raise ValueError(f"one of {layers} is no layer of a sentence encoder")

    def made() -> nn.ModuleDict:
        after = [LAYERS[name](*sizes) for name, *sizes in layers]
        pooling = Pooling(mode, *after, skip=recipe.get("skip", 0))
        return nn.ModuleDict({"model": _built(recipe["model"], recipe["config"]), "pooling": pooling})

    with torch.device("meta"):  # without memory, which a configuration of a few bytes may ask for
        check_weights(made(), saved)
    tokens = Tokenizer.from_str(recipe["tokenizer"])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokens, **recipe["special"])
    parts = made()
    return parts["model"], tokenizer, parts["pooling"], *recipe["options"]


def _built(name: str, config: dict[str, Any]) -> nn.Module:
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
    """Type and sizes of a layer after the pooling; None if it can't be described."""
    name = type(layer).__name__
    sizes = list[Any]()
    if LAYERS.get(name) is not type(layer):
        return None
    if isinstance(layer, nn.Linear):
        sizes = [layer.in_features, layer.out_features, layer.bias is not None]
    elif isinstance(layer, First):
        sizes = [layer.n]
    return [name, *sizes] if repr(LAYERS[name](*sizes)) == repr(layer) else None  # else it has other options
