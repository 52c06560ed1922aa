use super::*;

fn window(channels: u32, image: [u32; 2], size: [u32; 2], stride: [u32; 2]) -> Window<Nhwc> {
    let output = [0, 1].map(|axis| (image[axis] - size[axis]) / stride[axis] + 1);
    Window { planes: 16, channels, input: image, output, size, stride, dilation: [1; 2], ..Window::default() }
}

/// Few large windows are shared by as many threads as memory wants, and no more than have positions ahead of them; many, or small
/// ones, are not.
#[test]
fn shares_large_windows_of_few_outputs() {
    let slices =
        |channels, image, size| Plan::forward(&window(channels, [image; 2], [size; 2], [size; 2]), 4).unwrap().slices;
    assert_eq!(slices(2048, 112, 7), 1);
    assert_eq!(slices(64, 128, 16), 8);
    assert_eq!(slices(64, 128, 32), 32);
    assert_eq!(slices(256, 56, 56), 128);
    assert_eq!(slices(4, 9, 9), 16);
    assert_eq!(slices(4, 4, 2), 1);
    let plan = Plan::forward(&window(256, [56; 2], [56; 2], [56; 2]), 4).unwrap();
    assert_eq!((plan.blocks, plan.threads, plan.shared_bytes(2, 4)), (16 * 64 / 4, 512, 512 * 4 * 2 * 4));
    assert_eq!(Plan::forward(&window(2048, [112; 2], [7; 2], [7; 2]), 4).unwrap().shared_bytes(2, 4), 0);
}

/// Channels are whole vectors, of four or of eight; backward windows have no dilation.
#[test]
fn fits_whole_vectors() {
    for (channels, bytes, fits) in [(4, 4, true), (4, 2, false), (8, 2, true), (6, 4, false), (72, 2, true)] {
        let window = window(channels, [9, 8], [3, 2], [1, 2]);
        assert_eq!(Plan::forward(&window, bytes).is_some(), fits);
        assert_eq!(Plan::backward(&window, bytes).is_some(), fits);
        assert_eq!(Plan::runs(&window, bytes, 1).is_some(), fits);
    }
    let dilated = Window { dilation: [2, 1], ..window(8, [9, 8], [3, 2], [1, 2]) };
    assert!(Plan::forward(&dilated, 4).is_some() && Plan::backward(&dilated, 4).is_none());
}

/// Runs are as long as leaves enough threads, within limits, and cover all rows.
#[test]
fn makes_runs_as_long_as_leaves_enough_threads() {
    let runs = |height: u32, enough| {
        let window = window(32, [height + 2, 9], [3, 3], [1, 1]);
        let Vectors { each, rows, total, .. } = Plan::runs(&window, 4, enough).unwrap().vectors;
        assert_eq!(total, 16 * 8 * 7 * rows);
        (each, rows)
    };
    let of_row = 16 * 8 * 7;
    assert_eq!([runs(30, 1), runs(30, 5 * of_row), runs(30, 100 * of_row)], [(10, 3), (6, 5), (4, 8)]);
    assert_eq!([runs(3, 1), runs(14, 1), runs(15, 1)], [(4, 1), (14, 1), (8, 2)]);
}

/// Inputs below each other are a thread's where at most one window is over each.
#[test]
fn takes_several_inputs_where_windows_do_not_overlap() {
    let total = |size, stride| Plan::backward(&window(32, [13, 7], size, stride), 4).unwrap().vectors.total;
    assert_eq!(total([3, 3], [3, 3]), 16 * 4 * 7 * 8);
    assert_eq!(total([2, 2], [3, 3]), 16 * 4 * 7 * 8);
    assert_eq!(total([3, 3], [3, 2]), 16 * 13 * 7 * 8);
}

/// Where windows overlap, blocks have as many vectors beside each other as divide a pixel's, up to sixteen.
#[test]
fn cuts_pixels_of_many_channels_where_windows_overlap() {
    let beside = |channels, stride| {
        let Vectors { beside, chunks, groups, .. } =
            Plan::forward(&window(channels, [9, 8], [3, 3], [stride; 2]), 4).unwrap().vectors;
        assert_eq!(beside * chunks, groups);
        beside
    };
    assert_eq!([beside(256, 1), beside(88, 1), beside(68, 1), beside(12, 1), beside(256, 3)], [16, 11, 17, 3, 64]);
}
