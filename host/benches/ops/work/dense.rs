//! The dense layer, with a bias.

use ferrolayer::ops::dense::{Activation, Gradients, Precision, Saved, backward_in, forward_in};
use ferrolayer::{Out, Real, Result, Tensor};

use super::{Inputs, Run};
use crate::case::{Case, Pass};

/// The activation of a case; `alpha` are PReLU's slopes.
fn activation<'a, T: Real>(name: Option<&str>, alpha: &'a Tensor<T::Compute>) -> Activation<'a, T> {
    match name {
        Some("relu") => Activation::Relu,
        Some("prelu") => Activation::Prelu(alpha),
        _ => Activation::Identity,
    }
}

fn precision(name: Option<&str>) -> Precision {
    match name {
        None => Precision::default(),
        Some("f32") => Precision::F32,
        Some("tf32") => Precision::Tf32,
        Some(other) => unreachable!("{other} is no precision of the list"),
    }
}

pub fn bind<T: Real>(inputs: &Inputs, case: &Case, pass: Pass) -> Result<Run> {
    let [batch, from, to] = case.shape[..] else { unreachable!("three sizes, of the list") };
    let (n, x, w) = (inputs.sets, inputs.random::<T>(&[batch, from])?, inputs.random::<T>(&[to, from])?);
    let (b, alpha) = (inputs.random::<T>(&[to])?.swap_remove(0), inputs.full::<T::Compute>(&[to], 0.25)?);
    let (name, precision) = (case.options.activation.clone(), precision(case.options.precision.as_deref()));
    if pass == Pass::Forward {
        let mut kept = inputs.kept();
        return Ok(Box::new(move |run| {
            let act = activation(name.as_deref(), &alpha);
            forward_in(precision, &x[run % n], &w[run % n], Some(&b), act).map(|output| kept.keep(output))
        }));
    }
    let saved = x
        .iter()
        .zip(&w)
        .map(|(x, w)| Ok(forward_in(precision, x, w, Some(&b), activation(name.as_deref(), &alpha))?.saved));
    let saved = saved.collect::<Result<Vec<Saved<T>>>>()?;
    let dy = inputs.random::<T>(&[batch, to])?;
    let (mut dx, mut dw) = (inputs.room(&x[0])?, inputs.room(&w[0])?);
    let (mut db, mut dalpha) = (b.empty_like()?, alpha.empty_like()?);
    let learns_alpha = name.as_deref() == Some("prelu");
    Ok(Box::new(move |run| {
        let i = run % n;
        let all = pass == Pass::Backward;
        let gradients = Gradients {
            dx: (pass != Pass::Dw).then_some(Out::write(&mut dx[i])),
            dw: (pass != Pass::Dx).then_some(Out::write(&mut dw[i])),
            db: all.then_some(Out::write(&mut db)),
            dalpha: (all && learns_alpha).then_some(Out::write(&mut dalpha)),
        };
        backward_in(precision, &x[i], &w[i], activation(name.as_deref(), &alpha), &saved[i], &dy[i], gradients)
    }))
}
