//! What was launched on a stream, for the message of a fault.

use std::collections::VecDeque;

use cuda_std::launch::LaunchDims;

/// The latest launches since the stream was last known to be good.
#[derive(Default)]
pub struct Launched {
    kept: VecDeque<(&'static str, LaunchDims)>,
    dropped: usize,
}

impl Launched {
    /// Launches kept; a fault is among the oldest ones not yet done, and queues are rarely longer.
    const KEPT: usize = 256;

    pub fn note(&mut self, name: &'static str, dims: LaunchDims) {
        if self.kept.len() == Self::KEPT {
            self.kept.pop_front();
            self.dropped += 1;
        }
        self.kept.push_back((name, dims));
    }

    /// Keeps its room: the next launch allocates nothing.
    pub fn clear(&mut self) {
        self.kept.clear();
        self.dropped = 0;
    }

    pub fn describe(&self) -> Vec<String> {
        let dropped = (self.dropped > 0).then(|| format!("{} before these", self.dropped));
        let kept = self.kept.iter().map(|(name, dims)| format!("{name} grid {:?} block {:?}", dims.grid, dims.block));
        dropped.into_iter().chain(kept).collect()
    }
}
