"""LRP on the networks people use, unmodified, with random weights and random statistics."""

import pytest
import torch
import torchvision
from torch import nn
from torch.testing import assert_close

import neonxc
from neonxc.lrp import LRP, Composite, Constant, Epsilon

NETWORKS = {
    "torchvision": ["alexnet", "resnet18", "mobilenet_v3_small", "efficientnet_b0", "squeezenet1_1"],
    "timm": ["convnext_atto", "efficientnet_lite0", "vit_tiny_patch16_224"],
}
LARGE = {
    "torchvision": ["vgg11", "vgg16", "vgg16_bn", "resnet50", "mobilenet_v2", "convnext_tiny", "vit_b_16"],
    "timm": ["resnet18", "vit_small_patch14_reg4_dinov2"],
}
SMALL = {"vit_b_16": 224, "alexnet": 96, "vit_tiny_patch16_224": 64, "vit_small_patch14_reg4_dinov2": 56}
ONLY_RELU = {"squeezenet1_1", "vgg11", "vgg16", "vgg16_bn", "alexnet", "resnet18", "resnet50"}


def build(library, name):
    if library == "torchvision":
        net = torchvision.models.get_model(name, weights=None)
        if isinstance(net, (torchvision.models.VGG, torchvision.models.AlexNet)):  # smaller at the top
            width = net.classifier[-1].in_features // 64
            first = next(m for m in net.classifier if isinstance(m, nn.Linear)).in_features
            net.classifier = nn.Sequential(
                *(nn.Dropout(), nn.Linear(first, width), nn.ReLU(inplace=True), nn.Linear(width, 10))
            )
    else:
        timm = pytest.importorskip("timm")
        options = {"dynamic_img_size": True} if name.startswith("vit") else {}
        net = timm.create_model(name, pretrained=False, num_classes=10, **options)
    generator = torch.Generator().manual_seed(0)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1, generator=generator)
            module.running_var.uniform_(0.5, 1.5, generator=generator)
            nn.init.uniform_(module.weight, 0.5, 1.5, generator=generator)  # timm starts some at zero
        elif isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight, generator=generator)  # torchvision starts ViT heads at zero
    return net.eval()


def picture(name, n=1):
    return torch.randn(n, 3, *[SMALL.get(name, 64)] * 2, generator=torch.Generator().manual_seed(1))


def gradient_times_input(net, x, target):
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(net(leaf)[:, target].sum(), leaf)
    return x * gradient


def networks(of):
    return pytest.mark.parametrize(
        ("library", "name"), [(library, name) for library in of for name in of[library]]
    )


@networks(NETWORKS)
def test_works_unmodified(library, name):
    net, x = build(library, name), picture(name)
    recording = LRP(net).record(x)
    with torch.no_grad():
        assert_close(recording.output, net(x), rtol=1e-3, atol=1e-4)
    start = torch.zeros_like(recording.output)
    start[:, 3] = 1
    relevance = recording.propagate(start)
    assert relevance.shape == x.shape
    assert torch.isfinite(relevance).all()
    assert (relevance != 0).float().mean() > 0.9
    assert_close(LRP(net, Composite()).attribute(x, 3), relevance)  # one walk or several
    if name in ONLY_RELU:
        plain = LRP(net, Composite(Epsilon(0.0))).attribute(x, 3)
        wanted = gradient_times_input(net, x, 3)
        assert (plain - wanted).norm() < 1e-3 * wanted.norm()


@pytest.mark.slow
@networks(LARGE)
def test_large_ones_work_unmodified(library, name):
    test_works_unmodified(library, name)


def small_transformer():
    net = torchvision.models.VisionTransformer(32, 8, 2, 2, 32, 64, num_classes=10)
    nn.init.xavier_uniform_(net.heads.head.weight)
    return net.eval(), torch.randn(2, 3, 32, 32)


def test_attention_of_features_is_constant_by_default():
    """Every softmax is, unless the features are probabilities."""
    net, x = small_transformer()
    held = Composite(functions={torch.softmax: Constant()})
    for features, same in ((net, held), (nn.Sequential(net, nn.Softmax(1)), Composite())):
        head = neonxc.neuralize(features(x).detach().numpy(), x, features)
        default, own, other = (neonxc.NEON(head, rules).attribute(x) for rules in (None, same, Composite()))
        assert_close(default, own)
        assert torch.allclose(default, other) == (same is not held)
