//! What providers send: a stream, whole and in pieces, and an answer that came at once. The first byte says which API,
//! the second where the stream is cut.

use rath_model::{Reply, anthropic, chat, responses};

macro_rules! read {
    ($api:ident, $data:expr, $cut:expr) => {{
        let mut whole = $api::Decoder::new();
        let mut heard = Vec::new();
        whole.feed($data, &mut |delta| heard.push(delta));
        let mut pieces = $api::Decoder::new();
        for piece in $data.chunks($cut) {
            pieces.feed(piece, &mut |_| {});
        }
        let (whole, pieces) = (whole.finish(), pieces.finish());
        assert_eq!(whole.is_ok(), pieces.is_ok(), "pieces make a difference");
        if let (Ok(whole), Ok(pieces)) = (&whole, &pieces) {
            assert_eq!(whole.text(), pieces.text(), "pieces make a difference");
            let _ = $api::write(whole);
        }
        for status in [200, 429, 500] {
            let _ = $api::decode_whole(&Reply::new(status, $data));
        }
    }};
}

/// Feeds it one input.
pub fn sse(data: &[u8]) {
    let [which, cut, data @ ..] = data else { return };
    let cut = usize::from(*cut).max(1);
    match which % 3 {
        0 => read!(anthropic, data, cut),
        1 => read!(chat, data, cut),
        _ => read!(responses, data, cut),
    }
}
