//! Elements that are computed with in another type: converted some at a time, so that they stay in the nearest cache.

use std::iter;
use std::ops::Range;

use multiversion::multiversion;

use crate::{Compute, Real};

/// Elements that are converted before they are computed with. As `f32` four such blocks take half of a small first cache.
pub(crate) const BLOCK: usize = 1024;

/// `values`, to compute with: themselves where that is their type, else converted once, in `room`.
#[inline]
pub(crate) fn widened<'a, T: Real>(values: &'a [T], room: &'a mut Vec<T::Compute>) -> &'a [T::Compute] {
    if let Some(values) = T::as_compute(values) {
        return values;
    }
    room.resize(values.len(), T::Compute::of(0.0));
    T::widen_all(values, room);
    room
}

/// `out = f's results + beta * out`, rounded once: `f` gets memory for them, `out` itself where that can be, else `room`.
/// It has to write all of it.
#[inline(always)]
pub(crate) fn rounding<T: Real>(
    out: &mut [T],
    beta: T::Compute,
    room: &mut Vec<T::Compute>,
    f: impl FnOnce(&mut [T::Compute]),
) {
    if beta == T::Compute::of(0.0)
        && let Some(out) = T::as_compute_mut(out)
    {
        return f(out);
    }
    room.resize(out.len(), T::Compute::of(0.0));
    f(room);
    accumulate_all(out, room, beta);
}

/// `out = result + beta * out`, rounded to `T` once; with `beta = 0`, `out` is not read.
#[inline(always)]
pub fn accumulate<T: Real>(out: &mut T, result: T::Compute, beta: T::Compute) {
    let zero = <T::Compute as num_traits::Zero>::zero();
    *out = T::narrow(if beta == zero { result } else { result + beta * out.widen() });
}

/// [`accumulate`] for each of `out`.
pub(crate) fn accumulate_all<T: Real>(out: &mut [T], results: &[T::Compute], beta: T::Compute) {
    let zero = T::Compute::of(0.0);
    if beta == zero {
        return T::narrow_all(results, out);
    }
    let (mut before, mut sums) = (Vec::new(), [zero; BLOCK]);
    for (out, results) in out.chunks_mut(BLOCK).zip(results.chunks(BLOCK)) {
        let sums = &mut sums[..out.len()];
        add_scaled(sums, results, widened(out, &mut before), beta);
        T::narrow_all(sums, out);
    }
}

#[multiversion(targets("x86_64+avx2"))]
fn add_scaled<C: Compute>(sums: &mut [C], results: &[C], before: &[C], beta: C) {
    for (sum, (result, before)) in sums.iter_mut().zip(results.iter().zip(before)) {
        *sum = *result + beta * *before;
    }
}

/// `out[i] = f(inputs[..][i]) + beta * out[i]` for every `i`.
pub(crate) fn map_all<T: Real, const N: usize>(
    out: &mut [T],
    beta: T::Compute,
    inputs: [&[T]; N],
    f: impl Fn([T::Compute; N]) -> T::Compute,
) {
    let (mut rooms, mut room) = ([const { Vec::new() }; N], Vec::new());
    for places in blocks(out.len()) {
        let mut whole = inputs.into_iter();
        let inputs = rooms.each_mut().map(|room| {
            let input = whole.next().expect("a room for each input");
            widened(&input[places.clone()], room)
        });
        rounding(&mut out[places], beta, &mut room, |out| each(out, inputs, iter::repeat(()), |inputs, ()| f(inputs)));
    }
}

/// `out[i] = f(out[i])` for every `i`.
pub(crate) fn map_all_in_place<T: Real>(out: &mut [T], f: impl Fn(T::Compute) -> T::Compute) {
    if let Some(out) = T::as_compute_mut(out) {
        return each_in_place(out, &f);
    }
    let mut room = [T::Compute::of(0.0); BLOCK];
    for places in blocks(out.len()) {
        let (out, room) = (&mut out[places.clone()], &mut room[..places.len()]);
        T::widen_all(out, room);
        each_in_place(room, &f);
        T::narrow_all(room, out);
    }
}

/// So many elements, some at a time.
pub(crate) fn blocks(len: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(BLOCK).map(move |first| first..len.min(first + BLOCK))
}

/// `out[i] = f(inputs[..][i], parameter i)` for every `i`.
///
/// # Panics
/// When an input is shorter than `out`.
#[multiversion(targets("x86_64+avx2"))]
pub(crate) fn each<C: Compute, P: Iterator, const N: usize>(
    out: &mut [C],
    inputs: [&[C]; N],
    parameters: P,
    f: impl Fn([C; N], P::Item) -> C,
) {
    let inputs = inputs.map(|input| &input[..out.len()]);
    for ((i, out), parameter) in out.iter_mut().enumerate().zip(parameters) {
        *out = f(inputs.map(|input| input[i]), parameter);
    }
}

#[multiversion(targets("x86_64+avx2"))]
fn each_in_place<C: Compute>(out: &mut [C], f: impl Fn(C) -> C) {
    out.iter_mut().for_each(|out| *out = f(*out));
}
