"""The head of a neuralized clustering: detection, grouping and competition, and its answers to questions."""

from neonxc.head.answer import Answer, Question, answers
from neonxc.head.head import Head, bisecting_head, centroid_head, linear_head
from neonxc.head.noise import with_noise

__all__ = ["Answer", "Head", "Question", "answers", "bisecting_head", "centroid_head", "linear_head", "with_noise"]
