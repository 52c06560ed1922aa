//! Dense layers.

use ferrolayer::ops::dense::{self, Activation, Gradients};
use ferrolayer::{Out, Tensor};
use serde::Deserialize;

use super::Check;
use super::vectors::{Kind, Scalar, Trial};
use crate::support::Outcome;

#[derive(Deserialize)]
pub struct Dense {
    /// Batch and inputs.
    x: [usize; 2],
    features: usize,
    bias: bool,
    activation: Name,
    /// Of PReLU: 1, or one for each output.
    slopes: usize,
    values: Kind,
    weights: Kind,
    gradient: Kind,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Name {
    Identity,
    Relu,
    Prelu,
}

impl Check for Dense {
    fn check<T: Scalar>(&self, trial: &Trial<'_>) -> Outcome {
        let ([batch, inputs], outputs) = (self.x, self.features);
        let x = trial.input::<T>(self.values, 0, &self.x)?;
        let dy = trial.input::<T>(self.gradient, 1, &[batch, outputs])?;
        let w = trial.input::<T>(self.weights, 2, &[outputs, inputs])?;
        let b = trial.input::<T>(self.weights, 3, &[outputs])?;
        let alpha = trial.input::<T>(Kind::Plain, 4, &[self.slopes])?;

        let activation = match self.activation {
            Name::Identity => Activation::Identity,
            Name::Relu => Activation::Relu,
            Name::Prelu => Activation::Prelu(&alpha.tensor),
        };
        let bias = self.bias.then_some(&b.tensor);
        let dense::Output { y, saved } = dense::forward(&x.tensor, &w.tensor, bias, activation)?;
        let (mut dx, mut dw) = (x.tensor.empty_like()?, w.tensor.empty_like()?);
        let (mut db, mut dalpha) = (b.tensor.empty_like()?, alpha.tensor.empty_like()?);
        let out = |wanted: bool, tensor| wanted.then_some(tensor).map(Out::write);
        let has_slopes = self.activation == Name::Prelu;
        let gradients = Gradients {
            dx: out(true, &mut dx),
            dw: out(true, &mut dw),
            db: out(self.bias, &mut db),
            dalpha: out(has_slopes, &mut dalpha),
        };
        dense::backward(&x.tensor, &w.tensor, activation, &saved, &dy.tensor, gradients)?;

        // The magnitudes of each sum's terms, by the formula.
        let size = |values: &[T], i: usize| values[i].f64().abs();
        let mut y_sizes = vec![0.0; batch * outputs];
        let (mut dx_sizes, mut dw_sizes) = (vec![0.0; batch * inputs], vec![0.0; outputs * inputs]);
        let (mut db_sizes, mut dalpha_sizes) = (vec![0.0; outputs], vec![0.0; self.slopes]);
        for (i, y_size) in y_sizes.iter_mut().enumerate() {
            let (n, o) = (i / outputs, i % outputs);
            let terms = || (0..inputs).map(|j| (n * inputs + j, o * inputs + j));
            let (mut z, mut z_size) = if self.bias { (b.host[o].f64(), size(&b.host, o)) } else { (0.0, 0.0) };
            for (at_x, at_w) in terms() {
                z += x.host[at_x].f64() * w.host[at_w].f64();
                z_size += size(&x.host, at_x) * size(&w.host, at_w);
            }
            let set = if self.slopes == 1 { 0 } else { o };
            let slope = match self.activation {
                Name::Relu if z <= 0.0 => 0.0,
                Name::Prelu if z > 0.0 => 1.0,
                Name::Prelu => size(&alpha.host, set),
                Name::Identity | Name::Relu => 1.0,
            };
            let dz = slope * size(&dy.host, i);
            *y_size = slope * z_size;
            for (at_x, at_w) in terms() {
                dx_sizes[at_x] += dz * size(&w.host, at_w);
                dw_sizes[at_w] += dz * size(&x.host, at_x);
            }
            db_sizes[o] += dz;
            // An element with z > 0 is no term of the sum.
            if z > 0.0 {
                continue;
            }
            dalpha_sizes[set] += z_size * size(&dy.host, i);
        }
        let close = |name, got: &Tensor<T>, terms, sizes: &[f64]| trial.close(name, got, terms, sizes);
        close("y", &y, inputs + 1, &y_sizes)?;
        close("dx", &dx, outputs, &dx_sizes)?;
        close("dw", &dw, batch, &dw_sizes)?;
        if self.bias {
            close("db", &db, batch, &db_sizes)?;
        }
        if has_slopes {
            close("dalpha", &dalpha, batch * outputs + inputs, &dalpha_sizes)?;
        }
        Ok(())
    }
}
