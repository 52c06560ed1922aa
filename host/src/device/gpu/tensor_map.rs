//! What kernels for Hopper alone need of the host: whether there are any here, and tensor maps.

use cuda_std::launch::DeviceMemory;
use cuda_std::tensor_map::TensorMap;
use libcuda::{L2Promotion, OutOfBounds, Swizzle, TensorMapType, TiledArray};

use super::Gpu;
use super::backend::Backend;
use crate::{DType, Element, Error, Result};

impl Gpu {
    /// The multiprocessors of a GPU that takes PTX for `sm_90a`, and with it kernels for Hopper alone
    /// (`#[kernel(only = "sm_90a")]`); `None` of any other, an emulated one among them.
    pub fn hopper_multiprocessors(&self) -> Option<u32> {
        match self.backend() {
            Backend::Driver(driver) if driver.is_hopper() => Some(driver.multiprocessors()),
            _ => None,
        }
    }

    /// The map of a matrix in memory, `[rows, columns]`, for bulk copies of so many rows and columns. What is outside of the
    /// matrix is zero. A copied box's pieces of 16 bytes are swapped within 128 bytes, where its rows are no longer than that;
    /// longer ones lie as they are.
    ///
    /// # Errors
    /// [`Error::Argument`] for a matrix or a box that no map can describe (rows and boxes' rows must be multiples of 16 bytes,
    /// a box has at most 256 rows and columns), elements that are no floats, or an emulated GPU; the driver's errors.
    pub fn tensor_map<T: Element>(
        &self,
        memory: &dyn DeviceMemory<T>,
        matrix: [u32; 2],
        of_box: [u32; 2],
    ) -> Result<TensorMap> {
        let element = match T::DTYPE {
            DType::F16 => TensorMapType::F16,
            DType::Bf16 => TensorMapType::Bf16,
            DType::F32 => TensorMapType::F32,
            DType::F64 => TensorMapType::F64,
            other => return Err(wrong(format!("of {other}"), "floats")),
        };
        self.describe(element, (memory.address(), memory.len()), matrix, of_box)
    }

    /// [`Gpu::tensor_map`] of a matrix that copies round to tf32, of whose digits f32 has 13 more.
    ///
    /// # Errors
    /// As [`Gpu::tensor_map`].
    pub fn tensor_map_as_tf32(
        &self,
        memory: &dyn DeviceMemory<f32>,
        matrix: [u32; 2],
        of_box: [u32; 2],
    ) -> Result<TensorMap> {
        self.describe(TensorMapType::Tf32, (memory.address(), memory.len()), matrix, of_box)
    }

    fn describe(
        &self,
        element: TensorMapType,
        (address, len): (u64, usize),
        [rows, columns]: [u32; 2],
        [box_rows, box_columns]: [u32; 2],
    ) -> Result<TensorMap> {
        if (len as u64) < u64::from(rows) * u64::from(columns) {
            return Err(wrong(format!("{len} elements"), &format!("at least {rows}x{columns}")));
        }
        let Backend::Driver(driver) = self.backend() else {
            return Err(wrong(self.to_string(), "memory of a GPU that makes bulk copies"));
        };
        let is_short = u64::from(box_columns) * u64::from(element.size()) <= 128;
        let array = TiledArray {
            element,
            address,
            dims: &[columns.into(), rows.into()],
            strides: &[u64::from(columns) * u64::from(element.size())],
            box_dims: &[box_columns, box_rows],
            element_strides: None,
            swizzle: if is_short { Swizzle::Bytes128 } else { Swizzle::None },
            l2_promotion: L2Promotion::Bytes128,
            out_of_bounds: OutOfBounds::Zero,
        };
        if let Err(error) = array.validate() {
            return Err(wrong(error.to_string(), "what a tensor map can describe"));
        }
        Ok(TensorMap::from_words(driver.tensor_map(&array)?.words()))
    }
}

fn wrong(got: String, expected: &str) -> Error {
    Error::Argument { op: "Gpu::tensor_map", argument: "memory", got, expected: expected.to_owned() }
}
