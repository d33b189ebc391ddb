//! Clients of the bootstrap server, each from an address of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;

/// A limit, in bytes, that is larger than any response to a machine.
const LONGEST_ANSWER: u64 = 1 << 20;

pub async fn connect(from: Ipv4Addr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    let stream = socket.connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The HTTP text of a bootstrap request.
pub fn post(token: &str, body: &str) -> String {
    format!(
        "POST /bootstrap HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Sends a request by TLS, and returns the status and the body of the response. `None` if no response comes.
pub async fn exchange(
    stream: TcpStream,
    trust: &Arc<ClientConfig>,
    name: &ServerName<'static>,
    request: &str,
) -> Option<(u16, String)> {
    let mut stream = TlsConnector::from(trust.clone()).connect(name.clone(), stream).await.ok()?;
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    // The error is dropped, because some servers close the connection without ending TLS.
    let _ = stream.take(LONGEST_ANSWER).read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    Some((status, answer.split_once("\r\n\r\n")?.1.to_owned()))
}
