//! Weights to begin with.

use rand::{Rng, RngExt};
use rand_distr::{Distribution, StandardNormal};

use crate::{Device, Error, Real, Result, Tensor};

/// A generator that gives the same numbers for the same seed on every platform and in every release of `rand`, which
/// `rand::rngs::StdRng` does not promise: `Generator::seed_from_u64(seed)`, a method of `rand::SeedableRng`.
pub type Generator = rand::rngs::Xoshiro256PlusPlus;

/// How weights are drawn. `fan_in` is the number of inputs that an output sums over, `fan_out` the number of outputs
/// that an input goes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Uniform within `± sqrt(3) gain / sqrt(fan_in)` with `gain = sqrt(2 / (1 + a²))`, for a rectifier of slope `a` below
    /// zero: 0 for ReLU, `alpha`'s first value for PReLU, 1 for no activation (He et al., ICCV 2015, arXiv 1502.01852;
    /// PyTorch's `kaiming_uniform_(a=a)`).
    KaimingUniform {
        /// The slope below zero.
        a: f64,
    },
    /// Normal with the standard deviation `gain / sqrt(fan_in)`, `gain` as for [`Init::KaimingUniform`] (PyTorch's
    /// `kaiming_normal_(a=a)`).
    KaimingNormal {
        /// The slope below zero.
        a: f64,
    },
    /// Uniform within `± gain sqrt(6 / (fan_in + fan_out))` (Glorot & Bengio, AISTATS 2010; PyTorch's
    /// `xavier_uniform_(gain=gain)`).
    XavierUniform {
        /// 1 for no activation; [`Init::gain`] for a rectifier.
        gain: f64,
    },
    /// Normal with the standard deviation `gain sqrt(2 / (fan_in + fan_out))` (PyTorch's `xavier_normal_(gain=gain)`).
    XavierNormal {
        /// 1 for no activation; [`Init::gain`] for a rectifier.
        gain: f64,
    },
    /// Uniform from `low` on and below `high`.
    Uniform {
        /// The least value.
        low: f64,
        /// Where values end; not below `low`.
        high: f64,
    },
    /// Normal.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation, not negative.
        std: f64,
    },
    /// The same value everywhere.
    Constant(f64),
}

impl Init {
    /// What a rectifier of slope `a` below zero divides the signal's root mean square by: `sqrt(2 / (1 + a²))`, 1 for the
    /// identity (`a = 1`), `sqrt(2)` for ReLU (`a = 0`). PyTorch's `calculate_gain("leaky_relu", a)`.
    pub fn gain(a: f64) -> f64 {
        (2.0 / (1.0 + a * a)).sqrt()
    }

    /// `len` values. Drawn in f64 and rounded, so that one seed gives every element type the same weights.
    ///
    /// # Errors
    /// [`Error::Argument`] for a parameter that is not finite, a negative standard deviation, `high` below `low`, or a
    /// fan of zero where it divides.
    pub fn draw<T: Real>(
        self,
        len: usize,
        fan_in: usize,
        fan_out: usize,
        rng: &mut (impl Rng + ?Sized),
    ) -> Result<Vec<T>> {
        Ok(match self.spread(fan_in, fan_out)? {
            Spread::Uniform { low, width } => (0..len).map(|_| T::of(low + width * rng.random::<f64>())).collect(),
            Spread::Normal { mean, std } => (0..len)
                .map(|_| {
                    let unit: f64 = StandardNormal.sample(rng);
                    T::of(mean + std * unit)
                })
                .collect(),
            Spread::Constant(value) => vec![T::of(value); len],
        })
    }

    /// The weights of a dense layer, `[outputs, inputs]`: `inputs` is the fan in, `outputs` the fan out.
    ///
    /// # Errors
    /// As [`Init::draw`]; the device's own errors.
    pub fn weights<T: Real>(
        self,
        device: &Device,
        outputs: usize,
        inputs: usize,
        rng: &mut (impl Rng + ?Sized),
    ) -> Result<Tensor<T>> {
        Tensor::from_vec(device, &[outputs, inputs], self.draw(outputs * inputs, inputs, outputs, rng)?)
    }

    /// Checks the parameters and puts the fans in.
    fn spread(self, fan_in: usize, fan_out: usize) -> Result<Spread> {
        let refuse = |argument, got: String, expected: &str| {
            Err(Error::Argument { op: "Init", argument, got, expected: expected.into() })
        };
        let given = match self {
            Self::KaimingUniform { a } | Self::KaimingNormal { a } => [("a", a); 2],
            Self::XavierUniform { gain } | Self::XavierNormal { gain } => [("gain", gain); 2],
            Self::Uniform { low, high } => [("low", low), ("high", high)],
            Self::Normal { mean, std } => [("mean", mean), ("std", std)],
            Self::Constant(value) => [("value", value); 2],
        };
        if let Some((argument, value)) = given.into_iter().find(|(_, value)| !value.is_finite()) {
            return refuse(argument, value.to_string(), "a finite number");
        }
        let fans = match self {
            Self::KaimingUniform { .. } | Self::KaimingNormal { .. } => fan_in,
            Self::XavierUniform { .. } | Self::XavierNormal { .. } => fan_in + fan_out,
            Self::Uniform { .. } | Self::Normal { .. } | Self::Constant(_) => 1,
        };
        if fans == 0 {
            return refuse("fan_in", "0".into(), "at least 1: the spread is divided by it");
        }
        let fans = fans as f64;
        let around_zero = |bound: f64| Spread::Uniform { low: -bound, width: 2.0 * bound };
        Ok(match self {
            Self::KaimingUniform { a } => around_zero(Self::gain(a) * (3.0 / fans).sqrt()),
            Self::KaimingNormal { a } => Spread::Normal { mean: 0.0, std: Self::gain(a) / fans.sqrt() },
            Self::XavierUniform { gain } => around_zero(gain * (6.0 / fans).sqrt()),
            Self::XavierNormal { gain } => Spread::Normal { mean: 0.0, std: gain * (2.0 / fans).sqrt() },
            Self::Uniform { low, high } if high < low => {
                return refuse("high", high.to_string(), &format!("at least low, which is {low}"));
            }
            Self::Uniform { low, high } => Spread::Uniform { low, width: high - low },
            Self::Normal { std, .. } if std < 0.0 => return refuse("std", std.to_string(), "at least 0"),
            Self::Normal { mean, std } => Spread::Normal { mean, std },
            Self::Constant(value) => Spread::Constant(value),
        })
    }
}

/// What is drawn from, with everything known.
#[derive(Clone, Copy, Debug)]
enum Spread {
    Uniform { low: f64, width: f64 },
    Normal { mean: f64, std: f64 },
    Constant(f64),
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    const MANY: usize = 40_000;
    /// The first numbers of xoshiro256++ seeded by SplitMix64, computed apart from this program.
    const UNIFORM: [f32; 3] = [0.055360436, 0.17211585, 0.71757615];
    /// What rand_distr 0.6 makes of the same seed: a change of these numbers changes what every seed trains.
    const NORMAL: [f32; 3] = [-1.8266753, -1.7121524, 0.7099959];

    fn draw(init: Init) -> Vec<f64> {
        init.draw(MANY, 50, 150, &mut Generator::seed_from_u64(1)).unwrap()
    }

    /// Mean and standard deviation.
    fn moments(values: &[f64]) -> (f64, f64) {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        (mean, (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt())
    }

    /// Five standard errors of a standard deviation estimated from so many values, and more.
    fn has_std(init: Init, std: f64) {
        let (mean, got) = moments(&draw(init));
        assert!(mean.abs() < 5.0 * std / (MANY as f64).sqrt(), "{init:?}: mean {mean}");
        assert!((got / std - 1.0).abs() < 0.02, "{init:?}: {got} instead of {std}");
    }

    /// Values fill ± `bound` and nothing beyond.
    fn fills(init: Init, low: f64, high: f64) {
        let values = draw(init);
        let (least, most) = values.iter().fold((f64::MAX, f64::MIN), |(a, b), &v| (a.min(v), b.max(v)));
        let slack = (high - low) * 1e-3;
        assert!(least >= low && least < low + slack && most < high && most > high - slack, "{init:?}: {least} {most}");
        let (mean, std) = moments(&values);
        assert!((mean - (low + high) / 2.0).abs() < 10.0 * slack, "{init:?}: mean {mean}");
        assert!((std / ((high - low) / 12f64.sqrt()) - 1.0).abs() < 0.02, "{init:?}: {std}");
    }

    /// PyTorch's formulas, with their numbers for fans of 50 and 150.
    #[test]
    fn spreads_are_pytorchs() {
        // sqrt(6 / 50), sqrt(2 / 50); a = 0.25: gain sqrt(2 / 1.0625) = 1.371988681140071.
        fills(Init::KaimingUniform { a: 0.0 }, -0.34641016151377546, 0.34641016151377546);
        fills(Init::KaimingUniform { a: 0.25 }, -0.3360672201, 0.3360672201);
        has_std(Init::KaimingNormal { a: 0.0 }, 0.2);
        has_std(Init::KaimingNormal { a: 0.25 }, 0.1940285);
        // sqrt(6 / 200), sqrt(2 / 200), times the gain.
        fills(Init::XavierUniform { gain: 1.0 }, -0.17320508075688773, 0.17320508075688773);
        has_std(Init::XavierNormal { gain: 2.0 }, 0.2);
        fills(Init::Uniform { low: -1.0, high: 3.0 }, -1.0, 3.0);
        has_std(Init::Normal { mean: 0.0, std: 0.7 }, 0.7);
        let (mean, _) = moments(&draw(Init::Normal { mean: 5.0, std: 0.1 }));
        assert!((mean - 5.0).abs() < 0.01, "{mean}");
        assert_eq!(draw(Init::Constant(0.5)), vec![0.5; MANY]);
        assert_eq!([Init::gain(1.0), Init::gain(0.0)], [1.0, 2f64.sqrt()]);
    }

    #[test]
    fn seeds_repeat_on_every_platform() {
        let draw = |init: Init| init.draw::<f32>(3, 4, 4, &mut Generator::seed_from_u64(7)).unwrap();
        assert_eq!(draw(Init::Uniform { low: 0.0, high: 1.0 }), UNIFORM);
        assert_eq!(draw(Init::Normal { mean: 0.0, std: 1.0 }), NORMAL);
        let other =
            Init::Normal { mean: 0.0, std: 1.0 }.draw::<f32>(3, 4, 4, &mut Generator::seed_from_u64(8)).unwrap();
        assert_ne!(other, NORMAL);
    }

    #[test]
    fn weights_are_of_outputs_by_inputs() {
        let rng = || Generator::seed_from_u64(3);
        let weights = Init::KaimingUniform { a: 0.0 }.weights::<f64>(&Device::cpu(), 3, 600, &mut rng()).unwrap();
        assert_eq!(weights.shape(), [3, 600]);
        // The fan in is 600: within 0.1.
        assert!(weights.host().unwrap().iter().all(|v| v.abs() < 0.1));
        let single = Init::KaimingUniform { a: 0.0 }.weights::<f32>(&Device::cpu(), 3, 600, &mut rng()).unwrap();
        let rounded: Vec<f32> = weights.host().unwrap().iter().map(|&v| v as f32).collect();
        assert_eq!(single.host().unwrap(), rounded);
    }

    #[test]
    fn rejects_parameters_that_mean_nothing() {
        let said = |init: Init, fan_in, fan_out| {
            init.draw::<f32>(1, fan_in, fan_out, &mut Generator::seed_from_u64(0)).unwrap_err().to_string()
        };
        assert_eq!(said(Init::KaimingUniform { a: f64::NAN }, 1, 1), "Init: a is NaN, expected a finite number");
        assert_eq!(
            said(Init::Uniform { low: 1.0, high: 0.5 }, 1, 1),
            "Init: high is 0.5, expected at least low, which is 1"
        );
        assert_eq!(said(Init::Normal { mean: 0.0, std: -1.0 }, 1, 1), "Init: std is -1, expected at least 0");
        let fan = "Init: fan_in is 0, expected at least 1: the spread is divided by it";
        assert_eq!(said(Init::KaimingNormal { a: 0.0 }, 0, 5), fan);
        assert_eq!(said(Init::XavierNormal { gain: 1.0 }, 0, 0), fan);
    }
}
