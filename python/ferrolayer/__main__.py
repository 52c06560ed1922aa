"""`python -m ferrolayer COMMAND`."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence

#: Each command's name, the module that has it, and what it does. A module has `add_arguments(parser)` and
#: `run(arguments)`, which gives the exit status; it is imported only when its command is given.
COMMANDS: dict[str, tuple[str, str]] = {
    "doctor": ("ferrolayer._doctor", "say what this machine has, and what is missing"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command that these arguments (the process's, if left out) name, and gives its exit status."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(prog="python -m ferrolayer", description="Neural-network layers in Rust.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    run: Callable[[argparse.Namespace], int] | None = None
    for name, (module, does) in COMMANDS.items():
        command = commands.add_parser(name, help=does, description=f"{does[0].upper()}{does[1:]}.")
        if name in arguments[:1]:
            found = importlib.import_module(module)
            found.add_arguments(command)
            run = found.run
    parsed = parser.parse_args(arguments)
    assert run is not None, "argparse lets no other command through"
    return run(parsed)


if __name__ == "__main__":
    sys.exit(main())
