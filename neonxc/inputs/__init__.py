"""What a network takes: the way from what users pass to the points of the head, and the way back."""

from neonxc.inputs.backbone import Backbone
from neonxc.inputs.base import Inputs, inputs_of, make_inputs
from neonxc.inputs.encoded import Encoded
from neonxc.inputs.raw_columns import RawColumns

__all__ = ["Backbone", "Encoded", "Inputs", "RawColumns", "inputs_of", "make_inputs"]
