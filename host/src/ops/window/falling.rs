//! Windows with the channels last, by packs of these down strips of two columns of outputs.

use cuda_std::launch::LaunchDims;
use kernels::elements::Elements;
use kernels::falling::COLUMNS;
use kernels::packs::{PACKS_BLOCK, groups};
use kernels::window::{Nhwc, Window};

use crate::device::Gpu;

/// A launch's window, whose channels are packs, and its threads.
pub(crate) struct Falling {
    pub window: Window<Nhwc>,
    /// Bytes of a pack.
    pub bytes: u32,
    /// Of a group of packs, of which there are so many, in strips of so many rows.
    pub elements: Elements,
    pub lanes: u32,
    pub rows: u32,
    pub dims: LaunchDims,
}

/// Strips of a column, at most.
const MOST_STRIPS: u32 = 32;
/// What a strip's beginning takes, in rows.
const BEGINNING: u32 = 6;

impl Falling {
    /// Over a window of elements of so many bytes, by packs of up to `most`, of which so many blocks fit on a multiprocessor; `None` where there are too
    /// many to count.
    pub fn new(gpu: &Gpu, window: Window<Nhwc>, element: u32, most: u32, blocks: impl Fn(u32) -> u32) -> Option<Self> {
        let ([size, _], [stride, _]) = (window.size, window.stride);
        let (window, bytes) = of_packs(window, element, most)?;
        let [groups, lanes] = groups(window.channels);
        let of_plane = [window.input[0], window.input[1], window.channels].into_iter().map(u64::from).product::<u64>();
        if groups > u16::MAX.into() || of_plane >= 1 << 31 {
            return None;
        }
        let at_once = u64::from(gpu.at_once(blocks(bytes)));
        let of_group = Window { channels: lanes, ..window };
        let [height, width] = [window.output[0], window.output[1].div_ceil(COLUMNS)];
        let of_strips = u64::from(window.planes) * u64::from(width) * u64::from(lanes);
        // The strips whose waves of blocks have the fewest rows.
        let rows = (1..=MOST_STRIPS.min(height)).map(|strips| height.div_ceil(strips)).min_by_key(|&rows| {
            let blocks = (of_strips * u64::from(height.div_ceil(rows))).div_ceil(PACKS_BLOCK.into());
            let waves = (blocks * u64::from(groups)).div_ceil(at_once);
            waves * u64::from((rows - 1) * stride + size + BEGINNING)
        })?;
        let (elements, blocks) = Elements::new(&of_group, [height, width], rows, PACKS_BLOCK)?;
        let dims = LaunchDims::new([blocks, groups, 1], PACKS_BLOCK);
        Some(Self { window, bytes, elements, lanes, rows, dims })
    }
}

/// The window over packs, and the bytes of one: as many as channels of so many bytes are a multiple of, up to `most`.
pub(crate) fn of_packs(window: Window<Nhwc>, element: u32, most: u32) -> Option<(Window<Nhwc>, u32)> {
    let pixel = window.channels.checked_mul(element)?;
    let mut bytes = most;
    while bytes > element && !pixel.is_multiple_of(bytes) {
        bytes /= 2;
    }
    Some((Window { channels: pixel / bytes, ..window }, bytes))
}

/// Whether so many elements are enough. By so much less on the emulated grid, and no more, that small images go this way.
pub(crate) fn is_much(gpu: &Gpu, elements: u64, enough: u64) -> bool {
    elements >= if gpu.is_emulated() { (enough >> 9).min(6 << 10) } else { enough }
}

/// The window one apart whose pooling of `dy` is the pass backward.
pub(crate) fn turned(window: Window<Nhwc>) -> Window<Nhwc> {
    let padding = [0, 1].map(|axis| window.size[axis] - 1 - window.padding[axis]);
    Window { input: window.output, output: window.input, padding, ..window }
}
