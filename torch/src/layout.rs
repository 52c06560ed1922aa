//! In which order in memory an op is given a tensor.

use std::borrow::Cow;

use ferrolayer::Layout;
use smallvec::SmallVec;

pub(crate) type Dims = SmallVec<[usize; 6]>;

/// A tensor's place in memory as an op takes it: row-major, or channels-last where PyTorch's own ops would keep it so.
pub(crate) struct Order<'a> {
    /// Its strides, which the elements are at already unless `scattered`.
    pub strides: Cow<'a, [usize]>,
    /// The elements are elsewhere: a copy in this order is needed.
    pub scattered: bool,
}

impl<'a> Order<'a> {
    /// Of a tensor of this shape with these strides.
    #[inline]
    pub fn of(shape: &[usize], strides: &'a [usize]) -> Self {
        if is_row_major(shape, strides) {
            return Self { strides: Cow::Borrowed(strides), scattered: false };
        }
        Self::of_any(shape, strides)
    }

    fn of_any(shape: &[usize], strides: &[usize]) -> Self {
        let layout = match (shape, strides) {
            (&[n, c, h, w], &[sn, sc, sh, sw]) if prefers_channels_last([n, c, h, w], [sn, sc, sh, sw]) => {
                Layout::ChannelsLast
            }
            _ => Layout::RowMajor,
        };
        let wanted = layout.strides(shape).expect("every shape has a row-major order, and one of four channels-last");
        let same = shape.iter().zip(wanted.iter().zip(strides)).all(|(&size, (a, b))| size == 1 || a == b);
        let scattered = !(same || shape.contains(&0));
        Self { strides: Cow::Owned(wanted), scattered }
    }
}

/// Whether the strides are those that a new tensor has.
fn is_row_major(shape: &[usize], strides: &[usize]) -> bool {
    let mut step = 1;
    for (&size, &stride) in shape.iter().zip(strides).rev() {
        if stride != step {
            return false;
        }
        step *= size.max(1);
    }
    true
}

/// Which of the two orders PyTorch's `suggest_memory_format` names for strides in any order: that of
/// `is_channels_last_strides_2d_s4` in c10/core/MemoryFormat.h, its ways with dimensions of size 1 included.
fn prefers_channels_last(shape: [usize; 4], strides: [usize; 4]) -> bool {
    let mut least = 0;
    if strides[1] == 0 {
        return false;
    }
    for dim in [1, 3, 2, 0] {
        if shape[dim] == 0 || strides[dim] < least || (dim == 0 && least == strides[1]) {
            return false;
        }
        least = strides[dim] * shape[dim];
    }
    true
}
