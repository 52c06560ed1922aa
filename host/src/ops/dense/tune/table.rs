//! A table of tuned products, and the file that it is kept in: a line of JSON for what it was made on, and one for each product.

use std::collections::HashSet;
use std::fmt::{Display, Formatter};
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::in_use::{self, InUse};
use super::{Problem, Product};
use crate::device::Gpu;
use crate::ops::dense::Precision;
use crate::{DType, Error, Result};

/// What the first line says that the file is.
const FORMAT: &str = "dense products, 1";

/// Which way was the fastest of a product's, when measured on a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The product.
    pub problem: Problem,
    /// The fastest way, by its name: the kernels' kind, the tile, and how the depth is shared.
    pub choice: String,
    /// Microseconds that it took.
    pub us: f64,
    /// The way that is taken without a table.
    pub model: String,
    /// Microseconds that this one took.
    pub model_us: f64,
}

/// The fastest ways of some products, of one GPU and these kernels.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    gpu: String,
    kernels: String,
    entries: Vec<Entry>,
    /// Where it was read.
    path: Option<PathBuf>,
}

/// The file's first line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    ferrolayer: String,
    gpu: String,
    kernels: String,
}

/// Each other.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    product: String,
    batch: usize,
    inputs: usize,
    outputs: usize,
    dtype: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    precision: Option<String>,
    choice: String,
    us: f64,
    model: String,
    model_us: f64,
}

impl Table {
    /// One with nothing in it, for this GPU.
    pub fn new(gpu: &Gpu) -> Self {
        Self { gpu: gpu.model().to_owned(), kernels: Gpu::kernels().to_owned(), entries: Vec::new(), path: None }
    }

    /// What a file holds, whichever GPU it is for.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be read, [`Error::Table`] when it is no table.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = fs::read_to_string(path).map_err(|source| Error::Io { path: path.into(), source })?;
        let table = text.parse::<Self>().map_err(|error| match error {
            Error::Table { problem, .. } => Error::Table { table: path.display().to_string(), problem },
            other => other,
        })?;
        Ok(Self { path: Some(path.into()), ..table })
    }

    /// Writes it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        fs::write(path, self.to_string()).map_err(|source| Error::Io { path: path.into(), source })
    }

    /// What it holds.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Adds an entry, in the place of an older one of the same product.
    pub fn insert(&mut self, entry: Entry) {
        match self.entries.iter_mut().find(|known| known.problem == entry.problem) {
            Some(known) => *known = entry,
            None => self.entries.push(entry),
        }
    }

    /// Whether it was made on such a GPU, with these kernels.
    ///
    /// # Errors
    /// [`Error::Table`], which says what it was made for.
    pub fn fits(&self, gpu: &Gpu) -> Result<()> {
        let wrong = |what, made: &str, now: &str| {
            Err(self.refused(format!("made for {what} {made}, and this is {now}: tune again")))
        };
        if self.gpu != gpu.model() {
            return wrong("another GPU,", &self.gpu, gpu.model());
        }
        if self.kernels != Gpu::kernels() {
            return wrong("other kernels,", &self.kernels, Gpu::kernels());
        }
        Ok(())
    }

    /// From now on the products that it has are made as it says, on all streams of this GPU in this process, and all others as
    /// the model says. A table used before, or named by the environment, is out of use. Graphs that were recorded stay as they are.
    ///
    /// # Errors
    /// [`Error::Table`] when it is for another GPU or other kernels, or names a way that there is not for its product. Then nothing has
    /// changed.
    pub fn apply(&self, gpu: &Gpu) -> Result<()> {
        in_use::set(gpu, self.check(gpu)?);
        Ok(())
    }

    /// Its ways, all of which there are.
    pub(super) fn check(&self, gpu: &Gpu) -> Result<InUse> {
        self.fits(gpu)?;
        let hopper = gpu.hopper_multiprocessors().is_some();
        let choices = self.entries.iter().map(|Entry { problem, choice, .. }| {
            let question = problem.question(hopper);
            match question.named(choice) {
                Some(choice) => Ok((question, choice)),
                None => Err(self.refused(format!("{problem}: there is no such way to make it: {choice:?}"))),
            }
        });
        let source = self.path.as_ref().map_or("a table of this process".to_owned(), |path| path.display().to_string());
        Ok(InUse { choices: choices.collect::<Result<_>>()?, source })
    }

    fn refused(&self, problem: String) -> Error {
        let table = self.path.as_ref().map_or("the table".to_owned(), |path| path.display().to_string());
        Error::Table { table, problem }
    }
}

/// The file's text.
impl Display for Table {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let line = |f: &mut Formatter<'_>, json: serde_json::Result<String>| {
            writeln!(f, "{}", json.map_err(|_| std::fmt::Error)?)
        };
        let head = Head { ferrolayer: FORMAT.into(), gpu: self.gpu.clone(), kernels: self.kernels.clone() };
        line(f, serde_json::to_string(&head))?;
        for Entry { problem, choice, us, model, model_us } in &self.entries {
            let &Problem { product, batch, inputs, outputs, dtype, precision } = problem;
            let entry = Line {
                product: product.name().into(),
                batch,
                inputs,
                outputs,
                dtype: dtype.name().into(),
                precision: (dtype == DType::F32).then(|| precision.name().into()),
                choice: choice.clone(),
                us: *us,
                model: model.clone(),
                model_us: *model_us,
            };
            line(f, serde_json::to_string(&entry))?;
        }
        Ok(())
    }
}

/// Of a file's text.
impl FromStr for Table {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |number: usize, problem: String| Error::Table {
            table: "a table".into(),
            problem: format!("line {}: {problem}", number + 1),
        };
        let mut lines = text.lines().enumerate();
        let head = lines.next().map_or("", |(_, line)| line);
        let head: Head = serde_json::from_str(head).map_err(|error| wrong(0, error.to_string()))?;
        if head.ferrolayer != FORMAT {
            return Err(wrong(0, format!("{:?} is not {FORMAT:?}", head.ferrolayer)));
        }
        let mut table = Self { gpu: head.gpu, kernels: head.kernels, entries: Vec::new(), path: None };
        let mut known = HashSet::new();
        for (number, line) in lines {
            let line: Line = serde_json::from_str(line).map_err(|error| wrong(number, error.to_string()))?;
            let entry = line.entry().map_err(|problem| wrong(number, problem))?;
            if !known.insert(entry.problem) {
                return Err(wrong(number, format!("{} is there twice", entry.problem)));
            }
            table.entries.push(entry);
        }
        Ok(table)
    }
}

impl Line {
    fn entry(self) -> Result<Entry, String> {
        let Self { product, batch, inputs, outputs, dtype, precision, choice, us, model, model_us } = self;
        let product = Product::named(&product).ok_or(format!("{product:?} is no product"))?;
        let dtype = Problem::DTYPES.into_iter().find(|known| known.name() == dtype);
        let dtype = dtype.ok_or("products are of f32, f16 or bf16")?;
        let precision = match (dtype, precision) {
            (DType::F32, Some(name)) => Precision::named(&name).ok_or(format!("{name:?} is no precision"))?,
            (DType::F32, None) => return Err("an f32 product has a precision".into()),
            (_, None) => Precision::default(),
            (_, Some(_)) => return Err("only an f32 product has a precision".into()),
        };
        let problem = Problem { product, batch, inputs, outputs, dtype, precision };
        problem.check().map_err(|error| error.to_string())?;
        Ok(Entry { problem, choice, us, model, model_us })
    }
}
