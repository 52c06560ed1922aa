//! The exponential function within bounds.

use ferrolayer::ops::exp;
use ferrolayer::testing::{assert_close, gradcheck_fn};
use ferrolayer::{Device, Out, Tensor};

use crate::support::*;

pub fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_cpu("exp::gradient_matches_finite_difference", gradient_matches_finite_difference),
        on_cpu("exp::edge_values", || edge_values(&Device::cpu())),
        on_cpu("exp::rejects_other_shapes", rejects_other_shapes),
    ];
    tests.extend(on_each_gpu("exp::matches_cpu", matches_cpu));
    tests.extend(on_each_gpu("exp::edge_values", edge_values));
    tests
}

fn gradient_matches_finite_difference() -> Outcome {
    let device = Device::cpu();
    let (x, weights): (Vec<f64>, Vec<f64>) = (normal(1, 30), normal(2, 30));
    let tensor = |values: &[f64]| Tensor::from_slice(&device, &[5, 6], values).unwrap();
    let y = exp::forward(&tensor(&x))?;
    let mut dx = y.empty_like()?;
    exp::backward(&tensor(&x), &y, &tensor(&weights), Out::write(&mut dx))?;
    gradcheck_fn("x", &x, &dx.to_vec()?, |x| {
        let y = exp::forward(&tensor(x)).unwrap().to_vec().unwrap();
        y.iter().zip(&weights).map(|(y, w)| y * w).sum()
    })?;
    Ok(())
}

fn edge_values(device: &Device) -> Outcome {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let x = Tensor::from_slice(device, &[7], &[nan, inf, -inf, 41.0, -41.0, 0.0, -0.0])?;
    let y = exp::forward(&x)?;
    let values = y.to_vec()?;
    assert!(values[0].is_nan());
    let (high, low) = (40f64.exp(), (-40f64).exp());
    let expected = [high, low, high, low, 1.0, 1.0].map(|v| v as f32);
    assert_close("y", &values[1..], &expected, 1, &expected.map(f64::from))?;
    // What the bounds are for.
    for value in &values[1..] {
        assert!((value * value).is_normal() && (1.0 / (value * value)).is_normal(), "{value:e}");
    }
    let dy = Tensor::full(device, &[7], 2.0f32)?;
    let mut dx = Tensor::full(device, &[7], nan)?;
    exp::backward(&x, &y, &dy, Out::write(&mut dx))?;
    let dx = dx.to_vec()?;
    assert!(dx[0].is_nan());
    assert_eq!(dx[1..], [0.0, 0.0, 0.0, 0.0, 2.0, 2.0]);
    Ok(())
}

fn matches_cpu(gpu: &Device) -> Outcome {
    let cpu = Device::cpu();
    for (seed, shape) in [vec![1], vec![3, 5], vec![1024], vec![1025], vec![2, 3, 7, 41], vec![0, 3]].iter().enumerate()
    {
        let [x, dy, old] = [0, 1, 2].map(|s| normal_tensor::<f32>(&cpu, 10 * seed as u64 + s, shape));
        let run = |device: &Device| -> Result<_, Failed> {
            let (x, dy) = (x.to(device)?, dy.to(device)?);
            let y = exp::forward(&x)?;
            let (mut written, mut added) = (y.empty_like()?, old.to(device)?);
            exp::backward(&x, &y, &dy, Out::write(&mut written))?;
            exp::backward(&x, &y, &dy, Out { tensor: &mut added, beta: 0.5 })?;
            Ok([y, written, added])
        };
        let (expected, got, again) = (run(&cpu)?, run(gpu)?, run(gpu)?);
        let old = old.to_vec()?;
        for (i, what) in ["y", "dx", "dx added"].into_iter().enumerate() {
            let values = expected[i].to_vec()?;
            // The product's size, which the sum with what was there may hide.
            let sizes: Vec<f64> = match i {
                2 => expected[1].to_vec()?.iter().zip(&old).map(|(dx, old)| f64::from(dx.abs() + old.abs())).collect(),
                _ => values.iter().map(|v| f64::from(v.abs())).collect(),
            };
            assert_close(what, &got[i].to_vec()?, &values, 2, &sizes)?;
            assert_same_bits(what, &again[i], &got[i])?;
        }
    }
    Ok(())
}

fn rejects_other_shapes() -> Outcome {
    let device = Device::cpu();
    let zeros = |shape: &[usize]| Tensor::<f32>::zeros(&device, shape);
    let (x, other) = (zeros(&[2, 3])?, zeros(&[3, 2])?);
    let result = exp::backward(&x, &other, &x, Out::write(&mut zeros(&[2, 3])?));
    assert_error(result, "exp.backward: y has shape [3, 2], expected [2, 3]")?;
    let result = exp::backward(&x, &x, &other, Out::write(&mut zeros(&[2, 3])?));
    assert_error(result, "exp.backward: dy has shape [3, 2], expected [2, 3]")?;
    let result = exp::backward(&x, &x, &x, Out::write(&mut zeros(&[6])?));
    assert_error(result, "exp.backward: dx has shape [6], expected [2, 3]")
}
