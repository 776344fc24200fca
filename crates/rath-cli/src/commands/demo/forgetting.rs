//! The chapter in which somebody asks to be forgotten.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use rath::{Actor, Embedded, Question, Store};
use rath_audit::care::{Care, Wish};

use super::Teller;
use crate::output::{self, style};

const NAME: &str = "Grace Hopper";

/// A customer's words are found, erased for good, and the chain still holds.
pub(super) async fn tell(story: &Teller<'_>, store: &Arc<dyn Store>, root: &Path) -> Result<()> {
    story.chapter(
        11,
        "A customer asks to be forgotten: her words go, the chain holds, and it says who did it and why",
    )?;
    let mut session = store.create(Actor::person("ada"));
    session.user(format!("{NAME} writes that her order hangs in checkout."))?;
    session.assistant(format!("Dear {NAME}, it goes out today."))?;
    session.publish().await?;
    let id = session.id();
    drop(session);
    let open = || Embedded::open_here(root, "rath demo");
    let found = open()?.search(&Question::about(NAME)?)?.hits.len() as u64;
    story.tell(format_args!("{} with her name, found by `rath grep`", output::count(found, "record")))?;
    let care = Care::new(open()?, Actor::person("ada"));
    let wish = Wish { about: Some(NAME.into()), derived: true, ..Wish::default() };
    let mut plan = care.plan(wish, &mut |_| {}).await?;
    ensure!(plan.targets.len() as u64 == found, "not all of it would go");
    care.erase(&mut plan, "ticket 12", &mut |_| {}).await?;
    let bytes = std::fs::read(root.join("rath.db"))?;
    ensure!(!bytes.windows(NAME.len()).any(|window| window == NAME.as_bytes()), "her name is still in the file");
    let report = open()?.verify(None, &mut |_, _| {})?;
    ensure!(report.is_sound() && report.erased == found, "the store is not sound: {:?}", report.findings);
    story.tell(format_args!("{} erased, no file holds them any more; the store is sound", style::good("✓")))?;
    story.tell(format_args!("rath show {}@2 says: erased by person ada: ticket 12", id.short()))
}
