mod fixing;
mod forgetting;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use rath::body::{ModelResponded, Outcome};
use rath::sandbox::Command;
use rath::verify::What;
use rath::workshop::Place;
use rath::{Actor, Embedded, How, Session, Store, Usage, View, Workshop};

use super::Answer;
use crate::graph;
use crate::output::{self, Page, style};
use crate::settings::{STORE_DIR, Settings};

/// See it work: sessions and their files are forked, merged, blamed and undone; an agent is killed and goes on; a forger is caught; somebody is forgotten
///
/// Runs offline in a few seconds and leaves its store behind to play with.
#[derive(clap::Args)]
pub(crate) struct Demo {
    /// Where to put the store; a new directory under the system's temporary one if absent
    dir: Option<PathBuf>,
}

/// Tells the story on standard output, as it happens.
struct Teller<'a>(&'a Settings);

impl Teller<'_> {
    fn chapter(&self, number: u32, title: &str) -> Result<()> {
        self.say(format_args!("\n{}", style::title(format!("{number}. {title}"))))
    }

    fn tell(&self, text: impl std::fmt::Display) -> Result<()> {
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
        let dir = match &self.dir {
            Some(dir) => settings.here.join(dir),
            None => tempfile::Builder::new().prefix("rath-demo-").tempdir().context("making a directory")?.keep(),
        };
        let root = dir.join(STORE_DIR);
        ensure!(!Embedded::exists(&root), "{} has a store already: name an empty directory", settings.shown(&dir));
        let store = Embedded::create(&root)?;
        let workshop = Arc::new(settings.workshop_on(store.clone(), &root, true)?);
        let story = Teller(settings);

        story.chapter(1, "A session is made over a directory; every record is hashed onto the one before")?;
        let service = dir.join("checkout");
        std::fs::create_dir_all(&service)?;
        std::fs::write(service.join(CONFIG), CONFIG_TEXT)?;
        let mut session = a_question(&store)?;
        workshop.place(&mut session, Place::copy_of("local", &service)).await?;
        let question = session.head();
        story.tell(format_args!(
            "session {} has {} records; its head {} vouches for all of them, and for version {} of the files",
            session.id().short(),
            question.seq + 1,
            question.id.short(),
            session.state().workspace.as_ref().context("the session has no files")?
        ))?;

        story.chapter(2, "Two agents work on forks of it; each runs a real command on files of its own")?;
        let mut cautious = session.fork("roll back first");
        let turn = Turn { agent: "cautious", shell: "sed -i 's/v42/v41/' checkout.conf", tokens: 812 };
        turn.take(&workshop, &mut cautious, "Roll back to v41 now: error rate 0.1 % again.").await?;
        let mut bold = session.fork("fix forward");
        let turn = Turn { agent: "bold", shell: "sed -i 's/pool = 20/pool = 50/' checkout.conf", tokens: 1490 };
        turn.take(&workshop, &mut bold, "The pool is too small since v42: raise it to 50.").await?;
        for branch in [&mut cautious, &mut bold] {
            branch.publish().await?;
            story.tell(format_args!("{}: {}", branch.id().short(), branch.text().await?.unwrap_or_default()))?;
        }

        story.chapter(
            3,
            "They are merged: one line goes on, the common part is there once, the files have both changes",
        )?;
        let (before, cautious_id) = (session.context().await?.len(), cautious.id());
        let mut session = session.merge([cautious, bold], How::Append).await?;
        workshop.bring(&mut session).await?;
        story.tell(format_args!(
            "{before} context items became {}; tokens were counted once: {}; {} conflicts",
            session.context().await?.len(),
            session.usage(),
            session.state().conflicts.len()
        ))?;
        session.act_as(Actor::person("ada"));
        session.user("Both: roll back now, raise the pool tomorrow. Write it up.")?;
        session.publish().await?;
        let id = session.id();

        story.chapter(4, "Who wrote which line? The record, the agent and the command, through fork and merge")?;
        let blame = View::of(&store, id, None).await?.blame(&CONFIG.into()).await?;
        for (line, origin) in blame.content.split(|b| *b == b'\n').zip(&blame.lines) {
            let origin = &blame.origins[*origin];
            let what = output::harmless(&origin.what);
            let who = format!("{} {}: {what}", origin.record.point(), origin.actor.name);
            story.tell(format_args!("{:<16} {}", String::from_utf8_lossy(line), style::dim(who)))?;
        }

        story.chapter(5, "A command goes wrong, and is taken back; every version stays")?;
        let done = workshop.exec(&mut session, Command::shell("rm checkout.conf; exit 1"), |_| {}).await?;
        story.tell(format_args!("{}: exit 1, and {CONFIG} is gone", done.record.point()))?;
        let back = workshop.undo(&mut session, false).await?;
        let point = back.record.context("nothing was taken back")?.point();
        story.tell(format_args!("{point}: undone, {} is there again", back.changed[0].path))?;

        story.chapter(6, "The history, drawn")?;
        drop(session);
        let view = View::of(&store, id, None).await?;
        graph::draw(&Settings { pager: None, json: false, ..settings.clone() }, &store, Some(&view), None).await?;

        let fixed = fixing::tell(settings, &story, &workshop, &dir, &root).await?;

        story.chapter(9, "An auditor looks: every hash, every link and every file is derived again")?;
        let report = Embedded::open_here(&root, "rath demo")?.verify(None, &mut |_, _| {})?;
        ensure!(report.is_sound(), "the demo's own store is not sound: {:?}", report.findings);
        story.tell(format_args!(
            "{} {} sessions, {} records, {} blobs: sound",
            style::good("✓"),
            report.sessions,
            report.records,
            report.blobs
        ))?;

        story.chapter(10, "Somebody changes one letter of what an agent said, in a copy of the store")?;
        let forged = forge(&story, &dir, &root)?;
        let report = Embedded::open_here(forged.join(STORE_DIR), "rath demo")?.verify(None, &mut |_, _| {})?;
        let finding = report.findings.iter().find(|finding| finding.what == What::AlteredBody);
        story.tell(format_args!("{} {}", style::bad("✗"), finding.context("the change was not found")?))?;

        // Nothing is erased while somebody may be saving files.
        drop(workshop);
        forgetting::tell(&story, &store, &root).await?;

        let at = settings.shown(&dir);
        story.say(format_args!("\n{}", style::title("Try next:")))?;
        let (session, branch) = (id.short(), cautious_id.short());
        for (command, what) in [
            (format!("cd {at}"), "the store is in .rath there"),
            ("rath log --graph".into(), "the picture again"),
            (format!("rath show {session}"), "the conversation"),
            (format!("rath steps {}", fixed.short()), "what the agent did, and how long it took"),
            (format!("rath show {}", fixed.short()), "every call of it, with what it changed"),
            (format!("rath diff {branch} {session}"), "what the merge added to one branch"),
            (format!("rath fork {session}@{} \"what if\"", question.seq), "another try from the question"),
            (format!("rath blame {CONFIG}:2 -S {session}"), "who wrote that line"),
            (format!("rath diff {session}@{} {session} --patch", question.seq), "what they did to the files"),
            (format!("rath apply {session}"), "bring it into ./checkout"),
            ("rath grep pool".into(), "every word that was ever said"),
            ("rath verify".into(), "sound, exit code 0"),
            ("rath verify --store forged/.rath".into(), "the forged copy, exit code 3"),
        ] {
            story.say(format_args!("   {:<44} {}", command, style::dim(format!("# {what}"))))?;
        }
        Ok(Answer::Yes)
    }
}

fn a_question(store: &Arc<dyn Store>) -> Result<Session> {
    let mut session = store.create(Actor::person("ada"));
    session.set_title("Why is checkout slow?")?;
    session.system("You are on call. Be brief. Change nothing without saying so.")?;
    session.user("Checkout takes 9 s since the 14:00 release, v42. What do we do?")?;
    Ok(session)
}

/// The file that everybody works on.
const CONFIG: &str = "checkout.conf";
const CONFIG_TEXT: &str = "# checkout\nrelease = v42\ntimeout = 9\nretries = 3\nregion = eu\npool = 20\n";

/// One agent's step: a command, an answer, and what it cost.
struct Turn {
    agent: &'static str,
    shell: &'static str,
    tokens: u64,
}

impl Turn {
    async fn take(&self, workshop: &Workshop, session: &mut Session, answer: &str) -> Result<()> {
        session.act_as(Actor::agent(self.agent));
        session.enter(self.agent)?;
        let done = workshop.exec(session, Command::shell(self.shell), |_| {}).await?;
        ensure!(done.finished.ended.well(), "`{}` failed: {:?}", self.shell, done.finished);
        let tokens = self.tokens;
        let usage = Usage { requests: 2, input_tokens: tokens, output_tokens: tokens / 10, ..Usage::default() };
        session.append(ModelResponded { model: Some("scripted".into()), usage, ..ModelResponded::default() })?;
        session.assistant(answer)?;
        session.leave(Outcome::Done)?;
        Ok(())
    }
}

/// Copies the store and changes one letter in the copy's database file, as a hex editor would.
fn forge(story: &Teller<'_>, dir: &Path, root: &Path) -> Result<PathBuf> {
    Embedded::open_here(root, "rath demo")?.checkpoint()?;
    let forged = dir.join("forged");
    let target = forged.join(STORE_DIR);
    std::fs::create_dir_all(&target)?;
    copy_dir(&root.join("packs"), &target.join("packs"))?;
    let mut bytes = std::fs::read(root.join("rath.db"))?;
    let word = b"error rate 0.1 %";
    let at = bytes.windows(word.len()).position(|window| window == word).context("the word is not in the file")?;
    bytes[at + 11] = b'9';
    std::fs::write(target.join("rath.db"), bytes)?;
    story.tell("\"error rate 0.1 %\" became \"error rate 9.1 %\"")?;
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
