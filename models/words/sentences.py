"""Sentence encoders: transformers that map texts to embeddings, which are explained by the words of the texts.

texts -> word numbers [N, W]      encode, with a number for every word that has been met
-> tokens [N, T]            tokens, with special ones and those of the prompt around the words
-> token embeddings         inputs, to which relevance is propagated
-> last states              the transformer
-> embeddings [N, d]        embedding: pooling, layers after it, and unit length
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neonxc.common.arguments import check_whole
from neonxc.common.modules import evaluated
from neonxc.common.numbers import plural
from neonxc.common.progress import progress_bar
from neonxc.common.registry import Values, register
from neonxc.common.warnings import warn
from neonxc.data.words import normal

from .reading import FastTokenizer, TokenizedText, Word, tokenized, words_of
from .sentence_transformer import check_embeddings, is_sentence_transformer, prompt_of, taken_apart
from .transformer import (
    Pooling,
    around,
    check_parts,
    longest_text,
    pretrained,
    rebuilt,
    recipe_of,
    uncounted_padding,
)
from .word_numbers import are_word_numbers, padded

TOKENS = 4096  # of a batch of texts of similar length
STATES = 10  # numbers that a layer keeps per number of its input; 40 took 1.2 to 1.5 times as long


Entry: TypeAlias = tuple[tuple[int, ...], str, tuple[int, ...]]
"""The tokens of a word, the word, and the special tokens before it where it is the first of a text."""


class Tokens(NamedTuple):
    """Texts as a transformer reads them, each with its special tokens, padded on the right to T tokens.

    Attributes
    ----------
    ids : Tensor [N, T] of int64
    mask : Tensor [N, T] of bool
        False for padding.
    word : Tensor [N, T] of int64
        Position of the word that a token belongs to; -1 for special tokens and padding.
    """

    ids: Tensor
    mask: Tensor
    word: Tensor


class SentenceEncoder(nn.Module):
    """Feature network that maps texts to sentence embeddings, so that clusters of texts are explained by words.

    Use it as `features` of :func:`neonxc.neuralize`. :class:`neonxc.NEON` then propagates relevance through the
    transformer to its token embeddings, and sums it over the tokens of every word. Special tokens belong to no
    word, so that their relevance, and that of biases, is missing in the sum over the words. The default rules are
    LRP-epsilon with attention weights held constant.

    Parameters
    ----------
    model : PreTrainedModel or SentenceTransformer
        A transformer of the library transformers that takes ``inputs_embeds`` and ``attention_mask`` and returns a
        ``last_hidden_state``, in evaluation mode; or a ``SentenceTransformer``, whose tokenizer, pooling, dense
        layers, normalization, maximum length, default prompt and ``truncate_dim`` are used, so that embeddings are
        those of ``model.encode(texts)``. It may begin with a ``StaticEmbedding``, the mean of vectors of tokens.
    tokenizer : PreTrainedTokenizerFast
        Its tokenizer; leave it out for a ``SentenceTransformer``.
    pooling : {"mean", "cls", "last"} or nn.Module, optional
        How the tokens' last states become one embedding: their mean (with special tokens, as in
        sentence-transformers), the first or the last token, or a module called with the states [N, T, h] and the
        mask [N, T] of the tokens that are not padding. Default: "mean"; a ``SentenceTransformer`` has its own.
    normalize : bool, optional
        Whether embeddings have unit length. Explanations hold the length constant. Default: True; for a
        ``SentenceTransformer``, whether it has a module ``Normalize``, and True is that of
        ``encode(normalize_embeddings=True)``.
    max_tokens : int, optional
        Number of tokens, with special ones, after which texts are cut off, with a warning. Default: the most that
        model and tokenizer take.
    units : {"words", "tokens"}
        What relevance is given for. Words are runs of letters and digits, and single other characters, with their
        marks; words that share a token are one. In scripts without blanks between words, such as the Chinese or
        Thai one, they are characters, or the tokens that have several.
    prompt : str, optional
        Text that is put before every text, such as "query: ". Its tokens belong to no word. Default: that of
        ``default_prompt_name`` of a ``SentenceTransformer``, or none.
    prompt_name : str, optional
        Name of one of the ``prompts`` of a ``SentenceTransformer``, instead of `prompt`.

    Attributes
    ----------
    words : list of str
        Distinct words, in lower case, of all texts encoded so far.
    mask_word : int or None
        Number of the tokenizer's mask token, which stands for a missing word; None if there is none.

    Raises
    ------
    ValueError
        A tokenizer that does not tell the positions of its tokens, a model that takes no embeddings, an unknown
        option, or a module or setting of a ``SentenceTransformer`` with which ``model.encode(texts)`` returns
        other embeddings than this network.

    Notes
    -----
    Constants that a transformer adds to its token embeddings, such as those of positions, count as normalization
    of the input: their relevance goes to the token.

    Word numbers, as :meth:`encode` returns them, belong to one encoder object: they are given in the order in
    which words are met, and are not saved.
    """

    model: Any
    tokenizer: Any
    wraps = "model"  # LRP rules refer to layers by their names in this network

    def __init__(
        self,
        model: Any,
        tokenizer: FastTokenizer | None = None,
        pooling: Literal["mean", "cls", "last"] | nn.Module | None = None,
        normalize: bool | None = None,
        max_tokens: int | None = None,
        units: Literal["words", "tokens"] = "words",
        prompt: str | None = None,
        prompt_name: str | None = None,
    ) -> None:
        super().__init__()
        if units not in ("words", "tokens"):
            raise ValueError(f'units needs "words" or "tokens", got {units!r}')
        check_whole("max_tokens", max_tokens, optional=True)
        self.prompt = prompt_of(model, prompt, prompt_name)
        self.units = units
        sentence_transformer = model if is_sentence_transformer(model) else None
        longest = None
        if sentence_transformer is not None:
            parts = taken_apart(sentence_transformer, tokenizer, pooling, normalize, self.prompt)
            model, tokenizer, pooling, normalize, longest = parts
        check_parts(model, tokenizer)

        self.model = model
        self.tokenizer = tokenizer
        self.normalize = normalize is None or bool(normalize)
        self.pooling = pooling if isinstance(pooling, nn.Module) else Pooling(pooling or "mean")
        self.max_tokens = longest_text(self.model, self.tokenizer) if longest is None else longest
        self._before, self._after, self._type = around(self.model, self.tokenizer, self.prompt)
        self._forget()
        if sentence_transformer is not None:
            check_embeddings(sentence_transformer, self)
            self._forget()

        self.max_tokens = max_tokens or self.max_tokens
        n_around = len(self._before) + len(self._after)
        if n_around >= self.max_tokens:
            raise ValueError(
                f"max_tokens needs more than the {n_around} tokens around the words, with those of the prompt, "
                f"got {self.max_tokens}"
            )

    @classmethod
    def from_pretrained(cls, name: str | os.PathLike[str], **options: Any) -> SentenceEncoder:
        """Load an encoder from a folder or a model hub.

        Parameters
        ----------
        name : str or path-like
            Folder or name of a model of transformers or sentence-transformers. The latter has a file
            ``modules.json`` and needs the package sentence-transformers.
        **options
            Parameters of the class.

        Raises
        ------
        ImportError
            The extra ``text``, or sentence-transformers, is not installed.
        FileNotFoundError
            There is no such folder or model.
        """
        model, tokenizer = pretrained(name)
        return cls(model, tokenizer, **options)

    @property
    def device(self) -> torch.device:
        """Device of the transformer."""
        return next(self.model.parameters()).device

    def tokenize(self, texts: Sequence[str]) -> list[list[str]]:
        """List the words of each text, in the order of :meth:`encode`, as they are written.

        Parameters
        ----------
        texts : sequence of N str

        Returns
        -------
        list of list of str
        """
        return [[word.text for word in words] for _, words in self._read(texts)]

    def spans(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        """List the positions of the words in each text, ``text[start:stop]``, in the order of :meth:`encode`.

        Parameters
        ----------
        texts : sequence of N str

        Returns
        -------
        list of list of (int, int)
        """
        return [[word.span for word in words] for _, words in self._read(texts)]

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Convert texts to word numbers, the inputs of the network.

        Parameters
        ----------
        texts : sequence of N str

        Returns
        -------
        Tensor [N, W] of int64
            Number of every word on the device of the network; -1 after the last word of a text.

        Warns
        -----
        UserWarning
            Texts have more than `max_tokens` tokens, and are cut off.
        """
        numbers = []
        n_cut = 0
        for encoding, words in self._read(texts):
            n_cut += bool(encoding.overflowing)
            n_before = (*encoding.special_tokens_mask, 0).index(0)
            before = tuple(encoding.ids[:n_before])
            row = []
            for word in words:
                row.append(self._number(word.tokens, word.text, before))
                before = self._before  # what is before a text matters to its first word alone
            numbers.append(row)
        if n_cut:
            texts = plural(len(numbers), "text")
            verbs = ("has", "is") if n_cut == 1 else ("have", "are")
            warn(f"{n_cut} of {texts} {verbs[0]} more than {self.max_tokens} tokens, and {verbs[1]} cut off there")
        return padded(numbers).to(self.device)

    @torch.no_grad()
    def points(self, texts: Sequence[str]) -> Tensor:
        """Compute the embeddings [N, d] of texts, to fit a clusterer on them.

        Parameters
        ----------
        texts : sequence of N str
        """
        embeddings: Tensor = evaluated(self, self.encode(texts))
        return embeddings

    if TYPE_CHECKING:  # nn.Module calls `forward`, and says of it nothing but `Any`

        def __call__(self, ids: Tensor) -> Tensor:
            """Compute the embeddings of texts."""

    def forward(self, ids: Tensor) -> Tensor:
        """Compute the embeddings of texts.

        Parameters
        ----------
        ids : Tensor [N, W]
            Word numbers from :meth:`encode`, of any dtype.

        Returns
        -------
        Tensor [N, d]

        Raises
        ------
        ValueError
            The shape is wrong, or a number is not one of this encoder's words.
        """
        ids = self._checked(ids)
        batches = [*self.batches(ids)]
        embeddings = []
        for batch in progress_bar(batches, desc="texts", disable=len(batches) < 50):
            tokens = self.tokens(ids[batch])
            embeddings.append(self.embedding(self.inputs(tokens), tokens.mask, tokens.ids))
        original_order = torch.cat(batches).argsort()
        return torch.cat(embeddings)[original_order]

    def inputs(self, tokens: Tensor | Tokens) -> Tensor:
        """Look up the embeddings [N, T, e] of tokens or of their numbers, to which relevance is propagated."""
        ids = tokens.ids if isinstance(tokens, Tokens) else tokens
        embeddings: Tensor = self.model.get_input_embeddings()(ids)
        return embeddings

    def embedding(self, inputs: Tensor, mask: Tensor, ids: Tensor | None = None) -> Tensor:
        """Compute sentence embeddings of token embeddings.

        Parameters
        ----------
        inputs : Tensor [N, T, e]
        mask : Tensor [N, T] of bool
            False for padding.
        ids : Tensor [N, T] of int64, optional
            Numbers of the tokens. Models like RoBERTa give no position to a padding token in the middle of a text;
            default: there is none.
        """
        options = {"attention_mask": mask.long()}
        if self._type is not None:
            options["token_type_ids"] = torch.full_like(mask, self._type, dtype=torch.int64)
        if ids is not None:
            padding = uncounted_padding(self.model)
            if padding is not None:
                is_counted = ids != padding
                options["position_ids"] = is_counted.cumsum(1) * is_counted + padding
        output = self.model(inputs_embeds=inputs, **options)
        hidden = getattr(output, "last_hidden_state", None)
        if isinstance(output, tuple):
            hidden = output[0]
        if hidden is None:
            raise ValueError(
                f"{type(self.model).__name__} returns no last_hidden_state; pass it without its head, as "
                "model.base_model"
            )
        embedding: Tensor = self.pooling(hidden, mask)
        if self.normalize:
            embedding = F.normalize(embedding, dim=1)
        return embedding.to(torch.promote_types(embedding.dtype, torch.float32))  # NumPy has no bfloat16

    def batches(self, ids: Tensor) -> Iterator[Tensor]:
        """Yield positions of texts [N, W] of similar length, which are encoded together."""
        lengths, order = self._lengths(self._checked(ids)).cpu().sort(stable=True)
        ascending = lengths.tolist()
        start = 0
        for stop in range(1, len(order) + 1):
            # the text at `stop` would be the longest of the batch, to whose length all are padded
            if stop == len(order) or (stop + 1 - start) * ascending[stop] > TOKENS:
                yield order[start:stop].to(ids.device)
                start = stop

    def bytes_per_text(self, ids: Tensor) -> int:
        """Estimate the memory that a forward pass under LRP takes for each of the texts [N, W]."""
        config = self.model.config.get_text_config()
        longest = self._lengths(ids.long()).max() if len(ids) else 1
        return int(STATES * 4 * longest * config.hidden_size * config.num_hidden_layers)

    def tokens(self, ids: Tensor) -> Tokens:
        """Convert texts [N, W] of word numbers to tokens, with special ones."""
        tokens_of_words, tokens_before = self._token_tables(ids.device)
        words = tokens_of_words[ids]  # [N, W, P]
        before = tokens_before[ids[:, 0]]
        after = ids.new_tensor(self._after).expand(len(ids), -1)
        tokens = torch.cat([before, words.flatten(1), after], 1)
        word = torch.arange(ids.shape[1], device=ids.device).repeat_interleave(words.shape[2])
        word = F.pad(word, (before.shape[1], len(self._after)), value=-1)

        # Words of fewer than P tokens and texts of fewer than W words leave gaps, of -1: move these to the end
        is_gap = tokens < 0
        longest = max(1, int((~is_gap).sum(1).max()))
        order = is_gap.long().argsort(dim=1, stable=True)
        order = order[:, : min(self.max_tokens, longest)]
        tokens = tokens.gather(1, order)
        mask = tokens >= 0
        return Tokens(tokens.clamp(min=0), mask, word[order].masked_fill(~mask, -1))

    def word_of(self, ids: Tensor) -> Tensor:
        """Look up the position in `words` of every word number, [N, W]; it is 0 where a text has ended."""
        positions = [self._position[word] for _, word, _ in self._entries]
        return torch.tensor(positions, device=ids.device)[ids.long().clamp(min=0)]

    def extra_repr(self) -> str:
        """Describe the options (for ``print``)."""
        prompt = f", prompt={self.prompt!r}" if self.prompt else ""
        return f"units={self.units!r}, normalize={self.normalize}, max_tokens={self.max_tokens}{prompt}"

    def _forget(self) -> None:
        """Remove all words, apart from the mask token, from the numbered ones."""
        self.words: list[str] = []
        self._position: dict[str, int] = {}  # of every word in `words`
        # Number of the tokens of a word; those with and without a space before them are two entries, as are those
        # behind a prompt whose last token goes on into the text
        self._entries: dict[Entry, int] = {}
        self._tokens_of_words = padded([()])
        self._tokens_before = self._tokens_of_words
        mask = getattr(self.tokenizer, "mask_token_id", None)
        self.mask_word = None
        if mask is not None:
            self.mask_word = self._number((mask,), self.tokenizer.mask_token, self._before)

    def _read(self, texts: Iterable[str]) -> Iterator[tuple[TokenizedText, Iterator[Word]]]:
        """Yield the encodings of texts, and their words or tokens."""
        for text, encoding in tokenized(texts, self.tokenizer, self.prompt, self.max_tokens):
            yield encoding, words_of(text, encoding, self.units)

    def _number(self, tokens: tuple[int, ...], text: str, before: tuple[int, ...]) -> int:
        """Look up the number of a word, which is a new one if it has not been met behind such special tokens."""
        word = normal(text.strip())
        if word not in self._position:
            self._position[word] = len(self.words)
            self.words.append(word)
        return self._entries.setdefault((tokens, word, before), len(self._entries))

    def _token_tables(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """List the tokens of all entries and, last, of a missing word, [V + 1, P], and those before them."""
        if len(self._tokens_of_words) <= len(self._entries) or self._tokens_of_words.device != device:
            missing_word: Entry = ((), "", self._before)
            tokens, _, before = zip(*self._entries, missing_word, strict=True)
            self._tokens_of_words = padded(tokens).to(device)
            self._tokens_before = padded(before).to(device)
        return self._tokens_of_words, self._tokens_before

    def _lengths(self, ids: Tensor) -> Tensor:
        """Count the tokens of texts [N, W], with special ones, [N]."""
        tokens_of_words, tokens_before = self._token_tables(ids.device)
        n_tokens = (tokens_of_words >= 0).sum(1)
        n_before = (tokens_before >= 0).sum(1)
        return n_tokens[ids].sum(1) + n_before[ids[:, 0]] + len(self._after)

    def _checked(self, ids: Tensor) -> Tensor:
        """Convert word numbers to int64, or raise a ValueError if they are none of this encoder."""
        n_known = len(self._entries)
        if not are_word_numbers(ids, n_known):
            raise ValueError(
                f"ids needs a tensor [texts, words] of word numbers of this encoder, from -1 to {n_known - 1}, as "
                "encode(texts) returns"
            )
        return ids.long()


def _pack(encoder: SentenceEncoder) -> Values:
    options = (encoder.normalize, encoder.max_tokens, encoder.units, encoder.prompt)
    recipe = recipe_of(encoder.model, encoder.tokenizer, encoder.pooling, *options)
    weights = {name: value.clone() for name, value in encoder.state_dict().items()}
    return {"recipe": recipe} | weights


def _unpack(cls: type[SentenceEncoder], values: Values) -> SentenceEncoder:
    encoder = cls(*rebuilt(values.pop("recipe"), values))
    encoder.load_state_dict(values, assign=True)  # keeps the saved precision
    return encoder.eval()


register(SentenceEncoder, _pack, _unpack)
