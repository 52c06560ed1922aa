//! The names of pooling's ways, for who asks what was chosen.

use kernels::window::Order;

use crate::device::explain::{self, Because};

/// Which of pooling's kernels a launch takes, for who asks.
#[derive(Clone, Copy)]
pub(crate) enum Kernels {
    /// By bands, the window's size known when compiled.
    Bands,
    /// The same, two columns a thread.
    Pairs,
    /// By whole windows in registers.
    Pieces,
    /// By runs of elements.
    Shares,
    /// By what a few windows beside each other have of a row.
    Spans,
    /// By meshes as large as windows are apart.
    Meshes,
    /// By the sums of rows, which windows below each other share.
    SumsOfRows,
    /// By bands, for any window.
    AnyBands,
    /// A warp an output.
    Warps,
    /// By chunks of 16 bytes of windows' rows.
    Chunks,
    /// A thread a whole plane, or some.
    Wholes,
    /// Threads of a block sharing windows by rows.
    Rows,
    /// By patches.
    Patches,
    /// The same, of eight channels.
    Octets,
    /// Of 16 bits, by fours of windows of a row.
    Quads,
    /// Four windows a thread, straight from memory.
    Fours,
    /// Two windows beside each other of two channels a thread, straight from memory.
    Twos,
    /// By vectors of channels.
    Vectors,
    /// The same, threads of a block sharing a window.
    Slices,
    /// A few elements one below the other a thread.
    Below,
    /// By packs of channels down strips of two columns.
    Falling,
    /// By tiles of inputs, whose gradients are added up in shared memory.
    Tiles,
    /// By warps that go down several planes abreast.
    Abreast,
    /// An element a thread, for any layout and any size.
    General,
}

/// Why spans, of Gaussians too.
pub(crate) const BY_SPANS: &str =
    "a few windows beside each other a thread, straight from memory, of columns compiled in and any number of rows";

impl Kernels {
    /// Says so, and why, of launches until what is returned is dropped.
    pub fn because<L: Order>(self, window: &kernels::window::Window<L>) -> Because {
        let pair = |[a, b]: [u32; 2]| format!("{a}x{b}");
        explain::because(|| {
            let kernels::window::Window { size, stride, padding, dilation, input, .. } = *window;
            let layout = if L::CHANNELS_LAST { "with the channels last" } else { "row-major" };
            let why = match self {
                Self::Bands => "by bands of rows in shared memory, of a size compiled in",
                Self::Pairs => {
                    "by bands of rows in shared memory, of a size compiled in, two columns a thread: rows are a multiple of four"
                }
                Self::Pieces => "by whole windows in registers, of a size compiled in, which share little or are few",
                Self::Shares => "by runs of elements, of windows that are far apart",
                Self::Spans => BY_SPANS,
                Self::Meshes => {
                    "a thread a mesh as large as windows are apart, of a stride and a number of meshes compiled in"
                }
                Self::SumsOfRows if L::CHANNELS_LAST => {
                    "a thread down a column of a channel's outputs, each row of windows added up once"
                }
                Self::SumsOfRows => "by tiles of outputs in shared memory, each row of windows added up once",
                Self::AnyBands => {
                    "by bands of rows in shared memory, which have room; the size has no kernel of its own"
                }
                Self::Warps => {
                    "a warp an output, or several: the window is large, and outputs are few, or a band of rows has no room for it"
                }
                Self::Chunks => "lanes of a warp share a window, whose rows are whole chunks of 16 bytes",
                Self::Wholes => {
                    "a thread or a few lanes a whole plane, which is in shared memory: the window is the plane, and small"
                }
                Self::Rows => "threads of a block take a row each of a few windows, which are large and summed by rows",
                Self::Patches => "by patches of a size compiled in, the channels being a multiple of four",
                Self::Octets => {
                    "by patches of a size compiled in, of 16 bits and a multiple of eight channels, two at a time"
                }
                Self::Quads => {
                    "four windows a row and thread, of a size compiled in: of 16 bits, and rows are a multiple of eight"
                }
                Self::Twos => {
                    "two windows beside each other of two channels a thread, of a size compiled in, straight from memory"
                }
                Self::Fours => "four windows a thread, of a size compiled in, straight from memory",
                Self::Vectors => {
                    "by vectors of 16 bytes of channels, of which these are a multiple; the size has no kernel of its own"
                }
                Self::Slices => {
                    "by vectors of 16 bytes of channels, threads of a block sharing a window: it is large, and outputs are few"
                }
                Self::Below => {
                    "four outputs one below the other a thread: windows overlap, and channels are not whole vectors of 16 bytes"
                }
                Self::Falling => {
                    "by packs of channels down strips of two columns, of a size compiled in: windows are one apart"
                }
                Self::Tiles => {
                    "by tiles of inputs, whose gradients are added up in shared memory: windows overlap, and have few positions"
                }
                Self::Abreast => {
                    "a warp down the rows of several planes abreast, a run of columns a lane: windows overlap"
                }
                Self::General if L::CHANNELS_LAST => {
                    "an element a thread: channels are not whole vectors of 16 bytes, or windows dilated"
                }
                Self::General => {
                    "an element a thread: there are few, a band of rows has no room in shared memory, or windows are dilated or too high"
                }
            };
            let [size, stride, padding, dilation, input] = [size, stride, padding, dilation, input].map(pair);
            format!("window {size} stride {stride} padding {padding} dilation {dilation} over {input} {layout}: {why}")
        })
    }
}
