"""The head of a neuralized clustering: detection, grouping and competition, and its answers to questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neonxc.common.lazy import lazy_names
from neonxc.head.answer import Answer, Question, answers
from neonxc.head.head import Head, bisecting_head, centroid_head, linear_head

if TYPE_CHECKING:
    from neonxc.head.noise import with_noise as with_noise
else:
    __getattr__, _, _ = lazy_names(__name__)  # of what few clusterings have

__all__ = ["Answer", "Head", "Question", "answers", "bisecting_head", "centroid_head", "linear_head", "with_noise"]
