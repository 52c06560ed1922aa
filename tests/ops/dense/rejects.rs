//! One test for each error.

use super::*;

fn zeros(shape: &[usize]) -> Tensor<f32> {
    Tensor::zeros(&Device::cpu(), shape).unwrap()
}

const IDENTITY: Activation<'_, f32> = Activation::Identity;

pub fn x_of_other_rank() -> Outcome {
    assert_error(
        dense::forward(&zeros(&[6]), &zeros(&[2, 6]), None, IDENTITY),
        "dense.forward: x has shape [6], expected [N, I]",
    )
}

pub fn no_inputs() -> Outcome {
    assert_error(
        dense::forward(&zeros(&[4, 0]), &zeros(&[2, 0]), None, IDENTITY),
        "dense.forward: x has shape [4, 0], expected no zero but for the batch, dimension 0",
    )
}

pub fn w_that_does_not_fit() -> Outcome {
    let x = zeros(&[4, 3]);
    for (shape, said) in [([3, 2], "[3, 2]"), ([0, 3], "[0, 3]")] {
        assert_error(
            dense::forward_inference(&x, &zeros(&shape), None, IDENTITY),
            &format!("dense.forward_inference: w has shape {said}, expected [O, 3] with O > 0 for x [4, 3]"),
        )?;
    }
    Ok(())
}

pub fn b_that_does_not_fit() -> Outcome {
    assert_error(
        dense::forward(&zeros(&[4, 3]), &zeros(&[2, 3]), Some(&zeros(&[3])), IDENTITY),
        "dense.forward: b has shape [3], expected [2]",
    )
}

pub fn alpha_that_does_not_fit() -> Outcome {
    for (shape, said) in [(&[3][..], "[3]"), (&[1, 2], "[1, 2]"), (&[], "[]")] {
        assert_error(
            dense::forward(&zeros(&[4, 3]), &zeros(&[2, 3]), None, Activation::Prelu(&zeros(shape))),
            &format!("dense.forward: alpha has shape {said}, expected [1] or [2] for w [2, 3]"),
        )?;
    }
    Ok(())
}

fn backward(dy: &[usize], gradients: Gradients<'_, f32>) -> ferrolayer::Result<()> {
    dense::backward(&zeros(&[4, 3]), &zeros(&[2, 3]), IDENTITY, &Saved::Identity, &zeros(dy), gradients)
}

pub fn dy_and_gradients_that_do_not_fit() -> Outcome {
    let result = backward(&[4, 3], Gradients::default());
    assert_error(result, "dense.backward: dy has shape [4, 3], expected [4, 2]")?;
    let mut wrong = zeros(&[5]);
    let result = backward(&[4, 2], Gradients { dx: Some(Out::write(&mut wrong)), ..Gradients::default() });
    assert_error(result, "dense.backward: dx has shape [5], expected [4, 3]")?;
    let result = backward(&[4, 2], Gradients { dw: Some(Out::write(&mut wrong)), ..Gradients::default() });
    assert_error(result, "dense.backward: dw has shape [5], expected [2, 3]")?;
    let result = backward(&[4, 2], Gradients { db: Some(Out::write(&mut wrong)), ..Gradients::default() });
    assert_error(result, "dense.backward: db has shape [5], expected [2]")?;
    let (z, alpha) = (zeros(&[4, 2]), zeros(&[1]));
    let gradients = Gradients { dalpha: Some(Out::write(&mut wrong)), ..Gradients::default() };
    let saved = Saved::Prelu { z: z.clone() };
    let result = dense::backward(&zeros(&[4, 3]), &zeros(&[2, 3]), Activation::Prelu(&alpha), &saved, &z, gradients);
    assert_error(result, "dense.backward: dalpha has shape [5], expected [1]")
}

pub fn saved_of_another_activation() -> Outcome {
    let y = zeros(&[4, 2]);
    let saved = Saved::Relu { y: y.clone() };
    assert_error(
        dense::backward(&zeros(&[4, 3]), &zeros(&[2, 3]), IDENTITY, &saved, &y, Gradients::default()),
        "dense.backward: saved is of a forward with ReLU, expected of one with the identity, the activation given here",
    )
}

pub fn saved_of_another_shape() -> Outcome {
    let saved = Saved::Relu { y: zeros(&[2, 4]) };
    assert_error(
        dense::backward(
            &zeros(&[4, 3]),
            &zeros(&[2, 3]),
            Activation::Relu,
            &saved,
            &zeros(&[4, 2]),
            Gradients::default(),
        ),
        "dense.backward: saved has shape [2, 4], expected [4, 2]",
    )
}

pub fn dalpha_without_prelu() -> Outcome {
    let mut dalpha = zeros(&[1]);
    let result = backward(&[4, 2], Gradients { dalpha: Some(Out::write(&mut dalpha)), ..Gradients::default() });
    assert_error(
        result,
        "dense.backward: dalpha is asked for with the identity, expected none: only PReLU has slopes to learn",
    )
}

pub fn another_device() -> Outcome {
    let gpu = Device::Gpu(Gpu::emulated());
    assert_error(
        dense::forward(&zeros(&[4, 3]), &Tensor::zeros(&gpu, &[2, 3])?, None, IDENTITY),
        "dense.forward: w is on the emulated GPU, expected the CPU like the other tensors; `Tensor::to` moves it",
    )
}

pub fn f64_on_a_gpu() -> Outcome {
    let gpu = Device::Gpu(Gpu::emulated());
    let x = Tensor::<f64>::zeros(&gpu, &[2, 2])?;
    assert_error(
        dense::forward(&x, &x, None, Activation::Identity),
        "dense.forward: x holds f64, which the emulated GPU does not compute; expected f32",
    )
}
