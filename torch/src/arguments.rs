//! An operator's arguments, one after another.

use std::vec;

use ferrolayer::{Element, Real, Tensor};

use crate::error::torch_name;
use crate::schema::{Kind, Parameter, Signature};
use crate::stack::{Parts, Stack, is_true};
use crate::value::Scalar;
use crate::{AnyTensor, Error, Result, Value};

/// The arguments of a call, to be taken in the schema's order, each as what the schema says it is.
pub struct Arguments<'a> {
    signature: &'static Signature,
    next: usize,
    source: Source<'a>,
}

/// Where arguments come from.
pub(crate) enum Source<'a> {
    /// libtorch.
    Stack(Stack<'a>),
    /// Who has made values of them.
    Values(vec::IntoIter<Value>),
}

/// A parameter of a pass over `T`.
pub enum TypedParameter<T: Real> {
    /// Of the pass's own type.
    Same(Tensor<T>),
    /// Of what arithmetic takes that as.
    Wide(Tensor<T::Compute>),
}

impl<'a> Arguments<'a> {
    #[inline]
    pub(crate) fn new(signature: &'static Signature, source: Source<'a>) -> Self {
        Self { signature, next: 0, source }
    }

    pub(crate) fn into_source(self) -> Source<'a> {
        self.source
    }

    /// A tensor of any type.
    ///
    /// # Errors
    /// [`Error::Argument`] for `None`, for a tensor of a type that [`AnyTensor`] does not have, and for one without memory.
    #[inline]
    pub fn any(&mut self) -> Result<AnyTensor> {
        let parameter = self.parameter(Kind::Tensor)?;
        match self.tensor_at(parameter)? {
            Some(tensor) => Ok(tensor),
            None => Err(self.error(parameter, "None".into(), "a tensor".into())),
        }
    }

    /// A tensor of any type, or `None`.
    ///
    /// # Errors
    /// As [`Arguments::any`].
    #[inline]
    pub fn optional_any(&mut self) -> Result<Option<AnyTensor>> {
        let parameter = self.parameter(Kind::Tensor)?;
        self.tensor_at(parameter)
    }

    /// A tensor of this type.
    ///
    /// # Errors
    /// As [`Arguments::any`]; [`Error::Argument`] for another type.
    #[inline]
    pub fn tensor<T: Element>(&mut self) -> Result<Tensor<T>> {
        match self.optional_tensor()? {
            Some(tensor) => Ok(tensor),
            None => Err(self.error(&self.signature.parameters()[self.next - 1], "None".into(), "a tensor".into())),
        }
    }

    /// A tensor of this type, or `None`.
    ///
    /// # Errors
    /// As [`Arguments::tensor`].
    #[inline]
    pub fn optional_tensor<T: Element>(&mut self) -> Result<Option<Tensor<T>>> {
        let parameter = self.parameter(Kind::Tensor)?;
        let got = match &mut self.source {
            Source::Stack(stack) => match stack.tensor(self.next - 1, parameter)? {
                Some(parts) if parts.dtype == T::DTYPE => return parts.tensor().map(Some),
                Some(parts) => parts.dtype,
                None => return Ok(None),
            },
            Source::Values(_) => match self.tensor_at(parameter)? {
                Some(tensor) if tensor.dtype() == T::DTYPE => return Ok(tensor.of()),
                Some(tensor) => tensor.dtype(),
                None => return Ok(None),
            },
        };
        let expected = format!("{}; .to() makes it so", torch_name(T::DTYPE));
        Err(self.error(parameter, torch_name(got).into(), expected))
    }

    /// A parameter of a pass over `T`: a tensor of that type, or of what arithmetic takes it as.
    ///
    /// # Errors
    /// As [`Arguments::tensor`].
    #[inline]
    pub fn parameter_of<T: Real>(&mut self) -> Result<TypedParameter<T>> {
        let tensor = self.any()?;
        let got = tensor.dtype();
        let of =
            if got == T::DTYPE { tensor.of().map(TypedParameter::Same) } else { tensor.of().map(TypedParameter::Wide) };
        of.ok_or_else(|| {
            let [same, wide] = [T::DTYPE, T::Compute::DTYPE].map(torch_name);
            let expected = if same == wide { same.to_owned() } else { format!("{same} or {wide}") };
            let parameter = &self.signature.parameters()[self.next - 1];
            self.error(parameter, torch_name(got).into(), format!("{expected}; .to() makes it so"))
        })
    }

    /// An `int` or a `SymInt`.
    ///
    /// # Errors
    /// [`Error::Argument`] where the schema has something else.
    #[inline]
    pub fn int(&mut self) -> Result<i64> {
        if let Some(bits) = self.bits(Kind::Int) {
            return Ok(bits.cast_signed());
        }
        match self.scalar(Kind::Int)? {
            (_, Scalar::Int(value)) => Ok(value),
            (parameter, other) => Err(self.not_that(parameter, &other.into())),
        }
    }

    /// An `int` that is not negative.
    ///
    /// # Errors
    /// As [`Arguments::int`]; [`Error::Argument`] for one below 0.
    #[inline]
    pub fn size(&mut self) -> Result<usize> {
        let value = self.int()?;
        usize::try_from(value).map_err(|_| {
            let parameter = &self.signature.parameters()[self.next - 1];
            self.error(parameter, value.to_string(), "a number that is not negative".into())
        })
    }

    /// A `float`.
    ///
    /// # Errors
    /// As [`Arguments::int`].
    #[inline]
    pub fn float(&mut self) -> Result<f64> {
        match self.scalar(Kind::Float)? {
            (_, Scalar::Float(value)) => Ok(value),
            (parameter, other) => Err(self.not_that(parameter, &other.into())),
        }
    }

    /// A `bool`.
    ///
    /// # Errors
    /// As [`Arguments::int`].
    #[inline]
    pub fn bool(&mut self) -> Result<bool> {
        if let Some(bits) = self.bits(Kind::Bool) {
            return Ok(is_true(bits));
        }
        match self.scalar(Kind::Bool)? {
            (_, Scalar::Bool(value)) => Ok(value),
            (parameter, other) => Err(self.not_that(parameter, &other.into())),
        }
    }

    /// The next argument, whatever the schema says that it is.
    ///
    /// # Errors
    /// As [`Arguments::any`]; [`Error::Argument`] when there is no other.
    pub fn value(&mut self) -> Result<Value> {
        match self.signature.parameters().get(self.next).map(|parameter| parameter.kind) {
            Some(Kind::Tensor) | None => Ok(self.optional_any()?.map_or(Value::None, Value::Tensor)),
            Some(kind) => Ok(self.scalar(kind)?.1.into()),
        }
    }

    /// Whether there is another argument and it is a tensor.
    pub(crate) fn next_is_tensor(&self) -> bool {
        self.signature.parameters().get(self.next).is_some_and(|parameter| parameter.kind == Kind::Tensor)
    }

    /// The next argument, which the operator's body takes for one of this kind.
    #[inline]
    fn parameter(&mut self, kind: Kind) -> Result<&'static Parameter> {
        match self.signature.parameters().get(self.next) {
            Some(parameter) if parameter.kind == kind => {
                self.next += 1;
                Ok(parameter)
            }
            other => Err(Error::Argument {
                operator: self.signature.name(),
                argument: other.map_or("the next argument", |parameter| self.signature.argument(parameter)),
                got: format!("taken for a {kind:?}"),
                expected: format!("what {} says", self.signature.schema()),
            }),
        }
    }

    #[inline]
    fn tensor_at(&mut self, parameter: &'static Parameter) -> Result<Option<AnyTensor>> {
        let value = match &mut self.source {
            Source::Stack(stack) => return stack.tensor(self.next - 1, parameter)?.map(Parts::any).transpose(),
            Source::Values(values) => values.next(),
        };
        match value {
            Some(Value::Tensor(tensor)) => Ok(Some(tensor)),
            Some(Value::None) if parameter.optional => Ok(None),
            other => Err(self.not_that(parameter, &other.unwrap_or(Value::None))),
        }
    }

    /// The bits of the next argument, if libtorch's stack has it, it is of this kind and may not be `None`: the shortest way
    /// to a number.
    #[inline]
    fn bits(&mut self, kind: Kind) -> Option<u64> {
        let parameter = self.signature.parameters().get(self.next)?;
        match &mut self.source {
            Source::Stack(stack) if parameter.kind == kind && !parameter.optional => {
                self.next += 1;
                Some(stack.number(self.next - 1))
            }
            _ => None,
        }
    }

    fn scalar(&mut self, kind: Kind) -> Result<(&'static Parameter, Scalar)> {
        let parameter = self.parameter(kind)?;
        let value = match &mut self.source {
            Source::Stack(stack) => stack.scalar(self.next - 1, parameter),
            Source::Values(values) => {
                let value = values.next().unwrap_or(Value::None);
                value.scalar().ok_or_else(|| self.not_that(parameter, &value))?
            }
        };
        Ok((parameter, value))
    }

    #[cold]
    fn not_that(&self, parameter: &'static Parameter, got: &Value) -> Error {
        let expected = match parameter.kind {
            Kind::Tensor => "a tensor",
            Kind::Int => "an int",
            Kind::Float => "a float",
            Kind::Bool => "a bool",
        };
        let got = match got {
            Value::None => "None".into(),
            Value::Tensor(_) => "a tensor".into(),
            Value::Int(value) => value.to_string(),
            Value::Float(value) => value.to_string(),
            Value::Bool(value) => value.to_string(),
        };
        self.error(parameter, got, expected.into())
    }

    #[cold]
    fn error(&self, parameter: &'static Parameter, got: String, expected: String) -> Error {
        let (operator, argument) = (self.signature.name(), self.signature.argument(parameter));
        Error::Argument { operator, argument, got, expected }
    }
}
