//! A kernel that faults. It takes the context with it, hence a process of its own.

use std::process::Command;

use ferrolayer_libcuda::{Event, LaunchAttributes, Pinned, launch};
use libtest_mimic::Completion;

use crate::gpu::{Buffer, Gpu, Outcome, argument};

const ROLE: &str = "FERROLAYER_LIBCUDA_FAULT";
const DONE: &str = "every value was dropped";

/// Whether this process is the one that is to fault.
pub fn is_child() -> bool {
    std::env::var_os(ROLE).is_some()
}

pub fn comes_out_as_an_error(_: &Gpu) -> Outcome {
    let output = Command::new(std::env::current_exe()?).env(ROLE, "1").output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && said.trim_end().ends_with(DONE) {
        return Ok(Completion::Completed);
    }
    Err(format!("{}\n{said}{}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}

/// In the child: the error comes out of the next checked call, and what is dropped afterwards neither panics nor
/// aborts.
pub fn fault() {
    let gpu = Gpu::first().expect("the parent had a GPU");
    let stream = gpu.stream().expect("a stream");
    let event = Event::new(&gpu.context).expect("an event");
    let pinned = Pinned::<f32>::new(1000, &gpu.context).expect("pinned memory");
    let buffer = Buffer::new(&[0; 64], &stream).expect("memory");
    let kernel = gpu.kernel("scale_add").expect("the kernel");

    let (mut nowhere, mut y, mut a, mut b, mut n) = (256u64, buffer.address, 1.0f32, 0.0f32, 64u32);
    let mut params = [argument(&mut nowhere), argument(&mut y), argument(&mut a), argument(&mut b), argument(&mut n)];
    // SAFETY: five arguments of the kernel's types. The address is not mapped, which the GPU reports without harm to
    // others.
    unsafe { launch(kernel.raw(), [1; 3], [64, 1, 1], 0, &stream, &mut params, LaunchAttributes::default()) }
        .expect("the launch itself is well");
    let error = stream.synchronize().expect_err("the kernel read nowhere");
    assert_eq!((error.call, error.name), ("cuStreamSynchronize", "CUDA_ERROR_ILLEGAL_ADDRESS"));
    let again = event.record(&stream).and_then(|()| event.synchronize()).expect_err("the context is lost");
    assert_eq!(again.name, "CUDA_ERROR_ILLEGAL_ADDRESS");
    drop((buffer, event, pinned));
    drop(stream);
    println!("{DONE}");
}
