//! Copies in another order, and tensors that are in one.

use std::ops::Range;

use ferrolayer::{Device, Element, Layout, Tensor, f16};
use proptest::prelude::*;

use crate::support::*;

pub fn tests() -> Vec<Trial> {
    let mut tests = vec![
        on_cpu("permute::layouts_are_told", layouts_are_told),
        on_cpu("permute::rejects_axes_and_shapes", rejects_axes_and_shapes),
        on_cpu("permute::matches_the_definition", || matches_the_definition(&Device::cpu())),
        on_cpu("permute::matches_the_definition_on_random_shapes", || random(&Device::cpu())),
    ];
    tests.extend(on_each_gpu("permute::matches_the_definition", matches_the_definition));
    tests.extend(on_each_gpu("permute::matches_the_definition_on_random_shapes", random));
    tests.push(on_real_gpu("permute::huge", huge));
    tests
}

/// Numbers in order, reordered, copied to row-major order: each is where its index says.
fn check<T: Element>(device: &Device, shape: &[usize], axes: &[usize], element: impl Fn(usize) -> T) -> Outcome {
    let len = shape.iter().product();
    let x = Tensor::from_vec(device, shape, (0..len).map(element).collect())?;
    let expected = x.to_array()?.permuted_axes(axes.to_vec());
    let view = x.permute(axes)?;
    let copy = view.to_layout(Layout::RowMajor)?;
    for (what, tensor) in [("view", &view), ("copy", &copy)] {
        assert_eq!(tensor.shape(), expected.shape(), "{what} of {shape:?} by {axes:?}");
        assert!(tensor.to_vec()?.iter().eq(expected.iter()), "{what} of {shape:?} by {axes:?}");
    }
    assert!(copy.is_contiguous());
    // There and back, by values.
    let mut filled = view.empty_like()?;
    filled.copy_from_slice(&copy.to_vec()?)?;
    assert_eq!((filled.strides(), filled.to_vec()?), (view.strides(), copy.to_vec()?));
    assert_eq!(view.to(&Device::cpu())?.to_vec()?, copy.to_vec()?);
    Ok(())
}

fn matches_the_definition(device: &Device) -> Outcome {
    check(device, &[2, 3, 4, 5], &[0, 2, 3, 1], |i| i as f32)?;
    check(device, &[2, 3, 4, 5], &[3, 1, 0, 2], |i| i as u8)?;
    check(device, &[300, 7], &[1, 0], |i| i as u16)?;
    check(device, &[1, 1, 9, 1], &[3, 2, 1, 0], |i| i as f64)?;
    check(device, &[2, 0, 3], &[2, 0, 1], |i| i as f32)?;
    // Rows that stay rows, of elements that are taken one by one, by two, by four, by eight.
    check(device, &[3, 130, 5], &[1, 0, 2], |i| i as u16)?;
    check(device, &[3, 130, 6], &[1, 0, 2], |i| i as u8)?;
    check(device, &[3, 7, 12], &[1, 0, 2], |i| i as u8)?;
    check(device, &[9, 8, 4, 8], &[2, 0, 1, 3], |i| f16::from_f32(i as f32))?;
    // Tiles that are cut off, of one and of two wide sides; dimensions too short for any.
    check(device, &[2, 70, 40, 9], &[0, 2, 3, 1], |i| i as u8)?;
    check(device, &[2, 70, 40, 9], &[0, 2, 3, 1], |i| i as u16)?;
    check(device, &[2, 3, 37, 31], &[0, 2, 3, 1], |i| i as f64)?;
    check(device, &[2, 3, 2, 3, 2, 3], &[5, 4, 3, 2, 1, 0], |i| i as u8)?;
    check(device, &[2, 3, 2, 3, 2, 3, 2, 3], &[7, 6, 5, 4, 3, 2, 1, 0], |i| i as u32)?;
    // Enough for large tiles.
    check(device, &[1030, 2050], &[1, 0], |i| i as u16)?;
    check(device, &[2, 1030, 1031], &[1, 0, 2], |i| i as u32)?;
    check(device, &[], &[], |i| i as f32)
}

fn random(device: &Device) -> Outcome {
    let strategy = |sizes: Range<usize>, dims: Range<usize>| {
        proptest::collection::vec(sizes, dims).prop_flat_map(|shape| {
            let axes: Vec<usize> = (0..shape.len()).collect();
            (Just(shape), Just(axes).prop_shuffle())
        })
    };
    for_random(40, strategy(1..6, 1..6), |(shape, axes)| check(device, &shape, &axes, |i| i as u32))?;
    for_random(20, strategy(1..40, 1..4), |(shape, axes)| check(device, &shape, &axes, |i| i as u8))
}

/// Past 2³² elements, turned and by rows: looked at here and there, where an index passes 2³¹ and 2³², and at the end.
fn huge(gpu: &Device) -> Outcome {
    const PATTERN: usize = 251;
    for (shape, axes) in [(vec![65_537, 65_539], vec![1, 0]), (vec![3, 37_003, 38_707], vec![1, 0, 2])] {
        let len: usize = shape.iter().product();
        let x = Tensor::from_vec(gpu, &shape, (0..len).map(|i| (i % PATTERN) as u8).collect())?.permute(&axes)?;
        let y = x.to_layout(Layout::RowMajor)?.to_vec()?;
        let near = |place: usize| place - 2000..(place + 2000).min(len);
        for place in (0..len).step_by(9973).chain(near(1 << 31)).chain(near(1 << 32)).chain(near(len)) {
            let (mut rest, mut from) = (place, 0);
            for (size, stride) in x.shape().iter().zip(x.strides()).rev() {
                from += rest % size * stride;
                rest /= size;
            }
            assert_eq!(y[place], (from % PATTERN) as u8, "{place} of {shape:?} by {axes:?}");
        }
    }
    Ok(())
}

fn layouts_are_told() -> Outcome {
    let device = Device::cpu();
    let x = Tensor::<f32>::zeros(&device, &[2, 3, 4, 5])?;
    assert_eq!((x.layout(), x.is_contiguous()), (Some(Layout::RowMajor), true));
    let last = x.to_layout(Layout::ChannelsLast)?;
    assert_eq!((last.layout(), last.strides()), (Some(Layout::ChannelsLast), &[60, 1, 15, 3][..]));
    assert_eq!(last.empty_like()?.layout(), Some(Layout::ChannelsLast));
    assert_eq!(x.clone().permute(&[1, 0, 2, 3])?.layout(), None);
    // Both at once: what it was made as.
    let one = Tensor::<f32>::empty_in(&device, &[2, 1, 4, 5], Layout::ChannelsLast)?;
    assert_eq!((one.layout(), one.is_contiguous()), (Some(Layout::ChannelsLast), true));
    assert_eq!(Tensor::<f32>::zeros(&device, &[2, 1, 4, 5])?.layout(), Some(Layout::RowMajor));
    Ok(())
}

fn rejects_axes_and_shapes() -> Outcome {
    let x = Tensor::<f32>::zeros(&Device::cpu(), &[2, 3])?;
    assert_error(
        x.clone().permute(&[0, 0]),
        "Tensor::permute: axes is [0, 0], expected each of the dimensions 0 to 1 once",
    )?;
    assert_error(
        x.to_layout(Layout::ChannelsLast),
        "Tensor::empty_in: shape has shape [2, 3], expected [N, C, H, W] for channels last",
    )?;
    assert_error(
        x.clone().permute(&[1, 0])?.reshape(&[6]),
        "Tensor::reshape: self has shape [3, 2] and strides [1, 3], expected row-major order; \
         `Tensor::to_layout` copies it",
    )?;
    assert_error(
        Tensor::<f32>::zeros(&Device::cpu(), &[usize::MAX, 2]),
        "Tensor::full: shape has shape [18446744073709551615, 2], expected fewer than 2^63 bytes of 4 bytes an element",
    )
}
