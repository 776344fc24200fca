//! Every recording of a folder, read in any pieces and compared with its golden.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use serde_json::Value;

use crate::api::Api;
use crate::exchange::{self, Exchange};
use crate::golden::{Verdict, compare};
use rath_model::{Failure, Reply, Turn};

/// What came of one exchange.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The recording, and which of its exchanges.
    pub name: String,
    /// What came of it.
    pub verdict: Verdict,
}

/// What came of a folder.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Each exchange.
    pub checked: Vec<Checked>,
}

impl Report {
    fn count(&self, which: impl Fn(&Verdict) -> bool) -> usize {
        self.checked.iter().filter(|checked| which(&checked.verdict)).count()
    }

    /// How many are as the golden.
    pub fn equal(&self) -> usize {
        self.count(|verdict| *verdict == Verdict::Equal)
    }

    /// How many are not.
    pub fn differ(&self) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::Differs(_)))
    }

    /// How many were not compared.
    pub fn skipped(&self) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::Skipped(_)))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Checked { name, verdict } in &self.checked {
            match verdict {
                Verdict::Equal => {}
                Verdict::Differs(difference) => writeln!(f, "differs: {name}\n    {difference}")?,
                Verdict::Skipped(why) => writeln!(f, "skipped: {name}: {why}")?,
            }
        }
        write!(f, "{} equal, {} differ, {} skipped", self.equal(), self.differ(), self.skipped())
    }
}

/// Checks every recording in `folder`: `recordings/…` with `goldens/….N.golden.json` for its exchange N.
pub fn check(folder: &Path) -> io::Result<Report> {
    let (recordings, goldens) = (folder.join("recordings"), folder.join("goldens"));
    let mut report = Report::default();
    for file in files(&recordings)? {
        let name = file.strip_prefix(&recordings).unwrap_or(&file).to_string_lossy().into_owned();
        match exchange::read(&fs::read(&file)?) {
            Err(why) => {
                report.checked.push(Checked { name, verdict: Verdict::Skipped(format!("no recording: {why}")) })
            }
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

/// All files below a folder, in order.
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

fn verdict(exchange: &Exchange, golden: Option<Value>) -> Verdict {
    let api = match Api::of(exchange) {
        Ok(api) => api,
        Err(why) => return Verdict::Skipped(why),
    };
    let is_stream = exchange.is_stream();
    let read = match is_stream {
        true => streamed(api, &exchange.body),
        false => whole(api, exchange),
    };
    match (read, golden) {
        (Err(verdict), _) => verdict,
        (Ok(_), None) => Verdict::Skipped("read, but no golden is beside it".into()),
        (Ok(ours), Some(golden)) => compare(&golden["golden"], api, is_stream, &ours),
    }
}

/// Reads a stream in one piece and in many others: the result must be the same.
fn streamed(api: Api, body: &[u8]) -> Result<Result<Turn, Failure>, Verdict> {
    let (ours, heard) = api.decode(std::iter::once(body));
    for round in 0..8 {
        let pieces = pieces(body, round);
        let sizes: Vec<usize> = pieces.iter().map(|piece| piece.len()).collect();
        if api.decode(pieces.into_iter()) != (ours.clone(), heard.clone()) {
            return Err(Verdict::differs("in pieces", format!("{ours:?}"), sizes));
        }
    }
    Ok(ours)
}

/// The bytes in pieces: single ones first, then of sizes that only look random.
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

/// Reads an answer that came at once. Written again it must be the same JSON.
fn whole(api: Api, exchange: &Exchange) -> Result<Result<Turn, Failure>, Verdict> {
    let Exchange { status, headers, body, .. } = exchange;
    let ours = api.decode_whole(&Reply { status: *status, headers, body });
    if let Ok(turn) = &ours {
        let (theirs, again): (Value, Value) =
            match (serde_json::from_slice(body), serde_json::to_value(api.write(turn))) {
                (Ok(theirs), Ok(again)) => (theirs, again),
                _ => return Err(Verdict::differs("written again", "JSON", "no JSON")),
            };
        if theirs != again {
            return Err(Verdict::differs("written again", theirs, again));
        }
    }
    Ok(ours)
}
