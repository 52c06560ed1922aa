//! Values and sizes at the edge.

use super::*;

fn only_dx<T: Real>(dx: &mut Tensor<T>) -> Gradients<'_, T> {
    Gradients { dx: Some(Out::write(dx)), ..Gradients::default() }
}

fn only_dalpha<T: Real>(dalpha: &mut Tensor<T::Compute>) -> Gradients<'_, T> {
    Gradients { dalpha: Some(Out::write(dalpha)), ..Gradients::default() }
}

/// Same numbers, NaN among them.
fn assert_values<E: Real>(got: &Tensor<E>, expected: &[f64]) -> Outcome {
    assert_eq!(format!("{:?}", values(got)?), format!("{expected:?}"));
    Ok(())
}

pub fn edge_values<T: Real>(device: &Device) -> Outcome {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let tensor = |shape: &[usize], values: &[f64]| narrow::<T>(device, shape, values);
    let slopes = |values: &[f64]| narrow::<T::Compute>(device, &[values.len()], values);
    // z is x: NaN, infinities and zeros go through the product.
    let (x, w) = (tensor(&[5, 1], &[nan, inf, -inf, 0.0, -2.0])?, tensor(&[1, 1], &[1.0])?);
    let alpha = slopes(&[0.5])?;
    let relu = dense::forward(&x, &w, None, Activation::Relu)?;
    assert_values(&relu.y, &[nan, inf, 0.0, 0.0, 0.0])?;
    let prelu = dense::forward(&x, &w, None, Activation::Prelu(&alpha))?;
    assert_values(&prelu.y, &[nan, inf, -inf, 0.0, -1.0])?;

    let dy = tensor(&[5, 1], &[1.0, 2.0, 3.0, 4.0, 5.0])?;
    let mut dx = tensor(&[5, 1], &[nan; 5])?;
    dense::backward(&x, &w, Activation::Relu, &relu.saved, &dy, only_dx(&mut dx))?;
    assert_values(&dx, &[1.0, 2.0, 0.0, 0.0, 0.0])?;
    // At zero the slope is alpha.
    dense::backward(&x, &w, Activation::Prelu(&alpha), &prelu.saved, &dy, only_dx(&mut dx))?;
    assert_values(&dx, &[0.5, 2.0, 1.5, 2.0, 2.5])?;
    let mut dalpha = slopes(&[0.0])?;
    dense::backward(&x, &w, Activation::Prelu(&alpha), &prelu.saved, &dy, only_dalpha(&mut dalpha))?;
    // NaN in, NaN out.
    assert_values(&dalpha, &[nan])?;

    // A slope that is not finite stays with its own column's negative values: rows that a block lacks are no zeros.
    let z = narrow(device, &[3, 2], &[1.0, -1.0, 2.0, -2.0, 3.0, -3.0])?;
    let dy = tensor(&[3, 2], &[1.0; 6])?;
    let (w, alpha) = (tensor(&[2, 1], &[1.0, 1.0])?, slopes(&[inf, 0.25])?);
    let mut db = tensor(&[2], &[nan; 2])?;
    let gradients = Gradients { db: Some(Out::write(&mut db)), ..Gradients::default() };
    let x = tensor(&[3, 1], &[0.0; 3])?;
    dense::backward(&x, &w, Activation::Prelu(&alpha), &Saved::Prelu { z }, &dy, gradients)?;
    assert_values(&db, &[3.0, 0.75])
}

/// What is added to is not rounded to 16 bits, nor is `z` before `y` is made of it; what is saved of it is, and so is `dz`.
pub fn rounds_once<T: Real>(device: &Device) -> Outcome {
    let eps = T::EPSILON;
    let tensor = |shape: &[usize], values: &[f64]| narrow::<T>(device, shape, values);
    let slopes = |values: &[f64]| narrow::<T::Compute>(device, &[values.len()], values);

    // A sum halfway between two values, which what is added to it lifts; rounded before, it would go down.
    let (x, w) = (tensor(&[1, 2], &[1.0, eps / 2.0])?, tensor(&[2, 1], &[1.0, eps / 2.0])?);
    let (ones, no_x) = (tensor(&[1, 2], &[1.0, 1.0])?, tensor(&[1, 1], &[1.0])?);
    let y = dense::forward_inference(&x, &ones, Some(&tensor(&[1], &[eps / 8.0])?), Activation::Identity)?;
    assert_values(&y, &[1.0 + eps])?;
    let mut dx = tensor(&[1, 1], &[eps / 8.0])?;
    let gradients = Gradients { dx: Some(Out::add(&mut dx)), ..Gradients::default() };
    dense::backward(&no_x, &w, Activation::Identity, &Saved::Identity, &ones, gradients)?;
    assert_values(&dx, &[1.0 + eps])?;

    // z = -(1 + eps)² has more digits than the type. Of 1 + 2 eps, which is saved, y would be halfway between two values, and go down.
    let (x, w, alpha) = (tensor(&[1, 1], &[1.0 + eps])?, tensor(&[1, 1], &[-1.0 - eps])?, slopes(&[1.25])?);
    let forward = dense::forward(&x, &w, None, Activation::Prelu(&alpha))?;
    assert_values(&forward.y, &[-1.25 - 3.0 * eps])?;
    let mut dalpha = slopes(&[f64::NAN])?;
    dense::backward(&x, &w, Activation::Prelu(&alpha), &forward.saved, &no_x, only_dalpha(&mut dalpha))?;
    assert_values(&dalpha, &[-1.0 - 2.0 * eps])?;

    // dz = (1 + eps / 8, 1) is rounded, so that it cancels in dw; what db sums has not been.
    let (x, w, alpha) = (tensor(&[2, 1], &[-1.0, 1.0])?, tensor(&[1, 1], &[1.0])?, slopes(&[1.0 + eps / 8.0])?);
    let saved = dense::forward(&x, &w, None, Activation::Prelu(&alpha))?.saved;
    let [mut dw, mut db] = [tensor(&[1, 1], &[f64::NAN])?, tensor(&[1], &[f64::NAN])?];
    let gradients = Gradients { dw: Some(Out::write(&mut dw)), ..Gradients::default() };
    dense::backward(&x, &w, Activation::Prelu(&alpha), &saved, &tensor(&[2, 1], &[1.0, 1.0])?, gradients)?;
    assert_values(&dw, &[0.0])?;
    let gradients = Gradients { db: Some(Out::write(&mut db)), ..Gradients::default() };
    dense::backward(&x, &w, Activation::Prelu(&alpha), &saved, &tensor(&[2, 1], &[1.0, -1.0])?, gradients)?;
    assert_values(&db, &[eps / 8.0])
}

pub fn empty_batch<T: Real>(device: &Device) -> Outcome {
    let (x, w) = (Tensor::<T>::zeros(device, &[0, 3])?, narrow::<T>(device, &[2, 3], &[1.0; 6])?);
    for slopes in [2, 1] {
        let alpha = Tensor::<T::Compute>::zeros(device, &[slopes])?;
        let got = dense::forward(&x, &w, None, Activation::Prelu(&alpha))?;
        assert_eq!(got.y.shape(), [0, 2]);
        // What is summed over the batch is nothing, plus beta times what was there.
        for (beta, left) in [(0.0, 0.0), (0.5, 2.0)] {
            let before = if beta == 0.0 { f64::NAN } else { 4.0 };
            let full = |shape: &[usize]| Tensor::full(device, shape, T::of(before));
            let [mut dx, mut dw, mut db] = [full(&[0, 3])?, full(&[2, 3])?, full(&[2])?];
            let mut dalpha = Tensor::full(device, &[slopes], T::Compute::of(before))?;
            let gradients = Gradients {
                dx: out(&mut dx, beta),
                dw: out(&mut dw, beta),
                db: out(&mut db, beta),
                dalpha: out(&mut dalpha, beta),
            };
            dense::backward(&x, &w, Activation::Prelu(&alpha), &got.saved, &got.y, gradients)?;
            for gradient in [values(&dw)?, values(&db)?, values(&dalpha)?] {
                assert!(gradient.iter().all(|&v| v == left), "{gradient:?}");
            }
        }
    }
    Ok(())
}

pub fn saves_what_backward_needs() -> Outcome {
    let cpu = Device::cpu();
    let (x, w) = (Tensor::from_slice(&cpu, &[1, 1], &[-2.0f32])?, Tensor::full(&cpu, &[1, 1], 1.0f32)?);
    let alpha = Tensor::full(&cpu, &[1], -0.5f32)?;
    assert!(matches!(dense::forward(&x, &w, None, Activation::Identity)?.saved, Saved::Identity));
    let mut relu = dense::forward(&x, &w, None, Activation::Relu)?;
    // Shared with the output, and no one sees another's write.
    relu.y.copy_from_slice(&[7.0])?;
    assert!(matches!(relu.saved, Saved::Relu { y } if y.to_vec()? == [0.0]));
    let prelu = dense::forward(&x, &w, None, Activation::Prelu(&alpha))?;
    assert_eq!(prelu.y.to_vec()?, [1.0]);
    assert!(matches!(prelu.saved, Saved::Prelu { z } if z.to_vec()? == [-2.0]));
    Ok(())
}
