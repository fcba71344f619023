"""Relevance of texts through a sentence encoder of 6 layers of 384, as a multiple of a gradient pass.

python -m tests.benchmarks.sentences [--texts 200] [--rounds 9] [--json FILE]

Weights are random, and texts have 38 words of one token each.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch

import neonxc
from neonxc.common.progress import hide
from neonxc.models import SentenceEncoder
from tests.benchmarks.timing import ROUNDS, Report, race, results

sys.path.insert(0, str(Path(__file__).parents[1]))
from entry_points.networks import Letters


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json")
    options = parser.parse_args()
    from transformers import BertConfig, BertModel  # optional

    hide()
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=30, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    encoder = SentenceEncoder(BertModel(config, add_pooling_layer=False).eval(), Letters())
    draw = np.random.default_rng(0)
    ids = encoder.encode(["".join(draw.choice(list("abcdefghij"), 38)) for _ in range(options.texts)]).double()
    net = neonxc.neuralize(torch.randn(8, 384), features=encoder)

    def gradient() -> None:
        for some in encoder.batches(ids):
            tokens = encoder.tokens(ids[some].long())
            inputs = encoder.inputs(tokens).detach().requires_grad_()
            torch.autograd.grad(net.head(encoder.embedding(inputs, tokens.mask)).amax(1).sum(), inputs)

    times = race(
        {
            "gradient": gradient,
            "NEON": lambda: neonxc.NEON(net).attribute(ids),
            'NEON, baseline="mask", 20 steps': lambda: neonxc.NEON(net, baseline="mask").attribute(ids),
        },
        options.rounds,
    )
    report = Report("Sentence encoders")
    report.table(f"{options.texts} texts of 40 tokens, 6 layers of 384", results(times, "gradient"))
    report.close(options.json)


if __name__ == "__main__":
    main()
