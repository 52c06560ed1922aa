//! What came of it, as PNG files.

use std::error::Error;
use std::path::Path;

use ferrolayer::Device;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, register_font};

use crate::data::CLASSES;
use crate::model::{self, GAUSSIANS, WINDOW};
use crate::train::Run;

type Drawn = Result<(), Box<dyn Error>>;
type Area<'a> = DrawingArea<BitMapBackend<'a>, Shift>;

const FONT: &str = "dejavu";
const INK: RGBColor = RGBColor(40, 40, 40);
const BLUE: RGBColor = RGBColor(22, 82, 150);
const RED: RGBColor = RGBColor(190, 40, 30);

/// Draws `loss.png`, `confusion.png` and `windows.png` into a directory.
pub fn draw_all(directory: &Path, runs: &[Run], device: &Device) -> Drawn {
    // Built in: a machine need not have fonts.
    register_font(FONT, FontStyle::Normal, dejavu::sans::regular()).map_err(|_| "DejaVu Sans cannot be read")?;
    draw_losses(&directory.join("loss.png"), runs)?;
    draw_confusion(&directory.join("confusion.png"), runs)?;
    draw_windows(&directory.join("windows.png"), &runs[0], device)
}

fn centred(size: u32, color: RGBColor) -> TextStyle<'static> {
    (FONT, size).into_font().color(&color).pos(Pos::new(HPos::Center, VPos::Center))
}

/// `color` over white, in this strength.
fn shade(color: RGBColor, strength: f64) -> RGBColor {
    let mix = |part: u8| (255.0 - (255.0 - f64::from(part)) * strength.clamp(0.0, 1.0)).round() as u8;
    RGBColor(mix(color.0), mix(color.1), mix(color.2))
}

/// The training loss over the epochs: each seed's, and their mean.
fn draw_losses(path: &Path, runs: &[Run]) -> Drawn {
    let epochs = runs[0].losses.len();
    let mean: Vec<f32> =
        (0..epochs).map(|epoch| runs.iter().map(|run| run.losses[epoch]).sum::<f32>() / runs.len() as f32).collect();
    let all = || runs.iter().flat_map(|run| run.losses.iter().copied());
    // A loss of zero has no logarithm.
    let (low, high) = (all().fold(f32::MAX, f32::min).max(1e-6), all().fold(f32::MIN, f32::max).max(1e-5));

    let area = BitMapBackend::new(path, (900, 560)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("Training loss, {}", crate::seeds(runs.len())), (FONT, 22))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..epochs as f64, (f64::from(low) * 0.8..f64::from(high) * 1.25).log_scale())?;
    let mut mesh = chart.configure_mesh();
    mesh.x_desc("epochs").y_desc("mean cross entropy").label_style((FONT, 15)).axis_desc_style((FONT, 16));
    mesh.x_label_formatter(&|epoch| format!("{epoch:.0}")).y_label_formatter(&|loss| format!("{loss:.4}"));
    mesh.light_line_style(WHITE).draw()?;
    let line = |losses: &[f32], style: ShapeStyle| {
        let points = losses.iter().enumerate().map(|(epoch, &loss)| (epoch as f64 + 1.0, f64::from(loss.max(low))));
        LineSeries::new(points.collect::<Vec<_>>(), style)
    };
    for run in runs {
        chart.draw_series(line(&run.losses, shade(BLUE, 0.4).stroke_width(1)))?;
    }
    let legend = |(x, y): (i32, i32)| PathElement::new([(x, y), (x + 20, y)], BLUE.stroke_width(3));
    chart.draw_series(line(&mean, BLUE.stroke_width(3)))?.label("mean of the seeds").legend(legend);
    chart.configure_series_labels().label_font((FONT, 15)).background_style(WHITE).draw()?;
    area.present()?;
    Ok(())
}

/// What each digit of the test was taken for, over all seeds.
fn draw_confusion(path: &Path, runs: &[Run]) -> Drawn {
    const CELL: i32 = 56;
    const LEFT: i32 = 80;
    const TOP: i32 = 110;
    let side = CLASSES as i32 * CELL;
    let area = BitMapBackend::new(path, ((LEFT + side + 30) as u32, (TOP + side + 30) as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    let title = format!("Test images, {}", crate::seeds(runs.len()));
    area.draw_text(&title, &centred(22, INK), (LEFT + side / 2, 30))?;
    area.draw_text("taken for", &centred(16, INK), (LEFT + side / 2, 64))?;
    let sideways = centred(16, INK).transform(FontTransform::Rotate270);
    area.draw_text("digit", &sideways, (24, TOP + side / 2))?;
    for row in 0..CLASSES {
        let total: u32 = runs.iter().flat_map(|run| run.confusion[row]).sum();
        let at = |index: usize, first: i32| first + index as i32 * CELL;
        let (y, middle) = (at(row, TOP), CELL / 2);
        area.draw_text(&row.to_string(), &centred(18, INK), (LEFT - 20, y + middle))?;
        area.draw_text(&row.to_string(), &centred(18, INK), (at(row, LEFT) + middle, TOP - 20))?;
        for column in 0..CLASSES {
            let count: u32 = runs.iter().map(|run| run.confusion[row][column]).sum();
            let share = f64::from(count) / f64::from(total.max(1));
            // A mistake is rare: it would not be seen on the scale of what is right.
            let (color, strength) = if row == column { (BLUE, share) } else { (RED, (10.0 * share).min(1.0)) };
            let x = at(column, LEFT);
            let cell = [(x, y), (x + CELL - 2, y + CELL - 2)];
            area.draw(&Rectangle::new(cell, shade(color, strength).filled()))?;
            if count > 0 {
                let ink = if strength > 0.6 { WHITE } else { INK };
                area.draw_text(&count.to_string(), &centred(16, ink), (x + middle, y + middle))?;
            }
        }
    }
    area.present()?;
    Ok(())
}

/// The weights that the first seed's Gaussians give their windows, before and after training.
fn draw_windows(path: &Path, run: &Run, device: &Device) -> Drawn {
    const PIXEL: i32 = 20;
    const LEFT: i32 = 100;
    const TOP: i32 = 70;
    const GAP: i32 = 16;
    let side = WINDOW as i32 * PIXEL;
    let size = (LEFT + GAUSSIANS as i32 * (side + GAP) + GAP, TOP + 2 * (side + GAP) + GAP);
    let area = BitMapBackend::new(path, (size.0 as u32, size.1 as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    let title =
        format!("The {GAUSSIANS} Gaussian windows, {WINDOW} × {WINDOW} pixels, before and after training (seed 1)");
    area.draw_text(&title, &centred(22, INK), (size.0 / 2, 34))?;
    let rows = [("before", model::gaussians(device, 1)?), ("after", model::learnt(&run.network)?)];
    for (row, (name, gaussians)) in rows.into_iter().enumerate() {
        let y = TOP + row as i32 * (side + GAP);
        area.draw_text(name, &centred(15, INK), (LEFT / 2, y + side / 2))?;
        for (gaussian, weights) in model::weights(&gaussians)?.iter().enumerate() {
            draw_window(&area, weights, (LEFT + gaussian as i32 * (side + GAP), y), PIXEL)?;
        }
    }
    area.present()?;
    Ok(())
}

/// One window, each Gaussian on a scale of its own: white is 0, blue its largest weight.
fn draw_window(area: &Area<'_>, weights: &[f32], (x, y): (i32, i32), pixel: i32) -> Drawn {
    let largest = weights.iter().copied().fold(f32::MIN_POSITIVE, f32::max);
    for (i, &weight) in weights.iter().enumerate() {
        let (left, top) = (x + (i % WINDOW) as i32 * pixel, y + (i / WINDOW) as i32 * pixel);
        let fill = shade(BLUE, f64::from(weight / largest)).filled();
        area.draw(&Rectangle::new([(left, top), (left + pixel, top + pixel)], fill))?;
    }
    let side = WINDOW as i32 * pixel;
    area.draw(&Rectangle::new([(x, y), (x + side, y + side)], shade(INK, 0.5)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrolayer::Device;

    /// Every plot is an image of its size, with more on it than paper.
    #[test]
    fn draws_without_fonts_of_the_system() {
        let device = Device::cpu();
        let mut confusion = [[0; CLASSES]; CLASSES];
        (confusion[3][3], confusion[3][8]) = (30, 2);
        let network = model::network(&device, 1).unwrap();
        let runs = [Run { losses: vec![2.0, 0.1, 0.0], confusion, network }];
        let directory = std::env::temp_dir().join(format!("ferrolayer-digits-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        draw_all(&directory, &runs, &device).unwrap();
        for name in ["loss.png", "confusion.png", "windows.png"] {
            let png = std::fs::read(directory.join(name)).unwrap();
            assert_eq!(&png[1..4], b"PNG", "{name}");
            // Paper alone compresses to a few hundred bytes.
            assert!(png.len() > 4000, "{name}: {} bytes", png.len());
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
