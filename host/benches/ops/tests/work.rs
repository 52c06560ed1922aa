use cuda_std::launch::DeviceMemory;
use ferrolayer::device::Gpu;
use ferrolayer::{Device, Layout};

use crate::case::{Which, cases, layouts, ops, passes, types};
use crate::work::*;

/// Each op, pass, type and layout on the emulated grid, each set once and the first again.
#[test]
fn every_pass_runs() {
    let device = Device::Gpu(Gpu::emulated());
    for case in ops().flat_map(|op| cases(op, Which::Tiny)) {
        for &(_, layout) in layouts(&case.op) {
            for (&dtype, &pass) in types(&case.op).iter().flat_map(|t| passes(&case.op).iter().map(move |p| (t, p))) {
                let inputs = Inputs::new(&device, 2, layout, Noise::default());
                let what = format!("{case:?} {pass:?} {dtype:?} {layout:?}");
                let mut run = bind(&inputs, &case, pass, dtype).unwrap_or_else(|error| panic!("{what}: {error}"));
                for number in 0..3 {
                    run(number).unwrap_or_else(|error| panic!("{what}: {error}"));
                }
            }
        }
    }
}

/// The cache serves no set that another has just brought there.
#[test]
fn sets_share_no_memory() {
    let device = Device::Gpu(Gpu::emulated());
    let inputs = Inputs::new(&device, 3, Layout::ChannelsLast, Noise::default());
    let (x, dy) = (inputs.random::<f32>(&[2, 3, 4, 5]).unwrap(), inputs.random::<f32>(&[2, 3, 4, 5]).unwrap());
    let mut places: Vec<u64> =
        x.iter().chain(&dy).map(|x| DeviceMemory::<f32>::address(x.gpu::<f32>("test", "x").unwrap())).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), 6);
    assert!(x.iter().all(|x| x.layout() == Some(Layout::ChannelsLast)));
    let values = x[0].to_vec().unwrap();
    assert!(values.iter().any(|&x| x < 0.0) && values.iter().any(|&x| x > 0.0));
    assert!(values.iter().all(|x| x.abs() <= 1.0));
}
