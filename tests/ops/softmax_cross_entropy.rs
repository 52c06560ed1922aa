//! Softmax and cross entropy.

use ferrolayer::ops::softmax_cross_entropy::{self, Output};
use ferrolayer::testing::{assert_close, gradcheck_fn};
use ferrolayer::{Device, Out, Tensor};

use crate::support::*;

pub fn tests() -> Vec<Trial> {
    let on_cpu = |name: &str, test: fn() -> Outcome| on_cpu(&format!("softmax_cross_entropy::{name}"), test);
    let mut tests = vec![
        on_cpu("matches_the_formula", matches_the_formula),
        on_cpu("matches_pytorch", matches_pytorch),
        on_cpu("gradient_matches_finite_difference", gradient_matches_finite_difference),
        on_cpu("edge_values", || edge_values(&Device::cpu())),
        on_cpu("empty_batch", || empty_batch(&Device::cpu())),
        on_cpu("rejects_scores_of_another_rank", rejects_scores_of_another_rank),
        on_cpu("rejects_no_classes", rejects_no_classes),
        on_cpu("rejects_another_number_of_labels", rejects_another_number_of_labels),
        on_cpu("rejects_a_label_that_is_no_class", rejects_a_label_that_is_no_class),
        on_cpu("rejects_other_shapes", rejects_other_shapes),
        on_cpu("rejects_labels_elsewhere", rejects_labels_elsewhere),
    ];
    type Body = fn(&Device) -> Outcome;
    let each: [(&str, Body); 5] = [
        ("matches_cpu", matches_cpu),
        ("matches_cpu_on_random_shapes", matches_cpu_on_random_shapes),
        ("edge_values", edge_values),
        ("empty_batch", empty_batch),
        ("a_label_that_is_no_class_gives_nan", a_label_that_is_no_class_gives_nan),
    ];
    for (name, test) in each {
        tests.extend(on_each_gpu(&format!("softmax_cross_entropy::{name}"), test));
    }
    tests.push(on_real_gpu("softmax_cross_entropy::matches_cpu_at_full_size", |gpu| compare(gpu, [4099, 1003], 3)));
    tests.push(on_real_gpu("softmax_cross_entropy::huge_rows_are_as_by_themselves", huge_rows));
    tests
}

fn labels(seed: u64, [rows, classes]: [usize; 2]) -> Vec<u32> {
    normal::<f64>(seed + 1000, rows).iter().map(|v| (v.abs() * 1e6) as u32 % classes as u32).collect()
}

/// Loss, `log_sum` and gradient by the module's two lines, with no care for overflow.
fn formula(x: &[f64], labels: &[u32], dloss: f64) -> (f64, Vec<f64>, Vec<f64>) {
    let (classes, rows) = (x.len() / labels.len(), labels.len() as f64);
    let (mut loss, mut log_sum, mut dx) = (0.0, Vec::new(), Vec::new());
    for (x, &label) in x.chunks(classes).zip(labels) {
        let logarithm = x.iter().map(|x| x.exp()).sum::<f64>().ln();
        loss += (logarithm - x[label as usize]) / rows;
        log_sum.push(logarithm);
        let hit = |class: usize| if class == label as usize { 1.0 } else { 0.0 };
        dx.extend(x.iter().enumerate().map(|(c, x)| ((x - logarithm).exp() - hit(c)) * dloss / rows));
    }
    (loss, log_sum, dx)
}

fn matches_the_formula() -> Outcome {
    let device = Device::cpu();
    for shape in [[1, 1], [5, 7], [600, 10], [2, 5000]] {
        let (x, labels) = (normal::<f64>(4, shape[0] * shape[1]), labels(4, shape));
        let (scores, targets) =
            (Tensor::from_slice(&device, &shape, &x)?, Tensor::from_slice(&device, &shape[..1], &labels)?);
        let Output { loss, log_sum } = softmax_cross_entropy::forward(&scores, &targets)?;
        let (dloss, mut dx) = (Tensor::full(&device, &[1], -1.5)?, scores.empty_like()?);
        softmax_cross_entropy::backward(&scores, &targets, &log_sum, Some(&dloss), Out::write(&mut dx))?;
        let expected = formula(&x, &labels, -1.5);
        let got = [loss.to_vec()?, log_sum.to_vec()?, dx.to_vec()?];
        for (got, expected) in got.iter().zip([vec![expected.0], expected.1, expected.2]) {
            for (got, expected) in got.iter().zip(&expected) {
                assert!((got - expected).abs() < 1e-13 * expected.abs().max(1.0), "{shape:?}: {got} {expected}");
            }
        }
    }
    Ok(())
}

/// `cross_entropy(tensor([[1., 2., 3.], [1., 2., 3.]]), tensor([2, 0]))` and its gradient: log_softmax of 1, 2, 3 is
/// -2.4076, -1.4076, -0.4076 in PyTorch's documentation and everywhere.
fn matches_pytorch() -> Outcome {
    let device = Device::cpu();
    let x = Tensor::from_slice(&device, &[2, 3], &[1.0f32, 2.0, 3.0, 1.0, 2.0, 3.0])?;
    let labels = Tensor::from_slice(&device, &[2], &[2, 0])?;
    let Output { loss, log_sum } = softmax_cross_entropy::forward(&x, &labels)?;
    assert_close("loss", &loss.to_vec()?, &[1.407_605_9], 3, &[3.0])?;
    let mut dx = x.empty_like()?;
    softmax_cross_entropy::backward(&x, &labels, &log_sum, None, Out::write(&mut dx))?;
    let expected = [0.045_015_287, 0.122_364_24, -0.167_379_5, -0.454_984_7, 0.122_364_24, 0.332_620_5];
    assert_close("dx", &dx.to_vec()?, &expected, 3, &[1.0; 6])?;
    Ok(())
}

fn gradient_matches_finite_difference() -> Outcome {
    let device = Device::cpu();
    let (x, targets) = (normal::<f64>(8, 6 * 5), Tensor::from_vec(&device, &[6], labels(8, [6, 5]))?);
    let tensor = |x: &[f64]| Tensor::from_slice(&device, &[6, 5], x).unwrap();
    let log_sum = softmax_cross_entropy::forward(&tensor(&x), &targets)?.log_sum;
    let mut dx = tensor(&x);
    softmax_cross_entropy::backward(&tensor(&x), &targets, &log_sum, None, Out::write(&mut dx))?;
    gradcheck_fn("x", &x, &dx.to_vec()?, |x| {
        softmax_cross_entropy::forward(&tensor(x), &targets).unwrap().loss.to_vec().unwrap()[0]
    })?;
    Ok(())
}

fn compare(gpu: &Device, shape: [usize; 2], seed: u64) -> Outcome {
    let cpu = Device::cpu();
    let [x, old] = [0, 1].map(|s| normal_tensor::<f32>(&cpu, 10 * seed + s, &shape));
    let targets = Tensor::from_vec(&cpu, &shape[..1], labels(seed, shape))?;
    let run = |device: &Device| -> Result<_, Failed> {
        let (x, targets) = (x.to(device)?, targets.to(device)?);
        let Output { loss, log_sum } = softmax_cross_entropy::forward(&x, &targets)?;
        let (mut written, mut added) = (x.empty_like()?, old.to(device)?);
        softmax_cross_entropy::backward(&x, &targets, &log_sum, None, Out::write(&mut written))?;
        let (dloss, out) = (Tensor::full(device, &[1], 3.0)?, Out { tensor: &mut added, beta: 0.5 });
        softmax_cross_entropy::backward(&x, &targets, &log_sum, Some(&dloss), out)?;
        Ok([loss, log_sum, written, added])
    };
    let (expected, got, again) = (run(&cpu)?, run(gpu)?, run(gpu)?);

    // An error of the sum, relative to it, is the logarithm's absolute one. Those of the exponents are relative errors of
    // the probabilities.
    let (scores, targets, [rows, classes]) = (x.to_vec()?, targets.to_vec()?, shape);
    let (log_sum, old) = (expected[1].to_vec()?, old.to_vec()?);
    let log_sizes: Vec<f64> = log_sum.iter().map(|l| 1.0 + 2.0 * f64::from(l.abs())).collect();
    let right = |row: usize| f64::from(scores[row * classes + targets[row] as usize].abs());
    let loss_size = (0..rows).map(|row| log_sizes[row] + right(row)).sum::<f64>() / rows as f64;
    let dx_sizes: Vec<f64> = (0..rows * classes)
        .map(|i| {
            let probability = f64::from((scores[i] - log_sum[i / classes]).exp());
            let hit = if targets[i / classes] as usize == i % classes { 1.0 } else { 0.0 };
            (probability * (log_sizes[i / classes] + f64::from(scores[i].abs())) + hit) / rows as f64
        })
        .collect();
    let added_sizes = dx_sizes.iter().zip(&old).map(|(size, old)| 3.0 * size + f64::from(old.abs())).collect();
    let sizes = [vec![loss_size], log_sizes, dx_sizes, added_sizes];
    let terms = [rows + classes, classes, classes, classes];
    for (i, what) in ["loss", "log_sum", "dx", "dx added"].into_iter().enumerate() {
        let what = format!("{what} of {shape:?}");
        assert_close(&what, &got[i].to_vec()?, &expected[i].to_vec()?, terms[i], &sizes[i])?;
        assert_same_bits(&what, &again[i], &got[i])?;
    }
    Ok(())
}

fn matches_cpu(gpu: &Device) -> Outcome {
    let shapes = [
        [1, 1],
        [1, 10],
        [7, 2],
        [8, 31],
        [9, 32],
        [33, 33],
        [3, 1000],
        [300, 3],
        // Gradients by parts of a row; then a block a row, too.
        [5, 2051],
        [2, 4096],
        [3, 4098],
        [2, 20_001],
    ];
    shapes.into_iter().enumerate().try_for_each(|(seed, shape)| compare(gpu, shape, seed as u64))
}

/// Past 2³² elements: the first row, the last, and those that 2³¹ and 2³² are in give what they give by themselves, to the bit.
fn huge_rows(gpu: &Device) -> Outcome {
    // Classes are whole vectors, so that each row is cut alike; rows and `dloss` are such that their quotient is 1 in both.
    let [rows, classes] = [70_000, 61_400];
    let x: Vec<f32> = (0..rows * classes).map(|i| (i * 7 % 1_000_003) as f32 / 1e5).collect();
    let labels: Vec<u32> = (0..rows).map(|row| (row * 31 % classes) as u32).collect();
    let run = |shape: [usize; 2], x: Vec<f32>, labels: &[u32]| -> Result<[Vec<f32>; 3], Failed> {
        let x = Tensor::from_vec(gpu, &shape, x)?;
        let labels = Tensor::from_slice(gpu, &shape[..1], labels)?;
        let Output { loss, log_sum } = softmax_cross_entropy::forward(&x, &labels)?;
        let (dloss, mut dx) = (Tensor::full(gpu, &[1], shape[0] as f32)?, x.empty_like()?);
        softmax_cross_entropy::backward(&x, &labels, &log_sum, Some(&dloss), Out::write(&mut dx))?;
        Ok([loss.to_vec()?, log_sum.to_vec()?, dx.to_vec()?])
    };
    let chosen = [0, (1 << 31) / classes, (1 << 32) / classes, rows - 1];
    let by_themselves =
        chosen.map(|row| run([1, classes], x[row * classes..][..classes].to_vec(), &labels[row..=row]).unwrap());
    let right: Vec<f64> = labels.iter().enumerate().map(|(row, &c)| x[row * classes + c as usize].into()).collect();
    let [loss, log_sum, dx] = run([rows, classes], x, &labels)?;
    for (row, [_, expected_log_sum, expected_dx]) in chosen.into_iter().zip(by_themselves) {
        assert_eq!(log_sum[row], expected_log_sum[0], "log_sum of row {row}");
        assert!(dx[row * classes..][..classes] == expected_dx, "dx of row {row}");
    }
    let mean = log_sum.iter().zip(right).map(|(&l, right)| f64::from(l) - right).sum::<f64>() / rows as f64;
    assert!((f64::from(loss[0]) - mean).abs() < 1e-4 * mean, "loss {} of {mean}", loss[0]);
    Ok(())
}

fn matches_cpu_on_random_shapes(gpu: &Device) -> Outcome {
    for_random(8, (1usize..40, 1usize..80), |(rows, classes)| compare(gpu, [rows, classes], 55))
}

/// In a row of their own, and at the end of a long one of classes that are ruled out.
fn edge_values(device: &Device) -> Outcome {
    edge_values_after(device, 0)?;
    edge_values_after(device, 5003)
}

fn edge_values_after(device: &Device, ruled_out: usize) -> Outcome {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let run = |row: [f32; 3], label: u32| -> Result<(f32, Vec<f32>), Failed> {
        let (x, label) = ([vec![-inf; ruled_out], row.to_vec()].concat(), label + ruled_out as u32);
        let x = Tensor::from_slice(device, &[1, x.len()], &x)?;
        let labels = Tensor::from_slice(device, &[1], &[label])?;
        let Output { loss, log_sum } = softmax_cross_entropy::forward(&x, &labels)?;
        let mut dx = Tensor::full(device, x.shape(), nan)?;
        softmax_cross_entropy::backward(&x, &labels, &log_sum, None, Out::write(&mut dx))?;
        let (loss, mut dx) = (loss.to_vec()?[0], dx.to_vec()?);
        assert!(dx[..ruled_out].iter().all(|d| if loss.is_nan() { d.is_nan() } else { *d == 0.0 }), "{row:?}");
        Ok((loss, dx.split_off(ruled_out)))
    };
    // Scores whose exponentials are infinite, or all zero.
    assert_eq!(run([1000.0, 0.0, -1000.0], 1)?, (1000.0, vec![1.0, -1.0, 0.0]));
    assert_eq!(run([-2000.0, -1000.0, -3000.0], 1)?, (0.0, vec![0.0, 0.0, 0.0]));
    assert_eq!(run([3e38, -3e38, 0.0], 0)?, (0.0, vec![0.0, 0.0, 0.0]));
    // A class that is ruled out.
    assert_eq!(run([-inf, 5.0, -inf], 1)?, (0.0, vec![0.0, 0.0, 0.0]));
    assert_eq!(run([-inf, 5.0, -inf], 0)?.0, inf);
    // No class, or more than any.
    for row in [[nan, 0.0, 0.0], [0.0, 0.0, nan], [inf, nan, 1.0], [-inf; 3], [0.0, inf, 0.0]] {
        let (loss, dx) = run(row, 1)?;
        assert!(loss.is_nan() && dx.iter().all(|d| d.is_nan()), "{row:?}: {loss} {dx:?}");
    }
    Ok(())
}

fn empty_batch(device: &Device) -> Outcome {
    let (x, labels) = (Tensor::<f32>::zeros(device, &[0, 3])?, Tensor::<u32>::zeros(device, &[0])?);
    let Output { loss, log_sum } = softmax_cross_entropy::forward(&x, &labels)?;
    assert_eq!((loss.to_vec()?, log_sum.shape()), (vec![0.0], &[0][..]));
    let mut dx = x.clone();
    softmax_cross_entropy::backward(&x, &labels, &log_sum, None, Out::write(&mut dx))?;
    Ok(())
}

fn a_label_that_is_no_class_gives_nan(device: &Device) -> Outcome {
    let (x, labels) = (Tensor::<f32>::zeros(device, &[2, 3])?, Tensor::from_slice(device, &[2], &[0, 3])?);
    let Output { loss, log_sum } = softmax_cross_entropy::forward(&x, &labels)?;
    assert!(loss.to_vec()?[0].is_nan());
    let mut dx = x.empty_like()?;
    softmax_cross_entropy::backward(&x, &labels, &log_sum, None, Out::write(&mut dx))?;
    let dx = dx.to_vec()?;
    assert!(dx[..3].iter().all(|d| d.is_finite()) && dx[3..].iter().all(|d| d.is_nan()), "{dx:?}");
    Ok(())
}

fn zeros(shape: &[usize]) -> Tensor<f32> {
    Tensor::zeros(&Device::cpu(), shape).unwrap()
}

fn zero_labels(len: usize) -> Tensor<u32> {
    Tensor::zeros(&Device::cpu(), &[len]).unwrap()
}

fn rejects_scores_of_another_rank() -> Outcome {
    let result = softmax_cross_entropy::forward(&zeros(&[2, 3, 1]), &zero_labels(2));
    assert_error(result, "softmax_cross_entropy.forward: x has shape [2, 3, 1], expected [N, C]")
}

fn rejects_no_classes() -> Outcome {
    let expected = "softmax_cross_entropy.forward: x has shape [2, 0], expected no zero but for the batch, dimension 0";
    assert_error(softmax_cross_entropy::forward(&zeros(&[2, 0]), &zero_labels(2)), expected)
}

fn rejects_another_number_of_labels() -> Outcome {
    let result = softmax_cross_entropy::forward(&zeros(&[2, 3]), &zero_labels(3));
    assert_error(result, "softmax_cross_entropy.forward: labels has shape [3], expected [2]")
}

fn rejects_a_label_that_is_no_class() -> Outcome {
    let labels = Tensor::from_slice(&Device::cpu(), &[3], &[2, 0, 3])?;
    assert_error(
        softmax_cross_entropy::forward(&zeros(&[3, 3]), &labels),
        "softmax_cross_entropy.forward: labels is 3 in row 2, expected less than 3, the number of classes",
    )?;
    assert_error(
        softmax_cross_entropy::backward(&zeros(&[3, 3]), &labels, &zeros(&[3]), None, Out::write(&mut zeros(&[3, 3]))),
        "softmax_cross_entropy.backward: labels is 3 in row 2, expected less than 3, the number of classes",
    )
}

fn rejects_other_shapes() -> Outcome {
    let (x, labels) = (zeros(&[2, 3]), zero_labels(2));
    let backward = |log_sum: &[usize], dloss: &[usize], dx: &[usize]| {
        let (log_sum, dloss, mut dx) = (zeros(log_sum), zeros(dloss), zeros(dx));
        softmax_cross_entropy::backward(&x, &labels, &log_sum, Some(&dloss), Out::write(&mut dx))
    };
    let expected = "softmax_cross_entropy.backward: log_sum has shape [3], expected [2]";
    assert_error(backward(&[3], &[1], &[2, 3]), expected)?;
    let expected = "softmax_cross_entropy.backward: dloss has shape [2], expected [1]";
    assert_error(backward(&[2], &[2], &[2, 3]), expected)?;
    let expected = "softmax_cross_entropy.backward: dx has shape [3, 2], expected [2, 3]";
    assert_error(backward(&[2], &[1], &[3, 2]), expected)
}

fn rejects_labels_elsewhere() -> Outcome {
    let gpu = Device::Gpu(ferrolayer::device::Gpu::emulated());
    assert_error(
        softmax_cross_entropy::forward(&zeros(&[2, 3]), &zero_labels(2).to(&gpu)?),
        "softmax_cross_entropy.forward: labels is on the emulated GPU, expected the CPU like the other tensors; \
         `Tensor::to` moves it",
    )
}
