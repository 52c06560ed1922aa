//! A copy in another order: `y[i] = x[..]`, the elements of a dense tensor with its dimensions reordered.
//!
//! The launch gives `y`'s dimensions from the one that varies fastest, neighbours that stay neighbours taken together, and
//! for each the distance in `x`. One thread for an element of `y`: stores are coalesced; loads are where `x`'s fastest
//! dimension is among `y`'s first, else they meet in the L2 cache.
//!
//! Bound by memory: two elements moved for each.
//!
//! # Safety
//! `x` and `y` hold the product of the sizes, `n`; the distances stay inside `x`; the grid covers `n`.

use cuda_std::prelude::*;

/// Threads of a block.
pub const BLOCK: u32 = 256;
/// Dimensions, at most.
pub const DIMS: usize = 8;

/// Dimensions of the copy, from the one that varies fastest; those that are not there have size 1.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// How long each is in `y`.
    pub sizes: [u64; DIMS],
    /// The distance between neighbours in `x`.
    pub strides: [u64; DIMS],
}

// SAFETY: `repr(C)` with only `u64` inside: no padding, no pointers, the same layout on host and device.
unsafe impl KernelParam for Order {}

/// `y[i] = x[place of i]`, of elements of 1, 2, 4 and 8 bytes.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK, instances(T = [u8, u16, u32, u64]))]
pub unsafe fn permute<T: Element>(x: Global<T>, y: GlobalMut<T>, order: Order, n: u64) {
    let i = thread::block_idx_x() as u64 * BLOCK as u64 + thread::thread_idx_x() as u64;
    if i >= n {
        return;
    }
    let (mut rest, mut place) = (i, 0);
    // SAFETY: no size is zero where there are elements; the element and its place exist.
    unsafe {
        let mut dim = 0;
        while dim < DIMS {
            let size = order.sizes[dim];
            core::hint::assert_unchecked(size != 0);
            let quotient = rest / size;
            place += (rest - quotient * size) * order.strides[dim];
            rest = quotient;
            dim += 1;
        }
        y.store(i as usize, x.load(place as usize));
    }
}
