"""The bench command, with tiny shapes on the CPU: what it prints, writes, compares and draws, not how fast it is."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ferrolayer.__main__ import main  # noqa: E402
from ferrolayer.bench import products, report, rows, shapes  # noqa: E402
from ferrolayer.bench.cases import Case, cases, layouts, passes, random_cases, sizes  # noqa: E402
from ferrolayer.bench.rows import Machine, Row, Times  # noqa: E402

FIELDS = {
    "op": str,
    "pass": str,
    "dtype": str,
    "layout": str,
    "shape": list,
    "options": dict,
    "bytes": int,
    "baseline": str,
    "ours_us": dict,
    "torch_us": dict,
    "ratio": float,
    "device": str,
    "torch": str,
    "ferrolayer": str,
    "date": str,
}


def window(kernel: int, stride: int, padding: int = 0) -> dict[str, Any]:
    """The options of a square window."""
    return {"kernel": [kernel, kernel], "stride": [stride, stride], "padding": [padding, padding]}


def gaussian(kernel: int, stride: int, kernels: int = 1, learnable: bool = False) -> dict[str, Any]:
    """A Gaussian over a square window."""
    return {**window(kernel, stride), "kernels": kernels, "learnable": learnable}


def bench(*arguments: str | Path) -> int:
    """The command's exit status."""
    return main(["bench", *map(str, arguments)])


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a quick run over all ops writes."""
    path = tmp_path_factory.mktemp("bench") / "quick.jsonl"
    assert bench("--device", "cpu", "--quick", "--runs", "4", "--output", path) == 0
    return path


def test_every_op_and_pass_has_a_line(measured: Path) -> None:
    lines = [json.loads(line) for line in measured.read_text().splitlines()]
    wanted = {(op, pass_) for op in shapes.OPS for pass_ in passes(op)}
    assert {(line["op"], line["pass"]) for line in lines} == wanted
    for line in lines:
        for name, kind in FIELDS.items():
            assert isinstance(line[name], kind), f"{name} of {line}"
        assert 0 < line["ours_us"]["p10"] <= line["ours_us"]["median"] <= line["ours_us"]["p90"]
        assert line["ratio"] == pytest.approx(
            line["ours_us"]["median"] / line["torch_us"]["median"], rel=1e-2, abs=1e-3
        )
        # Of the CPU no rate of copying is known, so there is no share; a quick run compiles nothing.
        assert line["share"] is None and line["copy_gbps"] is None and line["compiled_us"] is None


def test_lines_read_back_are_the_rows(measured: Path, tmp_path: Path) -> None:
    read = rows.read(measured)
    rows.write(tmp_path / "again.jsonl", read)
    assert rows.read(tmp_path / "again.jsonl") == read


def test_only_what_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    some = ("--ops", "prelu", "relu", "--types", "f32", "f16", "--layouts", "NHWC", "--passes", "backward")
    assert bench("--device", "cpu", "--quick", "--runs", "1", *some, "--output", path) == 0
    found = [(row.op, row.dtype, row.layout, row.pass_) for row in rows.read(path)]
    assert found == [
        ("prelu", "f32", "NHWC", "backward"),
        ("prelu", "f16", "NHWC", "backward"),
        # No image: the choice of layouts is not for it.
        ("relu", "f32", "flat", "backward"),
        ("relu", "f16", "flat", "backward"),
    ]


def test_targets_on_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, threads = tmp_path / "targets.jsonl", torch.get_num_threads()
    some = ("--ops", "prelu", "relu", "--types", "f32", "--layouts", "NCHW", "--no-compile", "--runs", "1")
    try:
        assert bench("--device", "cpu", "--targets", "--threads", "1", *some, "--output", path) == 0
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(threads)
    # Only what has a goal, at a tenth of the batch.
    found = [(row.op, row.pass_, row.shape) for row in rows.read(path)]
    assert found == [("prelu", pass_, (6, 256, 56, 56)) for pass_ in ("forward", "backward")]
    told = capsys.readouterr().out
    assert "one thread a side" in told and "of 2 rows within 1.5 times eager PyTorch's time" in told


def test_compares_with_an_earlier_run(measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("--report", measured, "--compare", measured) == 0
    assert "0 slower and 0 faster" in capsys.readouterr().out

    first, *rest = rows.read(measured)
    faster_once = dataclasses.replace(first, ours_us=Times(*(time / 10 for time in dataclasses.astuple(first.ours_us))))
    steady = [dataclasses.replace(row, ours_us=Times(*[row.ours_us.median] * 3)) for row in (first, faster_once)]
    rows.write(tmp_path / "old.jsonl", [steady[1], *rest])
    rows.write(tmp_path / "new.jsonl", [steady[0], *rest])
    assert bench("--report", tmp_path / "new.jsonl", "--compare", tmp_path / "old.jsonl") == 1
    told = capsys.readouterr().out
    assert "1 slower and 0 faster" in told and "slower +900.0 %" in told


def test_draws_plots(measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    on_gpu = [gpu_row(shape=(n, 8, 32, 32), pass_=pass_) for n in (1, 8, 64) for pass_ in ("forward", "backward")]
    rows.write(tmp_path / "gpu.jsonl", on_gpu)
    assert bench("--report", tmp_path / "gpu.jsonl", "--plot", tmp_path) == 0
    assert bench("--report", measured, "--plot", tmp_path) == 0
    told = capsys.readouterr().out
    for name in ("share-max_pool.png", "size-max_pool.png", *(f"time-{op}.png" for op in shapes.OPS)):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG"), name
        assert name in told


def test_says_that_plots_need_matplotlib(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert bench("--device", "cpu", "--quick", "--plot", "anywhere") == 2
    assert capsys.readouterr().err == "plots need matplotlib: pip install matplotlib\n"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_refuses_in_one_sentence_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench() == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1 and "--device cpu" in told.err


@pytest.mark.parametrize(
    "arguments", [("--device", "tpu"), ("--device", "cuda:x"), ("--report", __file__), ("--compare", "/no/such/file")]
)
def test_refuses_what_it_cannot_do(arguments: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(*arguments) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and (arguments[1] in told or "not a file that --output wrote" in told)


def test_overhead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "overhead.jsonl"
    assert bench("--overhead", "--ops", "prelu", "--output", path) == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    cpu = [line for line in lines if line["device"] == "cpu"]
    assert [line["call"] for line in cpu] == ["no grad", "forward", "forward and backward"]
    assert [line["target"] for line in cpu] == [0.9, 1.25, 1.25]
    assert all(0 < line["ours_us"]["best"] <= line["ours_us"]["median"] for line in lines)
    assert "within their targets" in capsys.readouterr().out
    # Another kind of line: no row of the table.
    assert rows.read(path) == []


def test_products_want_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert bench("--products") == 2
    assert "PyTorch finds no GPU" in capsys.readouterr().err


def test_products_goals_and_random_layers() -> None:
    large, layer = (4096, 4096, 4096), (128, 4096, 4096)
    goals = {name: [mode.goal(large, "dw"), mode.goal(layer, "dw")] for name, mode in products.MODES.items()}
    assert goals == {
        "f32": [1.02, 1.0],
        "f32_split": [2.0, 1.5],
        "tf32": [1.3, 1.0],
        "bf16": [1.06, 1.25],
        "f16": [1.06, 1.25],
    }
    assert products.layer_goals(large, "forward") == (1.3, 1.08)
    assert products.layer_goals(layer, "backward") == (1.1, None)
    layers = products.random_shapes(300)
    assert layers == products.random_shapes(300) and len(set(layers)) > 290
    assert layers[:7] != products.random_shapes(7, seed=1)
    for multiple in (1, 8, 64):
        for sides in products.random_shapes(300, multiple=multiple):
            assert math.prod(sides) <= 1 << 37
            assert all(64 <= side <= 16384 and side % multiple == 0 for side in sides)


def test_products_summary() -> None:
    found = [{"mode": "bf16", "pass": "forward", "ratio": ratio, "goal": 1.0} for ratio in (0.9, 0.996, 1.0, 1.2, 1.3)]
    found += [{"mode": "layer", "pass": "backward", "ratio": ratio, "goal": 1.1} for ratio in (1.2, None)]
    assert products.summary(found).splitlines() == [
        "bf16 forward: 4 of 5 reach their goals, 2 ahead; least 0.90, a tenth up to 0.90, median 1.00",
        "layer backward: 1 of 1 reach their goals, 1 ahead; least 1.20, a tenth up to 1.20, median 1.20",
    ]


@pytest.mark.gpu
def test_products_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "SHAPES", ((64, 128, 72), (8, 16, 24)))
    path = tmp_path / "products.jsonl"
    assert bench("--products", "--modes", "f32", "tf32", "bf16", "--runs", "2", "--output", path) == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["pass"] for line in lines] == list(products.PASSES) * 6
    assert all(line["ratio"] == pytest.approx(line["torch_us"] / line["ours_us"], rel=1e-2) for line in lines)
    assert bench("--products", "--layers", "--no-compile", "--runs", "2", "--output", path) == 0
    assert [json.loads(line)["mode"] for line in path.read_text().splitlines()] == ["layer"] * 4
    # Another kind of line: no row of the table.
    assert rows.read(path) == []


@pytest.mark.gpu
@pytest.mark.parametrize("pass_", products.PASSES)
def test_products_are_those_of_cublas(pass_: str) -> None:
    def matrix(*sides: int) -> torch.Tensor:
        return torch.randn(*sides, device="cuda")

    operands = products._operands(pass_, matrix, 24, 40, 16)
    theirs = products._theirs(pass_)(*operands)
    ours = [result for result in _results(products._ours(pass_, 0)(*operands)) if result.numel() > 0]
    torch.testing.assert_close(ours, [theirs], rtol=1e-4, atol=1e-4)


def _results(of: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return of if isinstance(of, tuple) else (of,)


def test_the_compiled_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """`aot_eager` in place of the code generator, which needs a C++ compiler: binding is what is tested."""
    from ferrolayer.bench.machine import machine
    from ferrolayer.bench.measure import Bench
    from ferrolayer.bench.timing import CpuTimer

    compile_ = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda function, **options: compile_(function, backend="aot_eager", **options)
    )
    cpu = torch.device("cpu")
    (case,) = cases(["prelu"], which="tiny")
    for pass_ in passes("prelu"):
        row = Bench(cpu, machine(cpu), CpuTimer(1), runs=1, compiled=True).row(case, pass_, "f32", "NCHW")
        assert row.compiled_us is not None and row.compiled_ratio is not None


@pytest.mark.parametrize("op", [op for op in shapes.OPS if op != "stochastic_pool"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_both_sides_compute_the_same(op: str, layout: str) -> None:
    """A ratio between different things would mean nothing."""
    if layout not in layouts(op) and layout == "NHWC":
        pytest.skip("no image")
    torch.manual_seed(0)
    format_ = torch.channels_last if layout == "NHWC" else torch.contiguous_format
    for case in cases([op], which="tiny"):
        inputs = case.inputs(
            lambda shape: torch.randn(shape).contiguous(
                memory_format=format_ if len(shape) == 4 else torch.contiguous_format
            )
        )
        ours, theirs = case.ours(True)(*inputs), case.theirs(True)(*case.their_inputs(inputs))
        assert ours.shape == case.output_shape
        torch.testing.assert_close(ours, theirs)
        wanted = [tensor for tensor in inputs if tensor.requires_grad]
        dy = torch.randn_like(ours)
        for mine, other in zip(
            torch.autograd.grad(ours, wanted, dy), torch.autograd.grad(theirs, wanted, dy), strict=True
        ):
            torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


def test_stochastic_pooling_beside_its_composition() -> None:
    """Draws differ; each side takes an element of the window, and both have the same mean."""
    (case,) = cases(["stochastic_pool"], which="tiny")
    (x,) = case.inputs(torch.randn)
    windows = x.unfold(2, 2, 2).unfold(3, 2, 2).flatten(4).relu()
    for side in (case.ours(True), case.theirs(True)):
        drawn = side(x)
        assert drawn.shape == case.output_shape
        assert (((windows == drawn[..., None]).any(-1)) | (windows.sum(-1) == 0)).all()
    torch.testing.assert_close(case.ours(False)(x), case.theirs(False)(x))


def test_fewest_bytes() -> None:
    """Counted by hand: 2 × 3 images of 8 × 8 in f32, windows of 2 × 2, so 384 elements in and 96 out."""
    pooled = window(2, 2)
    at = (2, 3, 8, 8)
    assert Case("max_pool", at, pooled).bytes("forward", 4) == 4 * 384 + 4 * 96 + 96
    assert Case("max_pool", at, pooled).bytes("inference", 4) == 4 * 384 + 4 * 96
    assert Case("avg_pool", at, pooled).bytes("backward", 2) == 2 * (384 + 96)
    assert Case("prelu", at).bytes("backward", 4) == 3 * 4 * 384
    assert Case("scale_add", at).bytes("backward", 4) == 2 * 4 * 384
    learnt = Case("gaussian_pool", at, gaussian(2, 2, 3, learnable=True))
    assert learnt.output_shape == (2, 9, 4, 4)
    assert learnt.bytes("backward", 4) == 4 * (2 * 384 + 3 * 96)
    assert Case("dense", (4, 8, 6), {"activation": "none"}).bytes("forward", 4) == 4 * (4 * 8 + 8 * 6 + 6 + 4 * 6)


def test_share_is_the_time_of_a_copy_over_the_time_taken() -> None:
    row = gpu_row(ours=50.0)
    # 1e5 bytes at 4000 GB/s take 0.025 µs.
    assert row.share == pytest.approx(1e5 / 4e6 / 50.0)
    assert "0.001" in report.line(row)
    assert all(len(line) <= 140 for line in report.heading(row.machine).splitlines())


def gpu_row(ours: float = 5.0, **changes: object) -> Row:
    """A made-up result of a GPU."""
    machine = Machine("cuda", "a GPU", "580.1", "2.15", "0.1", "2026-11-21T00:00:00Z", 4000.0)
    row = Row(
        op="max_pool",
        pass_="forward",
        dtype="f32",
        layout="NCHW",
        shape=(1, 8, 32, 32),
        options=window(2, 2),
        bytes=100_000,
        flops=None,
        baseline="max_pool2d",
        ours_us=Times(ours, ours, ours),
        torch_us=Times(9.0, 10.0, 11.0),
        compiled_us=None,
        machine=machine,
    )
    return dataclasses.replace(row, **changes)


def test_sizes_go_from_1_kb_to_the_largest() -> None:
    found = [4 * math.prod(case.shape) for case in sizes(["max_pool"], 8 << 30, 4)]
    assert found[0] == 1 << 10 and found[-1] == 8 << 30 and found == sorted(set(found))


def test_a_sweep_is_of_many_geometries() -> None:
    found = cases(["max_pool", "avg_pool", "stochastic_pool", "gaussian_pool"], which="sweep")
    for case in found:
        assert min(case.output_shape) > 0, case
    pooled = [case for case in found if case.op == "max_pool"]
    assert {min(case.shape[2:]) for case in pooled} >= {7, 1024} and {case.shape[1] for case in pooled} >= {1, 4096}
    assert {case.shape[0] for case in pooled} >= {1, 256}
    assert {case.options["kernel"][0] for case in pooled} >= {2, 3, 5, 7, 16, 32}
    assert any(case.options["kernel"] == list(case.shape[2:]) for case in pooled), "global"


def test_random_cases_are_the_same_each_time_and_have_outputs() -> None:
    found = [case for op in ("prelu", "max_pool", "gaussian_pool") for case in random_cases(op, 200)]
    assert found == [case for op in ("prelu", "max_pool", "gaussian_pool") for case in random_cases(op, 200)]
    assert len(found) == 600 and len({(case.op, case.shape, case.label) for case in found}) > 550
    for case in found:
        assert min(case.output_shape) > 0 and 1 << 13 <= math.prod(case.shape) <= 1 << 25, case
    assert random_cases("max_pool", 20, seed=1) != random_cases("max_pool", 20)
    assert random_cases("relu", 5) == random_cases("dense", 5) == []


def test_targets_are_for_their_rows_alone() -> None:
    at = ("max_pool", (64, 64, 112, 112), window(3, 2, 1))
    assert shapes.target(*at, "forward", "f32", "NCHW") == 0.96
    assert shapes.target(*at, "backward", "bf16", "NCHW") == shapes.target(*at, "backward", "f32", "NHWC") == 0.87
    assert shapes.target(*at, "inference", "f32", "NCHW") is None
    assert shapes.target("max_pool", (64, 64, 111, 113), window(3, 2, 1), "forward", "f32", "NCHW") is None
    short = gpu_row(ours=50.0, target=0.9)
    told = report.summary([short, gpu_row(ours=0.02, target=0.9)])
    assert "targets: 1 of 2 rows reach theirs" in told and "<0.90" in report.line(short)


def test_products_have_goals_of_their_own_on_the_cpu() -> None:
    assert [shape for shape, _ in shapes.of("dense", "targets", cpu=True)] == [(n, n, n) for n in (64, 512, 512, 2048)]
    assert shapes.of("dense", "targets") == []
    assert shapes.of("dense", "tables", cpu=True)[0][0] == (102, 1024, 1024)  # elsewhere a tenth of the batch
    machine = dataclasses.replace(gpu_row().machine, device="cpu")
    some = (("dense", 12.0), ("dense", 10.5), ("prelu", 12.0))  # PyTorch takes 10
    told = report.summary([gpu_row(ours, op=op, machine=machine) for op, ours in some])
    assert "on the CPU: 1 of 2 rows within 1.1 times eager PyTorch's time" in told
    assert "on the CPU: 1 of 1 rows within 1.5 times eager PyTorch's time" in told


SAMPLES = Path(__file__).parents[2] / "tests/bench"
"""What the benches wrote on real machines; the library's own bench reads the same files in its tests."""


@pytest.mark.parametrize("side", ["rust", "python"])
def test_reads_the_lines_of_both_benches(side: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = SAMPLES / f"{side}.jsonl"
    for line, row in zip(path.read_text().splitlines(), rows.read(path), strict=True):
        stored = json.loads(line)
        assert json.loads(row.to_json()) == stored, "nothing is lost, and nothing is added"
        assert (row.machine.torch is None) == (side == "rust")
    assert bench("--report", path, path) == 0
    assert capsys.readouterr().out.count(f"{row.op:<15} {row.pass_:<9}") >= 2


def test_fewest_bytes_are_those_of_the_library_s_bench() -> None:
    for op, shape, options, pass_, size, bytes_ in json.loads((SAMPLES / "bytes.json").read_text()):
        if op in shapes.OPS and pass_ in passes(op):
            assert Case(op, tuple(shape), options).bytes(pass_, size) == bytes_, (op, shape, options, pass_)
