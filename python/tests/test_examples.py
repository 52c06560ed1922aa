"""The examples, run as a reader would run them, on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(folder: Path, *command: str) -> str:
    """What a command prints, run in `folder` with this Python; it has to succeed."""
    # One thread in every process: the networks are tiny, and the tests' own workers share the processors.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG")


def test_add2_model(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert "largest element" in run(tmp_path, str(EXAMPLES / "add2_model.py"))
    assert is_png(tmp_path / "add2_model.png")


def test_train_digits(tmp_path: Path) -> None:
    assert ", within the spread" in run(tmp_path, str(EXAMPLES / "train_digits.py"))


def test_gaussian_pooling_cnn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert "Gaussian pooling, learnt, seed 1" in run(tmp_path, str(EXAMPLES / "gaussian_pooling_cnn.py"))
    assert is_png(tmp_path / "gaussian_pooling_cnn.png")


def test_ddp(tmp_path: Path) -> None:
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    printed = run(tmp_path, *torchrun, str(EXAMPLES / "ddp.py"))
    assert "yes, to the bit" in printed and "\nas it should be" in printed


def test_ddp_says_how_to_start_it(tmp_path: Path) -> None:
    alone = [sys.executable, str(EXAMPLES / "ddp.py")]
    done = subprocess.run(alone, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "torchrun" in done.stderr
