//! Images whose channels are neighbours, brought into the order of planes.

use std::ops::Range;

use super::rows::Rows;
use crate::{Compute, Real};

/// Rows of some planes of an image whose channels are neighbours, brought apart: plane after plane, and widened.
pub(super) struct Apart<C> {
    values: Vec<C>,
    rows: Range<usize>,
    width: usize,
    first_channel: usize,
}

impl<C: Compute> Apart<C> {
    /// Of image number `n` of those with so many channels in all, of this height and width.
    pub fn new<T: Real<Compute = C>>(
        images: &[T],
        [n, all]: [usize; 2],
        [height, width]: [usize; 2],
        rows: &Range<usize>,
        channels: &Range<usize>,
    ) -> Self {
        let mut values = vec![C::zero(); channels.len() * rows.len() * width];
        let pixels = images[(n * height + rows.start) * width * all..].chunks(all).take(rows.len() * width);
        for (i, pixel) in pixels.enumerate() {
            let places = values[i..].iter_mut().step_by(rows.len() * width);
            places.zip(&pixel[channels.clone()]).for_each(|(place, value)| *place = value.widen());
        }
        Self { values, rows: rows.clone(), width, first_channel: channels.start }
    }

    pub fn rows(&self, channel: usize) -> Rows<'_, C> {
        let plane = self.rows.len() * self.width;
        let values = &self.values[(channel - self.first_channel) * plane..][..plane];
        Rows { values, first: self.rows.start, width: self.width }
    }
}
