//! Products by parts that are made in registers, of the right operand, by themselves: at every edge of a tile, and of what has no parts.

use cuda_std::launch::{DeviceMemory, Launch, LaunchDims};
use kernels::dense::IDENTITY;
use kernels::dense::split::{
    DenseForwardSplitRegisters, DenseGradientSplitRegisters, LEFT_BOX, LIMIT, shared_bytes_in_registers,
};
use kernels::dense::wgmma;

use super::launches::{OP, buffer, gpu};
use super::split::{Parts, Product, Whole, cut, map, shape_of, split};
use super::*;

/// The kernels that make the right operand's parts in registers, whose rows in memory are whole pieces, by tiles of so many rows;
/// and what has no parts is said to be so.
pub fn edges<const ROWS: u32>(device: &Device) -> Outcome
where
    for<'a> DenseForwardSplitRegisters<'a, ROWS>: Launch,
    for<'a> DenseGradientSplitRegisters<'a, ROWS, true>: Launch,
    for<'a> DenseGradientSplitRegisters<'a, ROWS, false>: Launch,
{
    let rows = ROWS as usize;
    for product in Product::ALL {
        for [n, columns, depth] in
            [[1, 4, 4], [8, 8, 8], [rows - 1, 132, 60], [rows, 128, 64], [rows + 1, 252, 68], [70, 12, 200]]
        {
            for splits in [1, 2, 3] {
                edge::<ROWS>(device, product, [n, columns, depth], splits, None)?;
            }
        }
        edge::<ROWS>(device, product, [2 * rows + 3, 388, 516], 2, None)?;
        // The dimension along which no operand's rows lie need not be.
        let odd = if product == Product::Forward { [65, 131, 72] } else { [65, 132, 71] };
        edge::<ROWS>(device, product, odd, 1, None)?;
        for what in [f32::NAN, f32::NEG_INFINITY, LIMIT] {
            for which in 0..2 {
                edge::<ROWS>(device, product, [130, 260, 132], 2, Some((which, what)))?;
            }
        }
    }
    Ok(())
}

fn edge<const ROWS: u32>(
    device: &Device,
    product: Product,
    sizes @ [rows, columns, depth]: [usize; 3],
    splits: u32,
    refusing: Option<(usize, f32)>,
) -> Outcome
where
    for<'a> DenseForwardSplitRegisters<'a, ROWS>: Launch,
    for<'a> DenseGradientSplitRegisters<'a, ROWS, true>: Launch,
    for<'a> DenseGradientSplitRegisters<'a, ROWS, false>: Launch,
{
    let gpu = gpu(device);
    let (shape, splits) = cut(sizes, splits);
    let mut matrices = Whole::new(device, product, sizes, [1, 1 << 17])?;
    if let Some((which, what)) = refusing {
        let matrix = if which == 0 { &mut matrices.a } else { &mut matrices.b };
        let mut values = matrix.to_vec()?;
        *values.last_mut().expect("it has some") = what;
        *matrix = Tensor::from_vec(device, matrix.shape(), values)?;
    }
    let mut pa = Parts::room(gpu, shape_of(&matrices.a))?;
    let refusals = split(gpu, [Some((&matrices.a, &mut pa)), None, None])?;
    let mut refused = gpu.upload(&[0u32])?;
    let mut out = Tensor::full(device, &[rows, columns], f32::NAN)?;
    let mut room = Tensor::full(device, &[splits as usize, rows, columns], f32::NAN)?;
    {
        let a_map = map(gpu, &pa, ROWS, product.inner()[0])?;
        let b_map = gpu.tensor_map(buffer(&matrices.b)?, shape_of(&matrices.b).map(|n| n as u32), LEFT_BOX)?;
        let parts =
            if splits == 1 { None } else { Some(room.gpu_mut::<f32>(OP, "parts")? as &mut dyn DeviceMemory<f32>) };
        let (out, other) = (out.gpu_mut::<f32>(OP, "out")?, buffer(&matrices.b)?);
        let (dz, refusals, refused) = (&pa.words, &refusals, &mut refused);
        let dims = LaunchDims::new(3, wgmma::BLOCK).with_shared(shared_bytes_in_registers(ROWS));
        macro_rules! gradient {
            ($of_dx:literal) => {
                gpu.launch(
                    dims,
                    DenseGradientSplitRegisters::<ROWS, $of_dx> {
                        dz,
                        other,
                        refusals,
                        refused,
                        out,
                        parts,
                        shape,
                        splits,
                        beta: 0.0,
                        dz_map: a_map,
                        other_map: b_map,
                    },
                )
            };
        }
        // SAFETY: parts of the shape that the kernels ask for, a whole tensor, the maps of both, as many parts as splits.
        unsafe {
            match product {
                Product::Forward => gpu.launch(
                    dims,
                    DenseForwardSplitRegisters::<ROWS> {
                        x: dz,
                        w: other,
                        refusals,
                        refused,
                        y: out,
                        z: None,
                        b: None,
                        alpha: None,
                        parts,
                        shape,
                        splits,
                        activation: IDENTITY,
                        x_map: a_map,
                        w_map: b_map,
                    },
                )?,
                Product::Dx => gradient!(true)?,
                Product::Dw => gradient!(false)?,
            }
        }
    }
    let what = format!("{product:?} of {rows}x{columns} over {depth} in {splits}, by tiles of {ROWS} rows");
    let refused = refused.download()?;
    if refused != [u32::from(refusing.is_some())] {
        return Err(format!("{what}, with {refusing:?}: refused is {refused:?}").into());
    }
    if refusing.is_some() {
        return Ok(());
    }
    matrices.check(&what, &if splits == 1 { out.to_vec()? } else { room.to_vec()? })
}
