//! The CPU in f64 against the specification's formulas and against central differences.

use ferrolayer::testing::gradcheck_fn;

use super::*;

/// The formulas of the specification, one element after another.
struct Reference {
    z: Vec<f64>,
    y: Vec<f64>,
    dx: Vec<f64>,
    dw: Vec<f64>,
    db: Vec<f64>,
    dalpha: Vec<f64>,
}

fn reference([n, i, o]: [usize; 3], kind: Kind, [x, w, b, alpha, dy]: [&[f64]; 5]) -> Reference {
    let slopes = kind.slopes(o);
    let mut all = Reference {
        z: vec![0.0; n * o],
        y: vec![0.0; n * o],
        dx: vec![0.0; n * i],
        dw: vec![0.0; o * i],
        db: vec![0.0; o],
        dalpha: vec![0.0; slopes],
    };
    for row in 0..n {
        for out in 0..o {
            let at = row * o + out;
            let z = (0..i).map(|j| x[row * i + j] * w[out * i + j]).sum::<f64>() + b[out];
            let (y, slope) = kind.apply(z, alpha[out % slopes]);
            (all.z[at], all.y[at]) = (z, y);
            let dz = slope * dy[at];
            for j in 0..i {
                all.dx[row * i + j] += dz * w[out * i + j];
                all.dw[out * i + j] += dz * x[row * i + j];
            }
            all.db[out] += dz;
            if z <= 0.0 {
                all.dalpha[out % slopes] += z * dy[at];
            }
        }
    }
    all
}

pub fn matches_the_formula() -> Outcome {
    let cpu = Device::cpu();
    for (sizes, kind) in
        [[1, 1, 1], [2, 3, 5], [7, 17, 6], [20, 2, 19]].into_iter().flat_map(|s| Kind::ALL.map(|k| (s, k)))
    {
        let [n, i, o] = sizes;
        let slopes = kind.slopes(o);
        let draw = |seed, shape: &[usize]| normal_tensor::<f64>(&cpu, seed, shape);
        let (x, w, b, alpha, dy) =
            (draw(1, &[n, i]), draw(2, &[o, i]), draw(3, &[o]), draw(4, &[slopes]), draw(5, &[n, o]));
        let host = [x.host()?, w.host()?, b.host()?, alpha.host()?, dy.host()?];
        let expected = reference(sizes, kind, host);
        let got = dense::forward(&x, &w, Some(&b), kind.activation(&alpha))?;
        let old = Given::draw(&cpu, 6, sizes, slopes);
        let close = |what: &str, got: &Tensor<f64>, expected: &[f64], old: Option<&Tensor<f64>>| -> Outcome {
            for (at, (got, expected)) in got.to_vec()?.into_iter().zip(expected).enumerate() {
                let expected = expected + old.map_or(0.0, |old| -1.5 * old.host().unwrap()[at]);
                let off = (got - expected).abs();
                assert!(off < 1e-12, "{what} at {at} of {sizes:?}, {kind:?}: {got} instead of {expected}");
            }
            Ok(())
        };
        close("y", &got.y, &expected.y, None)?;
        if let Saved::Prelu { z } = &got.saved {
            close("z", z, &expected.z, None)?;
        }
        for beta in [0.0, -1.5] {
            let grads = backward([&x, &w, &dy], &alpha, kind, &got.saved, &old, beta)?;
            let before = |old| (beta != 0.0).then_some(old);
            close("dx", &grads.dx, &expected.dx, before(&old.dx))?;
            close("dw", &grads.dw, &expected.dw, before(&old.dw))?;
            close("db", &grads.db, &expected.db, before(&old.db))?;
            if kind.is_prelu() {
                close("dalpha", &grads.dalpha, &expected.dalpha, before(&old.dalpha))?;
            }
        }
    }
    Ok(())
}

pub fn gradient_matches_finite_difference() -> Outcome {
    let cpu = Device::cpu();
    let [n, i, o] = [4, 5, 3];
    for kind in Kind::ALL {
        let slopes = kind.slopes(o);
        let shapes = [vec![n, i], vec![o, i], vec![o], vec![slopes]];
        let at: Vec<Vec<f64>> = (0..4).map(|k| normal(20 + k as u64, shapes[k].iter().product())).collect();
        let dy: Vec<f64> = normal(30, n * o);
        let tensor = |k: usize, values: &[f64]| Tensor::from_slice(&cpu, &shapes[k], values).unwrap();
        let forward = |at: [&[f64]; 4]| {
            let [x, w, b, alpha] = [0, 1, 2, 3].map(|k| tensor(k, at[k]));
            dense::forward(&x, &w, Some(&b), kind.activation(&alpha)).unwrap()
        };
        let all = [&at[0][..], &at[1], &at[2], &at[3]];
        // No kink within the step of the differences.
        let z = reference([n, i, o], kind, [all[0], all[1], all[2], all[3], &dy]).z;
        assert!(z.iter().all(|z| z.abs() > 1e-3), "another seed: {z:?}");
        let [x, w, _, alpha] = [0, 1, 2, 3].map(|k| tensor(k, all[k]));
        let dy_tensor = Tensor::from_slice(&cpu, &[n, o], &dy)?;
        let none = Given::draw(&cpu, 0, [n, i, o], slopes);
        let grads = backward([&x, &w, &dy_tensor], &alpha, kind, &forward(all).saved, &none, 0.0)?;
        let gradients = [("x", grads.dx), ("w", grads.dw), ("b", grads.db), ("alpha", grads.dalpha)];
        for (k, (name, gradient)) in gradients.iter().enumerate().take(if kind.is_prelu() { 4 } else { 3 }) {
            gradcheck_fn(&format!("{name} with {kind:?}"), all[k], gradient.host()?, |moved| {
                let mut at = all;
                at[k] = moved;
                forward(at).y.host().unwrap().iter().zip(&dy).map(|(y, dy)| y * dy).sum()
            })?;
        }
    }
    Ok(())
}
