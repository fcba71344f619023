"""Attributions of a whole data set, computed batch by batch and kept in a folder of shard files."""

from neonxc.attribution.dataset.attribute import attribute_dataset
from neonxc.attribution.dataset.shards import Attributions, read_attributions

__all__ = ["Attributions", "attribute_dataset", "read_attributions"]
