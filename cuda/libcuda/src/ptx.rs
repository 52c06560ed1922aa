//! Which PTX a GPU takes, of what Rust kernels are built for.

use std::fmt;

use crate::presence::DriverVersion;

/// What PTX is built for: each family runs where no other is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PtxFamily {
    /// Compute capability 8.0, which every GPU since Ampere takes.
    Sm80,
    /// Hopper's own, compute capability 9.0 and nothing else.
    Sm90a,
}

/// Why a GPU takes no PTX of any family. It reads as one sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("compute capability {major}.{minor} is too old: the PTX on board takes 8.0 or later")]
pub struct NoPtx {
    /// The compute capability's part before the point.
    pub major: u32,
    /// The part after the point.
    pub minor: u32,
}

impl PtxFamily {
    /// The oldest driver whose compiler takes the instructions of `sm_90a`.
    pub const OLDEST_DRIVER_FOR_SM_90A: DriverVersion = DriverVersion::new(12, 0);

    /// The one for a GPU of this compute capability under this driver.
    ///
    /// # Errors
    /// [`NoPtx`] for a GPU before Ampere.
    pub fn of((major, minor): (u32, u32), driver: DriverVersion) -> Result<Self, NoPtx> {
        match (major, minor) {
            (0..=7, _) => Err(NoPtx { major, minor }),
            (9, 0) if driver >= Self::OLDEST_DRIVER_FOR_SM_90A => Ok(Self::Sm90a),
            _ => Ok(Self::Sm80),
        }
    }

    /// As files and compilers call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sm80 => "sm_80",
            Self::Sm90a => "sm_90a",
        }
    }
}

impl fmt::Display for PtxFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gpu_takes_the_best_that_its_driver_can() {
        let new = DriverVersion::new(13, 0);
        assert_eq!(PtxFamily::of((8, 9), new), Ok(PtxFamily::Sm80));
        assert_eq!(PtxFamily::of((9, 0), new), Ok(PtxFamily::Sm90a));
        assert_eq!(PtxFamily::of((9, 0), DriverVersion::new(11, 8)), Ok(PtxFamily::Sm80));
        assert_eq!(PtxFamily::of((12, 0), new), Ok(PtxFamily::Sm80));
        let said = PtxFamily::of((7, 5), new).unwrap_err().to_string();
        assert_eq!(said, "compute capability 7.5 is too old: the PTX on board takes 8.0 or later");
    }
}
