"""Names what is measured on."""

from __future__ import annotations

import datetime
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import torch

import ferrolayer

from .rows import Machine


def machine(device: torch.device, copy_gbps: float | None = None) -> Machine:
    """This machine, now."""
    gpu = device.type == "cuda"
    return Machine(
        device=device.type,
        gpu=torch.cuda.get_device_name(device) if gpu else _processor(),
        driver=_driver() if gpu else None,
        torch=torch.__version__,
        ferrolayer=ferrolayer.__version__,
        date=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        copy_gbps=copy_gbps,
        # A wheel does not know of which commit it is: who measures says it.
        commit=os.environ.get("FERROLAYER_COMMIT"),
    )


def _driver() -> str | None:
    """The driver's version as it calls itself."""
    proc = Path("/proc/driver/nvidia/version")
    if proc.exists() and (found := re.search(r"\s(\d{3,}\.\d+(?:\.\d+)?)\s", proc.read_text())):
        return found.group(1)
    if program := shutil.which("nvidia-smi"):
        query = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
        answer = subprocess.run(query, capture_output=True, text=True, check=False)
        return answer.stdout.strip().splitlines()[0] if answer.stdout.strip() else None
    return None


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists() and (found := re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text())):
        return found.group(1).strip()
    return platform.processor() or platform.machine()
