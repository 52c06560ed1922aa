//! Images and windows that reach each way of the kernels for row-major images whose planes share their Gaussians or have a channel's.

use cuda_std::emulator::SANITIZED;
use ferrolayer::ops::Window;
use ferrolayer::ops::gaussian_pool::Normalize;
use ferrolayer::{Layout, bf16, f16};

use super::{Case, compare};
use crate::support::*;

/// Rows of a multiple of eight elements, of four and of any number, padded and not; of outputs an odd and an even number of rows, and
/// numbers in all that are a multiple of four or not; one block and several, the first of which end within 16 bytes; windows that end after the image,
/// below it or beside it, and that are padded on one axis alone; each size one and two apart; columns longer than a thread's run of rows.
pub(super) fn cases() -> Vec<Case> {
    let window = |size, stride, padding| Window::new([size; 2]).stride([stride; 2]).padding(padding);
    let three = |padding| window(3, 2, padding);
    let list = [
        ([2, 3, 9, 16], three([0; 2])),
        ([1, 2, 11, 16], three([1; 2])),
        ([3, 1, 7, 24], three([0; 2])),
        ([4, 40, 8, 64], three([0; 2])),
        ([1, 3, 6, 264], three([1; 2])),
        ([1, 5, 10, 8], three([0; 2]).ceil_mode(true)),
        ([1, 2, 10, 16], three([1; 2]).ceil_mode(true)),
        ([2, 2, 13, 12], three([1; 2])),
        ([1, 3, 12, 20], three([0; 2])),
        ([1, 1, 5, 1040], three([0; 2])),
        ([2, 3, 13, 13], three([0; 2])),
        ([5, 4, 14, 14], three([1; 2])),
        ([1, 3, 3, 3], three([0; 2])),
        ([1, 2, 9, 16], three([1, 0])),
        ([1, 2, 9, 13], three([0, 1]).ceil_mode(true)),
        ([2, 2, 7, 16], window(2, 2, [0; 2])),
        ([3, 2, 6, 12], window(2, 2, [0; 2])),
        ([1, 3, 7, 9], window(2, 2, [0; 2]).ceil_mode(true)),
        ([2, 2, 9, 12], window(3, 1, [1; 2])),
        ([1, 2, 8, 12], window(3, 1, [0; 2])),
        ([1, 3, 7, 7], window(3, 1, [1; 2])),
        ([1, 1, 9, 8], window(3, 1, [1, 0])),
        ([1, 1, 70, 20], window(5, 1, [2; 2])),
        ([2, 1, 9, 12], window(5, 1, [0; 2])),
        ([1, 2, 8, 9], window(5, 1, [1, 2])),
        ([1, 2, 33, 36], window(5, 2, [2; 2])),
        ([1, 1, 12, 24], window(5, 2, [0; 2])),
        ([2, 1, 11, 15], window(5, 2, [2; 2]).ceil_mode(true)),
        ([1, 2, 15, 20], window(7, 2, [3; 2])),
        ([1, 1, 16, 28], window(7, 2, [0; 2])),
        ([1, 2, 9, 11], window(7, 2, [3; 2])),
        ([1, 1, 28, 32], window(11, 2, [0; 2])),
        ([1, 2, 17, 24], window(11, 2, [5; 2])),
        ([1, 1, 13, 25], window(11, 2, [5, 4])),
    ];
    // Of each in three types on the emulated grid, where a sanitizer takes its time in one.
    let each = |(i, (x, window)): (usize, ([usize; 4], Window))| {
        (0..if SANITIZED { 1 } else { 3 }).map(move |j| {
            let whole = window.padding == [0; 2] && !window.ceil_mode;
            let normalize = if whole && (i + j) % 2 == 0 { Normalize::Valid } else { Normalize::Window };
            Case { x, layout: Layout::RowMajor, window, normalize, kernels: 1, shared: true, per_axis: j == 1 }
        })
    };
    list.into_iter().enumerate().flat_map(each).collect()
}

/// Several Gaussians: one for each channel, several a map, and both. A block has planes of one image and of several, fewer and more than there are
/// channels, and bands of one plane; more weights than threads, and fewer.
pub(super) fn several() -> Vec<Case> {
    let window = |size, stride, padding| Window::new([size; 2]).stride([stride; 2]).padding([padding; 2]);
    let list = [
        ([5, 3, 6, 6], window(2, 2, 0)),
        ([2, 70, 5, 4], window(2, 2, 0)),
        ([1, 3, 40, 44], window(2, 2, 0)),
        ([4, 5, 7, 7], window(3, 2, 0)),
        ([3, 7, 8, 8], window(3, 2, 1)),
        ([1, 2, 61, 97], window(3, 2, 1)),
        ([2, 2, 40, 64], window(3, 2, 1)),
        ([7, 9, 7, 7], window(3, 1, 1)),
        ([2, 3, 14, 16], window(3, 1, 1)),
        ([1, 2, 70, 68], window(3, 1, 0)),
        ([3, 33, 7, 7], window(5, 1, 2)),
        ([1, 2, 20, 24], window(5, 1, 2)),
        ([3, 5, 9, 8], window(5, 2, 2)),
        ([1, 2, 37, 41], window(5, 2, 0)),
        ([2, 70, 4, 4], window(7, 2, 3)),
        ([1, 3, 30, 28], window(7, 2, 3)),
        ([1, 2, 21, 24], window(11, 2, 5)),
        ([2, 3, 12, 16], window(4, 4, 0)),
        ([3, 5, 9, 10], window(4, 4, 0)),
        ([1, 4, 37, 32], window(4, 4, 0)),
        ([2, 3, 10, 12], window(3, 3, 0)),
        ([1, 1, 29, 31], window(3, 3, 0)),
    ];
    let each = |(i, (x, window)): (usize, ([usize; 4], Window))| {
        (0..3).map(move |j| {
            let (kernels, shared) = [(1, false), (2, true), (3, false)][(i + j) % 3];
            let (layout, normalize) = (Layout::RowMajor, Normalize::Window);
            Case { x, layout, window, normalize, kernels, shared, per_axis: (i + j) % 2 == 0 }
        })
    };
    list.into_iter().enumerate().flat_map(each).collect()
}

/// So many elements that a GPU goes the same ways, in each type; the largest, which reach kernels of 16 bits, in one. And blocks that have more to do.
pub(super) fn many_elements() -> Vec<Trial> {
    let window = |size, stride, padding| Window::new([size; 2]).stride([stride; 2]).padding([padding; 2]);
    let list = [
        ([16, 64, 27, 29], window(3, 2, 0)),
        ([8, 64, 35, 34], window(3, 2, 1)),
        ([4, 64, 52, 60], window(3, 2, 1)),
        ([36, 64, 66, 64], window(3, 2, 0)),
        ([36, 64, 65, 64], window(3, 2, 1)),
        ([16, 64, 33, 48], window(2, 2, 0)),
        ([16, 64, 27, 29], window(2, 2, 0)),
        ([8, 64, 36, 44], window(3, 1, 1)),
        ([8, 64, 35, 37], window(3, 1, 1)),
        ([8, 64, 36, 44], window(5, 1, 2)),
        ([8, 64, 35, 37], window(5, 1, 2)),
        ([8, 64, 37, 44], window(5, 2, 2)),
        ([8, 64, 35, 37], window(5, 2, 2)),
        ([8, 64, 37, 44], window(7, 2, 3)),
        ([8, 64, 35, 37], window(7, 2, 3)),
        ([8, 64, 37, 44], window(11, 2, 5)),
        // Rows of which a block has as much shared memory as it may.
        ([1, 4, 96, 1024], window(5, 2, 0)),
        ([1, 4, 64, 2048], window(7, 2, 3)),
        ([1, 2, 64, 1500], window(3, 1, 1)),
    ];
    // Blocks that take several bands or runs one after another, in both layouts, of a Gaussian that is shared and of one for each channel.
    let of_blocks = [
        ([48, 64, 32, 32], window(2, 2, 0)),
        ([48, 64, 31, 33], window(3, 2, 1)),
        ([48, 64, 32, 31], window(3, 1, 1)),
        ([48, 64, 30, 32], window(4, 4, 0)),
        ([48, 64, 32, 28], window(5, 1, 2)),
        ([48, 64, 31, 31], window(5, 2, 2)),
        ([48, 64, 28, 32], window(7, 2, 3)),
    ];
    let alone = list.map(|(x, window)| (x, window, Layout::RowMajor, true));
    let of_blocks = of_blocks.into_iter().enumerate().flat_map(|(i, (x, window))| {
        [Layout::RowMajor, Layout::ChannelsLast]
            .map(|layout| (x, window, layout, (i + layout as usize).is_multiple_of(2)))
    });
    let trial = |(i, (x, window, layout, shared)): (usize, ([usize; 4], Window, Layout, bool))| {
        let normalize = Normalize::Window;
        let case = Case { x, layout, window, normalize, kernels: 1, shared, per_axis: true };
        on_real_gpu(&format!("gaussian_pool::many_elements_match_cpu::{i}"), move |gpu| {
            let elements = x.iter().product::<usize>();
            if elements <= 1 << 22 {
                compare::<f32>(gpu, &case, 30)?;
            }
            if elements <= 1 << 20 {
                compare::<bf16>(gpu, &case, 30)?;
            }
            compare::<f16>(gpu, &case, 30)
        })
    };
    alone.into_iter().chain(of_blocks).enumerate().map(trial).collect()
}
