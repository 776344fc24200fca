//! The baseline: saved results of each benchmark, to find the rows that got worse since.
//!
//! It is stored in `benches/baseline.json`, which `cargo xtask bench AREA --keep` writes.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use rath_core::Time;
use serde::{Deserialize, Serialize};

use crate::Row;

/// Rows that are worse by at least this factor are reported.
const WORSE: f64 = 1.2;

/// The saved results, by area.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Baseline(BTreeMap<String, SavedRun>);

/// The figures of one run of one area.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct SavedRun {
    date: String,
    machine: String,
    /// The results, by the name of the row.
    rows: BTreeMap<String, Figure>,
}

/// The saved values of a row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Figure {
    ours: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    floor: Option<f64>,
}

/// A row that got worse.
#[derive(Clone, Debug, PartialEq)]
pub struct Worse {
    /// The name of the row.
    pub name: String,
    /// The unit.
    pub unit: String,
    /// The saved result.
    pub was: f64,
    /// The result of this run.
    pub is: f64,
    /// How many times worse the result is. If both runs measured the machine's limit, multiples of that limit are
    /// compared, because the speed of a machine varies over time.
    pub factor: f64,
}

impl Baseline {
    /// Reads the file. Returns an empty baseline if it does not exist.
    pub fn read(path: &Path) -> Result<Self> {
        match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| format!("reading {}", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }

    /// Replaces the results of an area.
    pub fn keep(&mut self, area: &str, rows: &[Row]) {
        let figure = |row: &Row| Some((row.name.clone(), Figure { ours: row.ours?, floor: row.floor }));
        let rows = rows.iter().filter_map(figure).collect();
        let date = Time::now().to_string().chars().take(10).collect();
        self.0.insert(area.into(), SavedRun { date, machine: machine(), rows });
    }

    /// Writes the file.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// When and on which machine the results of an area were measured.
    pub fn origin(&self, area: &str) -> Option<String> {
        self.0.get(area).map(|kept| format!("{} on {}", kept.date, kept.machine))
    }

    /// The rows that are at least 20 % worse than the saved ones, worst first.
    pub fn worse(&self, area: &str, rows: &[Row]) -> Vec<Worse> {
        let Some(kept) = self.0.get(area) else { return Vec::new() };
        let mut worse: Vec<Worse> = rows.iter().filter_map(|row| compare(row, *kept.rows.get(&row.name)?)).collect();
        worse.sort_by(|one, other| other.factor.total_cmp(&one.factor));
        worse.dedup_by(|one, other| one.name == other.name);
        worse
    }
}

fn compare(row: &Row, kept: Figure) -> Option<Worse> {
    let is = row.ours?;
    let (now, then) = match (row.floor, kept.floor) {
        (Some(floor), Some(was)) if floor > 0.0 && was > 0.0 => (is / floor, kept.ours / was),
        _ => (is, kept.ours),
    };
    let factor = if row.is_rate() { then / now } else { now / then };
    // Results near zero, such as the memory of one fork, have no meaningful ratio.
    let worse = factor >= WORSE && now.is_normal() && then.is_normal();
    worse.then(|| Worse { name: row.name.clone(), unit: row.unit.clone(), was: kept.ours, is, factor })
}

/// The model and number of processors.
fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("unknown processor", |(_, model)| model.trim());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} x {model}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Better;

    fn row(name: &str, unit: &str, ours: f64, floor: Option<f64>) -> Row {
        let row = Row::new("area", name, unit, ours, 1.0, Better::Less);
        match floor {
            Some(floor) => row.floor(floor),
            None => row,
        }
    }

    #[test]
    fn rows_that_got_worse_are_listed_worst_first() {
        let mut baseline = Baseline::default();
        let kept = [
            row("time", "us", 10.0, None),
            row("rate", "1/s", 100.0, None),
            row("time of a slow hour", "us", 10.0, Some(5.0)),
            row("better", "us", 10.0, None),
            row("zero", "B", 0.0, None),
        ];
        baseline.keep("area", &kept);
        let now = [
            row("time", "us", 12.5, None),
            row("rate", "1/s", 50.0, None),
            // Twice the time on a machine that is half as fast is not worse.
            row("time of a slow hour", "us", 20.0, Some(10.0)),
            row("better", "us", 1.0, None),
            row("zero", "B", 0.0, None),
            row("new", "us", 99.0, None),
        ];
        let worse: Vec<_> = baseline.worse("area", &now).into_iter().map(|row| (row.name, row.factor)).collect();
        assert_eq!(worse, [("rate".to_owned(), 2.0), ("time".to_owned(), 1.25)]);
        assert!(baseline.worse("another area", &now).is_empty());
    }

    #[test]
    fn the_baseline_file_can_be_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("baseline.json");
        assert_eq!(Baseline::read(&path).unwrap().origin("area"), None);
        let mut baseline = Baseline::default();
        baseline.keep("area", &[row("time", "us", 10.0, Some(2.0))]);
        baseline.write(&path).unwrap();
        let read = Baseline::read(&path).unwrap();
        assert_eq!(read.0["area"].rows, baseline.0["area"].rows);
        assert!(read.origin("area").unwrap().contains(" on "));
        std::fs::write(&path, "{").unwrap();
        assert!(Baseline::read(&path).unwrap_err().to_string().contains("baseline.json"));
    }
}
