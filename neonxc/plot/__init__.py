"""Pictures of explanations: heatmap overlays, contact sheets, bar charts, curves, documents.

Functions return a `matplotlib.figure.Figure` that belongs to the caller alone, outside pyplot's registry: a
training script may draw thousands. Show one in a notebook by naming it, keep one with ``figure.savefig(path)``.
:func:`text` returns documents that are shown and saved alike, as HTML.
"""

from neonxc.plot.bars import bars, summary_bars
from neonxc.plot.curves import flipping_curves
from neonxc.plot.heat import heatmap_limit
from neonxc.plot.images import contact_sheet, overlay
from neonxc.plot.text import HighlightedText, text

__all__ = [
    "HighlightedText",
    "bars",
    "contact_sheet",
    "flipping_curves",
    "heatmap_limit",
    "overlay",
    "summary_bars",
    "text",
]
