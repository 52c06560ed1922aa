//! Devices and tensors themselves: where things are, what is said when something is wrong.

use std::process::Command;
use std::sync::Arc;

use cuda_std::launch::LaunchDims;
use cuda_std::prelude::*;
use ferrolayer::device::{Gpu, GpuOptions, KernelModule, PtxFamily, presence};
use ferrolayer::ops::{add2, relu};
use ferrolayer::{Device, Error, Tensor};
use kernels::relu::{BLOCK, ReluForward};

use crate::support::*;

pub fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_cpu("device::names", names),
        on_cpu("device::tensors_are_values", || tensors_are_values(&Device::cpu())),
        on_cpu("device::wrong_index_names_file_and_line", wrong_index_names_file_and_line),
        on_cpu("device::rejects_counts_that_do_not_fit", rejects_counts_that_do_not_fit),
        on_cpu("device::missing_gpu_is_one_sentence", missing_gpu_is_one_sentence),
        on_real_gpu("device::a_fault_names_the_launch_and_aborts_nothing", fault_in_a_child),
        on_real_gpu("device::streams_are_devices", streams_are_devices),
        on_real_gpu("device::a_stream_made_elsewhere", a_stream_made_elsewhere),
        on_real_gpu("device::loads_while_another_stream_is_captured", |_| in_a_child(CAPTURE, "0")),
        on_real_gpu("device::opening_leaves_the_threads_context", opening_leaves_the_threads_context),
        on_cpu("device::tells_what_is_here", tells_what_is_here),
        on_real_gpu("device::works_from_many_threads", works_from_many_threads),
    ];
    tests.extend(on_each_gpu("device::tensors_are_values", tensors_are_values));
    tests.extend(on_each_gpu("device::poison_is_seen", poison_is_seen));
    tests
}

fn names() -> Outcome {
    assert_eq!("cpu".parse::<Device>()?, Device::cpu());
    "auto".parse::<Device>()?;
    assert_error("tpu".parse::<Device>(), "Device::from_str: name is \"tpu\", expected cpu, gpu, gpu:N or auto")
}

/// A write to one owner is not seen by the other.
fn tensors_are_values(device: &Device) -> Outcome {
    let a = Tensor::from_slice(device, &[2], &[1.0f32, 2.0])?;
    let mut b = a.clone();
    b.copy_from_slice(&[3.0, 4.0])?;
    assert_eq!((a.to_vec()?, b.to_vec()?), (vec![1.0, 2.0], vec![3.0, 4.0]));
    let array = a.reshape(&[2, 1])?.to_array()?;
    assert_eq!(array.shape(), [2, 1]);
    assert_eq!(Tensor::from_array(device, &array.t())?.to_vec()?, [1.0, 2.0]);
    Ok(())
}

fn poison_is_seen(gpu: &Device) -> Outcome {
    let empty = Tensor::<f32>::empty(gpu, &[3])?.to_vec()?;
    assert!(empty.iter().all(|v| v.to_bits() == u32::MAX), "{empty:?}");
    Ok(())
}

fn wrong_index_names_file_and_line() -> Outcome {
    let gpu = Gpu::emulated();
    let (x, mut y) = (gpu.upload(&[1.0f32; 8])?, gpu.allocate::<f32>(8)?);
    let launch = ReluForward::<f32> { x: Some(&x), y: &mut y, n: 9 };
    // SAFETY: the emulated grid checks every index.
    let error = unsafe { gpu.launch(LaunchDims::new(1, BLOCK), launch) }.unwrap_err().to_string();
    assert!(error.starts_with("relu_forward_f32: ") && error.contains("elementwise.rs:"), "{error}");
    Ok(())
}

fn rejects_counts_that_do_not_fit() -> Outcome {
    let device = Device::cpu();
    assert_error(
        Tensor::from_slice(&device, &[2, 2], &[1.0f32; 3]),
        "Tensor::from_vec: values is 3 values, expected as many as shape [2, 2] has elements",
    )?;
    let mut x = Tensor::<f32>::zeros(&device, &[2, 2])?;
    assert_error(x.copy_from_slice(&[0.0; 5]), "Tensor::copy_from_slice: values is 5 values, expected 4")?;
    assert_error(x.reshape(&[3]), "Tensor::reshape: self has shape [2, 2], expected as many elements as [3]")
}

fn missing_gpu_is_one_sentence() -> Outcome {
    // No machine has a GPU of this number; where there is none at all, the sentence is another.
    let error = Device::gpu(4_000_000).unwrap_err();
    assert!(matches!(error, Error::NoGpu(_) | Error::Argument { .. }), "{error:?}");
    assert!(!error.to_string().contains('\n'), "{error}");
    Ok(())
}

/// Tensors of one stream are not taken on another, since nothing orders the two; `to` moves them.
fn streams_are_devices(gpu: &Device) -> Outcome {
    let other = Device::gpu(0)?;
    let (a, b) = (Tensor::full(gpu, &[5], 1.0f32)?, Tensor::full(&other, &[5], 2.0f32)?);
    assert!(matches!(add2::forward(&a, &b), Err(Error::Device { argument: "b", .. })));
    assert_eq!(add2::forward(&a, &b.to(gpu)?)?.to_vec()?, [3.0; 5]);
    Ok(())
}

fn a_stream_made_elsewhere(_: &Device) -> Outcome {
    // The default stream, as PyTorch's current one is at first.
    // SAFETY: the null handle is the default stream, which lives as long as the context.
    let gpu = Device::Gpu(unsafe { GpuOptions::default().open_on_stream(0, std::ptr::null_mut())? });
    let x = normal_tensor::<f32>(&Device::cpu(), 1, &[10_000]);
    assert_same_bits("y", &relu::forward(&x.to(&gpu)?)?, &relu::forward(&x)?)
}

static LOADED_LATE: KernelModule = KernelModule::new(
    ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry does_nothing(.param .u64 y)\n{\n    ret;\n}\n",
);

/// As `LOADED_LATE` has it.
#[kernel]
pub unsafe fn does_nothing(_y: GlobalMut<f32>) {}

/// Someone else captures a stream in the mode that allows no thread to load anything, as `torch.cuda.graph` does. GPUs are
/// opened meanwhile, on that stream and on a new one, and a kernel is loaded and launched; the capture holds the launch.
fn loads_during_a_capture() -> Outcome {
    // Before all else: it starts the driver.
    let mut memory = Gpu::new(0)?.allocate::<f32>(4)?;
    let context = Arc::new(cust::context::Context::new(cust::device::Device::get_device(0)?)?);
    let stream = libcuda::Stream::new(&context)?;
    stream.begin_capture(libcuda::CaptureMode::Global)?;
    // SAFETY: the stream is of the primary context and outlives the GPU.
    let gpu = unsafe { GpuOptions::default().open_on_stream(0, stream.raw().cast())? };
    // SAFETY: the kernel touches nothing.
    unsafe { LOADED_LATE.launch(&gpu, LaunchDims::new(1, 1), DoesNothing { _y: &mut memory })? };
    Gpu::new(0)?;
    let mut graph = stream.end_capture()?.instantiate()?;
    assert_eq!(graph.kernels().len(), 1);
    graph.launch(&stream)?;
    Ok(stream.synchronize()?)
}

/// A thread without a current context, whose device is no one's choice, stays so.
fn opening_leaves_the_threads_context(_: &Device) -> Outcome {
    let opened = std::thread::spawn(|| -> Result<bool, Box<dyn std::error::Error + Send + Sync>> {
        libcuda::primary_context(cust::device::Device::get_device(0)?)?;
        Ok(cust::context::CurrentContext::get_device().is_ok())
    });
    assert!(!opened.join().expect("no panic")?, "a context is current");
    Ok(())
}

/// On any machine, and as the devices have it.
fn tells_what_is_here() -> Outcome {
    match presence().and_then(|here| Ok((here.version, here.gpus?))) {
        Ok((version, gpus)) => {
            for gpu in gpus {
                assert!(gpu.memory > 0 && PtxFamily::of(gpu.compute_capability, version).is_ok());
                assert!(Device::gpu(gpu.ordinal)?.to_string().contains(&gpu.name));
            }
        }
        Err(missing) => assert_error(Device::gpu(0), &missing.to_string())?,
    }
    Ok(())
}

fn works_from_many_threads(gpu: &Device) -> Outcome {
    let x = normal_tensor::<f32>(gpu, 1, &[100_000]);
    let expected = relu::forward(&x.to(&Device::cpu())?)?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| relu::forward(&x)?.to(&Device::cpu()))).collect();
        for thread in threads {
            assert_same_bits("y", &thread.join().expect("no panic")?, &expected)?;
        }
        Ok(())
    })
}

/// Says what a child is to do.
const CHILD: &str = "FERROLAYER_TEST_CHILD";
/// A capture, which for its time keeps all threads of a process from what it cannot hold.
const CAPTURE: &str = "capture";
/// A read far outside a buffer.
const OUTSIDE: &str = "outside";
/// What a panic on the device becomes.
const TRAP: &str = "trap";

static TRAPPING: KernelModule = KernelModule::new(
    ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry traps(.param .u64 y)\n{\n    trap;\n    ret;\n}\n",
);

/// As `TRAPPING` has it.
#[kernel]
pub unsafe fn traps(_y: GlobalMut<f32>) {
    panic!("a trap");
}

/// Does it in a process of its own.
fn in_a_child(kind: &str, blocking: &str) -> Outcome {
    let child =
        Command::new(std::env::current_exe()?).env(CHILD, kind).env("FERROLAYER_LAUNCH_BLOCKING", blocking).output()?;
    let said = String::from_utf8_lossy(&child.stdout).into_owned() + &String::from_utf8_lossy(&child.stderr);
    if !child.status.success() || !said.contains(DONE) {
        return Err(format!("{kind}, blocking {blocking}: {}, said:\n{said}", child.status).into());
    }
    Ok(())
}

/// A fault takes the whole process's GPU with it.
fn fault_in_a_child(gpu: &Device) -> Outcome {
    for (blocking, fault) in [("0", OUTSIDE), ("1", OUTSIDE), ("0", TRAP)] {
        in_a_child(fault, blocking)?;
    }
    // The way back: another process, and this one, whose context is its own, never lost the GPU.
    let next = Command::new(std::env::current_exe()?)
        .env("FERROLAYER_REQUIRE_GPU", "1")
        .args(["--exact", "relu::edge_values::gpu"])
        .output()?;
    let said = String::from_utf8_lossy(&next.stdout);
    if !next.status.success() || !said.contains("1 passed") {
        return Err(format!("a process after the fault: {}, said:\n{said}", next.status).into());
    }
    relu::forward(&Tensor::full(gpu, &[3], -1.0f32)?)?.to_vec()?;
    Ok(())
}

/// What a child says that came to its end.
const DONE: &str = "done in the child";

/// In a child: does what it is asked for, and ends.
pub fn run_child_if_asked() {
    let Some(kind) = std::env::var_os(CHILD) else { return };
    let done = if kind == CAPTURE { loads_during_a_capture() } else { has_fault(kind == TRAP) };
    match done {
        Ok(()) => println!("{DONE}"),
        Err(failed) => {
            println!("{}", failed.message().unwrap_or("failed"));
            std::process::exit(1);
        }
    }
    std::process::exit(0);
}

/// Has the fault, and sees that the error says so and that nothing aborts afterwards.
fn has_fault(trap: bool) -> Outcome {
    let gpu = Gpu::new(0)?;
    let (x, mut y) = (gpu.upload(&[1.0f32; 8])?, gpu.allocate::<f32>(8)?);
    let device = Device::Gpu(gpu.clone());
    let tensor = Tensor::full(&device, &[8], 1.0f32)?;
    gpu.synchronize()?;
    let (name, result) = if trap {
        // SAFETY: the kernel touches nothing.
        ("traps", unsafe { TRAPPING.launch(&gpu, LaunchDims::new(1, 1), Traps { _y: &mut y }) })
    } else {
        // More elements than any GPU has memory for: some block leaves what is mapped.
        let blocks = 1 << 28;
        let launch = ReluForward::<f32> { x: Some(&x), y: &mut y, n: u64::from(blocks) * 1024 };
        // SAFETY: none; the process ends after this test.
        ("relu_forward_f32", unsafe { gpu.launch(LaunchDims::new(blocks, BLOCK), launch) })
    };
    let result = result.and_then(|()| gpu.synchronize());
    let Err(Error::KernelFault { launches, .. }) = &result else {
        return Err(format!("expected a kernel's fault, got {result:?}").into());
    };
    assert!(launches.len() == 1 && launches[0].contains(name), "{launches:?}");
    println!("{}", result.unwrap_err());
    // Later calls say it too, and nothing panics or aborts while what is left is dropped.
    assert!(relu::forward(&tensor).and_then(|y| y.to_vec()).is_err());
    Ok(())
}
