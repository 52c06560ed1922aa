//! Tensor maps: how Hopper's bulk copies (TMA) see an array in device memory.

use std::ffi::{c_int, c_void};

use cust::context::Context;

use crate::context::Current;
use crate::driver;
use crate::error::DriverError;

/// A `CUtensorMap`, to be passed to a kernel by value as a `__grid_constant__`-like parameter.
///
/// It holds the array's address and shape, not the array: a kernel that uses it needs the array to be alive.
///
/// A copy's coordinates may lie outside the array, and before its beginning, but the innermost one times the element's
/// size must be a multiple of 16 bytes: with any other the copy is an illegal instruction (715; seen on an H200).
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorMap {
    words: [u64; 16],
}

/// The type of an array's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum TensorMapType {
    U8 = 0,
    U16 = 1,
    U32 = 2,
    I32 = 3,
    U64 = 4,
    I64 = 5,
    F16 = 6,
    F32 = 7,
    F64 = 8,
    Bf16 = 9,
    /// f32 with subnormals flushed to zero.
    F32Ftz = 10,
    /// f32 rounded to TF32 on the way to shared memory.
    Tf32 = 11,
    /// The same with subnormals flushed to zero.
    Tf32Ftz = 12,
}

impl TensorMapType {
    /// Bytes per element.
    pub const fn size(self) -> u32 {
        match self {
            Self::U8 => 1,
            Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::U32 | Self::I32 | Self::F32 | Self::F32Ftz | Self::Tf32 | Self::Tf32Ftz => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    const fn is_float(self) -> bool {
        !matches!(self, Self::U8 | Self::U16 | Self::U32 | Self::I32 | Self::U64 | Self::I64)
    }
}

/// How 16-byte pieces of a box's rows are permuted in shared memory, so that a column of them has no bank conflicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Swizzle {
    /// Not at all.
    #[default]
    None = 0,
    /// Within 32 bytes.
    Bytes32 = 1,
    /// Within 64 bytes.
    Bytes64 = 2,
    /// Within 128 bytes.
    Bytes128 = 3,
}

impl Swizzle {
    /// The most bytes that a box's row may have.
    const fn span(self) -> Option<u32> {
        match self {
            Self::None => None,
            Self::Bytes32 => Some(32),
            Self::Bytes64 => Some(64),
            Self::Bytes128 => Some(128),
        }
    }
}

/// How much the L2 cache fetches at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub enum L2Promotion {
    #[default]
    None = 0,
    Bytes64 = 1,
    Bytes128 = 2,
    Bytes256 = 3,
}

/// What elements outside the array read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutOfBounds {
    /// Zero.
    #[default]
    Zero = 0,
    /// A NaN that fused multiply-adds treat as zero. For floating-point types only.
    NanZeroFma = 1,
}

/// An array in device memory, and the box of it that one copy moves. Dimensions go from the innermost outwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TiledArray<'a> {
    /// The type of its elements.
    pub element: TensorMapType,
    /// Where it starts, a multiple of 16.
    pub address: u64,
    /// Its size in elements, 1 to 5 dimensions.
    pub dims: &'a [u64],
    /// The distance in bytes between neighbours along each dimension but the innermost, multiples of 16.
    pub strides: &'a [u64],
    /// The box's size in elements, at most 256 along a dimension, and a multiple of 16 bytes along the innermost.
    pub box_dims: &'a [u32],
    /// Takes every n-th element along a dimension, up to 8; `None` takes all. The innermost is always taken whole.
    pub element_strides: Option<&'a [u32]>,
    /// The order in shared memory.
    pub swizzle: Swizzle,
    /// The L2 cache's fetches.
    pub l2_promotion: L2Promotion,
    /// What lies outside.
    pub out_of_bounds: OutOfBounds,
}

/// Why an array has no tensor map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorMapError {
    /// Too few or too many dimensions.
    #[error("tensor map: `dims` has {found} dimensions, expected 1 to 5")]
    Rank {
        /// How many.
        found: usize,
    },
    /// A list that does not go with `dims`.
    #[error("tensor map: `{argument}` has {found} entries, expected {expected} for {rank} dimensions")]
    Length {
        /// Which list.
        argument: &'static str,
        /// How long it is.
        found: usize,
        /// How long it should be.
        expected: usize,
        /// The length of `dims`.
        rank: usize,
    },
    /// A misaligned address, stride or row.
    #[error("tensor map: `{argument}` is {found}, expected a multiple of {multiple}")]
    Alignment {
        /// Which value, with its place in a list.
        argument: Place,
        /// What it is.
        found: u64,
        /// What it should be a multiple of.
        multiple: u64,
    },
    /// A value outside its range.
    #[error("tensor map: `{argument}` is {found}, expected {least} to {most}")]
    Range {
        /// Which value, with its place in a list.
        argument: Place,
        /// What it is.
        found: u64,
        /// The least allowed.
        least: u64,
        /// The most allowed.
        most: u64,
    },
    /// A row of the box that is longer than the swizzle permutes.
    #[error("tensor map: a row of the box has {found} bytes, expected at most {most} with {swizzle:?} swizzling")]
    Swizzle {
        /// Bytes in a row.
        found: u32,
        /// What the swizzle permutes.
        most: u32,
        /// The swizzle.
        swizzle: Swizzle,
    },
    /// NaN asked for in an array of integers.
    #[error("tensor map: `out_of_bounds` is NanZeroFma, expected Zero for {element:?}")]
    NanForIntegers {
        /// The type.
        element: TensorMapType,
    },
    /// The driver refused, or is absent, or too old (before CUDA 12.0).
    #[error("tensor map: {0}")]
    Driver(#[from] DriverError),
}

/// An argument, or an entry of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The argument's name.
    pub argument: &'static str,
    /// Which entry, if it is a list.
    pub index: Option<usize>,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.index {
            Some(index) => write!(f, "{}[{index}]", self.argument),
            None => f.write_str(self.argument),
        }
    }
}

const MOST_DIMENSIONS: usize = 5;

impl TiledArray<'_> {
    /// Checks what `cuTensorMapEncodeTiled` documents, so that an error names the argument; the driver says only
    /// "invalid value".
    pub fn validate(&self) -> Result<(), TensorMapError> {
        let rank = self.dims.len();
        if !(1..=MOST_DIMENSIONS).contains(&rank) {
            return Err(TensorMapError::Rank { found: rank });
        }
        let lengths = [
            ("strides", self.strides.len(), rank - 1),
            ("box_dims", self.box_dims.len(), rank),
            ("element_strides", self.element_strides.map_or(rank, <[u32]>::len), rank),
        ];
        for (argument, found, expected) in lengths {
            if found != expected {
                return Err(TensorMapError::Length { argument, found, expected, rank });
            }
        }
        multiple_of_16(Place { argument: "address", index: None }, self.address)?;
        for (index, &dim) in self.dims.iter().enumerate() {
            within(Place { argument: "dims", index: Some(index) }, dim, 1, 1 << 31)?;
        }
        for (index, &stride) in self.strides.iter().enumerate() {
            let place = Place { argument: "strides", index: Some(index) };
            multiple_of_16(place, stride)?;
            within(place, stride, 0, (1 << 40) - 1)?;
        }
        for (index, &dim) in self.box_dims.iter().enumerate() {
            within(Place { argument: "box_dims", index: Some(index) }, dim.into(), 1, 256)?;
        }
        for (index, &stride) in self.element_strides.unwrap_or_default().iter().enumerate() {
            within(Place { argument: "element_strides", index: Some(index) }, stride.into(), 1, 8)?;
        }
        let row = self.box_dims[0] * self.element.size();
        multiple_of_16(Place { argument: "box_dims[0] in bytes", index: None }, row.into())?;
        if let Some(most) = self.swizzle.span().filter(|&most| row > most) {
            return Err(TensorMapError::Swizzle { found: row, most, swizzle: self.swizzle });
        }
        if self.out_of_bounds == OutOfBounds::NanZeroFma && !self.element.is_float() {
            return Err(TensorMapError::NanForIntegers { element: self.element });
        }
        Ok(())
    }
}

fn multiple_of_16(argument: Place, found: u64) -> Result<(), TensorMapError> {
    if found.is_multiple_of(16) { Ok(()) } else { Err(TensorMapError::Alignment { argument, found, multiple: 16 }) }
}

fn within(argument: Place, found: u64, least: u64, most: u64) -> Result<(), TensorMapError> {
    if (least..=most).contains(&found) { Ok(()) } else { Err(TensorMapError::Range { argument, found, least, most }) }
}

impl TensorMap {
    /// Its bits, as a kernel's parameter takes them.
    pub const fn words(self) -> [u64; 16] {
        self.words
    }

    /// The map of an array in this context's device memory (`cuTensorMapEncodeTiled`). It only writes the array's
    /// description down: no memory is read, but the driver refuses without a context (201 on driver 580).
    pub fn encode_tiled(array: &TiledArray<'_>, context: &Context) -> Result<Self, TensorMapError> {
        const NOT_INTERLEAVED: c_int = 0;
        array.validate()?;
        let _current = Current::enter(context)?;
        let ones = [1; MOST_DIMENSIONS];
        let element_strides = array.element_strides.unwrap_or(&ones[..array.dims.len()]);
        let mut map = Self { words: [0; 16] };
        // SAFETY: the map is large and aligned enough; the lists have the lengths that the rank says (`validate`); the
        // address is not followed.
        unsafe {
            driver::cuTensorMapEncodeTiled(
                (&raw mut map).cast::<c_void>(),
                array.element as c_int,
                array.dims.len() as u32,
                array.address as *mut c_void,
                array.dims.as_ptr(),
                array.strides.as_ptr(),
                array.box_dims.as_ptr(),
                element_strides.as_ptr(),
                NOT_INTERLEAVED,
                array.swizzle as c_int,
                array.l2_promotion as c_int,
                array.out_of_bounds as c_int,
            )
        }?;
        Ok(map)
    }
}

#[cfg(test)]
#[path = "tensor_map_tests.rs"]
mod tests;
