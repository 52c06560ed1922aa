//! Softmax and cross entropy in one, averaged over the batch:
//! `loss = mean over n of (log_sum[n] - x[n, label[n]])` with `log_sum[n] = log(sum over c of exp(x[n, c]))`.
//!
//! `x: [N, C]` holds unnormalised scores, `labels: [N]` the right classes, `0..C`; `loss` is `[1]`. What backward needs
//! besides these is `log_sum: [N]`: `dx[n, c] = (exp(x[n, c] - log_sum[n]) - [c = label[n]]) * dloss / N`. The row's
//! maximum is subtracted before `exp`, so finite scores give a finite loss. It is PyTorch's
//! `torch.nn.functional.cross_entropy(x, labels)`.
//!
//! The loss stays on the device until it is read. An empty batch's loss is 0.
//!
//! A label that is no class is an error where the host can see the labels. Labels on a GPU it cannot see without waiting
//! for them: there such a label makes the loss and its row of `dx` NaN. NaN in, NaN out.

mod contract;
mod cpu;
mod gpu;

pub use contract::Op;

use crate::{Compute, Error, Out, Result, Tensor, check};

/// What [`forward`] gives.
#[derive(Clone, Debug)]
pub struct Output<T: Compute> {
    /// The mean loss, `[1]`.
    pub loss: Tensor<T>,
    /// The logarithm of the sum of each row's exponentials, `[N]`: what [`backward`] needs.
    pub log_sum: Tensor<T>,
}

/// A forward pass whose arguments have been checked.
struct Forward<'a, T: Compute> {
    classes: u32,
    x: &'a Tensor<T>,
    labels: &'a Tensor<u32>,
    loss: &'a mut Tensor<T>,
    log_sum: &'a mut Tensor<T>,
}

/// A backward pass whose arguments have been checked.
struct Backward<'a, T: Compute> {
    classes: u32,
    x: &'a Tensor<T>,
    labels: &'a Tensor<u32>,
    log_sum: &'a Tensor<T>,
    dloss: Option<&'a Tensor<T>>,
    dx: Out<'a, T>,
}

/// The mean loss of scores `x: [N, C]` for `labels: [N]`.
///
/// # Errors
/// [`Error::Shape`] and [`Error::Device`] for tensors that do not go together; [`Error::Argument`] for a label on the
/// CPU that is no class; [`Error::DType`] for `f64` on a GPU; the device's own errors.
pub fn forward<T: Compute>(x: &Tensor<T>, labels: &Tensor<u32>) -> Result<Output<T>> {
    let classes = classes("softmax_cross_entropy.forward", x, labels)?;
    let mut loss = Tensor::empty(x.device(), &[1])?;
    let mut log_sum = Tensor::empty(x.device(), labels.shape())?;
    x.device().run(Forward { classes, x, labels, loss: &mut loss, log_sum: &mut log_sum })?;
    Ok(Output { loss, log_sum })
}

/// The loss's gradient by the scores; `log_sum` is what [`forward`] gave, and `dloss`, of shape `[1]`, the gradient of
/// what was made of the loss: 1 where it is not given.
///
/// # Errors
/// As [`forward`].
pub fn backward<T: Compute>(
    x: &Tensor<T>,
    labels: &Tensor<u32>,
    log_sum: &Tensor<T>,
    dloss: Option<&Tensor<T>>,
    dx: Out<'_, T>,
) -> Result<()> {
    const OP: &str = "softmax_cross_entropy.backward";
    let classes = classes(OP, x, labels)?;
    check::like(OP, "log_sum", log_sum, labels)?;
    if let Some(dloss) = dloss {
        check::device(OP, "dloss", dloss, x)?;
        check::shape(OP, "dloss", dloss, &[1])?;
    }
    check::like(OP, "dx", dx.tensor, x)?;
    x.device().run(Backward { classes, x, labels, log_sum, dloss, dx })
}

/// The number of classes, when the arguments go together.
fn classes<T: Compute>(op: &'static str, x: &Tensor<T>, labels: &Tensor<u32>) -> Result<u32> {
    let &[batch, classes] = x.shape() else {
        return Err(Error::Shape { op, argument: "x", got: x.shape().to_vec(), expected: "[N, C]".into() });
    };
    check::only_batch_may_be_zero(op, "x", x)?;
    check::device(op, "labels", labels, x)?;
    check::shape(op, "labels", labels, &[batch])?;
    // A label names a class in 32 bits, and the kernels step past the last one by less than 32.
    let Some(count) = u32::try_from(classes).ok().filter(|&count| count <= i32::MAX as u32) else {
        let expected = "[N, C] with C less than 2^31".into();
        return Err(Error::Shape { op, argument: "x", got: x.shape().to_vec(), expected });
    };
    let seen = labels.host().unwrap_or(&[]);
    match seen.iter().enumerate().find(|&(_, &label)| label >= count) {
        None => Ok(count),
        Some((row, label)) => Err(Error::Argument {
            op,
            argument: "labels",
            got: format!("{label} in row {row}"),
            expected: format!("less than {classes}, the number of classes"),
        }),
    }
}
