//! Files that fork and merge with the session, and blame, which names the command that wrote each line.
//!
//! cargo run --example files_that_fork --package rath

use std::error::Error;
use std::fs;
use std::sync::Arc;

use rath::prelude::*;
use rath::sandbox::{Command, Local, Registry};
use rath::workspaces::PlacementSpec;

fn main() -> Result<(), Box<dyn Error>> {
    pollster::block_on(async {
        let dir = tempfile::tempdir()?;
        let shop = dir.path().join("shop");
        fs::create_dir(&shop)?;
        fs::write(shop.join("app.conf"), "pool = 20\nretries = 3\nregion = eu\nlog = off\nrelease = v42\n")?;

        let store = Embedded::create(dir.path().join("store"))?;
        let backends = Registry::new().with(Arc::new(Local::new()));
        let env = vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())];
        let workspaces = Workspaces::new(store.clone(), dir.path().join("workspaces"), backends).with_env(env);

        let mut session = store.create(Actor::person("ada"));
        workspaces.assign(&mut session, PlacementSpec::copy_of("local", &shop)).await?;

        // Two branches change the same file, each in its own sandbox. The sandboxes share the unchanged files.
        let mut bold = session.fork("a larger pool");
        bold.act_as(Actor::agent("bold"));
        workspaces.exec(&mut bold, Command::shell("sed -i s/20/50/ app.conf"), |_| {}).await?;
        let mut calm = session.fork("the old release");
        calm.act_as(Actor::agent("calm"));
        workspaces.exec(&mut calm, Command::shell("sed -i s/v42/v41/ app.conf"), |_| {}).await?;

        let mut session = session.merge([bold, calm], How::Append).await?;
        let view = View::of(&store, session.id(), None).await?;
        let blame = view.blame(&"app.conf".into()).await?;
        for (line, origin) in String::from_utf8_lossy(&blame.content).lines().zip(&blame.lines) {
            let origin = &blame.origins[*origin];
            println!("{line:<14} {} {}", origin.record.point(), origin.what);
        }

        let applied = workspaces.apply(&mut session, false).await?;
        println!("\nchanged in the shop: {} path", applied.changed.len());
        print!("{}", fs::read_to_string(shop.join("app.conf"))?);
        Ok(())
    })
}
