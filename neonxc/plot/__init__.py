"""Pictures of explanations: heatmap overlays, contact sheets, bar charts, curves, documents.

Functions return a `matplotlib.figure.Figure` that is not registered with pyplot, so that a training script can
draw thousands of figures without closing them. A notebook displays a figure that is the last value of a cell;
``figure.savefig(path)`` saves it; :func:`to_tensorboard` writes one to TensorBoard. :func:`text` returns documents
that are displayed and saved as HTML.
"""

from neonxc.plot.bars import bars, summary_bars
from neonxc.plot.concepts import concepts
from neonxc.plot.confusions import confusions
from neonxc.plot.curves import flipping_curves
from neonxc.plot.heat import heatmap_limit
from neonxc.plot.icicle import layers
from neonxc.plot.images import contact_sheet, overlay
from neonxc.plot.pair import pair
from neonxc.plot.tensorboard import to_tensorboard
from neonxc.plot.text import HighlightedText, text

__all__ = [
    "HighlightedText",
    "bars",
    "concepts",
    "confusions",
    "contact_sheet",
    "flipping_curves",
    "heatmap_limit",
    "layers",
    "overlay",
    "pair",
    "summary_bars",
    "text",
    "to_tensorboard",
]
