"""The native half of the package."""

from collections.abc import Callable
from typing import Any

__version__: str

def register() -> str:
    """Registers the operators with the torch that is imported, once; gives the way: "c" or "fallback"."""

def doctor() -> list[tuple[str, str, str]]:
    """What the machine has: (what, "good" | "missing" | "bad", text). Never raises."""

def functions() -> dict[str, Callable[..., Any]]:
    """The operators as plain functions of tensors, around PyTorch's dispatcher."""
