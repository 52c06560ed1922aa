//! Ferrolayer's GPU kernels: one file per op, and nothing else.
//!
//! Built for `nvptx64-nvidia-cuda` this becomes the PTX in `host/ptx`; built for the host it gives the launch types, the
//! tile sizes and the same functions, which the emulated grid runs.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx, asm_experimental_arch))]

/// Repeats a block with a constant in place of the index: arrays indexed otherwise would go to local memory.
#[cfg(target_arch = "nvptx64")]
macro_rules! unrolled {
    ($i:ident in [$($n:literal)*] $body:block) => { $({ const $i: usize = $n; $body })* };
}

/// On the host a loop like any other: copies of blocks would be most of what is compiled there. Blocks mean the same on both: the
/// index is no constant here, so none can take it for one, and the label lets none leave a loop without saying which.
#[cfg(not(target_arch = "nvptx64"))]
macro_rules! unrolled {
    ($i:ident in [$($n:literal)*] $body:block) => {
        #[allow(non_snake_case, unused_labels)]
        for $i in [$($n as usize),*] {
            'copy: { $body }
        }
    };
}

pub mod abreast;
pub mod adam;
pub mod add2;
pub mod avg_pool;
pub mod band;
pub mod chunks;
pub mod dense;
pub mod elements;
mod elementwise;
pub mod exp;
pub mod falling;
pub mod gaussian_pool;
pub mod max_pool;
pub mod packs;
pub mod patch;
pub mod permute;
pub mod philox;
pub mod pieces;
pub mod prelu;
mod reduce;
pub mod relu;
pub mod route;
pub mod scale_add;
pub mod sgd;
pub mod shares;
pub mod softmax_cross_entropy;
pub mod spans;
pub mod stochastic_pool;
pub mod swish;
pub mod vectors;
pub mod warps;
pub mod wholes;
pub mod window;
