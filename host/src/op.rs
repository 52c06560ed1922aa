//! The contract of an op: what each of [`ops`](crate::ops) keeps, and a user's own op keeps the same way.
//!
//! An op makes one tensor of others, and gradients of its inputs from the gradient of that tensor. [`Op`] says how; in
//! return [`nn::Apply`](crate::nn::Apply) makes a layer of it, [`testing::gradcheck`](crate::testing::gradcheck) and
//! [`testing::compare_devices`](crate::testing::compare_devices) check it, and [`Op::output`] tells shapes without
//! computing. `docs/your-own-op.md` writes one, step by step.
//!
//! | what | where |
//! | --- | --- |
//! | shape, order in memory and element type of the output | [`Op::output`]: `forward` itself, on [`Device::Shapes`] |
//! | state between calls: random state, counters, a workspace of its own | [`Op::State`] |
//! | what backward needs of a forward | [`Op::Saved`], which that forward gives |
//! | inputs that may be overwritten | [`Op::overwrites`], [`Op::forward_in_place`] |
//! | forward and backward per device | [`OnCpu`](crate::device::OnCpu) and [`OnGpu`](crate::device::OnGpu) of what [`Device::run`] is given |
//! | stream and workspace | the [`Gpu`](crate::device::Gpu) that `on_gpu` is handed |
//!
//! # Where it runs
//! Where its tensors are: the same call for every device. Tensors on different devices, or on different streams of one,
//! are [`Error::Device`], which names the argument; [`check`](crate::check) says it for an op.
//!
//! # Tensors that share memory
//! Clones, [`Tensor::permute`]d ones too, share their memory until one of them is written to, which then gets a copy. So
//! whatever tensors a call is given, what it writes is no other tensor's memory, and no op has to look: an output that was
//! a clone of an input, or of another output, holds the right result afterwards, and the input what it held. What could
//! still meet is memory that was not made here; a launch compares its buffers' addresses
//! ([`Error::Overlap`]). While a graph is recorded a copy would be of no use to its replays: there
//! writing to a shared tensor is [`Error::Recording`].
//!
//! # What is no op in this sense
//! [`sgd`](crate::ops::sgd) and [`adam`](crate::ops::adam) change parameters where they are and have no gradient: see
//! [`nn::Optimiser`](crate::nn::Optimiser). [`permute`](crate::ops::permute) moves elements and computes nothing.

use crate::{Device, Error, Out, Real, Result, Tensor};

/// What a forward pass is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Training: what backward needs is saved.
    Train,
    /// Inference: nothing is saved, and what was saved before is dropped.
    Eval,
}

impl Mode {
    /// What to keep after a forward in this mode.
    pub fn keep<S>(self, saved: impl FnOnce() -> S) -> Option<S> {
        match self {
            Self::Train => Some(saved()),
            Self::Eval => None,
        }
    }
}

/// What an op and its inputs are called. It takes as many inputs, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// The op.
    pub op: &'static str,
    /// Inputs of the model's element type.
    pub data: &'static [&'static str],
    /// Parameters to be learnt: `f32` also where data is of 16 bits.
    pub parameters: &'static [&'static str],
    /// Numbers in device memory that are set, and have no gradient. They come after the parameters, and are of their type.
    pub settings: &'static [&'static str],
}

impl Names {
    /// Of an op without settings.
    pub const fn new(op: &'static str, data: &'static [&'static str], parameters: &'static [&'static str]) -> Self {
        Self { op, data, parameters, settings: &[] }
    }
}

/// An op's inputs, in the order of its [`Names`].
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a, T: Real> {
    /// Inputs of the model's element type.
    pub data: &'a [&'a Tensor<T>],
    /// Parameters, then settings.
    pub parameters: &'a [&'a Tensor<T::Compute>],
}

impl<'a, T: Real> Inputs<'a, T> {
    /// The inputs one by one, when there are as many as expected: `let ([x], [beta]) = inputs.exactly(OP)?;`.
    ///
    /// # Errors
    /// [`Error::Argument`] when there are more or fewer.
    #[allow(clippy::type_complexity, reason = "two arrays")]
    pub fn exactly<const D: usize, const P: usize>(
        self,
        op: &'static str,
    ) -> Result<([&'a Tensor<T>; D], [&'a Tensor<T::Compute>; P])> {
        Ok((exactly(op, "inputs", self.data)?, exactly(op, "parameters", self.parameters)?))
    }
}

/// Where backward puts the gradients of an op's inputs, in the order of its [`Names`]; those that are `None` are not
/// computed.
#[derive(Debug)]
pub struct Gradients<'a, T: Real> {
    /// Of the data, each of its input's shape and order in memory.
    pub data: Vec<Option<Out<'a, T>>>,
    /// Of the parameters; settings have none.
    pub parameters: Vec<Option<Out<'a, T::Compute>>>,
}

/// What backward is given.
#[derive(Debug)]
pub struct Backward<'a, T: Real, S> {
    /// What the forward saved.
    pub saved: &'a S,
    /// The parameters and settings that the forward was given.
    pub parameters: &'a [&'a Tensor<T::Compute>],
    /// The gradient of the output.
    pub dy: &'a Tensor<T>,
    /// Where those of the inputs go.
    pub gradients: Gradients<'a, T>,
}

impl<'a, T: Real, S> Backward<'a, T, S> {
    /// The parameters, the gradients of the data and those of the parameters one by one, when there are as many as
    /// expected: `let ([beta], [dx], [dbeta]) = call.exactly(OP)?;`.
    ///
    /// # Errors
    /// As [`Inputs::exactly`].
    #[allow(clippy::type_complexity, reason = "three arrays")]
    pub fn exactly<const V: usize, const D: usize, const P: usize>(
        self,
        op: &'static str,
    ) -> Result<([&'a Tensor<T::Compute>; V], [Option<Out<'a, T>>; D], [Option<Out<'a, T::Compute>>; P])> {
        let Gradients { data, parameters } = self.gradients;
        let wrong = |argument, got: usize, expected| wrong_count(op, argument, got, expected);
        Ok((
            exactly(op, "parameters", self.parameters)?,
            data.try_into().map_err(|all: Vec<_>| wrong("gradients", all.len(), D))?,
            parameters.try_into().map_err(|all: Vec<_>| wrong("gradients of parameters", all.len(), P))?,
        ))
    }
}

/// A list's items one by one, when there are as many as expected.
///
/// # Errors
/// [`Error::Argument`] when there are more or fewer.
pub fn exactly<I: Copy, const N: usize>(op: &'static str, argument: &'static str, items: &[I]) -> Result<[I; N]> {
    items.try_into().map_err(|_| wrong_count(op, argument, items.len(), N))
}

fn wrong_count(op: &'static str, argument: &'static str, got: usize, expected: usize) -> Error {
    Error::Argument { op, argument, got: format!("a list of {got}"), expected: format!("{expected}") }
}

/// An op with its settings: a pass forward, a pass backward, and what is between them.
///
/// `T` is the element type of its data. Implement it for every [`Real`], and [`testing`](crate::testing) can compute the
/// op in `f64` to check what it computes in others.
pub trait Op<T: Real> {
    /// What lives between calls and belongs to no single one: random state, counters, a workspace; `()` for most. It lives
    /// as long as its owner wants, a layer say, on one device; a new one is what there is before the first call. The same
    /// calls with a new state give the same results.
    type State: Default + Send;
    /// What backward needs of its forward, parameters excepted: inputs, outputs, or what was computed on the way. Clones
    /// of tensors take no memory of their own, and hold what they held when the original is overwritten.
    type Saved: Send;

    /// What it and its inputs are called.
    fn names(&self) -> Names;

    /// The output, and in [`Mode::Train`] what backward needs; where the inputs are.
    ///
    /// # Errors
    /// Those of arguments that do not go together, before anything is computed; the device's own errors.
    fn forward(
        &self,
        state: &mut Self::State,
        inputs: Inputs<'_, T>,
        mode: Mode,
    ) -> Result<(Tensor<T>, Option<Self::Saved>)>;

    /// The gradients that are asked for, given that of the output and what the forward saved.
    ///
    /// # Errors
    /// As [`Op::forward`].
    fn backward(&self, state: &mut Self::State, call: Backward<'_, T, Self::Saved>) -> Result<()>;

    /// Whether the first data input may be overwritten in this mode: whether [`Op::forward_in_place`] gives its memory to
    /// the output. What backward needs may not.
    fn overwrites(&self, _mode: Mode) -> bool {
        false
    }

    /// As [`Op::forward`], with the output in the place of `x`, the first data input; `others` are the inputs without it.
    /// When it fails, `x` is as it was.
    ///
    /// This takes no memory where [`Op::overwrites`] says so and `x` is no other tensor's memory, and is right in any case.
    ///
    /// # Errors
    /// As [`Op::forward`].
    fn forward_in_place(
        &self,
        state: &mut Self::State,
        x: &mut Tensor<T>,
        others: Inputs<'_, T>,
        mode: Mode,
    ) -> Result<Option<Self::Saved>> {
        let data: Vec<&Tensor<T>> = std::iter::once(&*x).chain(others.data.iter().copied()).collect();
        let (y, saved) = self.forward(state, Inputs { data: &data, ..others }, mode)?;
        *x = y;
        Ok(saved)
    }

    /// What [`Op::forward`] would give for inputs of these shapes, orders in memory and types, with the same errors:
    /// a tensor on [`Device::Shapes`]. The elements are not looked at and nothing is computed.
    ///
    /// # Errors
    /// As [`Op::forward`], but for those of a device.
    fn output(&self, inputs: Inputs<'_, T>) -> Result<Tensor<T>> {
        let data = inputs.data.iter().map(|tensor| tensor.to(&Device::Shapes)).collect::<Result<Vec<_>>>()?;
        let parameters = inputs.parameters.iter().map(|tensor| tensor.to(&Device::Shapes));
        let parameters = parameters.collect::<Result<Vec<_>>>()?;
        let (data, parameters): (Vec<_>, Vec<_>) = (data.iter().collect(), parameters.iter().collect());
        let inputs = Inputs { data: &data, parameters: &parameters };
        Ok(self.forward(&mut Self::State::default(), inputs, Mode::Eval)?.0)
    }
}
