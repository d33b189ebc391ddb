//! A proxy as operators have them: it takes whole URLs for http, and CONNECT for https.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// A running proxy. It serves until the process ends.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// Starts to listen on loopback.
    ///
    /// # Errors
    /// If there is no free port.
    pub fn start() -> anyhow::Result<Proxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let proxy = Proxy { address: listener.local_addr()?, asked: Arc::default() };
        let asked = Arc::clone(&proxy.asked);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let asked = Arc::clone(&asked);
                // A connection that fails shows on both of its sides.
                thread::spawn(move || drop(pass_on(client, &asked)));
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
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Serves one request, and for CONNECT all that follows.
fn pass_on(mut client: TcpStream, asked: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut words = first.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    asked.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{method} {target}"));
    let mut headers = String::new();
    while !headers.ends_with("\r\n\r\n") && headers != "\r\n" {
        if reader.read_line(&mut headers)? == 0 {
            return Ok(());
        }
    }
    let mut server = if method == "CONNECT" {
        let server = TcpStream::connect(target)?;
        client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
        server
    } else {
        let rest = target.strip_prefix("http://").unwrap_or(target);
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let mut server = TcpStream::connect(host)?;
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
