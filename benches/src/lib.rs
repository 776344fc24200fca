//! Support for benchmarks: result rows, medians, and the machine's own limits.

#![allow(clippy::disallowed_methods, reason = "a benchmark owns its clock")]

pub mod baseline;
pub mod trees;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// One row of benchmark results. Missing values are `null`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The benchmark.
    pub area: String,
    /// The name of the measurement.
    pub name: String,
    /// The unit of all figures in the row.
    pub unit: String,
    /// Rath's result.
    pub ours: Option<f64>,
    /// The result of the compared program.
    pub peer: Option<f64>,
    /// The name of the compared program.
    pub peer_name: Option<String>,
    /// The machine's limit for the same work.
    pub floor: Option<f64>,
    /// The target, in the same unit.
    pub target: Option<f64>,
    /// Whether the target was reached.
    pub pass: Option<bool>,
}

/// Whether smaller or larger results are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Smaller is better: times, sizes.
    Less,
    /// Larger is better: rates.
    More,
}

impl Row {
    /// A row with our result and a target.
    pub fn new(area: &str, name: &str, unit: &str, ours: f64, target: f64, better: Better) -> Self {
        let pass = match better {
            Better::Less => ours <= target,
            Better::More => ours >= target,
        };
        Self {
            area: area.into(),
            name: name.into(),
            unit: unit.into(),
            ours: Some(ours),
            peer: None,
            peer_name: None,
            floor: None,
            target: Some(target),
            pass: Some(pass),
        }
    }

    /// Sets the machine's limit.
    #[must_use]
    pub fn floor(mut self, floor: f64) -> Self {
        self.floor = Some(floor);
        self
    }

    /// Removes the target.
    #[must_use]
    pub fn bare(mut self) -> Self {
        self.target = None;
        self.pass = None;
        self
    }

    /// Whether the results are rates, where larger is better.
    pub fn is_rate(&self) -> bool {
        self.unit == "1/s"
    }

    /// Prints the row as one JSON line.
    pub fn print(&self) {
        println!("{}", serde_json::to_string(self).unwrap_or_default());
    }
}

/// The median.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Runs `work` and measures its duration.
pub fn time<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed(), result)
}

/// Microseconds of a duration.
pub fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Milliseconds of a duration.
pub fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Measures `n` appending writes of `bytes` bytes, each with an fdatasync. Returns the median duration in seconds and
/// the number per second.
pub fn sync_floor(dir: &Path, bytes: usize, n: usize) -> std::io::Result<(f64, f64)> {
    let mut file = OpenOptions::new().create(true).append(true).open(dir.join("floor.bin"))?;
    let payload = vec![b'x'; bytes];
    let mut each = Vec::with_capacity(n);
    let start = Instant::now();
    for _ in 0..n {
        let one = Instant::now();
        file.write_all(&payload)?;
        file.sync_data()?;
        each.push(one.elapsed().as_secs_f64());
    }
    let rate = n as f64 / start.elapsed().as_secs_f64();
    std::fs::remove_file(dir.join("floor.bin"))?;
    Ok((median(each), rate))
}
