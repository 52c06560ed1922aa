//! The backward pass that pooling ops share which pick one position of each window: it goes by the indices alone.

use ferrolayer::ops::stochastic_pool::Random;
use ferrolayer::ops::{Window, max_pool, stochastic_pool};
use ferrolayer::{Device, Layout, Out, Tensor};

use crate::support::*;

pub fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_cpu("route::goes_by_the_indices", || goes_by_the_indices(&Device::cpu())),
        on_cpu("route::an_index_of_no_position_passes_nothing", || passes_nothing(&Device::cpu())),
    ];
    tests.extend(on_each_gpu("route::goes_by_the_indices", goes_by_the_indices));
    tests.extend(on_each_gpu("route::an_index_of_no_position_passes_nothing", passes_nothing));
    tests
}

fn windows() -> [Window; 2] {
    // One byte an index, and two.
    [Window::new([3, 2]).stride([2, 1]).padding([1, 1]), Window::new([17, 19]).stride([3, 2])]
}

/// Where each window's only element above zero is, the maximum and the draw are one position: so are the gradients.
fn goes_by_the_indices(device: &Device) -> Outcome {
    for (window, layout) in windows().into_iter().flat_map(|w| [Layout::RowMajor, Layout::ChannelsLast].map(|l| (w, l)))
    {
        let shape = [2, 3, 19, 21];
        // A window covers no two of these, and every window one.
        let apart = window.size.map(|size| size.max(2));
        let values = (0..shape.iter().product()).map(|i| {
            let (row, column) = (i / shape[3] % shape[2], i % shape[3]);
            if row % apart[0] == 0 && column % apart[1] == 0 { 1.0 + i as f32 } else { 0.0 }
        });
        let x = Tensor::from_vec(device, &shape, values.collect())?.to_layout(layout)?;
        let maxima = max_pool::forward(&x, &window)?;
        let drawn = stochastic_pool::forward(&x, &window, &mut Random::new(device, 7)?)?;
        assert_same_bits(&format!("y of {window:?}"), &drawn.y, &maxima.y)?;
        // Windows at the edges may have no such element: a maximum, zero, and no draw.
        let y = drawn.y.to_vec()?;
        assert!(y.iter().filter(|y| **y > 0.0).count() > y.len() / 2, "{window:?}");
        let passed = normal::<f32>(1, y.len()).into_iter().zip(y).map(|(dy, y)| if y > 0.0 { dy } else { 0.0 });
        let dy = Tensor::from_vec(device, drawn.y.shape(), passed.collect())?.to_layout(layout)?;
        let mut of_maxima = normal_tensor(device, 2, &shape).to_layout(layout)?;
        let mut of_drawn = of_maxima.clone();
        max_pool::backward(&dy, &maxima.indices, &window, &shape, Out { tensor: &mut of_maxima, beta: 0.5 })?;
        stochastic_pool::backward(&dy, &drawn.indices, &window, &shape, Out { tensor: &mut of_drawn, beta: 0.5 })?;
        assert_same_bits(&format!("dx of {window:?}"), &of_drawn, &of_maxima)?;
    }
    Ok(())
}

fn passes_nothing(device: &Device) -> Outcome {
    for window in windows() {
        let x = Tensor::full(device, &[1, 2, 19, 21], -1.0f32)?;
        let drawn = stochastic_pool::forward(&x, &window, &mut Random::new(device, 7)?)?;
        let (dy, mut dx) = (normal_tensor::<f32>(device, 1, drawn.y.shape()), x.empty_like()?);
        stochastic_pool::backward(&dy, &drawn.indices, &window, x.shape(), Out::write(&mut dx))?;
        assert!(dx.to_vec()?.iter().all(|dx| *dx == 0.0), "{window:?}");
    }
    Ok(())
}
