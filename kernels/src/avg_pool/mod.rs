//! Average pooling: `y` is the sum of each window over a divisor (LeCun et al., NIPS 1989; what counts for the divisor,
//! [`Divisor`] says).
//!
//! Launch: one thread for one place in a few rows of a plane, as [`Tiling`](crate::window::Tiling) lays them: of outputs forward, of inputs
//! backward; neighbouring threads have neighbouring columns, or channels where these are last.
//! - Forward adds the positions inside the image in row-major order.
//! - Backward gathers: each input adds `dy / divisor` over the windows that cover it, in the order of the outputs. No
//!   atomics, and no zeros written beforehand.
//!
//! That is any layout's and any size's. Where rows have room in shared memory, row-major images go by [bands](crate::band),
//! and common windows with the channels last by [patches](crate::patch); of 16 bits common windows go by
//! [fours](crate::patch::quads) or by [octets](crate::patch::octets) of channels; forward over windows that share little
//! goes by [pieces](crate::pieces), backward by [runs of elements](crate::shares), over such that are not square, and small ones one apart, by
//! [spans](crate::spans), and forward over whole small planes by [threads of
//! their own](crate::wholes), over large ones of whole rows of 16 bytes by [chunks](crate::chunks) of these; windows of a few known sizes one apart with the channels last
//! go down [strips](crate::falling), other ones by [vectors](crate::vectors) of channels,
//! or, where channels are no whole vectors and windows overlap, by a few [outputs one below the other](crate::elements).
//!
//! Sums and quotients are `f32`, rounded once when they are stored.
//!
//! Bound by memory: forward reads each input and writes each output once, backward the reverse; windows that overlap meet
//! in the caches.
//!
//! # Safety
//! `x` and `dx` hold `window.planes` planes of `window.input` pixels of `window.channels` elements, `y` and `dy` as many of
//! `window.output`; `tiling` is over the outputs (forward) or the inputs (backward), and the launch has its grid and block;
//! the window has no dilation and keeps its promises.

mod backward;
mod below;
mod falling;
mod forward;
mod meshes;
mod octets;
mod shares;
mod spans;
mod vectors;

pub use backward::*;
pub use below::*;
use cuda_std::prelude::*;
pub use falling::*;
pub use forward::*;
pub use meshes::*;
pub use octets::*;
pub use shares::*;
pub use spans::*;
pub use vectors::*;

use crate::window::{Order, Window};

/// What a window's sum is divided by.
///
/// The number of its positions that count, which along each axis are those from `begin` to `end`, measured from where the
/// padding begins; or `given`, unless that is zero.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Divisor {
    /// The first row and column that count.
    pub begin: [u32; 2],
    /// The first row and column that count no more.
    pub end: [u32; 2],
    /// The divisor of every window, where all have the same, or zero.
    pub given: f32,
}

// SAFETY: `repr(C)` with only `u32` and `f32` inside: no padding, no pointers, the same layout on host and device.
unsafe impl KernelParam for Divisor {}

impl Divisor {
    /// The positions along `axis` of an output's window that count.
    #[device_inline]
    fn counted<L: Order>(&self, window: &Window<L>, axis: usize, output: u32) -> f32 {
        // Wrapping, for outputs that do not exist and whose divisor is not used.
        let first = output.wrapping_mul(window.stride[axis]);
        let last = first.wrapping_add(window.size[axis]);
        let end = if last < self.end[axis] { last } else { self.end[axis] };
        let begin = if first > self.begin[axis] { first } else { self.begin[axis] };
        end.wrapping_sub(begin) as f32
    }

    /// The divisor of a window with as many rows and columns that count.
    #[device_inline]
    fn of(&self, rows: f32, columns: f32) -> f32 {
        if self.given == 0.0 { rows * columns } else { self.given }
    }
}
