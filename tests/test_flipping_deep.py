"""What the deep rows of the NEON paper's Table I are made of, on a small random network, in loops."""

from __future__ import annotations

from functools import partial
from itertools import repeat

import lrp_witnesses
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from witnesses import contrast_relevance, neuron

import neonxc
from neonxc.evaluation import methods
from neonxc.lrp import Composite, Gamma
from neonxc.models import vgg_small

CLUSTERS = 12


def random_network():
    """Layers whose weights don't shrink what they get, with biases that count, as trained ones have."""
    torch.manual_seed(0)
    net = vgg_small(width=3).double().eval()
    for name, values in [*net.named_parameters(), *net.named_buffers()]:
        if values.ndim == 4:
            values.data *= 3
        elif values.ndim == 1:
            values.data.uniform_(0.5, 1.5) if name.endswith(("weight", "var")) else values.data.normal_(0, 0.3)
    return net


@pytest.fixture(scope="module")
def deep():
    """A clustering of last features, and activations of a middle block."""
    net = random_network()
    rest = torch.nn.Sequential(net.features[2], net.pool, net.flatten)
    with torch.no_grad():
        images = torch.randn(5, 1, 16, 16, dtype=torch.float64) * torch.arange(1, 6)[:, None, None, None]
        activations = net.features[:2](images)
        features = rest(activations)
    noise = torch.randn(CLUSTERS, features.shape[1], dtype=torch.float64)
    centers = features[torch.arange(CLUSTERS) % 5] + 0.3 * features.std(0) * noise
    return neonxc.neuralize(centers, activations, rest), activations, centers.numpy()


@pytest.mark.parametrize("head_rule", ["linear", "midpoint"])
@pytest.mark.parametrize(("factor", "gamma"), [(0.0, 0.25), (1.0, 0.0), (1.0, 2.0), (np.inf, 0.25)])
def test_relevance_of_channels(deep, factor, gamma, head_rule):
    """Relevance [C, h, w] of points: K - 1 linear neurons, the shares of their minimum, LRP layer by layer."""
    net, x, centers = deep
    beta = factor * net.beta
    middle = 0.5 * (head_rule == "midpoint")
    found = methods.neon_with(Composite(Gamma(gamma)), beta, head_rule)(net, x, net.assign(x))
    for point, relevance, c in zip(x.numpy(), found.numpy(), net.assign(x).tolist(), strict=True):
        a, back = lrp_witnesses.run(net.features, point, repeat(partial(lrp_witnesses.gamma, gamma=gamma)))
        rivals = [k for k in range(CLUSTERS) if k != c]
        neurons = [neuron(centers[c], centers[k]) for k in rivals]
        h = np.array([w @ a + b for w, b in neurons])
        assert h.min() >= 0  # c is the cluster of the point
        starts = [a - middle * (centers[c] + centers[k]) for k in rivals]
        parts = zip(starts, neurons, contrast_relevance(h, beta) / h, strict=True)
        expected = back(np.where(a == 0, 0.0, sum(w * start * share for start, (w, _), share in parts)))
        assert_allclose(relevance, expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max())
