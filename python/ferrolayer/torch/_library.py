"""Registers the operators of the native library with the torch that is imported."""

from __future__ import annotations

from typing import Any

import torch
from torch.library import Library

from .. import _native

#: Which way the operators came: "c" through the C functions that libtorch exports, "fallback" through `torch.library`.
DOOR: str = _native.register()

# Libraries must outlive every operator that was looked up in them, so they are never let go.
_LIBRARIES: dict[str, Library] = {}


def library(namespace: str) -> Library:
    """The library that adds to `namespace`, made once."""
    if namespace not in _LIBRARIES:
        _LIBRARIES[namespace] = Library(namespace, "FRAGMENT")
    return _LIBRARIES[namespace]


def find(name: str) -> Any:
    """The operator `name`, such as "ferrolayer::relu", as an `OpOverload`."""
    namespace, operator = name.split("::")
    return getattr(getattr(torch.ops, namespace), operator).default
