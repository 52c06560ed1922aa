//! Up to four consecutive elements of a row, as one access where every row begins at a multiple of four elements.

use cuda_std::prelude::*;

/// How many of four consecutive elements exist, and how they are accessed.
#[derive(Clone, Copy)]
pub(super) struct Quad {
    /// Elements that exist; those from 4 on are others'.
    count: u32,
    /// Whether all quads of the matrix are aligned and whole: its rows are multiples of 4. The same for all threads, so
    /// that the choice is a branch that no warp diverges at.
    whole: bool,
}

impl Quad {
    /// The four elements from `first`, a multiple of 4, of a row of this length; none unless `exists`.
    #[device_inline]
    pub fn of_row(exists: bool, first: u32, length: u32) -> Self {
        Self::until(exists, first, length, length)
    }

    /// As [`Quad::of_row`], of which only the elements before `end` are wanted; `end` is `length` or a multiple of 4.
    #[device_inline]
    pub fn until(exists: bool, first: u32, end: u32, length: u32) -> Self {
        Self { count: if exists { end.saturating_sub(first) } else { 0 }, whole: length & 3 == 0 }
    }

    /// The elements from `i` on, as they are in memory; 0 where they do not exist.
    ///
    /// # Safety
    /// `source` holds those that exist, and is aligned to 16 bytes.
    #[device_inline]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn fetch<T: Storage>(self, source: Global<T>, i: usize) -> Vec4<T> {
        let zero = T::from_f32(0.0);
        // SAFETY: the caller's; a whole quad has all four, at a multiple of 4 elements.
        unsafe {
            if self.whole {
                return source.load4_if(self.count > 0, i, Vec4::splat(zero));
            }
            let [x, y, z, w] = [0, 1, 2, 3].map(|j| source.load_if(j < self.count, i + j as usize, zero));
            Vec4::new(x, y, z, w)
        }
    }

    /// [`Quad::fetch`], as arithmetic takes them.
    ///
    /// # Safety
    /// As [`Quad::fetch`].
    #[device_inline]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn load<T: Storage>(self, source: Global<T>, i: usize) -> Vec4<f32> {
        // SAFETY: the caller's.
        unsafe { self.fetch(source, i) }.map(T::to_f32)
    }

    /// Stores the elements that exist, rounded.
    ///
    /// # Safety
    /// As [`Quad::fetch`]; no other thread uses them meanwhile.
    #[device_inline]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn store<T: Storage>(self, target: GlobalMut<T>, i: usize, values: Vec4<f32>) {
        let values = values.map(T::from_f32);
        // SAFETY: as for `fetch`.
        unsafe {
            if self.whole {
                target.store4_if(self.count > 0, i, values);
            } else {
                target.store_if(self.count > 0, i, values.x);
                target.store_if(self.count > 1, i + 1, values.y);
                target.store_if(self.count > 2, i + 2, values.z);
                target.store_if(self.count > 3, i + 3, values.w);
            }
        }
    }
}
