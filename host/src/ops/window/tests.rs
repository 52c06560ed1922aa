use super::*;
use crate::ops::rows::{Run, zip_strided};

fn outputs(window: Window, image: [usize; 2]) -> [usize; 2] {
    window.output_size("test", image).unwrap()
}

/// Values of torch.nn.functional.max_pool2d's output shapes.
#[test]
fn output_sizes_are_pytorchs() {
    assert_eq!(outputs(Window::new([2, 2]), [7, 8]), [3, 4]);
    assert_eq!(outputs(Window::new([2, 2]).ceil_mode(true), [7, 8]), [4, 4]);
    assert_eq!(outputs(Window::new([3, 3]).stride([2, 2]).padding([1, 1]), [5, 6]), [3, 3]);
    // The last window would begin in the right padding: dropped.
    assert_eq!(outputs(Window::new([2, 2]).stride([2, 2]).padding([1, 1]).ceil_mode(true), [3, 4]), [2, 3]);
    assert_eq!(outputs(Window::new([3, 3]).stride([1, 1]).dilation([2, 2]), [7, 5]), [3, 1]);
    assert_eq!(outputs(Window::new([1, 1]).stride([5, 5]), [11, 10]), [3, 2]);
}

#[test]
fn refuses_what_pytorch_refuses() {
    let error = Window::new([3, 3]).padding([2, 0]).output_size("max_pool.forward", [9, 9]).unwrap_err();
    assert_eq!(error.to_string(), "max_pool.forward: padding is [2, 0], expected at most half the window [3, 3]");
    assert!(Window::new([0, 1]).output_size("test", [9, 9]).is_err());
    assert!(Window::new([2, 2]).stride([1, 0]).output_size("test", [9, 9]).is_err());
    assert!(Window::new([2, 2]).dilation([0, 1]).output_size("test", [9, 9]).is_err());
    assert!(Window::new([5, 5]).output_size("test", [4, 9]).is_err());
}

/// The maps between outputs, positions and inputs against each other, by trying all.
#[test]
fn positions_and_outputs_agree() {
    let each = |values: [usize; 3]| values.into_iter();
    for (size, stride) in each([1, 2, 5]).flat_map(|size| each([1, 2, 4]).map(move |stride| (size, stride))) {
        for (padding, dilation) in each([0, 1, 2]).flat_map(|p| each([1, 2, 3]).map(move |d| (p.min(size / 2), d))) {
            for (length, ceil_mode) in (1..12).flat_map(|length| [(length, false), (length, true)]) {
                let window = Window {
                    size: [size, 1],
                    stride: [stride, 1],
                    padding: [padding, 0],
                    dilation: [dilation, 1],
                    ceil_mode,
                };
                let Ok(windows) = Windows::new("test", "x", &[1, 1, length, 1], Layout::RowMajor, &window) else {
                    continue;
                };
                let inside = |output: usize, position: usize| {
                    let padded = output * stride + position * dilation;
                    (padding..length + padding).contains(&padded)
                };
                for output in 0..windows.output[0] {
                    let positions = windows.positions_inside(0, output);
                    for position in 0..size {
                        assert_eq!(positions.contains(&position), inside(output, position), "{windows:?}");
                        assert_eq!(windows.outputs_at(0, position).contains(&output), inside(output, position));
                        if inside(output, position) {
                            let input = windows.coordinate(0, output, position);
                            assert_eq!(input + padding, output * stride + position * dilation);
                            assert!(windows.outputs_over(0, &(input..input + 1)).contains(&output), "{windows:?}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn strides_take_every_so_manyth() {
    let line: Vec<usize> = (0..23).collect();
    for stride in 1..7 {
        for len in 0..=line.len() {
            let mut out = vec![usize::MAX; len.div_ceil(stride)];
            zip_strided(out.iter_mut(), &line[..len], stride, |out, value| *out = value);
            assert!(out.iter().enumerate().all(|(i, value)| *value == i * stride), "{stride} {len}: {out:?}");
        }
    }
}

/// Each run's elements are those of the pixels that its column of the window is at.
#[test]
fn runs_are_the_windows_columns() {
    for (pixel, stride) in [(1, 1), (1, 3), (4, 1), (4, 3)] {
        let window = Window::new([1, 3]).stride([1, stride]).padding([0, 1]).dilation([1, 2]);
        let windows = Windows::new("test", "x", &[1, pixel, 1, 17], Layout::ChannelsLast, &window).unwrap();
        let mut seen = Vec::new();
        for Run { column, outputs, first, stride } in windows.runs() {
            seen.extend(outputs.enumerate().map(|(i, output)| (column, output, first + i * stride)));
        }
        let mut expected = Vec::new();
        for (column, output) in (0..3).flat_map(|column| (0..windows.output[1]).map(move |output| (column, output))) {
            if windows.positions_inside(1, output).contains(&column) {
                let input = windows.coordinate(1, output, column);
                expected.extend((0..pixel).map(|c| (column, output * pixel + c, input * pixel + c)));
            }
        }
        assert_eq!(seen, expected, "{pixel} {stride}");
    }
}

#[test]
fn launches_refuse_what_32_bits_do_not_hold() {
    let windows = |window: Window, [n, c]: [usize; 2], [h, w]: [usize; 2], layout| {
        Windows::new("test", "x", &[n, c, h, w], layout, &window).unwrap()
    };
    let refused = |window: Window, planes, image| {
        windows(window, [1, planes], image, Layout::RowMajor).launch::<Nchw>("test").is_err()
    };
    let window = Window::new([2, 2]);
    assert!(!refused(window, 1 << 30, [1 << 15, 1 << 15]));
    assert!(!refused(window, 3, [1 << 20, 1 << 20]));
    assert!(refused(window, 1 << 31, [2, 2]));
    assert!(refused(window, 1, [2, 1 << 31]));
    assert!(refused(window, 1, [1 << 31, 2]));
    assert!(refused(window.stride([1 << 31, 1]), 1, [2, 2]));
    assert!(refused(window.dilation([1 << 30, 1]).stride([1 << 30, 1]).ceil_mode(true), 1, [1 << 30, 2]));
    let last = |batch, image| windows(window, batch, image, Layout::ChannelsLast).launch::<Nhwc>("test");
    let launch = last([1 << 30, 1 << 10], [1 << 20, 1 << 20]).unwrap();
    assert_eq!((launch.planes, launch.channels), (1 << 30, 1 << 10));
    assert!(last([1, 1 << 11], [2, 1 << 20]).is_err());
    assert!(last([1 << 31, 1], [2, 2]).is_err());
}
