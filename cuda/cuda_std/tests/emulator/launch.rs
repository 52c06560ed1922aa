//! The generated launch type: what it tells the driver, and what it refuses.

use std::ffi::c_void;

use cuda_std::launch::{
    BufferArg, DeviceMemory, EmulationError, KernelInfo, Launch, LaunchArguments, LaunchDims, MemorySpace,
};
use cuda_std::prelude::*;

use crate::run;

const SIDE: u32 = 8;

/// A plain structure.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Steps {
    rows: u16,
    scale: f32,
}

// SAFETY: plain values, #[repr(C)].
unsafe impl KernelParam for Steps {}

/// One parameter of each kind.
#[kernel(block = (SIDE, SIDE / 2), min_blocks = 3, cluster = (2, 1, 1))]
pub unsafe fn every_kind(
    /// What is read.
    x: Global<f32>,
    y: GlobalMut<u16>,
    bias: Option<Global<f64>>,
    extra: Option<GlobalMut<u8>>,
    steps: Steps,
    n: u64,
    call: i8,
) {
    let first = thread::index_in_block() == 0 && thread::block_idx_x() == 0;
    // SAFETY: one thread.
    unsafe {
        if first {
            let bias = bias.map_or(0.0, |bias| bias.load(0));
            let sum = x.load(0) * steps.scale + bias as f32 + f32::from(call);
            y.store(0, sum as u16 + steps.rows + n as u16);
            if let Some(extra) = extra {
                extra.store(0, 9);
            }
        }
    }
}

/// A kernel that takes nothing.
#[kernel(max_threads = 4 * SIDE)]
pub unsafe fn nothing() {}

#[test]
fn what_the_attribute_says_is_known() {
    assert_eq!(
        EveryKind::KERNEL,
        KernelInfo {
            name: "every_kind",
            block: Some([8, 4, 1]),
            max_threads: None,
            min_blocks: Some(3),
            cluster: Some([2, 1, 1]),
        }
    );
    assert_eq!(Nothing::KERNEL.max_threads, Some(32));
    assert_eq!(Nothing::KERNEL.block, None);
}

#[test]
fn arguments_in_the_order_of_the_abi() {
    let (x, mut y, bias) = ([1.5f32; 3], [0u16; 2], [0.5f64]);
    let addresses = [x.as_ptr() as u64, y.as_ptr() as u64, bias.as_ptr() as u64];
    let launch = EveryKind {
        x: &x,
        y: &mut y,
        bias: Some(&bias),
        extra: None,
        steps: Steps { rows: 4, scale: 2.0 },
        n: 1 << 40,
        call: -3,
    };
    let mut buffers = Vec::new();
    assert_eq!(launch.kernel(), &EveryKind::KERNEL);
    launch.for_each_buffer(&mut |buffer| buffers.push(buffer));
    let expected = |i: usize, name, writes, bytes| BufferArg {
        name,
        space: MemorySpace::Host,
        writes,
        address: addresses[i],
        bytes,
    };
    let names = [("x", false, 12), ("y", true, 4), ("bias", false, 8)];
    let expected: Vec<_> =
        (0..).zip(names).map(|(i, (name, writes, bytes))| expected(i, name, writes, bytes)).collect();
    assert_eq!(buffers, expected);
    launch.with_params(&mut |params: &mut [*mut c_void]| {
        let [x, y, bias, extra, steps, n, call] = *params else { panic!("{} parameters", params.len()) };
        // SAFETY: each points to its argument.
        unsafe {
            assert_eq!([x, y, bias].map(|p| p.cast::<u64>().read()), addresses);
            assert_eq!(extra.cast::<u64>().read(), 0);
            assert_eq!(steps.cast::<Steps>().read().rows, 4);
            assert_eq!(n.cast::<u64>().read(), 1 << 40);
            assert_eq!(call.cast::<i8>().read(), -3);
        }
    });
    Nothing {}.with_params(&mut |params| assert!(params.is_empty()));
}

#[test]
fn a_launch_with_and_without_optional_buffers() {
    let bias = [0.5f64];
    let mut written = [0u8];
    for with in [true, false] {
        let (x, mut y) = (vec![1.5f32; 3], vec![0u16; 1]);
        let launch = EveryKind {
            x: &x,
            y: &mut y,
            bias: with.then_some(&bias as &dyn DeviceMemory<f64>),
            extra: if with { Some(&mut written) } else { None },
            steps: Steps { rows: 4, scale: 3.0 },
            n: 100,
            call: 2,
        };
        run(launch, LaunchDims::new(2, (8, 4))).unwrap();
        assert_eq!(y, [if with { 7 } else { 6 } + 104]);
    }
    assert_eq!(written, [9]);
    run(Nothing {}, LaunchDims::new(1, 32)).unwrap();
}

struct OnDevice;

// SAFETY: the address is never used: it is not the host's.
unsafe impl DeviceMemory<u16> for OnDevice {
    fn address(&self) -> u64 {
        0xdead_0000
    }

    fn len(&self) -> usize {
        1
    }

    fn space(&self) -> MemorySpace {
        MemorySpace::Device(1)
    }
}

#[test]
fn device_memory_is_refused() {
    let launch = EveryKind {
        x: &[0.0],
        y: &mut OnDevice,
        bias: None,
        extra: None,
        steps: Steps { rows: 0, scale: 0.0 },
        n: 0,
        call: 0,
    };
    let error = run(launch, LaunchDims::new(2, (8, 4))).unwrap_err();
    assert_eq!(error.to_string(), "kernel `every_kind`: `y` is in the memory of device 1, expected host memory");
}

fn refused(dims: LaunchDims) -> String {
    run(Nothing {}, dims).unwrap_err().to_string()
}

#[test]
fn dimensions_that_no_kernel_takes_are_refused() {
    let cases = [
        (LaunchDims::new(0, 1), "the grid is [0, 1, 1], expected 1 to [2147483647, 65535, 65535]"),
        (LaunchDims::new((1, 65_536), 1), "the grid is [1, 65536, 1]"),
        (LaunchDims::new(1, (1, 0, 1)), "the block is [1, 0, 1], expected 1 to [1024, 1024, 64]"),
        (LaunchDims::new(1, (1, 1, 65)), "the block is [1, 1, 65]"),
        (LaunchDims::new(1, 33), "the block is [33, 1, 1], expected at most 32 threads"),
        (LaunchDims::new(1, 1).with_shared(232_449), "232449 bytes of dynamic shared memory, expected at most 232448"),
    ];
    for (dims, text) in cases {
        let shown = refused(dims);
        assert!(shown.starts_with("kernel `nothing`: "), "{shown}");
        assert!(shown.contains(text), "{shown}");
    }
}

/// Takes any block.
#[kernel]
pub unsafe fn any_block() {}

#[test]
fn more_than_1024_threads_are_refused() {
    let error = run(AnyBlock {}, LaunchDims::new(1, (1024, 2))).unwrap_err();
    assert!(matches!(&error, EmulationError::Dims { what: "block", got: [1024, 2, 1], .. }), "{error}");
    run(AnyBlock {}, LaunchDims::new(1, 1).with_shared(232_448)).unwrap();
}

#[test]
fn the_kernels_own_shape_is_asked_for() {
    let launch = |dims| {
        let launch = EveryKind {
            x: &[0.0],
            y: &mut [0],
            bias: None,
            extra: None,
            steps: Steps { rows: 0, scale: 0.0 },
            n: 0,
            call: 0,
        };
        run(launch, dims).map_err(|error| error.to_string())
    };
    let shown = launch(LaunchDims::new(2, (4, 8))).unwrap_err();
    assert!(shown.contains("the block is [4, 8, 1], expected exactly [8, 4, 1]"), "{shown}");
    let shown = launch(LaunchDims::new(3, (8, 4))).unwrap_err();
    assert!(shown.contains("the grid is [3, 1, 1], expected a multiple of the cluster [2, 1, 1]"), "{shown}");
    launch(LaunchDims::new(4, (8, 4))).unwrap();
}

/// Is for one architecture, so that the host does not compile its body.
#[kernel(block = 32, only = "sm_90a", instances(T = [f32]))]
pub unsafe fn of_one_architecture<T: Storage>(x: Global<T>, map: TensorMap, n: u32) {
    compile_error_if_compiled(x, map, n)
}

#[test]
fn a_kernel_for_one_architecture_is_launched_and_not_emulated() {
    let map = TensorMap::from_words([7; 16]);
    let launch = OfOneArchitecture::<f32> { x: &[1.0], map, n: 3 };
    assert_eq!(OfOneArchitecture::<f32>::KERNEL.block, Some([32, 1, 1]));
    launch.with_params(&mut |params| {
        assert_eq!(params.len(), 3);
        // As the driver wants it: 128 bytes, at a multiple of 64.
        assert_eq!(params[1] as usize % 64, 0);
        // SAFETY: the second argument is the map.
        assert_eq!(unsafe { params[1].cast::<TensorMap>().read() }, map);
    });
    assert_eq!(
        run(launch, LaunchDims::new(1, 32)).unwrap_err().to_string(),
        "kernel `of_one_architecture_f32`: it is for sm_90a alone, and cannot be emulated"
    );
}
