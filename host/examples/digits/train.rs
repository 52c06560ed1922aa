//! One network from its seed to its test.

use ferrolayer::nn::{Adam, Layer, Mode, Optimiser, Sequential, SoftmaxCrossEntropy};
use ferrolayer::ops::dense::Generator;
use ferrolayer::{Device, Result, Tensor};
use rand::SeedableRng;
use rand::seq::SliceRandom;

use crate::augment::varied;
use crate::data::{CLASSES, Digits};
use crate::model;

/// Images a step.
const BATCH: usize = 16;
/// The learning rate of the first step; it falls to zero along half a cosine (Loshchilov & Hutter, ICLR 2017, arXiv
/// 1608.03983).
const LEARNING_RATE: f64 = 0.01;
/// What came of one seed.
pub struct Run {
    /// The mean training loss of each epoch.
    pub losses: Vec<f32>,
    /// How often an image of the row's digit was taken for the column's.
    pub confusion: [[u32; CLASSES]; CLASSES],
    /// The trained network.
    pub network: Sequential<f32>,
}

/// A network in training.
pub struct Training<'a> {
    device: &'a Device,
    digits: &'a Digits,
    network: Sequential<f32>,
    loss: SoftmaxCrossEntropy<f32>,
    optimiser: Adam<f32>,
    generator: Generator,
    step: usize,
    steps: usize,
}

impl<'a> Training<'a> {
    /// The network of this seed, to be trained for `epochs` epochs.
    pub fn new(device: &'a Device, digits: &'a Digits, seed: u64, epochs: usize) -> Result<Self> {
        Ok(Self {
            device,
            digits,
            network: model::network(device, seed)?,
            loss: SoftmaxCrossEntropy::new(),
            optimiser: Adam::new(LEARNING_RATE),
            // Not the seed of a layer's weights.
            generator: Generator::seed_from_u64(!seed),
            step: 0,
            steps: epochs * digits.len().div_ceil(BATCH),
        })
    }

    /// One epoch: each image once, in a new order. The losses of its steps, at most `limit`, in order; they stay on the
    /// device until they are read, so that a GPU need not wait between steps.
    pub fn epoch(&mut self, limit: usize) -> Result<Vec<Tensor<f32>>> {
        let mut order: Vec<usize> = (0..self.digits.len()).collect();
        order.shuffle(&mut self.generator);
        order.chunks(BATCH).take(limit).map(|batch| self.step(batch)).collect()
    }

    fn step(&mut self, indices: &[usize]) -> Result<Tensor<f32>> {
        let (images, labels) = self.batch(indices).to_tensors(self.device)?;
        let progress = (self.step as f64 / self.steps as f64).min(1.0);
        let rate = LEARNING_RATE * 0.5 * (1.0 + (std::f64::consts::PI * progress).cos());
        Optimiser::<f32>::set_learning_rate(&mut self.optimiser, rate);
        self.network.zero_grad();
        let scores = self.network.forward(&images, Mode::Train)?;
        let loss = self.loss.forward(&scores, &labels, Mode::Train)?;
        self.network.backward_parameters(&self.loss.backward()?)?;
        self.optimiser.step(&mut self.network)?;
        self.step += 1;
        Ok(loss)
    }

    /// These images, each a little different from what it was.
    fn batch(&mut self, indices: &[usize]) -> Digits {
        let mut batch = Digits::default();
        for &index in indices {
            batch.push(varied(self.digits.image(index), &mut self.generator), self.digits.labels[index]);
        }
        batch
    }

    /// The network's answers to images that it has not seen.
    pub fn finish(mut self, losses: Vec<f32>, test: &Digits) -> Result<Run> {
        let (images, _) = test.to_tensors(self.device)?;
        let scores = self.network.forward(&images, Mode::Eval)?.to_vec()?;
        let mut confusion = [[0; CLASSES]; CLASSES];
        for (scores, &label) in scores.chunks(CLASSES).zip(&test.labels) {
            let answer = (0..CLASSES).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).expect("there are classes");
            confusion[label as usize][answer] += 1;
        }
        Ok(Run { losses, confusion, network: self.network })
    }
}

/// The mean of the losses of several steps: this reads them, and waits for a GPU to have computed them.
pub fn mean(losses: &[Tensor<f32>]) -> Result<f32> {
    let mut sum = 0.0;
    for loss in losses {
        sum += loss.to_vec()?[0];
    }
    Ok(sum / losses.len() as f32)
}

impl Run {
    /// The share of the test's images that were taken for what they are.
    pub fn accuracy(&self) -> f64 {
        let right: u32 = (0..CLASSES).map(|digit| self.confusion[digit][digit]).sum();
        f64::from(right) / f64::from(self.confusion.iter().flatten().sum::<u32>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data;

    #[test]
    fn learns_and_repeats_itself() {
        let (training, test) = data::load();
        let run = || -> Run {
            let device = Device::cpu();
            let mut state = Training::new(&device, &training, 1, 2).unwrap();
            let losses = (0..2).map(|_| mean(&state.epoch(usize::MAX).unwrap()).unwrap()).collect();
            state.finish(losses, &test).unwrap()
        };
        let (one, other) = (run(), run());
        assert!(one.losses[1] < 0.7 * one.losses[0], "{:?}", one.losses);
        assert!(one.accuracy() > 0.8, "{}", one.accuracy());
        assert_eq!((one.losses, one.confusion), (other.losses, other.confusion));
    }
}
