"""Tables with categories and missing values as columns of numbers, which clusterers and heads work on."""

from neonxc.encoding.encoding import Encoding, as_frame, category, is_mixed

__all__ = ["Encoding", "as_frame", "category", "is_mixed"]
