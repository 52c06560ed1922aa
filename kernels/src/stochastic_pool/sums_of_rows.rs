//! The draw from a window that is [summed by rows](super::by_rows), whose rows' sums are at hand.

use cuda_std::prelude::*;

/// Rows and columns of a square window whose size is compiled in, at most.
const MOST: usize = 11;

/// What is counted from, in `f32`, whose additions can be predicated: a 1 that is added is the last bit's.
const COUNTED: f32 = (1 << (f32::MANTISSA_DIGITS - 1)) as f32;

/// How many ones were added to [`COUNTED`].
#[device_inline]
fn counted(count: f32) -> u32 {
    count.to_bits() - COUNTED.to_bits()
}

/// Where the rows' sums of a window and its weights are, with zeros for what is outside the image.
pub(super) trait Summed {
    /// Where a row's weights are.
    type Row: Copy;

    /// The sum of a row's weights, one after another from the left.
    ///
    /// # Safety
    /// The window has such a row.
    unsafe fn sum(&self, row: u32) -> f32;

    /// That of a row.
    ///
    /// # Safety
    /// The window has such a row.
    unsafe fn row(&self, row: u32) -> Self::Row;

    /// The weight at a row and a column.
    ///
    /// # Safety
    /// The window has such a column.
    unsafe fn weight(&self, row: Self::Row, column: u32) -> f32;
}

/// What was drawn.
pub(super) struct Drawn {
    pub position: u32,
    pub value: f32,
    /// Whether it was not: rounding keeps the sums from passing, or they are not finite. Then it is for
    /// [`Elements::draw`](super::elements::Elements::draw).
    pub again: bool,
}

/// Draws from a window of this height and width; of `SIZE` by `SIZE` positions, unless that is 0.
///
/// Sums of what is not negative never fall. So the row is the one before whose end as many sums lie as do not pass, the position in it likewise,
/// and no row or column of zeros is drawn from: its sum passes where the one before does, or neither.
///
/// # Safety
/// `of` is a window of that size.
#[device_inline]
pub(super) unsafe fn draw<const SIZE: usize>(of: &impl Summed, [height, width]: [u32; 2], uniform: f32) -> Drawn {
    // SAFETY: the caller's: rows and columns are the window's.
    unsafe {
        let (row, column, sum, until) = if SIZE > 0 {
            let mut up_to = [0.0; MOST];
            // All are loaded before any is used.
            unrolled!(I in [0 1 2 3 4 5 6 7 8 9 10] { if I < SIZE { up_to[I] = of.sum(I as u32); } });
            unrolled!(I in [1 2 3 4 5 6 7 8 9 10] { if I < SIZE { up_to[I] += up_to[I - 1]; } });
            let sum = up_to[SIZE - 1];
            let until = uniform * sum;
            let (mut row, mut before) = (COUNTED, 0.0);
            unrolled!(I in [0 1 2 3 4 5 6 7 8 9] {
                if I + 1 < SIZE {
                    let passed_over = up_to[I] <= until;
                    row = float::add_if(passed_over, row, 1.0);
                    before = if passed_over { up_to[I] } else { before };
                }
            });
            let row = counted(row);
            let (mut weights, of_row) = ([0.0; MOST], of.row(row));
            // The last is not asked for.
            unrolled!(J in [0 1 2 3 4 5 6 7 8 9] { if J + 1 < SIZE { weights[J] = of.weight(of_row, J as u32); } });
            let (mut column, mut so_far) = (COUNTED, 0.0);
            unrolled!(J in [0 1 2 3 4 5 6 7 8 9] {
                if J + 1 < SIZE {
                    so_far += weights[J];
                    column = float::add_if(before + so_far <= until, column, 1.0);
                }
            });
            (row, counted(column), sum, until)
        } else {
            let (mut sum, mut i) = (0.0, 0);
            while i < height {
                sum += of.sum(i);
                i += 1;
            }
            let until = uniform * sum;
            let (mut row, mut before) = (0, 0.0);
            while row + 1 < height {
                let up_to = before + of.sum(row);
                if up_to > until {
                    break;
                }
                before = up_to;
                row += 1;
            }
            let (mut column, mut so_far, of_row) = (0, 0.0, of.row(row));
            while column + 1 < width {
                so_far += of.weight(of_row, column);
                if before + so_far > until {
                    break;
                }
                column += 1;
            }
            (row, column, sum, until)
        };
        if sum == 0.0 {
            return Drawn { position: height * width, value: 0.0, again: false };
        }
        let again = !((until < sum) & (sum < f32::INFINITY));
        Drawn { position: row * width + column, value: of.weight(of.row(row), column), again }
    }
}
