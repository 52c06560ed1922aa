"""The layers as functions of arrays of any library, forward and backward, without PyTorch.

NumPy's, CuPy's, JAX's and PyTorch's arrays, and those of any library that speaks DLPack, are taken without a copy where
they are dense, and results share their memory with what is given back, an array of the first argument's library (or
`ferrolayer.functional.Array`, if that is none of the four). float32, float16 and bfloat16, on the CPU also float64.

>>> import numpy as np
>>> from ferrolayer import functional as F
>>> x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
>>> F.max_pool2d(x, 2)
array([[[[ 5.,  7.],
         [13., 15.]]]], dtype=float32)

Each function has the name and the arguments of the one in `ferrolayer.torch.functional`, and beside it:

- `NAME_backward`, its gradients, for a custom gradient in the library that the arrays are of;
- `NAME_forward`, where backward needs more than the arguments and the result: it gives that, too.

There is no automatic differentiation here. With PyTorch, `ferrolayer.torch` has it, and costs less per call.

On a GPU work is queued on a stream of this library's own, which waits for the arrays' stream, and which the results'
stream waits for: no one waits on the CPU. A call in a function that `jax.jit` compiles goes through
`jax.pure_callback`; what CUDA captures as a graph cannot have these calls in it.
"""

from .._native import Array
from .add2 import add2, add2_backward
from .avg_pool import avg_pool2d, avg_pool2d_backward
from .gaussian_pool import gaussian_pool2d, gaussian_pool2d_backward
from .linear import linear, linear_backward, linear_forward
from .max_pool import max_pool2d, max_pool2d_backward, max_pool2d_forward
from .prelu import prelu, prelu_backward
from .relu import relu, relu_backward
from .scale_add import scale_add, scale_add_backward
from .stochastic_pool import stochastic_pool2d, stochastic_pool2d_backward, stochastic_pool2d_forward

__all__ = [
    "Array",
    "add2",
    "add2_backward",
    "avg_pool2d",
    "avg_pool2d_backward",
    "gaussian_pool2d",
    "gaussian_pool2d_backward",
    "linear",
    "linear_backward",
    "linear_forward",
    "max_pool2d",
    "max_pool2d_backward",
    "max_pool2d_forward",
    "prelu",
    "prelu_backward",
    "relu",
    "relu_backward",
    "scale_add",
    "scale_add_backward",
    "stochastic_pool2d",
    "stochastic_pool2d_backward",
    "stochastic_pool2d_forward",
]
