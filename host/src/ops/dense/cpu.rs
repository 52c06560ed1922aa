use std::borrow::Cow;

use gemm::Parallelism;
use num_traits::{One, Zero};
use rayon::prelude::*;

use super::{Activation, Backward, Forward, Sizes, Slope};
use crate::device::tasks::Tasks;
use crate::device::{Cpu, OnCpu, accumulate};
use crate::{Compute, Out, Real, Result};

/// Elements that one task takes at least, in whole rows.
const CHUNK: usize = 16 * 1024;
/// Tasks at most: each keeps a sum per column, and these are added one after another.
const TASKS: usize = 64;

/// Whole rows that one task takes. Depends on the sizes only, so that sums have one order on any number of threads.
fn rows_per_task(sizes: Sizes) -> usize {
    (CHUNK / sizes.outputs).max(sizes.batch.div_ceil(TASKS)).max(1)
}

/// What arithmetic takes: the tensor's own memory where it can be that, else a widened copy.
fn widened<T: Real>(values: &[T]) -> Cow<'_, [T::Compute]> {
    match T::as_compute(values) {
        Some(values) => Cow::Borrowed(values),
        None => Cow::Owned(values.par_iter().map(|v| v.widen()).gather(CHUNK)),
    }
}

/// On one of rayon's threads where the products are theirs, so that they are asked once for all parts of a pass: that takes
/// the caller's thread several microseconds each time.
fn together<R: Send>(sizes: Sizes, pass: impl FnOnce() -> R + Send) -> R {
    let terms = sizes.batch.saturating_mul(sizes.inputs).saturating_mul(sizes.outputs);
    if terms < gemm::get_threading_threshold() || rayon::current_num_threads() == 1 {
        return pass();
    }
    rayon::scope(|_| pass())
}

impl<T: Real> OnCpu for Forward<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        together(self.sizes, || self.compute())
    }
}

impl<T: Real> Forward<'_, T> {
    fn compute(self) -> Result<()> {
        let Sizes { batch, inputs, outputs } = self.sizes;
        let (x, w) = (widened(self.x.host()?), widened(self.w.host()?));
        let b = self.b.map(|b| b.host()).transpose()?.map(widened);
        let curve = match self.activation {
            Activation::Identity => Curve::Identity,
            Activation::Relu => Curve::Relu,
            Activation::Prelu(alpha) => Curve::Prelu(alpha.host()?),
        };
        let y = self.y.host_mut()?;
        let mut z = self.z.map(|z| z.host_mut()).transpose()?;
        // w as its transpose: the strides say so.
        let product = Product { lhs: Matrix::rows(&x, inputs), rhs: Matrix::columns(&w, inputs) };
        let task = rows_per_task(self.sizes) * outputs;
        let sum = |z: &mut [T::Compute]| {
            if let Some(b) = &b {
                // The product is added to it, which takes less than adding it to the product.
                z.par_chunks_mut(task).run(1, |z| z.chunks_exact_mut(outputs).for_each(|z| z.copy_from_slice(b)));
            }
            let beta = if b.is_some() { T::Compute::one() } else { T::Compute::zero() };
            product.write([batch, outputs], inputs, z, beta);
        };

        let outputs_of = |y: &mut [T], z: &[T::Compute]| {
            y.par_chunks_mut(task).zip(z.par_chunks(task)).run(1, |(y, z)| {
                for (y, z) in y.chunks_exact_mut(outputs).zip(z.chunks_exact(outputs)) {
                    curve.each(y.iter_mut().zip(z), |(_, z)| **z, |(y, _), value| *y = T::narrow(value));
                }
            });
        };

        // z is made where it is kept, or else in y, where these can hold it.
        if let Some(z) = z.as_deref_mut().and_then(T::as_compute_mut) {
            sum(z);
            outputs_of(y, z);
        } else if let (None, Some(y)) = (&z, T::as_compute_mut(y)) {
            sum(y);
            if !matches!(curve, Curve::Identity) {
                y.par_chunks_mut(task).run(1, |y| {
                    for y in y.chunks_exact_mut(outputs) {
                        curve.each(y, |y| **y, |y, value| *y = value);
                    }
                });
            }
        } else {
            let mut made = vec![T::Compute::zero(); y.len()];
            sum(&mut made);
            outputs_of(y, &made);
            if let Some(z) = z {
                z.par_chunks_mut(task).zip(made.par_chunks(task)).run(1, |(z, made)| {
                    z.iter_mut().zip(made).for_each(|(z, &made)| *z = T::narrow(made));
                });
            }
        }
        Ok(())
    }
}

/// The activation, with its slopes.
#[derive(Clone, Copy)]
enum Curve<'a, C> {
    Identity,
    Relu,
    Prelu(&'a [C]),
}

impl<C: Compute> Curve<'_, C> {
    /// Calls `put` with each element of a row and what the activation makes of its `z`.
    #[inline(always)]
    fn each<E>(self, row: impl IntoIterator<Item = E>, z: impl Fn(&E) -> C, mut put: impl FnMut(E, C)) {
        let row = row.into_iter();
        let zero = C::zero();
        let prelu = |z: C, alpha: C| if z > zero { z } else { alpha * z };
        match self {
            Self::Identity => row.for_each(|e| {
                let z = z(&e);
                put(e, z);
            }),
            Self::Relu => row.for_each(|e| {
                let z = z(&e);
                // So that NaN stays.
                put(e, if z <= zero { zero } else { z });
            }),
            Self::Prelu(&[alpha]) => row.for_each(|e| {
                let z = z(&e);
                put(e, prelu(z, alpha));
            }),
            Self::Prelu(alpha) => row.zip(alpha).for_each(|(e, &alpha)| {
                let z = z(&e);
                put(e, prelu(z, alpha));
            }),
        }
    }
}

impl<T: Real> OnCpu for Backward<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        together(self.sizes, || self.compute())
    }
}

impl<T: Real> Backward<'_, T> {
    fn compute(self) -> Result<()> {
        let Sizes { batch, inputs, outputs } = self.sizes;
        let dy = self.dy.host()?;
        let gradients = self.gradients;
        let products = gradients.dx.is_some() || gradients.dw.is_some();
        // The bias' gradient comes with dz: one pass over dy.
        let (dz, sums) = match self.slope {
            Slope::One => {
                let dz = if products { widened(dy) } else { Cow::default() };
                (dz, if gradients.db.is_some() { column_sums(self.sizes, dy) } else { Sums::default() })
            }
            Slope::Relu { y } => {
                let (dz, sums) = dz_of_relu(self.sizes, y.host()?, dy);
                (dz.into(), sums)
            }
            Slope::Prelu { z, alpha } => {
                let (dz, sums) = dz_of_prelu(self.sizes, z.host()?, alpha.host()?, dy);
                (dz.into(), sums)
            }
        };
        if let Some(db) = gradients.db {
            add_sums(&sums.dz, db)?;
        }
        if let Some(dalpha) = gradients.dalpha {
            add_sums(&sums.dalpha, dalpha)?;
        }
        if let Some(dx) = gradients.dx {
            let w = widened(self.w.host()?);
            let product = Product { lhs: Matrix::rows(&dz, outputs), rhs: Matrix::rows(&w, inputs) };
            put_product(&product, [batch, inputs], outputs, dx)?;
        }
        if let Some(dw) = gradients.dw {
            let x = widened(self.x.host()?);
            let product = Product { lhs: Matrix::columns(&dz, outputs), rhs: Matrix::rows(&x, inputs) };
            put_product(&product, [outputs, inputs], batch, dw)?;
        }
        Ok(())
    }
}

/// A product to where a pass puts it, rounded once.
fn put_product<T: Real>(
    product: &Product<'_, T::Compute>,
    shape: [usize; 2],
    depth: usize,
    out: Out<'_, T>,
) -> Result<()> {
    let beta = T::Compute::of(out.beta);
    let out = out.tensor.host_mut()?;
    if let Some(out) = T::as_compute_mut(out) {
        product.write(shape, depth, out, beta);
        return Ok(());
    }
    let mut sums = vec![T::Compute::zero(); out.len()];
    product.write(shape, depth, &mut sums, T::Compute::zero());
    out.par_iter_mut().zip(sums).run(CHUNK, |(out, sum)| accumulate(out, sum, beta));
    Ok(())
}

/// Sums over the batch, in f64; `dalpha` over the outputs too where one slope is shared.
#[derive(Default)]
struct Sums {
    dz: Vec<f64>,
    dalpha: Vec<f64>,
}

impl Sums {
    fn zeros(outputs: usize, slopes: usize) -> Self {
        Self { dz: vec![0.0; outputs], dalpha: vec![0.0; slopes] }
    }

    /// The tasks' sums, added in the tasks' order.
    fn total(mut self, parts: Vec<Self>) -> Self {
        for part in parts {
            self.dz.iter_mut().zip(part.dz).for_each(|(sum, part)| *sum += part);
            self.dalpha.iter_mut().zip(part.dalpha).for_each(|(sum, part)| *sum += part);
        }
        self
    }
}

fn add_sums<T: Real>(sums: &[f64], out: Out<'_, T>) -> Result<()> {
    for (out_element, &sum) in out.tensor.host_mut()?.iter_mut().zip(sums) {
        accumulate(out_element, T::Compute::of(sum), T::Compute::of(out.beta));
    }
    Ok(())
}

fn column_sums<T: Real>(sizes: Sizes, dy: &[T]) -> Sums {
    let parts = dy.par_chunks(rows_per_task(sizes) * sizes.outputs).map(|dy| {
        let mut part = Sums::zeros(sizes.outputs, 0);
        for dy in dy.chunks_exact(sizes.outputs) {
            part.dz.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy.f64());
        }
        part
    });
    Sums::zeros(sizes.outputs, 0).total(parts.gather(1))
}

fn dz_of_relu<T: Real>(sizes: Sizes, y: &[T], dy: &[T]) -> (Vec<T::Compute>, Sums) {
    let zero = T::Compute::zero();
    let mut dz = vec![zero; dy.len()];
    let task = rows_per_task(sizes) * sizes.outputs;
    let parts = dz.par_chunks_mut(task).zip(y.par_chunks(task).zip(dy.par_chunks(task))).map(|(dz, (y, dy))| {
        let mut part = Sums::zeros(sizes.outputs, 0);
        let rows = y.chunks_exact(sizes.outputs).zip(dy.chunks_exact(sizes.outputs));
        for (dz, (y, dy)) in dz.chunks_exact_mut(sizes.outputs).zip(rows) {
            for ((dz, sum), (&y, &dy)) in dz.iter_mut().zip(&mut part.dz).zip(y.iter().zip(dy)) {
                *dz = if y.widen() <= zero { zero } else { dy.widen() };
                *sum += dz.f64();
            }
        }
        part
    });
    let sums = Sums::zeros(sizes.outputs, 0).total(parts.gather(1));
    (dz, sums)
}

fn dz_of_prelu<T: Real>(sizes: Sizes, z: &[T], alpha: &[T::Compute], dy: &[T]) -> (Vec<T::Compute>, Sums) {
    let (zero, one) = (T::Compute::zero(), T::Compute::one());
    let mut dz = vec![zero; dy.len()];
    let task = rows_per_task(sizes) * sizes.outputs;
    let parts = dz.par_chunks_mut(task).zip(z.par_chunks(task).zip(dy.par_chunks(task))).map(|(dz, (z, dy))| {
        let mut part = Sums::zeros(sizes.outputs, alpha.len());
        let rows = z.chunks_exact(sizes.outputs).zip(dy.chunks_exact(sizes.outputs));
        for (dz, (z, dy)) in dz.chunks_exact_mut(sizes.outputs).zip(rows) {
            let elements = dz.iter_mut().zip(&mut part.dz).zip(z.iter().zip(dy));
            let store = |dz: &mut T::Compute, sum: &mut f64, z: T::Compute, dy: T, alpha: T::Compute| {
                // NaN counts as not positive, so that it comes out as NaN.
                let (slope, dalpha) = if z > zero { (one, 0.0) } else { (alpha, z.f64() * dy.f64()) };
                let exact = slope * dy.widen();
                *dz = T::narrow(exact).widen();
                *sum += exact.f64();
                dalpha
            };
            if let [alpha] = *alpha {
                for ((dz, sum), (&z, &dy)) in elements {
                    part.dalpha[0] += store(dz, sum, z.widen(), dy, alpha);
                }
            } else {
                for (((dz, sum), (&z, &dy)), (&alpha, dalpha)) in elements.zip(alpha.iter().zip(&mut part.dalpha)) {
                    *dalpha += store(dz, sum, z.widen(), dy, alpha);
                }
            }
        }
        part
    });
    let sums = Sums::zeros(sizes.outputs, alpha.len()).total(parts.gather(1));
    (dz, sums)
}

/// A matrix over a slice, with the distances from row to row and from column to column.
#[derive(Clone, Copy)]
struct Matrix<'a, T> {
    elements: &'a [T],
    row: usize,
    column: usize,
}

impl<'a, T> Matrix<'a, T> {
    /// Rows of this length, one after another.
    fn rows(elements: &'a [T], length: usize) -> Self {
        Self { elements, row: length, column: 1 }
    }

    /// Columns of this length, one after another: the transpose of [`Matrix::rows`].
    fn columns(elements: &'a [T], length: usize) -> Self {
        Self { elements, row: 1, column: length }
    }

    /// Whether element `[rows - 1, columns - 1]`, and so every one, is in the slice.
    fn holds(&self, rows: usize, columns: usize) -> bool {
        rows == 0 || columns == 0 || (rows - 1) * self.row + (columns - 1) * self.column < self.elements.len()
    }
}

struct Product<'a, T> {
    lhs: Matrix<'a, T>,
    rhs: Matrix<'a, T>,
}

impl<T: Compute> Product<'_, T> {
    /// `out = lhs · rhs + beta * out`, `out` row-major of this shape, summing over `depth`.
    fn write(&self, [rows, columns]: [usize; 2], depth: usize, out: &mut [T], beta: T) {
        let Self { lhs, rhs } = self;
        assert!(lhs.holds(rows, depth) && rhs.holds(depth, columns) && out.len() == rows * columns);
        // SAFETY: every element that the shapes and strides name is in its slice, as just checked; `out` is borrowed
        // mutably and so is no part of the others; `T` is f32 or f64, which the crate computes.
        unsafe {
            gemm::gemm(
                rows,
                columns,
                depth,
                out.as_mut_ptr(),
                1,
                columns as isize,
                beta != T::zero(),
                lhs.elements.as_ptr(),
                lhs.column as isize,
                lhs.row as isize,
                rhs.elements.as_ptr(),
                rhs.column as isize,
                rhs.row as isize,
                beta,
                T::one(),
                false,
                false,
                false,
                // All of rayon's threads. How the work is cut depends on their number, the order of no sum does.
                Parallelism::Rayon(0),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(len: usize, salt: usize) -> Vec<f32> {
        (0..len).map(|i| ((i * 7919 + salt) % 1009) as f32 / 1009.0 - 0.5).collect()
    }

    /// The same bits whatever the number of threads.
    #[test]
    fn order_of_sums_does_not_depend_on_the_threads() {
        for (batch, inputs, outputs) in [(300, 200, 130), (1, 3000, 500), (2000, 9, 17), (40, 5000, 3)] {
            let sizes = Sizes { batch, inputs, outputs };
            let (x, w) = (values(batch * inputs, 1), values(outputs * inputs, 2));
            let (z, dy, alpha) = (values(batch * outputs, 3), values(batch * outputs, 4), values(outputs, 5));
            let run = |threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| {
                    let write = |product: Product<'_, f32>, shape: [usize; 2], depth| {
                        let mut out = vec![0.5; shape[0] * shape[1]];
                        product.write(shape, depth, &mut out, 2.0);
                        out
                    };
                    let (x, w) = (Matrix::rows(&x, inputs), Matrix::rows(&w, inputs));
                    let (dz, sums) = dz_of_prelu::<f32>(sizes, &z, &alpha, &dy);
                    let wt = Matrix { row: w.column, column: w.row, ..w };
                    let y = write(Product { lhs: x, rhs: wt }, [batch, outputs], inputs);
                    let dx = write(Product { lhs: Matrix::rows(&dz, outputs), rhs: w }, [batch, inputs], outputs);
                    let dw = write(Product { lhs: Matrix::columns(&dz, outputs), rhs: x }, [outputs, inputs], batch);
                    let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                    let sums = [sums.dz, sums.dalpha].map(|v| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>());
                    ([y, dx, dw].map(|v| bits(&v)), sums)
                })
            };
            let expected = run(1);
            for threads in [2, 3, 7] {
                assert!(run(threads) == expected, "{sizes:?} on {threads} threads");
            }
        }
    }
}
