"""Windows of two-dimensional pooling as arguments, in PyTorch's ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: One number for both axes, or one for each.
Size2 = int | Sequence[int]
#: Height and width of the window, vertical and horizontal stride, vertical and horizontal padding.
Window = tuple[int, int, int, int, int, int]


def pair(
    op: str, argument: str, position: int, value: Any, optional: bool = False, *, integer: Any = int
) -> tuple[int, int]:
    """`value` for both axes: an `integer`, or a sequence of one or two."""
    if isinstance(value, integer):
        return value, value
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        kind = type(value).__name__
        raise TypeError(f"{op}(): argument '{argument}' (position {position}) must be tuple of ints, not {kind}")
    for place, item in enumerate(value):
        if not isinstance(item, integer):
            raise TypeError(
                f"{op}(): argument '{argument}' (position {position}) must be tuple of ints, "
                f"but found element of type {type(item).__name__} at pos {place}"
            )
    if len(value) == 1:
        return value[0], value[0]
    if len(value) == 2:
        return value[0], value[1]
    omitted = "be omitted, " if optional else "be "
    raise RuntimeError(f"{op}: {argument} must either {omitted}a single int, or a tuple of two ints")


def normalise(op: str, kernel_size: Size2, stride: Size2 | None, padding: Size2, *, integer: Any = int) -> Window:
    """The window that these arguments mean; without a stride it is the window's size."""
    size = pair(op, "kernel_size", 2, kernel_size, integer=integer)
    omitted = stride is None or (isinstance(stride, Sequence) and len(stride) == 0)
    steps = size if omitted else pair(op, "stride", 3, stride, optional=True, integer=integer)
    return (*size, *steps, *pair(op, "padding", 4, padding, integer=integer))
