//! Verifies machines that ask to become nodes. Each cloud has its own way.
//!
//! A token is checked in two steps. [`Verifier::examine`] checks it without a request, so a flood of bad tokens costs little. If `examine`
//! finds no problem, it returns a [`Verification`], which asks the cloud when it is polled. The number of concurrent verifications is
//! limited.

pub mod admission;
pub mod claims;
mod origin;

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use kops_agent_cluster::bootstrap::challenge::PORT;
use kops_agent_cluster::identity;
use kops_agent_cluster::machine_id::MachineId;
use kops_agent_spec::digest::sha256_hex;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

pub use origin::{LoadBalancing, MachinePrefix, Origin, OwnAddresses, Peers};

/// The longest lifetime of a token of any cloud. The bootstrap server remembers each accepted token for a longer time than this.
pub const LONGEST_TOKEN_LIFE: Duration = Duration::from_secs(24 * 60);

#[derive(Clone, Copy)]
pub struct Presented<'a> {
    /// The header `Authorization`.
    pub token: &'a str,
    /// The whole body. The token must have been made for this body.
    pub body: &'a [u8],
    pub origin: Origin,
    /// The current time, in seconds since 1970.
    pub now: i64,
}

/// A machine, as its cloud describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifiedNode {
    /// The id or path of the instance in its cloud.
    pub instance: String,
    pub node_name: String,
    /// The names and addresses in the machine's serving certificate.
    pub certificate_names: Vec<String>,
    /// The name of the machine's instance group; empty if the machine is in no instance group.
    pub instance_group: String,
    /// The address and port for the call-back (`10.0.0.1:3987`); empty if the address is not known.
    pub challenge_endpoint: String,
    /// The machine's addresses, as the cloud lists them. May be empty if the token alone proves which machine it is.
    pub addresses: Vec<IpAddr>,
    /// When the machine last started (AWS and GCE) or was created (other clouds), in seconds since 1970. If a Node's last sign of life is
    /// before this time, the Node belongs to an earlier machine with the same name. `None` if the cloud does not report the time, or if the
    /// cluster has a second machine with this Node name, to which the Node may belong.
    pub launched: Option<i64>,
}

/// The endpoint for the call-back to the machine with this address. The port is fixed.
pub fn challenge_endpoint(address: &str) -> String {
    match address.contains(':') {
        true => format!("[{address}]:{PORT}"),
        false => format!("{address}:{PORT}"),
    }
}

/// The seconds since 1970 of a time in RFC 3339, as clouds write it; `None` if it cannot be parsed. A time without a zone is in UTC
/// (Linode API v4, "Get a Linode": `created`; Compute API v2.1: `created`).
pub(crate) fn seconds_of(instant: &str) -> Option<i64> {
    let parse = |text: &str| OffsetDateTime::parse(text, &Rfc3339).ok().map(OffsetDateTime::unix_timestamp);
    parse(instant).or_else(|| parse(&format!("{instant}Z")))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub answer: Answer,
    /// The reason in a word. It is a label of a metric, so few different reasons exist.
    pub reason: &'static str,
    /// The reason for the log. It is not sent to the machine, and contains no secret.
    pub message: String,
}

/// How the server answers a request that it rejects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The request does not come from the machine that it names, or this machine may not make the request.
    NotVerified,
    /// The machine did not prove in the call-back that it made the request.
    NotProven,
    /// A Node with the machine's name is already registered.
    AlreadyRegistered,
    /// The request is wrong. The machine is told why.
    BadRequest,
    TooLarge,
    /// The request does not arrive in time.
    TooSlow,
    /// The machine is over its rate limit, and may retry after this many seconds.
    TooOften(u64),
    /// The server is overloaded.
    Busy,
    /// A service that the server needs does not respond.
    Unavailable,
}

impl Refusal {
    /// The refusal of a request that does not come from the machine that it names.
    pub fn not_verified(reason: &'static str, problem: impl fmt::Display) -> Refusal {
        Refusal { answer: Answer::NotVerified, reason, message: problem.to_string() }
    }

    /// The refusal of a machine that, according to its cloud, is not a node of this cluster.
    pub fn of_instance(refusal: &identity::Refusal) -> Refusal {
        Refusal::not_verified(refusal.reason(), refusal)
    }

    /// The refusal because a service that the server needs does not respond.
    pub fn unavailable(reason: &'static str, problem: impl fmt::Display) -> Refusal {
        Refusal { answer: Answer::Unavailable, reason, message: problem.to_string() }
    }
}

/// The proof that the machine itself made the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The token, which no other machine could have made.
    Token,
    /// The source address proves which machine made the request, because the cloud lets only this machine use the address. The token alone
    /// proves nothing, because any machine can create it. A pod that sends from its machine's address passes, too.
    Address,
    /// The machine's answer to the call-back. The token alone proves nothing, because any machine can create it.
    CallBack {
        /// The id of the machine that the token names.
        claimed: MachineId,
    },
}

/// A token that passed the checks that need no request to the cloud.
pub struct Examined<'a> {
    /// A value that identifies the token. The server accepts each fingerprint once.
    pub fingerprint: Vec<u8>,
    /// When the token was made, in seconds since 1970, by the machine's clock. `None` if the token does not contain the time. A token
    /// without a time is useless to an eavesdropper, because the source address or the call-back must also prove the identity.
    pub signed_at: Option<i64>,
    pub proof: Proof,
    /// Asks the cloud. The future does nothing before it is polled, and stops when it is dropped.
    pub verification: Verification<'a>,
    /// Checks the signature of a token that carries its own key; `None` if the token carries no key. The check takes CPU, so it runs only
    /// for an admitted request, on a thread that serves no other request.
    pub signature: Option<BoxFuture<'a, Result<(), Refusal>>>,
    /// Asks the cloud about this one machine again, after the call-back has proven which machine it is. This is needed if the cloud's first
    /// response may be minutes old. The result must equal the result of `verification`.
    pub confirmation: Option<Verification<'a>>,
}

impl<'a> Examined<'a> {
    /// A token that contains only a machine's id, which the source address must prove. A copy of the token is worthless at any other
    /// address, so the machine may use the token again. Therefore each use gets a new fingerprint.
    pub(crate) fn of_address(verification: Verification<'a>) -> Examined<'a> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Examined {
            fingerprint: format!("address {number}").into_bytes(),
            signed_at: None,
            proof: Proof::Address,
            verification,
            signature: None,
            confirmation: None,
        }
    }

    /// A token that contains only a machine's id, which the call-back must prove.
    pub(crate) fn of_call_back(
        claimed: MachineId,
        presented: &Presented<'_>,
        verification: Verification<'a>,
    ) -> Examined<'a> {
        Examined {
            // Two requests of a machine may have equal tokens. The body contains a challenge that a machine answers only once, so the hash
            // of the body identifies the request.
            fingerprint: sha256_hex(presented.body).into_bytes(),
            signed_at: None,
            proof: Proof::CallBack { claimed },
            verification,
            signature: None,
            confirmation: None,
        }
    }
}

/// A verification that asks the cloud, and ends with the verified machine or the refusal.
pub type Verification<'a> = BoxFuture<'a, Result<VerifiedNode, Refusal>>;

/// Verifies the machines of one cloud.
pub trait Verifier: Send + Sync {
    /// Checks a token without a request to the cloud. `None` if the token does not have the prefix of this cloud.
    fn examine<'a>(&'a self, presented: &Presented<'_>) -> Option<Result<Examined<'a>, Refusal>>;
}

/// Checks a token with the verifier for its prefix.
pub fn examine<'a>(
    verifiers: &'a [Box<dyn Verifier>],
    presented: &Presented<'_>,
) -> Result<Examined<'a>, Refusal> {
    let unknown = || Err(Refusal::not_verified("UnknownToken", "its token is of an unknown kind"));
    verifiers.iter().find_map(|verifier| verifier.examine(presented)).unwrap_or_else(unknown)
}
