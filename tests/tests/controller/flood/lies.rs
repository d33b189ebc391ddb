//! The lies that are the same on every cloud. They misuse TLS, HTTP or a valid token.

use std::sync::Arc;

use serde_json::json;

use super::honest::Granted;
use super::manners::{Answer, Manner, Then};
use crate::client::post;

pub struct Lie {
    pub what: &'static str,
    /// The permitted answers if the server receives the lie. Any other answer fails the test.
    pub expected: &'static [Answer],
    /// Returns the behavior of the liar. Each call gets a different number, so that the lies can differ.
    pub manner: Box<dyn Fn(usize) -> Manner + Send + Sync>,
}

/// A function that returns a valid token for a request body. The token identifies a machine of the cluster.
pub type Insider = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// The server verifies the token and rejects it.
pub const FORBIDDEN: &[Answer] = &[Answer::Status(403)];
/// The server answers 400, because its call-back to the machine fails, or because the request is malformed.
pub const BAD_REQUEST: &[Answer] = &[Answer::Status(400)];
const NOT_FOUND: &[Answer] = &[Answer::Status(404)];
const NOT_ALLOWED: &[Answer] = &[Answer::Status(405)];
const LATE: &[Answer] = &[Answer::Status(408)];
const LARGE: &[Answer] = &[Answer::Status(413)];
const HUNG_UP: &[Answer] = &[Answer::HungUp];
const NO_TLS: &[Answer] = &[Answer::HungUp, Answer::Alert];
const ALERT: &[Answer] = &[Answer::Alert];
/// The server answers 413 and closes the connection. A client that is still sending may miss the answer.
const LARGE_OR_DEAF: &[Answer] = &[Answer::Status(413), Answer::HungUp];
const LONG_OR_DEAF: &[Answer] = &[Answer::Status(431), Answer::HungUp];
const NO_HTTP: &[Answer] = &[Answer::Status(400), Answer::HungUp];

/// Paths that differ from `/bootstrap`, but that some servers treat as `/bootstrap`.
const PATHS: [&str; 10] = [
    "//bootstrap",
    "/bootstrap/",
    "/bootstrap/../bootstrap",
    "/healthz/../bootstrap",
    "/./bootstrap",
    "/%62ootstrap",
    "/bootstrap%2f..",
    "/bootstrap%00",
    "/BOOTSTRAP",
    "/bootstrap;a=b",
];
const METHODS: [&str; 6] = ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "POSTED"];

pub fn with_token(
    what: &'static str,
    expected: &'static [Answer],
    token: impl Fn(usize, &str) -> String + Send + Sync + 'static,
) -> Lie {
    lie(what, expected, move |number| {
        let body = request(number);
        asks(&token(number, &body), &body)
    })
}

/// Like `with_token`, but the requests contain a challenge for a call-back.
pub fn with_challenge(
    what: &'static str,
    expected: &'static [Answer],
    token: impl Fn(usize, &str) -> String + Send + Sync + 'static,
) -> Lie {
    lie(what, expected, move |number| {
        let body = json!({
            "apiVersion": "bootstrap.kops.k8s.io/v1alpha1", "includeNodeConfig": true, "lie": number,
            "challenge": {"endpoint": "x", "ca": "eA==", "challengeID": "x", "challengeSecret": "eA=="}
        })
        .to_string();
        asks(&token(number, &body), &body)
    })
}

/// A lie that sends a granted request and its token a second time.
pub fn once_more(granted: &Arc<Granted>) -> Lie {
    let granted = granted.clone();
    lie("a token and its request once more", FORBIDDEN, move |number| {
        let (token, body) = granted.any(number);
        asks(&token, &body)
    })
}

fn lie(
    what: &'static str,
    expected: &'static [Answer],
    manner: impl Fn(usize) -> Manner + Send + Sync + 'static,
) -> Lie {
    Lie { what, expected, manner: Box::new(manner) }
}

fn asks(token: &str, body: &str) -> Manner {
    Manner::Request(post(token, body).into_bytes(), Then::Silence)
}

/// Like `asks`, but with this request line.
fn asks_otherwise(token: &str, body: &str, first_line: &str) -> Manner {
    let request = post(token, body).replacen("POST /bootstrap HTTP/1.1", first_line, 1);
    Manner::Request(request.into_bytes(), Then::Silence)
}

/// The head of a request. `header` describes the body.
fn head(header: &str) -> Vec<u8> {
    format!("POST /bootstrap HTTP/1.1\r\nHost: x\r\nAuthorization: x-aws-sts e30\r\n{header}\r\n\r\n")
        .into_bytes()
}

/// A request that is different for each number. With a valid token, the server grants the request.
pub fn request(number: usize) -> String {
    json!({"apiVersion": "bootstrap.kops.k8s.io/v1alpha1", "certs": {}, "includeNodeConfig": true, "lie": number})
        .to_string()
}

/// Lies that break the TLS protocol, or use TLS wrongly.
pub fn of_tls() -> Vec<Lie> {
    vec![
        lie("connects, and is silent", NO_TLS, |_| Manner::Plain(Vec::new())),
        lie("junk instead of TLS", NO_TLS, |number| Manner::Plain(junk(number, 512))),
        lie("HTTP without TLS", NO_TLS, |_| Manner::Plain(post("x-aws-sts e30", "{}").into_bytes())),
        lie("half a handshake", NO_TLS, |_| Manner::BrokenHandshake(40, Vec::new())),
        // The server answers the beginning of the handshake. Its answer to the junk is not checked.
        lie("a handshake, then junk", HUNG_UP, |number| {
            Manner::BrokenHandshake(usize::MAX, junk(number, 512))
        }),
        lie("a client's certificate with 20 others of one name", NO_TLS, |_| Manner::Chain),
        lie("a handshake within TLS", ALERT, |_| Manner::Renegotiation),
        lie("nothing but HTTP/2", ALERT, |_| Manner::OnlyHttp2),
        lie("HTTP/2 without asking for it", NO_HTTP, |_| {
            let mut frames = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
            // A thousand HEADERS frames. Each opens a new stream.
            frames.extend((0..1000u32).flat_map(|stream| {
                let [a, b, c, d] = (2 * stream + 1).to_be_bytes();
                [0, 0, 1, 1, 4, a, b, c, d, 0x82]
            }));
            Manner::Request(frames, Then::Silence)
        }),
    ]
}

/// Lies without a complete and acceptable HTTP request.
pub fn of_http() -> Vec<Lie> {
    vec![
        lie("a header a byte a second", &[Answer::HungUp, Answer::Status(408)], |_| {
            Manner::Request(Vec::new(), Then::Slowly(head("Content-Length: 2")))
        }),
        lie("half a header", &[Answer::HungUp, Answer::Status(408)], |_| {
            Manner::Request(b"POST /bootstrap HTTP/1.1\r\nHost".to_vec(), Then::Silence)
        }),
        lie("a header without end", LONG_OR_DEAF, |_| {
            let begin = b"POST /bootstrap HTTP/1.1\r\nHost: x\r\nX-More: ".to_vec();
            Manner::Request(begin, Then::Forever(vec![b'a'; 4096]))
        }),
        lie("a token of 20 KiB", LONG_OR_DEAF, |_| {
            asks(&format!("x-aws-sts {}", "A".repeat(20 << 10)), "{}")
        }),
        lie("a body a byte a second", LATE, |_| {
            Manner::Request(head("Content-Length: 64"), Then::Slowly(vec![b' '; 64]))
        }),
        lie("no body at all", LATE, |_| Manner::Request(head("Content-Length: 64"), Then::Silence)),
        lie("a body of 32 KiB without its end", LATE, |_| {
            let most = vec![b' '; (32 << 10) - 1];
            Manner::Request([head("Content-Length: 32768"), most].concat(), Then::Silence)
        }),
        lie("a body of 1 GiB, as it says", LARGE, |_| {
            Manner::Request(head("Content-Length: 1073741824"), Then::Silence)
        }),
        lie("a body of 1 GiB, and sends it", LARGE_OR_DEAF, |_| {
            Manner::Request(head("Content-Length: 1073741824"), Then::Forever(vec![b' '; 16 << 10]))
        }),
        lie("a body without end, and does not say so", LARGE_OR_DEAF, |_| {
            let chunk = format!("4000\r\n{}\r\n", " ".repeat(0x4000));
            Manner::Request(head("Transfer-Encoding: chunked"), Then::Forever(chunk.into_bytes()))
        }),
        lie("no token", FORBIDDEN, |number| {
            let body = request(number);
            let post = post("", &body).replacen("Authorization: \r\n", "", 1);
            Manner::Request(post.into_bytes(), Then::Silence)
        }),
        with_token("another kind of token", FORBIDDEN, |_, _| "Bearer x".into()),
    ]
}

/// Lies that misuse a valid token.
pub fn of_insiders(insider: &Insider) -> Vec<Lie> {
    let with = |what, expected, manner: fn(&Insider, usize) -> Manner| {
        let insider = insider.clone();
        lie(what, expected, move |number| manner(&insider, number))
    };
    vec![
        with("another path", NOT_FOUND, |insider, number| {
            let (body, path) = (request(number), PATHS[number % PATHS.len()]);
            asks_otherwise(&insider(&body), &body, &format!("POST {path} HTTP/1.1"))
        }),
        with("another method", NOT_ALLOWED, |insider, number| {
            let (body, method) = (request(number), METHODS[number % METHODS.len()]);
            asks_otherwise(&insider(&body), &body, &format!("{method} /bootstrap HTTP/1.1"))
        }),
        with("another body than the one signed", FORBIDDEN, |insider, number| {
            asks(&insider(&request(number)), &request(number + 1))
        }),
        with("two tokens", FORBIDDEN, |insider, number| {
            let body = request(number);
            let token = insider(&body);
            asks(&format!("{token}\r\nAuthorization: {token}"), &body)
        }),
        with("a request within another's body", FORBIDDEN, |insider, number| {
            let body = request(number);
            let hidden = post(&insider(&body), &body);
            let head = head(&format!("Transfer-Encoding: chunked\r\nContent-Length: {}", hidden.len()));
            Manner::Request([head, b"0\r\n\r\n".to_vec(), hidden.into_bytes()].concat(), Then::Silence)
        }),
        with("no JSON", BAD_REQUEST, |insider, number| {
            let body = format!("{{{number}");
            asks(&insider(&body), &body)
        }),
        with("another version", BAD_REQUEST, |insider, number| {
            let body = request(number).replace("v1alpha1", "v1");
            asks(&insider(&body), &body)
        }),
        with("certificates of names that no node has", BAD_REQUEST, |insider, number| {
            let body = json!({
                "apiVersion": "bootstrap.kops.k8s.io/v1alpha1", "lie": number,
                "certs": {"cluster-admin": "-----BEGIN RSA PUBLIC KEY-----\nAA==\n-----END RSA PUBLIC KEY-----\n"}
            })
            .to_string();
            asks(&insider(&body), &body)
        }),
        with("a certificate for what is no key", BAD_REQUEST, |insider, number| {
            let certs = json!({"kubelet": format!("-----BEGIN RSA PUBLIC KEY-----\n{number}")});
            let body = json!({"apiVersion": "bootstrap.kops.k8s.io/v1alpha1", "certs": certs}).to_string();
            asks(&insider(&body), &body)
        }),
    ]
}

/// Meaningless bytes, which are different for each number.
fn junk(number: usize, count: usize) -> Vec<u8> {
    // A linear congruential generator, with the factors of Knuth's MMIX.
    let mut state = number as u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(count).collect()
}
