//! Tables of tuned products: what is refused, and that what they say is done.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ferrolayer::device::Gpu;
use ferrolayer::ops::dense::Precision;
use ferrolayer::ops::dense::tune::{Entry, Problem, Product, Table, VARIABLE, tune};
use ferrolayer::{DType, Error};

use super::*;

/// A table is all streams' of a GPU: one test at a time changes it.
static ONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file of this test's own, removed with it.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Result<Self, Failed> {
        let path = std::env::temp_dir().join(format!("ferrolayer-{name}-{}.jsonl", std::process::id()));
        std::fs::write(&path, text)?;
        Ok(Self(path))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn gpu(device: &Device) -> &Gpu {
    match device {
        Device::Gpu(gpu) => gpu,
        other => panic!("{other} is no GPU"),
    }
}

fn problem(product: Product, sizes: [usize; 3], dtype: DType) -> Problem {
    let [batch, inputs, outputs] = sizes;
    Problem { product, batch, inputs, outputs, dtype, precision: Precision::default() }
}

fn entry(problem: Problem, choice: &str) -> Entry {
    Entry { problem, choice: choice.into(), us: 1.5, model: choice.into(), model_us: 1.5 }
}

fn refusal(result: ferrolayer::Result<impl std::fmt::Debug>) -> String {
    match result {
        Err(error @ Error::Table { .. }) => error.to_string(),
        other => panic!("{other:?} is no refusal of a table"),
    }
}

const SIZES: [usize; 3] = [40, 600, 24];

/// `y` by each way there is, which a table names: all are the same numbers, whole ones, and the bits of two runs are the same.
pub fn each_way_is_taken(device: &Device) -> Outcome {
    let _alone = alone();
    let gpu = gpu(device);
    let [n, i, o] = SIZES;
    let draw = |seed, shape: &[usize]| -> Result<Tensor<f32>, Error> {
        let whole = normal_tensor::<f32>(device, seed, shape).to_vec()?.into_iter().map(|v| (2.0 * v).round());
        Tensor::from_vec(device, shape, whole.collect())
    };
    let (x, w) = (draw(1, &[n, i])?, draw(2, &[o, i])?);
    let forward = || dense::forward_inference(&x, &w, None, Activation::Identity)?.to_vec();
    Table::new(gpu).apply(gpu)?;
    let expected = forward()?;
    let problem = problem(Product::Forward, SIZES, DType::F32);
    let choices = problem.choices(gpu)?;
    assert!(choices.len() > 3, "{choices:?}");
    for choice in choices {
        let mut table = Table::new(gpu);
        table.insert(entry(problem, &choice));
        table.apply(gpu)?;
        assert_eq!(forward()?, expected, "{choice}");
    }
    Ok(Table::new(gpu).apply(gpu)?)
}

/// Each product of 16 bits by each way of Hopper's: all are the same numbers, whole ones.
pub fn each_way_of_halves_is_taken(device: &Device) -> Outcome {
    let _alone = alone();
    let gpu = gpu(device);
    let draw = |seed, shape: &[usize]| -> Result<Tensor<bf16>, Error> {
        let whole = normal_tensor::<f32>(device, seed, shape).to_vec()?.into_iter();
        Tensor::from_vec(device, shape, whole.map(|v| bf16::from_f32((2.0 * v).round())).collect())
    };
    let mut taken = 0;
    // 162 tiles of 128 by 256, and some that end among a tile's rows or columns.
    for (product, sizes) in [
        (Product::Forward, [2264, 1032, 2056]),
        (Product::Forward, [392, 1096, 11_560]),
        (Product::Dx, [2264, 2056, 1032]),
        (Product::Dw, [1032, 2056, 2264]),
    ] {
        let [n, i, o] = sizes;
        let (x, w, dy) = (draw(1, &[n, i])?, draw(2, &[o, i])?, draw(3, &[n, o])?);
        let made = || -> Result<Vec<bf16>, Error> {
            let none = Activation::Identity;
            let (mut dx, mut dw) = (x.empty_like()?, w.empty_like()?);
            let mut gradients = Gradients::default();
            match product {
                Product::Forward => return dense::forward_inference(&x, &w, None, none)?.to_vec(),
                Product::Dx => gradients.dx = Some(Out::write(&mut dx)),
                Product::Dw => gradients.dw = Some(Out::write(&mut dw)),
            }
            dense::backward(&x, &w, none, &Saved::Identity, &dy, gradients)?;
            if product == Product::Dx { dx.to_vec() } else { dw.to_vec() }
        };
        Table::new(gpu).apply(gpu)?;
        let expected = made()?;
        let problem = problem(product, sizes, DType::Bf16);
        for choice in problem.choices(gpu)?.into_iter().filter(|choice| choice.starts_with("wgmma")) {
            taken += 1;
            let mut table = Table::new(gpu);
            table.insert(entry(problem, &choice));
            table.apply(gpu)?;
            assert!(made()? == expected, "{problem}: {choice}");
        }
    }
    assert!(taken > 100, "{taken} ways");
    Ok(Table::new(gpu).apply(gpu)?)
}

/// What is tuned is one of the ways, is kept in a file and read from it.
pub fn tunes_and_keeps(device: &Device) -> Outcome {
    let _alone = alone();
    let gpu = gpu(device);
    let mut problems = Problem::layer(16, 64, 24, DType::F32, Precision::default()).to_vec();
    problems.extend(Problem::layer(16, 64, 24, DType::Bf16, Precision::default()));
    let mut told = Vec::new();
    let table = tune(gpu, &problems, |entry, ways| told.push((entry.clone(), ways.to_vec())))?;
    let (entries, ways): (Vec<_>, Vec<_>) = told.into_iter().unzip();
    assert_eq!(table.entries(), entries);
    assert_eq!(entries.iter().map(|entry| entry.problem).collect::<Vec<_>>(), problems);
    for (Entry { choice, us, model, model_us, .. }, ways) in entries.iter().zip(&ways) {
        let taken = |name: &String| ways.iter().find(|(way, _)| way == name).map(|(_, us)| us);
        assert_eq!((taken(choice), taken(model)), (Some(us), Some(model_us)));
    }
    for Entry { problem, choice, us, model, model_us } in table.entries() {
        let choices = problem.choices(gpu)?;
        assert!(choices.contains(choice) && choices.contains(model), "{problem}: {choice}, {model}");
        assert!(us <= model_us, "{problem}: {us} {model_us}");
    }
    let file = File::new(&format!("tunes-{}", gpu.is_emulated()), "")?;
    table.write(&file.0)?;
    let read = Table::read(&file.0)?;
    assert_eq!(read.entries(), table.entries());
    read.apply(gpu)?;
    Ok(Table::new(gpu).apply(gpu)?)
}

pub fn refuses_what_cannot_be_tuned() -> Outcome {
    let gpu = Gpu::emulated();
    for (sizes, dtype) in [([0, 8, 8], DType::F32), ([8, 1 << 31, 8], DType::F32), ([8, 8, 8], DType::F64)] {
        let error = tune(&gpu, &[problem(Product::Dx, sizes, dtype)], |_, _| ()).unwrap_err();
        assert!(matches!(error, Error::Argument { op: "dense.tune", .. }), "{error}");
    }
    Ok(())
}

/// Stale, foreign, with a way that there is not: nothing of these is ever launched.
pub fn refuses_what_does_not_fit() -> Outcome {
    let gpu = Gpu::emulated();
    let problem = problem(Product::Forward, SIZES, DType::F32);
    let mut good = Table::new(&gpu);
    good.insert(entry(problem, "plain 64x64 parts 2"));
    let text = good.to_string();
    let applied = |text: &str| text.parse::<Table>().and_then(|table| table.apply(&gpu));

    let foreign = refusal(applied(&text.replace("\"emulated\"", "\"NVIDIA A100\"")));
    assert_eq!(foreign, "the table: made for another GPU, NVIDIA A100, and this is emulated: tune again");
    let kernels = text.split("\"kernels\":\"").nth(1).and_then(|rest| rest.split('"').next()).ok_or("no kernels")?;
    assert_eq!(kernels.len(), 64, "a SHA-256: {kernels}");
    let stale = refusal(applied(&text.replace(kernels, "0123")));
    assert_eq!(stale, format!("the table: made for other kernels, 0123, and this is {kernels}: tune again"));
    // None of this product's, of this GPU's, or of this type's.
    for choice in ["plain 64x64 parts 77", "wgmma 128x128", "mma 64x64", "plain 64x64 parts 2 ", ""] {
        let illegal = refusal(applied(&text.replace("plain 64x64 parts 2\",\"us", &format!("{choice}\",\"us"))));
        let expected = "the table: forward f32 40x600x24 f32_split: there is no such way to make it: ";
        assert_eq!(illegal, format!("{expected}{choice:?}"));
    }
    Ok(())
}

pub fn refuses_what_is_no_table() -> Outcome {
    let gpu = Gpu::emulated();
    let mut good = Table::new(&gpu);
    good.insert(entry(problem(Product::Forward, SIZES, DType::F32), "plain 64x64 parts 2"));
    let text = good.to_string();
    let line = text.lines().nth(1).ok_or("one entry")?;
    for (bad, expected) in [
        (String::new(), "line 1: "),
        ("{}".into(), "line 1: missing field `ferrolayer`"),
        (text.replace("dense products, 1", "dense products, 2"), "line 1: \"dense products, 2\" is not"),
        (format!("{text}{line}\n"), "line 3: forward f32 40x600x24 f32_split is there twice"),
        (text.replace("\"forward\"", "\"backward\""), "line 2: \"backward\" is no product"),
        (text.replace("\"dtype\":\"f32\"", "\"dtype\":\"f64\""), "line 2: products are of f32, f16 or bf16"),
        (text.replace("\"dtype\":\"f32\"", "\"dtype\":\"f16\""), "line 2: only an f32 product has a precision"),
        (text.replace("f32_split", "f33"), "line 2: \"f33\" is no precision"),
        (text.replace(",\"precision\":\"f32_split\"", ""), "line 2: an f32 product has a precision"),
        (text.replace("\"batch\":40", "\"batch\":0"), "line 2: dense.tune: problem is [0, 600]"),
        (text.replace("\"batch\":40", "\"batch\":-1"), "line 2: invalid value"),
        (text.replace("\"us\"", "\"speed\""), "line 2: unknown field `speed`"),
        (text.trim_end().trim_end_matches('}').to_owned(), "line 2: EOF"),
    ] {
        let problem = refusal(bad.parse::<Table>());
        assert!(problem.contains(expected), "{problem}: {expected}");
        let file = File::new("bad", &bad)?;
        let problem = refusal(Table::read(&file.0));
        assert!(problem.starts_with(&file.0.display().to_string()) && problem.contains(expected), "{problem}");
    }
    let missing = Table::read("no/such/file.jsonl").unwrap_err();
    assert!(matches!(missing, Error::Io { .. }), "{missing}");
    Ok(())
}

pub fn round_trips_and_never_panics() -> Outcome {
    let size = 1usize..5000;
    let problem = (0..3usize, size.clone(), size.clone(), size, 0..3usize, 0..3usize).prop_map(
        |(product, batch, inputs, outputs, dtype, precision)| {
            let dtype = [DType::F32, DType::F16, DType::Bf16][dtype];
            Problem::layer(batch, inputs, outputs, dtype, Precision::ALL[precision])[product]
        },
    );
    let us = (0..1_000_000_000u32).prop_map(|nanoseconds| f64::from(nanoseconds) / 1e3);
    let entry = (problem, ".*", us.clone(), ".*", us).prop_map(|(problem, choice, us, model, model_us)| Entry {
        problem,
        choice,
        us,
        model,
        model_us,
    });
    let gpu = Gpu::emulated();
    for_random(256, proptest::collection::vec(entry, 0..8), |entries| {
        let mut table = Table::new(&gpu);
        entries.into_iter().for_each(|entry| table.insert(entry));
        assert_eq!(table.to_string().parse::<Table>()?, table);
        Ok(())
    })?;
    let text = Table::new(&gpu).to_string();
    for_random(256, (".*", 0..200usize), |(garbage, at)| {
        let cut = text.char_indices().nth(at).map_or(text.len(), |(cut, _)| cut);
        let _ = format!("{}{garbage}{}", &text[..cut], &text[cut..]).parse::<Table>();
        let _ = format!("{text}{garbage}").parse::<Table>();
        Ok(())
    })
}

/// What `environment` says, in a process that is started with it.
pub const IN_THE_ENVIRONMENT: &str = "dense::tune::what_a_child_does";

/// Of a child process: one product, by the table that its environment names.
pub fn what_a_child_does() -> Outcome {
    let device = Device::Gpu(Gpu::emulated());
    let (x, w) = (normal_tensor::<f32>(&device, 1, &[40, 600]), normal_tensor::<f32>(&device, 2, &[24, 600]));
    dense::forward_inference(&x, &w, None, Activation::Identity)?;
    Ok(())
}

/// The table that the environment names is used, a bad one is said once and left alone, and `FERROLAYER_EXPLAIN` tells.
pub fn environment() -> Outcome {
    let said = |name: &std::path::Path| -> Result<Vec<String>, Failed> {
        let mut child = Command::new(std::env::current_exe()?);
        child.args(["--exact", IN_THE_ENVIRONMENT]).env("FERROLAYER_EXPLAIN", "1").env(VARIABLE, name);
        let child = child.output()?;
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
        Ok(String::from_utf8_lossy(&child.stderr).lines().map(str::to_owned).collect())
    };
    let gpu = Gpu::emulated();
    let mut table = Table::new(&gpu);
    table.insert(entry(problem(Product::Forward, SIZES, DType::F32), "plain 64x64 parts 3"));
    let file = File::new("environment", &table.to_string())?;
    let path = file.0.display();
    let tuned =
        format!("40x24 sums over 600 by plain 64x64 parts 3: tuned, the fastest of those measured, from {path}");
    assert_eq!(
        said(&file.0)?,
        [
            format!("ferrolayer: dense_forward_f32_64 grid 1x1x3 block 128: {tuned}"),
            format!("ferrolayer: dense_finish_late_f32 grid 5 block 256: {tuned}"),
        ]
    );
    let bad = File::new("environment-bad", "nothing")?;
    let missing = PathBuf::from("no/such/file.jsonl");
    for (path, problem) in [(&bad.0, "line 1: expected"), (&missing, "No such file")] {
        let said = said(path)?;
        let warning =
            format!("ferrolayer: {VARIABLE} is not used, plans are the model's: {}: {problem}", path.display());
        assert!(said[0].starts_with(&warning), "{said:?}");
        assert_eq!(said.iter().filter(|line| line.contains(VARIABLE)).count(), 1, "{said:?}");
        assert!(said[1].contains("40x24 sums over 600 by f32 arithmetic"), "{said:?}");
    }
    Ok(())
}
