"""Reads tests/vectors: what PyTorch gave, on its CPU, for 2,460 stored cases; and how nearly a result must equal that.

Inputs are made anew from a case's seed by the generator's own `values`; the README beside the vectors describes the
files.
"""

from __future__ import annotations

import importlib.util
import json
import struct
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "vectors"
# Of the repository, where they cannot be missing, these tests may have been taken along without it.
if not FOLDER.is_dir() and not (ROOT / "Cargo.toml").exists():
    pytest.skip(f"the stored cases are not here: {FOLDER} is to be a copy of tests/vectors", allow_module_level=True)
NAMES = {torch.float32: "f32", torch.float64: "f64"}


@cache
def generator() -> ModuleType:
    """`generate.py`, for the inputs it makes."""
    spec = importlib.util.spec_from_file_location("generate_vectors", FOLDER / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def cases() -> tuple[dict[str, Any], ...]:
    """All cases; `number` is the line, and `places` says where in the stored numbers each output begins."""
    found, end = [], 0
    for number, line in enumerate((FOLDER / "cases.jsonl").read_text().splitlines(), 1):
        case = {**json.loads(line), "number": number, "line": line, "places": {}}
        for name, shape in sorted(case["outputs"].items()):
            case["places"][name] = end
            end += int(np.prod(shape))
        found.append(case)
    assert all(len(stored(dtype)) == end for dtype in NAMES)
    return tuple(found)


@cache
def stored(dtype: torch.dtype) -> Tensor:
    """All outputs of a type, one after another."""
    data = (FOLDER / "outputs.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    begin, end = json.loads(data[8 : 8 + length])[NAMES[dtype]]["data_offsets"]
    kind = {torch.float32: "<f4", torch.float64: "<f8"}[dtype]
    return torch.from_numpy(np.frombuffer(data[8 + length + begin : 8 + length + end], kind).copy())


def summation_error(dtype: torch.dtype, terms: int) -> float:
    """The bound of the Rust half (`ferrolayer::testing::summation_error`), where it is derived."""
    return (8.0 * max(terms, 1) ** 0.5 + 8.0) * torch.finfo(dtype).eps / 2


def describe(name: str, got: Tensor, expected: Tensor, wrong: Tensor) -> str | None:
    """Names the first element that is wrong, if one is."""
    if not wrong.any():
        return None
    at = int(wrong.flatten().nonzero()[0])
    values = f"got {got.flatten()[at].item():e}, expected {expected.flatten()[at].item():e}"
    return f"{name}: {int(wrong.sum())} of {wrong.numel()} elements differ; element {at}: {values}"


@dataclass
class Trial:
    """A case in one type on one device, and what was found wrong with it."""

    case: dict[str, Any]
    dtype: torch.dtype
    device: str
    wrong: list[str] = field(default_factory=list)

    def host(self, kind: str, tensor: int, shape: Any) -> Tensor:
        """Input number `tensor`, on the CPU."""
        return generator().values(kind, self.case["seed"], tensor, shape, self.dtype)

    def leaf(self, kind: str, tensor: int, shape: Any) -> Tensor:
        """Input number `tensor`, on the device under test, where a gradient is wanted."""
        return self.host(kind, tensor, shape).to(self.device).requires_grad_()

    def gradient(self) -> Tensor:
        """What comes back to the output: input number 1."""
        return self.host(self.case["gradient"], 1, self.case["outputs"]["y"])

    def expected(self, output: str) -> Tensor:
        """What PyTorch gave."""
        shape, begin = self.case["outputs"][output], self.case["places"][output]
        return stored(self.dtype)[begin : begin + int(np.prod(shape))].reshape(shape)

    def exact(self, output: str, got: Tensor, expected: Tensor | None = None) -> None:
        """Every element has the expected bits; one NaN is as good as another."""
        expected = self.expected(output) if expected is None else expected
        if (got := self._comparable(output, got, expected)) is None:
            return
        same = (got == expected) & (got.signbit() == expected.signbit()) | got.isnan() & expected.isnan()
        self._note(describe(output, got, expected, ~same))

    def close(self, output: str, got: Tensor, terms: int, sizes: Tensor, expected: Tensor | None = None) -> None:
        """Each element is off by no more than sums of `terms` terms, whose magnitudes come to `sizes`, may round to."""
        expected = self.expected(output) if expected is None else expected
        if (got := self._comparable(output, got, expected)) is None:
            return
        allowed = 2 * summation_error(self.dtype, terms) * sizes.double() + torch.finfo(self.dtype).tiny
        near = (got.double() - expected.double()).abs() <= allowed.reshape(got.shape)
        # An infinite size allows any finite number, but not NaN for a number, nor a number for an infinity.
        near &= got.isfinite() & expected.isfinite()
        same = (got == expected) | got.isnan() & expected.isnan()
        self._note(describe(output, got, expected, ~(near | same)))

    def _comparable(self, output: str, got: Tensor, expected: Tensor) -> Tensor | None:
        if got.shape != expected.shape or got.dtype is not expected.dtype:
            what = f"is {list(got.shape)} of {got.dtype}, expected {list(expected.shape)} of {expected.dtype}"
            self._note(f"{output}: {what}")
            return None
        return got.detach().cpu()

    def _note(self, message: str | None) -> None:
        if message is not None:
            self.wrong.append(message)
