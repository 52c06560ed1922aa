//! That bands cover what they are for.

use super::choice::MOST_BYTES;
use super::*;

fn windows() -> impl Iterator<Item = Window<Nchw>> {
    let images = [[1, 1], [7, 7], [3, 300], [300, 3], [56, 57], [112, 112], [111, 113], [1024, 1024], [2000, 9000]];
    let shapes =
        [(1, 1, 0), (2, 2, 0), (3, 2, 0), (3, 2, 1), (3, 1, 1), (9, 3, 4), (2, 7, 1), (32, 1, 16), (300, 5, 0)];
    let each = images.into_iter().flat_map(move |image| shapes.map(|shape| (image, shape)));
    each.flat_map(|(input, (size, stride, padding))| {
        let fits = input.iter().all(|&length| length + 2 * padding >= size);
        let output = input.map(|length: u32| (length + 2 * padding).saturating_sub(size) / stride + 1);
        let [size, stride, padding, dilation] = [size, stride, padding, 1].map(|number| [number; 2]);
        let window = Window { channels: 1, input, output, size, stride, padding, dilation, ..Window::default() };
        let all = [1, 5, 4096, 1 << 30].map(|planes| Window { planes, ..window });
        if fits { all.to_vec() } else { Vec::new() }
    })
}

fn covers(what: &str, block: &Block, launch: &BandLaunch, height: u32) {
    let Block { planes, depth, rows, .. } = *block;
    let [x, y, z] = launch.grid;
    let (deep, bands) = if block.planes_last == 1 { (y, x) } else { (x, y) };
    assert_eq!((block.height, z), (height, 1), "{what}");
    assert!(u64::from(deep) * u64::from(depth) >= planes.into() && (deep - 1) * depth < planes, "{what}");
    assert!(y <= 65_535 && bands * rows >= height && (bands - 1) * rows < height, "{what}");
    assert!(depth == 1 || rows == height, "{what}: several planes are whole ones");
    assert!(u64::from(launch.shared) <= MOST_BYTES, "{what}");
    let [threads, 1, 1] = launch.block else { panic!("{what}") };
    assert!((1..=THREADS).contains(&threads) && threads.is_multiple_of(warp::WARP_SIZE), "{what}");
}

fn runs_cover(what: &str, (bands, launch): &(Bands, BandLaunch), [height, width]: [u32; 2]) {
    covers(what, &bands.block, launch, height);
    assert_eq!(bands.width, width, "{what}");
    assert!(bands.run * bands.groups >= bands.block.rows, "{what}: a run for each row");
    assert!(width.min(THREADS) * bands.groups * bands.block.depth <= launch.block[0], "{what}: a thread for each run");
}

#[test]
fn bands_cover_every_row_within_the_limits() {
    let mut found = [0; 9];
    for window in windows() {
        let what = format!("{window:?}");
        let cells = window.input.map(|length| length.div_ceil(2));
        let common = window.stride == [2, 2] && window.size[0] <= 3;
        for bytes in [2, 4] {
            let slide = Bands::of_outputs(&window, bytes).inspect(|found| runs_cover(&what, found, window.output));
            let of_cells = Bands::of_cells(&window, &[bytes, 1]).filter(|_| common);
            let of_cells = of_cells.inspect(|found| runs_cover(&what, found, cells));
            let pairs = [window.output[0], window.output[1].div_ceil(2)];
            let of_pairs = Bands::of_output_pairs(&window, bytes);
            let of_pairs = of_pairs.inspect(|found| runs_cover(&what, found, pairs));
            let cells_pairs = Bands::of_cell_pairs(&window, &[bytes, 1]).filter(|_| common);
            let cells_pairs = cells_pairs.inspect(|found| runs_cover(&what, found, [cells[0], window.input[1] / 4]));
            let inputs = Bands::of_inputs(&window, bytes).inspect(|found| runs_cover(&what, found, window.input));
            let outputs = Block::of_outputs(&window, bytes, 1024);
            let outputs = outputs.inspect(|(block, launch)| covers(&what, block, launch, window.output[0]));
            let columns = Bands::of_columns(&window, bytes, &[4, 4]);
            let columns = columns.filter(|(_, launch)| u64::from(launch.shared) <= MOST_BYTES);
            let columns =
                columns.inspect(|found| runs_cover(&what, found, [window.output[0], groups::reached(&window)]));
            let whole = window.size[0] / window.stride[0];
            let grouped = Bands::of_groups(&window, whole, bytes, window.output[1] + 2).filter(|_| whole > 0);
            let grouped = grouped.inspect(|found| {
                let group = |row: u32| (row + window.padding[0]) / window.stride[0];
                let groups = group(window.input[0] - 1) + 1 - group(0);
                runs_cover(&what, found, [groups, window.input[1]]);
            });
            let routed = Block::of_inputs(&window, &[bytes, 2]);
            let routed = routed.inspect(|(block, launch, rows)| {
                covers(&what, block, launch, window.input[0]);
                assert!((1..=window.output[0]).contains(rows), "{what}");
            });
            let there = [
                slide.is_some(),
                of_cells.is_some(),
                inputs.is_some(),
                outputs.is_some(),
                routed.is_some(),
                of_pairs.is_some(),
                cells_pairs.is_some(),
                columns.is_some(),
                grouped.is_some(),
            ];
            found.iter_mut().zip(there).for_each(|(found, there)| *found += usize::from(there));
        }
    }
    assert!(found.iter().all(|&found| found > 30), "{found:?}");
}

/// Rows that alone pass the room there is have no bands.
#[test]
fn rows_without_room_have_no_bands() {
    let window = Window {
        planes: 1,
        channels: 1,
        input: [9, 20_000],
        output: [4, 9_999],
        size: [3; 2],
        stride: [2; 2],
        dilation: [1; 2],
        ..Window::default()
    };
    assert!(Bands::of_outputs(&window, 4).is_none() && Bands::of_cells(&window, &[4, 1]).is_none());
    assert!(Block::of_outputs(&window, 4, 0).is_none() && Block::of_inputs(&window, &[4, 1]).is_none());
}
