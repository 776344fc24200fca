//! The target for responses of providers: streams, whole and split, and answers that are not streamed. The first byte
//! selects the API, the second the size of the pieces.

use rath_model::{HttpResponse, anthropic, chat, responses};

macro_rules! read {
    ($api:ident, $data:expr, $cut:expr) => {{
        let mut whole = $api::Decoder::new();
        let mut deltas = Vec::new();
        whole.feed($data, &mut |delta| deltas.push(delta));
        let mut pieces = $api::Decoder::new();
        for piece in $data.chunks($cut) {
            pieces.feed(piece, &mut |_| {});
        }
        let (whole, pieces) = (whole.finish(), pieces.finish());
        assert_eq!(whole.is_ok(), pieces.is_ok(), "splitting changes the result");
        if let (Ok(whole), Ok(pieces)) = (&whole, &pieces) {
            assert_eq!(whole.text(), pieces.text(), "splitting changes the result");
            let _ = $api::write(whole);
        }
        for status in [200, 429, 500] {
            let _ = $api::decode_whole(&HttpResponse::new(status, $data));
        }
    }};
}

/// Runs the target with one input.
pub fn sse(data: &[u8]) {
    let [which, cut, data @ ..] = data else { return };
    let cut = usize::from(*cut).max(1);
    match which % 3 {
        0 => read!(anthropic, data, cut),
        1 => read!(chat, data, cut),
        _ => read!(responses, data, cut),
    }
}
