"""What README.md and docs/pytorch.md show runs as it stands there."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["README.md", "docs/pytorch.md"])
def test_examples_run(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The default compiler wants a C++ compiler, which not every machine has; that there are no breaks shows before it.
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert blocks
    for block in blocks:
        values: dict[str, object] = {}
        exec(compile(block, page, "exec"), values)
        model = values["model"]
        assert callable(model)
        assert model(torch.randn(2, 1, 28, 28)).shape == (2, 10)
