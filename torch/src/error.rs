//! What an operator can say that went wrong, in words for who called it from Python.

use std::fmt::{Display, Formatter};

use ferrolayer::DType;

/// The result of everything fallible here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operator failed. In Python it is a `RuntimeError` with this text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An op of [`ferrolayer`] refused its arguments, or failed.
    #[error("{}", ForPython(.0))]
    Op(#[from] ferrolayer::Error),
    /// An argument is not what the operator takes.
    #[error("{operator}: {argument} is {got}, expected {expected}")]
    Argument {
        /// The operator, by its schema's name.
        operator: &'static str,
        /// The argument, by its schema's name.
        argument: &'static str,
        /// What it was.
        got: String,
        /// What would have done, or what to do.
        expected: String,
    },
    /// A tensor that is computed with is not of floating point.
    #[error("{argument} is {got}, expected torch.float32, float64, float16 or bfloat16; use .float()")]
    NotReal {
        /// The argument.
        argument: &'static str,
        /// Its type.
        got: &'static str,
    },
    /// A call of PyTorch failed.
    #[error("{during}: {what}")]
    Torch {
        /// What was being done.
        during: &'static str,
        /// What PyTorch said.
        what: String,
    },
}

impl Error {
    #[doc(hidden)]
    pub fn not_real(argument: &'static str, got: &crate::AnyTensor) -> Self {
        Self::NotReal { argument, got: got.dtype_name() }
    }

    /// The text for who called the operator with this name.
    pub(crate) fn of_operator(&self, operator: &str) -> String {
        match self {
            Self::NotReal { .. } | Self::Torch { .. } => format!("{operator}: {self}"),
            Self::Op(_) | Self::Argument { .. } => self.to_string(),
        }
    }
}

/// What PyTorch calls this type.
pub(crate) fn torch_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "torch.float16",
        DType::Bf16 => "torch.bfloat16",
        DType::F32 => "torch.float32",
        DType::F64 => "torch.float64",
        DType::U8 => "torch.uint8",
        DType::U16 => "torch.int16",
        DType::U32 => "torch.int32",
        DType::U64 => "torch.int64",
        other => other.name(),
    }
}

/// An op's error whose advice is Python's.
struct ForPython<'a>(&'a ferrolayer::Error);

impl Display for ForPython<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        use ferrolayer::Error;
        match self.0 {
            Error::DType { op, argument, got, device, .. } => write!(
                f,
                "{op}: {argument} is {}, which {device} does not compute; use .float(), .half() or .bfloat16(), or the CPU",
                torch_name(*got)
            ),
            Error::Device { op, argument, got, expected } => {
                write!(
                    f,
                    "{op}: {argument} is on {got}, expected {expected} like the other tensors; .to(device) moves it"
                )
            }
            other => other.fmt(f),
        }
    }
}
