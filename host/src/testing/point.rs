//! An op's inputs, held for a check.

use crate::op::{Backward, Gradients, Inputs, Mode, Names, Op};
use crate::{Device, Element, Error, Out, Real, Result, Tensor};

/// The inputs of an op on one device.
#[derive(Clone)]
pub struct Point<T: Real> {
    pub data: Vec<Tensor<T>>,
    pub parameters: Vec<Tensor<T::Compute>>,
}

/// Inputs as lists of references.
pub struct Borrowed<'a, T: Real> {
    data: Vec<&'a Tensor<T>>,
    parameters: Vec<&'a Tensor<T::Compute>>,
}

impl<T: Real> Borrowed<'_, T> {
    pub fn of(&self) -> Inputs<'_, T> {
        Inputs { data: &self.data, parameters: &self.parameters }
    }
}

/// Which gradients a backward is asked for; numbers count through the data and then the parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted {
    All,
    Only(usize),
    AllBut(usize),
}

impl Wanted {
    pub fn has(self, number: usize) -> bool {
        match self {
            Self::All => true,
            Self::Only(one) => number == one,
            Self::AllBut(one) => number != one,
        }
    }
}

impl Names {
    /// What gradient number `number` is of.
    pub(super) fn name(&self, number: usize) -> &'static str {
        self.data.iter().chain(self.parameters).nth(number).copied().unwrap_or("an input without a name")
    }
}

/// A tensor of either of an op's types.
#[derive(Clone, Debug)]
pub enum Numbers<T: Real> {
    Data(Tensor<T>),
    Parameter(Tensor<T::Compute>),
}

impl<T: Real> Numbers<T> {
    pub fn bits(&self) -> Result<Vec<u64>> {
        match self {
            Self::Data(tensor) => bits(tensor),
            Self::Parameter(tensor) => bits(tensor),
        }
    }

    pub fn to_vec(&self) -> Result<Vec<f64>> {
        Ok(match self {
            Self::Data(tensor) => tensor.to_vec()?.into_iter().map(Real::f64).collect(),
            Self::Parameter(tensor) => tensor.to_vec()?.into_iter().map(Real::f64).collect(),
        })
    }
}

/// The bits of each element, row-major.
pub fn bits<T: Element>(tensor: &Tensor<T>) -> Result<Vec<u64>> {
    Ok(tensor.to_vec()?.into_iter().map(Element::bits).collect())
}

impl<T: Real> Tensor<T> {
    /// The same elements in the order in memory of `other`, which has the same shape.
    pub(super) fn in_order_of<U: Element>(&self, other: &Tensor<U>) -> Result<Self> {
        let mut ordered = other.empty_like_on(self.device())?;
        ordered.copy_from_slice(&self.to_vec()?)?;
        Ok(ordered)
    }

    /// The same numbers in another type, in the same order in memory.
    fn cast<U: Real>(&self, device: &Device) -> Result<Tensor<U>> {
        let mut cast = self.empty_like_on(device)?;
        cast.copy_from_slice(&self.to_vec()?.into_iter().map(|value| U::of(value.f64())).collect::<Vec<_>>())?;
        Ok(cast)
    }
}

impl<T: Real> Point<T> {
    /// Rounded to `T`, on `device`.
    pub fn new<U: Real>(device: &Device, inputs: Inputs<'_, U>) -> Result<Self> {
        Ok(Self {
            data: inputs.data.iter().map(|tensor| tensor.cast(device)).collect::<Result<_>>()?,
            parameters: inputs.parameters.iter().map(|tensor| tensor.cast(device)).collect::<Result<_>>()?,
        })
    }

    pub fn to(&self, device: &Device) -> Result<Self> {
        Self::new(device, self.inputs().of())
    }

    pub fn inputs(&self) -> Borrowed<'_, T> {
        Borrowed { data: self.data.iter().collect(), parameters: self.parameters.iter().collect() }
    }

    /// How many gradients there are, when there are as many inputs as the op has names.
    pub fn check_count<O: Op<T>>(&self, op: &O) -> Result<usize> {
        let names = op.names();
        let expected = (names.data.len(), names.parameters.len() + names.settings.len());
        if (self.data.len(), self.parameters.len()) == expected && expected.0 > 0 {
            return Ok(names.data.len() + names.parameters.len());
        }
        Err(Error::Argument {
            op: op.names().op,
            argument: "inputs",
            got: format!("{} data and {} parameters", self.data.len(), self.parameters.len()),
            expected: format!("{names:?}"),
        })
    }

    /// Tensors for gradients, which hold `old`.
    pub fn gradients_like<O: Op<T>>(&self, op: &O, old: Old) -> Result<Vec<Numbers<T>>> {
        fn filled<E: Real>(like: &Tensor<E>, old: Old) -> Result<Tensor<E>> {
            let mut tensor = like.empty_like()?;
            tensor.copy_from_slice(&old(like.len()).into_iter().map(E::of).collect::<Vec<_>>())?;
            Ok(tensor)
        }
        let of_data = self.data.iter().map(|like| filled(like, old).map(Numbers::Data));
        let parameters = self.parameters.iter().take(op.names().parameters.len());
        of_data.chain(parameters.map(|like| filled(like, old).map(Numbers::Parameter))).collect()
    }

    /// Backward for `dy` from `saved` into `outs`, those that are wanted.
    pub fn backward<O: Op<T>>(
        &self,
        op: &O,
        (state, saved): (&mut O::State, &O::Saved),
        dy: &Tensor<T>,
        beta: f64,
        wanted: Wanted,
        outs: &mut [Numbers<T>],
    ) -> Result<()> {
        let (mut data, mut parameters) = (Vec::new(), Vec::new());
        for (number, out) in outs.iter_mut().enumerate() {
            match out {
                Numbers::Data(tensor) => data.push(wanted.has(number).then_some(Out { tensor, beta })),
                Numbers::Parameter(tensor) => parameters.push(wanted.has(number).then_some(Out { tensor, beta })),
            }
        }
        let values: Vec<_> = self.parameters.iter().collect();
        let gradients = Gradients { data, parameters };
        op.backward(state, Backward { saved, parameters: &values, dy, gradients })
    }

    /// Forward and backward with a new state, into gradients that hold `old`.
    pub fn gradients<O: Op<T>>(
        &self,
        op: &O,
        dy: &Tensor<T>,
        (old, beta): (Old, f64),
        wanted: Wanted,
    ) -> Result<Vec<Numbers<T>>> {
        let mut state = O::State::default();
        let (_, saved) = op.forward(&mut state, self.inputs().of(), Mode::Train)?;
        let saved = saved.ok_or_else(|| Error::NoForward { layer: op.names().op.into() })?;
        let mut outs = self.gradients_like(op, old)?;
        self.backward(op, (&mut state, &saved), dy, beta, wanted, &mut outs)?;
        Ok(outs)
    }
}

/// What gradients of so many elements hold before a backward.
pub type Old = fn(usize) -> Vec<f64>;

/// What no result is mistaken for.
pub const NAN: Old = |len| vec![f64::NAN; len];
/// What may be added to.
pub const SMALL: Old = |len| (0..len).map(|i| (i % 7) as f64 - 3.0).collect();

impl Point<f64> {
    fn tensor(&mut self, number: usize) -> &mut Tensor<f64> {
        let of_data = self.data.len();
        if number < of_data { &mut self.data[number] } else { &mut self.parameters[number - of_data] }
    }

    /// The elements of input number `number`, data first.
    pub fn values(&mut self, number: usize) -> Result<Vec<f64>> {
        self.tensor(number).to_vec()
    }

    pub fn set(&mut self, number: usize, values: &[f64]) -> Result<()> {
        self.tensor(number).copy_from_slice(values)
    }
}
