//! Scaling and shifting by numbers in device memory.

use ferrolayer::ops::scale_add;
use ferrolayer::testing::{assert_close, gradcheck_fn};
use ferrolayer::{Device, Out, Real, Tensor, bf16, f16};

use crate::support::*;

pub fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_cpu("scale_add::gradient_matches_finite_difference", gradient_matches_finite_difference),
        on_cpu("scale_add::rejects_a_vector_of_scales", rejects_a_vector_of_scales),
    ];
    tests.extend(on_each_gpu("scale_add::matches_cpu::f32", matches_cpu::<f32>));
    tests.extend(on_each_gpu("scale_add::matches_cpu::f16", matches_cpu::<f16>));
    tests.extend(on_each_gpu("scale_add::matches_cpu::bf16", matches_cpu::<bf16>));
    tests.extend(on_each_gpu("scale_add::takes_new_constants", takes_new_constants));
    tests
}

fn gradient_matches_finite_difference() -> Outcome {
    let device = Device::cpu();
    let (x, weights): (Vec<f64>, Vec<f64>) = (normal(1, 12), normal(2, 12));
    let (s, c) = (Tensor::from_slice(&device, &[1], &[1.7])?, Tensor::from_slice(&device, &[1], &[-0.3])?);
    let dy = Tensor::from_slice(&device, &[12], &weights)?;
    let mut dx = dy.empty_like()?;
    scale_add::backward(&dy, &s, Out::write(&mut dx))?;
    gradcheck_fn("x", &x, &dx.to_vec()?, |x| {
        let y = scale_add::forward(&Tensor::from_slice(&device, &[12], x).unwrap(), &s, &c).unwrap();
        y.to_vec().unwrap().iter().zip(&weights).map(|(y, w)| y * w).sum()
    })?;
    Ok(())
}

fn matches_cpu<T: Real>(gpu: &Device) -> Outcome {
    let cpu = Device::cpu();
    for (seed, shape) in [vec![1], vec![7, 3], vec![1024], vec![2051], vec![0, 2]].iter().enumerate() {
        let [x, dy, old] = [0, 10, 20].map(|s| normal_tensor::<T>(&cpu, s + seed as u64, shape));
        let [s, c] = [40, 41].map(|s| normal_tensor::<T::Compute>(&cpu, s, &[1]));
        let run = |device: &Device| -> Result<_, Failed> {
            let y = scale_add::forward(&x.to(device)?, &s.to(device)?, &c.to(device)?)?;
            let (mut written, mut added) = (y.empty_like()?, old.to(device)?);
            scale_add::backward(&dy.to(device)?, &s.to(device)?, Out::write(&mut written))?;
            scale_add::backward(&dy.to(device)?, &s.to(device)?, Out::add(&mut added))?;
            Ok((y.to_vec()?, written, added.to_vec()?))
        };
        let (expected, got) = (run(&cpu)?, run(gpu)?);
        let (s, c) = (sizes(&s)[0], sizes(&c)[0]);
        let magnitudes: Vec<f64> = sizes(&x).iter().map(|x| x * s + c).collect();
        assert_close("y", &got.0, &expected.0, 2, &magnitudes)?;
        assert_same_bits("dx", &got.1, &expected.1)?;
        let magnitudes: Vec<f64> = sizes(&dy).iter().zip(sizes(&old)).map(|(dy, old)| dy * s + old).collect();
        assert_close("dx added", &got.2, &expected.2, 2, &magnitudes)?;
    }
    Ok(())
}

fn takes_new_constants(gpu: &Device) -> Outcome {
    let x = Tensor::from_slice(gpu, &[3], &[1.0f32, 2.0, 3.0])?;
    let (mut s, c) = (Tensor::from_slice(gpu, &[1], &[2.0f32])?, Tensor::from_slice(gpu, &[1], &[10.0f32])?);
    assert_eq!(scale_add::forward(&x, &s, &c)?.to_vec()?, [12.0, 14.0, 16.0]);
    s.copy_from_slice(&[-1.0])?;
    assert_eq!(scale_add::forward(&x, &s, &c)?.to_vec()?, [9.0, 8.0, 7.0]);
    Ok(())
}

fn rejects_a_vector_of_scales() -> Outcome {
    let device = Device::cpu();
    let (x, one, two) =
        (Tensor::<f32>::zeros(&device, &[2])?, Tensor::zeros(&device, &[1])?, Tensor::zeros(&device, &[2])?);
    assert_error(scale_add::forward(&x, &two, &one), "scale_add.forward: s has shape [2], expected [1]")?;
    assert_error(scale_add::forward(&x, &one, &two), "scale_add.forward: c has shape [2], expected [1]")
}
