//! An HTTP proxy, as operators run it. It accepts whole URLs for http, and CONNECT for https.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;

/// A running proxy, which serves until the process ends.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

/// A function that connects to the target of a request.
type Connect = dyn Fn(&str) -> std::io::Result<TcpStream> + Send + Sync;

/// The functions that a proxy calls for each request.
struct Outside {
    on_request: Box<dyn Fn(&str) + Send + Sync>,
    connect: Box<Connect>,
}

impl Proxy {
    /// Starts a proxy on loopback. The proxy forwards requests for names in the domain `test` to the loopback address. Tests need these
    /// names, because clients use no proxy for the loopback address itself.
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

    /// Starts a proxy on this socket. The proxy calls `on_request` with the method and target of each request, and `connect` with the
    /// host and port of the target.
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
                // The error is dropped, because the client and the target see the failed connection.
                thread::spawn(move || drop(pass_on(client, &asked, &outside)));
            }
        });
        Ok(proxy)
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The method and target of each request so far: `GET http://…`, `CONNECT host:port`.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

/// Serves one request. After CONNECT, copies bytes in both directions.
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
        // Only one request is sent in each connection, so that the proxy sees every request.
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

/// Copies bytes until one side closes.
fn copy(from: &mut dyn Read, to: &mut TcpStream) {
    // The error is dropped, because the client and the server both notice the failed copy.
    let _ = std::io::copy(from, to);
    let _ = to.shutdown(std::net::Shutdown::Write);
}
