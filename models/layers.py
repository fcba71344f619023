"""The output of a layer of a network: computed without the layers after it, and arranged as [N, d, ...].

    output of the layer       `tokens`          arranged (pool None)     "avg"         "class"
    [N, d]                    None              [N, d]                   [N, d]        refused
    [N, d, ...]               None              [N, d, ...]              [N, d]        refused
    [N, h, w, d]              0                 [N, d, h, w]             [N, d]        refused
    [N, P + h w, d]           P                 [N, d, h, w]             [N, d]        [N, d], token 0

`tokens` is the number P of tokens before the patches. Where it is not passed, it is inferred from the widths of
the network's layers, the proportions of maps and the stride of the first convolution (:func:`layout`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from inspect import signature
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from neonxc.common.arguments import kind_of, similar
from neonxc.common.hooks import hooked
from neonxc.common.modules import in_eval_mode

Pool = Literal["avg", "class"] | None

PROBES = 6  # patches that are changed to see the order of tokens
STRONGER = 2  # times that a token elsewhere changes more
SMALLEST = 4  # rows and columns of a map whose order can be told
MAX_PREFIX = 16  # tokens before the patches: a class token and registers
SHOWN = 5  # layers that an error names
SKEW = 1.5  # by how much the proportions of a map may differ from those of its image, as borders are padded or cut


class _LayerReached(Exception):
    """Stops the forward pass when the layer has been computed; holds an identifier of the call and the output."""


def find_module(net: nn.Module, layer: str) -> nn.Module:
    """Find the module called `layer`; if there is none, a ValueError lists similar names."""
    try:
        return net.get_submodule(layer)
    except AttributeError:
        names = [name for name, _ in net.named_modules(remove_duplicate=False)]
        raise ValueError(
            f"layer {layer!r} is not a module of {type(net).__name__}{similar([layer], names)}; "
            "see net.named_modules()"
        ) from None


def usable_layers(net: nn.Module, layer: str, run: Callable[[], object], n_inputs: int) -> str:
    """Name the layers whose output can be used in place of that of `layer`, as the end of an error.

    They are those inside of it, the last ones called, or else the nearest ones in the order of the modules.

    Parameters
    ----------
    net : nn.Module
    layer : str
    run : callable
        Runs the network, or a network around it, on `n_inputs` inputs.
    n_inputs : int
    """
    called = dict[str, None]()  # names in the order of the calls

    def recording(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: object) -> None:
            if not isinstance(output, Tensor) or not output.is_floating_point():
                return
            if output.ndim > 1 and len(output) == n_inputs:
                called[name] = None

        return hook

    names = [name for name, _ in net.named_modules() if name]
    with ExitStack() as hooks:
        for name in names:
            hooks.enter_context(hooked(net.get_submodule(name), recording(name)))
        with torch.no_grad(), suppress(Exception):  # layers before an error are usable all the same
            run()

    called.pop(layer, None)
    inside = [name for name in called if not layer or name.startswith(f"{layer}.")]
    if inside:
        return f"; inside it, {_listed(inside[-SHOWN:])} can be used"
    position = names.index(layer) if layer in names else 0
    nearest = sorted(called, key=lambda name: abs(names.index(name) - position))[:SHOWN]
    if not nearest:
        return "; no layer of the network returns a tensor [N, d, ...]"
    return f"; no layer inside it can be used, but {_listed(sorted(nearest, key=names.index))}"


def _listed(names: Sequence[str]) -> str:
    """Write names as "a, b or c"."""
    *all_but_last, last = map(repr, names)
    return f"{', '.join(all_but_last)} or {last}" if all_but_last else last


def layer_output(net: nn.Module, layer: str, images: Tensor) -> Tensor:
    """Compute the first output of `layer` when `net` is called on `images`; later layers are not computed.

    Raises a ValueError if the network does not accept images of this shape or the output has no entry per image, a
    TypeError if it is not a tensor, and a RuntimeError if the network does not call the layer.
    """
    # Several extractors may share a network, be nested and run in parallel. Therefore the exception carries the
    # output together with an identifier of its call, and the hook only acts in its own thread.
    call = object()

    def stop(module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        raise _LayerReached(call, output)

    try:
        with hooked(find_module(net, layer), stop):
            net(images)
    except _LayerReached as reached:
        reached_by, output = reached.args
        if reached_by is not call:
            raise
    except AssertionError as error:  # raised by torchvision and timm for unsupported image sizes
        shape = list(images.shape)
        raise ValueError(f"{type(net).__name__} does not take images of shape {shape}: {error}") from error
    else:
        raise RuntimeError(
            f"{type(net).__name__} does not call layer {layer!r} in its forward pass"
            f"{usable_layers(net, layer, lambda: net(images), len(images))}"
        )

    features = getattr(output, "last_hidden_state", output)  # of models of transformers
    N = len(images)
    if not isinstance(features, Tensor):
        raise TypeError(
            f"layer {layer!r} returns {kind_of(features)}, not a tensor"
            f"{usable_layers(net, layer, lambda: net(images), N)}"
        )
    if features.ndim < 2 or len(features) != N:
        raise ValueError(
            f"layer {layer!r} returns shape {list(features.shape)} for {N} images; features need shape [N, d, ...]"
            f"{usable_layers(net, layer, lambda: net(images), N)}"
        )
    return features


def check_pool(pool: Pool, tokens: int | None) -> None:
    """Raise a ValueError if `pool` or `tokens` is invalid, or if a class token is needed and there is none."""
    if pool not in ("avg", "class", None):
        raise ValueError(f'pool must be "avg", "class" or None; got {pool!r}')
    if tokens is not None and (not isinstance(tokens, int) or tokens < 0):
        raise ValueError(f"tokens must be None or the number of prefix tokens, 0 or more; got {tokens!r}")
    if pool == "class" and tokens == 0:
        raise ValueError('pool="class" needs a layer with a class token, tokens=1 or more; got tokens=0')


def arrange(features: Tensor, pool: Pool, tokens: int | None, size: Sequence[int]) -> Tensor:
    """Arrange a layer's output as [N, d, ...] and pool it; `pool` and `tokens` are as in `FeatureExtractor`.

    The output has shape [N, d], [N, d, ...] or, with `tokens`, [N, T, d] or [N, h, w, d]. The patches must form a
    grid with the aspect ratio of the image, whose height and width are `size`; otherwise a ValueError is raised.
    """
    if pool == "class" and tokens is None:
        raise ValueError(f'pool="class" needs a layer with a class token, [N, T, d]; got {list(features.shape)}')
    if tokens == 0 and features.ndim > 3:
        features = features.movedim(-1, 1)
    elif tokens is not None and features.ndim > 2:
        if features.ndim != 3 or features.shape[1] <= tokens:
            raise ValueError(
                f"tokens={tokens} needs a layer with more tokens than that, [N, T, d]; "
                f"got shape {list(features.shape)} (leave tokens out for [N, d, h, w])"
            )
        if pool == "class":
            return features[:, 0]
        features = features[:, tokens:].mT  # [N, d, patches]
        if pool is None:
            n_patches = features.shape[2]
            grid = _grid(n_patches, size)
            if grid is None:
                pixels = " x ".join(map(str, size))
                raise ValueError(
                    f"the {n_patches} patch tokens of the layer form no grid for an image of {pixels} "
                    f'pixels; set tokens to the right number of prefix tokens, or use pool="avg"'
                )
            features = features.unflatten(2, grid)
    if pool == "avg" and features.ndim > 2:
        return features.flatten(2).mean(2)
    return features


def _grid(n_patches: int, size: Sequence[int]) -> tuple[int, ...] | None:
    """Find the rows and columns of patches in the proportions of the image; None if they form no such grid.

    Those of a volume have the proportions of its three sides; steps of a series have none.
    """
    if len(size) < 2:
        return (n_patches,)
    if len(size) > 2:
        scale = (n_patches / math.prod(size)) ** (1 / len(size))
        grid = tuple(round(side * scale) for side in size)
    else:
        height, width = size
        rows = round(math.sqrt(n_patches * (height / width)))
        columns = round(math.sqrt(n_patches * (width / height)))
        grid = (rows, columns)
    return grid if math.prod(grid) == n_patches else None


def in_raster_order(net: nn.Module, layer: str, features: Tensor) -> Tensor:
    """Arrange tokens [N, T, d] of Hiera as maps [N, h, w, d]; those of other networks are returned as they are.

    Hiera sorts its patches so that those that are pooled later are neighbours, and has a function that undoes it
    for the output of its blocks (of timm) or of its last stage (of transformers).

    Raises
    ------
    ValueError
        The layer is another one inside of Hiera.
    """
    for name, module in net.named_modules():
        reroll: Any = getattr(module, "reroll", None)
        if not callable(reroll):
            continue
        is_timm = hasattr(module, "blocks")
        last_layers: tuple[str, ...]
        if is_timm:
            last_layers = ("", name)
            n_steps = len(module.blocks)
        else:
            last_layers = ("", name, name.rpartition(".")[0])
            n_steps = len(module.stages)
        if layer in last_layers:
            return cast(Tensor, reroll(features, n_steps - 1))
        prefix = f"{name}." if name else ""
        inside = layer.removeprefix(prefix)
        block = re.fullmatch(r"blocks\.(\d+)", inside)
        if block is not None:
            return cast(Tensor, reroll(features, int(block[1])))
        if layer.startswith(prefix) and not inside.startswith("patch_embed"):
            choice = 'layer=""'
            if is_timm:
                choice = f"a whole block such as {prefix + 'blocks.0'!r}"
            raise ValueError(
                f"the tokens of layer {layer!r} are not in the order of the image; choose {choice}, whose order "
                'is known, or use pool="avg"'
            )
    return features


def is_in_raster_order(features: Callable[[Tensor], Tensor], image: Tensor) -> bool:
    """Tell whether patches of an image change the features at their own positions.

    Noise is added to one patch after the other. Attention mixes the tokens, but the token of a patch changes most.
    In a network that sorts its tokens, many patches change a token elsewhere most, and each patch another one.

    Parameters
    ----------
    features : callable
        Maps images [N, C, H, W] to maps [N, d, h, w].
    image : Tensor [1, C, H, W]

    Returns
    -------
    bool
        True also if it can't be told: maps of less than 4 x 4 positions, and networks whose tokens change alike.
    """
    before = features(image)
    height, width = before.shape[2:]
    if min(height, width) < SMALLEST:
        return True
    # multiples of irrational numbers are spread evenly; the positions at the edges are left out
    numbers = range(1, PROBES + 1)
    rows = [1 + int(0.618 * number % 1 * (height - 2)) for number in numbers]
    columns = [1 + int(0.755 * number % 1 * (width - 2)) for number in numbers]
    positions = [*zip(rows, columns, strict=True)]

    deviation = float(image.std()) or 1.0
    noise = torch.randn(image.shape[1:], generator=torch.Generator().manual_seed(0)).to(image) * deviation
    images = image.repeat(PROBES, 1, 1, 1)
    for probe, (row, column) in zip(images, positions, strict=True):
        patch = _patch(image, before, row, column)
        probe[patch] += noise[patch]
    changes = (features(images) - before).norm(dim=1)  # [PROBES, h, w]

    strongest = set()  # positions that change most, where these are not the patch or beside it
    for change, (row, column) in zip(changes, positions, strict=True):
        near = change[row - 1 : row + 2, column - 1 : column + 2].max()
        if change.max() > STRONGER * near:
            strongest.add(int(change.argmax()))
    return len(strongest) < PROBES / 2


def _patch(image: Tensor, features: Tensor, row: int, column: int) -> tuple[slice, slice, slice]:
    """Find the pixels [C, H, W] at a position of a map."""
    height = image.shape[2] / features.shape[2]
    width = image.shape[3] / features.shape[3]
    rows = slice(int(row * height), int((row + 1) * height))
    columns = slice(int(column * width), int((column + 1) * width))
    return slice(None), rows, columns


def layout(net: nn.Module, layer: str, shape: Sequence[int], size: Sequence[int]) -> int | None:
    """Infer `tokens` from the shape of a layer's output for images of this height and width.

    Maps have channels first unless `has_channels_last` says otherwise. Where it does not say anything about three
    dimensions, a ValueError is raised.
    """
    if len(shape) < 3:
        return None
    if len(size) != 2:
        return _layout_of_series(net, layer, shape)
    if len(shape) > 4:
        return None
    last = has_channels_last(net, layer, shape, size)
    if len(shape) == 4:
        return 0 if last else None
    tokens = _prefix_tokens(net, shape[1], size) if last else None
    if tokens is None and last is not False:
        raise ValueError(
            f"{unclear_channels(layer, shape)}: pass tokens=, the number of class and register tokens before the "
            "patches of [N, T, d], or choose a layer that returns a map [N, d, h, w]"
        )
    return tokens


def _layout_of_series(net: nn.Module, layer: str, shape: Sequence[int]) -> int | None:
    """Infer `tokens` from the shape of a layer's output for series or volumes: 0 if its channels come last."""
    last = has_channels_last(net, layer, shape, convolved=False)
    if last is None:
        last = follows_vectors(net, layer, default=None)
    if last is None:
        raise ValueError(
            f"{unclear_channels(layer, shape)}: pass tokens=0 if it is the last one, or choose the convolution or "
            "the linear layer before it"
        )
    return 0 if last else None


def follows_vectors(net: nn.Module, layer: str, default: bool | None) -> bool | None:
    """Tell whether the layer before this one computes vectors in the last dimension, and not maps.

    Parameters
    ----------
    net : nn.Module
    layer : str
        ``""`` for the network itself, whose last layer counts.
    default : bool or None
        What is returned if there is no layer before it.
    """
    last = default
    for name, module in net.named_modules():
        if layer and name == layer:
            break
        if isinstance(module, (nn.Linear, nn.LayerNorm)):
            last = True
        elif isinstance(module, _ConvNd):
            last = False
    return last


def dimensions_of(net: nn.Module) -> int | None:
    """Count the dimensions that the first convolution of a network slides over; None if it has none."""
    first = next((module for module in net.modules() if isinstance(module, _ConvNd)), None)
    return None if first is None else first.weight.ndim - 2


def has_channels_last(
    net: nn.Module,
    layer: str,
    shape: Sequence[int],
    size: Sequence[int] | None = None,
    convolved: bool | None = None,
) -> bool | None:
    """Infer whether the last dimension of a layer's output [N, ...] holds the channels, or dimension 1.

    A convolution computes channels in dimension 1, a linear layer in the last one, where patches may also have the
    channels of a convolution. The innermost module around the layer decides in which one of both has that many
    channels. Maps of images have their proportions.

    Parameters
    ----------
    net : nn.Module
    layer : str
    shape : sequence of int
        Shape of the layer's output, of three dimensions or more.
    size : sequence of int, optional
        Height and width of the images.
    convolved : bool, optional
        Whether the last dimension may have the channels of a convolution. Default: that of [N, T, d] may.

    Returns
    -------
    bool or None
        None if both dimensions may hold the channels, or none.
    """
    if len(shape) == 4 and size is not None:
        is_map_before = _has_proportions(shape[1:3], size)
        is_map_behind = _has_proportions(shape[2:], size)
        if not (is_map_before and is_map_behind):
            return is_map_before
    if convolved is None:  # maps are too often as wide as a layer has channels
        convolved = len(shape) == 3

    names = layer.split(".")
    widths = ["in_features", "out_features"]
    if len(shape) == 3:
        widths.append("normalized_shape")
    if convolved and shape[1] != shape[-1]:
        widths.append("out_channels")
    n_last = (shape[-1], tuple(shape[-1:]))  # a width is a number, or a shape of a layer norm
    for depth in range(len(names), -1, -1):  # from the layer itself to the whole network
        module = net.get_submodule(".".join(names[:depth]))
        inner = [*module.modules()]
        fits_first = any(shape[1] == getattr(m, "out_channels", None) for m in inner)
        fits_last = any(getattr(m, name, None) in n_last for m in inner for name in widths)
        if fits_first != fits_last:
            return fits_last
    return None


def _has_proportions(sides: Sequence[int], size: Sequence[int]) -> bool:
    """Tell whether a map has about the proportions of an image of this height and width."""
    height, width = sides
    return 1 / SKEW < height * size[1] / (width * size[0]) < SKEW


def unclear_channels(layer: str, shape: Sequence[int]) -> str:
    """Say that the shape of a layer's output may be read in two ways."""
    return f"it is unclear which dimension of the output of layer {layer!r}, {list(shape)}, holds the channels"


def _prefix_tokens(net: nn.Module, n_tokens: int, size: Sequence[int]) -> int | None:
    """Count the tokens that are not patches; None if their number is unknown."""
    first = next((module for module in net.modules() if isinstance(module, nn.Conv2d)), None)
    if first is not None:
        sides = [side / stride for side, stride in zip(size, first.stride, strict=True)]
        padded = math.prod(map(math.ceil, sides))
        cut = math.prod(map(math.floor, sides))
        for n_patches in (padded, cut):
            n_prefix = n_tokens - n_patches
            if n_prefix >= 0:
                return n_prefix if n_prefix <= MAX_PREFIX else None

    # without a convolution, and where patches are merged later
    for n_prefix in range(min(n_tokens, MAX_PREFIX + 1)):
        if _grid(n_tokens - n_prefix, size):
            return n_prefix
    return None


@torch.no_grad()
def vision_settings(
    net: Any, layer: str, tokens: int | None, size: tuple[int, int] | None
) -> tuple[int | None, tuple[int, int] | None]:
    """Find the number of prefix tokens of a network of transformers, and the only size of images that it accepts.

    Raises a ValueError if it does not compute the layer from images alone, or draws patches at random.
    """
    config = getattr(net.config, "vision_config", net.config)
    side = getattr(config, "image_size", None) or 224
    height, width = (side, side) if isinstance(side, int) else side
    if tokens is None:
        shape = (1, getattr(config, "num_channels", 3), height, width)
        weight = next(net.parameters())
        images = torch.linspace(-1, 1, math.prod(shape)).view(shape).to(weight)  # no two patches are equal
        try:
            twin = in_eval_mode(net)  # other threads may train or run the network itself
            output = layer_output(twin, layer, images)
            again = layer_output(twin, layer, images) if output.ndim == 3 else output
        except Exception as error:  # whatever a network raises that lacks its texts
            raise ValueError(
                f"{type(net).__name__}, which takes {net.main_input_name}, gives no features of images at layer "
                f"{layer!r}{_vision_part(net)}: {error}"
            ) from error
        if not torch.allclose(output, again, 1e-3, 1e-3, equal_nan=True):
            raise ValueError(
                f"{type(net).__name__} draws patches at random; load its weights into a network without masks "
                "(ViTModel for ViTMAEModel)"
            )
        tokens = layout(net, layer, output.shape, (height, width))
    has_fixed_size = "interpolate_pos_encoding" in signature(net.forward).parameters
    if has_fixed_size:
        size = size or (height, width)
    return tokens, size or None


def _vision_part(net: nn.Module) -> str:
    """Advise to take the part of a network of transformers that takes images alone, if there is one."""
    for name, part in net.named_modules():
        parameters = signature(part.forward).parameters
        if name and "pixel_values" in parameters and "input_ids" not in parameters:
            return f"; pass its part {name!r} (net.{name})"
    return ""
