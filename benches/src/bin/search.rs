//! Measures search in a large store, compared with ripgrep over the same text, and the cost of the index for appends.
//! Prints one JSON row per line.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads its own arguments and starts its peer")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, ensure};
use pollster::block_on;
use rath_bench::{Better, Row, median, millis, time};
use rath_core::{Actor, Kind, Session};
use rath_store::{Embedded, SearchQuery};

/// The allocator of the `rath` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const AREA: &str = "ledger";

/// The number of words in a record.
const WORDS: usize = 40;

/// The number of records in a session, which are one commit.
const LINE: usize = 10_000;
const COMMIT: usize = 32;

/// The number of requested search results.
const ANSWERS: usize = 50;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let quick = args.iter().any(|arg| arg == "--quick");
    let said = args.iter().position(|arg| arg == "--records").and_then(|at| args.get(at + 1)?.parse().ok());
    let records = said.unwrap_or(if quick { 20_000 } else { 1_000_000 });
    let dir = tempfile::Builder::new().prefix("rath-bench-").tempdir_in(std::env::current_dir()?.join("target"))?;
    eprintln!("  append with an index …");
    append(if quick { 10 } else { 100 }, dir.path())?;
    eprintln!("  search {records} records …");
    search(records, dir.path())
}

/// A vocabulary of 50,000 words, few of which are frequent.
struct Speaker {
    state: u64,
}

impl Speaker {
    fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.state >> 33
    }

    fn word(&mut self) -> String {
        // The frequency of the n-th word is proportional to 1/n.
        let chance = (self.number() % 1_000_000) as f64 / 1e6;
        word((50_000f64.powf(chance)) as u64)
    }

    fn text(&mut self, record: usize) -> String {
        let words: Vec<String> = (0..WORDS).map(|_| self.word()).collect();
        format!("{} unique{record}", words.join(" "))
    }
}

/// The n-th word, with two to four syllables.
fn word(mut number: u64) -> String {
    const SYLLABLES: [&str; 32] = [
        "ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu", "na", "pe", "qui", "ro", "su", "ta", "ve", "wi",
        "xo", "yu", "za", "bre", "chi", "dro", "fla", "gre", "kli", "plo", "stru", "tra", "vle", "spi",
    ];
    let mut text = String::from(SYLLABLES[(number % 32) as usize]);
    loop {
        number /= 32;
        text.push_str(SYLLABLES[((number * 7 + 3) % 32) as usize]);
        if number == 0 {
            return text;
        }
    }
}

fn append(batches: usize, dir: &Path) -> Result<()> {
    const BATCH: usize = 50;
    let text = Speaker { state: 7 }.text(0);
    let begin = |name: &str| -> Result<(Session, Embedded)> {
        let path = dir.join(name);
        let mut session = Session::create(&Embedded::create(&path)?, Actor::program("bench"));
        block_on(session.publish())?;
        Ok((session, Embedded::open_as(&path, "bench")?))
    };
    let (mut plain, _) = begin("plain")?;
    let (mut indexed, looking) = begin("indexed")?;
    let (mut without, mut with, mut busy) = (vec![], vec![], vec![]);
    let rate = |session: &mut Session| -> Result<f64> {
        let (took, done) = time(|| appended(session, &text, BATCH));
        done?;
        Ok(BATCH as f64 / took.as_secs_f64())
    };
    // The measurements alternate after a few records, because the speed of a disk varies.
    for batch in 0..batches {
        let question = SearchQuery { limit: Some(1), ..SearchQuery::about("unique0")? };
        looking.search(&question)?;
        match batch % 2 {
            0 => without.push(rate(&mut plain)?),
            _ => with.push(rate(&mut indexed)?),
        }
        match batch % 2 {
            0 => with.push(rate(&mut indexed)?),
            _ => without.push(rate(&mut plain)?),
        }
        // While another thread searches without a break.
        let over = AtomicBool::new(false);
        busy.push(std::thread::scope(|scope| -> Result<f64> {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    looking.search(&question).expect("search");
                }
            });
            let rate = rate(&mut indexed);
            over.store(true, Ordering::Relaxed);
            rate
        })?);
    }
    let found = looking.search(&SearchQuery::about("unique0")?)?;
    ensure!(found.hits.len() == 2 * batches * BATCH, "the index did not catch up");
    let parts =
        |rates: &[f64]| median(rates.iter().zip(&without).map(|(rate, without)| 100.0 * rate / without).collect());
    Row::new(AREA, "durable append with a search index, of the same without", "%", parts(&with), 95.0, Better::More)
        .print();
    let name = "durable append while a thread searches without a break, of the same alone";
    Row::new(AREA, name, "%", parts(&busy), f64::NAN, Better::More).bare().print();
    Ok(())
}

fn appended(session: &mut Session, text: &str, count: usize) -> rath_core::Result<()> {
    (0..count).try_for_each(|_| {
        session.user(text)?;
        block_on(session.publish())
    })
}

/// The queries, each with equivalent arguments for grep.
fn questions(records: usize) -> Result<Vec<(SearchQuery, Vec<String>)>> {
    let about = |text: &str| Ok::<_, anyhow::Error>(SearchQuery::new(text.parse()?));
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let (often, also, seldom) = (word(1), word(3), word(records as u64 / 25));
    let unique = format!("unique{}", records / 3);
    let mut user = about(&format!("{often} {seldom}"))?;
    user.kinds = vec![Kind::User];
    Ok(vec![
        (about(&unique)?, words(&["-w", &unique])),
        (about(&often)?, words(&["-w", &often])),
        (about(&seldom)?, words(&["-w", &seldom])),
        (about(&format!("{often} {also}"))?, words(&[&format!("{often}.*{also}|{also}.*{often}")])),
        (about(&format!("\"{often} {also}\""))?, words(&["-w", &format!("{often} {also}")])),
        (about("unique12345*")?, words(&["unique12345"])),
        (about(&format!("{seldom} -{often}"))?, words(&["-w", &seldom])),
        (user, words(&[&format!("{often}.*{seldom}|{seldom}.*{often}")])),
    ])
}

fn search(records: usize, dir: &Path) -> Result<()> {
    let (path, texts) = (dir.join("store"), dir.join("texts"));
    std::fs::create_dir_all(&texts)?;
    let store = Embedded::create(&path)?;
    let mut speaker = Speaker { state: 42 };
    for first in (0..records).step_by(LINE) {
        let mut session = Session::create(&store, Actor::program("bench"));
        let mut lines = std::io::BufWriter::new(std::fs::File::create(texts.join(format!("{first}.txt")))?);
        for record in first..(first + LINE).min(records) {
            let text = speaker.text(record);
            writeln!(lines, "{text}")?;
            session.user(text)?;
            if record % COMMIT == 0 {
                block_on(session.publish())?;
            }
        }
        block_on(session.publish())?;
    }
    drop(store);
    let store = Embedded::open_as(&path, "bench")?;
    let (took, done) = time(|| store.index(&mut |_| {}));
    done?;
    let name = format!("make the search index of {records} records");
    Row::new(AREA, &name, "s", took.as_secs_f64(), f64::NAN, Better::Less).bare().print();
    let bytes = std::fs::metadata(path.join("search.db"))?.len() as f64 / records as f64;
    let text = (WORDS * 7) as f64;
    Row::new(AREA, "disk for a record in the search index (floor: its text)", "B", bytes, f64::NAN, Better::Less)
        .floor(text)
        .bare()
        .print();
    let questions = questions(records)?;
    let mut ours = Vec::new();
    for round in 0..5 {
        for (n, (question, _)) in questions.iter().enumerate() {
            let question = SearchQuery { limit: Some(ANSWERS), ..question.clone() };
            let (took, found) = time(|| store.search(&question));
            ensure!(!found?.hits.is_empty(), "question {n} found nothing");
            if round == 0 {
                eprintln!("    question {n}: {:.1} ms", millis(took));
            } else {
                ours.push(millis(took));
            }
        }
    }
    let name =
        format!("search {records} records, warm, p50 of {} kinds of questions, {ANSWERS} answers", questions.len());
    let mut row = Row::new(AREA, &name, "ms", median(ours.clone()), 20.0, Better::Less);
    let mut worst = Row::new(
        AREA,
        &format!("search {records} records, warm, the slowest"),
        "ms",
        max(&ours),
        f64::NAN,
        Better::Less,
    )
    .bare();
    if let Some((peer, theirs)) = peer(&texts, &questions)? {
        (row.peer, row.peer_name) = (Some(median(theirs.clone())), Some(peer.clone()));
        (worst.peer, worst.peer_name) = (Some(max(&theirs)), Some(peer));
    }
    row.print();
    worst.print();
    let one = store.search(&questions[0].0)?.hits.remove(0).record.point();
    let (took, done) = time(|| store.forget(&[one]));
    done?;
    ensure!(store.search(&questions[0].0)?.hits.is_empty(), "an erased record was found");
    let name = format!("forget one of {records} records in the search index");
    Row::new(AREA, &name, "ms", millis(took), f64::NAN, Better::Less).bare().print();
    Ok(())
}

fn max(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// The same searches with ripgrep, or with grep if it is not installed: case-insensitive, at most 50 lines per file.
fn peer(texts: &Path, questions: &[(SearchQuery, Vec<String>)]) -> Result<Option<(String, Vec<f64>)>> {
    let installed = |name: &str| Command::new(name).arg("--version").stdout(Stdio::null()).status().is_ok();
    let (program, flags) = match () {
        () if installed("rg") => ("rg", &["-i", "-m", "50", "--no-ignore"][..]),
        () if installed("grep") => ("grep", &["-r", "-i", "-E", "-m", "50"][..]),
        () => return Ok(None),
    };
    let mut each = Vec::new();
    for _ in 0..2 {
        for (_, words) in questions {
            let mut command = Command::new(program);
            command.args(flags).args(words).arg(texts).stdout(Stdio::null());
            let (took, done) = time(|| command.status());
            ensure!(done.context("starting the peer")?.success(), "{program} found nothing for {words:?}");
            each.push(millis(took));
        }
    }
    Ok(Some((if program == "rg" { "ripgrep" } else { "GNU grep" }.to_owned(), each)))
}
