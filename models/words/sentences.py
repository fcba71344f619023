"""Sentence encoders: transformers that map texts to embeddings, whose words are the units of explanations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neonxc.common.arguments import check_whole
from neonxc.common.modules import evaluated
from neonxc.common.progress import progress_bar
from neonxc.common.registry import Values, register
from neonxc.common.warnings import warn
from neonxc.data.words import normal

from .reading import TokenizedText, Unit, tokenized, units_of
from .sentence_transformer import check_embeddings, is_whole, prompt_of, taken_apart
from .transformer import Pooling, around, check_parts, longest_text, pretrained, rebuilt, recipe_of, unplaced
from .word_numbers import are_word_numbers, padded

TOKENS = 4096  # of a batch of texts of similar length
STATES = 10  # numbers that a layer keeps per number of its input; 40 took 1.2 to 1.5 times as long


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
        mask [N, T] of the tokens that are no padding. Default: "mean"; a ``SentenceTransformer`` has its own.
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
        tokenizer: Any = None,
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
        whole = model if is_whole(model) else None
        if whole is not None:
            parts = taken_apart(whole, tokenizer, pooling, normalize, self.prompt)
            model, tokenizer, pooling, normalize, longest = parts
        check_parts(model, tokenizer)
        self.model = model
        self.tokenizer = tokenizer
        self.normalize = normalize is None or bool(normalize)
        self.pooling = pooling if isinstance(pooling, nn.Module) else Pooling(pooling or "mean")
        self.max_tokens = longest_text(model, tokenizer) if whole is None else longest
        self._before, self._after, self._type = around(model, tokenizer, self.prompt)
        self._forget()
        if whole is not None:
            check_embeddings(whole, self)
            self._forget()
        self.max_tokens = max_tokens or self.max_tokens
        if (taken := len(self._before) + len(self._after)) >= self.max_tokens:
            raise ValueError(
                f"max_tokens needs more than the {taken} tokens around the words, with those of the prompt, got "
                f"{self.max_tokens}"
            )

    @classmethod
    def from_pretrained(cls, name: str, **options: Any) -> SentenceEncoder:
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
        """Words of each text, in the order of :meth:`encode`, as they are written.

        Parameters
        ----------
        texts : sequence of N str

        Returns
        -------
        list of list of str
        """
        return [[word for _, word, _ in units] for _, units in self._read(texts)]

    def spans(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Positions of the words in each text, ``text[start:stop]``, in the order of :meth:`encode`.

        Parameters
        ----------
        texts : sequence of N str

        Returns
        -------
        list of list of (int, int)
        """
        return [[span for *_, span in units] for _, units in self._read(texts)]

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
        cut = 0
        for encoding, units in self._read(texts):
            cut += bool(encoding.overflowing)
            before = tuple(encoding.ids[: (*encoding.special_tokens_mask, 0).index(0)])
            words = ((ids, word) for ids, word, _ in units)
            numbers.append([self._number(*word, *[before][place:]) for place, word in enumerate(words)])
        if cut:
            warn(f"{cut} of {len(numbers)} texts have more than {self.max_tokens} tokens, and are cut off there")
        return padded(numbers).to(self.device)

    @torch.no_grad()
    def points(self, texts: Sequence[str]) -> Tensor:
        """Embeddings [N, d] of texts, to fit a clusterer on them.

        Parameters
        ----------
        texts : sequence of N str
        """
        embeddings: Tensor = evaluated(self, self.encode(texts))
        return embeddings

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
        ids, batches = self._checked(ids), [*self.batches(ids)]
        embeddings = []
        for batch in progress_bar(batches, desc="texts", disable=len(batches) < 50):
            tokens = self.tokens(ids[batch])
            embeddings.append(self.embedding(self.inputs(tokens), tokens.mask, tokens.ids))
        return torch.cat(embeddings)[torch.cat(batches).argsort()]

    def inputs(self, tokens: Tensor | Tokens) -> Tensor:
        """Embeddings [N, T, e] of tokens or of their numbers, to which relevance is propagated."""
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
        if ids is not None and (padding := unplaced(self.model)) is not None:
            placed = ids != padding
            options["position_ids"] = placed.cumsum(1) * placed + padding
        output = self.model(inputs_embeds=inputs, **options)
        hidden = output[0] if isinstance(output, tuple) else getattr(output, "last_hidden_state", None)
        if hidden is None:
            raise ValueError(
                f"{type(self.model).__name__} returns no last_hidden_state; pass it without its head, as "
                "model.base_model"
            )
        pooled: Tensor = self.pooling(hidden, mask)
        found = F.normalize(pooled, dim=1) if self.normalize else pooled
        return found.to(torch.promote_types(found.dtype, torch.float32))  # NumPy has no bfloat16

    def batches(self, ids: Tensor) -> Iterator[Tensor]:
        """Yield positions of texts [N, W] of similar length, which are encoded together."""
        sizes, order = self._lengths(self._checked(ids)).cpu().sort(stable=True)
        first = 0
        lengths = sizes.tolist()
        for last in range(1, len(order) + 1):
            if last == len(order) or (last + 1 - first) * lengths[last] > TOKENS:
                yield order[first:last].to(ids.device)
                first = last

    def bytes_per_text(self, ids: Tensor) -> int:
        """Memory that a forward pass under LRP takes for each of some texts [N, W], about."""
        config = self.model.config.get_text_config()
        longest = self._lengths(ids.long()).max() if len(ids) else 1
        return int(STATES * 4 * longest * config.hidden_size * config.num_hidden_layers)

    def tokens(self, ids: Tensor) -> Tokens:
        """Token numbers of texts [N, W] of word numbers, with special tokens."""
        table, heads = self._pieces(ids.device)
        pieces = table[ids]
        before = heads[ids[:, 0]]
        word = torch.arange(ids.shape[1], device=ids.device).repeat_interleave(pieces.shape[2])
        word = F.pad(word, (before.shape[1], len(self._after)), value=-1)
        after = ids.new_tensor(self._after).expand(len(ids), -1)
        tokens = torch.cat([before, pieces.flatten(1), after], 1)
        order = (tokens < 0).long().argsort(dim=1, stable=True)  # tokens first, in their order
        order = order[:, : min(self.max_tokens, max(1, int((tokens >= 0).sum(1).max())))]
        tokens = tokens.gather(1, order)
        return Tokens(tokens.clamp(min=0), tokens >= 0, word[order].masked_fill(tokens < 0, -1))

    def word_of(self, ids: Tensor) -> Tensor:
        """Position in `words` of every word number, [N, W]; 0 where a text has ended."""
        positions = [self._position[word] for _, word, _ in self._entries]
        return torch.tensor(positions, device=ids.device)[ids.long().clamp(min=0)]

    def extra_repr(self) -> str:
        """Describe the options (for ``print``)."""
        prompt = f", prompt={self.prompt!r}" if self.prompt else ""
        return f"units={self.units!r}, normalize={self.normalize}, max_tokens={self.max_tokens}{prompt}"

    def _forget(self) -> None:
        """Start with no other word than the missing one."""
        self.words: list[str] = []
        self._position: dict[str, int] = {}  # of every word in `words`
        # Number of the tokens of a word; those with and without a space before them are two entries, as are those
        # behind a prompt whose last token goes on into the text
        self._entries: dict[tuple[tuple[int, ...], str, tuple[int, ...]], int] = {}
        self._table = self._heads = padded([()])
        mask = getattr(self.tokenizer, "mask_token_id", None)
        self.mask_word = None if mask is None else self._number((mask,), self.tokenizer.mask_token)

    def _read(self, texts: Iterable[str]) -> Iterator[tuple[TokenizedText, Iterator[Unit]]]:
        """Yield the encodings of texts, and their words or tokens."""
        for text, encoding in tokenized(texts, self.tokenizer, self.prompt, self.max_tokens):
            yield encoding, units_of(text, encoding, self.units)

    def _number(self, ids: tuple[int, ...], text: str, before: tuple[int, ...] | None = None) -> int:
        """Number of a word, which is a new one if it has not been met, or not behind such special tokens."""
        word = normal(text.strip())
        if word not in self._position:
            self._position[word] = len(self.words)
            self.words.append(word)
        before = self._before if before is None else before
        return self._entries.setdefault((ids, word, before), len(self._entries))

    def _pieces(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Tokens of all entries and, last, of a missing word, [V + 1, P], and what is before them at the start."""
        if len(self._table) <= len(self._entries) or self._table.device != device:
            pieces, _, heads = zip(*self._entries, ((), "", self._before), strict=True)
            self._table = padded(pieces).to(device)
            self._heads = padded(heads).to(device)
        return self._table, self._heads

    def _lengths(self, ids: Tensor) -> Tensor:
        """Number of tokens of texts [N, W], with special ones, [N]."""
        pieces, heads = ((table >= 0).sum(1) for table in self._pieces(ids.device))
        return pieces[ids].sum(1) + heads[ids[:, 0]] + len(self._after)

    def _checked(self, ids: Any) -> Tensor:
        """Word numbers as int64."""
        known = len(self._entries)
        if not are_word_numbers(ids, known):
            raise ValueError(
                f"ids needs a tensor [texts, words] of word numbers of this encoder, from -1 to {known - 1}, as "
                "encode(texts) returns"
            )
        return ids.long()


def _pack(encoder: SentenceEncoder) -> Values:
    options = encoder.normalize, encoder.max_tokens, encoder.units, encoder.prompt
    recipe = recipe_of(encoder.model, encoder.tokenizer, encoder.pooling, *options)
    return {"recipe": recipe} | {name: value.clone() for name, value in encoder.state_dict().items()}


def _unpack(cls: type[SentenceEncoder], values: Values) -> SentenceEncoder:
    encoder = cls(*rebuilt(values.pop("recipe"), values))
    encoder.load_state_dict(values, assign=True)  # keeps the saved precision
    return encoder.eval()


register(SentenceEncoder, _pack, _unpack)
