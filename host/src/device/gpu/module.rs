//! PTX that kernels are launched from.

use cuda_std::launch::{Launch, LaunchDims};
use libcuda::PtxFamily;

use super::Gpu;
use super::packed::Packed;
use crate::Result;

/// The PTX of a crate of kernels, to launch them from: a `static`, so that each GPU loads each kernel once.
///
/// ```no_run
/// # const PTX: &str = "";
/// use ferrolayer::device::KernelModule;
///
/// // static KERNELS: KernelModule = KernelModule::new(include_str!("my_kernels.sm_80.ptx"));
/// static KERNELS: KernelModule = KernelModule::new(PTX);
/// ```
///
/// `cuda_builder` makes the text, from a crate or from one file. On an emulated GPU it is not read: there the kernels' own
/// source runs.
#[derive(Debug)]
pub struct KernelModule {
    sm_80: Ptx,
    sm_90a: Option<Ptx>,
}

/// PTX as a module has it.
#[derive(Clone, Copy, Debug)]
pub enum Ptx {
    Text(&'static str),
    /// A compressed file's bytes: see [`Packed`](super::packed::Packed).
    Packed(&'static [u8]),
}

impl KernelModule {
    /// PTX for compute capability 8.0, which every GPU since Ampere takes.
    pub const fn new(sm_80: &'static str) -> Self {
        Self { sm_80: Ptx::Text(sm_80), sm_90a: None }
    }

    /// With PTX of the same kernels that Hopper takes instead, built for `sm_90a`.
    #[must_use]
    pub const fn with_sm_90a(self, ptx: &'static str) -> Self {
        Self { sm_90a: Some(Ptx::Text(ptx)), ..self }
    }

    /// Compressed PTX for compute capability 8.0, and of the same kernels for `sm_90a`.
    pub(super) const fn packed(sm_80: &'static [u8], sm_90a: &'static [u8]) -> Self {
        Self { sm_80: Ptx::Packed(sm_80), sm_90a: Some(Ptx::Packed(sm_90a)) }
    }

    /// What a GPU loads that takes this family.
    pub(super) fn ptx(&self, family: PtxFamily) -> Ptx {
        match (family, self.sm_90a) {
            (PtxFamily::Sm90a, Some(ptx)) => ptx,
            _ => self.sm_80,
        }
    }

    /// The hash of the kernels' sources that `cuda_builder` writes into the first line; none in a text that was made otherwise.
    pub(super) fn sources(&self) -> Option<String> {
        let packed;
        let text = match self.sm_80 {
            Ptx::Text(text) => text,
            Ptx::Packed(file) => {
                packed = Packed::of(file)?;
                &packed.head
            }
        };
        let mut words = text.lines().next()?.split(' ');
        words.find_map(|word| word.strip_prefix("sources=")).map(str::to_owned)
    }

    /// Queues a kernel of this module on `gpu`. A grid of no blocks is nothing to do. The first launch on a GPU loads the
    /// kernel there, which takes the driver some milliseconds; what it compiled it keeps on disk.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) when a buffer is not in this GPU's memory,
    /// [`Error::Overlap`](crate::Error::Overlap) when the kernel would write to memory that another of its buffers is in;
    /// [`Error::Emulation`](crate::Error::Emulation) for a broken rule on an emulated GPU; the driver's errors, among them
    /// that the module has no such kernel, and the fault of a kernel launched before.
    ///
    /// # Safety
    /// The kernel's own contract holds: for these arguments and dimensions it touches nothing outside its buffers. The
    /// module was built from the source that made the launch type `K`.
    pub unsafe fn launch<K: Launch>(&'static self, gpu: &Gpu, dims: LaunchDims, kernel: K) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { gpu.launch_from(self, dims, kernel) }
    }
}
