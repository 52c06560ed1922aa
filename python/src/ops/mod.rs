//! One file per op: its operators, whose bodies call [`ferrolayer::ops`]. Gradients that are not asked for are tensors of
//! no elements.

mod add2;
mod avg_pool;
mod dense;
mod gaussian_pool;
mod indices;
mod linear;
mod max_pool;
mod prelu;
mod relu;
mod scale_add;
mod stochastic_pool;

use ferrolayer_torch::{Entry, operators};

/// All of them.
pub const ALL: [Entry; 23] = operators![
    add2::Forward,
    avg_pool::Backward,
    avg_pool::Forward,
    dense::Backward,
    dense::Forward,
    gaussian_pool::Backward,
    gaussian_pool::Forward,
    linear::Backward,
    linear::Forward,
    max_pool::Backward,
    max_pool::FlatIndices,
    max_pool::Forward,
    max_pool::Inference,
    prelu::Backward,
    prelu::Forward,
    relu::Backward,
    relu::Forward,
    relu::InPlace,
    scale_add::Backward,
    scale_add::Forward,
    stochastic_pool::Backward,
    stochastic_pool::Forward,
    stochastic_pool::Inference,
];
