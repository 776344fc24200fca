use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use rath::body::{Assistant, Block, ModelResponded, Outcome};
use rath::{Actor, Embedded, How, Session, Store, Usage, View};

use super::Answer;
use crate::graph;
use crate::output::{Page, style};
use crate::settings::{STORE_DIR, Settings};

/// See it work: sessions are made, forked, merged, verified, tampered with and caught
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
        let story = Teller(settings);

        story.chapter(1, "A session is made; every record is hashed onto the one before")?;
        let mut session = a_question(&store)?;
        session.publish().await?;
        let question = session.head();
        story.tell(format_args!(
            "session {} has {} records; its head {} vouches for all of them",
            session.id().short(),
            question.seq + 1,
            question.id.short()
        ))?;

        story.chapter(2, "Two agents work on forks of it, at the same time, without seeing each other")?;
        let mut cautious = session.fork("roll back first");
        work(
            &mut cautious,
            "cautious",
            "rollback",
            r#"{"to":"v41"}"#,
            "v41 is live again, error rate 0.1 %",
            "Roll back to v41 now; look for the cause in daylight.",
            812,
        )?;
        let mut bold = session.fork("fix forward");
        work(
            &mut bold,
            "bold",
            "read_log",
            r#"{"lines":200}"#,
            "pool exhausted: 20 of 20 connections in use",
            "The pool is too small since v42: raise it to 50.",
            1490,
        )?;
        for branch in [&mut cautious, &mut bold] {
            branch.publish().await?;
            story.tell(format_args!("{}: {}", branch.id().short(), branch.text().await?.unwrap_or_default()))?;
        }

        story.chapter(3, "They are merged: one line goes on, the common part is there once")?;
        let (before, cautious_id) = (session.context().await?.len(), cautious.id());
        let mut session = session.merge([cautious, bold], How::Append).await?;
        story.tell(format_args!(
            "{before} context items became {}; tokens were counted once: {}",
            session.context().await?.len(),
            session.usage()
        ))?;
        session.act_as(Actor::person("ada"));
        session.user("Both: roll back now, raise the pool tomorrow. Write it up.")?;
        session.publish().await?;
        let id = session.id();

        story.chapter(4, "The history, drawn")?;
        drop(session);
        let view = View::of(&store, id, None).await?;
        graph::draw(&Settings { pager: None, json: false, ..settings.clone() }, &store, Some(&view), None).await?;

        story.chapter(5, "An auditor looks: every hash and every link is derived again")?;
        let report = Embedded::open_here(&root, "rath demo")?.verify(None, &mut |_, _| {})?;
        ensure!(report.is_sound(), "the demo's own store is not sound: {:?}", report.findings);
        story.tell(format_args!(
            "{} {} sessions, {} records: sound",
            style::good("✓"),
            report.sessions,
            report.records
        ))?;

        story.chapter(6, "Somebody changes one letter of what an agent said, in a copy of the store")?;
        let forged = forge(&story, &dir, &root)?;
        let report = Embedded::open_here(forged.join(STORE_DIR), "rath demo")?.verify(None, &mut |_, _| {})?;
        let finding = report.findings.first().context("the change was not found")?;
        story.tell(format_args!("{} {finding}", style::bad("✗")))?;

        let at = settings.shown(&dir);
        story.say(format_args!("\n{}", style::title("Try next:")))?;
        let (session, branch) = (id.short(), cautious_id.short());
        for (command, what) in [
            (format!("cd {at}"), "the store is in .rath there"),
            ("rath log --graph".into(), "the picture again"),
            (format!("rath show {session}"), "the conversation"),
            (format!("rath diff {branch} {session}"), "what the merge added to one branch"),
            (format!("rath fork {session}@{} \"what if\"", question.seq), "another try from the question"),
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

/// One agent's step: a tool call, its result, an answer, and what it cost.
fn work(
    session: &mut Session,
    name: &str,
    tool: &str,
    arguments: &str,
    result: &str,
    answer: &str,
    tokens: u64,
) -> Result<()> {
    session.act_as(Actor::agent(name));
    session.enter(name)?;
    let call = format!("call_{tool}");
    let block = Block::ToolUse { id: call.clone(), name: tool.into(), arguments: arguments.into() };
    session.append(Assistant { blocks: vec![block] })?;
    session.tool_result(call, result)?;
    let usage = Usage { requests: 2, input_tokens: tokens, output_tokens: tokens / 10, ..Usage::default() };
    session.append(ModelResponded { model: Some("scripted".into()), usage })?;
    session.assistant(answer)?;
    session.leave(Outcome::Done)?;
    Ok(())
}

/// Copies the store and changes one letter in the copy's database file, as a hex editor would.
fn forge(story: &Teller<'_>, dir: &Path, root: &Path) -> Result<PathBuf> {
    Embedded::open_here(root, "rath demo")?.checkpoint()?;
    let forged = dir.join("forged");
    let target = forged.join(STORE_DIR);
    std::fs::create_dir_all(&target)?;
    let mut bytes = std::fs::read(root.join("rath.db"))?;
    let word = b"error rate 0.1 %";
    let at = bytes.windows(word.len()).position(|window| window == word).context("the word is not in the file")?;
    bytes[at + 11] = b'9';
    std::fs::write(target.join("rath.db"), bytes)?;
    story.tell("\"error rate 0.1 %\" became \"error rate 9.1 %\"")?;
    Ok(forged)
}
