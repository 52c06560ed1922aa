//! Pixels brought in another order.

use multiversion::multiversion;

use crate::device::{accumulate, accumulate_all};
use crate::ops::rows::zip_strided;
use crate::{Compute, Real};

/// Rows of pixels in order of their remainder modulo `count`: pixel `i` of row `r` stands at `[i % count][r][i / count]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    pub count: usize,
    /// Elements of a pixel.
    pub lanes: usize,
    /// Rows that there is room for.
    pub rows: usize,
    /// Pixels that each row has of one remainder, at most.
    pub length: usize,
}

impl Parts {
    /// Elements in all.
    pub fn len(&self) -> usize {
        self.count * self.step()
    }

    /// Elements of one remainder.
    fn step(&self) -> usize {
        self.rows * self.line()
    }

    /// Elements of one remainder and row.
    pub fn line(&self) -> usize {
        self.length * self.lanes
    }

    /// Where pixel `i` of the first row stands.
    pub fn place(&self, i: usize) -> usize {
        i % self.count * self.step() + i / self.count * self.lanes
    }

    /// Rows of so many elements, in this order: in `room`, if that is another than theirs.
    pub fn of<'a, C: Compute>(&self, rows: &'a [C], line: usize, room: &'a mut Vec<C>) -> &'a [C] {
        if self.count == 1 {
            return rows;
        }
        room.resize(self.len(), C::zero());
        part(room, rows, line, self);
        room
    }

    /// The other way: `rows = parts + beta * rows`.
    pub fn join<T: Real>(&self, rows: &mut [T], line: usize, parts: &[T::Compute], beta: T::Compute) {
        match (self.count, self.lanes) {
            (1, _) => accumulate_all(rows, &parts[..rows.len()], beta),
            (2, 1) => join::<2, T>(rows, line, parts, self, beta),
            (3, 1) => join::<3, T>(rows, line, parts, self, beta),
            (4, 1) => join::<4, T>(rows, line, parts, self, beta),
            _ => {
                for (row, out) in rows.chunks_mut(line).enumerate() {
                    for remainder in 0..self.count {
                        let parts = parts[remainder * self.step() + row * self.line()..].chunks(self.lanes);
                        let pixels = out.chunks_mut(self.lanes).skip(remainder).step_by(self.count);
                        for (out, value) in pixels.zip(parts).flat_map(|(pixel, part)| pixel.iter_mut().zip(part)) {
                            accumulate(out, *value, beta);
                        }
                    }
                }
            }
        }
    }
}

#[multiversion(targets("x86_64+avx2"))]
fn part<C: Compute>(parts: &mut [C], rows: &[C], line: usize, order: &Parts) {
    for (row, pixels) in rows.chunks(line).enumerate() {
        for remainder in 0..order.count {
            let part = &mut parts[remainder * order.step() + row * order.line()..][..order.line()];
            if order.lanes == 1 {
                let pixels = pixels.get(remainder..).unwrap_or_default();
                let part = part.iter_mut().take(pixels.len().div_ceil(order.count));
                zip_strided(part, pixels, order.count, |part, value| *part = value);
            } else {
                let pixels = pixels.chunks(order.lanes).skip(remainder).step_by(order.count);
                for (part, value) in
                    part.chunks_mut(order.lanes).zip(pixels).flat_map(|(part, pixel)| part.iter_mut().zip(pixel))
                {
                    *part = *value;
                }
            }
        }
    }
}

/// Of pixels of one element.
#[multiversion(targets("x86_64+avx2"))]
fn join<const COUNT: usize, T: Real>(
    rows: &mut [T],
    line: usize,
    parts: &[T::Compute],
    order: &Parts,
    beta: T::Compute,
) {
    for (row, out) in rows.chunks_mut(line).enumerate() {
        let parts: [_; COUNT] =
            std::array::from_fn(|remainder| &parts[remainder * order.step() + row * order.line()..][..order.line()]);
        let (chunks, rest) = out.as_chunks_mut::<COUNT>();
        for (out, part) in rest.iter_mut().zip(parts) {
            accumulate(out, part[chunks.len()], beta);
        }
        let parts = parts.map(|part| &part[..chunks.len()]);
        for (i, chunk) in chunks.iter_mut().enumerate() {
            for (out, part) in chunk.iter_mut().zip(parts) {
                accumulate(out, part[i], beta);
            }
        }
    }
}
