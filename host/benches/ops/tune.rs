//! `--tune FILE`: every way to make the dense layer's products, and the fastest kept in a table
//! (`ferrolayer::ops::dense::tune`).

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use ferrolayer::device::Gpu;
use ferrolayer::ops::dense::Precision;
use ferrolayer::ops::dense::tune::fit::{Fitted, Times};
use ferrolayer::ops::dense::tune::{self, Entry, Problem, Product, Table};
use ferrolayer::{DType, Error};
use serde::{Deserialize, Serialize};

use crate::case::{Pass, Which, cases};
use crate::command::Failure;
use crate::row::ReadError;

/// What is to be tuned, as the command's options say; where they say nothing, all.
pub struct Asked<'a> {
    pub shapes: &'a [String],
    pub types: &'a [String],
    pub passes: &'a [String],
    pub precisions: &'a [String],
}

impl Asked<'_> {
    /// The products of all layers that are asked for, or else of those of the tables in docs/perf.
    pub fn problems(&self) -> Result<Vec<Problem>, Failure> {
        let mut shapes = self.shapes.iter().map(|shape| sizes(shape)).collect::<Result<Vec<[usize; 3]>, _>>()?;
        if shapes.is_empty() {
            shapes.extend(
                cases("dense", Which::All).iter().filter_map(|case| <[usize; 3]>::try_from(&case.shape[..]).ok()),
            );
        }
        let named = |names: &[String], name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
        // Backward makes both.
        let passes = |product: Product| {
            let backward = product != Product::Forward && self.passes.iter().any(|pass| pass == Pass::Backward.name());
            named(self.passes, product.name()) || backward
        };
        let mut problems = Vec::new();
        for &[batch, inputs, outputs] in &shapes {
            for dtype in [DType::F32, DType::F16, DType::Bf16] {
                // One precision does where they are no question, and only f32 has several.
                let wanted = |precision: Precision| match self.precisions {
                    [] => precision == Precision::default(),
                    names if dtype == DType::F32 => named(names, precision.name()),
                    _ => precision == Precision::default(),
                };
                for precision in Precision::ALL.into_iter().filter(|&precision| wanted(precision)) {
                    if named(self.types, dtype.name()) {
                        let layer = Problem::layer(batch, inputs, outputs, dtype, precision);
                        problems.extend(layer.into_iter().filter(|problem| passes(problem.product)));
                    }
                }
            }
        }
        let mut known = std::collections::HashSet::new();
        problems.retain(|problem| known.insert(*problem));
        Ok(problems)
    }

    /// Tunes them one after the other; what was found so far is in the file.
    /// What the ways near each fastest one take is written to `ways`, a line each.
    pub fn run(&self, gpu: &Gpu, file: &Path, ways: Option<&Path>) -> Result<bool, Failure> {
        let problems = self.problems()?;
        let mut table = match Table::read(file) {
            Ok(table) => match table.fits(gpu) {
                Ok(()) => table,
                Err(stale) => {
                    println!("{stale}: it is written anew");
                    Table::new(gpu)
                }
            },
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Table::new(gpu),
            // What is no table is not written over.
            Err(other) => return Err(other.into()),
        };
        let unwritten = |path: &Path| {
            let path = path.display().to_string();
            move |error| Failure::Write(path, error)
        };
        let mut lines = ways.map(|path| File::create(path).map_err(unwritten(path))).transpose()?;
        let (mut faster, mut near, mut failed) = (0, 0, 0);
        for problem in &problems {
            let mut written = Ok(());
            let tuned = tune::tune(gpu, std::slice::from_ref(problem), |entry, times| {
                println!("{}", line(entry));
                faster += usize::from(entry.choice != entry.model);
                near += usize::from(is_near(entry));
                table.insert(entry.clone());
                if let Some(lines) = &mut lines {
                    let ways = serde_json::to_string(&Ways::new(entry, times)).expect("names and numbers are JSON");
                    written = writeln!(lines, "{ways}");
                }
            });
            written.map_err(unwritten(ways.unwrap_or(file)))?;
            // One that fails must not hide the others.
            if let Err(error) = tuned {
                println!("{problem}: failed: {error}");
                failed += 1;
            }
            table.write(file)?;
        }
        println!(
            "\n{} products, of {faster} another way than the model's, which for {near} is within {NEAR} % of the fastest; {}",
            problems.len() - failed,
            file.display()
        );
        Ok(failed == 0)
    }
}

/// How near the fastest the model's way has to be to count as right, in hundredths of its time.
const NEAR: f64 = 3.0;

fn is_near(entry: &Entry) -> bool {
    entry.model_us <= (1.0 + NEAR / 100.0) * entry.us
}

/// A line of `--ways`: the product, the model's way, and microseconds by the ways' names.
#[derive(Serialize, Deserialize)]
pub struct Ways {
    problem: String,
    model: String,
    ways: Times,
}

impl Ways {
    pub fn new(entry: &Entry, times: &[(String, f64)]) -> Self {
        let Entry { problem, model, .. } = entry;
        Self { problem: problem.to_string(), model: model.clone(), ways: times.iter().cloned().collect() }
    }
}

/// What files of `--ways` say.
pub fn read_ways(files: &[PathBuf]) -> Result<Vec<(Problem, Times)>, Failure> {
    let mut all = Vec::new();
    for path in files {
        let file = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|error| ReadError::Io(file.clone(), error))?;
        for (number, line) in text.lines().enumerate() {
            let failed = |problem: String| Failure::Ways { file: file.clone(), line: number + 1, problem };
            let ways: Ways = serde_json::from_str(line).map_err(|error| failed(error.to_string()))?;
            all.push((ways.problem.parse().map_err(|error: Error| failed(error.to_string()))?, ways.ways));
        }
    }
    Ok(all)
}

/// `--fit FILE..`: at most so many times over all numbers. Most go nowhere any more after half as many.
const FIT: usize = 60;

/// Prints numbers that fit what the files say, and how well the model chooses by them.
pub fn fit(files: &[PathBuf]) -> Result<(), Failure> {
    let Fitted { present, fitted, held_out, source } = tune::fit::fit(&read_ways(files)?, FIT);
    if present.of == 0 {
        return Err(Failure::Nothing(
            "nothing to fit to: no product of 16-bit floats was made in one of the model's ways",
        ));
    }
    let scores = [
        ("as the model is", present),
        ("fitted", fitted),
        ("of each half of the layers, fitted to the other", held_out),
    ];
    for (what, score) in scores {
        let [near, longer] = [score.near, score.longer].map(|share| 100.0 * share);
        println!(
            "// {what}: of {} products {near:.1} % within {NEAR} % of the fastest, {longer:.2} % longer in the mean",
            score.of
        );
    }
    println!("{source}");
    Ok(())
}

/// `512x4096x11008`: rows, inputs and outputs.
fn sizes(shape: &str) -> Result<[usize; 3], Failure> {
    let sizes = shape.split('x').map(|size| size.parse().ok().filter(|&size| size > 0));
    let sizes: Option<Vec<usize>> = sizes.collect();
    sizes.and_then(|sizes| sizes.try_into().ok()).ok_or_else(|| Failure::Shape(shape.to_owned()))
}

fn line(Entry { problem, choice, us, model, model_us }: &Entry) -> String {
    let line = format!("{:<44} {choice:<32} {us:>9.2} µs", problem.to_string());
    if choice == model { line } else { format!("{line}, {:.2} of {model}'s {model_us:.2}", us / model_us) }
}
