//! A name server on port 53 of a network namespace. It fails for a while, and then resolves every name of a test.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use parking_lot::Mutex;

/// The size of a message header, in bytes (RFC 1035, section 4.1.1).
const HEADER: usize = 12;
const A: u16 = 1;
/// The type of an IPv6 address record (RFC 3596, section 2.1).
const AAAA: u16 = 28;
const INTERNET: u16 = 1;
/// How often the server checks whether it must stop.
const POLL: Duration = Duration::from_millis(20);
/// How long to retry a bind while a forked process still has the socket of port 53.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);
/// The size of the buffer for a question, in bytes. A question without extensions has at most 512 bytes (RFC 1035, section 4.2.1).
const LARGEST: usize = 4096;

/// How a name server fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameFault {
    /// Answers that the server cannot resolve the name (`SERVFAIL`).
    CannotTell,
    /// Answers that the name does not exist (`NXDOMAIN`).
    NoSuchName,
    Silent,
    /// Answers with kOps' placeholder address, which is in DNS until the cluster has a control plane (`pkg/dns/placeholder.go`).
    Placeholder,
}

/// A running name server. Dropping it stops the server.
pub struct NameServer {
    asked: Arc<Mutex<BTreeMap<String, usize>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    /// Answers the first questions for each name in `failing` with `fault`, and all other questions with 127.0.0.1. The number after a
    /// name is the number of failing questions. Needs port 53 of the loopback interface.
    pub fn start(fault: NameFault, failing: &[(&str, usize)]) -> anyhow::Result<NameServer> {
        let failing: BTreeMap<String, usize> =
            failing.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        NameServer::start_on(
            port_53().context("taking port 53 of the loopback interface")?,
            move |name, count| {
                let fault = failing.get(name).filter(|most| count <= **most).map(|_| fault);
                (fault, Ipv4Addr::LOCALHOST.into())
            },
        )
    }

    /// Answers on this socket. `answer` gets a name and the number of questions for this name so far, and returns a fault or an address. If
    /// the question is not for the family of this address, the response has no address.
    pub fn start_on(
        socket: UdpSocket,
        answer: impl Fn(&str, usize) -> (Option<NameFault>, IpAddr) + Send + 'static,
    ) -> anyhow::Result<NameServer> {
        socket.set_read_timeout(Some(POLL))?;
        let (asked, stop) = (Arc::<Mutex<BTreeMap<String, usize>>>::default(), Arc::<AtomicBool>::default());
        let (counts, is_over) = (Arc::clone(&asked), Arc::clone(&stop));
        let thread = thread::Builder::new().name("names".into()).spawn(move || {
            let mut packet = [0; LARGEST];
            while !is_over.load(Ordering::Relaxed) {
                let Ok((size, from)) = socket.recv_from(&mut packet) else { continue };
                let Some(question) = Question::read(&packet[..size]) else { continue };
                let mut counts = counts.lock();
                let count = counts.entry(question.name.clone()).or_default();
                *count += 1;
                let (fault, address) = answer(&question.name, *count);
                drop(counts);
                send(&socket, from, &question, fault, address);
            }
        })?;
        Ok(NameServer { asked, stop, thread: Some(thread) })
    }

    /// The number of questions for a name so far.
    pub fn asked(&self, name: &str) -> usize {
        let asked = self.asked.lock();
        asked.get(name).copied().unwrap_or_default()
    }
}

/// Binds port 53. Retries if the port is in use: a process that a concurrent test has just forked may still have the socket of the
/// previous server. The forked process closes the socket when it executes its program.
fn port_53() -> io::Result<UdpSocket> {
    let begun = Instant::now();
    loop {
        match UdpSocket::bind((Ipv4Addr::LOCALHOST, 53)) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && begun.elapsed() < TAKEN_WITHIN => {
                thread::sleep(POLL);
            }
            taken => return taken,
        }
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One question (RFC 1035, section 4.1.2).
#[derive(Debug, PartialEq, Eq)]
struct Question {
    id: [u8; 2],
    name: String,
    kind: u16,
    bytes: Vec<u8>,
}

impl Question {
    fn read(packet: &[u8]) -> Option<Question> {
        let id = [*packet.first()?, *packet.get(1)?];
        let (mut at, mut labels) = (HEADER, Vec::new());
        loop {
            let size = usize::from(*packet.get(at)?);
            at += 1;
            if size == 0 {
                break;
            }
            labels.push(String::from_utf8_lossy(packet.get(at..at + size)?).to_ascii_lowercase());
            at += size;
        }
        let kind = u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]);
        let bytes = packet.get(HEADER..at + 4)?.to_vec();
        Some(Question { id, name: labels.join("."), kind, bytes })
    }

    /// The response with this code. If the code is 0 and the question is for the address family of `address`, the response contains
    /// `address`.
    fn answer(&self, code: u8, address: IpAddr) -> Vec<u8> {
        let (kind, bytes) = match address {
            IpAddr::V4(address) => (A, address.octets().to_vec()),
            IpAddr::V6(address) => (AAAA, address.octets().to_vec()),
        };
        let has_address = code == 0 && self.kind == kind;
        let mut packet = self.id.to_vec();
        // Flags: a response, recursion desired and available. Counts: one question, and one answer if there is an address.
        packet.extend([0x81, 0x80 | code, 0, 1, 0, u8::from(has_address), 0, 0, 0, 0]);
        packet.extend(&self.bytes);
        if has_address {
            // A pointer to the name in the question. The answer is valid for one second.
            packet.extend([0xc0, 0x0c]);
            packet.extend(kind.to_be_bytes());
            packet.extend(INTERNET.to_be_bytes());
            packet.extend([0, 0, 0, 1]);
            packet.extend(u16::try_from(bytes.len()).unwrap_or_default().to_be_bytes());
            packet.extend(bytes);
        }
        packet
    }
}

fn send(socket: &UdpSocket, to: SocketAddr, question: &Question, fault: Option<NameFault>, address: IpAddr) {
    let code = match fault {
        Some(NameFault::Silent) => return,
        Some(NameFault::CannotTell) => 2,
        Some(NameFault::NoSuchName) => 3,
        Some(NameFault::Placeholder) | None => 0,
    };
    let address = match fault {
        Some(NameFault::Placeholder) => Ipv4Addr::new(203, 0, 113, 123).into(),
        _ => address,
    };
    // An error is ignored, because a client without an answer retries.
    let _ = socket.send_to(&question.answer(code, address), to);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_and_answered() {
        let mut packet = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        packet.extend(b"\x05STORE\x04test\x00\x00\x01\x00\x01");
        let question = Question::read(&packet).unwrap();
        assert_eq!((question.name.as_str(), question.kind), ("store.test", A));
        let (ipv4, ipv6) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 7]));
        let answer = question.answer(0, ipv4);
        assert_eq!(answer[..8], [7, 9, 0x81, 0x80, 0, 1, 0, 1]);
        assert_eq!(answer[answer.len() - 6..], [0, 4, 127, 0, 0, 1]);
        assert_eq!(question.answer(3, ipv4)[3..8], [0x83, 0, 1, 0, 0]);
        assert_eq!(question.answer(0, ipv6)[3..8], [0x80, 0, 1, 0, 0]);
        let of_ipv6 = Question { kind: AAAA, ..Question::read(&packet).unwrap() };
        let answer = of_ipv6.answer(0, ipv6);
        assert_eq!(answer[answer.len() - 18..answer.len() - 12], [0, 16, 0x20, 1, 0xd, 0xb8]);
        assert_eq!(of_ipv6.answer(0, ipv4)[3..8], [0x80, 0, 1, 0, 0]);
        for size in 0..packet.len() {
            assert_eq!(Question::read(&packet[..size]), None, "{size}");
        }
    }
}
