//! Each image a little different each time: a network that sees the same 1438 again and again learns them by heart.

use std::array;

use ferrolayer::ops::dense::Generator;
use rand::RngExt;

use crate::data::SIDE;

/// The most by which an image is turned, in radians.
const TURN: f32 = 0.2;
/// The most by which it is made larger or smaller, as a share of its size.
const SCALE: f32 = 0.1;
/// The most by which a row slides against the next, in pixels.
const SLANT: f32 = 0.2;
/// The most by which it is moved each way, in pixels.
const SHIFT: f32 = 0.5;

/// The image, turned, scaled, slanted and moved by amounts drawn anew.
pub fn varied(image: &[f32], generator: &mut Generator) -> [f32; SIDE * SIDE] {
    let mut draw = |most: f32| generator.random_range(-most..=most);
    let (turn, scale, slant) = (draw(TURN), 1.0 + draw(SCALE), draw(SLANT));
    let shift = [draw(SHIFT), draw(SHIFT)];
    transformed(image, turn, scale, slant, shift)
}

/// Each pixel takes the value at the place where it comes from.
fn transformed(image: &[f32], turn: f32, scale: f32, slant: f32, shift: [f32; 2]) -> [f32; SIDE * SIDE] {
    const MIDDLE: f32 = (SIDE - 1) as f32 / 2.0;
    let (sine, cosine) = (scale * turn.sin(), scale * turn.cos());
    array::from_fn(|i| {
        let (y, x) = ((i / SIDE) as f32 - MIDDLE, (i % SIDE) as f32 - MIDDLE);
        let (row, column) = (cosine * y + sine * x + shift[0], cosine * x - sine * y + slant * y + shift[1]);
        interpolated(image, row + MIDDLE, column + MIDDLE)
    })
}

/// The value between four pixels, of which those outside the image are background.
fn interpolated(image: &[f32], row: f32, column: f32) -> f32 {
    let pixel = |row: f32, column: f32| {
        let inside = |place: f32| place >= 0.0 && place < SIDE as f32;
        if inside(row) && inside(column) { image[row as usize * SIDE + column as usize] } else { 0.0 }
    };
    let (top, left) = (row.floor(), column.floor());
    let (down, right) = (row - top, column - left);
    let along = |row: f32| (1.0 - right) * pixel(row, left) + right * pixel(row, left + 1.0);
    (1.0 - down) * along(top) + down * along(top + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_moves_and_turns() {
        let mut image = [0.0; SIDE * SIDE];
        (image[2 * SIDE + 5], image[SIDE - 1]) = (1.0, 0.5);
        assert_eq!(transformed(&image, 0.0, 1.0, 0.0, [0.0; 2]), image);
        // What was at (2, 5) comes to (1, 4), and the corner's pixel is gone.
        let moved = transformed(&image, 0.0, 1.0, 0.0, [1.0, 1.0]);
        assert_eq!((moved[SIDE + 4], moved.iter().sum::<f32>()), (1.0, 1.0));
        let half = transformed(&image, 0.0, 1.0, 0.0, [0.0, 0.5]);
        assert_eq!((half[2 * SIDE + 4], half[2 * SIDE + 5]), (0.5, 0.5));
        let turned = transformed(&image, std::f32::consts::FRAC_PI_2, 1.0, 0.0, [0.0; 2]);
        assert!((turned[2 * SIDE + 2] - 1.0).abs() < 1e-5, "{turned:?}");
    }
}
