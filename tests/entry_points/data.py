"""A few points, images and texts."""

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from torch import nn

POINTS, LABELS = make_blobs([12, 14, 16], 3, centers=[[0, 0, 0], [4, 1, 0], [0, 5, 2]], random_state=0)
X = torch.from_numpy(POINTS)
Y = torch.from_numpy(LABELS).long()
CENTERS = torch.stack([X[label == Y].mean(0) for label in range(3)])
WEIGHT = torch.linspace(1, 2, len(X), dtype=torch.float64)
IMAGES = torch.from_numpy(np.random.default_rng(0).random((4, 3, 8, 8)))
TEXTS = ["the cat and the dog", "dog and cat barks", "sun and moon shine", "moon shine, bright sun", "cat barks"]


# of the features below; their norms differ, so that features of zero have one nearest center
CORNERS = torch.eye(3, 6, dtype=torch.float64) * torch.tensor([[1.0], [1.1], [1.2]])


def features():
    """A feature network to maps [N, 6, 4, 4]."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1), nn.ReLU()).double().eval()


def locations():
    """The points of these maps, as an array."""
    with torch.no_grad():
        return features()(IMAGES).movedim(1, -1).flatten(0, -2).numpy()


def kmeans(k=3):
    return KMeans(k, n_init=1, random_state=0)
