//! A tensor map, used by the instruction that it is for.

use ferrolayer_libcuda::{L2Promotion, OutOfBounds, Swizzle, TensorMap, TensorMapType, TiledArray, launch};
use libtest_mimic::Completion;

use crate::gpu::{Buffer, Gpu, Outcome, argument};

pub fn loads_a_box(gpu: &Gpu) -> Outcome {
    let Some(kernel) = gpu.hopper_kernel("load_box")? else { return gpu.not_hopper() };
    let stream = gpu.stream()?;
    // 50 rows of 37 numbers, with rows of 40.
    let (width, height, row) = (37, 50, 40);
    let words: Vec<u32> = (0..height * row).map(|index| (index as f32).to_bits()).collect();
    let input = Buffer::new(&words, &stream)?;
    let array = TiledArray {
        element: TensorMapType::F32,
        address: input.address,
        dims: &[width, height as u64],
        strides: &[4 * row as u64],
        box_dims: &[16, 16],
        element_strides: None,
        swizzle: Swizzle::None,
        l2_promotion: L2Promotion::Bytes128,
        out_of_bounds: OutOfBounds::Zero,
    };
    let mut map = TensorMap::encode_tiled(&array, stream.context())?;
    // Inside, across the right and lower edges, before the beginning, and wholly outside. The column is a multiple of
    // 4, since a row of the box starts at a multiple of 16 bytes.
    for (x, y) in [(0i32, 0i32), (4, 7), (28, 40), (-4, -2), (100, 0)] {
        let output = Buffer::new(&[u32::MAX; 256], &stream)?;
        let (mut out, mut column, mut line) = (output.address, x, y);
        let mut params = [argument(&mut map), argument(&mut out), argument(&mut column), argument(&mut line)];
        // SAFETY: four arguments of the kernel's types; it writes 256 words.
        unsafe { launch(kernel.raw(), [1; 3], [256, 1, 1], 0, &stream, &mut params, Default::default()) }?;
        for (index, word) in output.read()?.into_iter().enumerate() {
            let (column, line) = (x + index as i32 % 16, y + index as i32 / 16);
            let inside = (0..width as i32).contains(&column) && (0..height).contains(&line);
            let expected = if inside { (line * row + column) as f32 } else { 0.0 };
            assert_eq!(f32::from_bits(word), expected, "box at ({x}, {y}), element ({column}, {line})");
        }
    }
    // Two maps of one array are the same bits.
    assert_eq!(map, TensorMap::encode_tiled(&array, stream.context())?);
    assert_ne!(map, TensorMap::encode_tiled(&TiledArray { swizzle: Swizzle::Bytes64, ..array }, stream.context())?);
    Ok(Completion::Completed)
}
