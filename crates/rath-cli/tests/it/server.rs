//! A local HTTP server that stores requests and sends given answers.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// An answer: status, content type and body; `None` never answers.
pub(crate) type Reply = Option<(u16, &'static str, String)>;

pub(crate) struct Server {
    pub(crate) port: u16,
    seen: Arc<Mutex<Vec<Request>>>,
}

/// The requests.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Server {
    /// Starts the server. `answer` gets the number of the request. The server ends with the process.
    pub(crate) fn new(answer: impl Fn(usize, &Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (sees, answer) = (seen.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (sees, answer) = (sees.clone(), answer.clone());
                std::thread::spawn(move || serve(stream, &sees, &*answer));
            }
        });
        Self { port, seen }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, seen: &Mutex<Vec<Request>>, answer: &dyn Fn(usize, &Request) -> Reply) {
    let Some(request) = read(&mut stream) else { return };
    let number = {
        let mut seen = seen.lock().unwrap();
        seen.push(request.clone());
        seen.len() - 1
    };
    match answer(number, &request) {
        Some((status, kind, body)) => {
            let head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-type: {kind}\r\n");
            let _ = write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len());
        }
        // The client closes the connection.
        None => drop(stream.read_to_end(&mut Vec::new())),
    }
}

fn read(stream: &mut TcpStream) -> Option<Request> {
    let (mut held, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut piece).ok().filter(|count| *count > 0)?;
        held.extend_from_slice(&piece[..count]);
        let Some(end) = held.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&held[..end]).into_owned();
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
        });
        if held.len() >= end + 4 + length.unwrap_or(0) {
            return Some(Request { head, body: held[end + 4..].to_vec() });
        }
    }
}
