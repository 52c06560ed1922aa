//! The elements of an output's window, and how they are weighed.

use cuda_std::prelude::*;

use super::{SMALL, by_rows};
use crate::band::any::{Item, Lines, for_each_item};
use crate::band::{self, Block, Staged, inputs_of};
use crate::elementwise::get;
use crate::window::{Nchw, Order, Window};

/// Sums as far from 1 as this, or further, are brought nearer by as much: all are above 2⁻¹⁵⁰ and below 2¹²⁸.
const FAR: f32 = (1u64 << 63) as f32;

/// How the elements of a window are weighed. The sum is finite.
#[derive(Clone, Copy)]
pub(super) enum Weights {
    /// By `a`.
    Plain,
    /// By [`SMALL`] times `a`: the sum of `a` is infinite, and no element is.
    Small,
    /// Infinite elements alike, others not.
    Infinite,
    /// NaNs alike, others not.
    Nan,
}

impl Weights {
    /// Where the sum of `a` is not finite.
    #[device_inline]
    pub fn where_not_finite(sum: f32, infinite: bool) -> Self {
        match (sum.is_nan(), infinite) {
            (true, _) => Self::Nan,
            (false, true) => Self::Infinite,
            (false, false) => Self::Small,
        }
    }

    #[device_inline]
    pub fn of(self, x: f32) -> f32 {
        let chosen = |is: bool| if is { 1.0 } else { 0.0 };
        match self {
            Self::Plain => rectified(x),
            Self::Small => rectified(x) * SMALL,
            Self::Infinite => chosen(x == f32::INFINITY),
            Self::Nan => chosen(x.is_nan()),
        }
    }
}

/// `a`, written so that NaN stays.
#[device_inline]
pub(super) fn rectified(x: f32) -> f32 {
    if x <= 0.0 { 0.0 } else { x }
}

/// Where a window's elements are.
pub(super) trait Source: Copy {
    /// The element at a row and a column.
    ///
    /// # Safety
    /// They are inside the image.
    unsafe fn load(&self, row: u32, column: u32) -> f32;
}

/// In global memory: a channel of the plane that begins at `x`.
#[derive(Clone, Copy)]
pub(super) struct InMemory<T, L: Order> {
    pub x: Global<T>,
    pub window: Window<L>,
    pub channel: u32,
}

impl<T: Storage, L: Order> Source for InMemory<T, L> {
    #[device_inline]
    unsafe fn load(&self, row: u32, column: u32) -> f32 {
        let at = row as usize * self.window.input_line() + (column * self.window.pixel() + self.channel) as usize;
        // SAFETY: the caller's.
        unsafe { get(self.x, at) }
    }
}

/// In shared memory: a plane of a band.
#[derive(Clone, Copy)]
pub(super) struct InBand<T> {
    pub rows: Staged<T>,
    pub plane: u32,
}

impl<T: Storage> Source for InBand<T> {
    #[device_inline]
    unsafe fn load(&self, row: u32, column: u32) -> f32 {
        // SAFETY: the caller's; the band has all rows of its windows.
        unsafe { self.rows.load(self.rows.place(self.plane, row, column)) }.to_f32()
    }
}

/// A sum over a window's elements, in its order.
struct Sum {
    by_rows: bool,
    /// Of the rows before, where it is by rows; else nothing.
    before: f32,
    /// Of the rest.
    rest: f32,
}

impl Sum {
    #[device_inline]
    fn new(by_rows: bool) -> Self {
        Self { by_rows, before: 0.0, rest: 0.0 }
    }

    #[device_inline]
    fn so_far(&self) -> f32 {
        self.before + self.rest
    }

    #[device_inline]
    fn add(&mut self, weight: f32, ends_row: bool) {
        self.rest += weight;
        if self.by_rows & ends_row {
            (self.before, self.rest) = (self.so_far(), 0.0);
        }
    }
}

/// The window of one output, which exists.
pub(super) struct Elements<L: Order, S: Source> {
    pub window: Window<L>,
    pub source: S,
    pub row: u32,
    pub column: u32,
    /// Whether it is summed [by rows](super::by_rows): a constant where the kernel knows.
    pub by_rows: bool,
}

impl<L: Order, S: Source> Elements<L, S> {
    /// Calls `f` with the position and the element of each that is inside the image, in row-major order, and whether it is its row's last.
    #[device_inline]
    fn for_each(&self, mut f: impl FnMut(u32, f32, bool)) {
        let Self { window, source, row, column, .. } = *self;
        let columns = window.inside(1, column);
        for y in window.inside(0, row) {
            let i = y + window.padding[0] - row * window.stride[0];
            for x in columns.clone() {
                let j = x + window.padding[1] - column * window.stride[1];
                let ends_row = (j + 1 == window.size[1]) | (x + 1 == window.input[1]);
                // SAFETY: inside the image.
                f(i * window.size[1] + j, unsafe { source.load(y, x) }, ends_row);
            }
        }
    }

    #[device_inline]
    fn sum(&self, weights: Weights) -> f32 {
        let mut sum = Sum::new(self.by_rows);
        self.for_each(|_, x, ends_row| sum.add(weights.of(x), ends_row));
        sum.so_far()
    }

    /// Calls `f` with the weights and their sum.
    #[device_inline]
    fn weighed<R>(&self, f: impl Fn(Weights, f32) -> R) -> R {
        let sum = self.sum(Weights::Plain);
        if sum < f32::INFINITY {
            return f(Weights::Plain, sum);
        }
        let mut infinite = false;
        self.for_each(|_, x, _| infinite |= x == f32::INFINITY);
        let weights = Weights::where_not_finite(sum, infinite);
        f(weights, self.sum(weights))
    }

    /// The position and the element at which the sum of the weights so far passes `uniform` of all of them; the last that
    /// has a weight, where rounding keeps it from that. Without any weight the position past the last, and 0.
    #[device_inline]
    pub fn draw(&self, uniform: f32) -> (u32, f32) {
        self.weighed(|weights, sum| {
            let (mut drawn, mut open) = ((self.window.size[0] * self.window.size[1], 0.0), true);
            let (mut so_far, until) = (Sum::new(self.by_rows), uniform * sum);
            self.for_each(|position, x, ends_row| {
                let weight = weights.of(x);
                drawn = if open & (weight > 0.0) { (position, x) } else { drawn };
                so_far.add(weight, ends_row);
                open &= so_far.so_far() <= until;
            });
            drawn
        })
    }

    /// `sum p_i a_i`.
    #[device_inline]
    pub fn mean(&self) -> f32 {
        self.weighed(|weights, sum| {
            if sum == 0.0 {
                return 0.0;
            }
            // A quotient first: squares would pass the largest float, or vanish. Divided for once, by a sum that is brought to
            // where its reciprocal is as accurate.
            let scale = if sum < 1.0 / FAR { FAR } else { 1.0 };
            let scale = if sum > FAR { 1.0 / FAR } else { scale };
            let (mut mean, reciprocal) = (0.0, 1.0 / (sum * scale));
            self.for_each(|_, x, _| mean += weights.of(x) * scale * reciprocal * rectified(x));
            mean
        })
    }
}

/// Calls `finish` with each output that is this thread's, its window, whose elements are in shared memory.
///
/// # Safety
/// As [`stochastic_pool_forward_any`]'s.
#[device_inline]
pub(super) unsafe fn for_each_staged<T: Storage>(
    x: Global<T>,
    window: &Window<Nchw>,
    block: &Block,
    outputs: &Lines,
    finish: impl Fn(usize, Elements<Nchw, InBand<T>>),
) {
    let span = block.span();
    // SAFETY: the launch's shared memory is for these rows.
    let rows = unsafe {
        let rows = Staged::copy(dynamic_shared::<T>(), x, &span, inputs_of(window, &span), window.input);
        band::wait(rows);
        rows
    };
    let output = window.output_plane(span.first_plane) + span.rows[0] as usize * window.output_line();
    for_each_item(&span, outputs, span.rows, |Item { number, plane, row, column }| {
        let by_rows = by_rows(window.size);
        let elements = Elements { window: *window, source: InBand { rows, plane }, row, column, by_rows };
        finish(output + number as usize, elements);
    });
}
