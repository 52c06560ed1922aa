//! Each op once: both passes, with what each result's elements sum.

use ferrolayer::ops::dense::{self, Activation, Gradients, Saved};
use ferrolayer::ops::gaussian_pool::{self, Normalize};
use ferrolayer::ops::{Window, add2, avg_pool, exp, max_pool, prelu, relu, scale_add, softmax_cross_entropy};
use ferrolayer::{Compute, Out, Real, Result, Tensor};

use crate::draw::{Draw, Output, output, values};

const LEN: [usize; 1] = [10_007];

pub fn relu<T: Real>(draw: &Draw<'_>) -> Result<Vec<Output>> {
    let (x, dy) = (draw.fixed::<T>(1, &LEN)?, draw.linear(2, &LEN)?);
    let y = relu::forward(&x)?;
    let mut dx = x.empty_like()?;
    relu::backward(&y, &dy, Out::write(&mut dx))?;
    Ok(vec![output("y", 1, &y)?, output("dx", 1, &dx)?])
}

pub fn prelu<T: Real>(draw: &Draw<'_>) -> Result<Vec<Output>> {
    let shape = [16, 10, 9, 7];
    let (x, alpha, dy) =
        (draw.fixed::<T>(1, &shape)?, draw.parameter::<T::Compute>(2, &[10])?, draw.linear(3, &shape)?);
    let y = prelu::forward(&x, &alpha)?;
    let (mut dx, mut dalpha) = (x.empty_like()?, alpha.empty_like()?);
    prelu::backward(&x, &alpha, &dy, Some(Out::write(&mut dx)), Some(Out::write(&mut dalpha)))?;
    Ok(vec![output("y", 1, &y)?, output("dx", 1, &dx)?, output("dalpha", 16 * 63, &dalpha)?])
}

pub fn add2<T: Real>(draw: &Draw<'_>) -> Result<Vec<Output>> {
    let (a, b) = (draw.linear::<T>(1, &LEN)?, draw.linear(2, &LEN)?);
    let mut da = a.empty_like()?;
    add2::backward(&b, Some(Out::write(&mut da)), None)?;
    Ok(vec![output("y", 2, &add2::forward(&a, &b)?)?, output("da", 1, &da)?])
}

pub fn scale_add<T: Real>(draw: &Draw<'_>) -> Result<Vec<Output>> {
    let (x, s, c) = (draw.linear::<T>(1, &LEN)?, draw.parameter(2, &[1])?, draw.parameter(3, &[1])?);
    let mut dx = x.empty_like()?;
    scale_add::backward(&x, &s, Out::write(&mut dx))?;
    Ok(vec![output("y", 2, &scale_add::forward(&x, &s, &c)?)?, output("dx", 1, &dx)?])
}

pub fn dense<T: Real>(draw: &Draw<'_>) -> Result<Vec<Output>> {
    let [n, i, o] = [48, 1000, 40];
    let (x, w, b) = (draw.fixed::<T>(1, &[n, i])?, draw.fixed(2, &[o, i])?, draw.fixed(3, &[o])?);
    let (alpha, dy) = (draw.parameter(4, &[o])?, draw.linear(5, &[n, o])?);
    let activation = Activation::Prelu(&alpha);
    let forward = dense::forward(&x, &w, Some(&b), activation)?;
    let mut y = output("y", i + 1, &forward.y)?;
    let (x, w, b) = (draw.linear(1, &[n, i])?, draw.linear(2, &[o, i])?, draw.linear(3, &[o])?);
    if let (true, Saved::Prelu { z }) = (draw.magnitudes, &forward.saved) {
        // The slope is the signed z's.
        let sums = values(&dense::forward_inference(&x, &w, Some(&b), Activation::Identity)?)?;
        y.values.iter_mut().zip(values(z)?.into_iter().zip(sums)).for_each(|(y, (z, sum))| *y *= sum / z);
    }
    let (mut dx, mut dw, mut db) = (x.empty_like()?, w.empty_like()?, b.empty_like()?);
    let mut dalpha = alpha.empty_like()?;
    let gradients = Gradients {
        dx: Some(Out::write(&mut dx)),
        dw: Some(Out::write(&mut dw)),
        db: Some(Out::write(&mut db)),
        dalpha: Some(Out::write(&mut dalpha)),
    };
    dense::backward(&x, &w, activation, &forward.saved, &dy, gradients)?;
    let (dx, dw) = (output("dx", o, &dx)?, output("dw", n, &dw)?);
    Ok(vec![y, dx, dw, output("db", n, &db)?, output("dalpha", n, &dalpha)?])
}

const IMAGES: [usize; 4] = [2, 3, 25, 20];

pub fn max_pool<T: Real>(draw: &Draw<'_>) -> Result<Vec<Output>> {
    let window = Window::new([3, 3]).stride([2, 2]).padding([1, 1]);
    let x = draw.fixed::<T>(1, &IMAGES)?;
    let max_pool::Output { y, indices } = max_pool::forward(&x, &window)?;
    let (dy, mut dx) = (draw.linear(2, y.shape())?, x.empty_like()?);
    max_pool::backward(&dy, &indices, &window, &IMAGES, Out::write(&mut dx))?;
    Ok(vec![output("y", 1, &y)?, output("dx", 4, &dx)?])
}

pub fn avg_pool<T: Real>(draw: &Draw<'_>) -> Result<Vec<Output>> {
    let (window, divisor) = (Window::new([3, 3]).stride([2, 2]).padding([1, 1]), avg_pool::Divisor::default());
    let x = draw.linear::<T>(1, &IMAGES)?;
    let y = avg_pool::forward(&x, &window, &divisor)?;
    let (dy, mut dx) = (draw.linear(2, y.shape())?, x.empty_like()?);
    avg_pool::backward(&dy, &window, &divisor, &IMAGES, Out::write(&mut dx))?;
    Ok(vec![output("y", 9, &y)?, output("dx", 4, &dx)?])
}

pub fn gaussian_pool<T: Real>(draw: &Draw<'_>) -> Result<Vec<Output>> {
    const SIDE: usize = 5;
    let window = Window::new([SIDE, SIDE]);
    let normalize = Normalize::Window;
    let (mean, var) = (draw.parameter::<T::Compute>(1, &[1, 2, 2])?, draw.parameter::<T::Compute>(2, &[1, 2, 2])?);
    let x = draw.linear::<T>(3, &IMAGES)?;
    let y = gaussian_pool::forward(&x, &mean, &var, &window, normalize)?;
    let dy = draw.linear(4, y.shape())?;
    let backward = |x: &Tensor<T>| -> Result<[Output; 3]> {
        let (mut dx, mut dmean, mut dvar) = (x.empty_like()?, mean.empty_like()?, var.empty_like()?);
        let (to_dx, to_dmean) = (Some(Out::write(&mut dx)), Some(Out::write(&mut dmean)));
        gaussian_pool::backward(x, &mean, &var, &window, normalize, &dy, to_dx, to_dmean, Some(Out::write(&mut dvar)))?;
        let terms = x.len();
        Ok([output("dx", 2, &dx)?, output("dmean", terms, &dmean)?, output("dvar", terms, &dvar)?])
    };
    let [dx, mut dmean, mut dvar] = backward(&x)?;
    if draw.magnitudes {
        // Windows do not overlap: the terms of one position of all windows have one sign, that of its weight's derivative.
        let x = x.to_vec()?;
        (dmean.values, dvar.values) = (vec![0.0; 4], vec![0.0; 4]);
        for position in 0..SIDE * SIDE {
            let at = |i: usize| i / IMAGES[3] % IMAGES[2] % SIDE * SIDE + i % IMAGES[3] % SIDE;
            let alone = x.iter().enumerate().map(|(i, &x)| if at(i) == position { x } else { T::of(0.0) });
            let [_, of_mean, of_var] = backward(&Tensor::from_vec(draw.device, &IMAGES, alone.collect())?)?;
            let add = |sums: &mut [f64], parts: &[f64]| sums.iter_mut().zip(parts).for_each(|(s, p)| *s += p.abs());
            add(&mut dmean.values, &of_mean.values);
            add(&mut dvar.values, &of_var.values);
        }
    }
    Ok(vec![output("y", SIDE * SIDE, &y)?, dx, dmean, dvar])
}

pub fn exp<T: Compute>(draw: &Draw<'_>) -> Result<Vec<Output>> {
    let (x, dy) = (draw.fixed::<T>(1, &LEN)?, draw.linear(2, &LEN)?);
    let y = exp::forward(&x)?;
    let mut dx = x.empty_like()?;
    exp::backward(&x, &y, &dy, Out::write(&mut dx))?;
    Ok(vec![output("y", 1, &y)?, output("dx", 1, &dx)?])
}

pub fn softmax_cross_entropy<T: Compute>(draw: &Draw<'_>) -> Result<Vec<Output>> {
    let [n, classes] = [33, 40];
    let x = draw.fixed::<T>(1, &[n, classes])?;
    let label = |row: usize| row * 7 % classes;
    let labels = Tensor::from_vec(draw.device, &[n], (0..n).map(|row| label(row) as u32).collect())?;
    let forward = softmax_cross_entropy::forward(&x, &labels)?;
    let mut dx = x.empty_like()?;
    softmax_cross_entropy::backward(&x, &labels, &forward.log_sum, None, Out::write(&mut dx))?;
    let (mut loss, mut dx) = (output("loss", n + classes, &forward.loss)?, output("dx", classes, &dx)?);
    if draw.magnitudes {
        // |log_sum| + |x| and p + 1 at the label, where the difference of the two is the result.
        let (x, log_sum) = (values(&x)?, values(&forward.log_sum)?);
        let rows = (0..n).map(|row| log_sum[row].abs() + x[row * classes + label(row)].abs());
        loss.values = vec![rows.sum::<f64>() / n as f64];
        (0..n).for_each(|row| dx.values[row * classes + label(row)] += 2.0 / n as f64);
    }
    Ok(vec![loss, dx])
}
