"""The `neonxc` command."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Explain clusterings: which features, which pixels make a cluster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


class Mode(str, Enum):
    """What is clustered."""

    spatial = "spatial"
    image = "image"


class Scale(str, Enum):
    """How columns are scaled before clustering."""

    none = "none"
    standard = "standard"
    minmax = "minmax"
    robust = "robust"


class Rules(str, Enum):
    """Which preset of LRP rules explains; the names of `neonxc.lrp.presets.PRESETS`."""

    gamma = "gamma"
    paper = "paper"
    epsilon = "epsilon"
    epsilon_gamma_box = "epsilon-gamma-box"


Out = Annotated[Path, typer.Option("--out", help="Folder for the results; made if need be.")]
Clusters = Annotated[int, typer.Option("--clusters", "-k", min=2, help="Number of clusters K.")]


@app.command()
def demo(out: Out = Path("neonxc-demo"), clusters: Clusters = 4) -> None:
    """Explain the spatial clusters of a photo of a cat, with a pretrained network and no download."""
    from neonxc import workflows

    photo = workflows.demo_photo()
    typer.echo(
        "k-means on the features of EfficientNet-Lite0 at every location of the photo, explained in pixels ..."
    )
    result = workflows.spatial_heatmaps([("chelsea", photo)], clusters=clusters, out=out)
    workflows.show(result)


@app.command()
def heatmap(
    images: Annotated[list[Path], typer.Argument(help="Photos.", show_default=False)],
    clusters: Clusters = 4,
    backbone: Annotated[
        str, typer.Option(help="Pretrained network: one of ours, or any of timm's by its name.")
    ] = "efficientnet_lite0",
    layer: Annotated[str | None, typer.Option(help="Module whose output is clustered.")] = None,
    mode: Annotated[
        Mode, typer.Option(help="Cluster the locations of each photo, or whole photos.")
    ] = Mode.spatial,
    size: Annotated[
        int,
        typer.Option(min=32, help="Shorter side of a photo in the network, in pixels, where it takes any size."),
    ] = 320,
    weights: Annotated[
        str, typer.Option(help='File of weights, "default", or "none" for random ones.')
    ] = "default",
    composite: Annotated[Rules, typer.Option(help="Rules of LRP.")] = Rules.gamma,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1 ...")] = "cpu",
    out: Out = Path("neonxc-heatmaps"),
    save: Annotated[
        Path | None,
        typer.Option(
            help="A .safetensors file for the relevance itself; its folder is made if need be.", show_default=False
        ),
    ] = None,
) -> None:
    """Draw what in the pixels makes each cluster."""
    from neonxc import workflows
    from neonxc.models import load_image

    if save is not None:
        workflows.check_keep(save)
    photos = [(path.stem, load_image(path, size)) for path in images]
    extract = workflows.extractor(backbone, layer, weights, device, mode.value)
    if extract.size is not None:  # read again, lest a photo that `size` made smaller be blown up
        photos = [(path.stem, load_image(path, max(extract.size))) for path in images]
    photos = [(name, workflows.fitted(photo, extract)) for name, photo in photos]
    rules = workflows.composite(composite.value, extract)
    run = workflows.spatial_heatmaps if mode is Mode.spatial else workflows.image_heatmaps
    workflows.show(run(photos, clusters, out, extract, rules, save))


@app.command()
def table(
    file: Annotated[Path, typer.Argument(help="CSV file of numbers, with or without a header.")],
    clusters: Clusters,
    out: Out = Path("neonxc-table"),
    scale: Annotated[Scale, typer.Option(help="Scaling before k-means.")] = Scale.standard,
    ignore: Annotated[
        list[str] | None, typer.Option(help="A column to leave out; may be repeated.", show_default=False)
    ] = None,
) -> None:
    """Cluster a table by k-means and explain every row's cluster by the raw columns."""
    from neonxc import workflows

    workflows.show(workflows.table_attributions(file, clusters, scale.value, ignore or [], out))


def main() -> None:
    """Run the command; an error the user can mend is one line on stderr and exit code 2."""
    try:
        code = app(standalone_mode=False)
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        code = _fail(str(error))
    except Exception as error:
        if not hasattr(error, "format_message"):  # not a usage error of the command line
            raise
        code = _fail(error.format_message())
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> int:
    if message:  # there is none where the help was printed instead
        typer.echo(f"neonxc: {' '.join(message.split())}", err=True)
    return 2
