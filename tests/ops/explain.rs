//! `FERROLAYER_EXPLAIN=1`: what launches say of themselves.

use std::process::Command;

use ferrolayer::device::Gpu;
use ferrolayer::ops::dense::{self, Activation, Gradients};
use ferrolayer::ops::gaussian_pool::{self, Normalize};
use ferrolayer::ops::{Window, max_pool, prelu, relu};
use ferrolayer::{Device, Layout, Out, Tensor, f16};

use crate::support::*;

/// The test whose launches are explained.
const LAUNCHES: &str = "explain::launches_of_each_kind";

pub fn tests() -> Vec<Trial> {
    vec![on_cpu(LAUNCHES, launches), on_cpu("explain::says_once_what_was_chosen_and_why", says_once)]
}

/// A kernel that has no alternative, twice; products of two cuts, and one on tensor
/// cores; planes of both kinds; windows of all; Gaussians by bands and by strips.
fn launches() -> Outcome {
    let gpu = Device::Gpu(Gpu::emulated());
    let (x, w) = (Tensor::full(&gpu, &[3, 300], 0.5f32)?, Tensor::full(&gpu, &[5, 300], 0.5f32)?);
    for _ in 0..2 {
        relu::forward(&x)?;
        let output = dense::forward(&x, &w, None, Activation::Identity)?;
        let mut dx = x.empty_like()?;
        let gradients = Gradients { dx: Some(Out::write(&mut dx)), ..Gradients::default() };
        dense::backward(&x, &w, Activation::Identity, &output.saved, &output.y, gradients)?;
    }
    let (x, w) = (Tensor::full(&gpu, &[3, 304], f16::ONE)?, Tensor::full(&gpu, &[5, 304], f16::ONE)?);
    dense::forward_inference(&x, &w, None, Activation::Identity)?;
    for inner in [6, 260, 262] {
        let (x, alpha) = (Tensor::full(&gpu, &[2, 3, inner], -1.0f32)?, Tensor::full(&gpu, &[3], 0.25f32)?);
        let mut dx = x.empty_like()?;
        prelu::backward(&x, &alpha, &x, Some(Out::write(&mut dx)), None)?;
    }
    for shape in [[2, 3, 68], [2, 3, 70], [2, 3, 2], [7, 3, 1], [7, 4, 1]] {
        let (x, alpha) = (Tensor::full(&gpu, &shape, -1.0f32)?, Tensor::full(&gpu, &[shape[1]], 0.25f32)?);
        prelu::forward(&x, &alpha)?;
    }
    let (three, five) = (Window::new([3, 3]).stride([2, 2]).padding([1, 1]), Window::new([5, 4]).stride([1, 1]));
    for (shape, layout, window) in [
        ([2, 3, 9, 9], Layout::RowMajor, three),
        ([2, 3, 9, 8], Layout::RowMajor, three),
        ([2, 3, 9, 9], Layout::RowMajor, Window::new([9, 9])),
        ([2, 3, 7, 7], Layout::RowMajor, Window::new([7, 7])),
        ([2, 3, 32, 32], Layout::RowMajor, Window::new([16, 16])),
        ([2, 3, 9, 9], Layout::RowMajor, Window::new([4, 4])),
        ([2, 3, 9, 9], Layout::RowMajor, five),
        ([2, 3, 9, 9], Layout::RowMajor, five.dilation([2, 1])),
        ([2, 4, 9, 9], Layout::ChannelsLast, three),
        ([2, 3, 9, 9], Layout::ChannelsLast, three),
        ([2, 4, 9, 9], Layout::ChannelsLast, Window::new([2, 2]).stride([1, 1])),
        ([2, 4, 9, 9], Layout::ChannelsLast, Window::new([9, 9])),
    ] {
        max_pool::forward_inference(&Tensor::full(&gpu, &shape, 1.0f32)?.to_layout(layout)?, &window)?;
    }
    let (x, mean) = (Tensor::full(&gpu, &[2, 3, 9, 9], 1.0f32)?, Tensor::full(&gpu, &[1, 1, 2], 0.25f32)?);
    let var = Tensor::full(&gpu, &[1, 1, 1], 1.0f32)?;
    for (window, normalize) in [(three, Normalize::Window), (three, Normalize::Valid), (five, Normalize::Window)] {
        let y = gaussian_pool::forward(&x, &mean, &var, &window, normalize)?;
        let mut dx = x.empty_like()?;
        gaussian_pool::backward(&x, &mean, &var, &window, normalize, &y, Some(Out::write(&mut dx)), None, None)?;
    }
    // The parameters' gradients alone.
    let x = Tensor::full(&gpu, &[2, 4, 9, 9], 1.0f32)?.to_layout(Layout::ChannelsLast)?;
    let (window, normalize) = (Window::new([2, 2]), Normalize::Window);
    let (dy, mut dmean) = (gaussian_pool::forward(&x, &mean, &var, &window, normalize)?, mean.empty_like()?);
    gaussian_pool::backward(&x, &mean, &var, &window, normalize, &dy, None, Some(Out::write(&mut dmean)), None)?;
    // All gradients of 3×3 windows one apart, in both orders.
    let window = Window::new([3, 3]).stride([1, 1]).padding([1, 1]);
    for layout in [Layout::RowMajor, Layout::ChannelsLast] {
        let x = Tensor::full(&gpu, &[2, 4, 9, 8], 1.0f32)?.to_layout(layout)?;
        let (mut dx, mut dmean) = (x.empty_like()?, mean.empty_like()?);
        let gradients = (Some(Out::write(&mut dx)), Some(Out::write(&mut dmean)));
        gaussian_pool::backward(&x, &mean, &var, &window, normalize, &x, gradients.0, gradients.1, None)?;
    }
    Ok(())
}

/// What the test above says on standard error in a process with this in the environment.
fn said(explain: Option<&str>) -> Result<Vec<String>, Failed> {
    let mut child = Command::new(std::env::current_exe()?);
    child.args(["--exact", LAUNCHES]).env_remove("FERROLAYER_EXPLAIN");
    let child = child.envs(explain.map(|value| ("FERROLAYER_EXPLAIN", value))).output()?;
    if !child.status.success() {
        return Err(String::from_utf8_lossy(&child.stdout).into_owned().into());
    }
    let text = String::from_utf8_lossy(&child.stderr);
    Ok(text.lines().map(str::to_owned).collect())
}

fn says_once() -> Outcome {
    let product = "3x5 sums over 300 by f32 arithmetic, the depth shared by a block's warps, in tiles of 32x32: of all cuts this should \
                   take the least time; the depth in 3 parts of 104, so that more blocks run";
    let three = "window 3x3 stride 2x2 padding 1x1 dilation 1x1 over 9x9";
    let five = "window 5x4 stride 1x1 padding 0x0";
    let gaussian = "window 3x3 stride 2x2 padding 1x1 over 9x9, 1 a map";
    let bands = "window 3x3 stride 2x2 padding 1x1 over 9x9 row-major: by bands of rows, for windows of a size compiled in and \
                 weights that are the same everywhere";
    let other = "window 5x4 stride 1x1 padding 0x0 over 9x9, 1 a map";
    let last = "window 2x2 stride 2x2 padding 0x0 over 9x9 with the channels last";
    let by_strips = "by strips of windows";
    let cut_off = "windows that the padding cuts off have weights of their own";
    let one_apart = "window 3x3 stride 1x1 padding 1x1 over 9x8";
    let runs =
        "all gradients by runs of inputs below each other, of a size compiled in and 16 bytes of channels or columns";
    let size = "no kernel down columns has windows of this size";
    let expected = [
        "relu_forward_f32 grid 1 block 256".to_owned(),
        format!("dense_forward_f32_32 grid 1x1x3 block 256: {product}"),
        format!("dense_finish_late_f32 grid 1 block 256: {product}"),
        "dense_dx_f32_64 grid 1x5 block 128: 3x300 sums over 5 by f32 arithmetic in tiles of 64x64: of all cuts this should take \
         the least time; the depth in one part"
            .to_owned(),
        "dense_forward_mma_f16_64 grid 1 block 128 shared 32768 bytes: 3x5 sums over 304 by tensor cores in tiles of 64x64: of \
         all cuts this should take the least time; the depth in one part"
            .to_owned(),
        "prelu_backward_columns_f32_f32_1 grid 1 block 512: planes of 6, less than 256, would leave threads idle: by columns \
         across planes, 1 a thread"
            .to_owned(),
        "prelu_backward_planes_f32_f32 grid 6 block 256: planes of 260, a multiple of 4: 4 at a time, parts of 4096"
            .to_owned(),
        "prelu_backward_planes_f32_f32 grid 6 block 256: planes of 262, no multiple of 4: one at a time, parts of 4096"
            .to_owned(),
        "prelu_forward_vectors_f32_f32_1 grid 1 block 256: planes of a multiple of 4: one slope for a vector, vectors a thread 1"
            .to_owned(),
        "prelu_forward_vectors_f32_f32_2 grid 1 block 256: planes of no multiple of 4: 2 slopes for a vector, vectors a thread 1"
            .to_owned(),
        "prelu_forward_vectors_f32_f32_0 grid 1 block 256: planes of 2: a vector's channels are looked for one by one, vectors a \
         thread 1"
            .to_owned(),
        "prelu_forward_vectors_f32_f32_0 grid 1 block 256: no multiple of 4 channels: a vector's are looked for one by one, \
         vectors a thread 1"
            .to_owned(),
        "prelu_forward_vectors_f32_f32_4 grid 1 block 256: a multiple of 4 channels: 4 slopes for a vector, vectors a thread 1"
            .to_owned(),
        format!(
            "max_pool_forward_band_f32_3_2 grid 1 block 64 shared 1968 bytes: {three} row-major: by bands of rows in \
                 shared memory, of a size compiled in"
        ),
        "max_pool_forward_pairs_f32_3_1 grid 1 block 64 shared 1744 bytes: window 3x3 stride 2x2 padding 1x1 dilation 1x1 \
         over 9x8 row-major: by bands of rows in shared memory, of a size compiled in, two columns a thread: rows are a \
         multiple of four"
            .to_owned(),
        "max_pool_forward_warp_f32_u8 grid 1 block 256: window 9x9 stride 9x9 padding 0x0 dilation 1x1 over 9x9 row-major: a \
         warp an output, or several: the window is large, and outputs are few, or a band of rows has no room for it"
            .to_owned(),
        "max_pool_forward_wholes_f32_u8 grid 1 block 128 shared 25104 bytes: window 7x7 stride 7x7 padding 0x0 dilation 1x1 over 7x7 \
         row-major: a thread or a few lanes a whole plane, which is in shared memory: the window is the plane, and small"
            .to_owned(),
        "max_pool_forward_chunks_f32_u8 grid 2 block 256: window 16x16 stride 16x16 padding 0x0 dilation 1x1 over 32x32 row-major: \
         lanes of a warp share a window, whose rows are whole chunks of 16 bytes"
            .to_owned(),
        "max_pool_forward_apart_f32_4 grid 1 block 256: window 4x4 stride 4x4 padding 0x0 dilation 1x1 over 9x9 row-major: by \
         whole windows in registers, of a size compiled in, which share little or are few"
            .to_owned(),
        format!(
            "max_pool_forward_columns_f32_u8_0_0 grid 1 block 128 shared 4176 bytes: {five} dilation 1x1 over 9x9 row-major: by \
                 bands of rows in shared memory, which have room; the size has no kernel of its own"
        ),
        format!(
            "max_pool_forward_f32_Nchw_u8 grid 1 block 6x1x6: {five} dilation 2x1 over 9x9 row-major: an element a \
                 thread: there are few, a band of rows has no room in shared memory, or windows are dilated or too high"
        ),
        "permute_tiles_u32_0 grid 2 block 256 shared 2064 bytes: elements of 4 bytes by tiles that are turned in shared memory"
            .to_owned(),
        format!(
            "max_pool_forward_patch_f32_3_1 grid 1 block 5x5x2: {three} with the channels last: by patches of a size \
                 compiled in, the channels being a multiple of four"
        ),
        format!(
            "max_pool_forward_f32_Nhwc_u8 grid 1 block 15x5x2: {three} with the channels last: an element a thread: \
                 channels are not whole vectors of 16 bytes, or windows dilated"
        ),
        "max_pool_forward_vectors_f32_u8 grid 1 block 256: window 2x2 stride 1x1 padding 0x0 dilation 1x1 over 9x9 with the \
         channels last: by vectors of 16 bytes of channels, of which these are a multiple; the size has no kernel of its own"
            .to_owned(),
        "max_pool_forward_vectors_f32_u8 grid 1 block 256 shared 8192 bytes: window 9x9 stride 9x9 padding 0x0 dilation 1x1 over 9x9 \
         with the channels last: by vectors of 16 bytes of channels, threads of a block sharing a window: it is large, and \
         outputs are few"
            .to_owned(),
        format!("gaussian_pool_forward_bands_f32_3 grid 1 block 64 shared 2000 bytes: {bands}"),
        format!("gaussian_pool_backward_bands_f32_3_1 grid 1 block 32 shared 2624 bytes: {bands}"),
        format!(
            "gaussian_pool_forward_strips_f32_2 grid 1 block 224 shared 4704 bytes: {gaussian}: {by_strips}: {cut_off}"
        ),
        format!(
            "gaussian_pool_backward_strips_f32_2 grid 1 block 256 shared 8736 bytes: {gaussian}: {by_strips}: {cut_off}"
        ),
        format!("gaussian_pool_forward_strips_f32_1 grid 1 block 224 shared 1968 bytes: {other}: {by_strips}: {size}"),
        format!(
            "gaussian_pool_backward_strips_f32_1 grid 1 block 256 shared 10608 bytes: {other}: {by_strips}: {size}"
        ),
        format!(
            "gaussian_pool_forward_patches_f32_2_0 grid 1 block 4x4x2: {last}: by patches of 16 bytes of \
             channels, of a size compiled in and weights that all channels share"
        ),
        format!(
            "gaussian_pool_positions_f32_2 grid 1 block 256 shared 224 bytes: {last}: the parameters' gradients of a sum for \
             each position, of a size compiled in; dx, where it is asked for, by itself"
        ),
        "gaussian_pool_sum_parameters grid 1 block 512".to_owned(),
        format!("gaussian_pool_runs_learnt_f32_true grid 1 block 256 shared 224 bytes: {one_apart} row-major: {runs}"),
        format!(
            "gaussian_pool_runs_learnt_f32_false grid 1 block 256 shared 224 bytes: {one_apart} with the channels last: {runs}"
        ),
    ];
    let said_so = said(Some("1"))?;
    assert_eq!(said_so.len(), expected.len(), "{said_so:#?}");
    for (said, expected) in said_so.iter().zip(expected) {
        assert_eq!(*said, format!("ferrolayer: {expected}"));
    }
    for off in [None, Some(""), Some("0")] {
        assert_eq!(said(off)?, [""; 0], "{off:?}");
    }
    Ok(())
}
