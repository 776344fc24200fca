//! The chapter of the demo that erases a customer's data.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use rath::search::SearchQuery;
use rath::{Actor, Embedded, SessionId, Store};
use rath_audit::admin::{ErasureRequest, StoreAdmin};

use super::Narrator;
use crate::output::{self, style};

const NAME: &str = "Grace Hopper";

/// Finds and erases the records about a customer, and verifies the store. Then adds a note to the session `main`.
pub(super) async fn show(story: &Narrator<'_>, store: &Arc<dyn Store>, root: &Path, main: SessionId) -> Result<()> {
    story.chapter(
        11,
        "Erase a customer's data: the text is gone, the chain still verifies, and the reason is recorded",
    )?;
    let mut session = store.create(Actor::person("ada"));
    session.user(format!("{NAME} writes that her order hangs in checkout."))?;
    session.assistant(format!("Dear {NAME}, it goes out today."))?;
    session.publish().await?;
    let id = session.id();
    drop(session);
    let open = || Embedded::open_as(root, "rath demo");
    let found = open()?.search(&SearchQuery::about(NAME)?)?.hits.len() as u64;
    story.line(format_args!("`rath grep` finds her name in {}", output::count(found, "record")))?;
    let admin = StoreAdmin::new(open()?, Actor::person("ada"));
    let proposed = ErasureRequest { about: Some(NAME.into()), derived: true, ..ErasureRequest::default() };
    let mut plan = admin.plan(proposed, &mut |_| {}).await?;
    ensure!(plan.targets.len() as u64 == found, "the plan does not cover all records");
    admin.erase(&mut plan, "ticket 12", &mut |_| {}).await?;
    let bytes = std::fs::read(root.join("rath.db"))?;
    ensure!(
        !bytes.windows(NAME.len()).any(|window| window == NAME.as_bytes()),
        "the name is still in the database file"
    );
    let report = open()?.verify(None, &mut |_, _| {})?;
    ensure!(report.is_valid() && report.erased == found, "the store is not valid: {:?}", report.findings);
    story.line(format_args!(
        "{} erased: no file contains the name any more, and the store is valid",
        style::good("✓")
    ))?;
    story.line(format_args!("rath show {}@2 prints: erased by person ada: ticket 12", id.short()))?;
    let mut session = store.open(main, Actor::person("ada")).await?;
    session.note("Ticket 12: the customer's data was erased.")?;
    session.publish().await?;
    Ok(())
}
