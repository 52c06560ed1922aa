"""`ferrolayer.functional`: what results are, and how long memory lives."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest

np = pytest.importorskip("numpy")

from test_arrays import normal  # noqa: E402

from ferrolayer import functional as F  # noqa: E402


def result(dtype=np.float32):
    """An `Array` of 2 × 3, and what it holds."""
    from ferrolayer._native import array_functions

    x = np.arange(6, dtype=dtype).reshape(2, 3)
    return array_functions()["relu"](x), x


def test_an_array_is_given_by_each_way():
    array, x = result()
    for made in (np.asarray(array), np.from_dlpack(array), array.__array__()):
        np.testing.assert_array_equal(made, x)
        assert made.ctypes.data == np.asarray(array).ctypes.data, "no copy"
    assert array.__dlpack_device__() == (1, 0)
    assert "dltensor_versioned" in repr(array.__dlpack__(max_version=(1, 0)))
    assert "dltensor_versioned" in repr(array.__dlpack__(max_version=(2, 3)))
    assert '"dltensor"' in repr(array.__dlpack__())
    assert '"dltensor"' in repr(array.__dlpack__(max_version=(0, 8)))
    np.testing.assert_array_equal(array.__array__(np.float64), x.astype(np.float64))
    copy = array.__array__(copy=True)
    copy[:] = 9
    np.testing.assert_array_equal(np.asarray(array), x)
    with pytest.raises(ValueError, match="stream is for arrays on a GPU"):
        array.__dlpack__(stream=1)
    with pytest.raises(BufferError, match="cannot be given on"):
        array.__dlpack__(dl_device=(2, 0))
    assert array.__dlpack__(dl_device=(1, 0), copy=False) is not None


def test_a_copy_is_one():
    class Copying:
        def __init__(self, array):
            self.array = array

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

        def __dlpack__(self, **options):
            return self.array.__dlpack__(copy=True, max_version=options.get("max_version"))

    array, x = result()
    copy = np.from_dlpack(Copying(array))
    assert copy.ctypes.data != np.asarray(array).ctypes.data
    np.testing.assert_array_equal(copy, x)


def test_reshape():
    array, x = result()
    np.testing.assert_array_equal(np.asarray(array.reshape((3, 2))), x.reshape(3, 2))
    assert array.reshape((1, 2, 3)).reshape((2, 3)).shape == (2, 3)
    with pytest.raises(ValueError, match="does not become"):
        array.reshape((4,))


def test_the_memory_outlives_the_array():
    array, x = result()
    made = np.asarray(array)
    del array
    gc.collect()
    np.testing.assert_array_equal(made, x)
    y = F.relu(normal(1000, 1000))
    expected = y.copy()
    gc.collect()
    np.testing.assert_array_equal(y, expected)


def test_a_capsule_may_be_dropped_untaken_and_is_taken_once():
    array, x = result()
    for version in (None, (1, 0)):
        array.__dlpack__(max_version=version)

    class Once:
        def __init__(self):
            self.capsule = x.__dlpack__()

        def __dlpack_device__(self):
            return 1, 0

        def __dlpack__(self, **_):
            return self.capsule

    once = Once()
    F.relu(once)
    with pytest.raises(TypeError, match="relu: x is not handed over by its library: .*taken before"):
        F.relu(once)


# Lifetimes.


def test_arguments_are_let_go_of():
    x, w = normal(5, 4), normal(3, 4)
    before = [sys.getrefcount(array) for array in (x, w)]
    y = F.linear(x, w)
    assert [sys.getrefcount(array) for array in (x, w)] == before
    with pytest.raises(ValueError, match="w has shape"):
        F.linear(x, w[:, :2])
    with pytest.raises(TypeError):
        F.linear(x, "w")
    gc.collect()
    assert [sys.getrefcount(array) for array in (x, w)] == before

    class Tracked(np.ndarray):
        pass

    tracked = x.view(Tracked)
    gone = weakref.ref(tracked)
    kept = F.relu(tracked)
    del tracked
    assert gone() is None
    np.testing.assert_array_equal(kept, np.maximum(x, 0))
    assert y.shape == (5, 3)


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_ten_thousand_calls_do_not_grow():
    x = normal(64, 64)
    flipped = x[::-1]

    def work():
        F.relu(x)
        F.add2(flipped, x)
        array, _ = result()
        array.__dlpack__(max_version=(1, 0))
        np.from_dlpack(array)
        with pytest.raises(ValueError, match="shape"):
            F.add2(x, x[:3])

    for _ in range(500):
        work()
    before = resident_bytes()
    for _ in range(3400):
        work()
    # Each call makes 16 KiB: a leak of every third would be 50 MB.
    assert resident_bytes() - before < 4 << 20
