//! How far each op's results lie from those of the same op in f64: the table of `docs/accuracy.md`.
//!
//! `cargo bench --bench accuracy -- --device cpu` (or `gpu`; `emulated` with `--features emulator`).

mod draw;
mod ops;

use std::process::ExitCode;

use clap::Parser;
use ferrolayer::testing::summation_error;
use ferrolayer::{DType, Device, Element, Real, Result, bf16, f16};

use self::draw::{Draw, Output};

/// Prints the largest error of each op's results against f64, as a table.
#[derive(Parser)]
struct Arguments {
    /// Where to run: cpu, gpu, gpu:N, auto or, with the feature emulator, emulated
    #[arg(long, default_value = "cpu")]
    device: String,
    /// What `cargo bench` gives every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let name = Arguments::parse().device;
    let device = match name.as_str() {
        #[cfg(feature = "emulator")]
        "emulated" => Ok(Device::Gpu(ferrolayer::device::Gpu::emulated())),
        name => name.parse(),
    };
    match device.and_then(|device| table(&device)) {
        Ok(table) => {
            print!("{table}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("--device {name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures an op in each of some types: one word more is one type more.
macro_rules! measure {
    ($rows:expr, $device:expr, $op:ident: $($t:ident)*) => {$(
        let round: fn(f64) -> f64 = |v| $t::of(v).f64();
        let cpu = Device::cpu();
        let got = ops::$op::<$t>(&Draw { device: $device, round, magnitudes: false })?;
        let exact = ops::$op::<f64>(&Draw { device: &cpu, round, magnitudes: false })?;
        let magnitudes = ops::$op::<f64>(&Draw { device: &cpu, round, magnitudes: true })?;
        for (got, (exact, magnitudes)) in got.iter().zip(exact.iter().zip(&magnitudes)) {
            $rows.add(stringify!($op), $t::DTYPE, got, &exact.values, &magnitudes.values);
        }
    )*};
}

fn table(device: &Device) -> Result<String> {
    let mut rows = Rows::default();
    measure!(rows, device, relu: f32 f16 bf16);
    measure!(rows, device, prelu: f32 f16 bf16);
    measure!(rows, device, add2: f32 f16 bf16);
    measure!(rows, device, scale_add: f32 f16 bf16);
    measure!(rows, device, dense: f32 f16 bf16);
    measure!(rows, device, max_pool: f32 f16 bf16);
    measure!(rows, device, avg_pool: f32 f16 bf16);
    measure!(rows, device, gaussian_pool: f32 f16 bf16);
    measure!(rows, device, exp: f32);
    measure!(rows, device, softmax_cross_entropy: f32);
    Ok(format!("{device}\n\n{}", rows.table()))
}

/// The types measured, in the table's order.
const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

/// The largest error of a result, in units of the last place and relative to the sum of the terms' magnitudes.
type Worst = [f64; 2];

#[derive(Default)]
struct Rows(Vec<(&'static str, &'static str, usize, [Option<Worst>; TYPES.len()])>);

impl Rows {
    fn add(&mut self, op: &'static str, dtype: DType, got: &Output, exact: &[f64], magnitudes: &[f64]) {
        let mut worst = [0.0f64; 2];
        for ((got_value, exact), magnitude) in got.values.iter().zip(exact).zip(magnitudes) {
            let error = (got_value - exact).abs();
            let unit = got.epsilon * exact.abs().max(got.min_positive).log2().floor().exp2();
            let relative = if error == 0.0 { 0.0 } else { error / magnitude.abs() };
            worst = [worst[0].max(error / unit), worst[1].max(relative)];
        }
        let column = TYPES.iter().position(|known| *known == dtype).expect("a type that is measured");
        let same = |row: &&mut (&str, &str, usize, _)| (row.0, row.1) == (op, got.name);
        match self.0.iter_mut().find(same) {
            Some(row) => row.3[column] = Some(worst),
            None => {
                let mut columns = [None; TYPES.len()];
                columns[column] = Some(worst);
                self.0.push((op, got.name, got.terms, columns));
            }
        }
    }

    fn table(&self) -> String {
        let mut text = "| op | result | terms | granted |".to_owned();
        TYPES.iter().for_each(|dtype| text += &format!(" {dtype}: ulp | relative |"));
        text += &format!("\n| --- | --- |{}\n", " ---: |".repeat(2 + 2 * TYPES.len()));
        for (op, result, terms, columns) in &self.0 {
            text += &format!("| {op} | {result} | {terms} | {:.1e} |", summation_error::<f32>(*terms));
            for worst in columns {
                text += &worst.map_or(" | |".into(), |[ulp, relative]| format!(" {ulp:.2} | {relative:.1e} |"));
            }
            text.push('\n');
        }
        text
    }
}
