//! Instructions that not every GPU has: a module for each architecture that brought them.
//!
//! `sm_80` runs on every GPU since Ampere and on the emulated grid. `sm_90a` is Hopper only, in PTX compiled for it,
//! and is not there on the host.

pub mod sm_80;
#[cfg(all(target_arch = "nvptx64", target_feature = "sm_90a"))]
pub mod sm_90a;
