//! What training needs besides layers: the loss, and steps of one parameter.

use ferrolayer::ops::adam::{self, Clock};
use ferrolayer::ops::{sgd, softmax_cross_entropy as loss};
use ferrolayer::{Out, Result, Tensor};

use super::{Inputs, Run};
use crate::case::{Case, Pass};

pub fn softmax_cross_entropy(inputs: &Inputs, case: &Case, pass: Pass) -> Result<Run> {
    let [rows, classes] = case.shape[..] else { unreachable!("rows and classes, of the list") };
    let (n, x) = (inputs.sets, inputs.random::<f32>(&case.shape)?);
    // A prime's multiples: no pattern that a cache would profit from.
    let labels = (0..rows).map(|row| (row * 7919 % classes) as u32).collect();
    let labels = Tensor::from_vec(&inputs.device, &[rows], labels)?;
    if pass == Pass::Forward {
        let mut kept = inputs.kept();
        return Ok(Box::new(move |run| loss::forward(&x[run % n], &labels).map(|output| kept.keep(output))));
    }
    let log_sum = loss::forward(&x[0], &labels)?.log_sum;
    let mut dx = inputs.room(&x[0])?;
    Ok(Box::new(move |run| loss::backward(&x[run % n], &labels, &log_sum, None, Out::write(&mut dx[run % n]))))
}

/// With momentum.
pub fn sgd(inputs: &Inputs, case: &Case) -> Result<Run> {
    let settings = sgd::Settings { learning_rate: 1e-3, momentum: 0.9, weight_decay: 1e-4 };
    let settings = settings.to_tensor::<f32>(&inputs.device)?;
    let random = || inputs.random::<f32>(&case.shape);
    let (n, gradient, mut value, mut velocity) = (inputs.sets, random()?, random()?, random()?);
    Ok(Box::new(move |run| {
        let i = run % n;
        sgd::step(&settings, &gradient[i], &mut value[i], Some(&mut velocity[i]), false)
    }))
}

pub fn adam(inputs: &Inputs, case: &Case) -> Result<Run> {
    let mut clock = Clock::<f32>::new(&inputs.device, &adam::Settings::default())?;
    clock.advance()?;
    let random = || inputs.random::<f32>(&case.shape);
    let (n, gradient, mut value, mut first) = (inputs.sets, random()?, random()?, random()?);
    let squares = (0..n).map(|_| Tensor::full(&inputs.device, &case.shape, 0.25));
    let mut second = squares.collect::<Result<Vec<_>>>()?;
    Ok(Box::new(move |run| {
        let i = run % n;
        adam::step(&clock, &gradient[i], &mut value[i], &mut first[i], &mut second[i])
    }))
}
