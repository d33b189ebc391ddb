//! A web server on loopback that misbehaves as it is told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// How a request is answered.
#[derive(Clone)]
pub(crate) enum Answer {
    /// With all of it, or with the part that was asked for.
    Whole(Arc<Vec<u8>>),
    /// With all of it, whatever was asked for.
    NoRanges(Arc<Vec<u8>>),
    /// With this many bytes of what was asked for; then the connection is cut.
    CutAfter(Arc<Vec<u8>>, usize),
    /// With this many zeros.
    Zeros(usize),
    /// With a status and a page.
    Status(u16, &'static str),
    /// Not at all.
    Silence,
}

/// The server. It runs until the test's runtime ends.
pub(crate) struct Mirror {
    address: String,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    /// What each path answers, request by request; the last answer stays.
    answers: BTreeMap<String, Vec<Answer>>,
    /// The path and range of every request.
    requests: Vec<(String, Option<String>)>,
}

impl Mirror {
    pub(crate) async fn start() -> Mirror {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Mutex::new(Shared::default()));
        let served = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&served)));
            }
        });
        Mirror { address, shared }
    }

    /// Answers a path like this, and returns its URL.
    pub(crate) fn at(&self, path: &str, answers: impl Into<Vec<Answer>>) -> String {
        self.shared.lock().unwrap().answers.insert(path.into(), answers.into());
        format!("{}{path}", self.address)
    }

    /// The ranges that were asked for at a path, in order.
    pub(crate) fn requests(&self, path: &str) -> Vec<Option<String>> {
        let shared = self.shared.lock().unwrap();
        shared.requests.iter().filter(|(asked, _)| asked == path).map(|(_, range)| range.clone()).collect()
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Mutex<Shared>>) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1)?.to_owned();
    let range =
        head.lines().find_map(|line| Some(line.to_ascii_lowercase().strip_prefix("range: ")?.to_owned()));
    let answer = {
        let mut shared = shared.lock().unwrap();
        shared.requests.push((path.clone(), range.clone()));
        let answers = shared.answers.get_mut(&path)?;
        if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() }
    };
    let from = range.and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    answer_with(&mut stream, answer, from).await;
    stream.shutdown().await.ok()
}

async fn answer_with(stream: &mut TcpStream, answer: Answer, from: Option<usize>) {
    match answer {
        Answer::Whole(bytes) => send(stream, &bytes, from, usize::MAX).await,
        Answer::NoRanges(bytes) => send(stream, &bytes, None, usize::MAX).await,
        Answer::CutAfter(bytes, size) => send(stream, &bytes, from, size).await,
        Answer::Zeros(size) => {
            let _ = stream.write_all(head(200, "OK", size, "").as_bytes()).await;
            for _ in 0..size / 65536 {
                if stream.write_all(&[0; 65536]).await.is_err() {
                    return;
                }
            }
        }
        Answer::Status(status, page) => {
            let _ = stream.write_all((head(status, "Status", page.len(), "") + page).as_bytes()).await;
        }
        // Held open until the client has had enough.
        Answer::Silence => drop(stream.read_u8().await),
    }
}

async fn send(stream: &mut TcpStream, bytes: &[u8], from: Option<usize>, at_most: usize) {
    let from_byte = from.unwrap_or(0);
    let Some(rest) = bytes.get(from_byte..).filter(|rest| !rest.is_empty() || from.is_none()) else {
        let _ = stream.write_all(head(416, "Range Not Satisfiable", 0, "").as_bytes()).await;
        return;
    };
    let head = match from {
        None => head(200, "OK", rest.len(), ""),
        Some(from) => {
            let range = format!("content-range: bytes {from}-{}/{}\r\n", bytes.len() - 1, bytes.len());
            head(206, "Partial Content", rest.len(), &range)
        }
    };
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(&rest[..rest.len().min(at_most)]).await;
}

fn head(status: u16, reason: &str, length: usize, more: &str) -> String {
    format!("HTTP/1.1 {status} {reason}\r\ncontent-length: {length}\r\nconnection: close\r\n{more}\r\n")
}
