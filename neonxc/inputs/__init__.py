"""What a network takes: the way from what users pass to the points of the head, and the way back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neonxc.common.lazy import lazy_names
from neonxc.inputs.base import Inputs, inputs_of, make_inputs
from neonxc.inputs.encoded import Encoded
from neonxc.inputs.raw_columns import RawColumns

if TYPE_CHECKING:
    from neonxc.inputs.backbone import Backbone as Backbone
else:
    __getattr__, _, _ = lazy_names(__name__)  # of what tables do without

__all__ = ["Backbone", "Encoded", "Inputs", "RawColumns", "inputs_of", "make_inputs"]
