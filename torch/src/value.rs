//! Arguments and results as operators see them.

use std::any::Any;

use ferrolayer::{DType, Element, Tensor};

use crate::error::torch_name;

/// An argument.
#[derive(Clone, Debug)]
pub enum Value {
    /// Of an optional argument.
    None,
    /// A tensor.
    Tensor(AnyTensor),
    /// `int` or `SymInt`.
    Int(i64),
    /// `float`
    Float(f64),
    /// `bool`
    Bool(bool),
}

/// An argument that is no tensor. A [`Value`] is as large as a tensor, which takes time to move.
#[derive(Clone, Copy)]
pub(crate) enum Scalar {
    None,
    Int(i64),
    Float(f64),
    Bool(bool),
}

impl From<Scalar> for Value {
    fn from(scalar: Scalar) -> Self {
        match scalar {
            Scalar::None => Self::None,
            Scalar::Int(value) => Self::Int(value),
            Scalar::Float(value) => Self::Float(value),
            Scalar::Bool(value) => Self::Bool(value),
        }
    }
}

impl Value {
    /// Itself, if it is no tensor.
    pub(crate) fn scalar(&self) -> Option<Scalar> {
        Some(match *self {
            Self::Tensor(_) => return None,
            Self::None => Scalar::None,
            Self::Int(value) => Scalar::Int(value),
            Self::Float(value) => Scalar::Float(value),
            Self::Bool(value) => Scalar::Bool(value),
        })
    }
}

macro_rules! any_tensor {
    ($($(#[$doc:meta])* $name:ident($element:ty),)*) => {
        /// A tensor of any element type.
        #[derive(Clone, Debug)]
        pub enum AnyTensor {$(
            $(#[$doc])*
            $name(Tensor<$element>),
        )*}

        /// Runs a block with a name for the tensor, and with one for its element type.
        macro_rules! for_any {
            ($any:expr, $tensor:ident as $type:ident => $body:expr) => {
                match $any {$(
                    $crate::AnyTensor::$name($tensor) => {
                        #[allow(dead_code)]
                        type $type = $element;
                        $body
                    }
                )*}
            };
        }
        pub(crate) use for_any;

        impl<T: Element> From<Tensor<T>> for AnyTensor {
            #[inline]
            fn from(tensor: Tensor<T>) -> Self {
                match T::DTYPE {
                    $(DType::$name => cast(tensor).map(Self::$name),)*
                    _ => None,
                }
                .expect("an element type's name is its own")
            }
        }
    };
}

any_tensor! {
    /// `torch.float32`
    F32(f32),
    /// `torch.float64`
    F64(f64),
    /// `torch.float16`
    F16(ferrolayer::f16),
    /// `torch.bfloat16`
    Bf16(ferrolayer::bf16),
    /// `torch.uint8`
    U8(u8),
    /// `torch.int16` or `torch.uint16`
    U16(u16),
    /// `torch.int32` or `torch.uint32`
    U32(u32),
    /// `torch.int64` or `torch.uint64`
    U64(u64),
}

impl AnyTensor {
    /// The element type.
    pub fn dtype(&self) -> DType {
        for_any!(self, _tensor as T => T::DTYPE)
    }

    /// The element type as PyTorch calls it.
    pub fn dtype_name(&self) -> &'static str {
        torch_name(self.dtype())
    }

    /// The size of each dimension.
    pub fn shape(&self) -> &[usize] {
        for_any!(self, tensor as T => tensor.shape())
    }

    /// The tensor, if its elements are of this type.
    #[inline]
    pub fn of<T: Element>(self) -> Option<Tensor<T>> {
        for_any!(self, tensor as U => cast(tensor))
    }
}

/// The same value, if the types are the same.
#[inline]
fn cast<A: 'static, B: 'static>(value: A) -> Option<B> {
    let mut value = Some(value);
    (&mut value as &mut dyn Any).downcast_mut::<Option<B>>()?.take()
}

/// Runs a block with the name of a tensor bound to it as a `Tensor` of its own element type, for which a type's name
/// stands: `with_real!(x, T => my_op(&x))` is `my_op::<f32>(&x)` for an `x` of `f32`.
///
/// The types are those of [`ferrolayer::Real`]; for any other the value is an [`Error::Argument`](crate::Error::Argument).
/// The block's own value is a `Result`.
#[macro_export]
macro_rules! with_real {
    ($tensor:ident, $type:ident => $body:expr) => {
        match $tensor {
            $crate::AnyTensor::F32($tensor) => {
                #[allow(dead_code)]
                type $type = f32;
                $body
            }
            $crate::AnyTensor::F64($tensor) => {
                #[allow(dead_code)]
                type $type = f64;
                $body
            }
            $crate::AnyTensor::F16($tensor) => {
                #[allow(dead_code)]
                type $type = $crate::ferrolayer::f16;
                $body
            }
            $crate::AnyTensor::Bf16($tensor) => {
                #[allow(dead_code)]
                type $type = $crate::ferrolayer::bf16;
                $body
            }
            other => Err($crate::Error::not_real(stringify!($tensor), &other).into()),
        }
    };
}
