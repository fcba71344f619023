"""Every network of timm, by its name there: blocks and normalisation as timm tells them."""

from __future__ import annotations

from typing import Any

from neonxc.common.arguments import installed_by, similar

from .network import Network, NoWeights, Weights, first_line, with_weights
from .torchvision_networks import NETWORKS

PREFIX = "timm/"
INSTALL = installed_by("timm")
COARSEST = 16  # of the blocks up to this reduction of the image's resolution, the last is the default

PATIENCE = 3  # seconds for an answer of the Hugging Face Hub


def timm_network(name: str, weights: Weights) -> Network:
    """Load the network that timm registers as `name`, and ask it what its blocks and its images are.

    timm itself would also take names of other places, such as "hf-hub:owner/model", and fetch and run what is
    there; these are refused.
    """
    timm_name = _registered(name)
    import timm  # optional, but it has registered the name

    def create(**options: Any) -> Any:
        # Transformers then interpolate their position embedding; other networks do not know the option.
        try:
            return timm.create_model(timm_name, dynamic_img_size=True, **options)
        except TypeError:
            return timm.create_model(timm_name, **options)

    def pretrained() -> Any:
        from huggingface_hub import constants
        from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

        before = constants.HF_HUB_OFFLINE
        try:
            try:
                get_session().head(constants.ENDPOINT, timeout=PATIENCE)
            except Exception:  # the kinds of errors depend on the client's version
                # the cache alone is asked, as without a connection the client would retry for most of a minute
                constants.HF_HUB_OFFLINE = True
            return create(pretrained=True)
        except Exception as error:  # no weights, no network, a full disk, a damaged file
            raise NoWeights(
                f"could not get the default weights of timm's {timm_name} ({first_line(error)})",
                "timm.list_pretrained() lists the networks that have some. ",
            ) from error
        finally:
            constants.HF_HUB_OFFLINE = before

    net: Any = with_weights(weights, create, pretrained)
    blocks = dict(enumerate(getattr(net, "feature_info", [])))
    fine_blocks = [number for number, info in blocks.items() if info["reduction"] <= COARSEST]
    default_block = max(fine_blocks, default=len(blocks) - 1)

    published = net.pretrained_cfg
    size = published["input_size"][1:]
    only_size = published["fixed_input_size"]
    if getattr(net, "dynamic_img_size", False):
        size = (224, 224)  # patches of 14, 16 and 32 pixels tile 224
        only_size = False
    return Network(
        name=PREFIX + timm_name,
        load=lambda _: net,
        layers={number: info["module"] for number, info in blocks.items()},
        default=default_block,
        mean=published["mean"],
        std=published["std"],
        size=size,
        only_size=only_size,
        class_token=getattr(net, "cls_token", True) is not None,
    )


def _registered(name: str) -> str:
    """Check that timm registers a network of this name, and return it without the prefix."""
    timm_name = str(name).removeprefix(PREFIX)
    names: list[str] = []
    described = f"those of timm ({INSTALL})"
    try:
        import timm

        names = [*timm.list_models(), *timm.list_models(include_tags=True)]
        described = "those of timm.list_models()"
    except ImportError as error:
        if timm_name != str(name):
            raise ImportError(f"{name!r} is a network of timm, an optional package: {INSTALL}") from error
    if timm_name not in names:
        hint = similar([timm_name], [*NETWORKS, *names])
        raise ValueError(f"no backbone is called {name!r}{hint}; there are: {', '.join(NETWORKS)} and {described}")
    return timm_name
