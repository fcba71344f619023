"""Which transformers a saved file may name, and what their configurations may hold.

A configuration is data, but a few of its entries make transformers fetch other models, or run code that comes
with them: backbones, names of other places, and implementations of attention from the model hub. A file is
therefore built only if its class is one of the text encoders below, and if its configuration has none of these
entries at any depth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_NAMES = """
    Albert Bert BigBird Bloom Camembert CodeGen Cohere ConvBert CTRL Data2VecText Deberta DebertaV2 DistilBert
    Electra Ernie Esm EuroBert Exaone4 Falcon Flaubert FNet Funnel Gemma Gemma2 Gemma3Text Glm Glm4 GPT2
    GPTBigCode GPTJ GPTNeo GPTNeoX Granite Helium IBert JinaEmbeddingsV3 Llama Longformer Luke MegatronBert
    Ministral Mistral Mixtral MobileBert ModernBert ModernBertDecoder MPNet Mpt MT5Encoder Nemotron NomicBert
    Nystromformer Olmo Olmo2 Olmo3 OpenAIGPT OPT Persimmon Phi Phi3 Qwen2 Qwen2Moe Qwen3 Qwen3Moe Reformer
    RemBert RoCBert RoFormer Roberta RobertaPreLayerNorm SmolLM3 SqueezeBert StableLm Starcoder2 T5Encoder
    UMT5Encoder XGLM XLM XLMRoberta XLMRobertaXL XLNet Xmod
"""
ENCODERS = frozenset({"BertGenerationEncoder", *(f"{name}Model" for name in _NAMES.split())})
"""Classes of transformers that read texts alone, build all of their parts themselves, and fetch nothing.

Mamba, Mra and Yoso are left out: they compile kernels, or fetch them from the model hub, when they are built.
"""
FOREIGN = frozenset({"backbone", "pretrained", "remote", "hub", "timm", "url", "urls", "kernels"})
"""Words in names of entries that lead to other models or places."""
ADDRESSES = ("hf-hub:", "hf_hub:", "local-dir:", "://", "trust_remote_code")
"""What is in values that lead to other models or places."""
INNER = frozenset({"attn_config"})
"""Configurations inside another one that describe no model, as that of the attention of MPT."""
IMPLEMENTATIONS = frozenset({"eager", "sdpa", "flex_attention", "batched_mm", "grouped_mm"})
"""Implementations of attention and experts that are part of torch and transformers.

For others, such as "flash_attention_2" or "owner/name", transformers fetches kernels from the model hub and runs
them.
"""
LAYERS = 256
"""Layers at most, unless the file has more tensors: every layer takes memory before it has weights."""
LABELS = 100_000
"""Labels at most, each of which gets a name."""
READING = ("model_input_names", "truncation_side", "split_special_tokens")
"""How a tokenizer is used, apart from its special tokens."""


def check_encoder(name: object, config: object, n_tensors: int) -> None:
    """Raise a ValueError unless a class and a configuration are those of a text encoder that fetches nothing.

    Parameters
    ----------
    name : object
        Name of the class in transformers.
    config : JSON value
        Its configuration.
    n_tensors : int
        Number of tensors in the file.
    """
    if not isinstance(name, str) or name not in ENCODERS:
        raise ValueError(f"{name} is not one of the text encoders that a file may name")
    if not isinstance(config, dict):
        raise ValueError(f"the configuration of {name} is not a dictionary")
    for key, value in entries(config):
        if _is_foreign(key, value):
            raise ValueError(
                f"the configuration of {name} has the entry {key[1:]!r}, which may lead to other code or models"
            )
        if not isinstance(value, int):
            continue
        if key.endswith(".num_labels") and value > LABELS:
            raise ValueError(f"the configuration of {name} has {value:,} labels")
        if _counts_layers(key) and value > max(LAYERS, n_tensors):
            raise ValueError(
                f"the configuration of {name} has {key[1:]}={value:,}, and the file {n_tensors} tensors"
            )


def check_special(special: Mapping[str, object]) -> None:
    """Raise a ValueError unless all options of a tokenizer are special tokens, or tell how it is used."""
    unknown = [key for key in special if not (key.endswith("_token") or key in READING)]
    tokens = [value for key, value in special.items() if key.endswith("_token")]
    if unknown or not all(isinstance(token, str) for token in tokens):
        raise ValueError(f"{unknown or tokens} are not special tokens of a tokenizer")


def entries(config: object) -> Iterator[tuple[str, object]]:
    """Yield the names, with those above them, and the values of a configuration, at any depth.

    Dictionaries and lists come as empty ones, before what they hold.
    """
    waiting: list[tuple[str, object]] = [("", config)]
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, dict):
            yield key, {}
            waiting += [(f"{key}.{name}", inner) for name, inner in value.items()]
        elif isinstance(value, list | tuple):
            yield key, []
            waiting += [(key, inner) for inner in value]
        else:
            yield key, value


def _is_foreign(key: str, value: object) -> bool:
    """Tell whether an entry may make transformers fetch something, or run what it has fetched."""
    lower = key.lower()
    name = lower.rpartition(".")[2]
    words = {*lower.replace("-", "_").replace(".", "_").split("_")}
    if words & FOREIGN or "backbone" in lower or "auto_map" in lower or "pretrained" in lower:
        return True

    # Another model inside of the configuration, or a configuration of one
    is_inside = lower.count(".") > 1
    if is_inside and value and name in ("model_type", "_name_or_path", "name_or_path"):
        return True
    if name.endswith("_config") and name not in INNER and value is not None:
        return True

    if not isinstance(value, str):
        return False
    if name == "model_type" and "timm" in value:
        return True
    is_fetched = "implementation" in lower and name != "cache_implementation" and value not in IMPLEMENTATIONS
    return is_fetched or any(address in value for address in ADDRESSES)


def _counts_layers(key: str) -> bool:
    """Tell whether an entry may be a number of layers."""
    return key.endswith((".depth", ".depths", "layer", "layers", "blocks", "groups"))
