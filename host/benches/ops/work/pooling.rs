//! Ops over windows.

use ferrolayer::ops::Window;
use ferrolayer::ops::avg_pool::{self, Divisor};
use ferrolayer::ops::gaussian_pool::{self, Normalize};
use ferrolayer::ops::max_pool;
use ferrolayer::ops::stochastic_pool::{self, Random};
use ferrolayer::{Out, Real, Result};

use super::{Inputs, Run};
use crate::case::{Case, Pass};

fn window(case: &Case) -> Window {
    case.window().expect("pooling has a window, of the list")
}

pub fn max<T: Real>(inputs: &Inputs, case: &Case, pass: Pass) -> Result<Run> {
    let (n, x, window) = (inputs.sets, inputs.random::<T>(&case.shape)?, window(case));
    match pass {
        Pass::Forward => {
            let mut kept = inputs.kept();
            Ok(Box::new(move |run| max_pool::forward(&x[run % n], &window).map(|output| kept.keep(output))))
        }
        Pass::Inference => {
            let mut kept = inputs.kept();
            Ok(Box::new(move |run| max_pool::forward_inference(&x[run % n], &window).map(|y| kept.keep(y))))
        }
        _ => {
            let indices = x.iter().map(|x| Ok(max_pool::forward(x, &window)?.indices)).collect::<Result<Vec<_>>>()?;
            let (dy, mut dx) = (inputs.random::<T>(&case.output_shape())?, inputs.room(&x[0])?);
            let shape = case.shape.clone();
            Ok(Box::new(move |run| {
                let i = run % n;
                max_pool::backward(&dy[i], &indices[i], &window, &shape, Out::write(&mut dx[i]))
            }))
        }
    }
}

pub fn average<T: Real>(inputs: &Inputs, case: &Case, pass: Pass) -> Result<Run> {
    let (n, x, window, divisor) = (inputs.sets, inputs.random::<T>(&case.shape)?, window(case), Divisor::default());
    if pass == Pass::Forward {
        let mut kept = inputs.kept();
        return Ok(Box::new(move |run| avg_pool::forward(&x[run % n], &window, &divisor).map(|y| kept.keep(y))));
    }
    let (dy, mut dx) = (inputs.random::<T>(&case.output_shape())?, inputs.room(&x[0])?);
    let shape = case.shape.clone();
    Ok(Box::new(move |run| {
        let i = run % n;
        avg_pool::backward(&dy[i], &window, &divisor, &shape, Out::write(&mut dx[i]))
    }))
}

pub fn stochastic<T: Real>(inputs: &Inputs, case: &Case, pass: Pass) -> Result<Run> {
    let (n, x, window) = (inputs.sets, inputs.random::<T>(&case.shape)?, window(case));
    let mut random = Random::new(&inputs.device, 0)?;
    match pass {
        Pass::Forward => {
            let mut kept = inputs.kept();
            Ok(Box::new(move |run| {
                stochastic_pool::forward(&x[run % n], &window, &mut random).map(|output| kept.keep(output))
            }))
        }
        Pass::Inference => {
            let mut kept = inputs.kept();
            Ok(Box::new(move |run| stochastic_pool::forward_inference(&x[run % n], &window).map(|y| kept.keep(y))))
        }
        _ => {
            let mut draw = |x| Ok(stochastic_pool::forward(x, &window, &mut random)?.indices);
            let indices = x.iter().map(&mut draw).collect::<Result<Vec<_>>>()?;
            let (dy, mut dx) = (inputs.random::<T>(&case.output_shape())?, inputs.room(&x[0])?);
            let shape = case.shape.clone();
            Ok(Box::new(move |run| {
                let i = run % n;
                stochastic_pool::backward(&dy[i], &indices[i], &window, &shape, Out::write(&mut dx[i]))
            }))
        }
    }
}

/// Backward gives the input's gradient, and those of mean and variance where they are learnt.
pub fn gaussian<T: Real>(inputs: &Inputs, case: &Case, pass: Pass) -> Result<Run> {
    const NORMALIZE: Normalize = Normalize::Window;
    let (n, x, window) = (inputs.sets, inputs.random::<T>(&case.shape)?, window(case));
    let kernels = case.options.kernels.unwrap_or(1);
    let sets = if case.options.per_channel == Some(true) { case.shape[1] } else { 1 };
    let mean = inputs.full::<T::Compute>(&[sets, kernels, 2], 0.0)?;
    let var = inputs.full::<T::Compute>(&[sets, kernels, 1], 4.0)?;
    if pass == Pass::Forward {
        let mut kept = inputs.kept();
        return Ok(Box::new(move |run| {
            gaussian_pool::forward(&x[run % n], &mean, &var, &window, NORMALIZE).map(|y| kept.keep(y))
        }));
    }
    let (dy, mut dx) = (inputs.random::<T>(&case.output_shape())?, inputs.room(&x[0])?);
    let learnt = case.options.learnable == Some(true);
    let (mut dmean, mut dvar) = (mean.empty_like()?, var.empty_like()?);
    Ok(Box::new(move |run| {
        let i = run % n;
        let dmean = learnt.then_some(Out::write(&mut dmean));
        let dvar = learnt.then_some(Out::write(&mut dvar));
        let dx = Some(Out::write(&mut dx[i]));
        gaussian_pool::backward(&x[i], &mean, &var, &window, NORMALIZE, &dy[i], dx, dmean, dvar)
    }))
}
