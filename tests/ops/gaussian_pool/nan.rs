//! Values that are not finite.

use ferrolayer::ops::Window;
use ferrolayer::ops::gaussian_pool::{self, Normalize};
use ferrolayer::{Device, Out, Real, Tensor, bf16, f16};

use super::{Case, Inputs, LAYOUTS, matrices, run, staged};
use crate::support::*;

/// A NaN or an infinity reaches the windows of its plane that cover it, and no others; likewise backwards.
pub(super) fn stays_in_its_windows(device: &Device) -> Outcome {
    let cases = [
        ([1, 3, 20, 23], [3, 4], [2, 3], [1, 2]),
        ([1, 2, 9, 70], [2, 2], [4, 1], [0, 0]),
        ([1, 8, 7, 9], [3, 3], [2, 2], [0, 0]),
        ([1, 3, 8, 6], [5, 4], [4, 4], [0, 0]),
    ];
    for (x, size, stride, padding) in cases {
        let window = Window::new(size).stride(stride).padding(padding);
        for (normalize, layout) in [(Normalize::Window, LAYOUTS[0]), (Normalize::Valid, LAYOUTS[1])] {
            let case = Case { x, layout, window, normalize, kernels: 1, shared: true, per_axis: true };
            stays_in_windows::<f32>(device, &case)?;
        }
    }
    // Tensor cores multiply with zeros what a window does not cover.
    staged::nan_cases().into_iter().chain(matrices::nan_cases()).try_for_each(|case| {
        stays_in_windows::<f16>(device, &case)?;
        stays_in_windows::<bf16>(device, &case)
    })
}

/// Rows and columns between windows add nothing to the gradients of the parameters, whatever they hold.
pub(super) fn uncovered_is_no_term() -> Outcome {
    for layout in LAYOUTS {
        let window = Window::new([2, 2]).stride([3, 4]);
        let (x, normalize) = ([1, 3, 9, 11], Normalize::Window);
        let case = Case { x, layout, window, normalize, kernels: 2, shared: false, per_axis: true };
        let inputs = Inputs::<f32>::new(&case, 6);
        let with = |uncovered: f32| -> Result<_, Failed> {
            let mut values = inputs.x.to_vec()?;
            for (i, value) in values.iter_mut().enumerate() {
                if i / 11 % 9 % 3 == 2 || i % 11 % 4 > 1 {
                    *value = uncovered;
                }
            }
            let x = Tensor::from_vec(&Device::cpu(), &case.x, values)?.to_layout(layout)?;
            let results = run(&case, &Inputs { x, ..inputs.clone() })?.gradients;
            Ok((results.dmean.to_vec()?, results.dvar.to_vec()?))
        };
        assert_eq!(with(f32::NAN)?, with(0.0)?, "{layout:?}");
    }
    Ok(())
}

fn stays_in_windows<T: Real>(device: &Device, case: &Case) -> Outcome {
    let Case { x: shape, layout, window, normalize, kernels, .. } = *case;
    let Inputs { x, mean, var, dy, .. } = Inputs::<T>::new(case, 5).to(device)?;
    let covers = |output: usize, pixel: usize, axis: usize| {
        let first = output * window.stride[axis];
        (first..first + window.size[axis]).contains(&(pixel + window.padding[axis]))
    };
    let place = |[_, _, height, width]: [usize; 4], i: usize| [i / width / height, i / width % height, i % width];
    let reaches = |output: usize, pixel: usize| {
        let ([map, oy, ox], [plane, iy, ix]) = (place(case.y(), output), place(shape, pixel));
        map / kernels == plane && covers(oy, iy, 0) && covers(ox, ix, 1)
    };
    let with = |tensor: &Tensor<T>, at: usize, bad: f64| -> Result<_, Failed> {
        let mut values = tensor.to_vec()?;
        values[at] = T::of(bad);
        Ok(Tensor::from_vec(device, tensor.shape(), values)?.to_layout(layout)?)
    };
    for bad in [f64::NAN, f64::INFINITY] {
        let at = x.len() / 2 + shape[3] / 3;
        let x = with(&x, at, bad)?;
        let y = gaussian_pool::forward(&x, &mean, &var, &window, normalize)?;
        for (i, y) in y.to_vec()?.into_iter().map(Real::f64).enumerate() {
            assert_eq!(y.is_finite(), !reaches(i, at), "{case:?}: y[{i}] = {y} with {bad} at {at}");
        }
        let at = dy.len() / 2 + 1;
        let dy = with(&dy, at, bad)?;
        let mut dx = x.empty_like()?;
        let out = Some(Out::write(&mut dx));
        gaussian_pool::backward(&x, &mean, &var, &window, normalize, &dy, out, None, None)?;
        for (i, dx) in dx.to_vec()?.into_iter().map(Real::f64).enumerate() {
            assert_eq!(dx.is_finite(), !reaches(at, i), "{case:?}: dx[{i}] = {dx} with {bad} at {at}");
        }
    }
    Ok(())
}
