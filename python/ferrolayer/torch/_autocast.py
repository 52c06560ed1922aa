"""Casts under `torch.autocast`, as it does for its own operations."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

#: Whether autocast is on for any kind of device, as cheaply as this torch can say.
any_autocast: Callable[[], bool] = getattr(
    torch._C, "_is_any_autocast_enabled", lambda: torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
)


def lower_precision(device: torch.device, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    """The tensors in autocast's type for this kind of device where it is on; float64 and integers stay.

    What PyTorch calls its list of operations that prefer low precision; `linear` and `prelu` are on it.
    """
    # There is no autocast for tensors without numbers, and asking for it is an error.
    if device.type == "meta" or not torch.is_autocast_enabled(device.type):
        return tensors
    dtype = torch.get_autocast_dtype(device.type)
    return tuple(x.to(dtype) if _eligible(x, device) else x for x in tensors)


def _eligible(x: Tensor | None, device: torch.device) -> bool:
    return x is not None and x.is_floating_point() and x.dtype is not torch.float64 and x.device.type == device.type
