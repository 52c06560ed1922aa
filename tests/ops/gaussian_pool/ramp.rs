//! What is known without an oracle: one Gaussian, very wide or very narrow, on a ramp.

use ferrolayer::ops::Window;
use ferrolayer::ops::gaussian_pool::{self, Normalize};
use ferrolayer::testing::assert_close;
use ferrolayer::{Device, Out, Tensor};

use crate::support::*;

/// One Gaussian with these parameters, isotropic, on a 4 x 4 image of 0, 1, .. under a 3 x 3 window with padding 1 and
/// stride 2: `y`, and the gradients for `dy` = 1.
fn on_a_ramp(device: &Device, normalize: Normalize, mean: [f32; 2], var: f32) -> Result<[Vec<f32>; 4], Failed> {
    let x = Tensor::from_vec(device, &[1, 1, 4, 4], (0..16).map(|i| i as f32).collect())?;
    let mean = Tensor::from_slice(device, &[1, 1, 2], &mean)?;
    let var = Tensor::from_slice(device, &[1, 1, 1], &[var])?;
    let window = Window::new([3, 3]).stride([2, 2]).padding([1, 1]);
    let y = gaussian_pool::forward(&x, &mean, &var, &window, normalize)?;
    let dy = Tensor::full(device, y.shape(), 1.0)?;
    let (mut dx, mut dmean, mut dvar) = (x.empty_like()?, mean.empty_like()?, var.empty_like()?);
    let outs = [&mut dx, &mut dmean, &mut dvar].map(|tensor| Some(Out::write(tensor)));
    let [a, b, c] = outs;
    gaussian_pool::backward(&x, &mean, &var, &window, normalize, &dy, a, b, c)?;
    Ok([y.to_vec()?, dx.to_vec()?, dmean.to_vec()?, dvar.to_vec()?])
}

pub(super) fn wide_is_average_narrow_is_nearest(device: &Device) -> Outcome {
    for var in [1e12, 1e30, f32::MAX] {
        // Sums over 2 x 2, 2 x 3, 3 x 2 and 3 x 3 pixels.
        let sums = [10.0, 24.0, 51.0, 90.0];
        for (normalize, counts) in [(Normalize::Window, [9.0; 4]), (Normalize::Valid, [4.0, 6.0, 6.0, 9.0])] {
            let [y, _, dmean, dvar] = on_a_ramp(device, normalize, [0.25, -1.5], var)?;
            let average: Vec<f32> = sums.iter().zip(counts).map(|(sum, count)| sum / count).collect();
            assert_close("average", &y, &average, 9, &average.iter().map(|v| f64::from(*v)).collect::<Vec<_>>())?;
            assert!(dmean.iter().chain(&dvar).all(|g| g.abs() < 1e-9), "{dmean:?} {dvar:?}");
        }
    }
    for var in [1e-3, 1e-6, 1e-30, f32::MIN_POSITIVE, 1e-45] {
        // The centre, the pixel below and to the right of it, and, where only the image counts, its nearest pixel.
        for (normalize, mean, expected) in [
            (Normalize::Window, [0.0, 0.25], [0.0, 2.0, 8.0, 10.0]),
            (Normalize::Valid, [0.75, 0.75], [5.0, 7.0, 13.0, 15.0]),
            (Normalize::Window, [0.0, -5.0], [0.0, 1.0, 0.0, 9.0]),
            (Normalize::Valid, [0.0, -5.0], [0.0, 1.0, 8.0, 9.0]),
            (Normalize::Valid, [-3e38, 3e38], [1.0, 3.0, 5.0, 7.0]),
        ] {
            let [y, dx, dmean, dvar] = on_a_ramp(device, normalize, mean, var)?;
            assert_eq!(y, expected, "{normalize:?}, mean {mean:?}, var {var}");
            let picked: Vec<f32> = (0..16).map(|i| f32::from(y.contains(&(i as f32)))).collect();
            assert_eq!(dx[1..], picked[1..], "{normalize:?}, mean {mean:?}, var {var}");
            assert_eq!([&dmean[..], &dvar[..]].concat(), [0.0; 3], "{normalize:?}, mean {mean:?}, var {var}");
        }
    }
    Ok(())
}

/// Also where two positions are equally or nearly equally near to the mean.
pub(super) fn extreme_parameters_stay_finite(device: &Device) -> Outcome {
    let halves = [0.5f32, 0.5 - f32::EPSILON / 4.0, 0.5 + f32::EPSILON / 2.0];
    for normalize in [Normalize::Window, Normalize::Valid] {
        for var in [1e-36, 1e-10, 1.0, f32::MAX] {
            for mean in halves.into_iter().chain([-1e-30, -1e30, f32::MAX]) {
                let [y, dx, dmean, dvar] = on_a_ramp(device, normalize, [mean, -mean], var)?;
                let results = [&y[..], &dx[..], &dmean[..], &dvar[..]].concat();
                assert!(results.iter().all(|v| v.is_finite()), "{normalize:?} {mean:e} {var:e}: {results:?}");
                assert!(dx.iter().all(|&v| (0.0..=4.0).contains(&v)), "{normalize:?} {mean:e} {var:e}: {dx:?}");
            }
        }
        // Half of each neighbour below; just beside the middle, the nearer one alone.
        let [y, ..] = on_a_ramp(device, normalize, [0.5, 0.0], 1e-6)?;
        assert_eq!(y, [2.0, 4.0, 10.0, 12.0]);
        let [y, ..] = on_a_ramp(device, normalize, [halves[1], 0.0], 1e-12)?;
        assert_eq!(y, [0.0, 2.0, 8.0, 10.0]);
        let [y, ..] = on_a_ramp(device, normalize, [halves[2], 0.0], 1e-12)?;
        assert_eq!(y, [4.0, 6.0, 12.0, 14.0]);
    }
    Ok(())
}
