//! What an operator is, and what it gives.

use std::marker::PhantomData;

use ferrolayer::{Element, Tensor};
use smallvec::SmallVec;

use crate::arguments::{Arguments, Source};
use crate::schema::Signature;
use crate::stack;
use crate::symbols::Kernel;
use crate::{AnyTensor, Error, Result, Value};

/// An operator: its schema in PyTorch's words, and what it computes.
///
/// ```ignore
/// use ferrolayer_torch::{Arguments, Operator, Outputs, Result, with_real};
///
/// struct Swish;
///
/// impl Operator for Swish {
///     const SCHEMA: &'static str = "swish(Tensor x, float beta) -> Tensor";
///
///     fn call(arguments: &mut Arguments<'_>) -> Result<Outputs> {
///         let x = arguments.any()?;
///         let beta = arguments.float()?;
///         with_real!(x, T => Ok(my_layers::swish(&x, beta)?.into()))
///     }
/// }
/// ```
pub trait Operator: 'static {
    /// As `torch.library.define` takes it, without the namespace: `"prelu(Tensor x, Tensor alpha) -> Tensor"`.
    ///
    /// Arguments are `Tensor`, `int`, `SymInt`, `float` and `bool`, each with `?` where it may be `None`, and `Tensor(a!)`
    /// for one that is written to; results are tensors, or none: `-> ()`. The last arguments may have defaults, `int n=1`, if
    /// they are `int`s. Lists, strings, other defaults and keyword-only arguments cannot be had, since not every version of
    /// PyTorch hands them over: a Python function around the operator can have them. A schema that is none does not compile.
    const SCHEMA: &'static str;

    /// Computes the outputs from the arguments, which it takes one after another in the schema's order.
    ///
    /// Tensors are dense: row-major, or channels-last where PyTorch's own ops would keep them so; what was in another order
    /// was copied. Outputs are new tensors, made by ops or by [`Tensor::empty`] on an argument's device: they are PyTorch's
    /// own, from its allocators, and go back without a copy.
    ///
    /// # Errors
    /// What the caller in Python gets as a `RuntimeError`. A panic becomes one, too.
    fn call(arguments: &mut Arguments<'_>) -> Result<Outputs>;
}

/// An operator's results, from one tensor or a tuple of up to four; `()` for none.
#[derive(Debug, Default)]
pub struct Outputs(pub(crate) SmallVec<[AnyTensor; 1]>);

impl From<()> for Outputs {
    fn from((): ()) -> Self {
        Self::default()
    }
}

impl<T: Element> From<Tensor<T>> for Outputs {
    #[inline]
    fn from(tensor: Tensor<T>) -> Self {
        let mut outputs = SmallVec::new();
        outputs.push(tensor.into());
        Self(outputs)
    }
}

impl From<AnyTensor> for Outputs {
    fn from(tensor: AnyTensor) -> Self {
        Self(SmallVec::from_iter([tensor]))
    }
}

macro_rules! tuples {
    ($($($name:ident)*;)*) => {$(
        impl<$($name: Into<AnyTensor>),*> From<($($name,)*)> for Outputs {
            #[allow(non_snake_case, reason = "a value for each type")]
            fn from(($($name,)*): ($($name,)*)) -> Self {
                Self(SmallVec::from_iter([$($name.into()),*]))
            }
        }
    )*};
}
tuples! {
    A B;
    A B C;
    A B C D;
}

/// What computes an operator.
pub(crate) type Call = fn(&mut Arguments<'_>) -> Result<Outputs>;

/// An operator as a value, for lists of them: [`operators!`](crate::operators).
#[derive(Clone, Copy)]
pub struct Entry {
    pub(crate) signature: &'static Signature,
    pub(crate) call: Call,
    pub(crate) kernel: Kernel,
}

struct Of<O>(PhantomData<O>);

impl<O: Operator> Of<O> {
    const SIGNATURE: &'static Signature = &Signature::parse(O::SCHEMA);
}

impl Entry {
    /// Of this operator.
    pub const fn of<O: Operator>() -> Self {
        Self { signature: Of::<O>::SIGNATURE, call: O::call, kernel: stack::kernel::<O> }
    }

    /// The name in the schema.
    pub fn name(&self) -> &'static str {
        self.signature.name()
    }

    /// The name of the argument at this place, if there is one.
    pub fn argument(&self, index: usize) -> Option<&'static str> {
        self.signature.parameters().get(index).map(|parameter| self.signature.argument(parameter))
    }

    /// Runs it with these arguments, which may be of any device: no PyTorch is needed. Those with defaults may be left out.
    ///
    /// # Errors
    /// [`Error::Argument`] for arguments that the schema does not have; the operator's own.
    pub fn call(&self, mut arguments: Vec<Value>) -> Result<Vec<AnyTensor>> {
        let Some(defaults) = self.signature.defaults_after(arguments.len()) else {
            return Err(Error::Argument {
                operator: self.name(),
                argument: "arguments",
                got: arguments.len().to_string(),
                expected: format!("as many as in {}", self.signature.schema()),
            });
        };
        arguments.extend(defaults.map(Value::Int));
        let mut arguments = Arguments::new(self.signature, Source::Values(arguments.into_iter()));
        Ok((self.call)(&mut arguments)?.0.into_vec())
    }
}

pub(crate) fn kernel_of<O: Operator>() -> (&'static Signature, Call) {
    (Of::<O>::SIGNATURE, O::call)
}

/// A list of operators, for [`register`](crate::register): `operators![Swish, SwishBackward]`.
#[macro_export]
macro_rules! operators {
    ($($operator:ty),* $(,)?) => {
        [$($crate::Entry::of::<$operator>()),*]
    };
}
