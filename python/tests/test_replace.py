import copy
import pickle

import pytest
import torch
from torch import nn

import ferrolayer.torch as fl


def network():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.PReLU(4),
        nn.MaxPool2d(2),
        nn.ReLU(inplace=True),
        nn.AvgPool2d(2, ceil_mode=True),
        nn.Flatten(),
        nn.Sequential(nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 6), nn.PReLU()),
        nn.Linear(6, 3),
    )


@pytest.mark.parametrize("fuse", [False, True])
def test_swaps_in_place(fuse):
    model = network().eval()
    x = torch.randn(2, 1, 14, 14)
    expected, modules = model(x), list(model.modules())
    parameters, state = list(model.parameters()), copy.deepcopy(model.state_dict())
    report = fl.replace(model, fuse=fuse)
    torch.testing.assert_close(model(x), expected)
    assert [id(m) for m in model.modules()] == [id(m) for m in modules]
    assert all(p is q for p, q in zip(model.parameters(), parameters, strict=True))
    assert list(model.state_dict()) == list(state)
    network().load_state_dict(model.state_dict())
    assert not report.left
    assert [r.fused for r in report.replaced if r.fused] == (["6.1", "6.3"] if fuse else [])
    assert isinstance(model[6][0], fl.Linear)
    assert not any(module.training for module in model.modules())
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        torch.testing.assert_close(other(x), expected)
        for parameter in other.parameters():
            parameter.data.mul_(0.5)
        assert not torch.allclose(other(x), expected)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), expected)
    model(x).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_again_there_is_nothing_to_do():
    model = network()
    fl.replace(model)
    assert str(fl.replace(model)) == "nothing to replace"
    assert [r.fused for r in fl.replace(model, types=[nn.Linear, nn.ReLU]).replaced] == []


def test_the_model_itself():
    model = nn.Linear(3, 2)
    assert str(fl.replace(model)) == "replaced 1, left 0\n  replaced  (model)  Linear"
    assert type(model) is fl.Linear
    assert repr(model) == repr(nn.Linear(3, 2))


def test_only_types_asked_for():
    model = network()
    report = fl.replace(model, types=[nn.MaxPool2d])
    assert [r.name for r in report.replaced] == ["2"]
    with pytest.raises(ValueError, match="nothing to replace Conv2d with"):
        fl.replace(model, types=[nn.Conv2d])


def test_leaves_what_it_cannot():
    class Scaled(nn.Linear):
        def forward(self, input):
            return 2 * super().forward(input)

    model = nn.ModuleDict(
        {
            "subclass": Scaled(2, 2),
            "parametrised": nn.utils.parametrizations.orthogonal(nn.Linear(2, 2)),
            "normed": nn.utils.weight_norm(nn.Linear(2, 2)),
            "padding": nn.MaxPool2d((2, 2, 2)),
            "good": nn.Linear(2, 2),
        }
    )
    x = torch.randn(3, 2)
    expected = {name: module(x) for name, module in model.items() if name != "padding"}
    report = fl.replace(model)
    assert [r.name for r in report.replaced] == ["good"]
    why = {left.name: left.why for left in report.left}
    assert "subclass" in why["subclass"]
    assert why["parametrised"] == "it is parametrised"
    assert why["normed"] == "its weight is not a parameter"
    assert "tuple of two ints" in why["padding"]
    for name, y in expected.items():
        torch.testing.assert_close(model[name](x), y)
    assert "left      normed" in str(report)


def test_shared_modules_and_hooks():
    shared, calls = nn.Linear(2, 2), []
    model = nn.Sequential(shared, nn.ReLU(), shared, nn.ReLU())
    shared.register_forward_hook(lambda *_: calls.append(1))
    report = fl.replace(model, fuse=True)
    assert model[0] is model[2]
    assert len(report.replaced) == 3
    assert not any(r.fused for r in report.replaced)
    model(torch.randn(1, 2))
    assert len(calls) == 2


def test_does_not_fuse_across_hooks():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2), nn.PReLU(2))
    model[1].register_forward_hook(lambda *_: None)
    assert not any(r.fused for r in fl.replace(model, fuse=True).replaced)
