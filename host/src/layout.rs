//! Where in memory the elements of a tensor are.

use smallvec::SmallVec;

/// A number for each dimension: without an allocation for as many dimensions as tensors have.
/// Of more than four dimensions, which no image has, it takes an allocation.
pub(crate) type Dims = SmallVec<[usize; 4]>;

/// The order in memory that image ops have kernels for; other tensors have the first alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub enum Layout {
    /// The last dimension varies fastest: `NCHW` for images `[N, C, H, W]`.
    #[default]
    RowMajor,
    /// The channels of a pixel are neighbours: `NHWC`, with the shape still `[N, C, H, W]`, as PyTorch's
    /// `channels_last`.
    ChannelsLast,
}

/// The dimensions of channels last, the fastest first.
const CHANNELS_LAST: [usize; 4] = [1, 3, 2, 0];

/// Whether strides are those of a layout.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// To the number.
    Exact,
    /// Each element is at the same place: strides differ where a dimension has no second element.
    Places,
    No,
}

impl Layout {
    /// What messages call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RowMajor => "row-major",
            Self::ChannelsLast => "channels-last",
        }
    }

    /// The distance between neighbours along each dimension of a tensor of this shape, in elements.
    ///
    /// `None` for channels last with other than four dimensions.
    pub fn strides(self, shape: &[usize]) -> Option<Vec<usize>> {
        self.dims(shape).map(|strides| strides.into_vec())
    }

    /// [`Layout::strides`], as tensors hold them.
    pub(crate) fn dims(self, shape: &[usize]) -> Option<Dims> {
        match self {
            Self::RowMajor => Some(row_major(shape)),
            Self::ChannelsLast if shape.len() == 4 => Some(strides_in_order(shape, CHANNELS_LAST.into_iter())),
            Self::ChannelsLast => None,
        }
    }

    fn fit(self, shape: &[usize], strides: &[usize]) -> Fit {
        match self {
            Self::RowMajor => fit(shape, shape.iter().zip(strides).rev()),
            Self::ChannelsLast if shape.len() == 4 => {
                fit(shape, CHANNELS_LAST.iter().map(|&d| (&shape[d], &strides[d])))
            }
            Self::ChannelsLast => Fit::No,
        }
    }

    /// Whether these strides put the elements of this shape where the layout does.
    pub(crate) fn has(self, shape: &[usize], strides: &[usize]) -> bool {
        self.fit(shape, strides) != Fit::No
    }

    /// The layout that these strides are of. Of two, the one whose very numbers they are, or row-major.
    pub(crate) fn of(shape: &[usize], strides: &[usize]) -> Option<Self> {
        let row_major = Self::RowMajor.fit(shape, strides);
        if row_major == Fit::Exact {
            return Some(Self::RowMajor);
        }
        match (row_major, Self::ChannelsLast.fit(shape, strides)) {
            (_, Fit::Exact) | (Fit::No, Fit::Places) => Some(Self::ChannelsLast),
            (Fit::No, Fit::No) => None,
            _ => Some(Self::RowMajor),
        }
    }
}

pub(crate) fn row_major(shape: &[usize]) -> Dims {
    strides_in_order(shape, (0..shape.len()).rev())
}

/// The strides of a dense tensor whose dimensions come in this order, the fastest first.
fn strides_in_order(shape: &[usize], order: impl Iterator<Item = usize>) -> Dims {
    let mut strides = Dims::from_elem(0, shape.len());
    let mut step = 1usize;
    for dim in order {
        strides[dim] = step;
        // A dimension of size zero has no neighbours, and so any distance.
        step = step.saturating_mul(shape[dim].max(1));
    }
    strides
}

/// How strides compare with those of dense dimensions in this order, each a size and a stride, the fastest first.
#[inline]
fn fit<'a>(shape: &[usize], dimensions: impl Iterator<Item = (&'a usize, &'a usize)>) -> Fit {
    let mut fit = Fit::Exact;
    let mut step = 1usize;
    for (&size, &stride) in dimensions {
        if stride != step {
            if size != 1 && !shape.contains(&0) {
                return Fit::No;
            }
            fit = Fit::Places;
        }
        step = step.saturating_mul(size.max(1));
    }
    fit
}

/// Whether two sets of strides put the elements of this shape at the same places.
pub(crate) fn same_places(shape: &[usize], a: &[usize], b: &[usize]) -> bool {
    shape.iter().zip(a.iter().zip(b)).all(|(&size, (a, b))| size == 1 || a == b) || shape.contains(&0)
}

/// Whether these strides put the elements of this shape at the places from 0 on, one at each.
pub(crate) fn is_dense(shape: &[usize], strides: &[usize]) -> bool {
    if shape.len() != strides.len() {
        return false;
    }
    if Layout::of(shape, strides).is_some() {
        return true;
    }
    let mut order: Dims = (0..shape.len()).filter(|&dim| shape[dim] != 1).collect();
    order.sort_unstable_by_key(|&dim| strides[dim]);
    fit(shape, order.iter().map(|&dim| (&shape[dim], &strides[dim]))) != Fit::No
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dense_is_each_place_once() {
        assert!(is_dense(&[], &[]));
        assert!(is_dense(&[2, 3], &[3, 1]) && is_dense(&[2, 3], &[1, 2]));
        assert!(is_dense(&[2, 3, 4], &[1, 8, 2]) && is_dense(&[2, 1, 4], &[4, 77, 1]));
        assert!(is_dense(&[2, 0, 4], &[5, 6, 7]));
        // A gap, a broadcast dimension, and strides of another number of dimensions.
        assert!(!is_dense(&[2, 3], &[4, 1]) && !is_dense(&[2, 3], &[0, 1]) && !is_dense(&[6], &[3, 1]));
        assert!(!is_dense(&[3], &[2]) && !is_dense(&[2, 2], &[1, 1]));
    }

    #[test]
    fn a_shape_of_both_layouts_has_the_one_it_was_made_with() {
        let shape = [2, 1, 3, 1];
        for layout in [Layout::RowMajor, Layout::ChannelsLast] {
            assert_eq!(Layout::of(&shape, &layout.dims(&shape).unwrap()), Some(layout));
        }
        assert_eq!(Layout::of(&shape, &[3, 9, 1, 9]), Some(Layout::RowMajor));
        assert_eq!(Layout::of(&[2, 3, 4, 5], &[60, 1, 15, 3]), Some(Layout::ChannelsLast));
        assert_eq!(Layout::of(&[2, 3], &[1, 2]), None);
    }
}
