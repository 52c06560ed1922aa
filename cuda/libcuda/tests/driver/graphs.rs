//! Capture, replay, update.

use ferrolayer_libcuda::CaptureMode;
use libtest_mimic::Completion;

use crate::gpu::{Buffer, Gpu, Outcome, argument};
use crate::launches::{queue_increments, queue_scale_add};

pub fn replay_and_update(gpu: &Gpu) -> Outcome {
    let stream = gpu.stream()?;
    let length = 300;
    let x: Vec<f32> = (0..length).map(|index| index as f32).collect();
    let buffers = [&x, &vec![f32::NAN; length], &vec![f32::NAN; length]];
    let [input, middle, output] = buffers.map(|values| Buffer::from_floats(values, &stream));
    let (input, middle, output) = (input?, middle?, output?);

    // y = 2 x + 1, z = -1 y + 0.5
    let kernel = gpu.kernel("scale_add")?;
    stream.begin_capture(CaptureMode::ThreadLocal)?;
    assert!(stream.is_capturing()?);
    queue_scale_add(gpu, &stream, &input, &middle, length, (2.0, 1.0))?;
    queue_scale_add(gpu, &stream, &middle, &output, length, (-1.0, 0.5))?;
    let graph = stream.end_capture()?;
    assert!(!stream.is_capturing()?);
    assert!(output.floats()?.iter().all(|z| z.is_nan()), "recorded, not run");

    let mut exec = graph.instantiate()?;
    exec.upload(&stream)?;
    assert_eq!(exec.kernels().len(), 2);
    for node in exec.kernels() {
        assert_eq!(node.function, kernel.raw());
        assert_eq!((node.grid, node.block, node.shared_bytes), ([3, 1, 1], [128, 1, 1], 0));
    }
    let check = |a: f32, b: f32| -> Result<(), ferrolayer_libcuda::DriverError> {
        for (index, (z, x)) in output.floats()?.iter().zip(&x).enumerate() {
            assert_eq!(*z, -(a * x + b) + 0.5, "at {index}");
        }
        Ok(())
    };
    exec.launch(&stream)?;
    check(2.0, 1.0)?;

    // The recorded kernels read memory, not recorded values.
    let doubled: Vec<u32> = x.iter().map(|x| (2.0 * x).to_bits()).collect();
    input.write(&doubled)?;
    exec.launch(&stream)?;
    check(4.0, 1.0)?;

    // New arguments and a new shape for the first of the two.
    let (mut from, mut to, mut a, mut b, mut n) = (input.address, middle.address, 7.0f32, -3.0f32, length as u32);
    let mut params = [argument(&mut from), argument(&mut to), argument(&mut a), argument(&mut b), argument(&mut n)];
    // SAFETY: the recorded kernel, with five arguments of its types; both buffers outlive the replays.
    unsafe { exec.set_kernel(0, kernel.raw(), [10, 1, 1], [32, 1, 1], 0, &mut params) }?;
    assert_eq!(exec.kernels().next().map(|node| node.grid), Some([10, 1, 1]));
    for _ in 0..3 {
        exec.launch(&stream)?;
    }
    check(14.0, -3.0)?;

    // SAFETY: there is no such kernel, so that nothing is looked at.
    let error = unsafe { exec.set_kernel(2, kernel.raw(), [1; 3], [32, 1, 1], 0, &mut params) };
    assert_eq!(error.expect_err("there are two").name, "CUDA_ERROR_INVALID_VALUE");

    // Replayed in another stream, from another thread.
    let other = gpu.stream()?;
    std::thread::scope(|scope| {
        let replay = || exec.launch(&other).and_then(|()| other.synchronize());
        scope.spawn(replay).join().map_err(|_| "panicked".to_owned())?.map_err(|error| error.to_string())
    })?;
    check(14.0, -3.0)?;
    Ok(Completion::Completed)
}

pub fn programmatic(gpu: &Gpu) -> Outcome {
    let stream = gpu.stream()?;
    let words = 1 << 16;
    let buffer = Buffer::new(&vec![0; words as usize], &stream)?;
    stream.begin_capture(CaptureMode::ThreadLocal)?;
    let queued = queue_increments(gpu, &stream, &buffer, words, 10);
    let graph = stream.end_capture()?;
    if !queued? {
        return gpu.not_hopper();
    }
    // Its edges carry data, which the older call for edges refuses.
    let mut exec = graph.instantiate()?;
    assert_eq!(exec.kernels().len(), 10);
    for _ in 0..20 {
        exec.launch(&stream)?;
    }
    assert!(buffer.read()?.iter().all(|&word| word == 200));
    Ok(Completion::Completed)
}

pub fn errors(gpu: &Gpu) -> Outcome {
    let stream = gpu.stream()?;
    stream.end_capture().expect_err("nothing was begun");
    stream.begin_capture(CaptureMode::ThreadLocal)?;
    stream.begin_capture(CaptureMode::ThreadLocal).expect_err("begun already");
    // Whether that spoils the recording is the driver's affair.
    let _ = stream.end_capture();
    assert!(!stream.is_capturing()?);

    // Waiting cannot be recorded.
    stream.begin_capture(CaptureMode::ThreadLocal)?;
    let error = stream.synchronize().expect_err("capturing");
    assert_eq!(error.name, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED");
    stream.end_capture().expect_err("the recording was spoilt");
    assert!(!stream.is_capturing()?);
    // And is ordinary again.
    crate::launches::scale_add(gpu, &stream)?;

    // Nothing recorded is a graph that does nothing.
    stream.begin_capture(CaptureMode::ThreadLocal)?;
    let mut exec = stream.end_capture()?.instantiate()?;
    assert_eq!(exec.kernels().len(), 0);
    exec.launch(&stream)?;
    stream.synchronize()?;
    Ok(Completion::Completed)
}
