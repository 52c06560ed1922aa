//! Launches, plain and with attributes, and what the driver says of functions.

use ferrolayer_libcuda::{DriverError, LaunchAttributes, Stream, launch, with_current};
use libtest_mimic::{Completion, Failed};

use crate::gpu::{Buffer, Gpu, Outcome, argument};

/// y = 3 x + 1 in a launch, checked.
pub fn scale_add(gpu: &Gpu, stream: &Stream) -> Result<(), Failed> {
    let x: Vec<f32> = (0..1000).map(|index| index as f32 - 500.5).collect();
    let input = Buffer::from_floats(&x, stream)?;
    let output = Buffer::from_floats(&vec![f32::NAN; x.len() + 1], stream)?;
    queue_scale_add(gpu, stream, &input, &output, x.len(), (3.0, 1.0))?;
    let y = output.floats()?;
    for (index, (y, x)) in y.iter().zip(&x).enumerate() {
        assert_eq!(*y, 3.0 * x + 1.0, "at {index}");
    }
    assert!(y[x.len()].is_nan(), "nothing is written behind the end");
    Ok(())
}

/// Queues y = a x + b.
pub fn queue_scale_add(
    gpu: &Gpu,
    stream: &Stream,
    input: &Buffer<'_>,
    output: &Buffer<'_>,
    length: usize,
    (mut a, mut b): (f32, f32),
) -> Result<(), Failed> {
    let kernel = gpu.kernel("scale_add")?;
    let (mut x, mut y, mut n) = (input.address, output.address, length as u32);
    let mut params = [argument(&mut x), argument(&mut y), argument(&mut a), argument(&mut b), argument(&mut n)];
    // SAFETY: five arguments of the kernel's types; both buffers have at least this length and are this stream's.
    unsafe { launch(kernel.raw(), [n.div_ceil(128), 1, 1], [128, 1, 1], 0, stream, &mut params, Default::default()) }?;
    Ok(())
}

pub fn plain(gpu: &Gpu) -> Outcome {
    let stream = gpu.stream()?;
    scale_add(gpu, &stream)?;
    let attributes = with_current(&gpu.context, || gpu.kernel("scale_add").map(|kernel| kernel.attributes()))???;
    assert!((1..=64).contains(&attributes.registers), "{attributes:?}");
    assert_eq!((attributes.local_bytes, attributes.static_shared_bytes), (0, 0));
    assert_eq!(attributes.max_threads_per_block, 1024);
    let (major, minor) = gpu.info.compute_capability;
    assert_eq!(attributes.binary_version, 10 * major + minor);

    // A block that is too large is the launch's own error, and harms nothing.
    let kernel = gpu.kernel("scale_add")?;
    let (mut address, mut number) = (0u64, 0u32);
    let mut params = [&raw mut address, &raw mut address].map(<*mut u64>::cast).to_vec();
    params.extend([&raw mut number; 3].map(<*mut u32>::cast));
    // SAFETY: five arguments of the kernel's sizes; it does not run.
    let error = unsafe { launch(kernel.raw(), [1; 3], [1025, 1, 1], 0, &stream, &mut params, Default::default()) };
    let error = error.expect_err("1025 threads");
    assert_eq!((error.call, error.name), ("cuLaunchKernel", "CUDA_ERROR_INVALID_VALUE"));
    scale_add(gpu, &stream)?;
    Ok(Completion::Completed)
}

pub fn much_shared_memory(gpu: &Gpu) -> Outcome {
    let stream = gpu.stream()?;
    let kernel = gpu.kernel("reverse")?;
    let threads = 1024;
    let output = Buffer::new(&vec![u32::MAX; threads as usize], &stream)?;
    let reverse = |bytes: u32| -> Result<(), DriverError> {
        let (mut out, mut stride) = (output.address, bytes / threads);
        let mut params = [argument(&mut out), argument(&mut stride)];
        // SAFETY: two arguments of the kernel's types; the buffer has a word for each thread.
        unsafe { launch(kernel.raw(), [1; 3], [threads, 1, 1], bytes, &stream, &mut params, Default::default()) }
    };
    let much = 64 << 10;
    reverse(much).expect_err("more than 48 KiB must be allowed first");
    with_current(&gpu.context, || -> Result<(), DriverError> {
        kernel.set_max_dynamic_shared(much)?;
        assert_eq!(kernel.attributes()?.max_dynamic_shared_bytes, much);
        let few = kernel.active_blocks_per_multiprocessor(threads, much)?;
        let many = kernel.active_blocks_per_multiprocessor(32, 0)?;
        assert!(few >= 1 && few < many, "{few} and {many} blocks");
        kernel.set_max_dynamic_shared(1 << 30).expect_err("a GiB");
        Ok(())
    })??;
    reverse(much)?;
    assert!(output.read()?.into_iter().eq((0..threads).rev()));
    Ok(Completion::Completed)
}

pub fn clusters(gpu: &Gpu) -> Outcome {
    let Some(kernel) = gpu.hopper_kernel("cluster_rank")? else { return gpu.not_hopper() };
    let stream = gpu.stream()?;
    for size in [1, 2, 4] {
        let blocks = 8;
        let output = Buffer::new(&vec![u32::MAX; blocks as usize], &stream)?;
        let mut out = output.address;
        let attributes = LaunchAttributes { cluster: Some([size, 1, 1]), ..Default::default() };
        // SAFETY: one argument of the kernel's type; the buffer has a word for each block.
        unsafe { launch(kernel.raw(), [blocks, 1, 1], [32, 1, 1], 0, &stream, &mut [argument(&mut out)], attributes) }?;
        assert_eq!(output.read()?, (0..blocks).map(|block| block % size + 16 * size).collect::<Vec<_>>());
    }
    // No more than there are multiprocessors, and fewer of larger ones.
    with_current(&gpu.context, || -> Result<(), DriverError> {
        kernel.set_max_dynamic_shared(200 << 10)?;
        let [one, two, four] = [1, 2, 4].map(|size| kernel.active_clusters([size, 1, 1], 384, 200 << 10));
        let (one, two, four) = (one?, two?, four?);
        assert!(one >= 2 * two && two >= 2 * four && four >= 1, "{one}, {two} and {four} clusters");
        Ok(())
    })??;
    // A grid that clusters do not divide.
    let mut out = 0u64;
    let attributes = LaunchAttributes { cluster: Some([2, 1, 1]), ..Default::default() };
    // SAFETY: one argument of the kernel's type; it does not run.
    let error =
        unsafe { launch(kernel.raw(), [3, 1, 1], [32, 1, 1], 0, &stream, &mut [argument(&mut out)], attributes) };
    assert_eq!(error.expect_err("3 blocks in clusters of 2").call, "cuLaunchKernelEx");
    Ok(Completion::Completed)
}

/// Adds one to each word of `buffer`, `times` times, each launch allowed to start before the one before it has ended.
pub fn queue_increments(
    gpu: &Gpu,
    stream: &Stream,
    buffer: &Buffer<'_>,
    words: u32,
    times: u32,
) -> Result<bool, Failed> {
    let Some(kernel) = gpu.hopper_kernel("increment")? else { return Ok(false) };
    let attributes = LaunchAttributes { programmatic_serialization: true, ..Default::default() };
    let mut x = buffer.address;
    for _ in 0..times {
        let grid = [words / 256, 1, 1];
        // SAFETY: one argument of the kernel's type; the buffer has a word for each thread; the kernel waits for the
        // one before.
        unsafe { launch(kernel.raw(), grid, [256, 1, 1], 0, stream, &mut [argument(&mut x)], attributes) }?;
    }
    Ok(true)
}

pub fn programmatic(gpu: &Gpu) -> Outcome {
    let stream = gpu.stream()?;
    let words = 1 << 20;
    let buffer = Buffer::new(&vec![5; words as usize], &stream)?;
    if !queue_increments(gpu, &stream, &buffer, words, 50)? {
        return gpu.not_hopper();
    }
    assert!(buffer.read()?.iter().all(|&word| word == 55));
    Ok(Completion::Completed)
}
