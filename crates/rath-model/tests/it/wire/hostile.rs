//! Servers that truncate, stall, send garbage or send too much.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rath_core::body::Block;
use rath_core::{FailureKind, Model, TokenCount};
use rath_model::{Anthropic, Chat, Fallback, Scripted};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::server::{Act, Server, events, head, response};
use super::{FOR_EVER, KEY, ask, clients, count, failure, streams};

const SHORT: Duration = Duration::from_millis(60);

fn words(blocks: &[Block]) -> String {
    let text = |block: &Block| match block {
        Block::Text { text } => text.to_string(),
        _ => String::new(),
    };
    blocks.iter().map(text).collect()
}

#[tokio::test]
async fn each_api_answers() {
    for (at, stream) in streams().into_iter().enumerate() {
        let server = Server::new(move |_| events(&stream)).await;
        let model = clients(&server.url())[at](FOR_EVER);
        let (answer, deltas) = ask(&*model).await;
        let answer = answer.unwrap();
        assert_eq!((words(&answer.blocks).as_str(), deltas.as_str()), ("Hello, world", "Hello, world"));
        assert_eq!((answer.usage.requests, answer.usage.input_tokens, answer.usage.output_tokens), (1, 3, 9));
        assert_eq!(answer.raw.unwrap().bytes.len(), streams()[at].len(), "the response is kept as it came");
        let request = server.requests().remove(0);
        assert!(request.contains(KEY), "the key goes into the header");
        assert!(!server.bodies()[0].contains(KEY));
    }
}

#[tokio::test]
async fn an_answer_that_is_not_streamed_is_read_too() {
    let body = r#"{"id":"c1","model":"gpt","choices":[{"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}]}"#;
    for kind in [Some("application/json"), None] {
        let headers: Vec<(&str, &str)> = kind.map(|kind| ("content-type", kind)).into_iter().collect();
        let acts = response(200, &headers, body);
        let server = Server::new(move |_| acts.clone()).await;
        let (answer, deltas) = ask(&*clients(&server.url())[1](FOR_EVER)).await;
        assert_eq!((words(&answer.unwrap().blocks).as_str(), deltas.as_str()), ("Hi", "Hi"));
    }
}

#[tokio::test]
async fn a_stream_truncated_at_any_byte_keeps_the_partial_text() {
    for (at, stream) in streams().into_iter().enumerate() {
        // With and without a `content-length` header.
        for has_length in [true, false] {
            let (cut, length) = (Arc::new(AtomicUsize::new(0)), stream.len().to_string());
            let (now, body) = (cut.clone(), stream.clone());
            let server = Server::new(move |_| {
                let length: &[(&str, &str)] = if has_length { &[("content-length", &length)] } else { &[] };
                let head = head(200, &[&[("content-type", "text/event-stream")], length].concat());
                vec![Act::Write([&head, &body.as_bytes()[..now.load(Ordering::SeqCst)]].concat())]
            })
            .await;
            let model = clients(&server.url())[at](FOR_EVER);
            for end in 0..=stream.len() {
                cut.store(end, Ordering::SeqCst);
                let (answer, deltas) = ask(&*model).await;
                match answer {
                    Ok(answer) => assert_eq!(words(&answer.blocks), "Hello, world", "cut at {end}"),
                    Err(failure) => {
                        assert!(failure.retry, "cut at {end}: {failure:?}");
                        let partial = failure.partial.unwrap_or_default();
                        assert!(
                            "Hello, world".starts_with(&partial) && partial.starts_with(&deltas),
                            "{end}: {partial}"
                        );
                        assert!(end < stream.len());
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn a_silent_server_times_out() {
    for (at, stream) in streams().into_iter().enumerate() {
        let half = stream.find("world").unwrap();
        for end in [None, Some(0), Some(half)] {
            let stream = stream.clone();
            let server = Server::new(move |_| {
                let begin = end.map(|end| [&head(200, &[]), &stream.as_bytes()[..end]].concat());
                vec![Act::Write(begin.unwrap_or_default()), Act::Hang]
            })
            .await;
            let failure = failure(&*clients(&server.url())[at](SHORT)).await;
            assert!(failure.retry && failure.why.contains("no data from"), "{failure:?}");
            assert_eq!(failure.kind, FailureKind::TimedOut);
            if end == Some(half) {
                assert_eq!(failure.partial.as_deref(), Some("Hello, "));
            }
        }
    }
}

#[tokio::test]
async fn a_slow_stream_ends_at_the_total_timeout() {
    let server = Server::new(|_| vec![Act::Write(head(200, &[])), Act::Drip(b": ping\n\n".to_vec())]).await;
    let model = Anthropic::new("m").base_url(server.url()).total_timeout(SHORT);
    let failure = failure(&model).await;
    assert!(failure.retry && failure.why.contains("took longer"), "{failure:?}");
    assert_eq!(failure.kind, FailureKind::TimedOut);
}

#[tokio::test]
async fn an_endless_response_is_cut_off() {
    let whole = streams()[0].clone();
    let bodies: [&[u8]; 4] = [b": ping\n\n", b"data: {}\n\n", b"x", b"data: "];
    for (status, body) in bodies.into_iter().flat_map(|body| [(200, body), (500, body)]) {
        let server = Server::new(move |_| vec![Act::Write(head(status, &[])), Act::Endless(body.repeat(1000))]).await;
        for client in clients(&server.url()) {
            let failure = failure(&*client(FOR_EVER)).await;
            assert!(failure.retry == (status == 500), "{status} {failure:?}");
        }
    }
    let server = Server::new(move |_| {
        let begin = [head(200, &[("content-type", "text/event-stream")]), whole.clone().into_bytes()].concat();
        vec![Act::Write(begin), Act::Endless(b": ping\n\n".to_vec())]
    })
    .await;
    let (answer, _) = ask(&*clients(&server.url())[0](FOR_EVER)).await;
    assert_eq!(words(&answer.unwrap().blocks), "Hello, world", "data after a complete answer is ignored");
}

#[tokio::test]
async fn garbage_is_a_failure() {
    let garbage: Vec<Vec<u8>> = vec![
        Vec::new(),
        b"\0\xff\xfe garbage \r\n\r\n".to_vec(),
        b"HTTP/1.1 200 OK\r\ncontent-length: nonsense\r\n\r\nx".to_vec(),
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\nx".to_vec(),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzzz\r\nx".to_vec(),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\nx".to_vec(),
        [head(200, &[("content-type", "text/event-stream")]), b"data: \xff\xfe\n\n".to_vec()].concat(),
        [head(200, &[("content-type", "text/event-stream")]), b"data: [1,2]\n\ndata: nope\n\n".to_vec()].concat(),
        [head(200, &[("content-type", "application/json")]), b"{\"x\":".to_vec()].concat(),
        [head(200, &[("content-type", "text/html")]), b"<html>Sign in</html>".to_vec()].concat(),
        [head(200, &[("content-length", "5")]), b"data: {}\n\n and much more".to_vec()].concat(),
        [head(204, &[]), Vec::new()].concat(),
        [head(103, &[]), Vec::new()].concat(),
    ];
    for bytes in garbage {
        let acts = vec![Act::Write(bytes.clone())];
        let server = Server::new(move |_| acts.clone()).await;
        for client in clients(&server.url()) {
            let failure = failure(&*client(FOR_EVER)).await;
            assert!(!failure.why.is_empty(), "{:?}", String::from_utf8_lossy(&bytes));
        }
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let other = Server::new(|_| events("")).await;
    for status in [301, 302, 303, 307, 308] {
        let to = format!("{}/v1/messages", other.url());
        let server = Server::new(move |_| response(status, &[("location", &to)], "")).await;
        for client in clients(&server.url()) {
            let failure = failure(&*client(FOR_EVER)).await;
            assert_eq!((failure.retry, failure.status), (false, Some(status)), "{failure:?}");
            assert!(failure.why.contains(&other.address), "{failure:?}");
        }
    }
    assert_eq!(other.requests().len(), 0, "the key is not sent to another host");
}

#[tokio::test]
async fn a_tls_error_is_not_retried() {
    let server = Server::new(|_| response(400, &[], "This is plain HTTP.")).await;
    for client in clients(&format!("https://{}", server.address)) {
        let failure = failure(&*client(FOR_EVER)).await;
        assert!(!failure.retry && failure.why.contains("cannot reach"), "{failure:?}");
    }
    assert!(server.requests().iter().all(|request| !request.contains(KEY)));
}

#[tokio::test]
async fn an_unreachable_server_is_retried_and_an_invalid_url_is_not() {
    let address = Server::new(|_| Vec::new()).await.address;
    let (host, _) = address.split_once(':').unwrap();
    for client in clients(&format!("http://{host}:1")) {
        let failure = failure(&*client(FOR_EVER)).await;
        assert!(failure.retry && failure.why.contains("cannot reach http://127.0.0.1:1"), "{failure:?}");
    }
    for client in clients("not an address").into_iter().chain(clients("ftp://127.0.0.1")) {
        assert!(failure(&*client(FOR_EVER)).await.why.contains("base URL"));
    }
}

#[tokio::test]
async fn errors_of_the_provider_are_reported() {
    let overloaded = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let limited = r#"{"error":{"type":"rate_limit_error","message":"Slow down"}}"#;
    let ms = Duration::from_millis;
    type Case = (u16, &'static [(&'static str, &'static str)], &'static str, bool, Option<Duration>);
    let cases: [Case; 6] = [
        (529, &[], overloaded, true, None),
        (429, &[("retry-after", "2")], limited, true, Some(ms(2000))),
        (429, &[("retry-after", "2"), ("retry-after-ms", "250")], limited, true, Some(ms(250))),
        (503, &[("x-should-retry", "false")], "<html>", false, None),
        (400, &[], r#"{"error":{"type":"invalid_request_error","message":"No"}}"#, false, None),
        (401, &[], "unknown user", false, None),
    ];
    for (status, headers, body, retry, after) in cases {
        let acts = response(status, headers, body);
        let server = Server::new(move |_| acts.clone()).await;
        for client in clients(&server.url()) {
            let failure = failure(&*client(FOR_EVER)).await;
            assert_eq!((failure.status, failure.retry, failure.after), (Some(status), retry, after), "{failure:?}");
        }
    }
}

#[tokio::test]
async fn an_error_within_a_stream_keeps_the_partial_text() {
    let error =
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Busy\"}}\n\n";
    for (at, stream) in streams().into_iter().enumerate() {
        let cut = stream.find("world").unwrap();
        let begin = stream[..cut].rfind("\n\n").unwrap() + 2;
        let body = format!("{}{error}", &stream[..begin]);
        let server = Server::new(move |_| events(&body)).await;
        let failure = failure(&*clients(&server.url())[at](FOR_EVER)).await;
        assert_eq!((failure.retry, failure.partial.as_deref()), (true, Some("Hello, ")), "{failure:?}");
        assert!(failure.why.contains("Busy"));
    }
}

#[tokio::test]
async fn a_key_in_the_response_is_not_stored() {
    let acts = response(401, &[], &format!(r#"{{"error":{{"message":"bad key {KEY}"}}}}"#));
    let server = Server::new(move |_| acts.clone()).await;
    for client in clients(&server.url()) {
        assert!(failure(&*client(FOR_EVER)).await.why.contains("bad key [key]"));
    }
    let stream = streams()[1].replace("world", KEY);
    let server = Server::new(move |_| events(&stream)).await;
    let answer = ask(&*clients(&server.url())[1](FOR_EVER)).await.0.unwrap();
    assert_eq!(words(&answer.blocks), "Hello, [key]");
    assert!(!String::from_utf8_lossy(&answer.raw.unwrap().bytes).contains(KEY));
}

#[tokio::test]
async fn a_key_from_another_header_is_not_stored_either() {
    let stream = streams()[0].replace("world", KEY);
    let server = Server::new(move |_| events(&stream)).await;
    let model = Anthropic::new("m").header("Authorization", format!("Bearer {KEY}")).base_url(server.url());
    let answer = ask(&model).await.0.unwrap();
    assert_eq!(words(&answer.blocks), "Hello, [key]");
    assert!(!String::from_utf8_lossy(&answer.raw.unwrap().bytes).contains(KEY));
}

#[tokio::test]
async fn a_chat_stream_without_done_ends_after_its_finish_reason() {
    let whole = streams()[1].replace("data: [DONE]\n\n", "");
    for after in [Act::Hang, Act::Drip(b": ping\n\n".to_vec())] {
        let begin = [head(200, &[("content-type", "text/event-stream")]), whole.clone().into_bytes()].concat();
        let acts = vec![Act::Write(begin), after];
        let server = Server::new(move |_| acts.clone()).await;
        let (answer, _) = ask(&*clients(&server.url())[1](FOR_EVER * 2)).await;
        let answer = answer.unwrap();
        assert_eq!((words(&answer.blocks).as_str(), answer.usage.output_tokens), ("Hello, world", 9));
    }
}

#[tokio::test]
async fn an_invalid_key_is_not_shown() {
    let model = Anthropic::new("m").key("sk-with\na line break").base_url("http://127.0.0.1:1");
    let failure = failure(&model).await;
    assert!(!failure.retry && !failure.why.contains("sk-with"), "{failure:?}");
}

#[tokio::test]
async fn one_attempt_sends_one_request() {
    let server = Server::new(|_| vec![Act::Write(head(200, &[]))]).await;
    for client in clients(&server.url()) {
        failure(&*client(FOR_EVER)).await;
    }
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn a_failure_in_a_chain_is_retried_with_the_next_model() {
    let server = Server::new(|_| response(401, &[], "no")).await;
    let first = Chat::openai_compatible("first", server.url());
    let chain = Fallback::new(first).or(Scripted::new("second").say("Here."));
    assert_eq!((chain.name(), chain.encoder()), ("first", "openai-chat/common@2"));
    let failure = failure(&chain).await;
    assert_eq!((failure.retry, failure.after), (true, Some(Duration::ZERO)), "another model follows");
}

#[tokio::test]
async fn tokens_are_counted_or_estimated() {
    let server = Server::new(|number| match number {
        0 => response(200, &[], r#"{"input_tokens":17}"#),
        1 => response(429, &[("retry-after", "1")], &format!(r#"{{"error":{{"message":"not now, {KEY}"}}}}"#)),
        _ => response(200, &[], "{}"),
    })
    .await;
    let model = Anthropic::new("m").key(KEY).base_url(server.url());
    assert_eq!(count(&model).await, Ok(TokenCount::Counted(17)));
    let asked: serde_json::Value = serde_json::from_str(&server.bodies()[0]).unwrap();
    let keys: Vec<&str> = asked.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["messages", "model", "system"]);
    assert!(server.requests()[0].starts_with("POST /v1/messages/count_tokens "));
    let refused = count(&model).await.unwrap_err();
    assert_eq!((refused.retry, &*refused.why), (true, "not now, [key] (429)"));
    assert!(count(&model).await.unwrap_err().why.contains("no token count"));
    let chain = Fallback::new(Chat::ollama("m")).or(model);
    assert!(matches!(count(&chain).await, Ok(TokenCount::Estimated(20..60))), "{:?}", count(&chain).await);
}

#[tokio::test]
async fn dropping_the_request_closes_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let model = Anthropic::new("m").base_url(format!("http://{}", listener.local_addr().unwrap()));
    let asking = tokio::spawn(async move { ask(&model).await.0.is_ok() });
    let (mut stream, _) = listener.accept().await.unwrap();
    let begin = [&head(200, &[("content-type", "text/event-stream")]), &streams()[0].as_bytes()[..100]].concat();
    stream.write_all(&begin).await.unwrap();
    asking.abort();
    let mut rest = Vec::new();
    // The connection ends, with or without an error.
    let _ = tokio::time::timeout(FOR_EVER, stream.read_to_end(&mut rest)).await.expect("the connection stays open");
}
