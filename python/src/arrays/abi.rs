//! DLPack's structures, as `dlpack.h` of version 1.0 declares them, and its codes.

use std::ffi::{CStr, c_void};
use std::fmt::{Display, Formatter};

use ferrolayer::DType;

/// What a capsule is called that holds a [`ManagedTensor`], and what once it was taken.
pub const PLAIN: (&CStr, &CStr) = (c"dltensor", c"used_dltensor");
/// The same of a [`ManagedTensorVersioned`].
pub const VERSIONED: (&CStr, &CStr) = (c"dltensor_versioned", c"used_dltensor_versioned");

/// What is spoken here.
pub const VERSION: Version = Version { major: 1, minor: 0 };

/// The receiver has a copy of its own.
pub const IS_COPIED: u64 = 1 << 1;

pub const CPU: i32 = 1;
pub const CUDA: i32 = 2;
/// Pinned memory of the CPU.
pub const CUDA_HOST: i32 = 3;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct DlDevice {
    pub kind: i32,
    pub index: i32,
}

/// An element type.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DlType {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

#[repr(C)]
pub struct DlTensor {
    pub data: *mut c_void,
    pub device: DlDevice,
    pub ndim: i32,
    pub dtype: DlType,
    pub shape: *mut i64,
    /// In elements; null for row-major.
    pub strides: *mut i64,
    pub byte_offset: u64,
}

#[repr(C)]
pub struct ManagedTensor {
    pub tensor: DlTensor,
    pub context: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

#[repr(C)]
pub struct ManagedTensorVersioned {
    pub version: Version,
    pub context: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut Self)>,
    pub flags: u64,
    pub tensor: DlTensor,
}

const INT: u8 = 0;
const UINT: u8 = 1;
const FLOAT: u8 = 2;
const COMPLEX: u8 = 5;
const BFLOAT: u8 = 4;
const BOOL: u8 = 6;

impl DlType {
    pub const BF16: Self = Self::new(BFLOAT, 16);
    pub const U16: Self = Self::new(UINT, 16);

    const fn new(code: u8, bits: u8) -> Self {
        Self { code, bits, lanes: 1 }
    }

    /// What results of this type are given out as. Numbers of four bytes are PyTorch's indices, which have a sign.
    pub fn of(dtype: DType) -> Self {
        match dtype {
            DType::F16 => Self::new(FLOAT, 16),
            DType::Bf16 => Self::BF16,
            DType::F32 => Self::new(FLOAT, 32),
            DType::F64 => Self::new(FLOAT, 64),
            DType::U8 => Self::new(UINT, 8),
            DType::U16 => Self::U16,
            DType::U32 => Self::new(INT, 32),
            DType::U64 => Self::new(UINT, 64),
            other => unreachable!("{other}: no op gives it"),
        }
    }

    /// The type that arguments of this type are computed with.
    pub fn dtype(self) -> Option<DType> {
        if self.lanes != 1 {
            return None;
        }
        match (self.code, self.bits) {
            (FLOAT, 16) => Some(DType::F16),
            (BFLOAT, 16) => Some(DType::Bf16),
            (FLOAT, 32) => Some(DType::F32),
            (FLOAT, 64) => Some(DType::F64),
            (UINT, 8) => Some(DType::U8),
            (INT | UINT, 16) => Some(DType::U16),
            (INT | UINT, 32) => Some(DType::U32),
            (INT | UINT, 64) => Some(DType::U64),
            _ => None,
        }
    }
}

/// NumPy's name.
impl Display for DlType {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let name = match self.code {
            INT => "int",
            UINT => "uint",
            FLOAT => "float",
            BFLOAT => "bfloat",
            COMPLEX => "complex",
            BOOL => return f.write_str("bool"),
            code => return write!(f, "of DLPack's type {code} with {} bits", self.bits),
        };
        write!(f, "{name}{}", self.bits)?;
        if self.lanes == 1 { Ok(()) } else { write!(f, " in vectors of {}", self.lanes) }
    }
}

/// What memory of this kind is called.
pub fn device_name(kind: i32) -> String {
    let name = match kind {
        4 => "OpenCL",
        7 => "Vulkan",
        8 => "Metal",
        10 => "ROCm",
        11 => "ROCm's pinned",
        13 => "CUDA's managed",
        14 => "oneAPI",
        15 => "WebGPU",
        _ => return format!("DLPack's device {kind}"),
    };
    format!("{name} memory")
}
