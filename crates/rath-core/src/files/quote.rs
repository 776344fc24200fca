//! File names in git's patch format.

use super::FilePath;

/// Returns `prefix` and the name, quoted and escaped if the name contains bytes that require it.
pub(super) fn quoted(prefix: &str, name: &FilePath) -> Vec<u8> {
    let mut out = prefix.as_bytes().to_vec();
    if !name.as_bytes().iter().any(|byte| matches!(byte, 0..0x20 | 0x7f.. | b'"' | b'\\')) {
        out.extend_from_slice(name.as_bytes());
        return out;
    }
    out.insert(0, b'"');
    for byte in name.as_bytes() {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', *byte]),
            0x07 => out.extend(b"\\a"),
            0x08 => out.extend(b"\\b"),
            b'\t' => out.extend(b"\\t"),
            b'\n' => out.extend(b"\\n"),
            0x0b => out.extend(b"\\v"),
            0x0c => out.extend(b"\\f"),
            b'\r' => out.extend(b"\\r"),
            0..0x20 | 0x7f.. => out.extend(format!("\\{byte:03o}").into_bytes()),
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
    out
}
