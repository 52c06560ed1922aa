//! Parameters on disk, in the safetensors format.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use super::Layer;
use crate::{Compute, DType, Error, Result};

/// Writes all parameters, fixed ones too, under their names.
///
/// # Errors
/// [`Error::Io`] when the file cannot be written; the devices' own errors.
pub fn save<T: Compute>(model: &dyn Layer<T>, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let mut tensors = Vec::new();
    for (name, parameter) in model.parameters() {
        let value = parameter.value();
        tensors.push((name, value.shape().to_vec(), bytes(&value.to_vec()?)));
    }
    let views = tensors.iter().map(|(name, shape, bytes)| {
        let view = TensorView::new(dtype::<T>(), shape.clone(), bytes).expect("as many bytes as the shape asks for");
        (name, view)
    });
    let file = safetensors::serialize(views, None).map_err(|error| parameters(path, error.to_string()))?;
    fs::write(path, file).map_err(|source| Error::Io { path: path.into(), source })
}

/// Replaces all parameters by those that a file holds under the same names.
///
/// Nothing is replaced unless everything fits: the same names, no more and no fewer, the same shapes and element type.
///
/// # Errors
/// [`Error::Io`] when the file cannot be read; [`Error::Parameters`], with all that does not fit, when it is no
/// safetensors file or another model's; the devices' own errors.
pub fn load<T: Compute>(model: &mut dyn Layer<T>, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let file = fs::read(path).map_err(|source| Error::Io { path: path.into(), source })?;
    let file = SafeTensors::deserialize(&file).map_err(|error| parameters(path, error.to_string()))?;
    let mut found: BTreeMap<String, TensorView<'_>> = file.tensors().into_iter().collect();

    let (mut problems, mut values) = (Vec::new(), Vec::new());
    for (name, parameter) in model.parameters() {
        let shape = parameter.value().shape();
        match found.remove(&name) {
            None => problems.push(format!("{name} is missing")),
            Some(view) if view.dtype() != dtype::<T>() => {
                problems.push(format!("{name} holds {:?}, expected {:?}", view.dtype(), dtype::<T>()));
            }
            Some(view) if view.shape() != shape => {
                problems.push(format!("{name} has shape {:?}, expected {shape:?}", view.shape()));
            }
            Some(view) => values.push(numbers::<T>(view.data())),
        }
    }
    problems.extend(found.keys().map(|name| format!("{name} is not the model's")));
    if !problems.is_empty() {
        return Err(parameters(path, problems.join("; ")));
    }
    for ((_, parameter), values) in model.parameters_mut().into_iter().zip(values) {
        parameter.set(&values)?;
    }
    Ok(())
}

fn parameters(path: &Path, problem: String) -> Error {
    Error::Parameters { path: path.into(), problem }
}

fn dtype<T: Compute>() -> Dtype {
    match T::DTYPE {
        DType::F64 => Dtype::F64,
        _ => Dtype::F32,
    }
}

fn bytes<T: Compute>(values: &[T]) -> Vec<u8> {
    match dtype::<T>() {
        Dtype::F64 => values.iter().flat_map(|value| value.f64().to_le_bytes()).collect(),
        _ => values.iter().flat_map(|value| (value.f64() as f32).to_le_bytes()).collect(),
    }
}

fn numbers<T: Compute>(bytes: &[u8]) -> Vec<T> {
    let (fours, eights) = (bytes.as_chunks::<4>().0, bytes.as_chunks::<8>().0);
    match dtype::<T>() {
        Dtype::F64 => eights.iter().map(|&value| T::of(f64::from_le_bytes(value))).collect(),
        _ => fours.iter().map(|&value| T::of(f64::from(f32::from_le_bytes(value)))).collect(),
    }
}
