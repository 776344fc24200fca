//! Checks all recordings of a folder: decodes each one, split in several ways, and compares it with its golden file.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use serde_json::Value;

use crate::api::RecordedApi;
use crate::exchange::{self, Exchange};
use crate::golden::{GoldenVerdict, compare};
use rath_model::{HttpResponse, ProviderFailure, ProviderTurn};

/// The result for one exchange.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The recording's name and the index of the exchange: `NAME#INDEX`.
    pub name: String,
    /// The result.
    pub verdict: GoldenVerdict,
}

/// The results for a folder.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// One result per exchange.
    pub checked: Vec<Checked>,
}

impl CheckReport {
    fn count(&self, which: impl Fn(&GoldenVerdict) -> bool) -> usize {
        self.checked.iter().filter(|checked| which(&checked.verdict)).count()
    }

    /// The number of exchanges that equal their golden file.
    pub fn equal(&self) -> usize {
        self.count(|verdict| *verdict == GoldenVerdict::Equal)
    }

    /// The number of exchanges that differ from their golden file.
    pub fn differ(&self) -> usize {
        self.count(|verdict| matches!(verdict, GoldenVerdict::Differs(_)))
    }

    /// The number of exchanges that were not compared.
    pub fn skipped(&self) -> usize {
        self.count(|verdict| matches!(verdict, GoldenVerdict::Skipped(_)))
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Checked { name, verdict } in &self.checked {
            match verdict {
                GoldenVerdict::Equal => {}
                GoldenVerdict::Differs(difference) => writeln!(f, "differs: {name}\n    {difference}")?,
                GoldenVerdict::Skipped(why) => writeln!(f, "skipped: {name}: {why}")?,
            }
        }
        write!(f, "{} equal, {} differ, {} skipped", self.equal(), self.differ(), self.skipped())
    }
}

/// Checks every recording in `folder`. The golden file of exchange N of `recordings/PATH` is
/// `goldens/PATH.N.golden.json`.
pub fn check(folder: &Path) -> io::Result<CheckReport> {
    let (recordings, goldens) = (folder.join("recordings"), folder.join("goldens"));
    let mut report = CheckReport::default();
    for file in files(&recordings)? {
        let name = file.strip_prefix(&recordings).unwrap_or(&file).to_string_lossy().into_owned();
        match exchange::read(&fs::read(&file)?) {
            Err(why) => report
                .checked
                .push(Checked { name, verdict: GoldenVerdict::Skipped(format!("not a recording: {why}")) }),
            Ok(exchanges) => {
                for (at, exchange) in exchanges.iter().enumerate() {
                    let golden = golden(&goldens.join(format!("{name}.{at}.golden.json")))?;
                    report.checked.push(Checked { name: format!("{name}#{at}"), verdict: verdict(exchange, golden) });
                }
            }
        }
    }
    Ok(report)
}

/// All files below a folder, sorted.
pub fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => found.extend(files(&entry.path())?),
            false => found.push(entry.path()),
        }
    }
    found.sort();
    Ok(found)
}

fn golden(path: &Path) -> io::Result<Option<Value>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn verdict(exchange: &Exchange, golden: Option<Value>) -> GoldenVerdict {
    let api = match RecordedApi::of(exchange) {
        Ok(api) => api,
        Err(why) => return GoldenVerdict::Skipped(why),
    };
    let is_stream = exchange.is_stream();
    let read = match is_stream {
        true => streamed(api, &exchange.body),
        false => whole(api, exchange),
    };
    match (read, golden) {
        (Err(verdict), _) => verdict,
        (Ok(_), None) => GoldenVerdict::Skipped("decoded, but there is no golden file".into()),
        (Ok(ours), Some(golden)) => compare(&golden["golden"], api, is_stream, &ours),
    }
}

/// Decodes a stream in one piece and split in eight other ways; the results must be equal.
fn streamed(api: RecordedApi, body: &[u8]) -> Result<Result<ProviderTurn, ProviderFailure>, GoldenVerdict> {
    let (ours, deltas) = api.decode(std::iter::once(body));
    for round in 0..8 {
        let pieces = pieces(body, round);
        let sizes: Vec<usize> = pieces.iter().map(|piece| piece.len()).collect();
        if api.decode(pieces.into_iter()) != (ours.clone(), deltas.clone()) {
            return Err(GoldenVerdict::differs("in pieces", format!("{ours:?}"), sizes));
        }
    }
    Ok(ours)
}

/// Splits the bytes: into single bytes for seed 0, otherwise into pieces of pseudo-random sizes.
pub fn pieces(bytes: &[u8], seed: u64) -> Vec<&[u8]> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut pieces = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let most = [1, 2, 7, 40, 300, 1500, 5000][(state >> 32) as usize % 7];
        let size = if seed == 0 { 1 } else { 1 + (state as usize >> 8) % most };
        let (piece, more) = rest.split_at(size.min(rest.len()));
        pieces.push(piece);
        rest = more;
    }
    pieces
}

/// Decodes an answer that was not streamed. Writing it again must produce the same JSON.
fn whole(api: RecordedApi, exchange: &Exchange) -> Result<Result<ProviderTurn, ProviderFailure>, GoldenVerdict> {
    let Exchange { status, headers, body, .. } = exchange;
    let ours = api.decode_whole(&HttpResponse { status: *status, headers, body });
    if let Ok(turn) = &ours {
        let (theirs, again): (Value, Value) =
            match (serde_json::from_slice(body), serde_json::to_value(api.write(turn))) {
                (Ok(theirs), Ok(again)) => (theirs, again),
                _ => return Err(GoldenVerdict::differs("written again", "JSON", "no JSON")),
            };
        if theirs != again {
            return Err(GoldenVerdict::differs("written again", theirs, again));
        }
    }
    Ok(ours)
}
