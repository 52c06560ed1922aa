"""Rules by which `torch.vmap` computes a batch with an operator: `rule(operator, batch, in_dims, inputs)`.

Each gives the outputs and, for each, the dimension that counts the batch. `in_dims` says for each input which of its
dimensions counts the batch, `None` where all share the input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Dims = tuple["int | None", ...]
Rule = Callable[[Any, int, Dims, tuple[Any, ...]], tuple[Any, Any]]


def looping(operator: Any, batch: int, in_dims: Dims, inputs: tuple[Any, ...]) -> tuple[Any, Any]:
    """One call for each element of the batch."""
    outputs = []
    for index in range(batch):
        one = [x if dim is None else x.select(dim, index) for x, dim in zip(inputs, in_dims, strict=True)]
        outputs.append(operator(*one))
    if isinstance(outputs[0], Tensor):
        return torch.stack(outputs), 0
    stacked = tuple(torch.stack(of_all) for of_all in zip(*outputs, strict=True))
    return stacked, (0,) * len(stacked)


def pointwise(operator: Any, batch: int, in_dims: Dims, inputs: tuple[Any, ...]) -> tuple[Any, Any]:
    """One call for all, for an operator whose tensors all have one shape and that treats elements alike."""
    return operator(*_batch_first(batch, in_dims, inputs, range(len(inputs)))), 0


def elementwise(operator: Any, batch: int, in_dims: Dims, inputs: tuple[Any, ...]) -> tuple[Any, Any]:
    """One call for all, where only input 0 differs within the batch and the operator treats its elements alike."""
    if any(dim is not None for dim in in_dims[1:]):
        return looping(operator, batch, in_dims, inputs)
    return operator(*inputs), in_dims[0]


def folding(*positions: int) -> Rule:
    """One call for all, for an operator whose inputs at `positions`, and whose outputs, have images as dimension 0.

    The batch joins that dimension. Where another input differs within the batch it is one call for each element.
    """

    def rule(operator: Any, batch: int, in_dims: Dims, inputs: tuple[Any, ...]) -> tuple[Any, Any]:
        if any(dim is not None and index not in positions for index, dim in enumerate(in_dims)):
            return looping(operator, batch, in_dims, inputs)
        inputs = _batch_first(batch, in_dims, inputs, positions)
        images = inputs[positions[0]].shape[1]
        outputs = operator(*(x.flatten(0, 1) if i in positions else x for i, x in enumerate(inputs)))
        if isinstance(outputs, Tensor):
            return outputs.unflatten(0, (batch, images)), 0
        # An output that was not asked for is empty, and has no images.
        dims = tuple(0 if y.dim() > 1 else None for y in outputs)
        return tuple(
            y if d is None else y.unflatten(0, (batch, images)) for y, d in zip(outputs, dims, strict=True)
        ), dims

    return rule


def _batch_first(batch: int, in_dims: Dims, inputs: tuple[Any, ...], positions: Any) -> tuple[Any, ...]:
    """The inputs with the batch as dimension 0 of the tensors at `positions`."""
    moved = list(inputs)
    for index in positions:
        x, dim = inputs[index], in_dims[index]
        if isinstance(x, Tensor):
            moved[index] = x.expand(batch, *x.shape) if dim is None else x.movedim(dim, 0)
    return tuple(moved)
