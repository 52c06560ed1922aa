//! Operators of an [`Op`], without a line for either pass.

use std::marker::PhantomData;

use ferrolayer::op::{self, Gradients, Inputs, Mode, Names, Op};
use ferrolayer::{Device, Real, Tensor, bf16, f16};
use smallvec::SmallVec;

use crate::gradients::{Wanted, ordered_like};
use crate::{AnyTensor, Arguments, Operator, Outputs, Result, with_real};

/// An [`Op`] that PyTorch can have: two schemas, and how backward comes by what it needs. [`Forward`] and [`Backward`] are
/// its operators.
///
/// ```ignore
/// use ferrolayer_torch::{Backward, Forward, Kept, TorchOp, operators};
///
/// impl<T: Real> TorchOp<T> for Swish {
///     const FORWARD: &'static str = "swish(Tensor x, Tensor beta) -> Tensor";
///     const BACKWARD: &'static str =
///         "swish_backward(Tensor dy, Tensor x, Tensor beta, bool need_dx, bool need_dbeta) -> (Tensor, Tensor)";
///
///     fn saved(kept: Kept<'_, T>) -> Tensor<T> {
///         kept.inputs.data[0].clone()
///     }
/// }
///
/// #[pymodule]
/// fn my_ops(module: &Bound<'_, PyModule>) -> PyResult<()> {
///     ferrolayer_torch::register(module.py(), "my_ops", &operators![Forward<Swish>, Backward<Swish>]).map(drop)
/// }
/// ```
///
/// It is for ops without settings of their own and without state, of which backward needs inputs and the output and nothing
/// else. Any other op has two [`Operator`]s written for it.
pub trait TorchOp<T: Real>: Op<T, State = ()> + Default {
    /// The schema of forward: the data, the parameters and the settings that [`Op::names`] lists, as tensors, give one
    /// tensor.
    const FORWARD: &'static str;

    /// The schema of backward: `Tensor dy`, forward's inputs, then `Tensor y` if the output is kept, then a `bool` for each
    /// of the data and the parameters: whether its gradient is needed. It gives these gradients; one that is not needed is a
    /// tensor of no elements.
    const BACKWARD: &'static str;

    /// What forward saved, made of what PyTorch has kept. Clones of tensors cost nothing.
    fn saved(kept: Kept<'_, T>) -> Self::Saved;
}

/// What PyTorch has kept of a forward.
#[derive(Clone, Copy, Debug)]
pub struct Kept<'a, T: Real> {
    /// What forward was given.
    pub inputs: Inputs<'a, T>,
    /// What it gave, if [`TorchOp::BACKWARD`] takes it.
    pub output: Option<&'a Tensor<T>>,
}

/// A [`TorchOp`] of every element type. It is implemented where it can be.
pub trait TorchOps: TorchOp<f32> + TorchOp<f64> + TorchOp<f16> + TorchOp<bf16> + 'static {}

impl<O: TorchOp<f32> + TorchOp<f64> + TorchOp<f16> + TorchOp<bf16> + 'static> TorchOps for O {}

/// The output of an op, as an operator.
#[derive(Debug)]
pub struct Forward<O>(PhantomData<O>);

/// The gradients of an op's inputs, as an operator.
#[derive(Debug)]
pub struct Backward<O>(PhantomData<O>);

impl<O: TorchOps> Operator for Forward<O> {
    const SCHEMA: &'static str = <O as TorchOp<f32>>::FORWARD;

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let x = arguments.any()?;
        with_real!(x, T => forward::<O, T>(x, arguments))
    }
}

impl<O: TorchOps> Operator for Backward<O> {
    const SCHEMA: &'static str = <O as TorchOp<f32>>::BACKWARD;

    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
        let dy = arguments.any()?;
        with_real!(dy, T => backward::<O, T>(dy, arguments))
    }
}

fn forward<O: TorchOp<T>, T: Real>(x: Tensor<T>, arguments: &mut Arguments<'_>) -> Result<Outputs> {
    let op = O::default();
    let owned = Owned::take(op.names(), Some(x), arguments)?;
    let (y, _) = owned.lend(|inputs| op.forward(&mut (), inputs, Mode::Eval))?;
    Ok(y.into())
}

fn backward<O: TorchOp<T>, T: Real>(dy: Tensor<T>, arguments: &mut Arguments<'_>) -> Result<Outputs> {
    let op = O::default();
    let names = op.names();
    let owned = Owned::take(names, None, arguments)?;
    let output = if arguments.next_is_tensor() { Some(arguments.tensor::<T>()?) } else { None };
    let dy = match owned.data.first() {
        Some(x) => ordered_like(dy, x)?,
        None => dy,
    };
    let mut wanted = || arguments.bool();
    let mut data: Few<_> = owned.data.iter().map(|x| Wanted::like(wanted()?, x)).collect::<Result<_>>()?;
    let learnt = owned.parameters.iter().take(names.parameters.len());
    let mut parameters: Few<_> = learnt.map(|x| Wanted::like(wanted()?, x)).collect::<Result<_>>()?;
    owned.lend(|inputs| {
        let saved = O::saved(Kept { inputs, output: output.as_ref() });
        let gradients = Gradients {
            data: data.iter_mut().map(Wanted::out).collect(),
            parameters: parameters.iter_mut().map(Wanted::out).collect(),
        };
        op.backward(&mut (), op::Backward { saved: &saved, parameters: inputs.parameters, dy: &dy, gradients })
    })?;
    let device: &Device = dy.device();
    let data = data.into_iter().map(|dx| Ok(AnyTensor::from(dx.or_empty(device)?)));
    let parameters = parameters.into_iter().map(|dx| Ok(AnyTensor::from(dx.or_empty(device)?)));
    Ok(Outputs(data.chain(parameters).collect::<Result<_>>()?))
}

/// A list for which no memory is taken when it is as short as most are.
type Few<T> = SmallVec<[T; 2]>;

/// An op's inputs.
struct Owned<T: Real> {
    data: Few<Tensor<T>>,
    /// Parameters and settings.
    parameters: Few<Tensor<T::Compute>>,
}

impl<T: Real> Owned<T> {
    /// As many as there are names; the first may have been taken.
    fn take(names: Names, first: Option<Tensor<T>>, arguments: &mut Arguments<'_>) -> Result<Self> {
        let mut data: Few<_> = first.into_iter().collect();
        while data.len() < names.data.len() {
            data.push(arguments.tensor()?);
        }
        let parameters = 0..names.parameters.len() + names.settings.len();
        Ok(Self { data, parameters: parameters.map(|_| arguments.tensor()).collect::<Result<_>>()? })
    }

    fn lend<R>(&self, body: impl FnOnce(Inputs<'_, T>) -> R) -> R {
        let (data, parameters): (Few<_>, Few<_>) = (self.data.iter().collect(), self.parameters.iter().collect());
        body(Inputs { data: &data, parameters: &parameters })
    }
}
