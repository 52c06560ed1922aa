//! Ampere: asynchronous copies from global to shared memory, past the registers ([`copies`]), and matrix products by a
//! warp ([`matrix`]), and pairs of 16-bit floats ([`pairs`]).

pub mod copies;
pub mod matrix;
pub mod pairs;

pub use copies::{
    cp_async_commit, cp_async_wait, cp_async_wait_all, cp_async4, cp_async4_zero_fill, cp_async16, cp_async16_zero_fill,
};
pub use matrix::{Half, ldmatrix_x4, ldmatrix_x4_near, ldmatrix_x4_near_trans, ldmatrix_x4_trans, mma_m16n8k16};
pub use pairs::{Paired, where_equal_halves};
