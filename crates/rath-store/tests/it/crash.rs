//! Kills a writer with SIGKILL at random moments: everything acknowledged must be there, and the store must be valid.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::time::Duration;

use pollster::block_on;
use rath_core::store::Lookup;
use rath_core::{Actor, How, Point, Session, SessionId};
use rath_store::Embedded;

use crate::support::{child, child_dir, verify};

/// An acknowledged record: its position and its id.
struct Ack(Point, String);

/// Child process: appends, forks, merges and acknowledges until it is killed.
#[test]
fn writer() {
    let Some(dir) = child_dir() else { return };
    let store = Embedded::open(dir).unwrap();
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let store = &store;
            scope.spawn(move || {
                let mut session = Session::create(store, Actor::program("writer"));
                for turn in 0.. {
                    session.user(format!("worker {worker}, turn {turn}")).unwrap();
                    if turn % 5 == 0 {
                        session.assistant(format!("{turn} ").repeat(4000)).unwrap();
                    }
                    block_on(session.publish()).unwrap();
                    acknowledge(&session);
                    if turn % 7 == 3 {
                        let mut branch = session.fork("try");
                        branch.assistant("on a branch").unwrap();
                        session = block_on(session.merge([branch], How::Append)).unwrap();
                        acknowledge(&session);
                    }
                }
            });
        }
    });
}

fn acknowledge(session: &Session) {
    let head = session.head();
    // One write, so that an incomplete line counts as not acknowledged.
    let line = format!("\nack {} {} {}\n", head.session, head.seq, head.id);
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
    std::io::stdout().flush().unwrap();
}

fn read_ack(line: &str) -> Option<Ack> {
    let mut words = line.strip_prefix("ack ")?.split(' ');
    let session: SessionId = words.next()?.parse().ok()?;
    let seq = words.next()?.parse().ok()?;
    let id = words.next().filter(|id| id.len() == 64)?;
    Some(Ack(Point { session, seq }, id.to_owned()))
}

/// Runs a writer, kills it after `wait`, and returns what it acknowledged.
fn round(path: &Path, wait: Duration) -> Vec<Ack> {
    let mut writer = child("crash::writer", path);
    let output = BufReader::new(writer.stdout.take().unwrap());
    let reading =
        std::thread::spawn(move || output.lines().map_while(Result::ok).filter_map(|l| read_ack(&l)).collect());
    std::thread::sleep(wait);
    writer.kill().unwrap();
    writer.wait().unwrap();
    reading.join().unwrap()
}

#[test]
fn nothing_acknowledged_is_lost() {
    let rounds = u64::from(rath_testkit::scaled(100));
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = 0;
    let mut chance: u64 = 0x9e37_79b9_7f4a_7c15 ^ u64::from(std::process::id());
    for life in 0..rounds {
        // Five writers in a row use the same store.
        let path = dir.path().join(format!("store-{}", life / 5));
        if !path.exists() {
            drop(Embedded::create(&path).unwrap());
        }
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let acks = round(&path, Duration::from_micros(5_000 + (chance >> 33) % 60_000));
        acknowledged += acks.len();
        let report = verify(&path);
        assert!(report.is_valid(), "life {life}: {:?}", report.findings);
        let store = Embedded::open(&path).unwrap();
        for Ack(point, id) in acks {
            let found = block_on(store.get(Lookup::At(point))).unwrap();
            assert_eq!(found.first().map(|record| record.id().to_string()), Some(id), "life {life}: {point}");
        }
        // The sessions of the killed writer are not leased and can be continued.
        for row in block_on(store.sessions(rath_core::store::Query::default())).unwrap().into_iter().take(3) {
            assert!(row.holder.is_none());
            if !row.closed {
                let mut session = block_on(store.open(row.id, Actor::program("successor"))).unwrap();
                session.note("goes on").unwrap();
                block_on(session.publish()).unwrap();
            }
        }
    }
    assert!(acknowledged as u64 > rounds, "only {acknowledged} acknowledgements in {rounds} lives");
    eprintln!("{rounds} lives, {acknowledged} acknowledgements, none lost");
}
