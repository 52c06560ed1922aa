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

/// One error for each argument.
pub fn other_orders() -> Outcome {
    let turned = |shape: &[usize; 2]| zeros(&[shape[1], shape[0]]).permute(&[1, 0]);
    let (x, w, y) = (zeros(&[4, 3]), zeros(&[2, 3]), zeros(&[4, 2]));
    let said = |pass: &str, argument: &str, [rows, columns]: [usize; 2]| {
        format!(
            "dense.{pass}: {argument} has shape [{rows}, {columns}] and strides [1, {rows}], expected row-major order; \
             `Tensor::to_layout` copies it"
        )
    };
    let forward = |x: &Tensor<f32>, w: &Tensor<f32>| dense::forward(x, w, None, IDENTITY);
    assert_error(forward(&turned(&[4, 3])?, &w), &said("forward", "x", [4, 3]))?;
    assert_error(forward(&x, &turned(&[2, 3])?), &said("forward", "w", [2, 3]))?;
    // One row has one order.
    forward(&turned(&[1, 3])?, &turned(&[1, 3])?)?;

    let backward = |saved: &Tensor<f32>, dy: &Tensor<f32>, gradients| {
        let saved = Saved::Relu { y: saved.clone() };
        dense::backward(&x, &w, Activation::Relu, &saved, dy, gradients)
    };
    assert_error(backward(&y, &turned(&[4, 2])?, Gradients::default()), &said("backward", "dy", [4, 2]))?;
    assert_error(backward(&turned(&[4, 2])?, &y, Gradients::default()), &said("backward", "saved", [4, 2]))?;
    let mut dx = turned(&[4, 3])?;
    let gradients = Gradients { dx: Some(Out::write(&mut dx)), ..Gradients::default() };
    assert_error(backward(&y, &y, gradients), &said("backward", "dx", [4, 3]))?;
    let mut dw = turned(&[2, 3])?;
    let gradients = Gradients { dw: Some(Out::write(&mut dw)), ..Gradients::default() };
    assert_error(backward(&y, &y, gradients), &said("backward", "dw", [2, 3]))
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
        "dense.forward: x holds f64, which the emulated GPU does not compute; expected f32, f16 or bf16",
    )
}
