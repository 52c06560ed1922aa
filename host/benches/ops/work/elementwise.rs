//! Ops that read and write each element once.

use ferrolayer::ops;
use ferrolayer::{Layout, Out, Real, Result, Tensor};

use super::{Inputs, Run};
use crate::case::{Case, Pass};
use crate::timing::copied;

pub fn relu<T: Real>(inputs: &Inputs, case: &Case, pass: Pass) -> Result<Run> {
    let (n, x) = (inputs.sets, inputs.random::<T>(&case.shape)?);
    if pass == Pass::Forward {
        let mut kept = inputs.kept();
        return Ok(Box::new(move |run| ops::relu::forward(&x[run % n]).map(|y| kept.keep(y))));
    }
    let (dy, mut dx) = (inputs.random::<T>(&case.shape)?, inputs.room(&x[0])?);
    Ok(Box::new(move |run| ops::relu::backward(&x[run % n], &dy[run % n], Out::write(&mut dx[run % n]))))
}

pub fn exp(inputs: &Inputs, case: &Case, pass: Pass) -> Result<Run> {
    let (n, x) = (inputs.sets, inputs.random::<f32>(&case.shape)?);
    if pass == Pass::Forward {
        let mut kept = inputs.kept();
        return Ok(Box::new(move |run| ops::exp::forward(&x[run % n]).map(|y| kept.keep(y))));
    }
    let y = x.iter().map(ops::exp::forward).collect::<Result<Vec<_>>>()?;
    let (dy, mut dx) = (inputs.random::<f32>(&case.shape)?, inputs.room(&x[0])?);
    Ok(Box::new(move |run| {
        let i = run % n;
        ops::exp::backward(&x[i], &y[i], &dy[i], Out::write(&mut dx[i]))
    }))
}

pub fn swish<T: Real>(inputs: &Inputs, case: &Case, pass: Pass) -> Result<Run> {
    let (n, x) = (inputs.sets, inputs.random::<T>(&case.shape)?);
    let beta = inputs.full::<T::Compute>(&[1], 1.0)?;
    if pass == Pass::Forward {
        let mut kept = inputs.kept();
        return Ok(Box::new(move |run| ops::swish::forward(&x[run % n], &beta).map(|y| kept.keep(y))));
    }
    let (dy, mut dx, mut dbeta) = (inputs.random::<T>(&case.shape)?, inputs.room(&x[0])?, beta.empty_like()?);
    Ok(Box::new(move |run| {
        let i = run % n;
        let (dx, dbeta) = (Some(Out::write(&mut dx[i])), Some(Out::write(&mut dbeta)));
        ops::swish::backward(&x[i], &beta, &dy[i], dx, dbeta)
    }))
}

pub fn add2<T: Real>(inputs: &Inputs, case: &Case) -> Result<Run> {
    let (n, a, b) = (inputs.sets, inputs.random::<T>(&case.shape)?, inputs.random::<T>(&case.shape)?);
    let mut kept = inputs.kept();
    Ok(Box::new(move |run| ops::add2::forward(&a[run % n], &b[run % n]).map(|y| kept.keep(y))))
}

pub fn scale_add<T: Real>(inputs: &Inputs, case: &Case, pass: Pass) -> Result<Run> {
    let (n, x) = (inputs.sets, inputs.random::<T>(&case.shape)?);
    let (s, c) = (inputs.full::<T::Compute>(&[1], 0.5)?, inputs.full::<T::Compute>(&[1], 0.5)?);
    if pass == Pass::Forward {
        let mut kept = inputs.kept();
        return Ok(Box::new(move |run| ops::scale_add::forward(&x[run % n], &s, &c).map(|y| kept.keep(y))));
    }
    let mut dx = inputs.room(&x[0])?;
    Ok(Box::new(move |run| ops::scale_add::backward(&x[run % n], &s, Out::write(&mut dx[run % n]))))
}

/// With a slope for each channel, both gradients.
pub fn prelu<T: Real>(inputs: &Inputs, case: &Case, pass: Pass) -> Result<Run> {
    let (n, x) = (inputs.sets, inputs.random::<T>(&case.shape)?);
    let alpha = inputs.full::<T::Compute>(&[case.shape[1]], 0.25)?;
    if pass == Pass::Forward {
        let mut kept = inputs.kept();
        return Ok(Box::new(move |run| ops::prelu::forward(&x[run % n], &alpha).map(|y| kept.keep(y))));
    }
    let (dy, mut dx, mut dalpha) = (inputs.random::<T>(&case.shape)?, inputs.room(&x[0])?, alpha.empty_like()?);
    Ok(Box::new(move |run| {
        let i = run % n;
        let (dx, dalpha) = (Some(Out::write(&mut dx[i])), Some(Out::write(&mut dalpha)));
        ops::prelu::backward(&x[i], &alpha, &dy[i], dx, dalpha)
    }))
}

/// From the row's layout to the other.
pub fn permute<T: Real>(inputs: &Inputs, case: &Case) -> Result<Run> {
    let (n, x) = (inputs.sets, inputs.random::<T>(&case.shape)?);
    let other = match inputs.layout {
        Layout::RowMajor => Layout::ChannelsLast,
        Layout::ChannelsLast => Layout::RowMajor,
    };
    let room = (0..n).map(|_| Tensor::empty_in(&inputs.device, &case.shape, other));
    let mut y = room.collect::<Result<Vec<Tensor<T>>>>()?;
    Ok(Box::new(move |run| ops::permute::copy(&x[run % n], &mut y[run % n])))
}

/// The driver's own copy.
pub fn copy<T: Real>(inputs: &Inputs, case: &Case) -> Result<Run> {
    let (n, x) = (inputs.sets, inputs.random::<T>(&case.shape)?);
    let mut kept = inputs.kept();
    Ok(Box::new(move |run| copied(&x[run % n]).map(|y| kept.keep(y))))
}
