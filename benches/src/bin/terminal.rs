//! Measures what a user at a terminal waits for: the start of the program, and the display of the first word of an
//! answer. Also measures the size of the program.

#![allow(clippy::disallowed_methods, reason = "a benchmark owns its clock and starts what it measures")]

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rath_bench::{Better, Row, median, millis, time};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

const AREA: &str = "loop";
/// The target for a start of the program, in milliseconds.
const START: f64 = 15.0;
/// The target for the time from the arrival of a word to its display, in milliseconds.
const SHOWN: f64 = 1.0;
/// The target for the size of the program, in megabytes.
const SIZE: f64 = 25.0;

/// The first word of the answer. It occurs nowhere else on the screen.
const WORD: &str = "Quetzal";
/// The delay before the first word: long enough that the program already waits for it.
const THOUGHT: Duration = Duration::from_millis(200);

fn main() -> Result<()> {
    let quick = std::env::args().any(|word| word == "--quick");
    // Benchmarks are built in `release`, and the program to ship in `dist`.
    let rath = std::env::current_exe()?.with_file_name("../dist/rath");
    ensure!(rath.is_file(), "there is no {}: build it with `cargo build --profile dist`", rath.display());
    let dir = tempfile::Builder::new().prefix("rath-terminal-").tempdir()?;
    let test = TerminalTest { rath, dir: dir.path().to_owned() };
    test.cold_start(if quick { 10 } else { 30 })?;
    test.first_word(if quick { 5 } else { 20 })?;
    test.size()
}

/// The program, and a directory with a store.
struct TerminalTest {
    rath: PathBuf,
    dir: PathBuf,
}

impl TerminalTest {
    /// A command that runs the program without the configuration of the current user.
    fn rath(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.rath);
        command.args(arguments).current_dir(&self.dir).env_clear();
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.env("HOME", &self.dir).env("XDG_CONFIG_HOME", self.dir.join("config")).env("USER", "ada");
        command.env("TERM", "xterm-256color");
        command
    }

    fn cold_start(&self, times: usize) -> Result<()> {
        run(&mut self.rath(&["init"]))?;
        for at in 0..5 {
            run(&mut self.rath(&["new", &format!("Session {at}"), "--message", "Please look at the tests."]))?;
        }
        for arguments in [&["--version"], &["log"]] {
            let (mut ours, mut floor) = (Vec::new(), Vec::new());
            for _ in 0..times {
                let (took, done) = time(|| run(&mut Command::new("true")));
                done?;
                floor.push(millis(took));
                let (took, done) = time(|| run(&mut self.rath(arguments)));
                done?;
                ours.push(millis(took));
            }
            let name = format!("`rath {}`, from start to end (floor: `true`)", arguments.join(" "));
            print(&name, &ours, START, &floor);
        }
        Ok(())
    }

    /// Measures the time from a word's arrival from a model server to its display. The limit is the same with `cat`.
    fn first_word(&self, times: usize) -> Result<()> {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let url = format!("http://{}/v1", server.local_addr()?);
        let config = format!("[providers.bench]\napi = \"openai-chat\"\nbase_url = \"{url}\"\n");
        std::fs::create_dir_all(self.dir.join("config/rath"))?;
        std::fs::write(self.dir.join("config/rath/config.toml"), config)?;
        std::fs::create_dir_all(self.dir.join("work"))?;
        std::fs::write(self.dir.join("work/notes"), "Nothing yet.\n")?;
        let run = ["run", "--model", "bench/x", "--in", "work", "hi"];
        let (mut ours, mut floor) = (Vec::new(), Vec::new());
        for _ in 0..times {
            let said = answer(server.try_clone()?);
            ours.push(millis(shown(self.rath(&run).stdin(Stdio::null()), said)?));
            let socket = TcpStream::connect(server.local_addr()?)?;
            let said = speak(server.accept()?.0);
            floor.push(millis(shown(Command::new("cat").stdin(OwnedFd::from(socket)), said)?));
        }
        print("the first streamed word, from its arrival to the terminal (floor: `cat`)", &ours, SHOWN, &floor);
        Ok(())
    }

    fn size(&self) -> Result<()> {
        let copy = self.dir.join("stripped");
        std::fs::copy(&self.rath, &copy)?;
        let strip = Command::new("strip").arg("--strip-all").arg(&copy).status();
        let how = match strip.is_ok_and(|status| status.success()) {
            true => "stripped",
            false => "as built, there is no `strip`",
        };
        let megabytes = std::fs::metadata(&copy)?.len() as f64 / 1e6;
        Row::new(AREA, &format!("shipped binary, {how}"), "MB", megabytes, SIZE, Better::Less).print();
        Ok(())
    }
}

/// Prints a row with the median and the target, and a row with the slowest result.
fn print(name: &str, ours: &[f64], target: f64, floor: &[f64]) {
    let slowest = |values: &[f64]| values.iter().copied().fold(f64::NAN, f64::max);
    Row::new(AREA, name, "ms", median(ours.to_vec()), target, Better::Less).floor(median(floor.to_vec())).print();
    let name = format!("  the slowest of {}", ours.len());
    Row::new(AREA, &name, "ms", slowest(ours), target, Better::Less).bare().floor(slowest(floor)).print();
}

/// The output of a command.
fn run(command: &mut Command) -> Result<String> {
    let out = command.stdin(Stdio::null()).output().with_context(|| format!("starting {command:?}"))?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{command:?} failed: {said}");
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Measures the time until a sent word is displayed on the terminal of a command.
fn shown(command: &mut Command, said: JoinHandle<Result<Instant>>) -> Result<Duration> {
    let (mut terminal, child) = at_terminal(command)?;
    let mut seen = Vec::new();
    let mut bytes = [0; 4096];
    let mut came = None;
    // Reading fails when all writers have closed the terminal.
    while let Ok(length @ 1..) = terminal.read(&mut bytes) {
        let now = Instant::now();
        seen.extend_from_slice(&bytes[..length]);
        if came.is_none() && String::from_utf8_lossy(&seen).contains(WORD) {
            came = Some(now);
        }
    }
    let out = child.wait_with_output()?;
    let seen = String::from_utf8_lossy(&seen);
    ensure!(out.status.success(), "{command:?} failed: {seen}");
    let came = came.with_context(|| format!("the word was not displayed: {seen}"))?;
    let said = said.join().ok().context("the server panicked")??;
    Ok(came.saturating_duration_since(said))
}

/// Starts a command on a pseudo-terminal. Returns it and the other end of the terminal.
fn at_terminal(command: &mut Command) -> Result<(File, Child)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags)?;
    grantpt(&ours).and_then(|()| unlockpt(&ours))?;
    let theirs = ioctl_tiocgptpeer(&ours, flags)?;
    tcsetwinsize(&ours, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 })?;
    let child = command.stdout(theirs.try_clone()?).stderr(theirs).spawn()?;
    // The command has its own handles. Ours are closed here, so that reading ends when the command ends.
    command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
    Ok((File::from(ours), child))
}

/// Answers the next request of the program.
fn answer(server: TcpListener) -> JoinHandle<Result<Instant>> {
    thread::spawn(move || {
        let (socket, _) = server.accept()?;
        let mut request = BufReader::new(&socket);
        let mut length = 0;
        loop {
            let mut line = String::new();
            request.read_line(&mut line)?;
            match line.trim().to_ascii_lowercase().split_once(':') {
                Some(("content-length", bytes)) => length = bytes.trim().parse()?,
                Some(_) => {}
                None if line.trim().is_empty() => break,
                None => {}
            }
        }
        request.read_exact(&mut vec![0; length])?;
        (&socket).write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")?;
        say(&socket)
    })
}

/// Sends the same answer to a client that sends no request.
fn speak(socket: TcpStream) -> JoinHandle<Result<Instant>> {
    thread::spawn(move || say(&socket))
}

/// Streams an answer. Returns the time at which the first word was sent, measured before the write, because the reader
/// may be faster than the return from the system call.
fn say(mut socket: &TcpStream) -> Result<Instant> {
    socket.set_nodelay(true)?;
    socket.write_all(chunk(r#"{"role":"assistant","content":""}"#, "null").as_bytes())?;
    thread::sleep(THOUGHT);
    let word = chunk(&format!(r#"{{"content":"{WORD}"}}"#), "null");
    let said = Instant::now();
    socket.write_all(word.as_bytes())?;
    thread::sleep(THOUGHT);
    socket.write_all(chunk("{}", r#""stop""#).as_bytes())?;
    socket.write_all(b"data: [DONE]\n\n")?;
    Ok(said)
}

fn chunk(delta: &str, finish: &str) -> String {
    let choice = format!(r#"{{"index":0,"delta":{delta},"finish_reason":{finish}}}"#);
    format!(
        "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"x\",\"choices\":[{choice}]}}\n\n"
    )
}
