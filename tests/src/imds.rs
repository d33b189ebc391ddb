//! A stand-in for EC2's metadata service (IMDSv2). It serves each machine of a test its own items, by the machine's address.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::Service;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;

use crate::loopback::LoopbackServer;
use crate::sts::Principal;

const TOKEN: &str = "the-token";

/// The metadata items of an instance. The key is the path below `/latest/meta-data/`. The item [`USER_DATA`] is its
/// user-data.
pub type Instance = BTreeMap<String, String>;

/// The key of the user-data in an [`Instance`]. It is a path relative to `/latest/meta-data/`.
pub const USER_DATA: &str = "../user-data";

/// The MAC address of the machine at an address. The MAC address ends with the last four bytes of the IP address.
pub fn mac_of(address: IpAddr) -> String {
    let [.., a, b, c, d] = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
    .octets();
    format!("02:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

/// The path of a metadata item of the network interface with this MAC address.
pub fn item_of_interface(mac: &str, item: &str) -> String {
    format!("network/interfaces/macs/{mac}/{item}")
}

/// The metadata items with the credentials of an instance's role.
///
/// Source: EC2, "Retrieve security credentials from instance metadata".
pub fn credentials_of(principal: &Principal) -> Instance {
    let role = principal.arn.rsplit('/').nth(1).unwrap_or_default();
    let credentials = json!({
        "Code": "Success", "LastUpdated": "2026-01-01T00:00:00Z", "Type": "AWS-HMAC", "Expiration": "2099-01-01T00:00:00Z",
        "AccessKeyId": principal.access_key, "SecretAccessKey": principal.secret, "Token": principal.session_token,
    });
    let below = "iam/security-credentials";
    [
        (below.to_owned(), role.to_owned()),
        (format!("{below}/"), role.to_owned()),
        (format!("{below}/{role}"), credentials.to_string()),
    ]
    .into()
}

/// Serves each instance its own metadata items.
pub fn start(socket: TcpListener, instances: BTreeMap<IpAddr, Instance>) -> anyhow::Result<LoopbackServer> {
    start_telling(socket, move |client| instances.get(&client).cloned().unwrap_or_default())
}

/// Serves each client the metadata items that `told` returns for the client's address at the time of the request.
pub fn start_telling(
    socket: TcpListener,
    told: impl Fn(IpAddr) -> Instance + Send + Sync + 'static,
) -> anyhow::Result<LoopbackServer> {
    let told = Arc::new(told);
    LoopbackServer::start_on("metadata", socket, move |client| Metadata { client, told: told.clone() })
}

struct Metadata<F> {
    client: IpAddr,
    told: Arc<F>,
}

impl<F: Fn(IpAddr) -> Instance> Service<Request<Incoming>> for Metadata<F> {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (status, text) = self.answer(&request);
        let is_token = text == TOKEN;
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        if is_token {
            // The token's lifetime in seconds. AWS' own clients reject a token without this header.
            response.headers_mut().insert("x-aws-ec2-metadata-token-ttl-seconds", 21600.into());
        }
        ready(Ok(response))
    }
}

impl<F: Fn(IpAddr) -> Instance> Metadata<F> {
    fn answer(&self, request: &Request<Incoming>) -> (StatusCode, String) {
        let path = request.uri().path();
        if path == "/latest/api/token" {
            let is_asked = request.method() == Method::PUT
                && request.headers().contains_key("x-aws-ec2-metadata-token-ttl-seconds");
            return if is_asked {
                (StatusCode::OK, TOKEN.into())
            } else {
                (StatusCode::BAD_REQUEST, String::new())
            };
        }
        if request.headers().get("x-aws-ec2-metadata-token").is_none_or(|token| token != TOKEN) {
            return (StatusCode::UNAUTHORIZED, String::new());
        }
        let item = match path {
            "/latest/user-data" => Some(USER_DATA),
            _ => path.strip_prefix("/latest/meta-data/"),
        };
        match item.and_then(|item| (self.told)(self.client).remove(item)) {
            Some(text) => (StatusCode::OK, text),
            None => (StatusCode::NOT_FOUND, String::new()),
        }
    }
}
