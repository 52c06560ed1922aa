//! Backward, stage 1, by columns of the matrix `[outer, channels * inner]`.

use cuda_std::prelude::*;

use super::{part, slope};
use crate::window::Divider;

/// Threads of a block: one block a multiprocessor, with 128 registers a thread, leaves half as many partial sums as two.
pub const COLUMN_BLOCK: u32 = 512;
/// Rows that a thread loads before it uses the first.
const AT_ONCE: usize = 2;
/// Blocks over the rows at most: as many as an H200 has room for at once, so that all go through memory together. More leave more
/// partial sums.
const MOST_BLOCKS: u64 = 132;

/// How a block is laid over rows of a matrix: threads beside each other over columns, and as often as there is room.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Columns of the matrix.
    columns: u32,
    /// Threads beside each other.
    beside: u32,
    by_beside: Divider,
    by_inner: Divider,
}

// SAFETY: `repr(C)` with only `u32` inside.
unsafe impl KernelParam for Columns {}

impl Columns {
    /// Over `[outer, channels * inner]`, `each` columns a thread, of which these are a multiple; and the grid.
    pub fn new(outer: u64, columns: u32, inner: u32, each: u32) -> (Self, [u32; 3]) {
        let units = columns / each;
        let (beside, across) = (units.min(COLUMN_BLOCK), u64::from(units.div_ceil(COLUMN_BLOCK)));
        // What a block takes in one go.
        let rows = u64::from(COLUMN_BLOCK / beside) * AT_ONCE as u64;
        let blocks = outer.div_ceil(rows).min((MOST_BLOCKS / across).max(1));
        let [by_beside, by_inner] = [beside, inner].map(Divider::new);
        (Self { columns, beside, by_beside, by_inner }, [blocks as u32, across as u32, 1])
    }
}

/// Backward, stage 1, for small planes, `EACH` columns a thread. The grid's blocks take rows in turns, so that all that is under
/// way at a time is beside each other in memory.
///
/// # Safety
/// The module's; `columns` are of the `outer` rows with the launch's grid, and a multiple of `EACH`.
#[kernel(
    block = COLUMN_BLOCK,
    min_blocks = 1,
    instances((T, A, EACH) = [
        (f32, f32, 1), (f32, f32, 4),
        (f16, f16, 1), (f16, f16, 4), (f16, f16, 8), (f16, f32, 1), (f16, f32, 4), (f16, f32, 8),
        (bf16, bf16, 1), (bf16, bf16, 4), (bf16, bf16, 8), (bf16, f32, 1), (bf16, f32, 4), (bf16, f32, 8),
    ])
)]
pub unsafe fn prelu_backward_columns<T: Storage, A: Storage, const EACH: usize>(
    x: Global<T>,
    alpha: Global<A>,
    dy: Global<T>,
    dx: Option<GlobalMut<T>>,
    dx_beta: f32,
    sums: Option<GlobalMut<f32>>,
    outer: u64,
    columns: Columns,
) {
    let Columns { columns, beside, by_beside, by_inner } = columns;
    let line = by_beside.divide(thread::thread_idx_x());
    let column = (thread::block_idx_y() * COLUMN_BLOCK + thread::thread_idx_x() - line * beside) * EACH as u32;
    let at_once = by_beside.divide(COLUMN_BLOCK);
    let here = (column < columns) & (line < at_once);
    let mut total = [0.0; EACH];
    // SAFETY: the thread's columns exist where it is `here`, and the rows before `outer` do; `EACH` columns begin at a multiple of
    // as many in a row that is one.
    unsafe {
        if here {
            let mut slopes = [0.0; EACH];
            unrolled!(K in [0 1 2 3 4 5 6 7] {
                if K < EACH { slopes[K] = alpha.load(by_inner.divide(column + K as u32) as usize).to_f32(); }
            });
            // From a row that the thread has at a time to the next, and from those of one turn to those of the next.
            let step = at_once as usize * columns as usize;
            let turn = AT_ONCE * step * thread::grid_dim_x() as usize;
            let first = thread::block_idx_x() as usize * AT_ONCE * at_once as usize + line as usize;
            let mut i = first * columns as usize + column as usize;
            let end = outer as usize * columns as usize;
            let load = |i: usize| {
                let mut loaded = [[[0; 4]; 2]; AT_ONCE];
                unrolled!(R in [0 1] {
                    if R < AT_ONCE {
                        let i = i + R * step;
                        loaded[R] = [x, dy].map(|from| load_each::<T, EACH>(from, i < end, i));
                    }
                });
                loaded
            };
            let mut give = |loaded: [[[u32; 4]; 2]; AT_ONCE], i: usize| {
                unrolled!(R in [0 1] {
                    if R < AT_ONCE {
                        let i = i + R * step;
                        let [x, dy] = loaded[R].map(|words| numbers::<T, EACH>(words));
                        let mut result = [0.0; EACH];
                        unrolled!(K in [0 1 2 3 4 5 6 7] {
                            if K < EACH {
                                // Zeros, where there is nothing, add nothing.
                                total[K] += part(x[K], dy[K]);
                                result[K] = slope(x[K], slopes[K]) * dy[K];
                            }
                        });
                        if let Some(dx) = dx
                            && i < end
                        {
                            put_each(dx, i, result, dx_beta);
                        }
                    }
                });
            };
            // The next turn's rows are on their way while these are worked with. By turns in two variables: moved from one to the
            // other, what is loaded would be waited for.
            let mut here = load(i);
            while i < end {
                let next = load(i + turn);
                give(here, i);
                i += turn;
                here = load(i + turn);
                give(next, i);
                i += turn;
            }
        }
        // The block's lines, one after another.
        let lines = shared_array![f32; COLUMN_BLOCK as usize * 8];
        unrolled!(K in [0 1 2 3 4 5 6 7] {
            if K < EACH { lines.store(K as u32 * COLUMN_BLOCK + thread::thread_idx_x(), total[K]); }
        });
        thread::sync_threads();
        let Some(sums) = sums else { return };
        // A thread a column, those of a thread above one after another.
        let first = thread::block_idx_y() * (COLUMN_BLOCK * EACH as u32);
        let mut number = thread::thread_idx_x();
        while number < beside * EACH as u32 && first + number < columns {
            let mut sum = 0.0;
            let mut place = number % EACH as u32 * COLUMN_BLOCK + number / EACH as u32;
            let mut line = 0;
            while line < at_once {
                let mut loaded = [0.0; 8];
                unrolled!(L in [0 1 2 3 4 5 6 7] {
                    loaded[L] = lines.load_if(line + (L as u32) < at_once, place + L as u32 * beside, 0.0);
                });
                unrolled!(L in [0 1 2 3 4 5 6 7] { sum += loaded[L]; });
                place += 8 * beside;
                line += 8;
            }
            sums.store(thread::block_idx_x() as usize * columns as usize + (first + number) as usize, sum);
            number += COLUMN_BLOCK;
        }
    }
}

/// The words of `EACH` elements from `i` on, 1, 4 or, of 16 bits, 8, or zeros.
///
/// # Safety
/// `from` holds them where the predicate is true, and they begin at a multiple of all together.
#[device_inline]
unsafe fn load_each<T: Storage, const EACH: usize>(from: Global<T>, predicate: bool, i: usize) -> [u32; 4] {
    // SAFETY: the caller's; elements are bits, two or four bytes of them.
    unsafe {
        let words = from.cast::<u32>();
        match (EACH, size_of::<T>()) {
            (1, 2) => [u32::from(from.cast::<u16>().load_if(predicate, i, 0)), 0, 0, 0],
            (1, _) => [words.load_if(predicate, i, 0), 0, 0, 0],
            (4, 2) => {
                let Vec2 { x, y } = words.load2_if(predicate, i / 2, Vec2::splat(0));
                [x, y, 0, 0]
            }
            (_, size) => words.load4_if(predicate, i * size / 4, Vec4::splat(0)).to_array(),
        }
    }
}

/// The `EACH` elements of these words, as arithmetic takes them.
#[device_inline]
fn numbers<T: Storage, const EACH: usize>(words: [u32; 4]) -> [f32; EACH] {
    // SAFETY: the words hold as many elements, of which any bits are one.
    unsafe { core::mem::transmute_copy::<_, [T; EACH]>(&words) }.map(T::to_f32)
}

/// [`put`] of `EACH` elements, 1, 4 or, of 16 bits, 8.
///
/// # Safety
/// `out` holds them, and they begin at a multiple of all together.
#[device_inline]
unsafe fn put_each<T: Storage, const EACH: usize>(out: GlobalMut<T>, i: usize, mut result: [f32; EACH], beta: f32) {
    // SAFETY: the caller's.
    unsafe {
        if beta != 0.0 {
            let before = numbers::<T, EACH>(load_each::<T, EACH>(out.as_global(), true, i));
            unrolled!(K in [0 1 2 3 4 5 6 7] {
                if K < EACH { result[K] = float::fma(beta, before[K], result[K]); }
            });
        }
        if EACH == 1 {
            out.store(i, T::from_f32(result[0]));
            return;
        }
        let mut rounded = [T::from_f32(0.0); EACH];
        unrolled!(K in [0 2 4 6] {
            if K + 1 < EACH { [rounded[K], rounded[K + 1]] = T::from_two_f32([result[K], result[K + 1]]); }
        });
        if EACH == 4 {
            out.store4(i, core::mem::transmute_copy::<_, Vec4<T>>(&rounded));
        } else {
            out.cast::<u32>().store4(i / 2, core::mem::transmute_copy::<_, Vec4<u32>>(&rounded));
        }
    }
}
