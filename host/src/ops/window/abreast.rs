//! Row-major windows, by warps that go down the rows of several planes abreast.

use cuda_std::launch::LaunchDims;
use kernels::abreast::{ABREAST_BLOCK, Abreast, TOGETHER};
use kernels::window::{Divider, Nchw, Window};

use crate::device::Gpu;

/// How warps lie over a window's planes, and as many parts across as these have.
#[derive(Clone, Copy)]
pub(crate) struct Lying {
    pub abreast: Abreast,
    across: u32,
}

/// What a plane's row is.
pub(crate) struct Row<F> {
    /// Columns that are shared out in parts: of outputs forward, of inputs backward.
    pub columns: u32,
    /// Columns of outputs and of inputs of a part of so many.
    pub of_part: F,
}

/// Parts of a row, at most.
const MOST_ACROSS: u32 = 32;
/// Waves of blocks of which parts one below the other are tried, at most.
const MOST_WAVES: u64 = 4;
/// What a part's beginning takes, in rows.
const BEGINNING: u32 = 4;

impl Lying {
    /// By runs of so many columns of outputs, a lane loading up to so many elements of a row; in the fewest parts across. These have all rows yet.
    pub fn new<F: Fn(u32) -> [u32; 2]>(
        window: &Window<Nchw>,
        rows: u32,
        row: &Row<F>,
        run: u32,
        loads: u32,
    ) -> Option<Self> {
        (1..=MOST_ACROSS).find_map(|across| {
            let columns = row.columns.div_ceil(across);
            let [outputs, inputs] = (row.of_part)(columns);
            let lanes = outputs.div_ceil(run);
            let planes = (ABREAST_BLOCK / lanes).min(loads * ABREAST_BLOCK / outputs.max(inputs)).min(window.planes);
            let abreast = Abreast { planes, lanes, run, part: [rows, columns], by_columns: Divider::new(columns) };
            (planes > 0).then_some(Self { abreast, across: row.columns.div_ceil(columns) })
        })
    }

    /// Warps that go down planes, of which there are so many.
    pub fn warps(&self, planes: u32) -> u64 {
        u64::from(planes.div_ceil(self.abreast.planes)) * u64::from(self.across)
    }

    /// The launch by so many blocks at once, with so much shared memory for each, and parts of as many rows as make the fewest waves of these, each of
    /// which goes over some `more`; `None` where there are too many to count.
    pub fn launch(
        mut self,
        gpu: &Gpu,
        window: &Window<Nchw>,
        blocks: u32,
        more: u32,
        shared: u32,
    ) -> Option<(Abreast, LaunchDims)> {
        let [rows, _] = self.abreast.part;
        let [of_input, of_output] =
            [window.input, window.output].map(|[height, width]| u64::from(height) * u64::from(width));
        if of_input.max(of_output) * u64::from(self.abreast.planes) >= 1 << 31 {
            return None;
        }
        let (warps, at_once) = (self.warps(window.planes), u64::from(gpu.at_once(blocks)));
        // The most parts that fill so many waves, of whole groups of rows that are stored together.
        let filling = (1..=MOST_WAVES).map(|waves| (waves * at_once / warps).clamp(1, rows.into()) as u32);
        let parts = filling.map(|down| rows.div_ceil(down).next_multiple_of(TOGETHER).min(rows));
        let of_part = parts.chain([rows]).min_by_key(|&of_part| {
            let waves = (warps * u64::from(rows.div_ceil(of_part))).div_ceil(at_once);
            waves * u64::from(of_part + more + BEGINNING)
        })?;
        self.abreast.part[0] = of_part;
        let grid = [window.planes.div_ceil(self.abreast.planes), rows.div_ceil(of_part), self.across];
        Some((self.abreast, LaunchDims::new(grid, ABREAST_BLOCK).with_shared(shared)))
    }
}
