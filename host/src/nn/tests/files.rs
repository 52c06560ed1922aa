//! Parameters in files.

use std::path::PathBuf;

use super::*;

/// A file of its own for a test, gone when the test is.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("ferrolayer-{}-{name}.safetensors", std::process::id())))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // Where the test failed before it wrote the file there is none.
        drop(std::fs::remove_file(&self.0));
    }
}

#[test]
fn saved_parameters_load_as_they_were() {
    fn round_trip<T: Compute>(file: &File) {
        let (mut model, mut other) = (everything::<T>(&device()).unwrap(), everything::<T>(&device()).unwrap());
        for (i, (_, parameter)) in model.parameters_mut().into_iter().enumerate() {
            let values: Vec<T> = numbers(i as u64, parameter.value().len()).into_iter().map(T::of).collect();
            parameter.set(&values).unwrap();
        }
        save(&model, &file.0).unwrap();
        load(&mut other, &file.0).unwrap();
        for ((name, saved), (other_name, loaded)) in model.parameters().iter().zip(other.parameters()) {
            assert_eq!(name, &other_name);
            assert_eq!(saved.value().to_vec().unwrap(), loaded.value().to_vec().unwrap(), "{name}");
        }
    }
    let file = File::new("round-trip");
    round_trip::<f32>(&file);
    round_trip::<f64>(&file);
    let error = load(&mut everything::<f32>(&device()).unwrap(), &file.0).unwrap_err();
    assert!(error.to_string().contains("1.mean holds F64, expected F32"), "{error}");
}

#[test]
fn a_file_of_another_model_is_refused_whole() {
    let file = File::new("another");
    let dense = |inputs, outputs| Dense::<f32>::builder(inputs, outputs).seed(3).build(&device()).unwrap();
    save(&Sequential::new().then(dense(3, 2)).then(Prelu::new(&device(), 2, 0.5).unwrap()), &file.0).unwrap();
    let mut model = Sequential::new().then(dense(4, 2)).then(Relu::new()).then(dense(2, 1));
    let before: Vec<Vec<f32>> = model.parameters().iter().map(|(_, p)| p.value().to_vec().unwrap()).collect();
    let error = load(&mut model, &file.0).unwrap_err();
    assert!(matches!(error, Error::Parameters { .. }));
    let problems = "0.weight has shape [2, 3], expected [2, 4]; 2.weight is missing; 2.bias is missing; \
                    1.weight is not the model's";
    assert_eq!(error.to_string(), format!("{}: {problems}", file.0.display()));
    let after: Vec<Vec<f32>> = model.parameters().iter().map(|(_, p)| p.value().to_vec().unwrap()).collect();
    assert_eq!(before, after);
}

#[test]
fn files_that_are_none_are_errors() {
    let file = File::new("none");
    let mut model = one_weight(1.0);
    assert!(matches!(load(&mut model, &file.0), Err(Error::Io { .. })));
    std::fs::write(&file.0, b"not safetensors").unwrap();
    let error = load(&mut model, &file.0).unwrap_err();
    assert!(matches!(&error, Error::Parameters { path, .. } if *path == file.0), "{error}");
    let nowhere = file.0.join("below a file");
    assert!(matches!(save(&model, nowhere), Err(Error::Io { .. })));
}
