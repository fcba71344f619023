"""Which transformers a saved file may name, and what their configurations may hold.

A configuration is data, but a few of its entries make transformers fetch other models, or run code that comes
with them: backbones, names of other places, and implementations of attention from the model hub. A file is
therefore built only if its class is one of the text encoders below, and if its configuration has none of these
entries at any depth.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

ENCODERS = frozenset(
    f"{name}Model"
    for name in (
        *("Albert", "Bert", "BertGeneration", "BigBird", "Bloom", "Camembert", "CodeGen", "ConvBert", "Cohere"),
        *("CTRL", "Data2VecText", "Deberta", "DebertaV2", "DistilBert", "Electra", "Ernie", "Esm", "EuroBert"),
        *(
            "Exaone4",
            "Falcon",
            "Flaubert",
            "FNet",
            "Funnel",
            "Gemma",
            "Gemma2",
            "Gemma3Text",
            "Glm",
            "Glm4",
            "GPT2",
        ),
        *("GPTBigCode", "GPTJ", "GPTNeo", "GPTNeoX", "Granite", "Helium", "IBert", "JinaEmbeddingsV3", "Llama"),
        *("Longformer", "Luke", "Mamba", "MegatronBert", "Ministral", "Mistral", "Mixtral", "MobileBert"),
        *("ModernBert", "ModernBertDecoder", "MPNet", "Mpt", "Mra", "MT5Encoder", "Nemotron", "NomicBert"),
        *("Nystromformer", "Olmo", "Olmo2", "Olmo3", "OpenAIGPT", "OPT", "Persimmon", "Phi", "Phi3", "Qwen2"),
        *("Qwen2Moe", "Qwen3", "Qwen3Moe", "Reformer", "RemBert", "RoCBert", "RoFormer", "Roberta"),
        *("RobertaPreLayerNorm", "SmolLM3", "SqueezeBert", "StableLm", "Starcoder2", "T5Encoder", "UMT5Encoder"),
        *("XGLM", "XLM", "XLMRoberta", "XLMRobertaXL", "XLNet", "Xmod", "Yoso"),
    )
)
"""Classes of transformers that read texts alone, build all of their parts themselves, and fetch nothing."""
FOREIGN = frozenset({"backbone", "pretrained", "remote", "hub", "timm", "url", "urls"})
"""Words in names of entries that lead to other models or places."""
PLACES = ("hf-hub:", "hf_hub:", "local-dir:", "://", "trust_remote_code")
"""What is in values that name other places."""
LAYERS = 256
"""Layers at most, unless the file has more tensors: every layer takes memory before it has weights."""
LABELS = 100_000
"""Labels at most, each of which gets a name."""
READING = ("model_input_names", "truncation_side", "split_special_tokens")
"""How a tokenizer is used, apart from its special tokens."""


def check_encoder(name: object, config: Any, n_tensors: int) -> None:
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
    if name not in ENCODERS:
        raise ValueError(f"{name} is not one of the text encoders that a file may name")
    if not isinstance(config, dict):
        raise ValueError(f"the configuration of {name} is no dictionary")
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


def check_special(special: Any) -> None:
    """Raise a ValueError unless all options of a tokenizer are special tokens, or tell how it is used."""
    unknown = [key for key in special if not (key.endswith("_token") or key in READING)]
    tokens = [value for key, value in special.items() if key.endswith("_token")]
    if unknown or not all(isinstance(token, str) for token in tokens):
        raise ValueError(f"{unknown or tokens} are no special tokens of a tokenizer")


def entries(config: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names, with those above them, and the values of a configuration, at any depth."""
    waiting = [("", config)]
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, dict):
            yield key, None
            waiting += [(f"{key}.{name}", inner) for name, inner in value.items()]
        elif isinstance(value, list | tuple):
            yield key, None
            waiting += [(key, inner) for inner in value]
        else:
            yield key, value


def _is_foreign(key: str, value: Any) -> bool:
    """Whether an entry may make transformers fetch something, or run what it has fetched."""
    lower = key.lower()
    words = {*lower.replace("-", "_").replace(".", "_").split("_")}
    if words & FOREIGN or "backbone" in lower or "auto_map" in lower or "pretrained" in lower:
        return True
    if not isinstance(value, str):
        return False
    if lower.endswith(".model_type") and "timm" in value:
        return True
    # "owner/name" is an implementation that transformers fetches from the hub and runs
    fetched = "implementation" in lower and not value.replace("_", "").isalnum()
    return fetched or any(place in value for place in PLACES)


def _counts_layers(key: str) -> bool:
    return key.endswith((".depth", ".depths", "layer", "layers", "blocks", "groups"))
