//! A server that forwards requests to another server or to a folder. While a fault file exists, it fails as the file says. It logs
//! each request and its outcome.
//!
//! Each request has its own connection and its own thread, so a fault affects every request from the moment it is set.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};

use crate::stand_in_api::unescaped;

/// How often a silent server checks whether its fault has ended.
const POLL: Duration = Duration::from_millis(50);
/// The maximum size of a request's head, in bytes. The tested clients send shorter heads.
const LONGEST_HEAD: u64 = 64 * 1024;
/// The maximum difference in time between a signature and the server's clock (S3's "Error responses", `RequestTimeTooSkewed`).
const LARGEST_SKEW: Duration = Duration::from_secs(15 * 60);

/// The head of a request: everything except the body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// `GET`, …
    pub method: String,
    /// The path with its query.
    pub target: String,
    /// The headers, with their names in lower case.
    pub headers: Vec<(String, String)>,
}

impl Head {
    /// The first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// The query, without a question mark.
    pub fn query(&self) -> &str {
        self.target.split_once('?').map_or("", |(_, query)| query)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A status and a body.
    Text(u16, String),
    /// The content of a file, or 404 if the file is missing.
    File(PathBuf),
    /// The response of the server at this address.
    Of(SocketAddr),
}

impl Answer {
    /// The file at the request's path, from the first of these folders that contains it. If no folder contains the file, 404.
    pub fn first_file(head: &Head, folders: &[PathBuf]) -> Answer {
        let path = unescaped(head.path());
        let relative: PathBuf = Path::new(path.trim_start_matches('/')).components().collect();
        let file = folders.iter().map(|folder| folder.join(&relative)).find(|file| file.is_file());
        file.map_or(Answer::Text(404, String::new()), Answer::File)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Fault {
    /// Waits until the fault ends, and then answers.
    Silent,
    HangUp,
    /// Answers with this status.
    Status(u16),
    /// Sets the server's clock this many seconds ahead. The server then rejects signatures that are too old, as S3 does.
    Clock(i64),
}

/// The folder through which a test controls its servers. The file `faults/NAME` sets the fault of the server NAME:
/// `silent|hang-up|STATUS|clock SECONDS [PATH]`. With PATH, the fault affects only paths that begin with PATH. The file `requests`
/// has a line for each request: `NAME METHOD TARGET OUTCOME`.
#[derive(Clone, Debug)]
pub struct Controls {
    folder: PathBuf,
}

impl Controls {
    /// Uses this folder, and creates the folder `faults` in it.
    pub fn new(folder: &Path) -> anyhow::Result<Controls> {
        let faults = folder.join("faults");
        fs::create_dir_all(&faults).with_context(|| format!("making {}", faults.display()))?;
        Ok(Controls { folder: folder.to_owned() })
    }

    /// The words in a server's fault file. Empty if the server has no fault.
    pub fn words(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join("faults").join(name)).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect()
    }

    pub fn note(&self, name: &str, asked: &str, outcome: &str) {
        let line = format!("{name} {asked} {outcome}\n");
        let file = OpenOptions::new().create(true).append(true).open(self.folder.join("requests"));
        // An error is ignored, because a test that expects the line fails if the line is missing.
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }

    fn fault(&self, name: &str, path: &str) -> Option<Fault> {
        let words = self.words(name);
        let (fault, rest) = match words.first()?.as_str() {
            "silent" => (Fault::Silent, &words[1..]),
            "hang-up" => (Fault::HangUp, &words[1..]),
            "clock" => (Fault::Clock(words.get(1)?.parse().ok()?), &words[2..]),
            status => (Fault::Status(status.parse().ok()?), &words[1..]),
        };
        rest.first().is_none_or(|prefix| path.starts_with(prefix.as_str())).then_some(fault)
    }
}

/// A server that runs until the process ends.
pub struct Front {
    name: String,
    controls: Controls,
    tls: Option<Arc<ServerConfig>>,
    answer: Box<dyn Fn(&Head) -> Answer + Send + Sync>,
}

impl Front {
    /// Starts a server that responds with the results of `answer`. `name` is the server's name in `controls`. If `tls` is set, the
    /// server requires TLS.
    pub fn start(
        name: &str,
        socket: TcpListener,
        tls: Option<Arc<ServerConfig>>,
        controls: &Controls,
        answer: impl Fn(&Head) -> Answer + Send + Sync + 'static,
    ) -> anyhow::Result<()> {
        let front =
            Front { name: name.to_owned(), controls: controls.clone(), tls, answer: Box::new(answer) };
        let front = Arc::new(front);
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            for client in socket.incoming().flatten() {
                let front = Arc::clone(&front);
                // The error is dropped, because the client sees the failed connection.
                thread::spawn(move || drop(front.accept(client)));
            }
        })?;
        Ok(())
    }

    fn accept(&self, client: TcpStream) -> anyhow::Result<()> {
        match &self.tls {
            None => self.serve(client),
            Some(config) => {
                let mut session = ServerConnection::new(Arc::clone(config))?;
                let mut client = client;
                // A client that does not trust the certificate closes the connection here, so the log gets a line for this failure.
                if let Err(error) = session.complete_io(&mut client) {
                    self.controls.note(&self.name, "- -", &format!("tls: {error}").replace(' ', "-"));
                    return Ok(());
                }
                self.serve(StreamOwned::new(session, client))
            }
        }
    }

    fn serve(&self, client: impl Read + Write) -> anyhow::Result<()> {
        let mut client = BufReader::new(client);
        let Some(head) = read_head(&mut client)? else { return Ok(()) };
        let size = head.header("content-length").and_then(|size| size.parse().ok()).unwrap_or_default();
        let mut body = vec![0; size];
        client.read_exact(&mut body)?;
        let mut client = client.into_inner();
        let asked = format!("{} {}", head.method, head.target);
        let outcome = match self.controls.fault(&self.name, head.path()) {
            Some(Fault::HangUp) => {
                self.controls.note(&self.name, &asked, "hung-up");
                return Ok(());
            }
            Some(Fault::Status(status)) => send_text(&mut client, &head, status, "", 0)?,
            Some(Fault::Clock(ahead)) if is_skewed(&head, ahead) => {
                let text = "<?xml version=\"1.0\"?><Error><Code>RequestTimeTooSkewed</Code>\
                            <Message>The difference between the request time and the current time is too large.</Message></Error>";
                send_text(&mut client, &head, 403, text, ahead)?;
                "skewed".to_owned()
            }
            Some(Fault::Silent) => {
                self.controls.note(&self.name, &asked, "held");
                while self.controls.fault(&self.name, head.path()) == Some(Fault::Silent) {
                    thread::sleep(POLL);
                }
                self.send(&mut client, &head, &body)?
            }
            None | Some(Fault::Clock(_)) => self.send(&mut client, &head, &body)?,
        };
        self.controls.note(&self.name, &asked, &outcome);
        client.flush()?;
        Ok(())
    }

    /// Sends the response of a server without a fault. Returns the status.
    fn send(&self, client: &mut impl Write, head: &Head, body: &[u8]) -> anyhow::Result<String> {
        match (self.answer)(head) {
            Answer::Text(status, text) => send_text(client, head, status, &text, 0),
            Answer::File(path) => match File::open(&path) {
                Ok(file) if path.is_file() => send_file(client, head, file),
                _ => send_text(client, head, 404, "", 0),
            },
            Answer::Of(address) => pass_on(client, head, body, address),
        }
    }
}

/// Reads a request's head, which ends with an empty line. Returns `None` if the client has closed the connection.
fn read_head(client: &mut impl BufRead) -> anyhow::Result<Option<Head>> {
    let mut lines = client.take(LONGEST_HEAD).lines();
    let Some(first) = lines.next().transpose()? else { return Ok(None) };
    let mut words = first.split(' ').map(str::to_owned);
    let mut head = Head {
        method: words.next().unwrap_or_default(),
        target: words.next().context("a request without a path")?,
        headers: Vec::new(),
    };
    for line in lines {
        let line = line?;
        if line.is_empty() {
            return Ok(Some(head));
        }
        let (name, value) = line.split_once(':').context("a header without a colon")?;
        head.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    anyhow::bail!("the head of a request has no end")
}

/// Whether the time in a request's signature is too far from the server's clock, which is `ahead` seconds ahead.
fn is_skewed(head: &Head, ahead: i64) -> bool {
    let format = format_description!("[year][month][day]T[hour][minute][second]Z");
    let signed = head.header("x-amz-date").and_then(|date| PrimitiveDateTime::parse(date, &format).ok());
    let now = OffsetDateTime::now_utc() + time::Duration::seconds(ahead);
    signed.is_some_and(|signed| (now - signed.assume_utc()).unsigned_abs() > LARGEST_SKEW)
}

fn send_text(
    client: &mut impl Write,
    head: &Head,
    status: u16,
    text: &str,
    ahead: i64,
) -> anyhow::Result<String> {
    let size = text.len();
    write_head(client, status, size as u64, ahead)?;
    if head.method != "HEAD" {
        client.write_all(text.as_bytes())?;
    }
    Ok(status.to_string())
}

fn send_file(client: &mut impl Write, head: &Head, mut file: File) -> anyhow::Result<String> {
    write_head(client, 200, file.metadata()?.len(), 0)?;
    if head.method != "HEAD" {
        io::copy(&mut file, client)?;
    }
    Ok("200".to_owned())
}

fn write_head(client: &mut impl Write, status: u16, size: u64, ahead: i64) -> anyhow::Result<()> {
    let format = format_description!(
        "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
    );
    let date = (OffsetDateTime::now_utc() + time::Duration::seconds(ahead)).format(&format)?;
    let kind = if status == 403 { "application/xml" } else { "application/octet-stream" };
    write!(
        client,
        "HTTP/1.1 {status} \r\ndate: {date}\r\ncontent-type: {kind}\r\ncontent-length: {size}\r\nconnection: close\r\n\r\n"
    )?;
    Ok(())
}

/// Forwards this request to the server at `address`, and sends the response to the client.
fn pass_on(client: &mut impl Write, head: &Head, body: &[u8], address: SocketAddr) -> anyhow::Result<String> {
    let mut server = TcpStream::connect(address)?;
    let mut request = format!("{} {} HTTP/1.1\r\n", head.method, head.target);
    for (name, value) in head.headers.iter().filter(|(name, _)| name != "connection") {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("connection: close\r\n\r\n");
    server.write_all(request.as_bytes())?;
    server.write_all(body)?;
    let mut server = BufReader::new(server);
    let mut first = String::new();
    server.read_line(&mut first)?;
    client.write_all(first.as_bytes())?;
    io::copy(&mut server, client)?;
    Ok(first.split(' ').nth(1).unwrap_or("none").to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::Ipv4Addr;

    use super::*;

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    fn start(folder: &Path, answer: impl Fn(&Head) -> Answer + Send + Sync + 'static) -> SocketAddr {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        Front::start("store", socket, None, &Controls::new(folder).unwrap(), answer).unwrap();
        address
    }

    #[test]
    fn it_fails_while_its_fault_file_exists() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "content").unwrap();
        let origin = start(&folder.path().join("origin"), move |_| Answer::File(file.clone()));
        let front = start(folder.path(), move |_| Answer::Of(origin));
        let fault = folder.path().join("faults/store");
        let get = "GET /a?b HTTP/1.1\r\nHost: x\r\n\r\n";
        assert!(ask(front, get).ends_with("\r\n\r\ncontent"));
        fs::write(&fault, "503 /a\n").unwrap();
        assert!(ask(front, get).starts_with("HTTP/1.1 503 "));
        assert!(ask(front, "HEAD /b HTTP/1.1\r\n\r\n").contains("content-length: 7\r\n"));
        fs::write(&fault, "hang-up").unwrap();
        assert_eq!(ask(front, get), "");
        fs::write(&fault, "silent").unwrap();
        let held = thread::spawn(move || ask(front, get));
        let requests = || fs::read_to_string(folder.path().join("requests")).unwrap();
        while !requests().contains("held") {
            thread::sleep(POLL);
        }
        fs::remove_file(&fault).unwrap();
        assert!(held.join().unwrap().ends_with("content"));
        // The server logs an outcome after it has sent the response.
        while requests().lines().count() < 6 {
            thread::sleep(POLL);
        }
        assert_eq!(
            requests(),
            "store GET /a?b 200\nstore GET /a?b 503\nstore HEAD /b 200\nstore GET /a?b hung-up\nstore GET /a?b held\nstore GET /a?b 200\n"
        );
    }

    #[test]
    fn a_signature_with_a_wrong_time_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let front = start(folder.path(), |_| Answer::Text(200, "fine".into()));
        let format = format_description!("[year][month][day]T[hour][minute][second]Z");
        let now = OffsetDateTime::now_utc().format(&format).unwrap();
        let get = format!("GET / HTTP/1.1\r\nX-Amz-Date: {now}\r\n\r\n");
        assert!(ask(front, &get).ends_with("fine"));
        fs::write(folder.path().join("faults/store"), "clock 3600").unwrap();
        assert!(ask(front, &get).contains("<Code>RequestTimeTooSkewed</Code>"));
        fs::write(folder.path().join("faults/store"), "clock -60").unwrap();
        assert!(ask(front, &get).ends_with("fine"));
    }
}
