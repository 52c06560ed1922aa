"""The order of JAX's work on a GPU."""

from __future__ import annotations

from sys import modules
from typing import Any

_ones: dict[int, Any] = {}


def fence(ordinal: int, stream: int) -> None:
    """Has `stream` wait for all that JAX has queued by now on the GPU with this number. No one waits on the CPU.

    JAX lets go of an array when its last use is queued, not done, and computes on a stream that it does not tell. What
    it computes now comes after all that, and can be waited for.
    """
    jax = modules["jax"]
    # Inside of a traced function, too.
    with jax.ensure_compile_time_eval():
        if ordinal not in _ones:
            try:
                devices = jax.local_devices(backend="gpu")
            except RuntimeError:
                devices = []  # A JAX for the CPU.
            device = next((device for device in devices if device.local_hardware_id == ordinal), None)
            _ones[ordinal] = None if device is None else jax.device_put(1.0, device)
        if _ones[ordinal] is not None:
            jax.numpy.negative(_ones[ordinal]).__dlpack__(stream=stream)
