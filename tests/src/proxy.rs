//! A proxy as operators have them: it takes whole URLs for http, and CONNECT for https.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;

/// A running proxy. It serves until the process ends.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

/// How a proxy reaches what a request is passed on to.
type Connect = dyn Fn(&str) -> std::io::Result<TcpStream> + Send + Sync;

/// What a proxy does besides passing on.
struct Outside {
    on_request: Box<dyn Fn(&str) + Send + Sync>,
    connect: Box<Connect>,
}

impl Proxy {
    /// Starts to listen on loopback. It passes requests for names below `test.` on to this machine: clients use no proxy for loopback
    /// addresses.
    ///
    /// # Errors
    /// If there is no free port.
    pub fn start() -> anyhow::Result<Proxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        Proxy::start_on(
            listener,
            |_| (),
            |target| match target.rsplit_once(".test:") {
                Some((_, port)) => TcpStream::connect(format!("{}:{port}", Ipv4Addr::LOCALHOST)),
                None => TcpStream::connect(target),
            },
        )
    }

    /// Starts to listen on this socket. `on_request` is called with the first line of each request, and `connect` with the host and
    /// the port that it is to be passed on to.
    ///
    /// # Errors
    /// If the socket has no address.
    pub fn start_on(
        listener: TcpListener,
        on_request: impl Fn(&str) + Send + Sync + 'static,
        connect: impl Fn(&str) -> std::io::Result<TcpStream> + Send + Sync + 'static,
    ) -> anyhow::Result<Proxy> {
        let outside = Arc::new(Outside { on_request: Box::new(on_request), connect: Box::new(connect) });
        let proxy = Proxy { address: listener.local_addr()?, asked: Arc::default() };
        let asked = Arc::clone(&proxy.asked);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (asked, outside) = (Arc::clone(&asked), Arc::clone(&outside));
                // A connection that fails shows on both of its sides.
                thread::spawn(move || drop(pass_on(client, &asked, &outside)));
            }
        });
        Ok(proxy)
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The first line of every connection's request so far, without its end: `GET http://…`, `CONNECT host:port`.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

/// Serves one request, and for CONNECT all that follows.
fn pass_on(mut client: TcpStream, asked: &Mutex<Vec<String>>, outside: &Outside) -> std::io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut words = first.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let line = format!("{method} {target}");
    (outside.on_request)(&line);
    asked.lock().push(line);
    let mut headers = String::new();
    while !headers.ends_with("\r\n\r\n") && headers != "\r\n" {
        if reader.read_line(&mut headers)? == 0 {
            return Ok(());
        }
    }
    let mut server = if method == "CONNECT" {
        let server = (outside.connect)(target)?;
        client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
        server
    } else {
        let rest = target.strip_prefix("http://").unwrap_or(target);
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let mut server = (outside.connect)(host)?;
        // One request a connection, so that each of them is seen.
        let headers: String = headers
            .lines()
            .filter(|line| !line.is_empty() && !line.to_ascii_lowercase().starts_with("connection:"))
            .map(|line| format!("{line}\r\n"))
            .collect();
        write!(server, "{method} {path} HTTP/1.1\r\n{headers}connection: close\r\n\r\n")?;
        server
    };
    let (mut to_server, mut from_server) = (server.try_clone()?, server.try_clone()?);
    let upwards = thread::spawn(move || copy(&mut reader, &mut to_server));
    copy(&mut from_server, &mut client);
    client.shutdown(std::net::Shutdown::Both)?;
    server.flush()?;
    drop(upwards.join());
    Ok(())
}

/// Copies until one side ends.
fn copy(from: &mut dyn Read, to: &mut TcpStream) {
    // Both ends see how it ended.
    let _ = std::io::copy(from, to);
    let _ = to.shutdown(std::net::Shutdown::Write);
}
