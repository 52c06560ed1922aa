//! `dz`, and sums over the batch that come with it.

use std::any::Any;
use std::borrow::Cow;
use std::cell::Cell;

use multiversion::multiversion;

use super::product::Room;
use super::turns::{Job, take_turns};
use crate::device::widened;
use crate::ops::dense::Sizes;
use crate::{Compute, Real};

/// Elements that one job takes at least, in whole rows.
const CHUNK: usize = 16 * 1024;
/// Jobs at most: each keeps a sum per column, and these are added one after another.
const JOBS: usize = 64;
/// What an element costs, in multiplications of a product.
const COST: usize = 16;
/// Elements of `dz` up to which its memory is kept.
const KEPT: usize = 1 << 20;

/// One slope for each output, where one is for all, too.
pub(super) fn slopes<C: Compute>(alpha: &[C], outputs: usize) -> Cow<'_, [C]> {
    match *alpha {
        [one] => vec![one; outputs].into(),
        _ => alpha.into(),
    }
}

/// Sums over the batch, in f64, for each output.
#[derive(Clone, Default)]
pub(super) struct Sums {
    pub dz: Vec<f64>,
    pub dalpha: Vec<f64>,
}

impl Sums {
    fn zeros(outputs: usize) -> Self {
        Self { dz: vec![0.0; outputs], dalpha: vec![0.0; outputs] }
    }

    /// The jobs' sums, added in the jobs' order.
    pub fn total(parts: Vec<Self>, outputs: usize) -> Self {
        let sum = parts.into_iter().reduce(|mut sum, part| {
            add(&mut sum.dz, &part.dz);
            add(&mut sum.dalpha, &part.dalpha);
            sum
        });
        sum.unwrap_or_else(|| Self::zeros(outputs))
    }
}

/// Elements of the whole rows that one job takes. Depends on the sizes only, so that sums have one order on any number of threads.
fn chunk(sizes: Sizes) -> usize {
    (CHUNK / sizes.outputs).max(sizes.batch.div_ceil(JOBS)).max(1) * sizes.outputs
}

/// Jobs for the sums of `dy`'s columns, each with one of `parts`.
pub(super) fn column_sums<'a, T: Real, R>(
    sizes: Sizes,
    dy: &'a [T],
    parts: &'a mut Vec<Sums>,
) -> impl Iterator<Item = Job<'a, R>> {
    let chunks = dy.chunks(chunk(sizes));
    parts.resize(chunks.len(), Sums::default());
    chunks.zip(parts).map(move |(dy, part)| {
        Job::new(COST * dy.len(), move |_: &mut R| {
            let (mut sums, mut converted) = (Sums::zeros(sizes.outputs), Vec::new());
            for dy in dy.chunks_exact(sizes.outputs) {
                add(&mut sums.dz, widened(dy, &mut converted));
            }
            *part = sums;
        })
    })
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn add<C: Real>(sums: &mut [f64], terms: &[C]) {
    sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term.f64());
}

/// Memory of `dz`, this thread's again for its next pass where there is little: memory that comes from the system anew takes longer
/// to touch than `dz` to compute.
pub(super) struct Dz<C: 'static>(Vec<C>);

thread_local! {
    static DZ: Cell<Option<Box<dyn Any>>> = const { Cell::new(None) };
}

impl<C: Compute> Dz<C> {
    fn of_length(len: usize) -> Self {
        let kept = DZ.take().and_then(|kept| kept.downcast::<Vec<C>>().ok());
        let mut kept = kept.map_or_else(Vec::new, |kept| *kept);
        kept.resize(len, C::zero());
        Self(kept)
    }

    pub fn elements(&self) -> &[C] {
        &self.0
    }
}

impl<C> Drop for Dz<C> {
    fn drop(&mut self) {
        if self.0.capacity() <= KEPT {
            DZ.set(Some(Box::new(std::mem::take(&mut self.0))));
        }
    }
}

pub(super) fn dz_of_one<T: Real>(sizes: Sizes, dy: &[T], parts: &mut Vec<Sums>) -> Dz<T::Compute> {
    dz_by_rows(sizes, [dy], parts, true, |dz, [dy], sums| {
        dz.copy_from_slice(dy);
        add(&mut sums.dz, dy);
    })
}

pub(super) fn dz_of_relu<T: Real>(sizes: Sizes, y: &[T], dy: &[T], parts: &mut Vec<Sums>) -> Dz<T::Compute> {
    dz_by_rows(sizes, [y, dy], parts, true, |dz, [y, dy], sums| relu(dz, y, dy, &mut sums.dz))
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn relu<C: Compute>(dz: &mut [C], y: &[C], dy: &[C], sums: &mut [f64]) {
    for ((dz, sum), (y, dy)) in dz.iter_mut().zip(sums).zip(y.iter().zip(dy)) {
        *dz = if *y <= C::zero() { C::zero() } else { *dy };
        *sum += dz.f64();
    }
}

pub(super) fn dz_of_prelu<T: Real>(
    sizes: Sizes,
    z: &[T],
    alpha: &[T::Compute],
    dy: &[T],
    parts: &mut Vec<Sums>,
) -> Dz<T::Compute> {
    dz_by_rows(sizes, [z, dy], parts, false, |dz, operands, sums| prelu(dz, operands, alpha, sums))
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn prelu<C: Compute>(dz: &mut [C], [z, dy]: [&[C]; 2], alpha: &[C], sums: &mut Sums) {
    let sums = sums.dz.iter_mut().zip(&mut sums.dalpha);
    for (((dz, (sum, of_slope)), alpha), (z, dy)) in dz.iter_mut().zip(sums).zip(alpha).zip(z.iter().zip(dy)) {
        // NaN counts as not positive, so that it comes out as NaN.
        let positive = *z > C::zero();
        *dz = if positive { C::one() } else { *alpha } * *dy;
        *sum += dz.f64();
        *of_slope += if positive { 0.0 } else { z.f64() * dy.f64() };
    }
}

/// `dz` as `row` makes it of rows of `operands`, with what comes to the sums; then rounded to `T` if that is not done yet.
fn dz_by_rows<'a, T: Real, const N: usize>(
    sizes: Sizes,
    operands: [&'a [T]; N],
    parts: &mut Vec<Sums>,
    is_rounded: bool,
    row: impl Fn(&mut [T::Compute], [&[T::Compute]; N], &mut Sums) + Sync,
) -> Dz<T::Compute> {
    let (outputs, chunk, len) = (sizes.outputs, chunk(sizes), sizes.batch * sizes.outputs);
    let mut made = Dz::of_length(len);
    parts.resize(len.div_ceil(chunk), Sums::default());
    let chunks = made.0.chunks_mut(chunk).zip(parts).zip((0..len).step_by(chunk));
    let jobs = chunks.map(|((dz, part), first)| {
        let row = &row;
        // Of the type that products have, so that what a thread keeps for those stays.
        Job::new(COST * dz.len(), move |_: &mut Room<T::Compute>| {
            let (mut sums, mut converted, mut rounded) = (Sums::zeros(outputs), [const { Vec::new() }; N], Vec::new());
            for (number, dz) in dz.chunks_exact_mut(outputs).enumerate() {
                let at = first + number * outputs;
                let mut room = converted.iter_mut();
                let of_row = |operand: &'a [T]| widened(&operand[at..][..outputs], room.next().expect("one each"));
                row(dz, operands.map(of_row), &mut sums);
                if !is_rounded && T::as_compute(&[]).is_none() {
                    rounded.resize(outputs, T::default());
                    T::narrow_all(dz, &mut rounded);
                    T::widen_all(&rounded, dz);
                }
            }
            *part = sums;
        })
    });
    take_turns(jobs.collect());
    made
}
