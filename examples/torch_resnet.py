"""Optimize a PyTorch model where the compiler is installed, and serve it in a process with only PyTorch and the result.

python examples/torch_resnet.py optimize resnet.bundle resnet.pt
python examples/torch_resnet.py serve resnet.bundle resnet.pt
"""

import argparse

import torch
from torch import nn

import tvmconv.torch


class Block(nn.Module):
    """Two convolutions with a residual connection."""

    def __init__(self, channels):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += x
        return self.relu(y)


def resnet():
    """Return a small network, for inference."""
    stem = [nn.Conv2d(3, 16, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
    blocks = [nn.MaxPool2d(3, 2, 1), Block(16), nn.Conv2d(16, 32, 1, stride=2), Block(32)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)).eval()


def optimize(bundle, weights):
    """Compile a model, and save its weights."""
    model, example = resnet(), torch.rand(1, 3, 64, 64)
    fast = tvmconv.torch.optimize(model, example, bundle=bundle)
    print(tvmconv.torch.report(fast))
    with torch.inference_mode():
        torch.testing.assert_close(fast(example), model(example))
    torch.save(model.state_dict(), weights)


def serve(bundle, weights):
    """Answer a request; the folder has the network, so nothing is compiled."""
    model = resnet()
    model.load_state_dict(torch.load(weights))
    fast = tvmconv.torch.optimize(model, torch.rand(1, 3, 64, 64), bundle=bundle)
    with torch.inference_mode():
        print("class", int(fast(torch.rand(1, 3, 64, 64)).argmax()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Optimize a PyTorch model, or serve it.")
    parser.add_argument("command", choices=["optimize", "serve"])
    parser.add_argument("bundle", help="the folder with the network")
    parser.add_argument("weights", help="the file with the model's weights")
    arguments = parser.parse_args()
    {"optimize": optimize, "serve": serve}[arguments.command](arguments.bundle, arguments.weights)
