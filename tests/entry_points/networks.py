"""Feature networks of images and words, and relevance that passes through them."""

from functools import partial
from types import SimpleNamespace

import torch
from torch import nn

import neonxc
from neonxc import models
from neonxc.lrp import (
    LRP,
    AlphaBeta,
    Composite,
    Constant,
    Epsilon,
    Flat,
    Gamma,
    Pass,
    WSquare,
    ZBox,
    ZPlus,
    presets,
)
from neonxc.models import FeatureExtractor, SentenceEncoder, WordVectors
from neonxc.trees import ExKMC

from .data import CORNERS, IMAGES, TEXTS, features, kmeans, locations
from .table import entry


class Network(nn.Module):
    """A bit of everything that relevance passes."""

    def __init__(self):
        super().__init__()
        self.maps = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 1),
            nn.GroupNorm(2, 8), nn.Hardswish(), nn.AvgPool2d(2), nn.ConvTranspose2d(8, 8, 2), nn.GELU(),
        )  # fmt: skip
        self.gate = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Linear(8, 4)
        self.register_buffer("place", torch.randn(9, 8))

    def forward(self, x):
        a = self.maps(x).flatten(2).movedim(1, 2) + self.place
        a = a * torch.sigmoid(self.gate(a.mean(1, keepdim=True)))
        a = self.norm(a + self.attention(a, a, a)[0])
        a = torch.cat([self.encoder(a), torch.exp(-a.square())], 1)
        return self.head(a.max(1).values + torch.softmax(a, 1).mul(a).sum(1))


def network():
    torch.manual_seed(0)
    net = Network().double().eval()
    net.maps[1].running_mean.normal_()
    return net


def propagated(composite, at):
    lrp = LRP(at(network()), composite(at))
    x = at(IMAGES)
    target = at(torch.tensor([0, 1, 2, 3]))
    record = lrp.record(x)
    multiplier = at(torch.eye(4, dtype=torch.float64))
    found = [lrp.attribute(x, 1), lrp.attribute((x,), target)]
    return [*found, record.propagate(multiplier), record.multiplier(multiplier), record.output.detach()]


EXP = {torch.exp: Pass(), torch.sigmoid: Constant(), torch.square: Pass()}
RULES = {
    "Gamma": lambda at: Composite(Gamma(0.25), functions=EXP),
    "Epsilon": lambda at: Composite(Epsilon(0.1), functions=EXP),
    "ZPlus": lambda at: Composite(ZPlus(), functions=EXP),
    "AlphaBeta": lambda at: Composite(AlphaBeta(2, 1), functions=EXP),
    "Flat": lambda at: Composite(layers={0: Flat()}, functions=EXP),
    "WSquare": lambda at: Composite(layers={0: WSquare(), "maps.4": WSquare()}, functions=EXP),
    "ZBox": lambda at: Composite(layers={0: ZBox(0, at(torch.ones(3)))}, functions=EXP),
    "ZBox of a tensor of the CPU": lambda at: Composite(
        layers={0: ZBox(torch.zeros(3), torch.ones(3))}, functions=EXP
    ),
}
RULES |= {
    f"presets.{name}": partial(lambda name, at: with_functions(presets.PRESETS[name](0.0, 1.0)), name)
    for name in ("gamma", "paper", "epsilon-gamma-box")
}
RULES["presets.epsilon"] = lambda at: with_functions(presets.epsilon())


def with_functions(composite):
    return Composite(composite.default, composite.layers, EXP)


for name, composite in RULES.items():
    covered = {"presets.epsilon-gamma-box": "presets.epsilon_gamma_box"}.get(name, name.split()[0])
    names = f"lrp.{covered} lrp.LRP lrp.Recording lrp.Composite lrp.Pass lrp.Constant"
    entry(names, name=f"LRP: {name}", slow=name.startswith("presets.") or name == "WSquare")(
        partial(propagated, composite)
    )


@entry("neuralize NEON")
def maps(at):
    x = at(IMAGES)
    net = at(features())
    model = kmeans().fit(locations())
    net = neonxc.neuralize(model, x, net)
    neon = neonxc.NEON(net)
    found = [net(x), net.predict(x), net.beta, neon.attribute(x), neon.heatmaps(x), neon.heatmaps(x, [2, 0])]
    found += [
        neon.attribute(x, (0, 1, 1)),
        neon.attribute(x, 0, 1),
        neon.summary(x).relevance,
        neon.summary(x).prototypes,
    ]
    for options in (
        {"head_rule": "midpoint"},
        {"composite": Composite(Epsilon(1e-3), {0: ZBox(0, 1)})},
        {"beta": 2.0},
    ):
        found.append(neonxc.NEON(net, **options).attribute(x))
    return found


@entry("NEON Estimate")
def options_of_neon(at):
    points = torch.from_numpy(locations())
    x = at(points)
    net = neonxc.neuralize(kmeans().fit(points.numpy()), x)
    baselines = [at(points.mean(0)), points.mean(0)]
    found = [neonxc.NEON(net, baseline=one).attribute(x) for one in baselines]
    estimate = neonxc.NEON(net, baseline=0.0, groups=[0, 0, 1, 1, 2, 2]).estimate(x)
    images = at(IMAGES)
    encoder = nn.Sequential(features(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    of_images = neonxc.NEON(neonxc.neuralize(at(CORNERS), images, at(encoder)), baseline=0.0, groups="channels")
    found += [estimate.relevance, estimate.stderr, estimate.residual, of_images.attribute(images)]
    return [*found, neonxc.NEON(net, beta=float("inf")).attribute(x)]


@entry("neuralize NEON")
def maps_with_a_tree(at):
    x = at(IMAGES)
    model = ExKMC(3, max_leaves=4, random_state=0).fit(locations())
    neon = neonxc.NEON(neonxc.neuralize(model, x, at(features())))
    return [neon.heatmaps(x), neon.threshold_heatmaps(x), neon.thresholds(x), neon.thresholds(x, 1)]


@entry("concepts Concepts plot.concepts")
def concepts_of_clusters(at):
    images = at(IMAGES)
    encoder = nn.Sequential(features(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net = neonxc.neuralize(at(CORNERS), images, at(encoder))
    found = neonxc.concepts(net, images, "0", n_concepts=2, held_out=images)
    neonxc.plot.concepts(found, net, images)
    maps = found.heatmaps(net, images)
    coordinates = found.coordinates(net, images)
    return [found.relevance, found.total, found.left, maps, coordinates.to_numpy()]


@entry("models.FeatureExtractor")
def feature_extractor(at):
    given = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4)}
    extractor = at(FeatureExtractor(features(), "0", normalize=True, **given))
    images = extractor.preprocess(at(IMAGES))
    found = [images, extractor.deprocess(images), *extractor.pixel_range(), extractor(images)]
    points = extractor.points(images, batch_size=3)
    net = neonxc.neuralize(kmeans(2).fit(points.cpu().numpy()), images, extractor)
    low, high = extractor.pixel_range()
    return [*found, points, net.predict(images), neonxc.NEON(net, presets.gamma(low, high)).heatmaps(images)]


def explained_backbone(name, at):
    torch.manual_seed(0)
    block = None if name in ("vit_b_16", "efficientnet_lite0") else 2
    extractor = at(models.backbone(name, block=block, weights=None, normalize=True))
    images = extractor.preprocess(at(torch.rand(1, 3, *(extractor.size or (48, 48)))))
    points = extractor.points(images)
    net = neonxc.neuralize(points[:3].double() + at(torch.eye(3, points.shape[1])), images, extractor)
    return [extractor(images), neonxc.NEON(net).heatmaps(images)]


FUNCTIONS = {"vgg16": "models.vgg16", "efficientnet_lite0": "models.efficientnet_lite0 models.EfficientNetLite0"}
for name in models.BACKBONES:
    quick = name in ("resnet18", "mobilenet_v3_small", "efficientnet_lite0")
    covers = f"models.backbone {FUNCTIONS.get(name, '')}"
    entry(covers, name=f"backbone {name}", slow=not quick)(partial(explained_backbone, name))


@entry("models.vgg_small")
def small_network(at):
    torch.manual_seed(0)
    net = at(models.vgg_small(3, 4, width=4).double().eval())
    x = at(IMAGES.repeat(1, 1, 4, 4))
    return [net(x), LRP(net).attribute(x, 1)]


@entry("models.WordVectors highlights plot.text plot.HighlightedText")
def words(at):
    vectors = torch.randn(7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    vocabulary = ["cat", "dog", "sun", "moon", "barks", "shine", "bright"]
    made = [
        WordVectors(vocabulary, at(vectors), at(torch.arange(1.0, 8).double())),
        at(WordVectors(vocabulary, vectors)),
    ]
    found = []
    for embedding in made:
        ids = at(embedding.encode(TEXTS))
        model = kmeans(2).fit(embedding.points(TEXTS).cpu().numpy())
        net = neonxc.neuralize(model, TEXTS, embedding)
        neon = neonxc.NEON(net)
        relevance = neon.attribute(ids)
        found += [
            embedding(ids),
            embedding.points(TEXTS),
            net(ids),
            net.predict(ids),
            net.predict(TEXTS),
            relevance,
        ]
        found += [neon.attribute(TEXTS), neon.summary(TEXTS).relevance, neon.summary(ids).relevance, net.beta]
        found.append(str(neonxc.plot.text(embedding.tokenize(TEXTS), relevance, known=ids >= 0)))
    return found


class Letters:
    """A tokenizer of letters, with the interface of fast ones."""

    is_fast = True
    model_max_length = 99
    mask_token = "[MASK]"
    mask_token_id = 1

    def __call__(self, texts, **options):
        if isinstance(texts, str):
            return {"input_ids": [2, 3, 2], "special_tokens_mask": [1, 0, 1]}
        return SimpleNamespace(encodings=[self.read(text) for text in texts])

    def read(self, text):
        places = [place for place, letter in enumerate(text) if not letter.isspace()]
        return SimpleNamespace(
            ids=[2, *[3 + ord(text[place]) % 20 for place in places], 2],
            offsets=[(0, 0), *[(place, place + 1) for place in places], (0, 0)],
            special_tokens_mask=[1, *[0] * len(places), 1],
            overflowing=[],
        )


class Transformer(nn.Module):
    """A layer with the interface of the library transformers."""

    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(
            max_position_embeddings=99, pad_token_id=0, model_type="", hidden_size=8, num_hidden_layers=1
        )
        self.config.get_text_config = lambda: self.config
        self.tokens = nn.Embedding(23, 8)
        self.inner = nn.Linear(8, 8)
        self.outer = nn.Linear(8, 8)

    def get_input_embeddings(self):
        return self.tokens

    def forward(self, inputs_embeds, attention_mask):
        inner = self.inner(inputs_embeds).relu() * attention_mask[..., None]
        return SimpleNamespace(last_hidden_state=self.outer(inner + inner.sum(1, keepdim=True)))


@entry("models.SentenceEncoder similarity Similarity plot.pair evaluation.MaskImputer evaluation.pixel_flipping")
def sentences(at):
    torch.manual_seed(0)
    encoder = at(SentenceEncoder(Transformer().double().eval(), Letters()))
    points = encoder.points(TEXTS)
    ids = encoder.encode(TEXTS)
    net = neonxc.neuralize(kmeans(2).fit(points.cpu().numpy()), TEXTS, encoder)
    found = neonxc.NEON(net).attribute(ids)
    b = TEXTS[::-1]
    pair = neonxc.similarity(encoder, TEXTS, b, matrix=True, background=TEXTS)
    neonxc.plot.pair(pair)
    mask = neonxc.evaluation.MaskImputer(encoder.mask_word)
    curve = neonxc.evaluation.pixel_flipping(net, ids, found, mask, repeats=1).logit_curve
    relevance = [pair.relevance_a, pair.relevance_b, *pair.matrix, pair.top(2)]
    return [
        *(points, ids, net(ids), net.predict(TEXTS), found, neonxc.NEON(net, baseline="mask").attribute(TEXTS)),
        *(neonxc.NEON(net).summary(TEXTS).relevance, neonxc.contrast(net, TEXTS * 4, 0, 1).relevance),
        *(pair.cosine, curve, relevance),
    ]
