//! Values and sizes at the edge.

use super::*;

fn only_dx(dx: &mut Tensor<f32>) -> Gradients<'_, f32> {
    Gradients { dx: Some(Out::write(dx)), ..Gradients::default() }
}

pub fn edge_values(device: &Device) -> Outcome {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let tensor = |shape: &[usize], values: &[f32]| Tensor::from_slice(device, shape, values);
    // z is x: NaN, infinities and zeros go through the product.
    let (x, w) = (tensor(&[5, 1], &[nan, inf, -inf, 0.0, -2.0])?, tensor(&[1, 1], &[1.0])?);
    let alpha = tensor(&[1], &[0.5])?;
    let show = |t: &Tensor<f32>| Ok::<_, Failed>(format!("{:?}", t.to_vec()?));
    let relu = dense::forward(&x, &w, None, Activation::Relu)?;
    assert_eq!(show(&relu.y)?, format!("{:?}", [nan, inf, 0.0, 0.0, 0.0]));
    let prelu = dense::forward(&x, &w, None, Activation::Prelu(&alpha))?;
    assert_eq!(show(&prelu.y)?, format!("{:?}", [nan, inf, -inf, 0.0, -1.0]));

    let dy = tensor(&[5, 1], &[1.0, 2.0, 3.0, 4.0, 5.0])?;
    let mut dx = Tensor::full(device, &[5, 1], nan)?;
    dense::backward(&x, &w, Activation::Relu, &relu.saved, &dy, only_dx(&mut dx))?;
    assert_eq!(dx.to_vec()?, [1.0, 2.0, 0.0, 0.0, 0.0]);
    // At zero the slope is alpha.
    dense::backward(&x, &w, Activation::Prelu(&alpha), &prelu.saved, &dy, only_dx(&mut dx))?;
    assert_eq!(dx.to_vec()?, [0.5, 2.0, 1.5, 2.0, 2.5]);
    let mut dalpha = Tensor::zeros(device, &[1])?;
    let gradients = Gradients { dalpha: Some(Out::write(&mut dalpha)), ..Gradients::default() };
    dense::backward(&x, &w, Activation::Prelu(&alpha), &prelu.saved, &dy, gradients)?;
    assert!(dalpha.to_vec()?[0].is_nan(), "NaN in, NaN out");

    // A slope that is not finite stays with its own column's negative values: rows that a block lacks are no zeros.
    let (z, dy) = (tensor(&[3, 2], &[1.0, -1.0, 2.0, -2.0, 3.0, -3.0])?, tensor(&[3, 2], &[1.0; 6])?);
    let (w, alpha) = (tensor(&[2, 1], &[1.0, 1.0])?, tensor(&[2], &[inf, 0.25])?);
    let mut db = Tensor::full(device, &[2], nan)?;
    let gradients = Gradients { db: Some(Out::write(&mut db)), ..Gradients::default() };
    let x = tensor(&[3, 1], &[0.0; 3])?;
    dense::backward(&x, &w, Activation::Prelu(&alpha), &Saved::Prelu { z }, &dy, gradients)?;
    assert_eq!(db.to_vec()?, [3.0, 0.75]);
    Ok(())
}

pub fn empty_batch(device: &Device) -> Outcome {
    let (x, w, alpha) =
        (Tensor::<f32>::zeros(device, &[0, 3])?, Tensor::full(device, &[2, 3], 1.0f32)?, Tensor::zeros(device, &[2])?);
    for alpha in [alpha, Tensor::zeros(device, &[1])?] {
        let got = dense::forward(&x, &w, None, Activation::Prelu(&alpha))?;
        assert_eq!(got.y.shape(), [0, 2]);
        // What is summed over the batch is nothing, plus beta times what was there.
        for (beta, left) in [(0.0, 0.0), (0.5, 2.0)] {
            let full = |shape: &[usize]| Tensor::full(device, shape, if beta == 0.0 { f32::NAN } else { 4.0 });
            let [mut dx, mut dw, mut db, mut dalpha] =
                [full(&[0, 3])?, full(&[2, 3])?, full(&[2])?, full(alpha.shape())?];
            let gradients = Gradients {
                dx: Some(Out { tensor: &mut dx, beta }),
                dw: Some(Out { tensor: &mut dw, beta }),
                db: Some(Out { tensor: &mut db, beta }),
                dalpha: Some(Out { tensor: &mut dalpha, beta }),
            };
            dense::backward(&x, &w, Activation::Prelu(&alpha), &got.saved, &got.y, gradients)?;
            for gradient in [dw, db, dalpha] {
                assert!(gradient.to_vec()?.iter().all(|&v| v == left), "{gradient:?}");
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
