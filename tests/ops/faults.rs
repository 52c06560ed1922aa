//! What goes wrong outside of an op: no memory left, tensors dropped early, two streams at once, arguments of any kind.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ferrolayer::ops::dense::{self, Activation};
use ferrolayer::ops::{Window, add2, avg_pool, gaussian_pool, max_pool, prelu, relu, scale_add};
use ferrolayer::{Device, Error, Layout, Out, Result, Tensor};
use proptest::prelude::*;

use crate::support::*;

pub fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_cpu("faults::no_memory_on_the_cpu_is_an_error", || no_memory_is_an_error(&Device::cpu())),
        on_cpu("faults::no_argument_panics", || no_argument_panics(&Device::cpu())),
        on_whole_gpu("faults::no_memory_in_a_pass_leaves_everything_as_it_was", no_memory_in_a_pass),
        on_real_gpu("faults::two_streams_compute_what_one_does", two_streams_compute_what_one_does),
    ];
    tests.extend(on_each_gpu("faults::no_memory_is_an_error", no_memory_is_an_error));
    tests.extend(on_each_gpu("faults::no_argument_panics", no_argument_panics));
    tests.extend(on_each_gpu("faults::tensors_may_go_while_work_is_queued", tensors_may_go_while_work_is_queued));
    tests
}

fn no_memory_is_an_error(device: &Device) -> Outcome {
    // More than any machine's addresses reach.
    match Tensor::<f32>::empty(device, &[1 << 58]) {
        Err(Error::OutOfMemory { bytes, .. }) => assert_eq!(bytes, 1 << 60),
        other => return Err(format!("{:?}", other.map(|tensor| tensor.len())).into()),
    }
    assert_eq!(Tensor::<f32>::zeros(device, &[3])?.to_vec()?, [0.0; 3]);
    if let Device::Gpu(gpu) = device {
        gpu.trim()?;
        assert_eq!(Tensor::<f32>::zeros(device, &[3])?.to_vec()?, [0.0; 3]);
    }
    Ok(())
}

/// Takes pieces of this size until there are none.
fn take_all(gpu: &Device, bytes: usize) -> Result<Vec<Tensor<u8>>> {
    let mut pieces = Vec::new();
    loop {
        match Tensor::empty(gpu, &[bytes]) {
            Ok(piece) => pieces.push(piece),
            Err(Error::OutOfMemory { .. }) => return Ok(pieces),
            Err(error) => return Err(error),
        }
    }
}

fn no_memory_in_a_pass(gpu: &Device) -> Outcome {
    const PIECE: usize = 64 << 20;
    // With PReLU a forward makes two outputs of 48 MiB; the weights make them out of little.
    let (rows, columns) = (12 << 10, 1 << 10);
    let (x, w) = (normal_tensor::<f32>(gpu, 1, &[rows, 4]), normal_tensor::<f32>(gpu, 2, &[columns, 4]));
    let alpha = Tensor::full(gpu, &[1], 0.25f32)?;
    let pass = || dense::forward(&x, &w, None, Activation::Prelu(&alpha));
    let expected = pass()?.y;

    let mut large = take_all(gpu, 1 << 30)?;
    let most = large.len();
    large.pop();
    let mut small = take_all(gpu, PIECE)?;
    let rest = take_all(gpu, 2 << 20)?;
    // One piece is room for the first output and not for the second.
    small.pop().ok_or("a GPU with a GiB of memory")?;
    for _ in 0..3 {
        let error = pass().map(drop).unwrap_err();
        let Error::OutOfMemory { bytes, free: Some(free), .. } = error else { return Err(error.into()) };
        assert_eq!(bytes, rows * columns * 4);
        assert!(free < bytes, "{free} bytes are free, and {bytes} were not to be had");
    }
    // What needs less works, and with more room the pass does.
    assert_eq!(relu::forward(&alpha)?.to_vec()?, [0.25]);
    small.truncate(small.len().saturating_sub(2));
    assert_same_bits("y", &pass()?.y, &expected)?;
    // Nothing was lost on the way: there is as much to take as before.
    drop((large, small, rest));
    let again = take_all(gpu, 1 << 30)?.len();
    assert!(again >= most, "{again} GiB of {most}");
    // Other processes have it only when it is given back.
    let Device::Gpu(gpu) = gpu else { unreachable!("a test of GPUs") };
    gpu.trim()?;
    Ok(())
}

fn two_streams_compute_what_one_does(gpu: &Device) -> Outcome {
    const PASSES: usize = 1000;
    /// Forward and backward, each from the last one's result.
    fn run(device: &Device, seed: u64) -> Result<Vec<u32>> {
        let shape = [3, 5, 37, 41];
        let window = Window::new([3, 3]).stride([1, 1]).padding([1, 1]);
        let mut x = normal_tensor::<f32>(device, seed, &shape);
        let alpha = Tensor::full(device, &[5], 0.5f32)?;
        let [mean, var] = [(2, 0.25f32), (1, 0.5)].map(|(n, v)| Tensor::full(device, &[1, 1, n], v).unwrap());
        let mut dalpha = alpha.empty_like()?;
        for _ in 0..PASSES {
            let y = prelu::forward(&x, &alpha)?;
            let pooled = gaussian_pool::forward(&y, &mean, &var, &window, gaussian_pool::Normalize::Window)?;
            let mut dx = x.empty_like()?;
            prelu::backward(&x, &alpha, &pooled, Some(Out::write(&mut dx)), Some(Out::write(&mut dalpha)))?;
            x = add2::forward(&dx, &y)?;
            let max_pool::Output { y, .. } = max_pool::forward(&x, &window)?;
            x = avg_pool::forward(&y, &window, &avg_pool::Divisor::default())?;
        }
        Ok(x.to_vec()?.into_iter().chain(dalpha.to_vec()?).map(f32::to_bits).collect())
    }
    let alone = [run(gpu, 1)?, run(gpu, 2)?];
    let devices = [Device::gpu(0)?, Device::gpu(0)?];
    let together = std::thread::scope(|scope| {
        let threads = [1, 2].map(|seed| {
            let device = &devices[seed as usize - 1];
            scope.spawn(move || run(device, seed))
        });
        threads.map(|thread| thread.join().expect("no panic"))
    });
    for (together, alone) in together.into_iter().zip(alone) {
        assert!(together? == alone, "other bits than alone");
    }
    Ok(())
}

fn tensors_may_go_while_work_is_queued(gpu: &Device) -> Outcome {
    let len = if matches!(gpu, Device::Gpu(gpu) if gpu.is_emulated()) { 3000 } else { 3_000_000 };
    let values = normal::<f32>(1, len);
    let expected: Vec<f32> = values.iter().map(|v| v.max(0.0) * 1024.0).collect();
    let mut x = relu::forward(&Tensor::from_slice(gpu, &[len], &values)?)?;
    for _ in 0..10 {
        // Each sum's inputs go as soon as it is queued, and their memory to what comes next.
        x = add2::forward(&x, &x)?;
        drop(Tensor::full(gpu, &[len], f32::NAN)?);
    }
    assert!(x.to_vec()? == expected);
    Ok(())
}

/// Sizes of every kind: none, one, odd, and too large for 31, 32 and 64 bits.
fn sizes_of_every_kind() -> impl Strategy<Value = usize> {
    prop_oneof![
        60 => 0usize..6,
        1 => Just(1 << 16),
        1 => Just((1 << 31) - 1),
        1 => Just(1 << 32),
        1 => Just(usize::MAX / 2),
        1 => Just(usize::MAX),
    ]
}

/// Any arguments give a result or an error: no panic, and nothing out of bounds, which the emulated grid and the sanitizers
/// would tell.
fn no_argument_panics(device: &Device) -> Outcome {
    let size = sizes_of_every_kind;
    let pair = move || [size(), size()];
    let window = (pair(), pair(), pair(), pair(), any::<bool>())
        .prop_map(|(size, stride, padding, dilation, ceil_mode)| Window { size, stride, padding, dilation, ceil_mode });
    let small = || proptest::collection::vec(0usize..5, 0..6);
    let image = prop_oneof![proptest::collection::vec(1usize..9, 4), small()];
    let shapes = (image, small(), small(), proptest::collection::vec(size(), 0..6));
    let cases = if matches!(device, Device::Cpu(_)) { 2000 } else { 200 };
    for_random(
        cases,
        (shapes, window, any::<u64>(), any::<f64>(), any::<bool>()),
        |((a, b, c, any), window, seed, beta, last)| {
            let result = catch_unwind(AssertUnwindSafe(|| {
                let tensor = |shape: &[usize], salt: u64| {
                    let x = normal_tensor::<f32>(device, seed.wrapping_add(salt), shape);
                    if last { x.to_layout(Layout::ChannelsLast).unwrap_or(x) } else { x }
                };
                let (x, y, z) = (tensor(&a, 0), tensor(&b, 1), tensor(&c, 2));
                let mut out = tensor(&a, 3);
                // What fails, fails with an error: which one is other tests' business.
                // Neither would a size be refused between these two, nor could a test afford it.
                let elements: f64 = any.iter().map(|&size| size as f64).product();
                if !(1e6..1e15).contains(&elements) {
                    let _ = Tensor::<f32>::empty(device, &any);
                }
                let _ = x.clone().reshape(&any);
                let _ = x.clone().permute(&b);
                let _ = add2::forward(&x, &y);
                let _ = relu::backward(&x, &y, Out { tensor: &mut out, beta });
                let _ = scale_add::forward(&x, &y, &z);
                let _ = prelu::forward(&x, &y);
                let _ = prelu::backward(&x, &y, &z, Some(Out { tensor: &mut out, beta }), None);
                let _ = dense::forward(&x, &y, Some(&z), Activation::Relu);
                let _ = gaussian_pool::forward(&x, &y, &z, &window, gaussian_pool::Normalize::Valid);
                let _ = avg_pool::forward(&x, &window, &avg_pool::Divisor::default());
                let _ = avg_pool::backward(
                    &y,
                    &window,
                    &avg_pool::Divisor::default(),
                    &any,
                    Out { tensor: &mut out, beta },
                );
                if let Ok(max_pool::Output { y: pooled, indices }) = max_pool::forward(&x, &window) {
                    let _ = max_pool::backward(&y, &indices, &window, &any, Out { tensor: &mut out, beta });
                    let _ = max_pool::flat_indices(&indices, &window, &a);
                    max_pool::backward(&pooled, &indices, &window, &a, Out { tensor: &mut out, beta }).unwrap();
                }
            }));
            result.map_err(|payload| {
                let said = payload.downcast_ref::<String>().cloned();
                Failed::from(
                    said.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default(),
                )
            })
        },
    )
}
