//! Files that fork, merge and roll back with the session, and a line that knows its command.
//!
//! cargo run --example files_that_fork --package rath

use std::error::Error;
use std::fs;
use std::sync::Arc;

use rath::prelude::*;
use rath::sandbox::{Command, Local, Registry};
use rath::workshop::Place;

fn main() -> Result<(), Box<dyn Error>> {
    pollster::block_on(async {
        let dir = tempfile::tempdir()?;
        let shop = dir.path().join("shop");
        fs::create_dir(&shop)?;
        fs::write(shop.join("app.conf"), "pool = 20\nretries = 3\nregion = eu\nlog = off\nrelease = v42\n")?;

        let store = Embedded::create(dir.path().join("store"))?;
        let backends = Registry::new().with(Arc::new(Local::new()));
        let env = vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())];
        let workshop = Workshop::new(store.clone(), dir.path().join("workspaces"), backends).with_env(env);

        let mut session = store.create(Actor::person("ada"));
        workshop.place(&mut session, Place::copy_of("local", &shop)).await?;

        // Two branches change the same file, each in a sandbox of its own over the same layers.
        let mut bold = workshop.fork(&mut session, "a larger pool").await?;
        bold.act_as(Actor::agent("bold"));
        workshop.exec(&mut bold, Command::shell("sed -i s/20/50/ app.conf"), |_| {}).await?;
        let mut calm = workshop.fork(&mut session, "the old release").await?;
        calm.act_as(Actor::agent("calm"));
        workshop.exec(&mut calm, Command::shell("sed -i s/v42/v41/ app.conf"), |_| {}).await?;

        let mut session = session.merge([bold, calm], How::Append).await?;
        let view = View::of(&store, session.id(), None).await?;
        let blame = view.blame(&"app.conf".into()).await?;
        for (line, origin) in String::from_utf8_lossy(&blame.content).lines().zip(&blame.lines) {
            let origin = &blame.origins[*origin];
            println!("{line:<14} {} {}", origin.record.point(), origin.what);
        }

        let applied = workshop.apply(&mut session, false).await?;
        println!("\nbrought to the shop: {} path", applied.changed.len());
        print!("{}", fs::read_to_string(shop.join("app.conf"))?);
        Ok(())
    })
}
