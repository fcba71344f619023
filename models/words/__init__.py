"""Texts as inputs: words with vectors, and sentence encoders."""

from __future__ import annotations

from neonxc.inputs import inputs_of
from neonxc.inputs.sentences import Sentences
from neonxc.inputs.words import Words

from .sentences import SentenceEncoder
from .vectors import WordVectors

__all__ = ["SentenceEncoder", "WordVectors"]

inputs_of.register(WordVectors, lambda vectors, head=None, names=None: Words(head, names, vectors))
inputs_of.register(SentenceEncoder, lambda encoder, head=None, names=None: Sentences(head, names, encoder))
