//! What kernels for Hopper alone need of the host: whether there are any here, and tensor maps.

use std::cell::RefCell;

use cuda_std::launch::DeviceMemory;
use cuda_std::tensor_map::TensorMap;
use libcuda::{L2Promotion, OutOfBounds, Swizzle, TensorMapType, TiledArray};

use super::Gpu;
use super::backend::Backend;
use crate::{DType, Element, Error, Result};

/// All that tells one map from another: the rest is the same for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    ordinal: u32,
    element: TensorMapType,
    address: u64,
    matrix: [u32; 2],
    of_box: [u32; 2],
}

impl Key {
    /// Which of the sets it belongs to.
    fn set(&self) -> usize {
        let [rows, columns] = self.matrix.map(u64::from);
        let [box_rows, box_columns] = self.of_box.map(u64::from);
        let sizes = rows << 32 ^ columns ^ box_rows << 20 ^ box_columns << 52;
        let mixed = (self.address ^ sizes.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        (mixed >> (64 - SETS.trailing_zeros())) as usize
    }
}

/// Sets of two: a dozen layers' operands, forward and backward.
const SETS: usize = 32;

/// Maps of late: to look one up takes some 25 ns, without a call of the driver.
///
/// A map holds an address and sizes, nothing of what is there: of the same [`Key`] the driver writes the same bits again, whatever
/// became of the memory meanwhile. So none is ever out of date, and nobody has to be told when memory is freed.
#[derive(Default)]
struct Maps {
    /// None until the first map.
    sets: Vec<[Option<(Key, TensorMap)>; 2]>,
    /// For each set a bit: which of the two was used last.
    last: u32,
}

impl Maps {
    /// The map of this key, or what `encode` gives, in the place of the one that was not used last.
    fn get(&mut self, key: Key, encode: impl FnOnce() -> Result<TensorMap>) -> Result<TensorMap> {
        if self.sets.is_empty() {
            self.sets = vec![[None; 2]; SETS];
        }
        let number = key.set();
        let set = &mut self.sets[number];
        let found = set.iter().position(|entry| entry.as_ref().is_some_and(|(known, _)| *known == key));
        let place = found.unwrap_or_else(|| usize::from(self.last >> number & 1 == 0));
        self.last = self.last & !(1 << number) | (place as u32) << number;
        match &set[place] {
            Some((_, map)) if found.is_some() => Ok(*map),
            _ => {
                let map = encode()?;
                set[place] = Some((key, map));
                Ok(map)
            }
        }
    }
}

thread_local! {
    /// Of a thread, so that no other is waited for.
    static MAPS: RefCell<Maps> = RefCell::default();
}

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
        matrix @ [rows, columns]: [u32; 2],
        of_box @ [box_rows, box_columns]: [u32; 2],
    ) -> Result<TensorMap> {
        if (len as u64) < u64::from(rows) * u64::from(columns) {
            return Err(wrong(format!("{len} elements"), &format!("at least {rows}x{columns}")));
        }
        let Backend::Driver(driver) = self.backend() else {
            return Err(wrong(self.to_string(), "memory of a GPU that makes bulk copies"));
        };
        let encode = || {
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
        };
        let key = Key { ordinal: driver.ordinal(), element, address, matrix, of_box };
        MAPS.with_borrow_mut(|maps| maps.get(key, encode))
    }
}

fn wrong(got: String, expected: &str) -> Error {
    Error::Argument { op: "Gpu::tensor_map", argument: "memory", got, expected: expected.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        let address = 0x7000_0000_0000 + 512 * number;
        Key { ordinal: 0, element: TensorMapType::Bf16, address, matrix: [1024, 1024], of_box: [128, 64] }
    }

    fn map(number: u64) -> TensorMap {
        TensorMap::from_words([number; 16])
    }

    #[test]
    fn a_map_is_encoded_once_for_all_that_it_is_made_of() {
        let mut maps = Maps::default();
        let of = key(1);
        let others = [
            Key { ordinal: 1, ..of },
            Key { element: TensorMapType::F16, ..of },
            Key { address: of.address + 16, ..of },
            Key { matrix: [1024, 1032], ..of },
            Key { matrix: [1032, 1024], ..of },
            Key { of_box: [64, 64], ..of },
            Key { of_box: [128, 32], ..of },
        ];
        assert_eq!(maps.get(of, || Ok(map(1))).unwrap(), map(1));
        assert_eq!(maps.get(of, || unreachable!("known")).unwrap(), map(1));
        for (number, other) in (2..).zip(others) {
            assert_eq!(maps.get(other, || Ok(map(number))).unwrap(), map(number), "{other:?}");
        }
    }

    /// A call's two operands are two keys, which stay.
    #[test]
    fn the_one_that_was_not_used_last_goes() {
        let mut maps = Maps::default();
        let of_one_set: Vec<Key> = (0..).map(key).filter(|other| other.set() == key(0).set()).take(3).collect();
        let [a, b, c] = of_one_set[..] else { unreachable!("three of them") };
        for (number, key) in [(1, a), (2, b)] {
            maps.get(key, || Ok(map(number))).unwrap();
        }
        assert_eq!(maps.get(a, || unreachable!("known")).unwrap(), map(1));
        maps.get(c, || Ok(map(3))).unwrap();
        assert_eq!(maps.get(a, || unreachable!("used last but one")).unwrap(), map(1));
        assert_eq!(maps.get(b, || Ok(map(4))).unwrap(), map(4));
    }

    #[test]
    fn what_cannot_be_encoded_is_not_remembered() {
        let mut maps = Maps::default();
        assert!(maps.get(key(0), || Err(wrong("x".into(), "y"))).is_err());
        assert_eq!(maps.get(key(0), || Ok(map(1))).unwrap(), map(1));
    }

    #[test]
    fn pieces_of_an_allocator_are_spread_over_the_sets() {
        let mut found = [0; SETS];
        (0..SETS as u64).for_each(|number| found[key(4096 * number).set()] += 1);
        assert!(found.iter().all(|&keys| keys <= 5), "{found:?}");
    }
}
