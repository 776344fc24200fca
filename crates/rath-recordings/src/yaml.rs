//! A YAML reader for recordings. It keeps the order of fields, and distinguishes binary values from text.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use saphyr_parser::{Event, Parser, ScalarStyle, Tag};

/// A YAML value.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// Text, and whether it was written without quotes: then it may be a number.
    Text(String, bool),
    Bytes(Vec<u8>),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

/// Parses all documents.
pub(super) fn read(text: &str) -> Result<Vec<Node>, String> {
    let text = join_old_line_breaks(text);
    let events = Parser::new_from_str(&text).map(|event| event.map(|(event, _)| event));
    let events: Result<Vec<Event<'_>>, _> = events.collect();
    let events = events.map_err(|error| error.to_string())?;
    let mut reader = Reader { events: events.into_iter(), anchors: HashMap::new() };
    let mut documents = Vec::new();
    while let Some(event) = reader.events.next() {
        if let Event::DocumentStart(_) = event {
            documents.extend(reader.node());
        }
    }
    Ok(documents)
}

/// Joins lines that old YAML writers broke at these characters and indented. The parser does not know such breaks.
fn join_old_line_breaks(text: &str) -> Cow<'_, str> {
    let is_break = |c: char| matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}');
    if !text.contains(is_break) {
        return Cow::Borrowed(text);
    }
    let lines = text.split_inclusive(is_break).enumerate();
    lines.map(|(at, line)| if at > 0 { line.trim_start_matches(' ') } else { line }).collect::<String>().into()
}

struct Reader<'a> {
    events: std::vec::IntoIter<Event<'a>>,
    anchors: HashMap<usize, Node>,
}

impl Reader<'_> {
    /// The next value; `None` at the end of a list or a map.
    fn node(&mut self) -> Option<Node> {
        let (anchor, node) = match self.events.next()? {
            Event::Scalar(text, style, anchor, tag) => (anchor, scalar(text.into_owned(), style, tag.as_ref())),
            Event::SequenceStart(anchor, _) => (anchor, Node::List(std::iter::from_fn(|| self.node()).collect())),
            Event::MappingStart(anchor, _) => (anchor, self.map()),
            Event::Alias(anchor) => return self.anchors.get(&anchor).cloned(),
            _ => return None,
        };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Some(node)
    }

    fn map(&mut self) -> Node {
        let mut fields = Vec::new();
        while let Some(key) = self.node() {
            let Some(value) = self.node() else { break };
            fields.push((key.text().unwrap_or_default().into_owned(), value));
        }
        Node::Map(fields)
    }
}

fn scalar(text: String, style: ScalarStyle, tag: Option<&Cow<'_, Tag>>) -> Node {
    if tag.is_some_and(|tag| tag.suffix == "binary") {
        let packed: String = text.split_whitespace().collect();
        return BASE64_STANDARD.decode(packed).map_or(Node::Text(text, false), Node::Bytes);
    }
    Node::Text(text, style == ScalarStyle::Plain && tag.is_none())
}

impl Node {
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        let Node::Map(fields) = self else { return None };
        fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value)
    }

    /// Follows a path of keys.
    pub(super) fn at(&self, path: &[&str]) -> Option<&Node> {
        path.iter().try_fold(self, |node, key| node.get(key))
    }

    pub(super) fn text(&self) -> Option<Cow<'_, str>> {
        match self {
            Node::Text(text, _) => Some(Cow::Borrowed(text)),
            Node::Bytes(bytes) => Some(String::from_utf8_lossy(bytes)),
            _ => None,
        }
    }

    pub(super) fn bytes(&self) -> Option<Vec<u8>> {
        match self {
            Node::Text(text, _) => Some(text.clone().into_bytes()),
            Node::Bytes(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }

    pub(super) fn items(&self) -> &[Node] {
        match self {
            Node::List(items) => items,
            _ => &[],
        }
    }

    /// The value as JSON, with its fields in order.
    pub(super) fn to_json(&self) -> String {
        let mut json = String::new();
        self.write(&mut json);
        json
    }

    fn write(&self, json: &mut String) {
        match self {
            Node::Text(text, true) if is_json_word(text) => json.push_str(text),
            Node::Text(text, true) if matches!(text.as_str(), "" | "~") => json.push_str("null"),
            Node::Text(..) | Node::Bytes(_) => write_text(&self.text().unwrap_or_default(), json),
            Node::List(items) => {
                json.push('[');
                for (at, item) in items.iter().enumerate() {
                    json.push_str(if at > 0 { "," } else { "" });
                    item.write(json);
                }
                json.push(']');
            }
            Node::Map(fields) => {
                json.push('{');
                for (at, (key, value)) in fields.iter().enumerate() {
                    json.push_str(if at > 0 { "," } else { "" });
                    write_text(key, json);
                    json.push(':');
                    value.write(json);
                }
                json.push('}');
            }
        }
    }
}

fn write_text(text: &str, json: &mut String) {
    let _ = write!(json, "{}", serde_json::Value::from(text));
}

/// Whether an unquoted word is also valid JSON: a number, `true`, `false` or `null`.
fn is_json_word(text: &str) -> bool {
    !text.starts_with(['"', '[', '{']) && serde_json::from_str::<serde_json::Value>(text).is_ok()
}
