//! What moves parameters against their gradients.

use std::collections::HashMap;

use super::Layer;
use crate::ops::{adam, sgd};
use crate::{Compute, Result, Tensor};

/// Moves a model's parameters.
///
/// Parameters that are fixed, and those without a gradient since `zero_grad`, stay as they are. An optimiser serves one
/// model: what it remembers of a parameter goes by the parameter's name.
pub trait Optimiser<T: Compute>: Send {
    /// One step with the gradients that the parameters hold.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for settings out of their ranges; the op's errors.
    fn step(&mut self, model: &mut dyn Layer<T>) -> Result<()>;

    /// The factor of the next steps. It reaches the device with the next step, or by [`Optimiser::write_settings`].
    fn set_learning_rate(&mut self, learning_rate: f64);

    /// Has the device's settings be these, where a step has put some there: for a step that is a graph's
    /// ([`Gpu::record`](crate::device::Gpu::record)), which reads them at each replay.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for settings out of their ranges; the device's own errors.
    fn write_settings(&mut self) -> Result<()>;
}

/// [`sgd`] for a whole model.
#[derive(Clone, Debug)]
pub struct Sgd<T: Compute> {
    settings: sgd::Settings,
    nesterov: bool,
    /// The settings on the device, and whether they are these.
    shared: Option<(Tensor<T>, bool)>,
    velocities: HashMap<String, Tensor<T>>,
}

impl<T: Compute> Sgd<T> {
    /// Without momentum and weight decay.
    pub fn new(learning_rate: f64) -> Self {
        let settings = sgd::Settings { learning_rate, momentum: 0.0, weight_decay: 0.0 };
        Self { settings, nesterov: false, shared: None, velocities: HashMap::new() }
    }

    /// Keeps this share of the last velocity.
    #[must_use]
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.settings.momentum = momentum;
        self
    }

    /// Looks ahead along the velocity (Nesterov's momentum, as PyTorch has it).
    #[must_use]
    pub fn nesterov(mut self) -> Self {
        self.nesterov = true;
        self
    }

    /// Adds this share of the values to their gradients.
    #[must_use]
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.settings.weight_decay = weight_decay;
        self
    }
}

impl<T: Compute> Optimiser<T> for Sgd<T> {
    fn step(&mut self, model: &mut dyn Layer<T>) -> Result<()> {
        self.write_settings()?;
        let Self { settings, nesterov, shared, velocities } = self;
        for (name, parameter) in model.parameters_mut() {
            let Some((value, gradient)) = parameter.for_step() else { continue };
            let tensor = match shared {
                Some((tensor, _)) => tensor,
                None => &mut shared.insert((settings.to_tensor(value.device())?, true)).0,
            };
            let velocity = if settings.momentum == 0.0 { None } else { Some(zeros_at(velocities, name, value)?) };
            sgd::step(tensor, gradient, value, velocity, *nesterov)?;
        }
        Ok(())
    }

    fn set_learning_rate(&mut self, learning_rate: f64) {
        self.settings.learning_rate = learning_rate;
        if let Some((_, current)) = &mut self.shared {
            *current = false;
        }
    }

    fn write_settings(&mut self) -> Result<()> {
        if let Some((tensor, current @ false)) = &mut self.shared {
            self.settings.write_to(tensor)?;
            *current = true;
        }
        Ok(())
    }
}

/// [`adam`] for a whole model.
#[derive(Clone, Debug)]
pub struct Adam<T: Compute> {
    settings: adam::Settings,
    /// The clock, and whether its settings are these.
    clock: Option<(adam::Clock<T>, bool)>,
    first: HashMap<String, Tensor<T>>,
    second: HashMap<String, Tensor<T>>,
}

impl<T: Compute> Adam<T> {
    /// With PyTorch's betas and epsilon, without weight decay.
    pub fn new(learning_rate: f64) -> Self {
        Self::with_settings(adam::Settings { learning_rate, ..adam::Settings::default() })
    }

    /// With these settings.
    pub fn with_settings(settings: adam::Settings) -> Self {
        Self { settings, clock: None, first: HashMap::new(), second: HashMap::new() }
    }
}

impl<T: Compute> Optimiser<T> for Adam<T> {
    fn step(&mut self, model: &mut dyn Layer<T>) -> Result<()> {
        self.write_settings()?;
        let Self { settings, clock, first, second } = self;
        let mut advanced = false;
        for (name, parameter) in model.parameters_mut() {
            let Some((value, gradient)) = parameter.for_step() else { continue };
            let clock = match clock {
                Some((clock, _)) => clock,
                None => &mut clock.insert((adam::Clock::new(value.device(), settings)?, true)).0,
            };
            if !advanced {
                clock.advance()?;
                advanced = true;
            }
            let first = zeros_at(first, name.clone(), value)?;
            adam::step(clock, gradient, value, first, zeros_at(second, name, value)?)?;
        }
        Ok(())
    }

    fn set_learning_rate(&mut self, learning_rate: f64) {
        self.settings.learning_rate = learning_rate;
        if let Some((_, current)) = &mut self.clock {
            *current = false;
        }
    }

    fn write_settings(&mut self) -> Result<()> {
        if let Some((clock, current @ false)) = &mut self.clock {
            clock.set(&self.settings)?;
            *current = true;
        }
        Ok(())
    }
}

/// What is remembered under `name`: zeros like `value` at first.
fn zeros_at<'a, T: Compute>(
    memory: &'a mut HashMap<String, Tensor<T>>,
    name: String,
    value: &Tensor<T>,
) -> Result<&'a mut Tensor<T>> {
    use std::collections::hash_map::Entry;
    Ok(match memory.entry(name) {
        Entry::Occupied(entry) => entry.into_mut(),
        Entry::Vacant(entry) => entry.insert(Tensor::zeros(value.device(), value.shape())?),
    })
}
