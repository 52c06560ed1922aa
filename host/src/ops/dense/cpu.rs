mod product;
mod slope;
mod turns;

use std::borrow::Cow;
use std::ops::Range;

use multiversion::multiversion;
use num_traits::Zero;

use self::product::{Matrix, Product, Room};
use self::slope::{Sums, column_sums, dz_of_one, dz_of_prelu, dz_of_relu, slopes};
use self::turns::{Job, take_turns};
use super::{Activation, Backward, Forward, Gradients, Sizes, Slope};
use crate::device::{Cpu, OnCpu, accumulate, accumulate_all, widened};
use crate::{Compute, Out, Real, Result};

impl<T: Real> OnCpu for Forward<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let Sizes { batch, inputs, outputs } = self.sizes;
        let mut converted = Vec::new();
        let b = match self.b {
            Some(b) => Some(widened(b.host()?, &mut converted)),
            None => None,
        };
        let alpha = match self.activation {
            Activation::Prelu(alpha) => slopes(alpha.host()?, outputs),
            Activation::Identity | Activation::Relu => Cow::default(),
        };
        let curve = match self.activation {
            Activation::Identity => Curve::Identity,
            Activation::Relu => Curve::Relu,
            Activation::Prelu(_) => Curve::Prelu(&alpha),
        };
        // The product becomes z and then y where it is, in the cache.
        let finish = |sums: &mut [T::Compute], columns: Range<usize>, y: &mut [T], z: Option<&mut [T]>| {
            if let Some(b) = b {
                add(sums, &b[columns.clone()]);
            }
            if let Some(z) = z {
                accumulate_all(z, sums, T::Compute::zero());
            }
            curve.of(columns).apply(sums);
            accumulate_all(y, sums, T::Compute::zero());
        };
        let product = Product {
            lhs: Matrix::rows(self.x.host()?, inputs),
            rhs: Matrix::columns(self.w.host()?, inputs),
            shape: [batch, outputs],
            depth: inputs,
        };
        let (y, finish) = (self.y.host_mut()?, &finish);
        take_turns(match self.z {
            Some(z) => product
                .jobs([y, z.host_mut()?], move |sums, columns, [y, z]| finish(sums, columns, y, Some(z)))
                .collect(),
            None => product.jobs([y], move |sums, columns, [y]| finish(sums, columns, y, None)).collect(),
        });
        Ok(())
    }
}

/// The activation, with a slope for each element of a row.
#[derive(Clone, Copy)]
enum Curve<'a, C> {
    Identity,
    Relu,
    Prelu(&'a [C]),
}

impl<C: Compute> Curve<'_, C> {
    fn of(self, columns: Range<usize>) -> Self {
        match self {
            Self::Prelu(alpha) => Self::Prelu(&alpha[columns]),
            Self::Identity | Self::Relu => self,
        }
    }

    fn apply(self, row: &mut [C]) {
        match self {
            Self::Identity => {}
            Self::Relu => relu(row),
            Self::Prelu(alpha) => prelu(row, alpha),
        }
    }
}

#[multiversion(targets("x86_64+avx2"))]
fn add<C: Compute>(row: &mut [C], terms: &[C]) {
    row.iter_mut().zip(terms).for_each(|(sum, term)| *sum += *term);
}

#[multiversion(targets("x86_64+avx2"))]
fn relu<C: Compute>(row: &mut [C]) {
    let zero = C::zero();
    // So that NaN stays.
    row.iter_mut().for_each(|z| *z = if *z <= zero { zero } else { *z });
}

#[multiversion(targets("x86_64+avx2"))]
fn prelu<C: Compute>(row: &mut [C], alpha: &[C]) {
    let zero = C::zero();
    row.iter_mut().zip(alpha).for_each(|(z, alpha)| *z = if *z > zero { C::one() } else { *alpha } * *z);
}

impl<T: Real> OnCpu for Backward<'_, T> {
    fn on_cpu(self, _: &Cpu) -> Result<()> {
        let (sizes, dy) = (self.sizes, self.dy.host()?);
        let (x, w, mut gradients) = (self.x.host()?, self.w.host()?, self.gradients);
        // The bias' gradient comes with dz: one pass over dy.
        let mut parts = Vec::new();
        match self.slope {
            // Converted once, not once for each block that reads it.
            Slope::One if T::as_compute(dy).is_none() => {
                let dz = dz_of_one(sizes, dy, &mut parts);
                take_turns(products(sizes, [x, w], dz.elements(), &mut gradients)?);
            }
            Slope::One => {
                let sums = gradients.db.is_some().then(|| column_sums(sizes, dy, &mut parts));
                let jobs = sums.into_iter().flatten();
                take_turns(jobs.chain(products(sizes, [x, w], dy, &mut gradients)?).collect());
            }
            Slope::Relu { y } => {
                let dz = dz_of_relu(sizes, y.host()?, dy, &mut parts);
                take_turns(products(sizes, [x, w], dz.elements(), &mut gradients)?);
            }
            Slope::Prelu { z, alpha } => {
                let alpha = slopes(alpha.host()?, sizes.outputs);
                let dz = dz_of_prelu(sizes, z.host()?, &alpha, dy, &mut parts);
                take_turns(products(sizes, [x, w], dz.elements(), &mut gradients)?);
            }
        }
        let sums = Sums::total(parts, sizes.outputs);
        if let Some(db) = gradients.db {
            add_sums(&sums.dz, db)?;
        }
        match gradients.dalpha {
            Some(dalpha) if dalpha.tensor.len() == 1 => add_sums(&[sums.dalpha.iter().sum()], dalpha)?,
            Some(dalpha) => add_sums(&sums.dalpha, dalpha)?,
            None => {}
        }
        Ok(())
    }
}

/// Jobs for `dx` and `dw`, rounded once.
fn products<'a, T: Real, Z: Real<Compute = T::Compute>>(
    sizes: Sizes,
    [x, w]: [&'a [T]; 2],
    dz: &'a [Z],
    gradients: &'a mut Gradients<'_, T>,
) -> Result<Vec<Job<'a, Room<T::Compute>>>> {
    let Sizes { batch, inputs, outputs } = sizes;
    let mut jobs = Vec::new();
    if let Some(dx) = &mut gradients.dx {
        let (lhs, rhs, beta) = (Matrix::rows(dz, outputs), Matrix::rows(w, inputs), T::Compute::of(dx.beta));
        let product = Product { lhs, rhs, shape: [batch, inputs], depth: outputs };
        jobs.extend(product.jobs([dx.tensor.host_mut()?], move |sums, _, [dx]| accumulate_all(dx, sums, beta)));
    }
    if let Some(dw) = &mut gradients.dw {
        let (lhs, rhs, beta) = (Matrix::columns(dz, outputs), Matrix::rows(x, inputs), T::Compute::of(dw.beta));
        let product = Product { lhs, rhs, shape: [outputs, inputs], depth: batch };
        jobs.extend(product.jobs([dw.tensor.host_mut()?], move |sums, _, [dw]| accumulate_all(dw, sums, beta)));
    }
    Ok(jobs)
}

fn add_sums<T: Real>(sums: &[f64], out: Out<'_, T>) -> Result<()> {
    for (out_element, &sum) in out.tensor.host_mut()?.iter_mut().zip(sums) {
        accumulate(out_element, T::Compute::of(sum), T::Compute::of(out.beta));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::dense;
    use crate::{Device, Tensor, f16};

    fn tensor<T: Real>(shape: [usize; 2], salt: usize) -> Tensor<T> {
        let value = |i: usize| T::of(((i * 7919 + salt) % 1009) as f64 / 1009.0 - 0.5);
        Tensor::from_vec(&Device::cpu(), &shape, (0..shape[0] * shape[1]).map(value).collect()).unwrap()
    }

    /// Values of a layer's results, as f64.
    fn results<T: Real>([batch, inputs, outputs]: [usize; 3]) -> Vec<Vec<f64>> {
        let (x, w) = (tensor::<T>([batch, inputs], 1), tensor::<T>([outputs, inputs], 2));
        let row = |salt| tensor::<T>([1, outputs], salt).reshape(&[outputs]).unwrap();
        let (b, dy) = (row(3), tensor::<T>([batch, outputs], 4));
        let alpha = tensor::<T::Compute>([1, outputs], 5).reshape(&[outputs]).unwrap();
        let act = Activation::Prelu(&alpha);
        let out = dense::forward(&x, &w, Some(&b), act).unwrap();
        let [mut dx, mut dw, mut db] = [x.clone(), w.clone(), b.clone()];
        let mut dalpha = alpha.clone();
        let gradients = Gradients {
            dx: Some(Out { tensor: &mut dx, beta: 2.0 }),
            dw: Some(Out { tensor: &mut dw, beta: 2.0 }),
            db: Some(Out::write(&mut db)),
            dalpha: Some(Out::write(&mut dalpha)),
        };
        dense::backward(&x, &w, act, &out.saved, &dy, gradients).unwrap();
        let values = |t: &Tensor<T>| t.host().unwrap().iter().map(|v| v.f64()).collect();
        let dalpha = dalpha.host().unwrap().iter().map(|v| v.f64()).collect();
        vec![values(&out.y), values(&dx), values(&dw), values(&db), dalpha]
    }

    /// Sizes of one block and of many, with remainders of tiles, lines and depth.
    const SIZES: [[usize; 3]; 5] = [[300, 200, 130], [1, 3000, 500], [2000, 9, 17], [40, 5000, 31], [150, 1100, 333]];

    /// The same bits whatever the number of threads.
    #[test]
    fn order_of_sums_does_not_depend_on_the_threads() {
        fn check<T: Real>(sizes: [usize; 3]) {
            let run = |threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| results::<T>(sizes))
            };
            let expected = run(1);
            for threads in [2, 3, 7] {
                assert!(run(threads) == expected, "{sizes:?} on {threads} threads");
            }
        }
        for sizes in SIZES {
            check::<f32>(sizes);
            check::<f16>(sizes);
        }
    }

    /// Blocks of products put where they belong: as in f64, of which [`Slope`]'s formulas are checked elsewhere.
    #[test]
    fn sizes_of_many_blocks_are_right() {
        for sizes in SIZES {
            for (what, (got, expected)) in results::<f32>(sizes).iter().zip(results::<f64>(sizes)).enumerate() {
                let scale = expected.iter().fold(1.0f64, |most, v| most.max(v.abs()));
                let off = got.iter().zip(&expected).map(|(got, expected)| (got - expected).abs());
                let off = off.fold(0.0, f64::max);
                assert!(off < 1e-5 * scale, "{sizes:?}, result {what}: {off} of {scale}");
            }
        }
    }
}
