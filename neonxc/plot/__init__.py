"""Matplotlib figures of explanations: heatmap overlays, contact sheets, bar charts.

Functions return a `matplotlib.figure.Figure` that belongs to the caller alone, outside pyplot's registry: a
training script may draw thousands. Show one in a notebook by naming it, keep one with ``figure.savefig(path)``.
"""

from neonxc.plot.bars import bars, summary_bars
from neonxc.plot.images import contact_sheet, heatmap_limit, overlay

__all__ = ["bars", "contact_sheet", "heatmap_limit", "overlay", "summary_bars"]
