//! That divisions divide, windows are found and tilings cover.

use super::*;

#[test]
fn divides_as_division_does() {
    let interesting = [1, 2, 3, 5, 7, 10, 64, 1000, 65_535, 65_536, 715_827_883, (1 << 30) + 1, (1 << 31) - 1];
    for divisor in interesting {
        let divider = Divider::new(divisor);
        for multiple in interesting.map(|n: u32| n - n % divisor).into_iter().chain([0]) {
            for n in [multiple.wrapping_sub(1), multiple, multiple + 1, multiple + divisor - 1] {
                if n < 1 << 31 {
                    assert_eq!(divider.divide(n), n / divisor, "{n} / {divisor}");
                }
            }
        }
    }
}

#[test]
fn going_down_finds_what_dividing_finds() {
    for (size, stride, padding) in [(1, 1, 0), (2, 2, 0), (2, 5, 1), (3, 1, 1), (3, 2, 1), (9, 3, 4), (7, 4, 2)] {
        let (input, output) = ([40, 1], [(40 + 2 * padding - size) / stride + 1, 1]);
        let (size, stride, padding, dilation) = ([size, 1], [stride, 1], [padding, 0], [1, 1]);
        let window = Window::<Nchw> { input, output, size, stride, padding, dilation, ..Window::default() };
        let covering = Covering::new(&window);
        for start in [0, 1, 7] {
            let mut down = covering.down(&window, start);
            for row in start..40 {
                let [begin, end] = covering.over(&window, 0, row);
                let found = [down.begin, down.end(&window)];
                // Where no window is, both are empty.
                assert!(found == [begin, end] || found[0] >= found[1] && begin >= end, "{window:?} {row}: {found:?}");
                down.next(&window);
            }
        }
    }
}

fn covers<L: Order + Default>(planes: u32, channels: u32, size: [u32; 2]) {
    let window = Window::<L> { planes, channels, ..Window::default() };
    let (tiling, grid, block) = Tiling::new(&window, size);
    let what = format!("{planes} {channels} {size:?}: {grid:?} {block:?}");
    let covers = |axis: usize, each: u32, n: u32| u64::from(grid[axis]) * u64::from(each) >= u64::from(n);
    let deep = if tiling.planes_last == 1 { 2 } else { 0 };
    assert!(block.iter().product::<u32>() <= THREADS && block[2] <= 64, "{what}");
    assert!(grid[1] <= MOST_BLOCKS && grid[2] <= MOST_BLOCKS, "{what}");
    assert!(covers(deep, block[2], planes) && covers(1, block[1] * tiling.rows, size[0]), "{what}");
}

#[test]
fn tilings_cover_every_row_within_the_limits() {
    for planes in [1, 5, 4096, 1 << 30] {
        for size in [[1, 1], [7, 7], [1, 300], [300, 1], [56, 56], [112, 112], [1, (1 << 31) - 1], [(1 << 31) - 1, 1]] {
            covers::<Nchw>(planes, 1, size);
            for channels in [1, 3, 64, 2048].into_iter().filter(|channels| size[1] < (1 << 31) / channels) {
                covers::<Nhwc>(planes, channels, size);
            }
        }
    }
}

#[test]
fn places_are_pixels_and_channels() {
    let window = Window::<Nhwc> { planes: 1, channels: 7, ..Window::default() };
    let (tiling, ..) = Tiling::new(&window, [2, 5]);
    for place in 0..35 {
        let Pixel { column, channel } = tiling.pixel(&window, place);
        assert_eq!((column, channel), (place / 7, place % 7));
    }
}
