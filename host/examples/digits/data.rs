//! The handwritten digits, and which of them are held back.

use ferrolayer::ops::dense::Generator;
use ferrolayer::{Device, Result, Tensor};
use rand::SeedableRng;
use rand::seq::SliceRandom;

/// 8 x 8 images, one row each: 64 grey values from 0 to 16, then the digit. `host/data/README.md` says whose they are.
const CSV: &str = include_str!("../../data/digits.csv");

/// Height and width of an image.
pub const SIDE: usize = 8;
/// Elements of an image.
pub const PIXELS: usize = SIDE * SIDE;
/// The digits 0 to 9.
pub const CLASSES: usize = 10;

/// Chooses the held-back fifth. It has nothing to do with the seeds of training: all runs are tested with the same images,
/// and none has seen them.
const SPLIT_SEED: u64 = 1797;

/// Images with their digits.
#[derive(Clone, Debug, Default)]
pub struct Digits {
    /// Grey values from 0 to 1, [`PIXELS`] for each image.
    pixels: Vec<f32>,
    /// The digit of each image.
    pub labels: Vec<u32>,
}

impl Digits {
    /// The number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// The pixels of one image.
    pub fn image(&self, index: usize) -> &[f32] {
        &self.pixels[index * PIXELS..][..PIXELS]
    }

    /// Adds an image.
    pub fn push(&mut self, pixels: impl IntoIterator<Item = f32>, label: u32) {
        self.pixels.extend(pixels);
        self.labels.push(label);
    }

    /// All images, `[N, 1, 8, 8]`, and their digits, `[N]`, on a device.
    pub fn to_tensors(&self, device: &Device) -> Result<(Tensor<f32>, Tensor<u32>)> {
        let images = Tensor::from_slice(device, &[self.len(), 1, SIDE, SIDE], &self.pixels)?;
        Ok((images, Tensor::from_slice(device, &[self.len()], &self.labels)?))
    }
}

/// The images to learn from, and a fifth of each digit's to test with.
pub fn load() -> (Digits, Digits) {
    let all = parse(CSV);
    let (mut training, mut test) = (Digits::default(), Digits::default());
    let mut generator = Generator::seed_from_u64(SPLIT_SEED);
    for digit in 0..CLASSES as u32 {
        let mut images: Vec<usize> = (0..all.len()).filter(|&i| all.labels[i] == digit).collect();
        images.shuffle(&mut generator);
        let (held_back, rest) = images.split_at((images.len() + 2) / 5);
        for (part, images) in [(&mut test, held_back), (&mut training, rest)] {
            for &image in images {
                part.push(all.image(image).iter().copied(), digit);
            }
        }
    }
    (training, test)
}

/// # Panics
/// When the file that was built in is not what its README says.
fn parse(csv: &str) -> Digits {
    let mut digits = Digits::default();
    for row in csv.lines() {
        let numbers: Vec<u8> = row.split(',').map(|number| number.trim().parse().expect("a small number")).collect();
        let (&label, grey) = numbers.split_last().expect("a row holds numbers");
        assert!(grey.len() == PIXELS && grey.iter().all(|&g| g <= 16) && usize::from(label) < CLASSES, "{row}");
        digits.push(grey.iter().map(|&g| f32::from(g) / 16.0), u32::from(label));
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_each_digit_is_held_back_and_nothing_is_lost() {
        let (training, test) = load();
        assert_eq!((training.len(), test.len()), (1438, 359));
        for digit in 0..CLASSES as u32 {
            let count = |digits: &Digits| digits.labels.iter().filter(|&&label| label == digit).count();
            let (kept, held_back) = (count(&training), count(&test));
            assert_eq!(held_back, ((kept + held_back) as f64 / 5.0).round() as usize, "{digit}");
        }
        let sorted = |parts: &[&Digits]| {
            let rows = parts
                .iter()
                .flat_map(|part| (0..part.len()).map(|i| format!("{} {:?}", part.labels[i], part.image(i))));
            let mut rows: Vec<String> = rows.collect();
            rows.sort();
            rows
        };
        assert_eq!(sorted(&[&training, &test]), sorted(&[&parse(CSV)]));
    }
}
