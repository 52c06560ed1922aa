//! The table, the summary, and the comparison with an earlier run: of this bench's rows and of those beside PyTorch alike.

use std::collections::{BTreeSet, HashMap};

use crate::row::{Machine, Row, Times, times};

/// Times that differ by no more, of the earlier one, are level.
const LEVEL: f64 = 0.02;
/// Rows listed at most of those that are worst.
const WORST: usize = 10;

/// What a table has beside our own time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Columns {
    pub torch: bool,
    pub power: bool,
}

/// What was measured on, how, and the table's head.
pub fn heading(machine: &Machine, method: Option<&str>, columns: Columns) -> String {
    let Machine { gpu, device, driver, torch, ferrolayer, commit, date, copy_gbps } = machine;
    let mut first = gpu.as_ref().unwrap_or(device).clone();
    let mut add = |name: &str, version: &Option<String>| {
        first.extend(version.iter().map(|version| format!(", {name} {version}")));
    };
    add("driver", driver);
    add("torch", torch);
    add("ferrolayer", &Some(ferrolayer.clone()));
    add("commit", commit);
    let mut lines = vec![format!("{first}, {date}")];
    lines
        .extend(copy_gbps.map(|rate| format!("copies within the GPU: {rate:.0} GB/s (bytes read plus bytes written)")));
    lines.extend(method.map(str::to_owned));
    let mut head = format!(
        "{:<21} {:<9} {:<4} {:<4} {:<14} {:<22} {:>8} {:>15} {:>6} {:>6} {:>5}",
        "op", "pass", "type", "lay.", "shape", "options", "µs", "p10..p90", "GB/s", "share", "goal"
    );
    if columns.power {
        head += &format!(" {:>5} {:>4}", "MHz", "W");
    }
    if columns.torch {
        head += &format!(" {:>8} {:>7} {:>8} {:>6}", "torch µs", "ours/t.", "compiled", "/comp.");
    }
    lines.extend([String::new(), head.clone(), "-".repeat(head.chars().count())]);
    lines.join("\n")
}

/// One row of the table.
pub fn line(row: &Row, columns: Columns) -> String {
    let Row { op, pass, dtype, layout, shape, options, ours_us, .. } = row;
    let spread = format!("{}..{}", number(ours_us.p10), number(ours_us.p90));
    let (rate, share) = match row.flops {
        Some(flops) => (format!("{:.0}TF", flops as f64 / ours_us.median / 1e6), String::new()),
        None => (format!("{:.0}", row.bytes as f64 / ours_us.median / 1e3), ratio(row.share())),
    };
    let goal = row
        .target
        .map_or(String::new(), |target| format!("{}{target:.2}", if reached(row) == Some(true) { "" } else { "<" }));
    let mut text = format!(
        "{op:<21} {pass:<9} {dtype:<4} {layout:<4} {:<14} {options:<22} {:>8} {spread:>15} {rate:>6} {share:>6} {goal:>5}",
        times(shape),
        number(ours_us.median),
    );
    if columns.power {
        let (mhz, watts) = row.power.map_or((0.0, 0.0), |power| (power.mhz, power.watts));
        text += &format!(" {mhz:>5.0} {watts:>4.0}");
    }
    if columns.torch {
        let median = |times: Option<Times>| times.map_or("-".to_owned(), |times| number(times.median));
        text += &format!(
            " {:>8} {:>7} {:>8} {:>6}",
            median(row.torch_us),
            ratio(row.ratio()),
            median(row.compiled_us),
            ratio(row.compiled_ratio())
        );
    }
    text.trim_end().to_owned()
}

/// Whether a row has the share that it is to have.
fn reached(row: &Row) -> Option<bool> {
    // As it is shown: to three digits.
    Some((row.share()? * 1e3).round() / 1e3 >= row.target?)
}

/// How many rows reach their targets, which are worst, and how many are behind PyTorch.
pub fn summary(rows: &[Row]) -> String {
    let mut lines = Vec::new();
    let ratios: [fn(&Row) -> Option<f64>; 2] = [Row::ratio, Row::compiled_ratio];
    for (name, of) in ["eager PyTorch", "compiled PyTorch"].into_iter().zip(ratios) {
        let judged = sorted(rows.iter().filter_map(|row| Some((-of(row)?, row))));
        if judged.is_empty() {
            continue;
        }
        let behind: Vec<_> = judged.iter().filter(|(ratio, _)| -ratio > 1.0 + LEVEL).collect();
        let ahead = judged.iter().filter(|(ratio, _)| -ratio < 1.0 - LEVEL).count();
        let level = judged.len() - ahead - behind.len();
        lines.push(format!("against {name}: {ahead} rows ahead, {} behind, {level} level (within 2 %)", behind.len()));
        lines.extend(
            behind.iter().take(WORST).map(|(ratio, row)| format!("  {:6.2} times its time: {}", -ratio, row.name())),
        );
        lines.extend(behind.len().checked_sub(WORST + 1).map(|more| format!("  and {} more", more + 1)));
    }
    let judged: Vec<_> = rows.iter().filter_map(|row| Some((row, reached(row)?))).collect();
    if !judged.is_empty() {
        let missed = sorted(
            judged
                .iter()
                .filter(|(_, reached)| !reached)
                .filter_map(|(row, _)| Some((row.share()? - row.target?, *row))),
        );
        lines.push(format!("targets: {} of {} rows reach theirs", judged.len() - missed.len(), judged.len()));
        lines.extend(
            missed.iter().map(|(_, row)| format!("  {} of {}: {}", ratio(row.share()), ratio(row.target), row.name())),
        );
    }
    let shares = sorted(rows.iter().filter(|row| row.flops.is_none()).filter_map(|row| Some((row.share()?, row))));
    if let (Some((lowest, _)), Some((highest, _))) = (shares.first(), shares.last()) {
        let middle = shares[shares.len() / 2].0;
        lines.push(format!("share of the copy rate: {lowest:.3} to {highest:.3}, median {middle:.3}; lowest:"));
        lines.extend(shares.iter().take(5).map(|(share, row)| format!("  {share:6.3}: {}", row.name())));
    }
    lines.join("\n")
}

fn sorted<'a>(rows: impl Iterator<Item = (f64, &'a Row)>) -> Vec<(f64, &'a Row)> {
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    rows
}

/// What two medians may differ by for no reason: half of each run's spread from the 10th to the 90th percentile, and at
/// least 2 % of the earlier one.
pub fn noise(old: &Row, new: &Row) -> f64 {
    let spread = |times: Times| times.p90 - times.p10;
    (LEVEL * old.ours_us.median).max((spread(old.ours_us) + spread(new.ours_us)) / 2.0)
}

/// What got slower or faster by more than the noise, in words, and how many rows got slower.
pub fn compare(old: &[Row], new: &[Row]) -> (String, usize) {
    let before: HashMap<String, &Row> = old.iter().map(|row| (row.key(), row)).collect();
    let pairs: Vec<(&Row, &Row)> = new.iter().filter_map(|row| Some((*before.get(&row.key())?, row))).collect();
    if pairs.is_empty() {
        return ("no row of this run is in the earlier one".into(), 0);
    }
    let change = |(old, new): &(&Row, &Row)| new.ours_us.median - old.ours_us.median;
    let beyond = |sign: f64| {
        let mut some: Vec<_> = pairs.iter().filter(|pair| sign * change(pair) > noise(pair.0, pair.1)).collect();
        let relative = |pair: &(&Row, &Row)| change(pair) / pair.0.ours_us.median;
        some.sort_by(|a, b| relative(b).total_cmp(&relative(a)));
        some
    };
    let (slower, faster) = (beyond(1.0), beyond(-1.0));
    let mut lines = vec![format!(
        "of {} rows that both runs have, {} slower and {} faster by more than the noise",
        pairs.len(),
        slower.len(),
        faster.len()
    )];
    let machines: BTreeSet<_> = pairs.iter().flat_map(|(a, b)| [&a.machine.gpu, &b.machine.gpu]).flatten().collect();
    if machines.len() > 1 {
        let names: Vec<_> = machines.into_iter().map(String::as_str).collect();
        lines.push(format!("  measured on different machines: {}", names.join(", ")));
    }
    let both = slower.iter().map(|pair| ("slower", pair)).chain(faster.iter().map(|pair| ("faster", pair)));
    for (word, (a, b)) in both {
        let percent = 100.0 * (b.ours_us.median / a.ours_us.median - 1.0);
        let (from, to) = (number(a.ours_us.median), number(b.ours_us.median));
        lines.push(format!("  {word} {percent:+6.1} % ({from} -> {to} µs): {}", b.name()));
    }
    (lines.join("\n"), slower.len())
}

/// Four digits or so.
fn number(value: f64) -> String {
    match value {
        _ if value < 100.0 => format!("{value:.2}"),
        _ if value < 1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn ratio(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value < 10.0 => format!("{value:.3}"),
        Some(value) => format!("{value:.1}"),
    }
}
