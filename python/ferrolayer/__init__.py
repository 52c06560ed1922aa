"""Ferrolayer: neural-network layers whose GPU kernels are written in Rust.

`ferrolayer.torch` has PyTorch layers. `ferrolayer.doctor()` says what this machine has. Importing `ferrolayer`
imports no other package, and needs neither PyTorch nor a GPU.
"""

from ._doctor import doctor
from ._native import __version__

__all__ = ["__version__", "doctor"]
