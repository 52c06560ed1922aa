"""Arrays of any library: calling operators with them, and giving results back as arrays of the same library.

No library is imported here: an array's own is loaded already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import modules
from typing import Any, TypeAlias

from .._native import Array, array_functions

#: An array of NumPy, CuPy, JAX, PyTorch, or of any library that speaks DLPack. Results are of the first argument's
#: library, if it is one of these four, else `ferrolayer.functional.Array`.
AnyArray: TypeAlias = Any

_functions = array_functions()


def call(operator: str, *arguments: Any) -> Any:
    """An operator's results as `Array`: one, or a tuple of them."""
    return _functions[operator](*arguments)


def giver(example: AnyArray) -> Callable[[Array], AnyArray]:
    """What makes of an `Array` an array of the library that `example` is of."""
    for library, kind, give in _LIBRARIES:
        module = modules.get(library)
        # A module that is being imported has no arrays yet.
        if module is not None and isinstance(example, getattr(module, kind, ())):
            return give(module)
    return lambda array: array


def _numpy(numpy: Any) -> Callable[[Array], AnyArray]:
    # Shares the memory as `from_dlpack` does, whose arrays are read-only before NumPy 2.1.
    return numpy.asarray  # type: ignore[no-any-return]


def _torch(torch: Any) -> Callable[[Array], AnyArray]:
    return torch.from_dlpack  # type: ignore[no-any-return]


def _cupy(cupy: Any) -> Callable[[Array], AnyArray]:
    return cupy.from_dlpack  # type: ignore[no-any-return]


def _jax(jax: Any) -> Callable[[Array], AnyArray]:
    import jax.dlpack  # A part of what is loaded.

    return jax.dlpack.from_dlpack  # type: ignore[no-any-return]


_LIBRARIES: tuple[tuple[str, str, Callable[[Any], Callable[[Array], AnyArray]]], ...] = (
    ("numpy", "ndarray", _numpy),
    ("torch", "Tensor", _torch),
    ("cupy", "ndarray", _cupy),
    ("jax", "Array", _jax),
)


def results(example: AnyArray, arrays: Sequence[Array], needs: Sequence[bool]) -> tuple[AnyArray | None, ...]:
    """Gradients as arrays of `example`'s library; `None` for those that nobody needs."""
    give = giver(example)
    return tuple(give(array) if need else None for array, need in zip(arrays, needs, strict=True))


def dtype_name(array: AnyArray) -> str:
    """NumPy's name of the element type."""
    return str(getattr(array, "dtype", None)).removeprefix("torch.")


def in_compute_type(array: AnyArray, x: AnyArray) -> AnyArray:
    """`array` in the type that `x` is computed in: float32, or float64 where `x` is so."""
    name = "float64" if dtype_name(x) == "float64" else "float32"
    if dtype_name(array) == name:
        return array
    if hasattr(array, "astype"):
        return array.astype(name)
    torch = modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return array.to(getattr(torch, name))
    return array


def images(operator: str, argument: str, x: AnyArray) -> tuple[AnyArray, bool]:
    """`x: (N, C, H, W)` or `(C, H, W)` as the first, and whether it is a single image."""
    shape = tuple(getattr(x, "shape", ()))
    if len(shape) not in (3, 4):
        raise ValueError(f"{operator}: {argument} has shape {shape}, expected (N, C, H, W) or (C, H, W)")
    return (x, False) if len(shape) == 4 else (x.reshape((1, *shape)), True)


def unbatched(array: Array, single: bool) -> Array:
    """The result of a single image without the dimension that `images` put before it."""
    return array.reshape(array.shape[1:]) if single else array
