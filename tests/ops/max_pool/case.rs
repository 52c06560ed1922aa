//! What pooling is tried on: shapes with windows, and which inputs an output is made of, by SPEC.md's words.

use ferrolayer::ops::Window;
use proptest::prelude::*;

use crate::support::{by_chunks, by_vectors, far_apart, patched};

/// An input's shape and a window that fits it.
#[derive(Clone, Debug)]
pub struct Case {
    pub shape: [usize; 4],
    pub window: Window,
}

impl Case {
    pub fn new(shape: [usize; 4], window: Window) -> Self {
        Self { shape, window }
    }

    pub fn output_shape(&self) -> [usize; 4] {
        let [n, c, h, w] = self.shape;
        [n, c, outputs(&self.window, 0, h), outputs(&self.window, 1, w)]
    }

    /// Calls `f` with the flat indices of every output and of every input that its window covers, and the position in
    /// the window, in row-major order.
    pub fn visit(&self, mut f: impl FnMut(usize, usize, usize)) {
        let ([n, c, h, w], [.., oh, ow], window) = (self.shape, self.output_shape(), self.window);
        for output in 0..n * c * oh * ow {
            let (plane, y, x) = (output / (oh * ow), output / ow % oh, output % ow);
            for i in 0..window.size[0] {
                for j in 0..window.size[1] {
                    let row = (y * window.stride[0] + i * window.dilation[0]).checked_sub(window.padding[0]);
                    let column = (x * window.stride[1] + j * window.dilation[1]).checked_sub(window.padding[1]);
                    if let (Some(row), Some(column)) = (row, column)
                        && row < h
                        && column < w
                    {
                        f(output, (plane * h + row) * w + column, i * window.size[1] + j);
                    }
                }
            }
        }
    }
}

/// The number of windows along an axis, counted one by one: those that end inside the padded input; with `ceil_mode` also
/// one that ends later, if it begins before the input's end.
fn outputs(window: &Window, axis: usize, length: usize) -> usize {
    let extent = window.dilation[axis] * (window.size[axis] - 1) + 1;
    let padded = length + 2 * window.padding[axis];
    (0..)
        .take_while(|o| {
            let begin = o * window.stride[axis];
            let late = begin + extent < padded + window.stride[axis] && begin < length + window.padding[axis];
            begin + extent <= padded || window.ceil_mode && late
        })
        .count()
}

/// Small inputs with windows of all kinds, dilated by less than `dilations`.
pub fn cases(dilations: usize) -> impl Strategy<Value = Case> {
    let pair = |range: std::ops::Range<usize>| [range.clone(), range];
    let shape = [1..3usize, 1..4, 1..14, 1..14];
    let parameters = (pair(1..6), pair(1..5), pair(0..3), pair(1..dilations + 1), any::<bool>());
    (shape, parameters).prop_map(|(mut shape, (size, stride, padding, dilation, ceil_mode))| {
        let padding = [0, 1].map(|axis| padding[axis].min(size[axis] / 2));
        for axis in 0..2 {
            let extent = dilation[axis] * (size[axis] - 1) + 1;
            shape[2 + axis] = shape[2 + axis].max(extent.saturating_sub(2 * padding[axis])).max(1);
        }
        Case::new(shape, Window { size, stride, padding, dilation, ceil_mode })
    })
}

/// What networks use, and what does not divide into blocks: columns past a block's, rows past a thread's, many planes.
pub fn chosen() -> Vec<Case> {
    let window = |size, stride| Window::new([size, size]).stride([stride, stride]);
    let mut cases = vec![
        Case::new([2, 3, 12, 12], window(2, 2)),
        Case::new([1, 2, 13, 15], window(3, 2).padding([1, 1])),
        Case::new([1, 1, 9, 9], window(3, 1).padding([1, 1])),
        Case::new([1, 2, 7, 6], window(3, 2).ceil_mode(true)),
        Case::new([1, 1, 1, 1], window(1, 1)),
        Case::new([2, 1, 5, 300], window(2, 1)),
        Case::new([1, 1, 300, 3], window(3, 1).padding([1, 1])),
        Case::new([17, 9, 4, 3], window(2, 1)),
        Case::new([1, 1, 23, 21], window(4, 3).dilation([2, 3]).padding([2, 2])),
        // Gaps between the windows.
        Case::new([1, 2, 11, 17], Window::new([2, 1]).stride([3, 4])),
        // One window for all.
        Case::new([2, 2, 19, 20], Window::new([19, 20])),
        // The same of small planes: blocks of them and a part of one, whose last bytes are no whole 16.
        Case::new([3, 99, 7, 7], Window::new([7, 7])),
        Case::new([1, 3, 9, 5], Window::new([9, 5]).stride([1, 2]).ceil_mode(true)),
        Case::new([1, 1, 20, 40], Window::new([18, 17]).stride([1, 2]).padding([9, 8])),
        Case::new([1, 2, 66, 70], Window::new([64, 64]).stride([3, 5])),
        Case::new([1, 1, 70, 67], Window::new([65, 66]).stride([40, 50]).padding([32, 33]).ceil_mode(true)),
        // More channels than a block has columns.
        Case::new([2, 300, 3, 5], window(2, 2).padding([1, 1])),
    ];
    cases.extend(
        [patched(), by_vectors(), by_chunks(), far_apart()]
            .concat()
            .into_iter()
            .map(|(shape, window)| Case::new(shape, window)),
    );
    cases.push(Case::new([2, 8, 15, 13], window(3, 2).dilation([2, 3]).padding([1, 1])));
    cases
}

pub fn large() -> Vec<Case> {
    let window = |size, stride| Window::new([size, size]).stride([stride, stride]);
    vec![
        Case::new([8, 64, 112, 112], window(3, 2).padding([1, 1])),
        Case::new([8, 64, 112, 112], window(2, 2)),
        Case::new([3, 5, 701, 1003], window(5, 3).padding([2, 1]).dilation([1, 2]).ceil_mode(true)),
        Case::new([2, 64, 111, 113], window(5, 5)),
        Case::new([2, 64, 111, 113], window(7, 5).padding([3, 3])),
        Case::new([1, 1, 2, 300_001], window(2, 1)),
        Case::new([1, 1, 300_001, 2], window(2, 1)),
        Case::new([70_001, 3, 2, 2], window(2, 1)),
        Case::new([1, 2, 700, 500], Window::new([300, 200]).stride([13, 17]).padding([50, 100])),
    ]
}
