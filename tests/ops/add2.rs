//! The sum of two tensors.

use ferrolayer::ops::add2;
use ferrolayer::testing::gradcheck_fn;
use ferrolayer::{Device, Layout, Out, Real, Tensor, bf16, f16};

use crate::support::*;

pub fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_cpu("add2::gradient_matches_finite_difference", gradient_matches_finite_difference),
        on_cpu("add2::rejects_other_shapes", rejects_other_shapes),
    ];
    tests.extend(on_each_gpu("add2::matches_cpu::f32", matches_cpu::<f32>));
    tests.extend(on_each_gpu("add2::matches_cpu::f16", matches_cpu::<f16>));
    tests.extend(on_each_gpu("add2::matches_cpu::bf16", matches_cpu::<bf16>));
    tests.push(on_cpu("add2::rejects_another_order", rejects_another_order));
    tests
}

fn gradient_matches_finite_difference() -> Outcome {
    let device = Device::cpu();
    let (a, b, weights): (Vec<f64>, Vec<f64>, Vec<f64>) = (normal(1, 12), normal(2, 12), normal(3, 12));
    let dy = Tensor::from_slice(&device, &[12], &weights)?;
    let (mut da, mut db) = (dy.empty_like()?, dy.empty_like()?);
    add2::backward(&dy, Some(Out::write(&mut da)), Some(Out::write(&mut db)))?;
    let loss = |a: &[f64], b: &[f64]| -> f64 {
        let tensor = |values| Tensor::from_slice(&device, &[12], values).unwrap();
        let y = add2::forward(&tensor(a), &tensor(b)).unwrap().to_vec().unwrap();
        y.iter().zip(&weights).map(|(y, w)| y * w).sum()
    };
    gradcheck_fn("a", &a, &da.to_vec()?, |a| loss(a, &b))?;
    gradcheck_fn("b", &b, &db.to_vec()?, |b| loss(&a, b))?;
    Ok(())
}

fn matches_cpu<T: Real>(gpu: &Device) -> Outcome {
    let cpu = Device::cpu();
    for (seed, shape) in [vec![1], vec![3, 5], vec![1023], vec![1028], vec![0]].iter().enumerate() {
        let [a, b, dy, old] = [0, 10, 20, 30].map(|s| normal_tensor::<T>(&cpu, s + seed as u64, shape));
        let run = |device: &Device| -> Result<_, Failed> {
            let y = add2::forward(&a.to(device)?, &b.to(device)?)?;
            let (mut da, mut db) = (y.empty_like()?, old.to(device)?);
            add2::backward(&dy.to(device)?, Some(Out::write(&mut da)), Some(Out::add(&mut db)))?;
            // Skipped gradients are skipped.
            add2::backward(&dy.to(device)?, None, None)?;
            Ok((y, da, db))
        };
        let (expected, got) = (run(&cpu)?, run(gpu)?);
        assert_same_bits("y", &got.0, &expected.0)?;
        assert_same_bits("da", &got.1, &expected.1)?;
        assert_same_bits("db", &got.2, &expected.2)?;
    }
    Ok(())
}

fn rejects_other_shapes() -> Outcome {
    let device = Device::cpu();
    let (a, b) = (Tensor::<f32>::zeros(&device, &[2, 3])?, Tensor::zeros(&device, &[2])?);
    assert_error(add2::forward(&a, &b), "add2.forward: b has shape [2], expected [2, 3]")?;
    let mut db = b.clone();
    let result = add2::backward(&a, None, Some(Out::write(&mut db)));
    assert_error(result, "add2.backward: db has shape [2], expected [2, 3]")
}

/// Any order of the elements will do, as long as it is the same.
fn rejects_another_order() -> Outcome {
    let a = normal_tensor::<f32>(&Device::cpu(), 1, &[2, 3, 4, 5]);
    let last = a.to_layout(Layout::ChannelsLast)?;
    assert_eq!(add2::forward(&last, &last)?.to_vec()?, add2::forward(&a, &a)?.to_vec()?);
    assert_error(
        add2::forward(&last, &a),
        "add2.forward: b has shape [2, 3, 4, 5] and strides [60, 20, 5, 1], expected channels-last order; \
         `Tensor::to_layout` copies it",
    )
}
