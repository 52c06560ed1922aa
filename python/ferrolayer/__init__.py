"""Neural-network layers whose GPU kernels are written in Rust."""

from ferrolayer._native import __version__

__all__ = ["__version__"]
