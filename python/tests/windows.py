"""Windows of pooling by their definition, one position at a time, for results to be compared with."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Windows:
    """For each output, and each position of its window, which pixel of the image it is.

    inside: `[Ho, Wo, kh, kw]`, whether a position is inside of the image; pixel: `h * W + w` of those that are, else 0;
    padded: whether it is inside of the padded image, past which the last window may end with `ceil_mode`.
    """

    def __init__(
        self,
        image: Sequence[int],
        outputs: Sequence[int],
        size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int] = (1, 1),
    ) -> None:
        self.height, self.width = image
        along = [
            torch.arange(outputs[axis])[:, None] * stride[axis]
            + torch.arange(size[axis]) * dilation[axis]
            - padding[axis]
            for axis in range(2)
        ]
        rows, columns = torch.broadcast_tensors(along[0][:, None, :, None], along[1][None, :, None, :])
        self.inside = (rows >= 0) & (rows < self.height) & (columns >= 0) & (columns < self.width)
        self.pixel = torch.where(self.inside, rows * self.width + columns, 0)
        self.padded = (rows < self.height + padding[0]) & (columns < self.width + padding[1])

    @property
    def positions(self) -> int:
        """How many a window has."""
        return self.inside.shape[2] * self.inside.shape[3]

    def take(self, x: Tensor) -> Tensor:
        """The elements of each window of `x: [N, C, H, W]`, `[N, C, Ho, Wo, kh, kw]`; 0 for those outside."""
        return torch.where(self.inside, x.flatten(2)[:, :, self.pixel], 0)

    def put(self, terms: Tensor) -> Tensor:
        """The transpose: for each pixel the sum of `terms: [N, C, Ho, Wo, kh, kw]`."""
        images = terms.shape[:2]
        sums = torch.zeros(*images, self.height * self.width, dtype=terms.dtype)
        sums.index_add_(2, self.pixel.flatten(), torch.where(self.inside, terms, 0).flatten(2))
        return sums.reshape(*images, self.height, self.width)

    def gaussian(self, x: Tensor, mean: Tensor, var: Tensor, valid: bool) -> Tensor:
        """Gaussian pooling by its formula, `[N, C * K, Ho, Wo]`, differentiable."""
        exponent: Tensor | float = 0.0
        for axis, size in enumerate(self.inside.shape[2:]):
            away = torch.arange(size, dtype=x.dtype) - (size - 1) / 2 - mean[:, :, axis, None]
            along = -(away**2) / (2 * var[:, :, -1 if axis == 1 else 0, None])
            exponent = exponent + (along[..., :, None] if axis == 0 else along[..., None, :])
        # Image, channel, kernel, Ho, Wo, kh, kw from here on.
        exponent = exponent.expand(x.shape[1], -1, -1, -1)[None, :, :, None, None]
        counts = self.inside if valid else torch.ones_like(self.inside)
        weights = torch.where(counts, exponent, -torch.inf).flatten(-2).softmax(-1).unflatten(-1, self.inside.shape[2:])
        return torch.where(self.inside, weights * self.take(x).unsqueeze(2), 0).sum((-2, -1)).flatten(1, 2)

    def expectation(self, x: Tensor) -> Tensor:
        """Stochastic pooling in evaluation by its formula, `[N, C, Ho, Wo]`, differentiable."""
        a = self.take(x).relu()
        total = a.sum((-2, -1))
        nothing = total == 0
        return torch.where(nothing, 0, (a * a).sum((-2, -1)) / torch.where(nothing, 1, total))
