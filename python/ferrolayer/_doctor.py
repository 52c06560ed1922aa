"""Says what this machine has of what the layers can use."""

from __future__ import annotations

import argparse
import importlib
import platform
import sys
from dataclasses import dataclass
from typing import Literal

from . import _native

State = Literal["good", "missing", "bad"]
_MARKS: dict[str, str] = {"good": "✓", "missing": "–", "bad": "✗"}
#: The oldest PyTorch that the layers work with.
OLDEST_TORCH = (2, 4)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: "good", "missing" (and needed for some purposes only) or "bad"."""

    what: str
    state: State
    text: str

    def __str__(self) -> str:
        return f"{_MARKS[self.state]} {self.what}: {self.text}"


class Findings(list[Finding]):
    """What `doctor` found; shown as a list of sentences."""

    @property
    def healthy(self) -> bool:
        """Whether nothing is bad. What is missing is needed for some purposes only."""
        return all(finding.state != "bad" for finding in self)

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    __repr__ = __str__


def doctor() -> Findings:
    """Driver, GPUs with the family of PTX chosen for each, PyTorch, versions, and which way PyTorch reaches the
    kernels.

    It never raises, and imports PyTorch and NumPy if they are there.
    """
    findings = Findings()
    findings.append(Finding("ferrolayer", "good", f"{_native.__version__}, Python {platform.python_version()}"))
    findings += [Finding(what, state, text) for what, state, text in _native.doctor()]  # type: ignore[arg-type]
    findings += _of_torch()
    findings.append(_of_package("numpy", "arrays are not taken"))
    return findings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`python -m ferrolayer doctor` has no arguments of its own."""


def run(arguments: argparse.Namespace) -> int:
    """Prints the findings; fails if one is bad."""
    findings = doctor()
    encoding = sys.stdout.encoding or "ascii"
    print(str(findings).encode(encoding, "replace").decode(encoding))
    return 0 if findings.healthy else 1


def _of_package(name: str, without: str) -> Finding:
    try:
        module = importlib.import_module(name)
    except ImportError:
        return Finding(name, "missing", f"not installed; {without}")
    except Exception as error:  # A broken installation can raise anything.
        return Finding(name, "bad", f"cannot be imported: {error}")
    return Finding(name, "good", str(getattr(module, "__version__", "of unknown version")))


def _of_torch() -> list[Finding]:
    found = _of_package("torch", "ferrolayer.torch needs it: pip install torch")
    if found.state != "good":
        return [found]
    import torch

    release = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2] if part.isdigit())
    if release < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        return [Finding("torch", "bad", f"{torch.__version__} is too old: pip install 'torch>={oldest}'")]
    findings = [Finding("torch", "good", f"{torch.__version__}, {_cuda(torch)}")]
    try:
        from .torch import DOOR
    except Exception as error:  # Whatever is wrong is to be said, not raised.
        return [*findings, Finding("torch operators", "bad", f"cannot be registered: {error}")]
    ways = {
        "c": "registered through libtorch's C functions",
        "fallback": "registered through torch.library, since this torch lacks the C functions; calls cost more",
    }
    return [*findings, Finding("torch operators", "good", ways.get(DOOR, DOOR))]


def _cuda(torch: object) -> str:
    """What this torch can do with GPUs, in words."""
    version = torch.version.cuda  # type: ignore[attr-defined]
    if version is None:
        return "built without CUDA: tensors stay on the CPU"
    try:
        count = torch.cuda.device_count()  # type: ignore[attr-defined]
    except Exception as error:
        return f"for CUDA {version}, which cannot be used: {error}"
    return f"for CUDA {version}, which sees {count} GPU{'' if count == 1 else 's'}"
