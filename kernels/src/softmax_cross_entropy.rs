//! Softmax and cross entropy in one, averaged over the batch:
//! `loss = mean over n of (log_sum[n] - x[n, label[n]])`, `log_sum[n] = log(sum over c of exp(x[n, c]))`, and
//! `dx[n, c] = (exp(x[n, c] - log_sum[n]) - [c = label[n]]) * dloss / N`.
//!
//! Threads take every so many-th vector of four classes that begins at a multiple of 16 bytes, four vectors at a time, and a few of
//! them what is before the first and after the last. Bound by memory: 4 bytes an element forward, 8 backward; for few classes by the
//! launches.
//!
//! - Forward reads a row once: each thread keeps the maximum of what it saw, and the sum of `exp` of the distances from it, which
//!   becomes less by as much as the maximum grows (Milakov, Gimelshein, arXiv 1805.02867). [`softmax_cross_entropy_rows_f32`]: a
//!   warp takes a row, [`ROWS`] rows a block. [`softmax_cross_entropy_long_rows_f32`]: a block of [`LONG`] threads takes one.
//! - [`softmax_cross_entropy_mean_f32`]: a block of [`LONG`] threads sums the rows' losses in a fixed order.
//! - [`softmax_cross_entropy_backward_f32`]: a warp takes a row, or a part of one, [`ROWS`] of them a block.
//!
//! A maximum of minus infinity, and one of infinity, gives NaN, as `x - maximum` is.
//!
//! A label that is no class makes its row's loss and gradient NaN: it must not be read past the row.
//!
//! # Safety
//! `x` and `dx` hold `rows * classes` elements, `labels`, `losses` and `log_sum` `rows`, `loss` and `dloss` one;
//! `classes` is not zero; `x` and `dx` begin at multiples of 16 bytes; the grid covers the rows.

use cuda_std::prelude::*;

use crate::elementwise::{put, put4};
use crate::reduce::block_sum;

/// Threads of a block.
pub const BLOCK: u32 = 256;
/// Rows of a block, or parts of rows: one for each warp.
pub const ROWS: u32 = BLOCK / warp::WARP_SIZE;
/// Threads of a block that takes one row, or all losses.
pub const LONG: u32 = 1024;
/// Warps of such a block.
const WARPS: usize = (LONG / warp::WARP_SIZE) as usize;

/// This warp's number in the grid.
#[device_inline]
fn warp_number() -> u64 {
    thread::block_idx_x() as u64 * ROWS as u64 + (thread::thread_idx_x() / warp::WARP_SIZE) as u64
}

/// A row of classes as vectors, and as single elements before and after them, for so many threads.
#[derive(Clone, Copy)]
struct Row {
    number: usize,
    classes: u32,
    /// Where it begins.
    first: usize,
    /// Elements before the first vector, fewer than four.
    before: u32,
    /// Vectors of four that begin at multiples of four.
    vectors: u32,
    /// This thread's class of those before and after the vectors, if `has_single`.
    single: u32,
    has_single: bool,
    threads: u32,
}

impl Row {
    #[device_inline]
    fn new(number: u64, classes: u32, thread: u32, threads: u32) -> Self {
        let first = number * classes as u64;
        let to_next = (first as u32).wrapping_neg() % 4;
        let before = if to_next < classes { to_next } else { classes };
        let vectors = (classes - before) / 4;
        let after = before + vectors * 4;
        let single = if thread < before { thread } else { after + (thread - before) };
        // In a row that ends before its first vector, `after` is its end.
        let has_single = thread < 8 && single < classes;
        Self { number: number as usize, classes, first: first as usize, before, vectors, single, has_single, threads }
    }

    /// The class that a vector begins with.
    #[device_inline]
    fn class(&self, vector: u32) -> u32 {
        self.before + vector * 4
    }

    /// This thread's single class, or `otherwise`.
    ///
    /// # Safety
    /// `x` holds the row.
    #[device_inline]
    unsafe fn load_single(&self, x: Global<f32>, otherwise: f32) -> f32 {
        // SAFETY: the class is the row's where it is loaded.
        unsafe { x.load_if(self.has_single, self.first + self.single as usize, otherwise) }
    }

    /// Four vectors before `end`, each as many after the one before as there are threads, from `vector` on; what is not there is
    /// `otherwise`.
    ///
    /// # Safety
    /// `x` holds the row, of at least `end` vectors, and begins at a multiple of 16 bytes.
    #[device_inline]
    unsafe fn load(&self, x: Global<f32>, vector: u32, end: u32, otherwise: f32) -> [Vec4<f32>; 4] {
        let mut loaded = [Vec4::splat(otherwise); 4];
        unrolled!(K in [0 1 2 3] {
            let vector = vector + K as u32 * self.threads;
            // SAFETY: the vector is the row's where it is loaded, and begins at a multiple of four elements.
            loaded[K] = unsafe { x.load4_if(vector < end, self.first + self.class(vector) as usize, loaded[K]) };
        });
        loaded
    }

    /// The maximum of this thread's elements, and the sum of [`exp`] of their distances from it, or from 0 where it is minus infinity.
    ///
    /// # Safety
    /// `x` holds the row, and begins at a multiple of 16 bytes; this is one of the row's threads.
    #[device_inline]
    unsafe fn sum(&self, x: Global<f32>, thread: u32) -> (f32, f32) {
        // SAFETY: the caller's.
        let mut maximum = unsafe { self.load_single(x, f32::NEG_INFINITY) };
        let mut sum = exp(maximum - shift(maximum));
        let mut vector = thread;
        while vector < self.vectors {
            // SAFETY: the caller's.
            let loaded = unsafe { self.load(x, vector, self.vectors, f32::NEG_INFINITY) };
            let mut larger = maximum;
            unrolled!(K in [0 1 2 3] {
                larger = float::maximum(larger, largest(loaded[K]));
            });
            let shift = shift(larger);
            sum *= exp(maximum - shift);
            maximum = larger;
            unrolled!(K in [0 1 2 3] {
                // For the threads of a short row, whose other vectors are not there.
                if vector + (K as u32 * self.threads) < self.vectors {
                    let terms = loaded[K].map(|x| exp(x - shift));
                    sum += (terms.x + terms.y) + (terms.z + terms.w);
                }
            });
            vector += 4 * self.threads;
        }
        (maximum, sum)
    }

    /// What a row's maximum and sum give: `log_sum` and its own loss.
    ///
    /// # Safety
    /// `x` holds the row; the others have an element for it.
    #[device_inline]
    unsafe fn finish(
        &self,
        (maximum, sum): (f32, f32),
        x: Global<f32>,
        labels: Global<u32>,
        losses: GlobalMut<f32>,
        log_sum: GlobalMut<f32>,
    ) {
        let logarithm = if maximum == f32::NEG_INFINITY { f32::NAN } else { maximum + float::ln(sum) };
        // SAFETY: the caller's; a label below `classes` is a class of the row.
        unsafe {
            let label = labels.load(self.number);
            let right = if label < self.classes { x.load(self.first + label as usize) } else { f32::NAN };
            losses.store(self.number, logarithm - right);
            log_sum.store(self.number, logarithm);
        }
    }
}

/// Maximum and sum of all that the warp's lanes have, as [`Row::sum`] gives them; all lanes come here, and get both.
#[device_inline]
fn of_warp((maximum, sum): (f32, f32)) -> (f32, f32) {
    let mut of_all = maximum;
    let mut distance = warp::WARP_SIZE / 2;
    while distance > 0 {
        of_all = float::maximum(of_all, warp::shuffle_xor(of_all, distance));
        distance /= 2;
    }
    (of_all, warp::reduce_sum(sum * exp(maximum - shift(of_all))))
}

/// The largest of a vector, or NaN if one is.
#[device_inline]
fn largest(four: Vec4<f32>) -> f32 {
    float::maximum(float::maximum(four.x, four.y), float::maximum(four.z, four.w))
}

/// What is subtracted before `exp`: the maximum, unless there was nothing to be the maximum of yet.
#[device_inline]
fn shift(maximum: f32) -> f32 {
    if maximum == f32::NEG_INFINITY { 0.0 } else { maximum }
}

/// `exp` of what is not above 0, or hardly. That the argument is rounded is worth more than the instruction's error: |x| times
/// 2^-24 of the result, whose part of the sum falls faster than |x| grows.
#[device_inline]
fn exp(x: f32) -> f32 {
    float::exp2_approx(x * core::f32::consts::LOG2_E)
}

/// `log_sum` and each row's own loss, a warp a row.
///
/// # Safety
/// The module's.
#[kernel(block = BLOCK)]
pub unsafe fn softmax_cross_entropy_rows_f32(
    x: Global<f32>,
    labels: Global<u32>,
    losses: GlobalMut<f32>,
    log_sum: GlobalMut<f32>,
    rows: u64,
    classes: u32,
) {
    let number = warp_number();
    // The whole warp goes: nothing below waits for more than the warp.
    if number >= rows {
        return;
    }
    let lane = warp::lane_id();
    let row = Row::new(number, classes, lane, warp::WARP_SIZE);
    // SAFETY: the row exists.
    unsafe {
        let sum = of_warp(row.sum(x, lane));
        if lane == 0 {
            row.finish(sum, x, labels, losses, log_sum);
        }
    }
}

/// [`softmax_cross_entropy_rows_f32`] by a block a row.
///
/// # Safety
/// The module's.
#[kernel(block = LONG)]
pub unsafe fn softmax_cross_entropy_long_rows_f32(
    x: Global<f32>,
    labels: Global<u32>,
    losses: GlobalMut<f32>,
    log_sum: GlobalMut<f32>,
    classes: u32,
) {
    let of_warps = shared_array![f32; 2 * WARPS];
    let (number, thread, lane) = (thread::block_idx_x(), thread::thread_idx_x(), warp::lane_id());
    let warp = thread / warp::WARP_SIZE;
    let row = Row::new(number as u64, classes, thread, LONG);
    // SAFETY: there is a block for each row; each warp writes its own pair before the barrier, and a warp has a lane for each.
    unsafe {
        let (maximum, sum) = of_warp(row.sum(x, thread));
        if lane == 0 {
            of_warps.store(warp, maximum);
            of_warps.store(WARPS as u32 + warp, sum);
        }
        thread::sync_threads();
        if warp == 0 {
            let sum = of_warp((of_warps.load(lane), of_warps.load(WARPS as u32 + lane)));
            if lane == 0 {
                row.finish(sum, x, labels, losses, log_sum);
            }
        }
    }
}

/// `loss = sum of losses / rows`; a grid of one block. `losses` begins at a multiple of 16 bytes.
///
/// # Safety
/// The module's.
#[kernel(block = LONG)]
pub unsafe fn softmax_cross_entropy_mean_f32(losses: Global<f32>, loss: GlobalMut<f32>, rows: u64) {
    let thread = thread::thread_idx_x();
    let vectors = rows / 4;
    let mut sum = 0.0;
    let mut vector = thread as u64;
    // SAFETY: vectors and elements are among the `rows`; the block is one-dimensional, of whole warps, and sums once.
    unsafe {
        while vector < vectors {
            let mut loaded = [Vec4::splat(0.0); 4];
            unrolled!(K in [0 1 2 3] {
                let vector = vector + (K as u32 * LONG) as u64;
                loaded[K] = losses.load4_if(vector < vectors, vector as usize * 4, loaded[K]);
            });
            unrolled!(K in [0 1 2 3] {
                sum += (loaded[K].x + loaded[K].y) + (loaded[K].z + loaded[K].w);
            });
            vector += (4 * LONG) as u64;
        }
        let single = vectors * 4 + thread as u64;
        sum += losses.load_if(single < rows, single as usize, 0.0);
        let sum = block_sum(sum);
        loss.store_if(thread == 0, 0, if rows == 0 { 0.0 } else { sum / rows as f32 });
    }
}

/// `dx`, plus `beta * dx`; `dloss` is 1 where it is not given. A warp for each of `parts` parts of each row, a part of `part` vectors or
/// what is left of a row's.
///
/// # Safety
/// The module's; `parts` is not zero, and so many parts cover a row.
#[kernel(block = BLOCK)]
pub unsafe fn softmax_cross_entropy_backward_f32(
    x: Global<f32>,
    labels: Global<u32>,
    log_sum: Global<f32>,
    dloss: Option<Global<f32>>,
    dx: GlobalMut<f32>,
    beta: f32,
    rows: u64,
    classes: u32,
    parts: u32,
    part: u32,
) {
    let mut number = warp_number();
    let mut begin = 0;
    if parts > 1 {
        let whole = number / parts as u64;
        begin = (number - whole * parts as u64) as u32 * part;
        number = whole;
    }
    if number >= rows {
        return;
    }
    let lane = warp::lane_id();
    let row = Row::new(number, classes, lane, warp::WARP_SIZE);
    let end = if row.vectors - begin.min(row.vectors) < part { row.vectors } else { begin + part };
    // SAFETY: the row exists, in `x` and `dx`.
    unsafe {
        let dloss = match dloss {
            Some(dloss) => dloss.load(0),
            None => 1.0,
        };
        let label = labels.load(number as usize);
        let scale = if label < classes { dloss / rows as f32 } else { f32::NAN };
        let logarithm = log_sum.load(number as usize);
        let gradient = |x: f32, class: u32| {
            let hit = if class == label { 1.0 } else { 0.0 };
            (exp(x - logarithm) - hit) * scale
        };
        if begin == 0 && row.has_single {
            let x = row.load_single(x, 0.0);
            put(dx, row.first + row.single as usize, gradient(x, row.single), beta);
        }
        let mut vector = begin + lane;
        while vector < end {
            let loaded = row.load(x, vector, end, 0.0);
            unrolled!(K in [0 1 2 3] {
                let vector = vector + K as u32 * warp::WARP_SIZE;
                if vector < end {
                    let class = row.class(vector);
                    let classes = Vec4::new(class, class + 1, class + 2, class + 3);
                    put4(dx, row.first + class as usize, loaded[K].zip_with(classes, gradient), beta);
                }
            });
            vector += 4 * warp::WARP_SIZE;
        }
    }
}
