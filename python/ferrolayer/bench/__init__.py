"""`python -m ferrolayer bench`: how long each pass takes, beside PyTorch and beside the rate at which the GPU copies.

For every op, pass, type and layout, over a list of shapes: ours, PyTorch's own op (or what composes it from PyTorch's
primitives), the same compiled by `torch.compile`, and the share of the copy rate, all measured in one run and taken in
turns. `--overhead` measures what a call costs the host instead. See `docs/pytorch.md` for what came of it.

| module | holds |
|---|---|
| `command` | the options, and what happens in which order |
| `cases` | the ops: shapes, our side, PyTorch's side, the fewest bytes |
| `timing` | rotated inputs, events, the copy rate |
| `rows` | one result, as a line of JSON |
| `report` | the table, the summary, the comparison with an earlier run |
| `plots` | PNGs |
| `overhead` | host microseconds a call |
| `products` | products of matrices beside cuBLAS |
"""

from .command import add_arguments, run

__all__ = ["add_arguments", "run"]
