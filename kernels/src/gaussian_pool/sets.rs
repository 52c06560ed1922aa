//! The weights of a block of row-major planes, which share their Gaussians or have some each, of windows whose weights are the same everywhere.
//!
//! The block's threads compute them, a position each, while its rows are on their way, and leave them in shared memory before they are divided by
//! their sums: each thread divides those that it takes, which takes less than another barrier.

use cuda_std::prelude::*;

use super::weights::{Shape, derive, unscaled};
use crate::band::{self, Bands, Copied, Span, least};
use crate::elementwise::reciprocal;
use crate::window::Divider;

/// Vectors of weights of a Gaussian: along y and x.
const WEIGHTS: u32 = 2;
/// Vectors of a vector of weights and its derivatives by mean and variance.
const EACH: u32 = 3;
/// Such vectors of a Gaussian.
const DERIVATIVES: u32 = WEIGHTS * EACH;

/// Elements of a vector of weights in shared memory, those of whole fours.
#[device_inline]
const fn vector(size: usize) -> u32 {
    (size as u32).next_multiple_of(4)
}

/// Which planes have which Gaussians.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sets {
    /// Gaussians of a plane.
    kernels: u32,
    /// From one plane's first Gaussian to the next one's.
    step: u32,
    /// All Gaussians that there are.
    total: u32,
    variances: u32,
    /// Whether weights are the other way round.
    turned: u32,
    by_total: Divider,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Sets {}

impl Sets {
    /// So many sets of so many Gaussians, with so many variances each: one for all planes, or one for each channel.
    pub const fn new(sets: u32, kernels: u32, variances: u32) -> Self {
        let total = sets * kernels;
        let step = if sets == 1 { 0 } else { kernels };
        Self { kernels, step, total, variances, turned: 0, by_total: Divider::new(total) }
    }

    /// The same with weights the other way round, along both axes.
    pub const fn turned(self) -> Self {
        Self { turned: 1, ..self }
    }

    /// Whether there is one Gaussian, which all planes share.
    pub const fn is_one(&self) -> bool {
        self.total == 1
    }

    /// Bytes of shared memory for the weights of a block of these bands, of windows of so many positions each way.
    pub fn bytes(&self, bands: &Bands, size: u32) -> u32 {
        self.room(bands.depth(), WEIGHTS * vector(size as usize)) * size_of::<f32>() as u32
    }

    /// As [`bytes`](Self::bytes), with room for the derivatives.
    pub fn bytes_with_derivatives(&self, bands: &Bands, size: u32) -> u32 {
        self.bytes(bands, size) + self.room(bands.depth(), DERIVATIVES * size) * size_of::<f32>() as u32
    }

    /// So many elements for each Gaussian of so many planes, by whole vectors.
    #[device_inline]
    fn room(&self, planes: u32, each: u32) -> u32 {
        (self.gaussians(planes) * each + 3) & !3
    }

    /// Different Gaussians of so many planes.
    #[device_inline]
    fn gaussians(&self, planes: u32) -> u32 {
        if self.step == 0 { self.kernels } else { planes * self.kernels }
    }

    /// Gaussians of a plane.
    #[device_inline]
    pub(super) fn kernels(&self) -> u32 {
        self.kernels
    }

    /// Has `copy` issue the copies of rows into shared memory, and computes the block's weights before them meanwhile. Both are there then; between them
    /// is room for derivatives, if it is to `derive` them.
    ///
    /// # Safety
    /// `parameters` are the means and variances of these sets. The launch's shared memory has room for the [weights](Self::bytes), or [the derivatives
    /// too](Self::bytes_with_derivatives), and the rows. All threads of the block, of one dimension, come here.
    #[device_inline]
    pub(super) unsafe fn stage<C: Copied, const SIZE: usize>(
        self,
        parameters: [Global<f32>; 2],
        span: &Span,
        derive: bool,
        copy: impl FnOnce(Shared<f32>) -> C,
    ) -> (C, Table<SIZE>) {
        let (planes, first_plane, shared) = (span.depth, span.first_plane, dynamic_shared::<f32>());
        let table = Table { sets: self, planes, first_plane, shared };
        // SAFETY: the caller's.
        unsafe {
            // Loaded before all that is longer on its way.
            let first = table.shape(thread::thread_idx_x() / vector(SIZE), parameters);
            let copied = copy(if derive { table.behind() } else { table.derivatives() });
            table.put(first, parameters);
            // Its barrier is for the weights, too.
            band::wait(copied);
            (copied, table)
        }
    }
}

/// The weights of a block in shared memory: for each Gaussian those along y, and those along x.
pub(super) struct Table<const SIZE: usize> {
    sets: Sets,
    planes: u32,
    first_plane: u32,
    shared: Shared<f32>,
}

impl<const SIZE: usize> Table<SIZE> {
    /// The Gaussian, along its axis, of the vector of weights of this number; any past the last.
    ///
    /// # Safety
    /// `parameters` are the means and variances of the sets.
    #[device_inline]
    unsafe fn shape(&self, vector: u32, parameters: [Global<f32>; 2]) -> Shape {
        let Sets { kernels, total, variances, by_total, .. } = self.sets;
        let gaussian = self.first_plane * kernels + vector / WEIGHTS;
        let gaussian = gaussian - by_total.divide(gaussian) * total;
        // SAFETY: the caller's.
        unsafe {
            Shape::load_if(vector < self.vectors(), parameters, gaussian, vector.is_multiple_of(WEIGHTS), variances)
        }
    }

    /// Vectors of weights of the block.
    #[device_inline]
    fn vectors(&self) -> u32 {
        self.sets.gaussians(self.planes) * WEIGHTS
    }

    /// Computes the weights, a position each. They are there after a barrier.
    ///
    /// # Safety
    /// As [`Sets::stage`]; `first` is the shape of this thread's first.
    #[device_inline]
    unsafe fn put(&self, first: Shape, parameters: [Global<f32>; 2]) {
        let (each, mut number, mut shape) = (vector(SIZE), thread::thread_idx_x(), first);
        while number < self.vectors() * each {
            // SAFETY: the element is this thread's.
            unsafe {
                let position = number % each;
                let place = if self.sets.turned != 0 { (SIZE as u32 - 1).wrapping_sub(position) } else { position };
                // Zeros after the last, in either case.
                let place = if position < SIZE as u32 { place } else { position };
                self.shared.store(number - position + place, unscaled(SIZE as u32, position, shape));
                number += thread::block_dim_x();
                shape = self.shape(number / each, parameters);
            }
        }
    }

    /// The first vector of a plane of the block and one of its Gaussians; of another plane where the block has no such.
    #[device_inline]
    fn first(&self, plane: u32, kernel: u32) -> u32 {
        (least(plane, self.planes - 1) * self.sets.step + kernel) * WEIGHTS
    }

    /// Those of a plane of the block and one of its Gaussians; any where the block has no such plane. Those along y are divided by both axes' sums.
    ///
    /// # Safety
    /// They were [staged](Sets::stage).
    #[device_inline]
    pub(super) unsafe fn load(&self, plane: u32, kernel: u32) -> Weights<SIZE> {
        let first = self.first(plane, kernel) * vector(SIZE);
        let mut both = [[0.0; SIZE]; 2];
        unrolled!(AXIS in [0 1] { unrolled!(V in [0 1 2] {
            if 4 * V < SIZE {
                // SAFETY: the caller's.
                let four = unsafe { self.shared.load4(first + AXIS as u32 * vector(SIZE) + 4 * V as u32) }.to_array();
                unrolled!(I in [0 1 2 3] { if 4 * V + I < SIZE { both[AXIS][4 * V + I] = four[I]; } });
            }
        }); });
        let mut sums = [0.0; 2];
        unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10] {
            if I < SIZE { sums = [sums[0] + both[0][I], sums[1] + both[1][I]]; }
        });
        // Of what is between 1 and the window's positions.
        let scale = reciprocal(sums[0] * sums[1]);
        unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10] { if I < SIZE { both[0][I] *= scale; } });
        let [by_y, by_x] = both;
        Weights { by_y, by_x }
    }

    /// The shared memory behind the weights.
    ///
    /// # Safety
    /// There is some.
    #[device_inline]
    unsafe fn derivatives(&self) -> Shared<f32> {
        // SAFETY: the caller's.
        unsafe { self.shared.offset(self.sets.room(self.planes, WEIGHTS * vector(SIZE))) }
    }

    /// The shared memory behind the weights and their derivatives.
    ///
    /// # Safety
    /// There is some.
    #[device_inline]
    pub(super) unsafe fn behind(&self) -> Shared<f32> {
        // SAFETY: the caller's.
        unsafe { self.derivatives().offset(self.sets.room(self.planes, DERIVATIVES * SIZE as u32)) }
    }

    /// Computes the weights and their derivatives, a vector by each of the first threads. They are there after another barrier.
    ///
    /// # Safety
    /// They were [staged](Sets::stage) with room for derivatives; `parameters` are the means and variances of the sets.
    #[device_inline]
    pub(super) unsafe fn derive(&self, parameters: [Global<f32>; 2]) -> Derived<'_, SIZE> {
        let size = SIZE as u32;
        // SAFETY: the caller's; the vector is this thread's.
        unsafe {
            let shared = self.derivatives();
            let mut vector = thread::thread_idx_x();
            while vector < self.vectors() {
                let shape = self.shape(vector, parameters);
                let unscaled = |i: u32| self.shared.load(vector * self::vector(SIZE) + i);
                let put = |i: u32, [weight, by_mean, by_var]: [f32; 3]| {
                    let at = vector * EACH * size + i;
                    shared.store(at, weight);
                    shared.store(at + size, by_mean);
                    shared.store(at + 2 * size, by_var);
                };
                derive(size, shape, unscaled, put);
                vector += thread::block_dim_x();
            }
            Derived { table: self, shared }
        }
    }
}

/// The weights of a block and their derivatives: for each vector of weights it itself, and what it changes by mean and by variance.
pub(super) struct Derived<'a, const SIZE: usize> {
    table: &'a Table<SIZE>,
    shared: Shared<f32>,
}

impl<const SIZE: usize> Derived<'_, SIZE> {
    /// The gradients by `mu_y`, `mu_x`, `var_y` and `var_x` of a sum for each position, of a plane of the block.
    ///
    /// # Safety
    /// They were [derived](Table::derive), and the block came to a barrier since.
    #[device_inline]
    pub(super) unsafe fn gradients(&self, plane: u32, products: &[[f32; SIZE]; SIZE]) -> [f32; 4] {
        let first = self.table.first(plane, 0) * EACH;
        // SAFETY: the caller's.
        let of = |vector: u32, i: usize| unsafe { self.shared.load((first + vector) * SIZE as u32 + i as u32) };
        let (mut y, mut x) = ([0.0; 2], [0.0; 2]);
        unrolled!(I in [0 1 2 3 4 5 6] {
            if I < SIZE {
                // Along x, by the weights and their derivatives.
                let mut along = [0.0; 3];
                unrolled!(J in [0 1 2 3 4 5 6] {
                    if J < SIZE {
                        along[0] = float::fma(of(3, J), products[I][J], along[0]);
                        along[1] = float::fma(of(4, J), products[I][J], along[1]);
                        along[2] = float::fma(of(5, J), products[I][J], along[2]);
                    }
                });
                y = [float::fma(of(1, I), along[0], y[0]), float::fma(of(2, I), along[0], y[1])];
                x = [float::fma(of(0, I), along[1], x[0]), float::fma(of(0, I), along[2], x[1])];
            }
        });
        [y[0], x[0], y[1], x[1]]
    }

    /// Adds what a product of `x` and `dy` at a position gives to these gradients.
    ///
    /// # Safety
    /// As [`gradients`](Self::gradients).
    #[device_inline]
    pub(super) unsafe fn add(&self, plane: u32, [i, j]: [u32; 2], product: f32, sums: [f32; 4]) -> [f32; 4] {
        let first = self.table.first(plane, 0) * EACH;
        // SAFETY: the caller's.
        let of = |vector: u32, i: u32| unsafe { self.shared.load((first + vector) * SIZE as u32 + i) };
        let [mean_y, mean_x, var_y, var_x] = sums;
        let (by_y, by_x) = (product * of(0, i), product * of(3, j));
        [
            float::fma(of(1, i), by_x, mean_y),
            float::fma(of(4, j), by_y, mean_x),
            float::fma(of(2, i), by_x, var_y),
            float::fma(of(5, j), by_y, var_x),
        ]
    }
}

/// The weights of a Gaussian along y and x.
pub(super) struct Weights<const SIZE: usize> {
    pub(super) by_y: [f32; SIZE],
    pub(super) by_x: [f32; SIZE],
}

impl<const SIZE: usize> Weights<SIZE> {
    /// Their products, of windows of up to 3×3.
    #[device_inline]
    pub(super) fn products(&self) -> [[f32; 3]; 3] {
        let mut products = [[0.0; 3]; 3];
        unrolled!(I in [0 1 2] { unrolled!(J in [0 1 2] {
            if I < SIZE && J < SIZE { products[I][J] = self.by_y[I] * self.by_x[J]; }
        }); });
        products
    }
}

#[cfg(test)]
mod tests {
    use super::Sets;

    #[test]
    fn rooms_are_for_whole_vectors() {
        assert_eq!(Sets::new(1, 1, 1).room(9, 6), 8);
        assert_eq!(Sets::new(1, 2, 1).room(9, 6), 12);
        assert_eq!(Sets::new(4, 1, 1).room(9, 6), 56);
        assert_eq!(Sets::new(4, 2, 1).room(1, 10), 20);
    }
}
