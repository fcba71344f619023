"""Every network of timm, by its name there: blocks, layout and normalisation as timm tells them."""

from __future__ import annotations

import difflib
from itertools import chain
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ..features import FeatureExtractor
from ..layout import Pool, prefix_tokens
from .builder import named
from .weights import OFFLINE, Weights, first_line, load_state_dict, read_state_dict

__all__ = ["PREFIX", "timm_extractor"]

PREFIX = "timm/"
_COARSEST = 16  # of the blocks up to this reduction of the image's resolution, the last is the default


def timm_extractor(
    name: str,
    layer: str | None = None,
    block: int | None = None,
    *,
    weights: Weights = "default",
    pool: Pool = None,
    normalize: bool = False,
) -> FeatureExtractor:
    """Build an extractor on the network that timm registers as `name`; see `neonxc.models.backbone`."""
    timm = _import_timm(name)
    name = _registered(timm, name)
    net = _load(timm, name, weights)
    layer = _layer(net, name, block) if layer is None else layer
    if pool == "class" and getattr(net, "cls_token", True) is None:
        raise ValueError(f'pool="class" needs a class token; timm\'s {name} has none')
    extractor = FeatureExtractor(
        net,
        layer,
        pool=pool,
        normalize=normalize,
        mean=net.pretrained_cfg["mean"],
        std=net.pretrained_cfg["std"],
        tokens=_tokens(net, layer),
        size=_size(net),
    )
    return named(extractor, PREFIX + name)


def _import_timm(name: str) -> ModuleType:
    try:
        import timm
    except ImportError as error:
        install = 'pip install "neonxc[timm]"'
        if str(name).startswith(PREFIX):
            raise ImportError(f"{name!r} is a network of timm, an optional package: {install}") from error
        raise _unknown(name, [], f"those of timm ({install})") from error
    return timm


def _registered(timm: ModuleType, name: str) -> str:
    # timm would also take names of other places, such as "hf-hub:owner/model", and fetch and run what is there.
    names = [*timm.list_models(), *timm.list_models(include_tags=True)]
    bare = str(name).removeprefix(PREFIX)
    if bare not in names:
        raise _unknown(name, names, "those of timm.list_models()")
    return bare


def _unknown(name: str, names: list[str], more: str) -> ValueError:
    from . import BACKBONES

    close = difflib.get_close_matches(str(name).removeprefix(PREFIX), [*BACKBONES, *names], n=5)
    hint = f"close matches: {', '.join(map(repr, dict.fromkeys(close)))}; " if close else ""
    return ValueError(f"no backbone is called {name!r}; {hint}there are: {', '.join(BACKBONES)} and {more}")


def _create(timm: ModuleType, name: str, **options: Any) -> Any:
    # Transformers then interpolate their position embedding; other networks do not know the option.
    try:
        return timm.create_model(name, dynamic_img_size=True, **options)
    except TypeError:
        return timm.create_model(name, **options)


def _load(timm: ModuleType, name: str, weights: Weights) -> Any:
    if weights == "default":
        try:
            return _create(timm, name, pretrained=True)
        except Exception as error:  # no weights, no network, a full disk, a damaged file
            raise RuntimeError(
                f"could not get the default weights of timm's {name} ({first_line(error)}). "
                f"timm.list_pretrained() are the names that have some; {OFFLINE}"
            ) from error
    state = None if weights is None else read_state_dict(weights)
    net = _create(timm, name)
    if state is not None:
        load_state_dict(net, state, str(weights))
    return net


def _layer(net: Any, name: str, block: int | None) -> str:
    blocks: list[dict[str, Any]] = list(getattr(net, "feature_info", []))
    if not blocks:
        raise ValueError(f"timm lists no blocks of {name}; needed is a layer, one of its named_modules()")
    if block is None:
        fine = [number for number, info in enumerate(blocks) if info["reduction"] <= _COARSEST]
        block = fine[-1] if fine else len(blocks) - 1
    if block not in range(len(blocks)):
        raise ValueError(f"block of {name} must be 0 to {len(blocks) - 1}; got {block!r}")
    layer: str = blocks[block]["module"]
    return layer


def _any_size(net: Any) -> bool:
    return bool(getattr(net, "dynamic_img_size", False))


def _size(net: Any) -> tuple[int, int] | None:
    _, height, width = net.pretrained_cfg["input_size"]
    return (height, width) if net.pretrained_cfg["fixed_input_size"] and not _any_size(net) else None


def _tokens(net: Any, layer: str) -> int | None:
    # Asked of the shape, not of timm, whose num_prefix_tokens holds for some layers and networks only. On the
    # meta device tensors have a shape and no values, so that this takes no time.
    extractor = FeatureExtractor(net, layer)
    tensors = chain(extractor.named_parameters(), extractor.named_buffers())
    state = {name: tensor.to("meta") for name, tensor in tensors}
    channels, *native = net.pretrained_cfg["input_size"]
    size = (224, 224) if _any_size(net) else native  # patches of 14, 16 and 32 pixels tile 224
    with torch.device("meta"), torch.no_grad():
        features: Tensor = torch.func.functional_call(extractor.eval(), state, torch.empty(1, channels, *size))
    return prefix_tokens(features.shape)
