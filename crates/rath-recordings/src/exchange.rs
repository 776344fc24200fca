//! Reads the exchanges of a recording, in any of the common file formats.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::yaml::{self, Node};

/// The recorded answer to one request.
#[derive(Clone, Debug, Default)]
pub struct Exchange {
    /// The URL of the request. Empty if only the answer was recorded.
    pub url: String,
    /// The HTTP status.
    pub status: u16,
    /// The headers of the answer.
    pub headers: Vec<(String, String)>,
    /// The body of the answer.
    pub body: Vec<u8>,
}

/// Reads the exchanges of a file. The format is detected from the content: one JSON object, one JSON object per line,
/// an event stream, or a YAML cassette.
pub fn read(file: &[u8]) -> Result<Vec<Exchange>, String> {
    let text = std::str::from_utf8(file).map_err(|error| error.to_string())?;
    let bare = |body: Vec<u8>| Ok(vec![Exchange { status: 200, body, ..Exchange::default() }]);
    if is_object(text) {
        return bare(file.to_vec());
    }
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.iter().all(|line| is_object(line) || line.trim() == "[DONE]") {
        return bare(lines.iter().map(|line| format!("data: {line}\n\n")).collect::<String>().into_bytes());
    }
    let is_dense = lines.len() == text.lines().count();
    if is_dense && lines.iter().all(|line| line.starts_with("data:")) {
        return bare(lines.iter().map(|line| format!("{line}\n\n")).collect::<String>().into_bytes());
    }
    if lines.first().is_some_and(|line| ["data:", "event:", "id:", ":"].iter().any(|field| line.starts_with(field))) {
        return bare(file.to_vec());
    }
    let documents = yaml::read(text)?;
    let exchanges: Vec<Exchange> = documents.iter().flat_map(of_document).collect();
    match exchanges.is_empty() {
        true => Err("it contains no exchange".into()),
        false => Ok(exchanges),
    }
}

fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

fn of_document(document: &Node) -> Vec<Exchange> {
    if let (Some(when), Some(then)) = (document.get("when"), document.get("then")) {
        return vec![mocked(when, then)];
    }
    let list = document.get("interactions").or_else(|| document.get("http_interactions"));
    list.map(|list| list.items().iter().filter_map(replayed).collect()).unwrap_or_default()
}

/// An exchange in the form `when` (request), `then` (answer).
fn mocked(when: &Node, then: &Node) -> Exchange {
    let headers = then.get("header").map(Node::items).unwrap_or_default();
    let header = |header: &Node| Some((word(header, &["name"])?, word(header, &["value"])?));
    Exchange {
        url: word(when, &["path"]).unwrap_or_default(),
        status: number(then.get("status")),
        headers: headers.iter().filter_map(header).collect(),
        body: match word(then, &["body_encoding"]).as_deref() {
            Some("base64") => packed(then, "body"),
            _ => then.get("body").and_then(Node::bytes),
        }
        .unwrap_or_default(),
    }
}

/// An exchange in the form `request`, `response`.
fn replayed(interaction: &Node) -> Option<Exchange> {
    let (request, response) = (interaction.get("request")?, interaction.get("response")?);
    let status = response.at(&["status", "code"]).or_else(|| response.get("status_code"));
    Some(Exchange {
        url: word(request, &["uri"]).or_else(|| word(request, &["url"])).unwrap_or_default(),
        status: number(status.or_else(|| response.get("status"))),
        headers: response.get("headers").map(headers).unwrap_or_default(),
        body: body(response).unwrap_or_default(),
    })
}

fn body(response: &Node) -> Option<Vec<u8>> {
    if let Some(parsed) = response.get("parsed_body") {
        return Some(parsed.to_json().into_bytes());
    }
    let body = response.get("body").or_else(|| response.get("content"))?;
    packed(body, "base64_string").or_else(|| body.get("string")?.bytes()).or_else(|| body.bytes())
}

fn packed(node: &Node, key: &str) -> Option<Vec<u8>> {
    let packed: String = node.get(key)?.text()?.split_whitespace().collect();
    BASE64_STANDARD.decode(packed).ok()
}

fn headers(node: &Node) -> Vec<(String, String)> {
    let Node::Map(fields) = node else { return Vec::new() };
    let value = |value: &Node| value.text().map(Into::into).or_else(|| Some(value.items().first()?.text()?.into()));
    fields.iter().filter_map(|(name, node)| Some((name.clone(), value(node)?))).collect()
}

fn word(node: &Node, path: &[&str]) -> Option<String> {
    node.at(path)?.text().map(Into::into)
}

fn number(node: Option<&Node>) -> u16 {
    node.and_then(Node::text).and_then(|text| text.parse().ok()).unwrap_or(200)
}
