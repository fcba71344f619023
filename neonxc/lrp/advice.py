"""What to do about functions that have no rule, for error messages."""

from __future__ import annotations

import re

from torch import Tensor

from neonxc.lrp.tensor_info import requiring_grad, tensors
from neonxc.lrp.tensor_table import Function, function_name

RECURRENT = ("gru", "lstm", "rnn_tanh", "rnn_relu", "gru_cell", "lstm_cell", "rnn_tanh_cell", "rnn_relu_cell")
FLOATING_POINT = "pass the network in floating point, as it was before its quantisation"
WRITE_OUT = "write it out in operations that have one"
OTHER_PATHS = "if other paths lead to the input"


def advice(func: Function, arguments: object, result: object) -> str:
    """Return what to do about a function without a rule, from its arguments and its result."""
    name = function_name(func)
    if name in RECURRENT:
        return f"{WRITE_OUT}: linear layers and gates (nn.Linear, torch.sigmoid, torch.tanh)"
    if is_quantised(func):
        return FLOATING_POINT
    if any(value.is_complex() for value in tensors((arguments, result))):
        return f"{WRITE_OUT}, in real numbers"
    if "." in name:  # of an operator as torch.export writes it
        return "pass the network as it was written, not an exported graph"
    sources = requiring_grad(arguments)
    may_be_elementwise = len(sources) == 1 and isinstance(result, Tensor) and result.shape == sources[0].shape
    if may_be_elementwise:
        composite = "Composite(functions={...})"
        return f"give it one with {composite}: Pass() if it is elementwise, Constant() {OTHER_PATHS}"
    return f"{WRITE_OUT}; Composite(functions={{...: Constant()}}) holds its result constant {OTHER_PATHS}"


def is_quantised(func: Function) -> bool:
    """Whether a function computes with quantised values."""
    return re.search("quantized|quantize_|fake_quant", f"{func} {function_name(func)}") is not None
