//! Draws sessions as lanes: first records, fork points, merges and heads as nodes, with the number of records between them.

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

/// How many sessions are drawn by default.
const DEFAULT_LIMIT: usize = 200;

/// Draws the sessions of the store, or those that `view` is based on.
pub(crate) async fn draw(
    settings: &Settings,
    store: &Arc<dyn Store>,
    view: Option<&View>,
    limit: Option<usize>,
) -> Result<()> {
    let Graph { mut nodes, sessions, more } = match view {
        Some(view) => Graph::behind(store, view).await?,
        None => Graph::of_store(store, limit.unwrap_or(DEFAULT_LIMIT)).await?,
    };
    if view.is_none()
        && let Some(audit) = rath::query::operator_session(store).await?
    {
        // The audit session has no forks: `rath log operator` lists its records.
        nodes.retain(|node| node.point.session != audit.id);
    }
    if settings.json {
        return output::json_list("rath.log.graph/1", &nodes);
    }
    let drawn: BTreeSet<Point> = nodes.iter().map(|node| node.point).collect();
    let mut page = Page::default();
    let mut renderer = GraphRowRenderer::new().output().with_min_row_height(1).build_box_drawing();
    for node in &nodes {
        let parents = node
            .parents
            .iter()
            .map(|parent| if drawn.contains(parent) { Ancestor::Parent(*parent) } else { Ancestor::Anonymous });
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
