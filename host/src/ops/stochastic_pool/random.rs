//! What draws come from.

use kernels::stochastic_pool::state;

use crate::{Device, Result, Tensor};

/// A seed and the number of passes that have drawn, in device memory.
///
/// Each [`forward`](super::forward) of at least one image draws with both and then counts itself there: no two passes draw
/// alike, a captured graph draws anew at each replay, and a run with the same seed draws the same again.
#[derive(Clone, Debug)]
pub struct Random {
    state: Tensor<u64>,
}

impl Random {
    /// Before the first draw of this seed.
    ///
    /// # Errors
    /// A device's own errors.
    pub fn new(device: &Device, seed: u64) -> Result<Self> {
        Self::at(device, seed, 0)
    }

    /// Before the draw of this seed that `offset` passes came before, to go on with a run.
    ///
    /// # Errors
    /// A device's own errors.
    pub fn at(device: &Device, seed: u64, offset: u64) -> Result<Self> {
        let mut values = [0; state::COUNT];
        values[state::SEED] = seed;
        values[state::OFFSET] = offset;
        Ok(Self { state: Tensor::from_slice(device, &[state::COUNT], &values)? })
    }

    /// The seed.
    ///
    /// # Errors
    /// The device's own errors.
    pub fn seed(&self) -> Result<u64> {
        Ok(self.state.to_vec()?[state::SEED])
    }

    /// How many passes have drawn. On a GPU this waits for them.
    ///
    /// # Errors
    /// The device's own errors.
    pub fn offset(&self) -> Result<u64> {
        Ok(self.state.to_vec()?[state::OFFSET])
    }

    pub(super) fn state(&self) -> &Tensor<u64> {
        &self.state
    }

    /// The state with no other owner: copied first where it has one, a clone.
    pub(super) fn own_state(&mut self) -> Result<&mut Tensor<u64>> {
        self.state.make_own()?;
        Ok(&mut self.state)
    }
}
