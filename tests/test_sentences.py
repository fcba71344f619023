"""Sentence encoders and pairs, with random weights: every architecture, tokenizer and entry point."""

import inspect
import json
import re
import sys
from copy import deepcopy
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import ClassVar
from unicodedata import normalize
from unittest import mock

import numpy as np
import pytest
import torch
from refusals import refused, rewritten
from sklearn.cluster import KMeans
from torch.testing import assert_close
from witnesses import on_the_way

import neonxc
from neonxc import NEON
from neonxc.data.words import word_spans
from neonxc.evaluation import MaskImputer, pixel_flipping
from neonxc.lrp import LRP, Composite, Constant, Epsilon, UnsupportedOperation
from neonxc.models import SentenceEncoder
from neonxc.models.words.encoders import ENCODERS, check_encoder
from neonxc.models.words.sentence_transformer import tokenizer_of as tokenizer_before

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

TEXTS = [
    "The cat sat on the mat, purring loudly.",
    "A dog barked at the cat; it wasn't happy!",
    "Stars shine in the night sky.",
    "Planets and stars orbit, don't they?",
    "Soup with salt and pepper tastes good.",
    "Stir the soup - add salt.",
]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
BERT = {"vocab_size": 400, "pad_token_id": 0, **SIZES}
T5 = {"vocab_size": 400, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2}
MODELS = {  # names in transformers, without "Model" and "Config"
    "Bert": BERT,
    "Roberta": BERT,
    "DistilBert": {"vocab_size": 400, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
    "ModernBert": BERT | SPECIAL | {"cls_token_id": 1, "sep_token_id": 2},
    "MPNet": BERT,
    "Electra": BERT | {"embedding_size": 16},
    "Albert": BERT | {"embedding_size": 16},
    "DebertaV2": BERT | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "T5Encoder": T5,
    "GPT2": {"vocab_size": 400, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, **SPECIAL},
    "Qwen3": BERT | SPECIAL | {"num_key_value_heads": 2, "head_dim": 8},
}


def transformer(name, **changes):
    torch.manual_seed(0)
    config = getattr(transformers, f"{name.removesuffix('Encoder')}Config")(**MODELS[name] | changes)
    return getattr(transformers, f"{name}Model")(config).double().eval()


WORLD = [
    "The café's Ångström, isn't it?!",
    "我喜欢猫。我们去北京吃饭吧!AI技术2023年",
    "私はコーヒーが好きです。東京へ行きます。",
    "ภาษาไทยง่าย น้ำใจ",
    "हिन्दी में किताब है, और पानी।",
    "كِتَابٌ جميل؟ می\u200cخواهم",
    "שָׁלוֹם! ג'ירפה",
    "한국어는 재미있다. café が tiếng",
    "İstanbul ﬁn ½ ① … ㍿ ＡＢＣ co\u00adop",
    "👩🏽\u200d🚀 🇩🇪🇫🇷 ❤️😀😀 \u200b\n\n \u200fx  y ",
]
WORLD += [normalize("NFD", text) for text in WORLD]


def post_processor(template):
    return tokenizers.processors.TemplateProcessing(template, special_tokens=[("[CLS]", 2), ("[SEP]", 3)])


def tokenizer_of(kind, texts=TEXTS, size=0):
    """A tokenizer as those of BERT, RoBERTa or T5, or one whose tokens cross blanks, trained on texts."""
    models = tokenizers.models
    before = tokenizers.pre_tokenizers
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    special |= {"mask_token": "[MASK]"} if kind in ("pieces", "bytes") else {}
    names = [*special.values()]
    if kind == "pieces":
        found = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        found.normalizer = tokenizers.normalizers.BertNormalizer()
        found.pre_tokenizer = before.BertPreTokenizer()
        trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=size or 90, special_tokens=names)
    elif kind == "bytes":
        found = tokenizers.Tokenizer(models.BPE())
        alphabet = before.ByteLevel.alphabet()
        found.pre_tokenizer = before.ByteLevel(add_prefix_space=False)
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=size or 330, special_tokens=names, initial_alphabet=alphabet
        )
    else:
        found = tokenizers.Tokenizer(models.Unigram())
        found.pre_tokenizer = before.Metaspace(split=kind == "unigram")
        if size:
            found.normalizer = tokenizers.normalizers.NFKC()
        trainer = tokenizers.trainers.UnigramTrainer(
            vocab_size=size or 80, special_tokens=names, unk_token="[UNK]"
        )
    found.train_from_iterator(texts * 3, trainer)
    found.post_processor = post_processor("[CLS] $A [SEP]" if kind in ("pieces", "bytes") else "$A [SEP]")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=found, model_max_length=40, **special)


@pytest.fixture(scope="module")
def encoder():
    return SentenceEncoder(transformer("Bert"), tokenizer_of("pieces"))


@pytest.fixture(scope="module")
def net(encoder):
    model = KMeans(3, n_init=3, random_state=0).fit(encoder.points(TEXTS).numpy())
    return neonxc.neuralize(model, TEXTS, features=encoder)


# --- what the encoder computes ------------------------------------------------------------------------------


READ = [*TEXTS, "  Hello   wörld!! naïve—dash", "a", ""]
PADDED = ["The cat [PAD] sat on the mat.", "[PAD]", "dog [PAD] [PAD] barked [UNK] [MASK] night [PAD]", TEXTS[0]]


@pytest.mark.parametrize(
    ("name", "kind", "pooling"),
    [
        *(("Bert", "pieces", "cls"), ("Bert", "bytes", "mean"), ("Bert", "unigram", "last")),
        *((name, "pieces", "mean") for name in ("Bert", "Roberta", "MPNet")),
    ],
)
def test_embeddings_are_those_of_the_transformer(name, kind, pooling):
    model = transformer(name)
    tokenizer = tokenizer_of(kind)
    texts = PADDED if kind == "pieces" else READ
    encoder = SentenceEncoder(model, tokenizer, pooling, normalize=False)
    read = tokenizer(texts, padding=True, return_tensors="pt")
    hidden = model(read["input_ids"], read["attention_mask"]).last_hidden_state
    ids = encoder.encode(texts)
    for own, states, mask in zip(encoder(ids), hidden, read["attention_mask"].bool(), strict=True):
        pooled = {"mean": states[mask].mean(0), "cls": states[0], "last": states[mask][-1]}
        assert_close(own, pooled[pooling])
    net = neonxc.neuralize(encoder.points(texts)[:2], features=encoder)
    assert_close(net.inputs.run(ids.double(), None).features, encoder(ids))  # as LRP sees them


@pytest.mark.parametrize("units", ["words", "tokens"])
@pytest.mark.parametrize("kind", ["pieces", "bytes", "unigram", "crossing"])
@pytest.mark.parametrize("learned", [TEXTS, WORLD])
def test_tokens_are_divided_among_whole_words(kind, units, learned):
    own = SentenceEncoder(transformer("Bert"), tokenizer_of(kind, learned, 390), units=units, max_tokens=200)
    read = own.tokenizer(WORLD)["input_ids"]
    ids = own.tokens(own.encode(WORLD))
    rows = zip(WORLD, read, ids.ids, ids.mask, own.spans(WORLD), own.tokenize(WORLD), strict=True)
    for text, wanted, tokens, mask, spans, words in rows:
        assert tokens[mask].tolist() == wanted
        assert [text[start:stop] for start, stop in spans] == words
        assert [word.strip() for word in words] == words
        stops = [0, *(stop for _, stop in spans)]
        assert all(before <= start for before, (start, _) in zip(stops, spans, strict=False))
        if units == "words":
            starts, ends = ({span[side] for span in word_spans(text)} for side in (0, 1))
            assert all(start in starts and stop in ends for start, stop in spans)
    if (kind, units) == ("pieces", "words"):
        assert own.tokenize(["  Stir the   soup - 2nd!! "])[0] == ["Stir", "the", "soup", "-", "2nd", "!", "!"]
        assert own.tokenize(WORLD[4:5])[0] == ["हिन्दी", "में", "किताब", "है", ",", "और", "पानी", "।"]
        assert {"café", "istanbul", "한국어는"} <= {*own.words}
        assert len(own.words) == len({normalize("NFC", word) for word in own.words})


QUERY = {"prompts": {"query": "query: ", "joined": "Instruct: cat\nsearch"}, "default_prompt_name": "query"}
LEFT = {"truncation_side": "left", "model_max_length": 12}
TYPED = {"model_input_names": ["input_ids", "attention_mask", "token_type_ids"]}
CASES = {  # tokenizer, pooling, names of modules after it, settings of model, tokenizer and pooling, arguments
    "plain": {},
    "layers": {"mode": "cls", "after": ["Dense", "Normalize"]},
    "a prompt that a word goes on": {"kind": "bytes", "model": QUERY | {"default_prompt_name": "joined"}},
    "a prompt that is left out": {"kind": "bytes", "model": QUERY, "pooling": {"include_prompt": False}},
    "a prompt before the first token": {"model": QUERY, "mode": "cls", "pooling": {"include_prompt": False}},
    "a prompt before the last token": {"kind": "unigram", "model": QUERY, "mode": "lasttoken"},
    "a named prompt": {"model": QUERY, "encode": {"prompt_name": "joined"}},
    "a given prompt": {"model": QUERY, "encode": {"prompt": "passage: "}},
    "a prompt and short texts": {"model": QUERY, "tokenizer": LEFT | {"truncation_side": "right"}},
    "a prompt that is cut off": {"kind": "unigram", "model": QUERY, "tokenizer": LEFT},
    "dimensions": {"model": {"truncate_dim": 8}, "after": ["Normalize"]},
    "dimensions of unit length": {"model": {"truncate_dim": 8}, "encode": {"normalize_embeddings": True}},
    "lower case": {"kind": "bytes", "transformer": {"do_lower_case": True}},
    "no special tokens": {"kind": "bytes", "template": "$A"},
    "types of tokens": {"kind": "bytes", "tokenizer": TYPED},
    "another type": {"template": "[CLS]:1 $A:1 [SEP]:1", "tokenizer": TYPED},
    "padding before texts": {"kind": "bytes", "name": "Qwen3", "tokenizer": {"padding_side": "left"}},
}


@pytest.fixture
def whole_of(tmp_path):
    """Make a SentenceTransformer of random weights with settings, as in CASES."""
    package = pytest.importorskip("sentence_transformers")
    from sentence_transformers import models

    def make(kind="pieces", mode="mean", after=(), name="Bert", template=None, **settings):
        transformer(name).float().save_pretrained(tmp_path)
        tokenizer_of(kind).save_pretrained(tmp_path)
        first = models.Transformer(str(tmp_path), **settings.get("transformer", {}))
        if template is not None:
            first.tokenizer.backend_tokenizer.post_processor = post_processor(template)
        for key, value in settings.get("tokenizer", {}).items():
            setattr(first.tokenizer, key, value)
        more = {"Dense": lambda: models.Dense(32, 16), "Normalize": models.Normalize}
        modules = [first, models.Pooling(32, mode, **settings.get("pooling", {})), *(more[one]() for one in after)]
        return package.SentenceTransformer(modules=modules, device="cpu", **settings.get("model", {}))

    return make


@pytest.mark.filterwarnings("ignore:.*cut off:UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_embeddings_are_those_of_a_sentence_transformer(case, whole_of, tmp_path):
    options = CASES[case].get("encode", {})
    texts = [*READ, "es are searches", "cat " * 50]
    whole = whole_of(**{key: value for key, value in CASES[case].items() if key != "encode"})
    wanted = torch.from_numpy(whole.encode(texts, **options))
    own = {key.removesuffix("_embeddings"): value for key, value in options.items()}
    found = SentenceEncoder(whole, **own)
    assert_close(found.points(texts), wanted, rtol=0, atol=1e-5)
    for text, words, spans in zip(texts, found.tokenize(texts), found.spans(texts), strict=True):
        assert [text[start:stop] for start, stop in spans] == words
    net = neonxc.neuralize(wanted[:3].numpy(), texts, features=found)
    neonxc.save(net, tmp_path / "net.safetensors")
    loaded = neonxc.load(tmp_path / "net.safetensors")
    assert_close(loaded.inputs.module.points(texts), wanted, rtol=0, atol=1e-5)
    relevance = [NEON(one).attribute(texts) for one in (net, loaded)]
    assert relevance[0].shape == found.encode(texts).shape
    np.testing.assert_allclose(*relevance, rtol=1e-4, atol=1e-5)


def test_a_folder_has_its_prompt_in_the_command_too(whole_of, tmp_path, neonxc_command):
    whole = whole_of(model=QUERY, after=["Normalize"])
    whole.save(str(tmp_path / "whole"))
    found = SentenceEncoder.from_pretrained(tmp_path / "whole")
    assert_close(found.points(TEXTS), torch.from_numpy(whole.encode(TEXTS)), rtol=0, atol=1e-5)
    (tmp_path / "texts.txt").write_text("\n".join([*TEXTS * 2, "cat " * 50]))
    asked = ["explain", "texts.txt", "--clusters", 2, "--fast", "--encoder", "whole", "--out", "page.html"]
    code, _, err = neonxc_command(*asked)
    assert code == 0, err
    assert [line[:18] for line in err.splitlines() if "cut off" in line] == ["note: 1 of 13 text"]
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "13 texts of texts.txt" in page
    assert "purring" in page
    assert "query:" not in page
    plain = SentenceEncoder.from_pretrained(tmp_path, prompt="query: ")  # without modules.json
    assert_close(plain.points(TEXTS), found.points(TEXTS), rtol=0, atol=1e-5)


def longer(_, arguments):
    """Change the tokens that a module reads, as a setting does that nobody knows yet."""
    ids = arguments[0]["input_ids"]
    ids[:] = ids.flip(1)


CHANGED = {
    r"\[0\].backend needs to be 'torch', got 'onnx'": lambda whole: setattr(whole[0], "backend", "onnx"),
    "processing_kwargs": lambda whole: whole[0].processing_kwargs.update(text={"max_length": 3}),
    "modality_config": lambda whole: whole[0].modality_config.update(message={}),
    "use_residual": lambda whole: setattr(whole[2], "use_residual", True),
    "module_input_name": lambda whole: setattr(whole[2], "module_input_name", "token_embeddings"),
    r"\[2\].activation_function": lambda whole: whole[2].__dict__.update(activation_function=torch.tanh),
    "Pooling of mean.* with pooling 'max'": lambda whole: setattr(whole[1], "pooling_mode", "max"),
    "'mean', 'max'": lambda whole: setattr(whole[1], "pooling_mode", ("mean", "max")),
    "has Transformer, Pooling, Dense, Normalize, Tanh": lambda whole: whole.append(torch.nn.Tanh()),
    "padding_side needs 'right'": lambda whole: setattr(whole.tokenizer, "padding_side", "left"),
    "a setting .* not supported": lambda whole: whole[0].register_forward_pre_hook(longer),
}
GIVEN = {
    "pooling are those of the SentenceTransformer, 'mean'": {"pooling": "cls"},
    "module Normalize, got False": {"normalize": False},
    "prompt_name needs one of the prompts": {"prompt_name": "passage"},
    "without prompt_name": {"prompt_name": "query", "prompt": "query: "},
    "max_tokens needs more than the": {"max_tokens": 4, "prompt": "query: "},
}


def test_settings_that_are_refused(whole_of):
    for message, change in CHANGED.items():
        whole = whole_of(after=["Dense", "Normalize"])
        change(whole)
        refused(message, SentenceEncoder, whole)
    whole = whole_of(after=["Normalize"])
    refused("tokenizer and pooling are those", SentenceEncoder, whole, tokenizer_of("bytes"))
    for message, options in GIVEN.items():
        refused(message, SentenceEncoder, whole, **options)
    assert SentenceEncoder(whole, pooling="mean", normalize=True).normalize


# --- static embeddings --------------------------------------------------------------------------------------


class StaticEmbedding(torch.nn.Module):
    """The module of sentence-transformers, whose package need not be installed."""

    def __init__(self, tokenizer, weights):
        super().__init__()
        self.tokenizer = tokenizer
        self.embedding = torch.nn.EmbeddingBag.from_pretrained(weights)


class Normalize(torch.nn.Module):
    pass


class SentenceTransformer(torch.nn.Sequential):
    """A copy of what is used of the class of sentence-transformers, by its definition: a mean of vectors."""

    truncate_dim = None
    prompts: ClassVar[dict] = {}
    default_prompt_name = None
    tokenizer = property(lambda self: self[0].tokenizer)

    def encode(self, texts, prompt="", normalize_embeddings=False, **_):
        read = self.tokenizer.encode_batch([prompt + text for text in texts], add_special_tokens=False)
        vectors = self[0].embedding.weight
        found = torch.stack([vectors[one.ids].sum(0) / max(1, len(one.ids)) for one in read])
        if len(self) > 1 or normalize_embeddings:
            found = torch.nn.functional.normalize(found, dim=1)
        return found[:, : self.truncate_dim]


SentenceTransformer.__module__ = "sentence_transformers"


def static(kind, *after, is_real=False, max_length=None):
    """A SentenceTransformer of vectors of tokens, and the vectors; the package's own, if it is installed."""
    tokenizer = tokenizer_of(kind).backend_tokenizer
    if max_length is not None:
        tokenizer.enable_truncation(max_length)
    weights = torch.randn(tokenizer.get_vocab_size(), 8, generator=torch.Generator().manual_seed(0))
    if not is_real:
        return SentenceTransformer(StaticEmbedding(tokenizer, weights), *(Normalize() for _ in after)), weights
    package = pytest.importorskip("sentence_transformers")
    from sentence_transformers import models

    modules = [models.StaticEmbedding(tokenizer, weights), *(getattr(models, name)() for name in after)]
    return package.SentenceTransformer(modules=modules, device="cpu"), weights


@pytest.mark.filterwarnings("ignore:.*cut off:UserWarning")
@pytest.mark.parametrize("is_real", [False, True])
@pytest.mark.parametrize(
    ("kind", "after", "options"),
    [
        ("pieces", [], {}),
        ("bytes", [], {"max_length": 12}),
        ("unigram", ["Normalize"], {}),
        ("blanks", [], {}),
    ],
)
def test_static_embeddings_are_those_of_encode(kind, after, options, is_real):
    whole, _ = static(kind, *after, is_real=is_real, **options)
    before = whole[0].tokenizer.to_str()
    encoder = SentenceEncoder(whole)
    texts = [*READ, *WORLD]
    assert_close(encoder.points(texts), torch.as_tensor(whole.encode(texts)), rtol=0, atol=1e-6)
    assert whole[0].tokenizer.to_str() == before  # it stays as it is
    for text, words, spans in zip(texts, encoder.tokenize(texts), encoder.spans(texts), strict=True):
        assert [text[start:stop] for start, stop in spans] == words
    whole.prompts = {"query": "query: "}
    asked = SentenceEncoder(whole, prompt_name="query", normalize=True)
    wanted = torch.as_tensor(whole.encode(texts, prompt="query: ", normalize_embeddings=True))
    assert_close(asked.points(texts), wanted, rtol=0, atol=1e-6)


def test_words_of_static_embeddings_have_their_part_of_the_mean(tmp_path):
    whole, vectors = static("pieces")
    encoder = SentenceEncoder(whole)
    centers = encoder.points(TEXTS)[[0, 4]]
    net = neonxc.neuralize(centers.numpy(), TEXTS, features=encoder)
    neonxc.save(net, tmp_path / "net")
    loaded = neonxc.load(tmp_path / "net")
    relevance = NEON(net).attribute(TEXTS, target=0)
    np.testing.assert_array_equal(NEON(loaded).attribute(TEXTS, target=0), relevance)
    slope = 2 * (centers[0] - centers[1])  # of |x - c_1|^2 - |x - c_0|^2
    for text, spans, row in zip(TEXTS, encoder.spans(TEXTS), relevance, strict=True):
        read = whole.tokenizer.encode(text, add_special_tokens=False)
        of_token = (vectors[read.ids] @ slope / len(read.ids)).tolist()
        pairs = [*zip(read.offsets, of_token, strict=True)]
        wanted = [sum(value for (at, _), value in pairs if start <= at < stop) for start, stop in spans]
        np.testing.assert_allclose(row[: len(spans)], wanted, rtol=1e-4, atol=1e-6)
        assert (row[len(spans) :] == 0).all()


def test_static_embeddings_that_are_refused(tmp_path):
    for name, value in {"mode": "sum", "padding_idx": 3, "max_norm": 1.0}.items():
        whole, _ = static("pieces")
        setattr(whole[0].embedding, name, value)
        refused(rf"model\[0\].embedding.{name} needs to be", SentenceEncoder, whole)
    whole, _ = static("pieces")
    refused("or a StaticEmbedding.* has StaticEmbedding, Tanh", SentenceEncoder, whole.append(torch.nn.Tanh()))
    path = tmp_path / "encoder"
    for change in ({"n_tokens": 10**12}, {"n_tokens": "a"}, {"n_tokens": -1}, {"trust_remote_code": True}):
        neonxc.save(SentenceEncoder(static("pieces")[0]), path)
        rewritten(path, lambda plain, change=change: plain["values"]["recipe"]["config"].update(change))
        refused("can't be loaded: |is damaged: ", neonxc.load, path)


@pytest.mark.parametrize("lower", [False, True])
def test_earlier_versions_of_sentence_transformers_change_texts_before_they_read_them(lower):
    tokenizer = tokenizer_of("bytes")
    text = " \tThe CAT sat\n"
    first = SimpleNamespace(tokenizer=tokenizer, do_lower_case=lower)
    read = tokenizer_before(first)([text]).encodings[0]
    plain = text.strip()
    assert read.ids == tokenizer(plain.lower() if lower else plain)["input_ids"]
    assert (read.offsets[1][0], read.offsets[-2][1]) == (2, len(text) - 1)  # positions in the text as it is
    assert tokenizer(text)["input_ids"] != read.ids  # it is a copy that strips


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype, encoder):
    models = (transformer("Bert").to(precision) for precision in (torch.float32, dtype))
    exact, half = (SentenceEncoder(model, encoder.tokenizer) for model in models)
    points = half.points(TEXTS).numpy()
    assert points.dtype == np.float32
    found = [NEON(neonxc.neuralize(points[:3], features=one)).attribute(TEXTS, 0) for one in (exact, half)]
    assert np.corrcoef(*map(np.ravel, found))[0, 1] > 0.99


def test_adapters_are_explained_and_not_saved(tmp_path):
    model = transformer("Bert")
    query = model.encoder.layer[0].attention.self.query
    query.register_parameter("lora", torch.nn.Parameter(torch.ones(32, dtype=torch.float64)))
    query.register_forward_hook(lambda module, _, output: output + module.lora)
    net = neonxc.neuralize(np.eye(2, 32), TEXTS, features=SentenceEncoder(model, tokenizer_of("pieces")))
    assert np.isfinite(NEON(net).attribute(TEXTS)).all()
    refused("merge adapters", neonxc.save, net.inputs.module, tmp_path / "net", error=TypeError)


class Detached(torch.nn.Module):
    def forward(self, states, mask):
        return states.detach()[:, 0]


def test_errors(encoder, tmp_path):
    model = encoder.model
    tokenizer = encoder.tokenizer
    text = transformers.CLIPTextModel(transformers.CLIPTextConfig(vocab_size=99, **SIZES))
    both = transformers.BartModel(transformers.BartConfig(vocab_size=99, d_model=16, encoder_layers=1))
    head = transformers.BertForMaskedLM(transformers.BertConfig(**BERT)).eval()
    typed = tokenizer_of("pieces")
    typed.model_input_names = ["input_ids", "token_type_ids"]
    typed.backend_tokenizer.post_processor = post_processor("[CLS]:0 $A:1 [SEP]:1")
    read = SentenceEncoder.from_pretrained
    trained = SentenceEncoder(transformer("Bert"), tokenizer)
    for message, call, *arguments in (
        ("CLIPTextModel takes no inputs_embeds", SentenceEncoder, text, tokenizer),
        ("fast tokenizer", SentenceEncoder, model, None),
        ("model needs a transformer", SentenceEncoder, torch.nn.Linear(2, 2), tokenizer),
        ("pooling needs", SentenceEncoder, model, tokenizer, "max"),
        ("units needs", partial(SentenceEncoder, units="letters"), model, tokenizer),
        ("BartModel has both; pass model.get_encoder()", SentenceEncoder, both, tokenizer),
        (r"all tokens of a text one type, and gives \[0, 1\]", SentenceEncoder, model, typed),
        ("BertForMaskedLM returns no last_hidden_state; pass it", SentenceEncoder(head, tokenizer).points, TEXTS),
        (r"text 1 has half of a character, .*'a\\ud83d'", encoder.encode, ["a", "a\ud83d"]),
        ("word, the mask_word of a SentenceEncoder .* mask token, needs", MaskImputer, encoder),
        ("word numbers of this encoder", encoder, torch.tensor([[10_000]])),
    ):
        refused(message, call, *arguments)
    message = r"X can't be read .*; texts need features=SentenceEncoder"
    refused(message, neonxc.neuralize, np.eye(2, 32), TEXTS, features=model)
    refused("neither a folder", read, tmp_path / "missing", error=FileNotFoundError)
    tuples = SentenceEncoder(transformer("Bert", return_dict=False), tokenizer)
    assert_close(tuples.points(TEXTS), encoder.points(TEXTS))
    cut = SentenceEncoder(model, tokenizer, pooling=Detached())
    for own, message, error in (
        (cut, r"cut off by 'detach', at .*return states.detach", UnsupportedOperation),
        (trained, r"SentenceEncoder\) is in training mode: its Dropout .*\.eval\(\)", ValueError),
    ):
        net = neonxc.neuralize(own.points(TEXTS)[:2], features=own)
        own.model.train(own is trained)
        for ask in (
            NEON(net).attribute,
            NEON(net, baseline="mask").attribute,
            partial(neonxc.similarity, own, TEXTS),
        ):
            refused(message, ask, TEXTS, error=error)
    for ask in (trained.points, net.predict, NEON(net).summary):
        refused(message, ask, TEXTS)


# --- relevance ----------------------------------------------------------------------------------------------

DETACHED = Composite(Epsilon(0.0), functions={torch.softmax: Constant(), torch.nn.functional.softmax: Constant()})


@pytest.mark.parametrize("name", MODELS)
def test_relevance_is_conserved_by_networks_without_constants(name):
    model = transformer(name)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "bias" in key or "position_emb" in key or "token_type" in key or "wpe" in key:
                parameter.zero_()
    own = SentenceEncoder(model, tokenizer_of("bytes"))
    tokens = own.tokens(own.encode(TEXTS))

    class Embedded(torch.nn.Module):
        def forward(self, inputs):
            return own.embedding(inputs, tokens.mask)

    recording = LRP(Embedded(), DETACHED).record(own.inputs(tokens).detach())
    slope = torch.randn(6, 32, generator=torch.Generator().manual_seed(1)).double()
    relevance = recording.propagate(slope).sum(2)
    assert_close(relevance.sum(1), (recording.output.detach() * slope).sum(1))
    assert not relevance[~tokens.mask].any()


def test_relevance_is_that_of_a_bert_with_detached_gates(encoder):
    """Weights of attention, standard deviations, and what GELU multiplies its input by, are constants."""
    model = transformer("Bert", attn_implementation="eager")
    functional = torch.nn.functional
    summed = []
    softmax = functional.softmax
    for layer in model.encoder.layer:
        layer.intermediate.intermediate_act_fn.forward = lambda x: x * (functional.gelu(x) / x).detach()

    def norm(x, shape, weight, bias, eps):
        summed.append(x)
        x = x - x.mean(-1, keepdim=True)
        return x / (x.square().mean(-1, keepdim=True) + eps).sqrt().detach() * weight + bias

    tokens = encoder.tokens(encoder.encode(TEXTS[:1]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(functional, "softmax", lambda *given, **options: softmax(*given, **options).detach())
        patch.setattr(functional, "layer_norm", norm)
        pooled = model(tokens.ids).last_hidden_state.mean(1)
    logit = (pooled / pooled.norm(dim=1).detach())[0, 3]
    # of a token's embedding and of what is added to it, which counts as normalization of the input
    wanted = (torch.autograd.grad(logit, summed[0])[0] * summed[0]).sum(2)[0].detach()

    net = neonxc.neuralize(np.eye(32), features=encoder)
    run = net.inputs.run(encoder.encode(TEXTS[:1]).double(), DETACHED)
    found = run.back(torch.eye(32).double()[None, None, 3])[0, 0]
    words = tokens.word[0]
    inside = tokens.word[0] >= 0
    assert_close(found, torch.zeros_like(found).index_add(0, words[inside], wanted[inside]))


def test_relevance_does_not_depend_on_the_batch(net, encoder):
    every = NEON(net).attribute(TEXTS)
    for text, row in zip(TEXTS, every, strict=True):
        (alone,) = NEON(net).attribute([text])
        np.testing.assert_allclose(alone, row[: len(alone)], atol=1e-12)
    np.testing.assert_allclose(NEON(net).attribute(encoder.encode(TEXTS)), every)
    short = SentenceEncoder(encoder.model, encoder.tokenizer, max_tokens=6)
    with pytest.warns(UserWarning, match="2 of 3 texts have more than 6 tokens"):
        ids = short.encode([TEXTS[0], "a", TEXTS[1]])
    assert short.tokens(ids).mask.sum(1).tolist() == [6, 3, 6]


# --- everything else ----------------------------------------------------------------------------------------


def test_missing_words_are_masked(net, encoder):
    ids = encoder.encode(TEXTS).double()
    relevance = NEON(net).attribute(ids)
    masked = MaskImputer(encoder.mask_word)
    curves = (pixel_flipping(net, ids, relevance, *imputer, repeats=1).curve for imputer in ((), (masked,)))
    np.testing.assert_array_equal(*curves)
    tokens = encoder.tokens(torch.full((1, 3), encoder.mask_word)).ids[0, 1:-1]
    assert tokens.tolist() == [encoder.tokenizer.mask_token_id] * 3
    assert dict(NEON(net).summary(TEXTS).top(int(net.predict(TEXTS)[0]), 200)).keys() >= {"cat", "purring"}
    refused("raw columns", neonxc.counterfactual, net, TEXTS[:1])
    refused("feature network of images", NEON(net).heatmaps, TEXTS)


# --- pairs --------------------------------------------------------------------------------------------------


def test_relevance_of_pairs_of_words_is_that_of_brute_force(encoder):
    a = TEXTS[:3]
    b = TEXTS[1:4]
    found = neonxc.similarity(encoder, a, b, matrix=True)
    points = (encoder.points(a), encoder.points(b))
    net = neonxc.neuralize(np.eye(2, 32), features=encoder)
    np.testing.assert_allclose(found.cosine, (points[0] * points[1]).sum(1), atol=1e-12)

    def explained(text):  # one explanation per dimension of the embedding
        run = net.inputs.run(encoder.encode([text]).double(), None, several=True)
        return run.back(torch.eye(32).double()[:, None])[:, 0]

    for n in range(3):
        np.testing.assert_allclose(found.matrix[n], explained(a[n]).T @ explained(b[n]), atol=1e-12)
        word, _, most = found.top(1)[n][0]
        assert word in found.words_a[n]
        assert most == found.matrix[n].max()
    refused("matrix=True", neonxc.similarity(encoder, a, b).top)
    refused("equally many", neonxc.similarity, encoder, TEXTS, TEXTS[:2])
    refused("is for texts", neonxc.similarity, torch.nn.Flatten(), *[torch.rand(1, 4)] * 2, True)
    two = [a[0], "שלום עולם!"]
    figure = neonxc.plot.pair(neonxc.similarity(encoder, *two, matrix=True))
    words = figure.axes[0].texts[1:]
    lines = figure.axes[0].lines
    assert [word.get_text() for word in words] == [*chain(*encoder.tokenize(two))]
    assert 0 < len(lines) <= 8
    first, second, *_, before, last = (word.get_position()[0] for word in words)
    assert first < second
    assert before > last  # from right to left
    refused("number of a pair", neonxc.plot.pair, found, 3)


# --- tokens -------------------------------------------------------------------------------------------------


def test_on_the_way_from_masked_words(encoder):
    encoder = deepcopy(encoder).double()  # the order of words that are about as relevant depends on rounding
    ids = encoder.encode(TEXTS)
    centers = encoder.points(TEXTS[::2])
    net = neonxc.neuralize(centers.numpy(), TEXTS, features=encoder)
    # what is in the competitor gets zeros
    tokens = encoder.tokens(ids)
    inside = net.predict(TEXTS) != 1
    inputs = encoder.inputs(tokens).detach()
    mask = encoder.tokens(torch.full_like(ids[:1, :1], encoder.mask_word))
    found = NEON(net, baseline="mask", steps=5).attribute(TEXTS, target=0, competitor=1)
    for n in np.flatnonzero(inside):
        word = tokens.word[n]
        start = torch.where((word >= 0)[:, None], encoder.inputs(mask.ids[:, 1:2])[0], inputs[n]).detach()

        def contrast(share, n=n, start=start, word=word):
            at = (start + torch.tensor(share)[word][:, None] * (inputs[n] - start)).requires_grad_()
            far = (encoder.embedding(at[None], tokens.mask[n : n + 1]) - centers).square().sum(1)
            return at, far[1] - far[0]

        words = int((ids[n] >= 0).sum())
        size = contrast(np.ones(words))[1].abs().detach()

        def values(share, n=n, start=start, word=word, words=words, size=size, contrast=contrast):
            at, own = contrast(share)
            (slope,) = torch.autograd.grad(own * (size / (size + own.abs())).detach(), at)
            shares = ((inputs[n] - start) * slope).sum(1)
            return np.bincount(word[word >= 0], shares[word >= 0], words)

        is_late = bool(contrast(np.full(words, 0.75))[1] < 0 < contrast(np.ones(words))[1])
        wanted, _ = on_the_way(values, np.arange(words), 5, late=is_late)
        np.testing.assert_allclose(found[n, :words], wanted, rtol=1e-5, atol=1e-9)
        assert (found[n, words:] == 0).all()
    by_rules = NEON(net, DETACHED, baseline="mask").attribute(TEXTS)
    assert by_rules.shape == found.shape
    assert not np.allclose(by_rules, NEON(net, baseline="mask").attribute(TEXTS))
    for baseline in (0.0, "zero"):
        refused("baseline", NEON, net, baseline=baseline)


FETCHED = [  # entries of a configuration that lead to other code or other models, at any depth
    {"backbone": "resnet18"},
    {"use_pretrained_backbone": True},
    {"backbone_kwargs": {"trust_remote_code": True}},
    {"auto_map": {"AutoModel": "owner/name--module.Class"}},
    {"rope_scaling": {"hub_kwargs": {}}},
    {"layers": [{"timm_name": "resnet18"}]},
    {"task_specific_params": {"name": "hf-hub:owner/name"}},
    {"attn_implementation": "kernels-community/flash-attn"},
    {"_attn_implementation": {"": "owner/name"}},
    {"attn_implementation": "flash_attention_2"},
    {"experts_implementation": "sonicmoe"},
    {"kernel_config": {"RMSNorm": "owner/name:RMSNorm"}},
    {"text_config": {"model_type": "bert"}},
    {"encoder": {"model_type": "detr"}},
    {"encoder": {"_name_or_path": "owner/name"}},
    {"attn_config": {"model_type": "timm_wrapper"}},
    {"quantization_config": {"quant_method": "awq"}},
    {"layers": [[{"url": "a"}]]},
]
LARGE = [{"num_labels": 10**9}, {"num_hidden_layers": 10**9}, {"vocab_size": 10**12}]


@pytest.mark.parametrize("change", FETCHED, ids=str)
def test_a_configuration_in_a_file_fetches_nothing(change, encoder, tmp_path):
    # SECURITY.md: A file fetches and runs nothing.
    path = tmp_path / "encoder"
    neonxc.save(encoder, path)
    rewritten(path, lambda plain: plain["values"]["recipe"]["config"].update(change))
    with (
        mock.patch("socket.socket.connect", side_effect=AssertionError("the network was used")),
        mock.patch.object(transformers.BertConfig, "from_dict", side_effect=AssertionError("it was built")),
    ):
        refused("can't be loaded: ", neonxc.load, path)


@pytest.mark.parametrize("change", LARGE, ids=str)
def test_a_configuration_in_a_file_is_as_large_as_its_weights(change, encoder, tmp_path):
    # SECURITY.md: A file takes no more memory than it is worth.
    path = tmp_path / "encoder"
    neonxc.save(encoder, path)
    rewritten(path, lambda plain: plain["values"]["recipe"]["config"].update(change))
    refused("can't be loaded: ", neonxc.load, path)


STRANGE = ["DetrModel", "DPTModel", "TimmBackbone", "TimmWrapperModel", "VisionTextDualEncoderModel", "RagModel"]
STRANGE += ["MambaModel", "YosoModel", "MraModel", "AutoModel", "PreTrainedModel", "Trainer", "__name__", 3]


@pytest.mark.parametrize("name", STRANGE, ids=str)
def test_a_file_names_a_text_encoder(name, encoder, tmp_path):
    # SECURITY.md: A file fetches and runs nothing.
    path = tmp_path / "encoder"
    neonxc.save(encoder, path)
    rewritten(path, lambda plain: plain["values"]["recipe"].update(model=name))
    refused(f"{name} is not one of the text encoders", neonxc.load, path)


def test_an_encoder_that_transformers_lacks_is_named(encoder, tmp_path):
    path = tmp_path / "encoder"
    neonxc.save(encoder, path)
    with mock.patch.object(sys.modules["transformers"], "BertModel", None):
        refused(f"transformers {transformers.__version__} has no BertModel", neonxc.load, path)


SMALL = SIZES | {"vocab_size": 300_000, "pad_token_id": 0, "num_key_value_heads": 2}
OTHER_SIZES = {  # of encoders whose configurations have other names or rules
    "FunnelModel": {"block_sizes": [1, 1], "d_model": 32, "n_head": 4},
    "GPTNeoModel": {"attention_types": [[["global", "local"], 1]], "num_layers": 2},
    "MinistralModel": SMALL | {"head_dim": 8},
    "ReformerModel": {"attn_layers": ["local", "lsh"]},
    "SqueezeBertModel": SMALL | {"embedding_size": 32},
    "XLNetModel": {"n_layer": 2},
}
NEWER = {"EuroBert", "Exaone4", "Gemma3Text", "Glm4", "JinaEmbeddingsV3", "Ministral", "ModernBertDecoder"}
NEWER |= {"NomicBert", "Olmo3", "Qwen3", "Qwen3Moe", "SmolLM3"}  # than transformers 4.49
LOADERS = r"\b(Auto\w+\.from|load_backbone|get_kernel|load_\w*kernels?|import_module)\b|trust_remote|torch\.hub"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(ENCODERS))
def test_encoders_of_files_build_all_of_their_parts_themselves(name):
    # SECURITY.md: The networks in it are of lists of names
    kind = getattr(transformers, name, None)
    if kind is None:
        assert name.removesuffix("Model") in NEWER
        return
    assert issubclass(kind, transformers.PreTrainedModel)
    assert kind.__module__.startswith("transformers.models.")
    config = kind.config_class(**OTHER_SIZES.get(name, SMALL))
    no_network = mock.patch("socket.socket.connect", side_effect=AssertionError("the network was used"))
    with no_network, torch.device("meta"):
        model = kind(config)
    check_encoder(name, json.loads(config.to_json_string(use_diff=False)), 1000)
    for layer in {type(module) for module in model.modules()} | {type(config)}:
        if layer.__module__.startswith("transformers."):
            code = re.sub(r'"""(.|\n)*?"""', "", inspect.getsource(layer))  # without docstrings
            assert not re.search(LOADERS, code), layer


@pytest.mark.parametrize(
    "special", [{"tokenizer_file": "/etc/passwd"}, {"gguf_file": "a"}, {"mask_token": {"a": 1}}]
)
def test_a_file_has_special_tokens_alone(special, encoder, tmp_path):
    path = tmp_path / "encoder"
    neonxc.save(encoder, path)
    rewritten(path, lambda plain: plain["values"]["recipe"]["special"].update(special))
    refused("are not special tokens", neonxc.load, path)


def test_layers_behind_the_pooling_are_those_of_the_file(encoder, tmp_path):
    path = tmp_path / "encoder"
    neonxc.save(encoder, path)
    rewritten(path, lambda plain: plain["values"]["recipe"]["pooling"].append(["Linear", 10**6, 10**6]))
    refused("its network has weights 'pooling", neonxc.load, path)
