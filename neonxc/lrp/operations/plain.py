"""Operations, by name, through which multipliers flow as gradients do: values are added, moved or picked."""

from __future__ import annotations

ARITHMETIC = {
    *(
        "add",
        "__add__",
        "__radd__",
        "sub",
        "__sub__",
        "__rsub__",
        "rsub",
        "subtract",
        "neg",
        "__neg__",
        "negative",
    ),
    *("positive", "sum", "mean", "cumsum", "diff"),
}
LAYOUT = {
    *(
        "view",
        "view_as",
        "reshape",
        "reshape_as",
        "ravel",
        "flatten",
        "unflatten",
        "squeeze",
        "unsqueeze",
        "permute",
    ),
    *("transpose", "movedim", "moveaxis", "swapaxes", "swapdims", "t", "T", "mT", "flip", "rot90", "roll"),
    *(
        "__getitem__",
        "select",
        "narrow",
        "index_select",
        "gather",
        "take_along_dim",
        "split",
        "chunk",
        "tensor_split",
    ),
    *(
        "unbind",
        "expand",
        "expand_as",
        "broadcast_to",
        "repeat",
        "repeat_interleave",
        "tile",
        "contiguous",
        "clone",
    ),
    *("to", "type", "type_as", "float", "double", "half", "bfloat16", "cpu", "cuda"),
    *("mH", "H", "adjoint", "fliplr", "flipud", "hsplit", "vsplit", "dsplit", "split_with_sizes", "take"),
    *("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "unfold", "fold", "diagonal", "as_strided"),
}
JOINING = {
    *("cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "column_stack", "row_stack"),
    *("scatter_add", "index_add", "index_copy", "index_put", "select_scatter", "slice_scatter", "diag_embed"),
    *("pad", "where", "masked_fill", "fill", "tril", "triu", "scatter"),
}
DETACHING = {"detach", "data"}
POOLING = {f"{kind}_pool{n}d" for kind in ("avg", "max", "adaptive_avg", "adaptive_max") for n in (1, 2, 3)}
POOLING |= {f"{kind}_pool{n}d_with_indices" for kind in ("max", "adaptive_max") for n in (1, 2, 3)}
PICKING = {"max", "min", "amax", "amin", "maximum", "minimum", "topk", "sort"}
UPSAMPLING = {"interpolate", "upsample", "upsample_nearest", "upsample_bilinear"}

PLAIN = ARITHMETIC | LAYOUT | JOINING | POOLING | PICKING | UPSAMPLING

# Linear as long as one factor does not depend on the input.
PRODUCTS = {
    *("mul", "multiply", "__mul__", "__rmul__", "matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "mv", "dot"),
    *("einsum", "inner", "outer", "tensordot", "bilinear"),
}
MATRIX_PRODUCTS = {
    *("matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "mv", "dot", "einsum", "inner", "tensordot")
}
SUMS_OF_PRODUCTS = {"addmm", "baddbmm"}
QUOTIENTS = {"div", "divide", "true_divide", "__truediv__"}
SHIFTS = {"add", "__add__", "__radd__", "sub", "subtract", "__sub__", "__rsub__", "rsub"}
SCALINGS = {"mul", "multiply", "__mul__", "__rmul__"} | QUOTIENTS

BY_POSITION = PRODUCTS | QUOTIENTS | SUMS_OF_PRODUCTS  # operands of theirs may be given by these names
OPERANDS = (
    *("input", "a", "b", "mat1", "batch1", "mat2", "batch2", "other", "vec", "vec2"),
    *("tensor", "input1", "input2", "weight"),
)

# `x += y` and its like, as PyTorch calls them
IN_PLACE = {
    **{f"__i{name}__": name for name in ("add", "sub", "mul")},
    **dict.fromkeys(("__idiv__", "__itruediv__"), "div"),
    "zero_": "zeros_like",
}

# What the table in the documentation says of them
DESCRIPTIONS = [
    ("sums and means", ARITHMETIC, "in proportion to the summands; a constant absorbs its share"),
    ("reshaping and indexing", LAYOUT, "relevance moves with the values"),
    ("joining, padding, masking", JOINING, "relevance moves with the values"),
    ("detaching", DETACHING, "a constant, as is all that is computed under `torch.no_grad()`"),
    ("pooling", POOLING, "averages: in proportion to the values; maxima: to the winner"),
    ("extrema and sorting", PICKING, "to the values that were picked"),
    ("upsampling", UPSAMPLING, "in proportion to the values"),
]
