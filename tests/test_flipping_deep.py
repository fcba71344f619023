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


def witness(net, x, centers, beta, gamma, head_rule):
    """Relevance [C, h, w] at one point: K - 1 linear neurons, the shares of their minimum, LRP layer by layer."""
    a, back = lrp_witnesses.run(net.features, x, repeat(partial(lrp_witnesses.gamma, gamma=gamma)))
    c = int(((a - centers) ** 2).sum(1).argmin())
    rivals = [k for k in range(len(centers)) if k != c]
    neurons = [neuron(centers[c], centers[k]) for k in rivals]
    h = np.array([w @ a + b for w, b in neurons])
    R = np.zeros_like(a)
    for k, (w, _), value, share in zip(rivals, neurons, h, contrast_relevance(h, beta), strict=True):
        start = (centers[c] + centers[k]) / 2 if head_rule == "midpoint" else 0.0
        R += w * (a - start) / value * share
    return c, back(np.where(a == 0, 0.0, R))


@pytest.mark.parametrize("head_rule", ["linear", "midpoint"])
@pytest.mark.parametrize(("factor", "gamma"), [(0.0, 0.25), (1.0, 0.0), (1.0, 2.0), (np.inf, 0.25)])
def test_relevance_of_channels(deep, factor, gamma, head_rule):
    net, x, centers = deep
    beta = factor * net.beta
    found = methods.neon_with(Composite(Gamma(gamma)), beta, head_rule)(net, x, net.assign(x))
    for point, relevance, own in zip(x.numpy(), found.numpy(), net.assign(x).tolist(), strict=True):
        c, expected = witness(net, point, centers, beta, gamma, head_rule)
        assert c == own
        assert_allclose(relevance, expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max())


def test_relevance_of_a_classifiers_own_head(deep):
    """Its outputs' differences are the contrasts, as in SCAN."""
    net, x, _ = deep
    torch.manual_seed(1)
    head = torch.nn.Linear(12, CLUSTERS).double()
    clustering = neonxc.neuralize(head, x, net.features)
    W, b = (values.detach().numpy() for values in (head.weight, head.bias))
    found = methods.neon(clustering, x, clustering.assign(x)).numpy()
    for point, relevance in zip(x.numpy(), found, strict=True):
        a, back = lrp_witnesses.run(net.features, point, repeat(partial(lrp_witnesses.gamma, gamma=0.25)))
        c = int((W @ a + b).argmax())
        rivals = [k for k in range(CLUSTERS) if k != c]
        h = np.array([(W[c] - W[k]) @ a + b[c] - b[k] for k in rivals])
        shares = contrast_relevance(h, clustering.beta) / h
        expected = back(sum(share * a * (W[c] - W[k]) for k, share in zip(rivals, shares, strict=True)))
        assert_allclose(relevance, expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max())
