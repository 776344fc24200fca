//! Sessions as lanes: births, fork points, merges and heads are drawn, the records between them counted.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Result;
use rath::inspect::{Graph, GraphNode};
use rath::{Point, Store, View};
use renderdag::{Ancestor, GraphRowRenderer, Renderer as _};

use crate::commands::log::clip;
use crate::output::{self, Page, style};
use crate::settings::Settings;
use crate::time;

/// Sessions drawn when no limit is given.
const SESSIONS: usize = 200;

/// Draws the sessions of the store, or those that `view` stands on.
pub(crate) async fn draw(
    settings: &Settings,
    store: &Arc<dyn Store>,
    view: Option<&View>,
    limit: Option<usize>,
) -> Result<()> {
    let Graph { nodes, sessions, more } = match view {
        Some(view) => Graph::behind(store, view).await?,
        None => Graph::of_store(store, limit.unwrap_or(SESSIONS)).await?,
    };
    if settings.json {
        return output::json_lines(&nodes);
    }
    let drawn: BTreeSet<Point> = nodes.iter().map(|node| node.point).collect();
    let mut page = Page::default();
    let mut renderer = GraphRowRenderer::new().output().with_min_row_height(1).build_box_drawing();
    for node in &nodes {
        let parents = node.parents.iter().map(|parent| match drawn.contains(parent) {
            true => Ancestor::Parent(*parent),
            false => Ancestor::Anonymous,
        });
        let glyph = match (node.merge, node.head, node.closed) {
            (true, _, _) => "◆",
            (_, true, true) => "×",
            (_, true, false) => "●",
            _ => "○",
        };
        page.text(renderer.next_row(node.point, parents.collect(), glyph.into(), label(node)));
    }
    if more > 0 {
        page.line(style::dim(format!("{more} older sessions are not drawn; -n {} draws them", sessions + more)));
    }
    page.show(settings)
}

fn label(node: &GraphNode) -> String {
    let mut text = style::session(node.point);
    let mut room = 72;
    if let Some(title) = &node.title {
        let title = clip(title, 40);
        room = 72usize.saturating_sub(title.chars().count()).max(24);
        text.push_str(&format!(" {}", style::title(format!("“{title}”"))));
    }
    text.push_str(&format!(" {}", clip(&node.text, room)));
    if node.head {
        text.push_str(&style::dim(format!("  {}", time::ago(node.time))));
    }
    if node.hidden > 0 {
        text.push_str(&style::dim(format!("\n~ {}", output::count(node.hidden, "record"))));
    }
    text
}
