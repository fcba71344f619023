"""Carriers: they map inputs to the points that are clustered, and relevance of the points back to the inputs."""

from neonxc.carriers.carriers import Backbone, Carrier, Columns, Decide, HeadRule, Record, carrier_of, rows, unrows
from neonxc.carriers.encoded import EncodedTable
from neonxc.carriers.terms import Terms

__all__ = [
    "Backbone",
    "Carrier",
    "Columns",
    "Decide",
    "EncodedTable",
    "HeadRule",
    "Record",
    "Terms",
    "carrier_of",
    "rows",
    "unrows",
]
