//! What is measured: ops on shapes, their passes, and the fewest bytes of each.
//!
//! The shapes are `python/ferrolayer/bench/shapes.json`, which the comparison with PyTorch measures too: rows of both are
//! of the same cases.

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::sync::LazyLock;

use ferrolayer::ops::Window;
use ferrolayer::{DType, Layout};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An op's settings in a row, where it has them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Options {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<[usize; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stride: Option<[usize; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub padding: Option<[usize; 2]>,
    /// Kernels a map, of Gaussian pooling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernels: Option<usize>,
    /// Whether each channel has Gaussians of its own, of Gaussian pooling; else all share one set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_channel: Option<bool>,
    /// Whether mean and variance have gradients, of Gaussian pooling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learnable: Option<bool>,
    /// `none`, `relu` or `prelu`, of a dense layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activation: Option<String>,
    /// How products of f32 are made, `f32` or `tf32`, where not by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precision: Option<String>,
    /// What a later bench writes.
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
}

/// In short: `3x3 s2 p1`, `11x11 s2 3/map learnt`.
impl Display for Options {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let mut words = Vec::new();
        if let Some([h, w]) = self.kernel {
            words.push(format!("{h}x{w}"));
        }
        for (letter, pair) in [("s", self.stride), ("p", self.padding)] {
            match pair {
                None | Some([0, 0]) => {}
                Some([a, b]) if a == b => words.push(format!("{letter}{a}")),
                Some([a, b]) => words.push(format!("{letter}{a}x{b}")),
            }
        }
        words.extend(self.kernels.filter(|&kernels| kernels > 1).map(|kernels| format!("{kernels}/map")));
        words.extend((self.per_channel == Some(true)).then(|| "per channel".to_owned()));
        words.extend((self.learnable == Some(true)).then(|| "learnt".to_owned()));
        words.extend(self.activation.as_deref().map(|activation| match activation {
            "none" => "bias".to_owned(),
            other => format!("bias {other}"),
        }));
        words.extend(self.precision.clone());
        f.pad(&words.join(" "))
    }
}

/// One op on one shape. `shape` is the input's; of `dense` it is `[N, I, O]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub op: String,
    pub shape: Vec<usize>,
    pub options: Options,
}

/// What is timed of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Forward, for training: with what backward needs.
    Forward,
    /// All gradients.
    Backward,
    /// Forward without what backward needs, where that is another kernel.
    Inference,
    /// Of `dense`, the input's gradient alone.
    Dx,
    /// Of `dense`, the weights' gradient alone.
    Dw,
    /// An optimiser's step.
    Step,
}

impl Pass {
    pub const ALL: [Self; 6] = [Self::Forward, Self::Backward, Self::Inference, Self::Dx, Self::Dw, Self::Step];

    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Inference => "inference",
            Self::Dx => "dx",
            Self::Dw => "dw",
            Self::Step => "step",
        }
    }

    /// Whether an output's gradient is read.
    fn is_backward(self) -> bool {
        matches!(self, Self::Backward | Self::Dx | Self::Dw)
    }
}

#[derive(Deserialize)]
pub struct Shapes {
    groups: Vec<Group>,
    pub targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Group {
    ops: Vec<String>,
    tiny: Vec<(Vec<usize>, Options)>,
    tables: Vec<(Vec<usize>, Options)>,
    all: Vec<(Vec<usize>, Options)>,
    sweep: Vec<(Vec<usize>, Options)>,
    /// Of f32, by other ways than the default; not compared with PyTorch.
    #[serde(default)]
    precisions: Vec<(Vec<usize>, Options)>,
}

/// The share that a case is to reach in f32 and row-major order.
#[derive(Deserialize)]
pub struct Target {
    pub op: String,
    pub shape: Vec<usize>,
    pub options: Options,
    pub forward: f64,
    pub backward: f64,
}

pub static SHAPES: LazyLock<Shapes> = LazyLock::new(|| {
    let text = include_str!("../../../python/ferrolayer/bench/shapes.json");
    serde_json::from_str(text).expect("a file of this repository, which the tests read")
});

/// By how much less is enough in 16 bits, and with the channels last.
pub const ALLOWANCE: f64 = 0.05;
/// The fewest bytes of input of a series of sizes, and by how much each is more than the one before.
const SMALLEST: usize = 1 << 10;
const STEP: usize = 8;

/// A list of shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// For tests.
    Tiny,
    /// Those of the tables in `docs/perf`, with those that have a target among them.
    Tables,
    /// The tables' and others: just beside them, small and large planes, one channel and thousands.
    All,
    /// A wider sweep: images of 7×7 to 1024×1024, 1 to 4096 channels, windows of 2 to 32 and of the whole image.
    Sweep,
    /// Inputs of 1 kB, 8 kB, .. to so many bytes, with the options of the first of the tables.
    Sizes(usize),
}

/// All ops, in the order of the tables.
pub fn ops() -> impl Iterator<Item = &'static str> {
    SHAPES.groups.iter().flat_map(|group| &group.ops).map(String::as_str)
}

/// The cases of an op.
pub fn cases(op: &str, which: Which) -> Vec<Case> {
    let group = SHAPES.groups.iter().find(|group| group.ops.iter().any(|name| name == op)).expect("an op of the list");
    let lists: &[&[_]] = match which {
        Which::Tiny => &[&group.tiny],
        Which::Tables => &[&group.tables],
        Which::All => &[&group.tables, &group.all, &group.precisions],
        Which::Sweep => &[&group.sweep],
        Which::Sizes(largest) => return sizes(op, &group.tables[0], largest),
    };
    let case = |(shape, options): &(Vec<usize>, Options)| Case {
        op: op.to_owned(),
        shape: shape.clone(),
        options: options.clone(),
    };
    lists.iter().copied().flatten().map(case).collect()
}

/// Cases of 1 kB to `largest` bytes of f32; none of an op whose input is not as many elements as one likes.
fn sizes(op: &str, (like, options): &(Vec<usize>, Options), largest: usize) -> Vec<Case> {
    if matches!(op, "dense" | "softmax_cross_entropy") {
        return Vec::new();
    }
    let all =
        std::iter::successors(Some(SMALLEST), |bytes| Some((bytes * STEP).min(largest)).filter(|next| next > bytes));
    let shape = |bytes| match like.len() {
        1 => vec![bytes / 4],
        _ => image_of(bytes / 4).to_vec(),
    };
    all.map(|bytes| Case { op: op.to_owned(), shape: shape(bytes), options: options.clone() }).collect()
}

/// Images with so many elements in all, a power of two: as nearly 64 × 64 × 128 × 128 in proportion as it goes.
pub fn image_of(elements: usize) -> [usize; 4] {
    let mut side = 1;
    // Height and width grow first, to 128, then channels to 64, then the batch.
    while side < 128 && elements / (4 * side * side) >= 1 {
        side *= 2;
    }
    let channels = (elements / (side * side)).min(64);
    [elements / (side * side * channels), channels, side, side]
}

/// The passes of an op.
pub fn passes(op: &str) -> &'static [Pass] {
    match op {
        // Backward hands on dy.
        "add2" | "permute" | "copy" => &[Pass::Forward],
        "max_pool" | "stochastic_pool" => &[Pass::Forward, Pass::Backward, Pass::Inference],
        "dense" => &[Pass::Forward, Pass::Backward, Pass::Dx, Pass::Dw],
        "sgd" | "adam" => &[Pass::Step],
        _ => &[Pass::Forward, Pass::Backward],
    }
}

/// The layouts that make a difference to an op, with their names in a row.
pub fn layouts(op: &str) -> &'static [(&'static str, Layout)] {
    match op {
        "dense" | "softmax_cross_entropy" => &[("rows", Layout::RowMajor)],
        "relu" | "exp" | "swish" | "add2" | "scale_add" | "sgd" | "adam" | "copy" => &[("flat", Layout::RowMajor)],
        _ => &[("NCHW", Layout::RowMajor), ("NHWC", Layout::ChannelsLast)],
    }
}

/// The types that an op computes in.
pub fn types(op: &str) -> &'static [DType] {
    match op {
        "exp" | "softmax_cross_entropy" | "sgd" | "adam" => &[DType::F32],
        _ => &[DType::F32, DType::F16, DType::Bf16],
    }
}

impl Case {
    /// The window of a pooling op.
    pub fn window(&self) -> Option<Window> {
        let Options { kernel, stride, padding, .. } = self.options;
        let window = Window::new(kernel?);
        Some(window.stride(stride.unwrap_or(window.stride)).padding(padding.unwrap_or_default()))
    }

    /// The output's shape.
    pub fn output_shape(&self) -> Vec<usize> {
        match (&self.shape[..], self.window()) {
            (&[n, _, o], _) if self.op == "dense" => vec![n, o],
            (&[n, c, h, w], Some(window)) => {
                let [h, w] = window.output_size("bench", [h, w]).expect("a window that fits, of the list");
                vec![n, c * self.options.kernels.unwrap_or(1), h, w]
            }
            (shape, _) => shape.to_vec(),
        }
    }

    /// The fewest bytes of a pass with elements of `size` bytes: each input read once, each output written once.
    ///
    /// What forward saves for backward is an output of one and an input of the other, where it is not the input itself.
    pub fn bytes(&self, pass: Pass, size: usize) -> usize {
        let (x, y) = (self.shape.iter().product::<usize>(), self.output_shape().iter().product::<usize>());
        let backward = pass.is_backward();
        match self.op.as_str() {
            "dense" => {
                let [n, i, o] = self.shape[..] else { unreachable!("three sizes, of the list") };
                let activation = self.options.activation.as_deref().unwrap_or("none");
                let saved = if activation == "none" { 0 } else { n * o };
                size * match pass {
                    Pass::Dx => n * o + saved + i * o + n * i,
                    Pass::Dw => n * o + saved + n * i + i * o,
                    Pass::Backward => n * o + saved + 2 * n * i + 2 * i * o + o,
                    _ => {
                        let written_too = if activation == "prelu" && pass == Pass::Forward { saved } else { 0 };
                        n * i + i * o + o + n * o + written_too
                    }
                }
            }
            "add2" => 3 * size * x,
            "relu" | "prelu" | "swish" => (if backward { 3 } else { 2 }) * size * x,
            // Backward takes x, for the bounds, and y.
            "exp" => (if backward { 4 } else { 2 }) * size * x,
            "scale_add" | "permute" | "copy" => 2 * size * x,
            "softmax_cross_entropy" => {
                // Beside the scores, a label and a logarithm a row; forward's loss.
                let rows = 8 * self.shape[0];
                if backward { 2 * size * x + rows } else { size * x + rows + size }
            }
            // The value and the velocity, or both moments, read and written, and the gradient read.
            "sgd" => 5 * size * x,
            "adam" => 7 * size * x,
            op => {
                let saves = matches!(op, "max_pool" | "stochastic_pool") && pass != Pass::Inference;
                let positions = self.window().map_or(0, |window| window.positions());
                let indices = if saves { y * if positions <= 256 { 1 } else { 2 } } else { 0 };
                let read_again = if backward && self.options.learnable == Some(true) { size * x } else { 0 };
                size * (x + y) + indices + read_again
            }
        }
    }

    /// Floating-point operations of a product; `None` for what memory bounds.
    pub fn flops(&self, pass: Pass) -> Option<u64> {
        let products = if pass == Pass::Backward { 2 } else { 1 };
        (self.op == "dense").then(|| 2 * products * self.shape.iter().map(|&size| size as u64).product::<u64>())
    }

    /// The share of the copy rate that a pass is to reach, where there is such a goal.
    pub fn target(&self, pass: Pass, dtype: DType, layout: Layout) -> Option<f64> {
        let mut targets = SHAPES.targets.iter();
        let target = targets
            .find(|target| target.op == self.op && target.shape == self.shape && target.options == self.options)?;
        let share = match pass {
            Pass::Forward => target.forward,
            Pass::Backward => target.backward,
            _ => return None,
        };
        let exact = dtype == DType::F32 && layout == Layout::RowMajor;
        Some(if exact { share } else { ((share - ALLOWANCE) * 1e3).round() / 1e3 })
    }
}
