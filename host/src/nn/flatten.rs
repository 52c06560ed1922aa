//! Images as rows.

use super::layer::take;
use super::{Layer, Mode};
use crate::{Compute, Error, Result, Tensor};

/// `[N, ..]` as `[N, features]`. Nothing is copied.
#[derive(Clone, Debug, Default)]
pub struct Flatten {
    /// The input's shape.
    saved: Option<Vec<usize>>,
}

impl Flatten {
    /// The layer.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<T: Compute> Layer<T> for Flatten {
    fn describe(&self) -> String {
        "Flatten".into()
    }

    fn forward(&mut self, x: &Tensor<T>, mode: Mode) -> Result<Tensor<T>> {
        let [batch, rest @ ..] = x.shape() else {
            let expected = "[N, ..]".into();
            return Err(Error::Shape { op: "flatten.forward", argument: "x", got: Vec::new(), expected });
        };
        let y = x.clone().reshape(&[*batch, rest.iter().product()])?;
        self.saved = mode.keep(|| x.shape().to_vec());
        Ok(y)
    }

    fn backward(&mut self, dy: &Tensor<T>) -> Result<Tensor<T>> {
        let shape = take(&mut self.saved, "Flatten")?;
        dy.clone().reshape(&shape)
    }
}
