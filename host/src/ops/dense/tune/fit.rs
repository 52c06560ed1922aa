//! The model's numbers, fitted to what was measured: for who changes kernels, or has another GPU.

use std::collections::BTreeMap;

use super::Problem;
use crate::ops::dense::plan::{Fit, Measured, Score};

/// What ways to make a product took, by their names, in one unit.
pub type Times = BTreeMap<String, f64>;

/// What a fit gave.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// How well the model chooses as it is.
    pub present: Score,
    /// How well by the fitted numbers, of all products.
    pub fitted: Score,
    /// How well by numbers that were fitted to one half of the layers, of the other half, each once.
    pub held_out: Score,
    /// The numbers, as `plan/hopper/model/constants.rs` has them.
    pub source: String,
}

/// Fits the numbers by which ways to make products of 16-bit floats are chosen on Hopper to what they took, by the ways' names
/// ([`tune`](super::tune) tells them), going over all numbers so many `times` at most. Other products are left out.
pub fn fit(measured: &[(Problem, Times)], times: usize) -> Fitted {
    let mut layers = Vec::new();
    let mut halves: [Vec<Measured>; 2] = Default::default();
    for (problem, ways) in measured.iter().filter(|(problem, _)| problem.dtype.size() == 2) {
        let Some(product) = Measured::new(&problem.question(true), ways) else { continue };
        // All products of a layer on the same side: they are alike.
        let layer = [problem.batch, problem.inputs, problem.outputs];
        let number = layers.iter().position(|known| *known == layer).unwrap_or_else(|| {
            layers.push(layer);
            layers.len() - 1
        });
        halves[number % 2].push(product);
    }
    let all: Vec<&Measured> = halves.iter().flatten().collect();
    let present = Fit::present();
    let held_out = [0, 1].map(|half| {
        let others: Vec<&Measured> = halves[1 - half].iter().collect();
        Fit::present().fitted(&others, times).score(&halves[half])
    });
    let fitted = Fit::present().fitted(&all, times);
    Fitted {
        present: present.score(all.iter().copied()),
        fitted: fitted.score(all.iter().copied()),
        held_out: held_out[0].and(held_out[1]),
        source: fitted.source(),
    }
}
