//! Schemas of tools, as they are written into requests.

use rath_core::ToolSpec;
use serde_json::value::RawValue;

/// The schema of a tool's arguments, keys in order: however the program was built, it is the same bytes.
pub(crate) fn schema(tool: &ToolSpec) -> Box<RawValue> {
    let written = serde_jcs::to_string(&tool.schema).and_then(RawValue::from_string);
    written.unwrap_or_else(|_| RawValue::NULL.to_owned())
}
