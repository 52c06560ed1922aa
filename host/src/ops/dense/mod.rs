//! Fully connected layer with bias and activation: `y[n, o] = act(z[n, o])`, `z[n, o] = sum_i x[n, i] w[o, i] + b[o]`.
//!
//! `x: [N, I]`, `w: [O, I]`, `b: [O]` if any; `act` is the identity, ReLU or PReLU ([`Activation`]). Backward, with
//! `dz = act'(z) dy`:
//! - `dx = dz · w`, `dw = dzᵀ · x`, `db = sum over n of dz`;
//! - `dalpha = sum of z dy where z <= 0`, over all (`alpha: [1]`) or over `n` (`alpha: [O]`).
//!
//! `dz` is `dy` where `z > 0`. Where `z <= 0` it is 0 for ReLU and `alpha dy` for PReLU; NaN counts as positive for
//! ReLU and as negative for PReLU, as in [`relu`](crate::ops::relu) and [`prelu`](crate::ops::prelu).
//!
//! What backward needs of `z` is [`Saved`]: nothing for the identity, the output for ReLU, `z` itself for PReLU.
//!
//! With f16 and bf16, arithmetic is f32 and each result is rounded once, when it is stored: `y` is made of the `z` before it is
//! rounded, backward of the stored one, which takes as little memory as `y`. `dz` is rounded as `dy` was, because tensor
//! cores multiply that type (ReLU's is `dy` or 0, which rounding leaves alone); `db` is the sum of what it was before, as are
//! the terms of `dalpha`. The slopes are f32. A positive `z` that f16 stores as 0, below 2⁻²⁵, has slope 0 with ReLU and `alpha`
//! with PReLU; one beyond its range is stored as infinite.
//!
//! On a GPU these types go by tensor cores where rows in memory are a multiple of eight elements: `I` for the forward pass,
//! `I` and `O` for the gradients. Products are exact there too, but tensor cores cut off what a sum does not hold instead of
//! rounding it; no sum is longer than 16,384 terms before it is added as f32.
//!
//! Products of f32 are made as [`Precision`] says: `forward_in`, `backward_in` and `forward_inference_in` take one, the functions
//! without have its default.
//!
//! How a product is cut up for a GPU is a model's choice, or, for those who have measured, that of a table: [`tune`].
//!
//! Tensors are row-major, and each of `N`, `I` and `O` is below 2³¹ on a GPU.

mod contract;
mod cpu;
mod gpu;
mod init;
mod plan;
mod products;
pub mod tune;

pub use contract::{Kind, Op};
pub use init::{Generator, Init};

use crate::{Error, Layout, Out, Real, Result, Tensor, check};

/// How products of f32 are made. Other element types have one way, and on a CPU f32 has too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// By f32 arithmetic: products are exact and each sum is rounded to the nearest f32.
    F32,
    /// By tensor cores, on a GPU that has Hopper's, where that is faster; otherwise as [`Precision::F32`].
    ///
    /// Each operand is taken apart into three bf16 whose sum it is exactly; of the nine products of parts the six are made that
    /// an f32 sum can show, and every 64 terms their sum goes on in f32 arithmetic. The error is no larger than that of f32
    /// arithmetic (`docs/accuracy.md` has figures). Where an operand has an element that is not finite, or 2²⁸ and more in
    /// magnitude, the whole product is made by f32 arithmetic, if not always in the order of [`Precision::F32`]. The parts take 6 bytes for each element of
    /// one operand, or of both, while the pass runs, of memory that is kept for the next one.
    #[default]
    F32Split,
    /// By tensor cores as tf32, on a GPU that has Hopper's: each operand's element is rounded to 11 binary digits of 24, the nearest
    /// such number, these are multiplied exactly, and their sums are f32 (`docs/accuracy.md` has the errors). Exponents are f32's.
    /// Infinities and NaN come out as of f32.
    ///
    /// Asked for, it allows that; where there is no such kernel, on other devices, for fewer than 16 rows, or where rows in memory are
    /// no whole pieces of 16 bytes, products are made as by [`Precision::F32Split`]. For `dw` of larger layers `dz` or `x` is turned,
    /// which takes as much memory again while the pass runs, memory that is kept for the next one.
    Tf32,
}

impl Precision {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::F32, Self::F32Split, Self::Tf32];

    /// As the Python package writes it: `f32`, `f32_split`, `tf32`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F32Split => "f32_split",
            Self::Tf32 => "tf32",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }
}

/// What is applied to the product and the bias.
#[derive(Clone, Copy, Debug, Default)]
pub enum Activation<'a, T: Real> {
    /// Nothing: `y = z`.
    #[default]
    Identity,
    /// `y = z` where `z > 0`, else 0; NaN stays NaN.
    Relu,
    /// `y = z` where `z > 0`, else `alpha z`; `alpha` is `[1]`, or `[O]` for one slope per output.
    Prelu(&'a Tensor<T::Compute>),
}

/// What [`backward`] needs of the forward pass besides its inputs.
#[derive(Clone, Debug)]
pub enum Saved<T: Real> {
    /// The identity's slope is 1 everywhere: nothing.
    Identity,
    /// `y > 0` where `z > 0`, so the output does; it shares the memory of [`Output::y`].
    Relu {
        /// The output, `[N, O]`.
        y: Tensor<T>,
    },
    /// `alpha` may be zero or negative, so that `y` does not tell the sign of `z`, and `dalpha` needs its value.
    Prelu {
        /// The product with the bias, before the activation, `[N, O]`.
        z: Tensor<T>,
    },
}

/// What [`forward`] gives.
#[derive(Clone, Debug)]
pub struct Output<T: Real> {
    /// The layer's output, `[N, O]`.
    pub y: Tensor<T>,
    /// To be handed to [`backward`].
    pub saved: Saved<T>,
}

/// Where [`backward`] puts the gradients; those that are `None` are not computed.
#[derive(Debug)]
pub struct Gradients<'a, T: Real> {
    /// Of the input, `[N, I]`.
    pub dx: Option<Out<'a, T>>,
    /// Of the weights, `[O, I]`.
    pub dw: Option<Out<'a, T>>,
    /// Of the bias, `[O]`.
    pub db: Option<Out<'a, T>>,
    /// Of PReLU's slopes, of `alpha`'s shape; an error with another activation.
    pub dalpha: Option<Out<'a, T::Compute>>,
}

/// None of them.
impl<T: Real> Default for Gradients<'_, T> {
    fn default() -> Self {
        Self { dx: None, dw: None, db: None, dalpha: None }
    }
}

/// `N`, `I` and `O`.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    batch: usize,
    inputs: usize,
    outputs: usize,
}

/// A forward pass whose arguments have been checked.
struct Forward<'a, T: Real> {
    precision: Precision,
    sizes: Sizes,
    x: &'a Tensor<T>,
    w: &'a Tensor<T>,
    b: Option<&'a Tensor<T>>,
    activation: Activation<'a, T>,
    y: &'a mut Tensor<T>,
    /// Where backward will need it; only with PReLU.
    z: Option<&'a mut Tensor<T>>,
}

/// A backward pass whose arguments have been checked.
struct Backward<'a, T: Real> {
    precision: Precision,
    sizes: Sizes,
    x: &'a Tensor<T>,
    w: &'a Tensor<T>,
    slope: Slope<'a, T>,
    dy: &'a Tensor<T>,
    gradients: Gradients<'a, T>,
}

/// What the activation's derivative is made of.
#[derive(Clone, Copy)]
enum Slope<'a, T: Real> {
    One,
    Relu { y: &'a Tensor<T> },
    Prelu { z: &'a Tensor<T>, alpha: &'a Tensor<T::Compute> },
}

/// `act(x · wᵀ + b)`, and what [`backward`] needs of it.
///
/// # Errors
/// [`Error::Shape`] and [`Error::Device`] for tensors that do not go together; [`Error::Layout`] for any that is not
/// row-major; [`Error::DType`] for `f64` and [`Error::Argument`] for a size of 2³¹ and more on a GPU; the device's own
/// errors.
pub fn forward<T: Real>(
    x: &Tensor<T>,
    w: &Tensor<T>,
    b: Option<&Tensor<T>>,
    activation: Activation<'_, T>,
) -> Result<Output<T>> {
    forward_in(Precision::default(), x, w, b, activation)
}

/// [`forward`], with f32 products made so.
///
/// # Errors
/// As [`forward`].
pub fn forward_in<T: Real>(
    precision: Precision,
    x: &Tensor<T>,
    w: &Tensor<T>,
    b: Option<&Tensor<T>>,
    activation: Activation<'_, T>,
) -> Result<Output<T>> {
    let sizes = check_forward("dense.forward", x, w, b, activation)?;
    let mut y = Tensor::empty(x.device(), &[sizes.batch, sizes.outputs])?;
    let mut z = match activation {
        Activation::Prelu(_) => Some(Tensor::empty(x.device(), y.shape())?),
        Activation::Identity | Activation::Relu => None,
    };
    x.device().run(Forward { precision, sizes, x, w, b, activation, y: &mut y, z: z.as_mut() })?;
    let saved = match (activation, z) {
        (Activation::Relu, _) => Saved::Relu { y: y.clone() },
        (_, Some(z)) => Saved::Prelu { z },
        (_, None) => Saved::Identity,
    };
    Ok(Output { y, saved })
}

/// [`forward`] where no backward will follow: the same bits, and nothing is saved.
///
/// # Errors
/// As [`forward`].
pub fn forward_inference<T: Real>(
    x: &Tensor<T>,
    w: &Tensor<T>,
    b: Option<&Tensor<T>>,
    activation: Activation<'_, T>,
) -> Result<Tensor<T>> {
    forward_inference_in(Precision::default(), x, w, b, activation)
}

/// [`forward_inference`], with f32 products made so.
///
/// # Errors
/// As [`forward`].
pub fn forward_inference_in<T: Real>(
    precision: Precision,
    x: &Tensor<T>,
    w: &Tensor<T>,
    b: Option<&Tensor<T>>,
    activation: Activation<'_, T>,
) -> Result<Tensor<T>> {
    let sizes = check_forward("dense.forward_inference", x, w, b, activation)?;
    let mut y = Tensor::empty(x.device(), &[sizes.batch, sizes.outputs])?;
    x.device().run(Forward { precision, sizes, x, w, b, activation, y: &mut y, z: None })?;
    Ok(y)
}

/// The gradients that are asked for, given `dy: [N, O]` and what the forward pass saved.
///
/// # Errors
/// As [`forward`]; [`Error::Argument`] when `saved` is another activation's, or `dalpha` is asked for without PReLU.
pub fn backward<T: Real>(
    x: &Tensor<T>,
    w: &Tensor<T>,
    activation: Activation<'_, T>,
    saved: &Saved<T>,
    dy: &Tensor<T>,
    gradients: Gradients<'_, T>,
) -> Result<()> {
    backward_in(Precision::default(), x, w, activation, saved, dy, gradients)
}

/// [`backward`], with f32 products made so; forward may have made its own otherwise.
///
/// # Errors
/// As [`backward`].
pub fn backward_in<T: Real>(
    precision: Precision,
    x: &Tensor<T>,
    w: &Tensor<T>,
    activation: Activation<'_, T>,
    saved: &Saved<T>,
    dy: &Tensor<T>,
    gradients: Gradients<'_, T>,
) -> Result<()> {
    const OP: &str = "dense.backward";
    let sizes = check_forward(OP, x, w, None, activation)?;
    let output = [sizes.batch, sizes.outputs];
    check::device(OP, "dy", dy, x)?;
    check::shape(OP, "dy", dy, &output)?;
    check::in_layout(OP, "dy", dy, Layout::RowMajor)?;
    let slope = match (activation, saved) {
        (Activation::Identity, Saved::Identity) => Slope::One,
        (Activation::Relu, Saved::Relu { y }) => Slope::Relu { y },
        (Activation::Prelu(alpha), Saved::Prelu { z }) => Slope::Prelu { z, alpha },
        (activation, saved) => {
            return Err(Error::Argument {
                op: OP,
                argument: "saved",
                got: format!("of a forward with {}", saved.activation()),
                expected: format!("of one with {}, the activation given here", activation.name()),
            });
        }
    };
    match slope {
        Slope::One => {}
        Slope::Relu { y } => check::like(OP, "saved", y, dy)?,
        Slope::Prelu { z, .. } => check::like(OP, "saved", z, dy)?,
    }
    for (argument, out, reference) in [("dx", &gradients.dx, x), ("dw", &gradients.dw, w)] {
        if let Some(out) = out {
            check::like(OP, argument, out.tensor, reference)?;
        }
    }
    if let Some(db) = &gradients.db {
        check::device(OP, "db", db.tensor, x)?;
        check::shape(OP, "db", db.tensor, &[sizes.outputs])?;
    }
    match (&gradients.dalpha, activation) {
        (None, _) => {}
        (Some(dalpha), Activation::Prelu(alpha)) => check::like(OP, "dalpha", dalpha.tensor, alpha)?,
        (Some(_), activation) => {
            return Err(Error::Argument {
                op: OP,
                argument: "dalpha",
                got: format!("asked for with {}", activation.name()),
                expected: "none: only PReLU has slopes to learn".into(),
            });
        }
    }
    x.device().run(Backward { precision, sizes, x, w, slope, dy, gradients })
}

impl<T: Real> Activation<'_, T> {
    fn name(&self) -> &'static str {
        match self {
            Self::Identity => "the identity",
            Self::Relu => "ReLU",
            Self::Prelu(_) => "PReLU",
        }
    }
}

impl<T: Real> Saved<T> {
    fn activation(&self) -> &'static str {
        match self {
            Self::Identity => "the identity",
            Self::Relu { .. } => "ReLU",
            Self::Prelu { .. } => "PReLU",
        }
    }
}

fn check_forward<T: Real>(
    op: &'static str,
    x: &Tensor<T>,
    w: &Tensor<T>,
    b: Option<&Tensor<T>>,
    activation: Activation<'_, T>,
) -> Result<Sizes> {
    let shape = |argument, got: &[usize], expected| Err(Error::Shape { op, argument, got: got.to_vec(), expected });
    let &[batch, inputs] = x.shape() else {
        return shape("x", x.shape(), "[N, I]".into());
    };
    check::only_batch_may_be_zero(op, "x", x)?;
    check::in_layout(op, "x", x, Layout::RowMajor)?;
    check::device(op, "w", w, x)?;
    let outputs = match *w.shape() {
        [outputs, i] if outputs > 0 && i == inputs => outputs,
        _ => return shape("w", w.shape(), format!("[O, {inputs}] with O > 0 for x {:?}", x.shape())),
    };
    check::in_layout(op, "w", w, Layout::RowMajor)?;
    if let Some(b) = b {
        check::device(op, "b", b, x)?;
        check::shape(op, "b", b, &[outputs])?;
    }
    if let Activation::Prelu(alpha) = activation {
        check::device(op, "alpha", alpha, x)?;
        if ![1, outputs].contains(&alpha.len()) || alpha.shape().len() != 1 {
            return shape("alpha", alpha.shape(), format!("[1] or [{outputs}] for w {:?}", w.shape()));
        }
    }
    Ok(Sizes { batch, inputs, outputs })
}
