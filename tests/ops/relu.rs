//! Rectified linear unit.

use ferrolayer::ops::relu;
use ferrolayer::testing::{assert_close, gradcheck_fn};
use ferrolayer::{Device, Out, Real, Tensor, bf16, f16};

use crate::support::*;

pub fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_cpu("relu::gradient_matches_finite_difference", gradient_matches_finite_difference),
        on_cpu("relu::edge_values", || edge_values(&Device::cpu())),
        on_cpu("relu::rejects_other_shapes", rejects_other_shapes),
        on_cpu("relu::rejects_another_device", rejects_another_device),
        on_cpu("relu::rejects_f64_on_a_gpu", rejects_f64_on_a_gpu),
    ];
    tests.extend(on_each_gpu("relu::matches_cpu::f32", matches_cpu::<f32>));
    tests.extend(on_each_gpu("relu::matches_cpu::f16", matches_cpu::<f16>));
    tests.extend(on_each_gpu("relu::matches_cpu::bf16", matches_cpu::<bf16>));
    tests.extend(on_each_gpu("relu::in_place_is_the_same", in_place_is_the_same));
    tests.push(on_cpu("relu::in_place_is_the_same", || in_place_is_the_same(&Device::cpu())));
    tests.extend(on_each_gpu("relu::edge_values", edge_values));
    tests
}

fn gradient_matches_finite_difference() -> Outcome {
    let device = Device::cpu();
    let x: Vec<f64> = normal(1, 30);
    let weights: Vec<f64> = normal(2, 30);
    let y = relu::forward(&Tensor::from_slice(&device, &[5, 6], &x)?)?;
    let mut dx = y.empty_like()?;
    relu::backward(&y, &Tensor::from_slice(&device, &[5, 6], &weights)?, Out::write(&mut dx))?;
    gradcheck_fn("x", &x, &dx.to_vec()?, |x| {
        let y = relu::forward(&Tensor::from_slice(&device, &[5, 6], x).unwrap()).unwrap().to_vec().unwrap();
        y.iter().zip(&weights).map(|(y, w)| y * w).sum()
    })?;
    Ok(())
}

fn edge_values(device: &Device) -> Outcome {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let x = Tensor::from_slice(device, &[7], &[nan, inf, -inf, 0.0, -0.0, f32::MIN_POSITIVE, -f32::MIN_POSITIVE])?;
    let y = relu::forward(&x)?;
    assert_eq!(format!("{:?}", y.to_vec()?), format!("{:?}", [nan, inf, 0.0, 0.0, 0.0, f32::MIN_POSITIVE, 0.0]));
    let dy = Tensor::from_slice(device, &[7], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])?;
    let mut dx = Tensor::full(device, &[7], nan)?;
    relu::backward(&y, &dy, Out::write(&mut dx))?;
    assert_eq!(dx.to_vec()?, [1.0, 2.0, 0.0, 0.0, 0.0, 6.0, 0.0]);
    Ok(())
}

/// Each element is computed by itself: the devices agree to the bit.
fn matches_cpu<T: Real>(gpu: &Device) -> Outcome {
    let cpu = Device::cpu();
    for (seed, shape) in [vec![1], vec![3, 5], vec![1024], vec![1025], vec![2, 3, 7, 41], vec![0, 3]].iter().enumerate()
    {
        let x = normal_tensor::<T>(&cpu, seed as u64, shape);
        let dy = normal_tensor::<T>(&cpu, 100 + seed as u64, shape);
        let old = normal_tensor::<T>(&cpu, 200 + seed as u64, shape);
        let run = |device: &Device| -> Result<_, Failed> {
            let y = relu::forward(&x.to(device)?)?;
            let (mut written, mut added) = (y.empty_like()?, old.to(device)?);
            relu::backward(&y, &dy.to(device)?, Out::write(&mut written))?;
            relu::backward(&y, &dy.to(device)?, Out { tensor: &mut added, beta: 0.5 })?;
            Ok((y, written, added))
        };
        let (expected, got, again) = (run(&cpu)?, run(gpu)?, run(gpu)?);
        assert_same_bits("y", &got.0, &expected.0)?;
        assert_same_bits("dx", &got.1, &expected.1)?;
        // A product and a sum, fused or not.
        let sizes: Vec<f64> = sizes(&dy).iter().zip(sizes(&old)).map(|(dy, old)| dy + old).collect();
        assert_close("dx added", &got.2.to_vec()?, &expected.2.to_vec()?, 2, &sizes)?;
        assert_same_bits("dx again", &again.2, &got.2)?;
    }
    Ok(())
}

/// Also where another tensor shares the memory, which keeps what it holds.
fn in_place_is_the_same(device: &Device) -> Outcome {
    let x = normal_tensor::<f32>(device, 1, &[1027]);
    let (before, expected) = (x.to_vec()?, relu::forward(&x)?);
    let mut y = x.clone();
    relu::forward_in_place(&mut y)?;
    assert_same_bits("y", &y, &expected)?;
    assert_eq!(x.to_vec()?, before);
    let mut alone = x;
    relu::forward_in_place(&mut alone)?;
    assert_same_bits("y without a copy", &alone, &expected)
}

fn rejects_other_shapes() -> Outcome {
    let device = Device::cpu();
    let (y, dy) = (Tensor::<f32>::zeros(&device, &[2, 3])?, Tensor::zeros(&device, &[3, 2])?);
    let mut dx = Tensor::zeros(&device, &[2, 3])?;
    let result = relu::backward(&y, &dy, Out::write(&mut dx));
    assert_error(result, "relu.backward: dy has shape [3, 2], expected [2, 3]")?;
    let mut dx = Tensor::zeros(&device, &[6])?;
    let result = relu::backward(&y, &y, Out::write(&mut dx));
    assert_error(result, "relu.backward: dx has shape [6], expected [2, 3]")
}

fn rejects_another_device() -> Outcome {
    let (cpu, gpu) = (Device::cpu(), Device::Gpu(ferrolayer::device::Gpu::emulated()));
    let (y, dy) = (Tensor::<f32>::zeros(&cpu, &[2])?, Tensor::zeros(&gpu, &[2])?);
    let mut dx = y.empty_like()?;
    assert_error(
        relu::backward(&y, &dy, Out::write(&mut dx)),
        "relu.backward: dy is on the emulated GPU, expected the CPU like the other tensors; `Tensor::to` moves it",
    )
}

fn rejects_f64_on_a_gpu() -> Outcome {
    let gpu = Device::Gpu(ferrolayer::device::Gpu::emulated());
    let x = Tensor::<f64>::zeros(&gpu, &[2])?;
    assert_error(
        relu::forward(&x),
        "relu.forward: x holds f64, which the emulated GPU does not compute; expected f32, f16 or bf16",
    )
}
