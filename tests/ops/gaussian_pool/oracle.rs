//! Gaussian pooling as its formula says it, window by window and position by position, in f64.

use ferrolayer::ops::gaussian_pool::Normalize;
use ferrolayer::{Device, Real, Tensor};

use super::{Case, Gradients, Inputs, Results};

/// A position of a window that lies in the image.
struct Position {
    /// Its index in `x`.
    pixel: usize,
    weight: f64,
    /// The weight's derivatives by `mu_y`, `mu_x`, `var_y` and `var_x`.
    derivatives: [f64; 4],
    /// The magnitudes of what the weight and its derivatives are computed from: a derivative is a difference, and an
    /// exponent's rounding counts as often as the exponent is large.
    sizes: [f64; 5],
}

/// One output: its index in `y`, the number of its Gaussian among the parameters, and its window.
fn for_each_output<T: Real>(case: &Case, inputs: &Inputs<T>, mut f: impl FnMut(usize, usize, &[Position])) {
    let ([_, channels, height, width], [batch, maps, ho, wo]) = (case.x, case.y());
    let (means, vars) = (inputs.mean.to_vec().unwrap(), inputs.var.to_vec().unwrap());
    for n in 0..batch {
        for map in 0..maps {
            let (c, k) = (map / case.kernels, map % case.kernels);
            let gaussian = if case.shared { k } else { c * case.kernels + k };
            let mean = [0, 1].map(|axis| means[gaussian * 2 + axis].f64());
            let var = [0, 1].map(|axis| if case.per_axis { vars[gaussian * 2 + axis] } else { vars[gaussian] }.f64());
            for oy in 0..ho {
                for ox in 0..wo {
                    let plane = (n * channels + c) * height * width;
                    let window = window(case, [oy, ox], mean, var, |y, x| plane + y * width + x);
                    f(((n * maps + map) * ho + oy) * wo + ox, gaussian, &window);
                }
            }
        }
    }
}

fn window(
    case: &Case,
    output: [usize; 2],
    mean: [f64; 2],
    var: [f64; 2],
    index: impl Fn(usize, usize) -> usize,
) -> Vec<Position> {
    let size = case.window.size;
    // Of every position that counts: where it is in the image, if it is, and its distances from the mean.
    let mut counted = vec![];
    for i in 0..size[0] {
        for j in 0..size[1] {
            let place = [0, 1].map(|axis| {
                let position = output[axis] * case.window.stride[axis] + [i, j][axis];
                position.checked_sub(case.window.padding[axis]).filter(|&at| at < case.x[2 + axis])
            });
            let inside = place[0].zip(place[1]);
            if inside.is_some() || case.normalize == Normalize::Window {
                let distance = [0, 1].map(|axis| [i, j][axis] as f64 - (size[axis] as f64 - 1.0) / 2.0 - mean[axis]);
                counted.push((inside, distance));
            }
        }
    }
    let exponent = |d: &[f64; 2]| -d[0] * d[0] / (2.0 * var[0]) - d[1] * d[1] / (2.0 * var[1]);
    let (_, nearest) = *counted.iter().max_by(|a, b| exponent(&a.1).total_cmp(&exponent(&b.1))).unwrap();
    let below = |d: &[f64; 2]| exponent(&nearest) - exponent(d);
    let z: f64 = counted.iter().map(|(_, d)| (-below(d)).exp()).sum();
    let weight = |d: &[f64; 2]| (-below(d)).exp() / z;
    // The derivatives of the exponent, less those at the nearest position: a number that is the same for all positions
    // changes nothing, but would hide what is left where one has nearly all of the weight.
    let slopes = |d: &[f64; 2]| {
        [0, 1, 2, 3].map(|p| {
            let (axis, step) = (p % 2, d[p % 2] - nearest[p % 2]);
            if p < 2 { step / var[axis] } else { step * (d[axis] + nearest[axis]) / (2.0 * var[axis].powi(2)) }
        })
    };
    let average = |f: &dyn Fn(usize, &[f64; 2]) -> f64| {
        [0, 1, 2, 3].map(|p| counted.iter().map(|(_, d)| weight(d) * f(p, d)).sum::<f64>())
    };
    let mean_slopes = average(&|p, d| slopes(d)[p]);
    let distance = |p: usize, d: &[f64; 2]| slopes(d)[p].abs();
    let mean_distances = average(&distance);
    counted
        .iter()
        .filter_map(|(inside, d)| {
            let (y, x) = (*inside)?;
            let size = weight(d) * (1.0 + below(d));
            let [a, b, c, e] = [0, 1, 2, 3].map(|p| size * (distance(p, d) + mean_distances[p]));
            Some(Position {
                pixel: index(y, x),
                weight: weight(d),
                derivatives: [0, 1, 2, 3].map(|p| weight(d) * (slopes(d)[p] - mean_slopes[p])),
                sizes: [size, a, b, c, e],
            })
        })
        .collect()
}

/// Adds a Gaussian's derivatives by both means and both variances to the parameters' gradients.
fn add_parameters(case: &Case, gaussian: usize, terms: [f64; 4], dmean: &mut [f64], dvar: &mut [f64]) {
    for axis in 0..2 {
        dmean[gaussian * 2 + axis] += terms[axis];
        dvar[if case.per_axis { gaussian * 2 + axis } else { gaussian }] += terms[2 + axis];
    }
}

/// What the passes should give.
pub(super) fn results<T: Real>(case: &Case, inputs: &Inputs<T>) -> Results<T> {
    let (x, dy) = (inputs.x.to_vec().unwrap(), inputs.dy.to_vec().unwrap());
    let (mut y, mut dx) = (vec![0.0; inputs.dy.len()], vec![0.0; inputs.x.len()]);
    let (mut dmean, mut dvar) = (vec![0.0; inputs.mean.len()], vec![0.0; inputs.var.len()]);
    for_each_output(case, inputs, |output, gaussian, window| {
        let dy = dy[output].f64();
        for p in window {
            let x = x[p.pixel].f64();
            y[output] += p.weight * x;
            dx[p.pixel] += p.weight * dy;
            add_parameters(case, gaussian, p.derivatives.map(|d| d * x * dy), &mut dmean, &mut dvar);
        }
    });
    fn tensor<E: Real>(shape: &[usize], values: &[f64]) -> Tensor<E> {
        Tensor::from_vec(&Device::cpu(), shape, values.iter().map(|&v| E::of(v)).collect()).unwrap()
    }
    fn added<E: Real>(old: &Tensor<E>, new: &[f64]) -> Tensor<E> {
        let sums: Vec<f64> = old.to_vec().unwrap().iter().zip(new).map(|(old, new)| 0.5 * old.f64() + new).collect();
        tensor(old.shape(), &sums)
    }
    let old = &inputs.old;
    Results {
        y: tensor(&case.y(), &y),
        dx: tensor(&case.x, &dx),
        added: Gradients { dx: added(&old.dx, &dx), dmean: added(&old.dmean, &dmean), dvar: added(&old.dvar, &dvar) },
        gradients: Gradients {
            dx: tensor(&case.x, &dx),
            dmean: tensor(&case.mean(), &dmean),
            dvar: tensor(&case.var(), &dvar),
        },
    }
}

/// Of `y`, `dx`, `dmean` and `dvar`: how many terms an element sums, and the sum of their magnitudes.
pub(super) fn sizes<T: Real>(case: &Case, inputs: &Inputs<T>) -> [(usize, Vec<f64>); 4] {
    let (x, dy) = (inputs.x.to_vec().unwrap(), inputs.dy.to_vec().unwrap());
    let (mut y, mut dx) = (vec![0.0; inputs.dy.len()], vec![0.0; inputs.x.len()]);
    let (mut dmean, mut dvar) = (vec![0.0; inputs.mean.len()], vec![0.0; inputs.var.len()]);
    for_each_output(case, inputs, |output, gaussian, window| {
        let dy = dy[output].f64().abs();
        for p in window {
            let x = x[p.pixel].f64().abs();
            let [size, derivatives @ ..] = p.sizes;
            y[output] += size * x;
            dx[p.pixel] += size * dy;
            add_parameters(case, gaussian, derivatives.map(|d| d * x * dy), &mut dmean, &mut dvar);
        }
    });
    let positions = case.window.positions();
    let sums = inputs.dy.len() / (case.sets() * case.kernels) * positions;
    [(positions, y), (positions * case.kernels, dx), (sums, dmean), (sums, dvar)]
}
