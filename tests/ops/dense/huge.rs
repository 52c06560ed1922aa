//! Operands and results whose elements 32 bits do not count: a matrix of eight columns, or rows, and 2³² elements.
//!
//! The matrix is made on the GPU, by a product whose terms are exact; what is made of it is one number a row, of which
//! those are checked whose elements lie where the flat index passes 2³¹ and 2³², and some between.

use std::collections::BTreeSet;

use super::*;

type Values = Tensor<bf16>;

/// Columns of the matrix.
const WIDTH: usize = 8;
/// Rows of the matrix, so that the flat index passes 2³².
const ROWS: usize = (1 << 29) + 1000;
/// A value for each column, of one digit: its products are exact.
const COLUMNS: [f64; WIDTH] = [1.0, -2.0, 4.0, -8.0, 0.5, -0.25, 16.0, -32.0];

pub fn x_and_dx(gpu: &Device) -> Outcome {
    tall(gpu, ROWS)
}

pub fn w(gpu: &Device) -> Outcome {
    wide_layer(gpu, ROWS)
}

/// The same tests where the emulated grid can run them.
pub fn in_small(gpu: &Device) -> Outcome {
    tall(gpu, 3000)?;
    wide_layer(gpu, 3000)
}

/// A value for each row: a whole number of six digits, other than those of the rows that a flat index of 32 bits would
/// take for it.
fn of_row(row: usize) -> f64 {
    ((row as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 57) as f64 - 63.0
}

/// The rows to look at.
fn sampled(rows: usize) -> Vec<usize> {
    let edges = [0, (1usize << 31) / WIDTH, (1usize << 32) / WIDTH, rows];
    let near = edges.into_iter().flat_map(|edge| edge.saturating_sub(100)..edge + 100);
    let sampled: BTreeSet<usize> = (0..rows).step_by(1_000_003).chain(near).filter(|&row| row < rows).collect();
    sampled.into_iter().collect()
}

/// One value for each row, 0 but for the sampled ones where `only_sampled`.
fn column(gpu: &Device, shape: [usize; 2], only_sampled: bool) -> Result<Values, Failed> {
    let rows = shape[0] * shape[1];
    let mut values = vec![bf16::of(0.0); rows];
    if only_sampled {
        sampled(rows).into_iter().for_each(|row| values[row] = bf16::of(of_row(row)));
    } else {
        let table: Vec<bf16> = (0..128).map(|v| bf16::of(f64::from(v) - 63.0)).collect();
        values.iter_mut().enumerate().for_each(|(row, value)| *value = table[(of_row(row) + 63.0) as usize]);
    }
    Ok(Tensor::from_vec(gpu, &shape, values)?)
}

fn small(gpu: &Device, shape: [usize; 2], values: [f64; WIDTH]) -> Result<Values, Failed> {
    narrow(gpu, &shape, &values)
}

/// A value for each column that is no power of two.
fn drawn(seed: u64) -> [f64; WIDTH] {
    let values = normal::<bf16>(seed, WIDTH);
    std::array::from_fn(|i| values[i].f64())
}

/// `[rows, 8]`: the value of the row times that of the column.
fn matrix(gpu: &Device, rows: usize) -> Result<Values, Failed> {
    let (x, w) = (column(gpu, [rows, 1], false)?, small(gpu, [WIDTH, 1], COLUMNS)?);
    Ok(dense::forward_inference(&x, &w, None, Activation::Identity)?)
}

/// The sampled rows of `got` against `expected`, which gives a sum and that of its terms' magnitudes.
fn check_rows(what: &str, got: &Values, rows: usize, expected: impl Fn(usize) -> [f64; 2]) -> Outcome {
    let got = got.to_vec()?;
    let sampled = sampled(rows);
    let values: Vec<bf16> = sampled.iter().map(|&row| got[row]).collect();
    let expected: Vec<_> = sampled.into_iter().map(expected).collect();
    let exact: Vec<bf16> = expected.iter().map(|[sum, _]| bf16::of(*sum)).collect();
    let sizes: Vec<f64> = expected.iter().map(|[_, size]| *size).collect();
    assert_close(what, &values, &exact, WIDTH, &sizes)?;
    Ok(())
}

/// A sum over the columns of a row of the matrix, and that of its terms' magnitudes.
fn row_sum(row: usize, term: impl Fn(f64, usize) -> f64) -> [f64; 2] {
    let terms = || (0..WIDTH).map(|i| term(of_row(row) * COLUMNS[i], i));
    [terms().sum(), terms().map(f64::abs).sum()]
}

/// What depends on the sampled rows alone, summed over them.
fn check_sums(what: &str, got: &Values, rows: usize, of: impl Fn(usize, usize) -> f64) -> Outcome {
    let sampled = sampled(rows);
    let sum = |i: usize, f: fn(f64) -> f64| sampled.iter().map(|&row| f(of(row, i))).sum::<f64>();
    let exact: Vec<bf16> = (0..got.len()).map(|i| bf16::of(sum(i, same))).collect();
    let sizes: Vec<f64> = (0..got.len()).map(|i| sum(i, f64::abs)).collect();
    assert_close(what, &got.to_vec()?, &exact, sampled.len(), &sizes)?;
    Ok(())
}

/// A batch of so many rows.
fn tall(gpu: &Device, rows: usize) -> Outcome {
    let x = matrix(gpu, rows)?;
    let weights = drawn(1);
    let w = small(gpu, [1, WIDTH], weights)?;
    let dense::Output { y, saved } = dense::forward(&x, &w, None, Activation::Relu)?;
    check_rows("y", &y, rows, |row| {
        let [sum, size] = row_sum(row, |x, i| x * weights[i]);
        [sum.max(0.0), size]
    })?;

    // dw and db sum the sampled rows: the gradients of all others are 0.
    let dy = column(gpu, [rows, 1], true)?;
    let [mut dw, mut db] = [Tensor::empty(gpu, &[1, WIDTH])?, Tensor::empty(gpu, &[1])?];
    let gradients = Gradients { dw: Some(Out::write(&mut dw)), db: Some(Out::write(&mut db)), ..Gradients::default() };
    dense::backward(&x, &w, Activation::Relu, &saved, &dy, gradients)?;
    let dz = |row: usize| if row_sum(row, |x, i| x * weights[i])[0] > 0.0 { of_row(row) } else { 0.0 };
    check_sums("dw", &dw, rows, |row, i| dz(row) * of_row(row) * COLUMNS[i])?;
    check_sums("db", &db, rows, |row, _| dz(row))?;
    drop((y, saved, dy));

    // dx is as large as x, and what is made of it one value a row.
    let (dy, powers) = (column(gpu, [rows, 1], false)?, small(gpu, [1, WIDTH], COLUMNS)?);
    let mut dx = Tensor::empty(gpu, &[rows, WIDTH])?;
    let only_dx = Gradients { dx: Some(Out::write(&mut dx)), ..Gradients::default() };
    dense::backward(&x, &powers, Activation::Identity, &Saved::Identity, &dy, only_dx)?;
    let sums = dense::forward_inference(&dx, &w, None, Activation::Identity)?;
    check_rows("dx", &sums, rows, |row| row_sum(row, |dx, i| dx * weights[i]))?;
    drop((dx, dy, sums));

    // dy, the saved output and dz are as large.
    let (narrow_x, w) = (Tensor::zeros(gpu, &[rows, 1])?, small(gpu, [WIDTH, 1], weights)?);
    let mut dx = Tensor::empty(gpu, &[rows, 1])?;
    let only_dx = Gradients { dx: Some(Out::write(&mut dx)), ..Gradients::default() };
    dense::backward(&narrow_x, &w, Activation::Relu, &Saved::Relu { y: x.clone() }, &x, only_dx)?;
    check_rows("dx of a large dy", &dx, rows, |row| row_sum(row, |dy, i| dy.max(0.0) * weights[i]))
}

/// A layer of so many outputs, and one of so many inputs.
fn wide_layer(gpu: &Device, rows: usize) -> Outcome {
    let w = matrix(gpu, rows)?;
    let inputs = drawn(2);
    let x = small(gpu, [1, WIDTH], inputs)?;
    let y = dense::forward_inference(&x, &w, None, Activation::Identity)?;
    check_rows("y", &y, rows, |row| row_sum(row, |w, i| w * inputs[i]))?;

    let (dy, powers) = (column(gpu, [1, rows], false)?, small(gpu, [1, WIDTH], COLUMNS)?);
    let mut dw = Tensor::empty(gpu, &[rows, WIDTH])?;
    let only_dw = Gradients { dw: Some(Out::write(&mut dw)), ..Gradients::default() };
    dense::backward(&powers, &w, Activation::Identity, &Saved::Identity, &dy, only_dw)?;
    let sums = dense::forward_inference(&x, &dw, None, Activation::Identity)?;
    check_rows("dw", &sums, rows, |row| row_sum(row, |dw, i| dw * inputs[i]))?;
    drop((dw, sums, y));

    // The same memory as eight rows: inputs that are 0 but for the sampled ones leave few terms of each sum.
    let (x, w) = (column(gpu, [1, rows], true)?, w.reshape(&[WIDTH, rows])?);
    let y = dense::forward_inference(&x, &w, None, Activation::Identity)?;
    check_sums("y of many inputs", &y, rows, |input, o| {
        let at = o * rows + input;
        of_row(input) * of_row(at / WIDTH) * COLUMNS[at % WIDTH]
    })
}
