//! A server with scripted behaviour, including misbehaviour.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// One action of the server after it has read a request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Writes these bytes.
    Write(Vec<u8>),
    /// Writes these bytes without end.
    Endless(Vec<u8>),
    /// Writes these bytes without end, with a pause after each.
    Drip(Vec<u8>),
    /// Sends nothing more and keeps the connection open.
    Hang,
}

/// A server on this machine.
pub(crate) struct Server {
    /// The server's address, without a scheme.
    pub(crate) address: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// A server that answers each request with these actions, by the number of the request, and then closes the
    /// connection.
    pub(crate) async fn new(acts: impl Fn(usize) -> Vec<Act> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let (acts, sees) = (Arc::new(acts), seen.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acts, sees) = (acts.clone(), sees.clone());
                tokio::spawn(async move {
                    let _ = serve(stream, &*acts, &sees).await;
                });
            }
        });
        Self { address, seen }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The received requests, heads and bodies.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    /// The bodies of the received requests.
    pub(crate) fn bodies(&self) -> Vec<String> {
        let body = |request: String| request.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap();
        self.requests().into_iter().map(body).collect()
    }
}

async fn serve(
    mut stream: TcpStream,
    acts: &(dyn Fn(usize) -> Vec<Act> + Send + Sync),
    seen: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let request = read_request(&mut stream).await?;
    let number = {
        let mut seen = seen.lock().unwrap();
        seen.push(request);
        seen.len() - 1
    };
    for act in acts(number) {
        match act {
            Act::Write(bytes) => stream.write_all(&bytes).await?,
            Act::Endless(bytes) => loop {
                stream.write_all(&bytes).await?;
            },
            Act::Drip(bytes) => loop {
                stream.write_all(&bytes).await?;
                tokio::time::sleep(Duration::from_millis(5)).await;
            },
            Act::Hang => {
                let mut rest = Vec::new();
                stream.read_to_end(&mut rest).await?;
            }
        }
    }
    stream.shutdown().await
}

async fn read_request(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut received = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let count = stream.read(&mut piece).await?;
        received.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&received);
        let head = text.split_once("\r\n\r\n").map(|(head, body)| (head.to_ascii_lowercase(), body.len()));
        let wanted = head.map(|(head, has)| {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            has >= length.unwrap_or(0)
        });
        // A client that starts a TLS handshake waits for an answer.
        let is_handshake = received.first() == Some(&0x16);
        if wanted == Some(true) || count == 0 || is_handshake {
            return Ok(text.into_owned());
        }
    }
}

/// The head of a response.
pub(crate) fn head(status: u16, headers: &[(&str, &str)]) -> Vec<u8> {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {status} X\r\nconnection: close\r\n{headers}\r\n").into_bytes()
}

/// A complete response.
pub(crate) fn response(status: u16, headers: &[(&str, &str)], body: &str) -> Vec<Act> {
    let length = body.len().to_string();
    let headers = [headers, &[("content-length", &*length)]].concat();
    vec![Act::Write([&head(status, &headers), body.as_bytes()].concat())]
}

/// A complete event stream.
pub(crate) fn events(body: &str) -> Vec<Act> {
    response(200, &[("content-type", "text/event-stream")], body)
}
