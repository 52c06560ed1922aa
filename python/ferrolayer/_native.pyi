"""The native half of the package."""

from collections.abc import Callable, Sequence
from typing import Any

__version__: str

def register() -> str:
    """Registers the operators with the torch that is imported, once; gives the way: "c" or "fallback"."""

def doctor() -> list[tuple[str, str, str]]:
    """What the machine has: (what, "good" | "missing" | "bad", text). Never raises."""

class Array:
    """An array of Ferrolayer's own memory, on the CPU or a GPU.

    `numpy.asarray`, `cupy.from_dlpack`, `jax.dlpack.from_dlpack` and `torch.from_dlpack` make arrays of their own of
    it, which share the memory.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def dtype(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    def reshape(self, shape: Sequence[int]) -> Array: ...
    def bits(self) -> Array: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any: ...

def array_functions() -> dict[str, Callable[..., Any]]:
    """The operators as functions of arrays that speak DLPack; they give `Array`s."""
