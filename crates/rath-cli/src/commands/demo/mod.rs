//! `rath demo`: a scripted tour.

mod erasure;
mod resume;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use rath::body::{ModelResponded, Outcome};
use rath::sandbox::Command;
use rath::verify::FindingKind;
use rath::workspaces::PlacementSpec;
use rath::{Actor, Embedded, How, Session, Store, Usage, View, Workspaces};

use super::Answer;
use crate::expression::usage_error;
use crate::graph;
use crate::output::{self, Page, style};
use crate::settings::{STORE_DIR, Settings};

/// Run a scripted tour (offline, no API key)
///
/// Forks, merges, blames and undoes the work of scripted agents, kills and resumes a run, detects a forged record, and
/// erases a customer's data. Takes about 10 s, and keeps its store so that you can explore it.
#[derive(clap::Args)]
pub(crate) struct Demo {
    /// The directory for the store [default: a new temporary directory]
    dir: Option<PathBuf>,
}

/// Prints the tour on stdout.
struct Narrator<'a>(&'a Settings);

impl Narrator<'_> {
    fn chapter(&self, number: u32, title: &str) -> Result<()> {
        self.say(format_args!("\n{}", style::title(format!("{number}. {title}"))))
    }

    fn line(&self, text: impl std::fmt::Display) -> Result<()> {
        self.say(format_args!("   {text}"))
    }

    fn say(&self, text: impl std::fmt::Display) -> Result<()> {
        let mut page = Page::default();
        page.line(text);
        page.show(&Settings { pager: None, ..self.0.clone() })
    }
}

impl Demo {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        if settings.json {
            return Err(usage_error("the demo prints no JSON: run it without --json"));
        }
        if settings.named_store.is_some() {
            return Err(usage_error(
                "the demo creates a store of its own: run it without --store and RATH_STORE, and name a directory instead",
            ));
        }
        let dir = match &self.dir {
            Some(dir) => settings.here.join(dir),
            None => tempfile::Builder::new()
                .prefix("rath-demo-")
                .tempdir()
                .context("creating a temporary directory")?
                .keep(),
        };
        let root = dir.join(STORE_DIR);
        ensure!(!Embedded::exists(&root), "{} already has a store: name an empty directory", settings.shown(&dir));
        let store = Embedded::create(&root)?;
        let workspaces = Arc::new(settings.workspaces_on(store.clone(), &root, true)?);
        let story = Narrator(settings);

        story.chapter(1, "Create a session on a directory: every record contains the hash of the one before it")?;
        let service = dir.join("checkout");
        std::fs::create_dir_all(&service)?;
        std::fs::write(service.join(CONFIG), CONFIG_TEXT)?;
        let mut session = incident(&store)?;
        workspaces.assign(&mut session, PlacementSpec::copy_of("local", &service)).await?;
        let question = session.head();
        story.line(format_args!(
            "session {} has {} records; the hash of its head, {}, covers all of them and version {} of the files",
            session.id().short(),
            question.seq + 1,
            question.id.short(),
            session.state().workspace.as_ref().context("the session has no files")?
        ))?;

        story.chapter(
            2,
            "Two agents work on forks of the session; each runs a real command on its own copy of the files",
        )?;
        let mut cautious = session.fork("roll back first");
        let turn = Turn { agent: "cautious", shell: "sed -i 's/v42/v41/' checkout.conf", tokens: 812 };
        turn.record(&workspaces, &mut cautious, "Roll back to v41 now: error rate 0.1 % again.").await?;
        let mut bold = session.fork("fix forward");
        let turn = Turn { agent: "bold", shell: "sed -i 's/pool = 20/pool = 50/' checkout.conf", tokens: 1490 };
        turn.record(&workspaces, &mut bold, "The pool is too small since v42: raise it to 50.").await?;
        for branch in [&mut cautious, &mut bold] {
            branch.publish().await?;
            story.line(format_args!("{}: {}", branch.id().short(), branch.text().await?.unwrap_or_default()))?;
        }

        story.chapter(3, "Merge the forks: both answers, their common part once, and both changes to the files")?;
        let (before, cautious_id) = (session.context().await?.len(), cautious.id());
        let mut session = session.merge([cautious, bold], How::Append).await?;
        workspaces.sync(&mut session).await?;
        story.line(format_args!(
            "{before} messages became {}; usage of both forks: {}; {} conflicts",
            session.context().await?.len(),
            session.usage(),
            session.state().conflicts.len()
        ))?;
        session.act_as(Actor::person("ada"));
        session.user("Both: roll back now, raise the pool tomorrow. Write it up.")?;
        session.publish().await?;
        let id = session.id();

        story.chapter(4, "Blame: the record, agent and command that wrote each line, across forks and the merge")?;
        let blame = View::of(&store, id, None).await?.blame(&CONFIG.into()).await?;
        for (line, origin) in blame.content.split(|b| *b == b'\n').zip(&blame.lines) {
            let origin = &blame.origins[*origin];
            let what = output::escaped(&origin.what);
            let who = format!("{} {}: {what}", origin.record.point(), origin.actor.name);
            story.line(format_args!("{:<16} {}", String::from_utf8_lossy(line), style::dim(who)))?;
        }

        story.chapter(5, "Undo a command that went wrong: the files are restored, and every version is kept")?;
        let done = workspaces.exec(&mut session, Command::shell("rm checkout.conf; exit 1"), |_| {}).await?;
        story.line(format_args!("{}: exit 1, and {CONFIG} is gone", done.record.point()))?;
        let back = workspaces.undo(&mut session, false).await?;
        let point = back.record.context("nothing was undone")?.point();
        story.line(format_args!("{point}: undone, {} is restored", back.changed[0].path))?;

        story.chapter(6, "The graph of the sessions")?;
        drop(session);
        let view = View::of(&store, id, None).await?;
        graph::draw(&Settings { pager: None, json: false, ..settings.clone() }, &store, Some(&view), None).await?;

        let fixed = resume::show(settings, &story, &workspaces, &dir, &root).await?;

        story.chapter(9, "Verify the store: recompute every hash, every link and every file")?;
        let report = Embedded::open_as(&root, "rath demo")?.verify(None, &mut |_, _| {})?;
        ensure!(report.is_valid(), "the store of the demo is not valid: {:?}", report.findings);
        story.line(format_args!(
            "{} {} sessions, {} records, {} blobs: valid",
            style::good("✓"),
            report.sessions,
            report.records,
            report.blobs
        ))?;

        story.chapter(10, "Change one letter of an agent's answer in a copy of the store, and verify the copy")?;
        let forged = forge(&story, &dir, &root)?;
        let report = Embedded::open_as(forged.join(STORE_DIR), "rath demo")?.verify(None, &mut |_, _| {})?;
        let finding = report.findings.iter().find(|finding| finding.what == FindingKind::AlteredBody);
        story.line(format_args!("{} {}", style::bad("✗"), finding.context("the change was not found")?))?;

        // An erasure waits for open workspaces, which may still save files.
        drop(workspaces);
        erasure::show(&story, &store, &root, id).await?;

        let at = settings.shown(&dir);
        story.say(format_args!("\n{}", style::title("Try next:")))?;
        let (session, branch) = (id.short(), cautious_id.short());
        for (command, what) in [
            (format!("cd {at}"), "the store is in .rath"),
            ("rath log --graph".into(), "the graph again"),
            (format!("rath show {session}"), "the conversation"),
            (format!("rath show {} --steps", fixed.short()), "the steps of the agent, with durations"),
            (format!("rath show {}", fixed.short()), "every call, with the files that it changed"),
            (format!("rath diff {branch} {session}"), "what the merge added to one fork"),
            (format!("rath fork {session}@{} \"what if\"", question.seq), "another attempt from the question"),
            (format!("rath file blame {session}:{CONFIG}:2"), "who wrote that line"),
            (format!("rath diff {session}@{} {session} --patch", question.seq), "the changes to the files"),
            (format!("rath apply {session}"), "write the changes to ./checkout"),
            ("rath grep pool".into(), "search all records"),
            ("rath verify".into(), "valid, exit code 0"),
            ("rath verify --store forged/.rath".into(), "the forged copy, exit code 3"),
        ] {
            story.say(format_args!("   {:<44} {}", command, style::dim(format!("# {what}"))))?;
        }
        Ok(Answer::Yes)
    }
}

fn incident(store: &Arc<dyn Store>) -> Result<Session> {
    let mut session = store.create(Actor::person("ada"));
    session.set_title("Why is checkout slow?")?;
    session.system("You are on call. Be brief. Change nothing without saying so.")?;
    session.user("Checkout takes 9 s since the 14:00 release, v42. What do we do?")?;
    Ok(session)
}

/// The file that the agents change.
const CONFIG: &str = "checkout.conf";
const CONFIG_TEXT: &str = "# checkout\nrelease = v42\ntimeout = 9\nretries = 3\nregion = eu\npool = 20\n";

/// One agent's step: a command, an answer, and its usage.
struct Turn {
    agent: &'static str,
    shell: &'static str,
    tokens: u64,
}

impl Turn {
    async fn record(&self, workspaces: &Workspaces, session: &mut Session, answer: &str) -> Result<()> {
        session.act_as(Actor::agent(self.agent));
        session.enter(self.agent)?;
        let done = workspaces.exec(session, Command::shell(self.shell), |_| {}).await?;
        ensure!(done.finished.ended.success(), "`{}` failed: {:?}", self.shell, done.finished);
        let tokens = self.tokens;
        let usage = Usage { requests: 2, input_tokens: tokens, output_tokens: tokens / 10, ..Usage::default() };
        session.append(ModelResponded { model: Some("scripted".into()), usage, ..ModelResponded::default() })?;
        session.assistant(answer)?;
        session.leave(Outcome::Done)?;
        Ok(())
    }
}

/// Copies the store and changes one letter in the copy's database file, as a hex editor would.
fn forge(story: &Narrator<'_>, dir: &Path, root: &Path) -> Result<PathBuf> {
    Embedded::open_as(root, "rath demo")?.checkpoint()?;
    let forged = dir.join("forged");
    let target = forged.join(STORE_DIR);
    std::fs::create_dir_all(&target)?;
    copy_dir(&root.join("packs"), &target.join("packs"))?;
    let mut bytes = std::fs::read(root.join("rath.db"))?;
    let word = b"error rate 0.1 %";
    let at = bytes.windows(word.len()).position(|window| window == word).context("the text is not in the file")?;
    bytes[at + 11] = b'9';
    std::fs::write(target.join("rath.db"), bytes)?;
    story.line("\"error rate 0.1 %\" became \"error rate 9.1 %\"")?;
    Ok(forged)
}

fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        std::fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}
