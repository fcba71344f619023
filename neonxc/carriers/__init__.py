"""Carriers: they map inputs to the points that are clustered, and relevance of the points back to the inputs."""

from neonxc.carriers.carriers import (
    Backbone,
    Carrier,
    Columns,
    Decide,
    HeadRule,
    Record,
    carrier_of,
    rows,
    unrows,
)

__all__ = [
    "Backbone",
    "Carrier",
    "Columns",
    "Decide",
    "HeadRule",
    "Record",
    "carrier_of",
    "rows",
    "unrows",
]
