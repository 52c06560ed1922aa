"""The layers as functions, with the names and arguments of `torch.nn.functional` where it has them."""

from .add2 import add2
from .avg_pool import avg_pool2d
from .gaussian_pool import gaussian_pool2d
from .linear import linear
from .max_pool import max_pool2d, max_pool2d_with_indices
from .prelu import prelu
from .relu import relu, relu_
from .scale_add import add_constant, scale_add
from .stochastic_pool import stochastic_pool2d

__all__ = [
    "add2",
    "add_constant",
    "avg_pool2d",
    "gaussian_pool2d",
    "linear",
    "max_pool2d",
    "max_pool2d_with_indices",
    "prelu",
    "relu",
    "relu_",
    "scale_add",
    "stochastic_pool2d",
]
