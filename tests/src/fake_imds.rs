//! A stand-in for EC2's metadata service on loopback. It is strict about tokens, and it can fail as a
//! real one does.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::sync::Arc;

use hyper::Request;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::net::TcpListener;

use crate::test_server::{Answer, HangUp, TestServer, text};

/// A failure of one request.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    /// Answers 503.
    Starting,
    /// Closes the connection without an answer.
    HangUp,
}

#[derive(Debug)]
struct State {
    troubles: VecDeque<Trouble>,
    tokens_given: u32,
    questions_with_token: u32,
    questions_per_token: u32,
    credentials_missing_for: u32,
    prefix: Option<&'static str>,
}

#[derive(Debug)]
pub struct FakeImds {
    server: TestServer,
    state: Arc<Mutex<State>>,
}

impl FakeImds {
    /// Starts a service. The first request fails with the first of these troubles, the second request with the second, and so on.
    pub async fn start(troubles: &[Trouble]) -> FakeImds {
        FakeImds::start_on(TcpListener::bind("127.0.0.1:0").await.unwrap(), troubles)
    }

    /// Like `start`, on this socket.
    pub fn start_on(listener: TcpListener, troubles: &[Trouble]) -> FakeImds {
        let state = Arc::new(Mutex::new(State {
            troubles: troubles.iter().copied().collect(),
            tokens_given: 0,
            questions_with_token: 0,
            questions_per_token: u32::MAX,
            credentials_missing_for: 0,
            prefix: None,
        }));
        let shared = state.clone();
        let server = TestServer::start_on(listener, move |request| {
            let answer = answer(&mut shared.lock(), &request);
            async move { answer }
        });
        FakeImds { server, state }
    }

    pub fn url(&self) -> String {
        self.server.url.clone()
    }

    pub fn tokens_given(&self) -> u32 {
        self.state.lock().tokens_given
    }

    /// Limits each token to this many requests.
    pub fn let_tokens_expire_after(&self, questions: u32) {
        self.state.lock().questions_per_token = questions;
    }

    /// Serves this IPv6 prefix in later responses.
    pub fn give_prefix(&self, prefix: &'static str) {
        self.state.lock().prefix = Some(prefix);
    }

    /// Answers 404 to the next `questions` requests for the role's name.
    pub fn let_credentials_be_late(&self, questions: u32) {
        self.state.lock().credentials_missing_for = questions;
    }
}

fn answer(state: &mut State, request: &Request<Incoming>) -> Answer {
    match state.troubles.pop_front() {
        Some(Trouble::Starting) => return Ok(text(503, "")),
        Some(Trouble::HangUp) => return Err(HangUp),
        None => {}
    }
    let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let path = request.uri().path();
    if path == "/latest/api/token" {
        if request.method() != "PUT" || header("x-aws-ec2-metadata-token-ttl-seconds").is_none() {
            return Ok(text(400, ""));
        }
        state.tokens_given += 1;
        state.questions_with_token = 0;
        let mut token = text(200, &format!("token-{}", state.tokens_given));
        token.headers_mut().insert("x-aws-ec2-metadata-token-ttl-seconds", 21600.into());
        return Ok(token);
    }
    state.questions_with_token += 1;
    let valid = header("x-aws-ec2-metadata-token") == Some(format!("token-{}", state.tokens_given));
    if request.method() != "GET" || !valid || state.questions_with_token > state.questions_per_token {
        return Ok(text(401, "<html>401 - Unauthorized</html>"));
    }
    Ok(match path.strip_prefix("/latest/meta-data/").unwrap_or_default() {
        "instance-id" => text(200, "i-0123456789abcdef0"),
        "instance-type" => text(200, "m5.large"),
        "ami-id" => text(200, "ami-0123456789abcdef0"),
        "placement/region" => text(200, "eu-west-1"),
        "placement/availability-zone" => text(200, "eu-west-1a"),
        "local-ipv4" => text(200, "172.20.32.10"),
        "local-hostname" => text(200, "ip-172-20-32-10.eu-west-1.compute.internal"),
        "mac" => text(200, "02:00:00:00:00:01"),
        "network/interfaces/macs/02:00:00:00:00:01/interface-id" => text(200, "eni-0123456789abcdef0"),
        "network/interfaces/macs/02:00:00:00:00:01/ipv6-prefix" => match state.prefix {
            Some(prefix) => text(200, prefix),
            None => text(404, ""),
        },
        "iam/security-credentials/" | "iam/security-credentials" if state.credentials_missing_for > 0 => {
            state.credentials_missing_for -= 1;
            text(404, "")
        }
        "iam/security-credentials/" | "iam/security-credentials" => text(200, "nodes.a.example.com"),
        "iam/security-credentials/nodes.a.example.com" => text(
            200,
            r#"{"Code": "Success", "LastUpdated": "2026-01-01T00:00:00Z", "Type": "AWS-HMAC",
                "AccessKeyId": "the-id", "SecretAccessKey": "the-secret", "Token": "the-session",
                "Expiration": "2099-01-01T00:00:00Z"}"#,
        ),
        _ => text(404, "<html>404 - Not Found</html>"),
    })
}
