//! One result as one line of JSON: the lines that `python -m ferrolayer bench` writes too.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::case::Options;
use crate::power::Power;

/// Microseconds: the 10th percentile, the median and the 90th percentile of the timed runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Times {
    pub p10: f64,
    pub median: f64,
    pub p90: f64,
}

impl Times {
    /// Of the runs' times in seconds; `None` of none. Between two runs a percentile is on the line from one to the other.
    pub fn of(seconds: &[f64]) -> Option<Self> {
        let mut sorted = seconds.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let at = |part: f64| {
            let place = part * last as f64;
            let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
            thousandths(1e6 * (low + (high - low) * place.fract()))
        };
        Some(Self { p10: at(0.1), median: at(0.5), p90: at(0.9) })
    }
}

/// To a nanosecond, where the unit is a microsecond.
pub fn thousandths(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// What a result was measured on, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// `cuda` or `cpu`.
    pub device: String,
    /// The GPU's name; without one the processor's.
    pub gpu: Option<String>,
    pub driver: Option<String>,
    /// PyTorch's version, of its comparison.
    pub torch: Option<String>,
    pub ferrolayer: String,
    /// What was built, as `git describe` says it.
    #[serde(default)]
    pub commit: Option<String>,
    /// UTC, as `2026-11-21T14:00:00Z`.
    pub date: String,
    /// What copying within the GPU reached in the same run, bytes read plus bytes written, 1e9 a second.
    pub copy_gbps: Option<f64>,
}

/// One pass of one op on one shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub op: String,
    pub pass: String,
    pub dtype: String,
    pub layout: String,
    pub shape: Vec<usize>,
    pub options: Options,
    /// The fewest that the pass can move: each input read once, each output written once.
    pub bytes: u64,
    /// Floating-point operations, for what is bound by arithmetic.
    pub flops: Option<u64>,
    /// The share to be reached, where there is such a goal.
    #[serde(default)]
    pub target: Option<f64>,
    /// What stands on PyTorch's side, of its comparison.
    #[serde(default)]
    pub baseline: String,
    pub ours_us: Times,
    pub torch_us: Option<Times>,
    pub compiled_us: Option<Times>,
    /// Of `--power`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<Power>,
    #[serde(flatten)]
    pub machine: Machine,
}

/// A row as it is written: with its kind, and with what follows from the rest, for who reads no more than the line.
#[derive(Serialize)]
struct Line<'a> {
    bench: &'static str,
    #[serde(flatten)]
    row: &'a Row,
    ratio: Option<f64>,
    compiled_ratio: Option<f64>,
    share: Option<f64>,
}

impl Row {
    /// The time of copying the fewest bytes over the time of the pass: 1 is all that memory gives.
    pub fn share(&self) -> Option<f64> {
        Some(self.bytes as f64 / (self.machine.copy_gbps? * 1e3) / self.ours_us.median)
    }

    /// Our time over PyTorch's: below 1 is ahead.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.ours_us.median / self.torch_us?.median)
    }

    /// Our time over that of compiled PyTorch.
    pub fn compiled_ratio(&self) -> Option<f64> {
        Some(self.ours_us.median / self.compiled_us?.median)
    }

    /// What two runs have in common when they measured the same.
    pub fn key(&self) -> String {
        let Self { op, pass, dtype, layout, shape, options, machine, .. } = self;
        format!("{} {op} {pass} {dtype} {layout} {shape:?} {options:?}", machine.device)
    }

    /// In words: `max_pool forward f32 NCHW 64x64x112x112 3x3 s2 p1`.
    pub fn name(&self) -> String {
        let Self { op, pass, dtype, layout, options, .. } = self;
        format!("{op} {pass} {dtype} {layout} {} {options}", times(&self.shape)).trim_end().to_owned()
    }

    /// One line.
    pub fn to_json(&self) -> String {
        let round = |value: Option<f64>| value.map(|value| (value * 1e4).round() / 1e4);
        let line = Line {
            bench: "pass",
            row: self,
            ratio: round(self.ratio()),
            compiled_ratio: round(self.compiled_ratio()),
            share: round(self.share()),
        };
        serde_json::to_string(&line).expect("numbers and names")
    }

    /// Of one line; `None` where the line is a result of another kind.
    pub fn from_json(line: &str) -> Result<Option<Self>, serde_json::Error> {
        let value: Value = serde_json::from_str(line)?;
        match value.get("bench").and_then(Value::as_str) {
            None | Some("pass") => serde_json::from_value(value).map(Some),
            Some(_) => Ok(None),
        }
    }
}

/// Sizes as `64x64x112x112`.
pub fn times(sizes: &[usize]) -> String {
    sizes.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}

/// Why a file is none of results.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{0}: {1}")]
    Io(String, std::io::Error),
    #[error("{0}, line {1}: not a bench's result: {2}")]
    Line(String, usize, serde_json::Error),
}

/// The rows of a file of JSON lines.
pub fn read(path: &Path) -> Result<Vec<Row>, ReadError> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| ReadError::Io(name.clone(), error))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let rows = lines
        .map(|(number, line)| Row::from_json(line).map_err(|error| ReadError::Line(name.clone(), number + 1, error)));
    rows.filter_map(Result::transpose).collect()
}
