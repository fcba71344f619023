"""Texts as inputs: words with vectors, and sentence encoders."""

from __future__ import annotations

from neonxc.inputs import make_inputs
from neonxc.inputs.sentences import Sentences
from neonxc.inputs.words import Words

from .sentences import SentenceEncoder
from .vectors import WordVectors

__all__ = ["SentenceEncoder", "WordVectors"]

make_inputs.register(WordVectors, lambda vectors, head=None, names=None: Words(head, names, vectors))
make_inputs.register(SentenceEncoder, lambda encoder, head=None, names=None: Sentences(head, names, encoder))
