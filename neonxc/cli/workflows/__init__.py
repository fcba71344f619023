"""The work of the commands as functions: clustering, explaining, drawing and writing."""

from neonxc.cli.workflows.images import composite, demo_photo, extractor, heatmaps
from neonxc.cli.workflows.photos import PhotoFiles, fitted
from neonxc.cli.workflows.reports import cluster_rules, photo_report, table_report, text_report, write_rules
from neonxc.cli.workflows.result import show, show_choice
from neonxc.cli.workflows.tables import applied, table_attributions
from neonxc.report.clusters import by_choice, by_column, kmeans

__all__ = [
    "PhotoFiles",
    "applied",
    "by_choice",
    "by_column",
    "cluster_rules",
    "composite",
    "demo_photo",
    "extractor",
    "fitted",
    "heatmaps",
    "kmeans",
    "photo_report",
    "show",
    "show_choice",
    "table_attributions",
    "table_report",
    "text_report",
    "write_rules",
]
