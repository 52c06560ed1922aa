//! Fits the model's numbers to what products took.
//!
//! What counts is the way that the model chooses, not the time that it says: the loss is how much longer than the fastest that way took, in the mean
//! over all products. So that it has a slope, ways that the model holds for nearly as fast as its choice count in part (a softmax
//! of the logarithms of the model's times), and what keeps numbers that little depends on where they are is how far they went from where they
//! began. It goes down number by number, each by steps of its own, in whole numbers, as the model does.

use std::collections::BTreeMap;
use std::ptr;

use rayon::prelude::*;

use super::super::{Choice, Question};
use super::model::{self, Constants, FITTED, Form, Operands};
use crate::ops::dense::plan::Plan;

/// What any launch takes, in nanoseconds, which the model leaves out.
const LAUNCH: f64 = 2000.0;
/// As much longer than the fastest as a way counts at most, and as one that was not near enough to be measured well.
const MOST: f64 = 0.35;
/// How near the fastest the model's way has to be to count as right.
const NEAR: f64 = 0.03;
/// By which share of its time a way counts a third of the model's choice.
const SOFTNESS: f64 = 0.02;
/// What the mean square of the logarithms of how far numbers went counts.
const HELD: f64 = 1.0;
/// The first step, as a share of a number; how much longer the next is where it went down, and shorter where not; and the ends of that.
const STEP: f64 = 0.08;
const LONGER: f64 = 1.3;
const SHORTER: f64 = 0.6;
const STEPS: [f64; 2] = [0.004, 0.4];

/// A product whose ways were measured.
pub struct Measured {
    operands: Operands,
    ways: Vec<Way>,
}

/// One of those that the model chooses among.
struct Way {
    form: &'static Form,
    sharing: usize,
    plan: Plan,
    /// How much longer than the fastest it took, as a share of that one's time.
    longer: f64,
}

impl Measured {
    /// What the ways of these names took, in the same unit. `None` where the model has no choice among them.
    pub fn new(question: &Question, times: &BTreeMap<String, f64>) -> Option<Self> {
        let &Question { product, sizes, lengths, .. } = question;
        let mut ways = Vec::new();
        for (form, sharing, plan) in Plan::hopper_cuts(product, sizes)? {
            let sharing = FITTED.sharings.iter().position(|other| ptr::eq(other, sharing))?;
            let time = times.get(&Choice::new(plan, None).to_string());
            ways.push(Way { form, sharing, plan, longer: time.copied().unwrap_or(f64::INFINITY) });
        }
        let least = ways.iter().map(|way| way.longer).fold(f64::INFINITY, f64::min);
        if !(least.is_finite() && least > 0.0) {
            return None;
        }
        ways.iter_mut().for_each(|way| way.longer = (way.longer / least - 1.0).min(MOST));
        Some(Self { operands: Operands::of(product, lengths), ways })
    }

    fn times<'a>(&'a self, constants: &'a Constants) -> impl Iterator<Item = u64> + 'a {
        self.ways.iter().map(|Way { form, sharing, plan, .. }| {
            model::time(constants, plan, form, &constants.sharings[*sharing], self.operands)
        })
    }

    /// How much longer than the fastest the way takes that the model chooses by these numbers.
    fn longer(&self, constants: &Constants) -> f64 {
        let chosen = self.times(constants).zip(&self.ways).min_by_key(|(time, _)| *time);
        chosen.map_or(MOST, |(_, way)| way.longer)
    }

    /// The same, but that others count in part.
    fn soft(&self, constants: &Constants) -> f64 {
        let times: Vec<f64> = self.times(constants).map(|time| (time as f64 + LAUNCH).ln()).collect();
        let least = times.iter().copied().fold(f64::INFINITY, f64::min);
        let parts = times.iter().map(|time| (-(time - least) / SOFTNESS).exp());
        let (all, longer) = parts
            .zip(&self.ways)
            .fold((0.0, 0.0), |(all, longer), (part, way)| (all + part, longer + part * way.longer));
        longer / all
    }
}

/// How well the model chooses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Of how many products.
    pub of: usize,
    /// The share of them for which it is within 3 % of the fastest.
    pub near: f64,
    /// How much longer than the fastest its choice takes in the mean, as a share.
    pub longer: f64,
}

impl Score {
    fn of<'a>(constants: &Constants, measured: impl IntoIterator<Item = &'a Measured>) -> Self {
        let longer: Vec<f64> = measured.into_iter().map(|product| product.longer(constants)).collect();
        let of = longer.len();
        let share = |sum: f64| if of == 0 { 0.0 } else { sum / of as f64 };
        let near = longer.iter().filter(|longer| **longer <= NEAR).count();
        Self { of, near: share(near as f64), longer: share(longer.iter().sum()) }
    }

    /// Of these products and of others.
    pub fn and(self, other: Self) -> Self {
        let of = self.of + other.of;
        let both = |a: f64, b: f64| if of == 0 { 0.0 } else { (a * self.of as f64 + b * other.of as f64) / of as f64 };
        Self { of, near: both(self.near, other.near), longer: both(self.longer, other.longer) }
    }
}

/// Numbers that were fitted.
pub struct Fit {
    constants: Constants,
}

impl Fit {
    /// The model's, as they are.
    pub fn present() -> Self {
        Self { constants: FITTED.clone() }
    }

    /// Goes over all numbers so many times, or until none gets better by any step.
    pub fn fitted(self, measured: &[&Measured], times: usize) -> Self {
        let start = self.constants;
        let mut best = start.clone();
        let count = best.fitted().len();
        let mut least = loss(&best, &start, measured);
        let mut steps = vec![STEP; count];
        for _ in 0..times {
            let mut better = false;
            for (number, step) in steps.iter_mut().enumerate() {
                let tried = [1.0 + *step, 1.0 / (1.0 + *step)].into_iter().find_map(|factor| {
                    let mut tried = best.clone();
                    let value = &mut *tried.fitted()[number];
                    let old = *value;
                    *value = (old.max(1) as f64 * factor).round() as u64;
                    // Small ones go by ones.
                    if *value == old {
                        *value = if factor > 1.0 { old + 1 } else { old.saturating_sub(1) };
                    }
                    // What is divided by is no 0.
                    *value = (*value).max(1);
                    let loss = loss(&tried, &start, measured);
                    (loss < least).then_some((loss, tried))
                });
                *step *= if tried.is_some() { LONGER } else { SHORTER };
                if let Some(tried) = tried {
                    (least, best) = tried;
                    better = true;
                }
                *step = step.clamp(STEPS[0], STEPS[1]);
            }
            if !better && steps.iter().all(|step| *step <= STEPS[0]) {
                break;
            }
        }
        Self { constants: best }
    }

    /// How well the model chooses by them.
    pub fn score<'a>(&self, measured: impl IntoIterator<Item = &'a Measured>) -> Score {
        Score::of(&self.constants, measured)
    }

    /// As `model/constants.rs` has them, but for how it is set.
    pub fn source(&self) -> String {
        format!("pub static FITTED: Constants = {:#?};", self.constants)
    }
}

fn loss(constants: &Constants, start: &Constants, measured: &[&Measured]) -> f64 {
    let soft: Vec<f64> = measured.par_iter().map(|product| product.soft(constants)).collect();
    let (mut now, mut then) = (constants.clone(), start.clone());
    let pairs: Vec<_> = now.fitted().into_iter().zip(then.fitted()).collect();
    let far = |(now, then): &(&mut u64, &mut u64)| ((**now).max(1) as f64 / (**then).max(1) as f64).ln().powi(2);
    soft.iter().sum::<f64>() / soft.len().max(1) as f64 + HELD * pairs.iter().map(far).sum::<f64>() / pairs.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::ops::dense::tune::Product;
    use crate::ops::dense::{Precision, Sizes};

    fn questions() -> Vec<Question> {
        let layers = [[136, 7032, 4424], [512, 4096, 1024], [64, 2048, 640], [1720, 568, 168], [936, 1512, 232]];
        let of = |[batch, inputs, outputs]: [usize; 3], product| {
            Sizes { batch, inputs, outputs }.question(true, DType::Bf16, Precision::default(), product)
        };
        layers.into_iter().flat_map(|layer| Product::ALL.map(|product| of(layer, product))).collect()
    }

    /// As if products took what a model says.
    fn measured(constants: &Constants) -> Vec<Measured> {
        let times = |question: &Question| {
            let &Question { product, sizes, lengths, .. } = question;
            let operands = Operands::of(product, lengths);
            let all = Plan::hopper_cuts(product, sizes).unwrap();
            let all = all.map(|(form, sharing, plan)| {
                let sharing = FITTED.sharings.iter().position(|other| ptr::eq(other, sharing)).unwrap();
                let time = model::time(constants, &plan, form, &constants.sharings[sharing], operands) as f64 + LAUNCH;
                (Choice::new(plan, None).to_string(), time)
            });
            Measured::new(question, &all.collect()).unwrap()
        };
        questions().iter().map(times).collect()
    }

    #[test]
    fn what_a_model_says_it_ranks_right() {
        let score = Fit::present().score(&measured(&FITTED));
        assert_eq!(score, Score { of: 15, near: 1.0, longer: 0.0 });
    }

    /// Of a GPU on which tiles of 64 columns are faster than the model has it, and all others slower.
    #[test]
    fn a_fit_ranks_better_than_what_it_began_with() {
        let mut other = FITTED.clone();
        for kind in &mut other.kinds {
            let thousandths = if kind.columns == 64 { 700 } else { 1300 };
            kind.slice = kind.slice.map(|slice| slice * thousandths / 1000);
        }
        let measured = measured(&other);
        let before = Fit::present().score(&measured);
        let all: Vec<_> = measured.iter().collect();
        let fitted = Fit::present().fitted(&all, 6);
        let after = fitted.score(&measured);
        assert!(after.longer < before.longer / 2.0 && after.near > before.near, "{before:?}, {after:?}");
        assert!(fitted.source().contains("finish: ["), "{}", fitted.source());
    }

    #[test]
    fn nothing_is_learnt_from_nothing() {
        let question = questions()[0];
        for times in [BTreeMap::new(), BTreeMap::from([("mma 64x64".to_owned(), 1.0)])] {
            assert!(Measured::new(&question, &times).is_none());
        }
        assert_eq!(Fit::present().score(&[]), Score { of: 0, near: 0.0, longer: 0.0 });
    }
}
