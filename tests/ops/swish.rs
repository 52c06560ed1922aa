//! Swish.

use ferrolayer::op::Inputs;
use ferrolayer::ops::swish;
use ferrolayer::testing::{assert_close, compare_devices, gradcheck};
use ferrolayer::{Device, Out, Real, Tensor, bf16, f16};

use crate::support::*;

pub fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_cpu("swish::matches_the_formula", matches_the_formula),
        on_cpu("swish::rejects_other_shapes", rejects_other_shapes),
        on_cpu("swish::rejects_another_device", rejects_another_device),
        on_cpu("swish::rejects_f64_on_a_gpu", rejects_f64_on_a_gpu),
    ];
    tests.extend(on_each_gpu("swish::keeps_the_contract", keeps_the_contract));
    tests.extend(on_each_gpu("swish::matches_cpu::f32", matches_cpu::<f32>));
    tests.extend(on_each_gpu("swish::matches_cpu::f16", matches_cpu::<f16>));
    tests.extend(on_each_gpu("swish::matches_cpu::bf16", matches_cpu::<bf16>));
    tests.push(on_cpu("swish::edge_values", || edge_values(&Device::cpu())));
    tests.extend(on_each_gpu("swish::edge_values", edge_values));
    tests
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn matches_the_formula() -> Outcome {
    let device = Device::cpu();
    let x = [-3.0, -1.0, 0.0, 0.5, 20.0];
    let y = swish::forward(&Tensor::from_slice(&device, &[5], &x)?, &Tensor::from_slice(&device, &[1], &[1.5])?)?;
    for (y, x) in y.to_vec()?.into_iter().zip(x) {
        assert!((y - x * sigmoid(1.5 * x)).abs() < 1e-14, "{x}: {y}");
    }
    Ok(())
}

/// Gradients, and all that every op has to keep.
fn keeps_the_contract(gpu: &Device) -> Outcome {
    let x = normal_tensor(&Device::cpu(), 1, &[3, 13]);
    let beta = Tensor::from_slice(&Device::cpu(), &[1], &[1.5])?;
    let inputs = Inputs { data: &[&x], parameters: &[&beta] };
    gradcheck(&swish::Op, inputs)?;
    compare_devices::<f32, _>(&swish::Op, inputs, [&Device::cpu(), gpu])?;
    compare_devices::<f16, _>(&swish::Op, inputs, [&Device::cpu(), gpu])?;
    compare_devices::<bf16, _>(&swish::Op, inputs, [&Device::cpu(), gpu])?;
    Ok(())
}

/// At the sizes where tiles begin and end.
fn matches_cpu<T: Real>(gpu: &Device) -> Outcome {
    let cpu = Device::cpu();
    let beta = Tensor::from_slice(&cpu, &[1], &[T::Compute::of(0.7)])?;
    for (seed, shape) in [vec![1], vec![3, 5], vec![1024], vec![1025], vec![2, 3, 7, 61], vec![0, 3]].iter().enumerate()
    {
        let [x, dy] = [0, 1].map(|s| normal_tensor::<T>(&cpu, 10 * seed as u64 + s, shape));
        let run = |device: &Device| -> Result<_, Failed> {
            let (x, dy, beta) = (x.to(device)?, dy.to(device)?, beta.to(device)?);
            let (mut dx, mut dbeta) = (x.empty_like()?, beta.empty_like()?);
            swish::backward(&x, &beta, &dy, Some(Out::write(&mut dx)), Some(Out::write(&mut dbeta)))?;
            Ok((swish::forward(&x, &beta)?, dx, dbeta))
        };
        let (expected, got) = (run(&cpu)?, run(gpu)?);
        let sizes_of_dx: Vec<f64> = sizes(&x).iter().zip(sizes(&dy)).map(|(x, dy)| (1.0 + x) * dy).collect();
        assert_close("y", &got.0.to_vec()?, &expected.0.to_vec()?, 1, &sizes(&x))?;
        assert_close("dx", &got.1.to_vec()?, &expected.1.to_vec()?, 1, &sizes_of_dx)?;
        let sum = sizes(&x).iter().zip(sizes(&dy)).map(|(x, dy)| x * x * dy).sum();
        assert_close("dbeta", &got.2.to_vec()?, &expected.2.to_vec()?, x.len(), &[sum])?;
    }
    Ok(())
}

fn edge_values(device: &Device) -> Outcome {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let beta = Tensor::from_slice(device, &[1], &[1.0f32])?;
    let x = Tensor::from_slice(device, &[5], &[nan, inf, 0.0, -1e30, 1e30])?;
    let y = swish::forward(&x, &beta)?.to_vec()?;
    assert!(y[0].is_nan(), "NaN in, NaN out");
    assert_eq!(y[1..], [inf, 0.0, 0.0, 1e30]);
    // Large elements leave no NaN in the sum.
    let x = Tensor::from_slice(device, &[2], &[-1e30f32, 1e30])?;
    let (dy, mut dbeta) = (Tensor::full(device, &[2], 1.0)?, Tensor::full(device, &[1], nan)?);
    swish::backward(&x, &beta, &dy, None, Some(Out::write(&mut dbeta)))?;
    assert_eq!(dbeta.to_vec()?, [0.0]);
    Ok(())
}

fn rejects_other_shapes() -> Outcome {
    let device = Device::cpu();
    let zeros = |shape: &[usize]| Tensor::<f32>::zeros(&device, shape);
    let (x, beta) = (zeros(&[2, 3])?, zeros(&[1])?);
    assert_error(swish::forward(&x, &zeros(&[3])?), "swish.forward: beta has shape [3], expected [1]")?;
    let result = swish::backward(&x, &beta, &zeros(&[3, 2])?, None, None);
    assert_error(result, "swish.backward: dy has shape [3, 2], expected [2, 3]")?;
    let result = swish::backward(&x, &beta, &x, Some(Out::write(&mut zeros(&[6])?)), None);
    assert_error(result, "swish.backward: dx has shape [6], expected [2, 3]")?;
    let result = swish::backward(&x, &beta, &x, None, Some(Out::write(&mut zeros(&[2])?)));
    assert_error(result, "swish.backward: dbeta has shape [2], expected [1]")
}

fn rejects_another_device() -> Outcome {
    let (cpu, gpu) = (Device::cpu(), Device::Gpu(ferrolayer::device::Gpu::emulated()));
    let (x, beta) = (Tensor::<f32>::zeros(&cpu, &[2])?, Tensor::zeros(&gpu, &[1])?);
    assert_error(
        swish::forward(&x, &beta),
        "swish.forward: beta is on the emulated GPU, expected the CPU like the other tensors; `Tensor::to` moves it",
    )
}

fn rejects_f64_on_a_gpu() -> Outcome {
    let gpu = Device::Gpu(ferrolayer::device::Gpu::emulated());
    let (x, beta) = (Tensor::<f64>::zeros(&gpu, &[2])?, Tensor::<f64>::zeros(&gpu, &[1])?);
    let text = swish::forward(&x, &beta).expect_err("no kernel computes f64").to_string();
    assert!(text.contains("holds f64, which the emulated GPU does not compute"), "{text}");
    Ok(())
}
