"""The `neonxc` command. Arguments are checked before anything heavy, such as PyTorch, is imported."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

app = typer.Typer(
    help="Explain clusterings: which features, which pixels make a cluster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

Mode = Literal["spatial", "image"]
Scale = Literal["none", "standard", "minmax", "robust"]
Rules = Literal["gamma", "paper", "epsilon", "epsilon-gamma-box"]  # the presets of neonxc.lrp


def _can_be_made(path: Path | None) -> Path | None:
    """Find out before a long computation whether a file or folder can be made; nothing is made yet."""
    if path is not None:
        parent = next(parent for parent in path.absolute().parents if parent.exists())
        if not parent.is_dir():
            raise typer.BadParameter(f"{parent} is a file; a folder is needed there.")
        if not os.access(parent, os.W_OK):
            raise typer.BadParameter(f"Can't write to the folder {parent}.")
    return path


def _safetensors(path: Path | None) -> Path | None:
    if path is not None and path.suffix != ".safetensors":
        raise typer.BadParameter(f"The file must be called .safetensors, got {path}.")
    return _can_be_made(path)


def _weights(weights: str) -> str:
    if weights not in ("default", "none") and not Path(weights).is_file():
        raise typer.BadParameter(f"No such file: {weights}. Needed is a file, 'default' or 'none'.")
    return weights


Out = Annotated[
    Path,
    typer.Option("--out", file_okay=False, callback=_can_be_made, help="Folder for the results; made if need be."),
]
Clusters = Annotated[int, typer.Option("--clusters", "-k", min=2, help="Number of clusters K.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        from neonxc import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take the options that all commands share."""


@app.command()
def demo(out: Out = Path("neonxc-demo"), clusters: Clusters = 4) -> None:
    """Explain the spatial clusters of a photo of a cat, with a pretrained network and no download."""
    from neonxc import workflows

    photo = workflows.demo_photo()
    typer.echo(
        "k-means on the features of EfficientNet-Lite0 at every location of the photo, explained in pixels ..."
    )
    workflows.show(workflows.spatial_heatmaps([("chelsea", photo)], clusters, out))


@app.command()
def heatmap(
    images: Annotated[list[Path], typer.Argument(exists=True, dir_okay=False, help="Photos.", show_default=False)],
    clusters: Clusters = 4,
    backbone: Annotated[
        str, typer.Option(help="Pretrained network: one of ours, or any of timm's by its name.")
    ] = "efficientnet_lite0",
    layer: Annotated[str | None, typer.Option(help="Module whose output is clustered.")] = None,
    mode: Annotated[Mode, typer.Option(help="Cluster the locations of each photo, or whole photos.")] = "spatial",
    size: Annotated[
        int,
        typer.Option(min=32, help="Shorter side of a photo in the network, in pixels, where it takes any size."),
    ] = 320,
    weights: Annotated[
        str, typer.Option(callback=_weights, help='File of weights, "default", or "none" for random ones.')
    ] = "default",
    composite: Annotated[Rules, typer.Option(help="Rules of LRP.")] = "gamma",
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1 ...")] = "cpu",
    out: Out = Path("neonxc-heatmaps"),
    save: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            callback=_safetensors,
            help="A .safetensors file for the relevance itself; its folder is made if need be.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Draw what in the pixels makes each cluster."""
    if mode == "image" and len(images) < clusters:
        raise ValueError(
            f"{clusters} clusters need at least as many photos, got {len(images)}; or use --mode spatial"
        )
    from neonxc import workflows
    from neonxc.models import load_image

    features = workflows.extractor(backbone, layer, weights, device, mode)
    size = size if features.size is None else max(features.size)
    photos = [(path.stem, workflows.fitted(load_image(path, size), features)) for path in images]
    run = workflows.spatial_heatmaps if mode == "spatial" else workflows.image_heatmaps
    workflows.show(run(photos, clusters, out, features, workflows.composite(composite, features), save))


@app.command()
def table(
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="CSV file of numbers, with or without a header.")
    ],
    clusters: Clusters,
    out: Out = Path("neonxc-table"),
    scale: Annotated[Scale, typer.Option(help="Scaling before k-means.")] = "standard",
    ignore: Annotated[
        list[str] | None, typer.Option(help="A column to leave out; may be repeated.", show_default=False)
    ] = None,
) -> None:
    """Cluster a table by k-means and explain every row's cluster by the raw columns."""
    from neonxc.tables import read_csv

    rows = read_csv(file, ignore or [])
    from neonxc import workflows

    workflows.show(workflows.table_attributions(rows, clusters, out, scale, file.name))


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
