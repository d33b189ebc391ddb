//! Verifying machines that ask to become nodes: each cloud has its own way.
//!
//! A token is looked at twice. [`Verifier::examine`] finds what is wrong with it without a request, so that a
//! flood of bad ones costs nothing but a look. What it does not refuse comes with a [`Verification`], which asks the
//! cloud once it is polled; there are only so many of those at a time.

pub mod admission;
pub mod claims;
mod origin;

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use kops_agent_plan::bootstrap::challenge::PORT;
use kops_agent_plan::digest::sha256_hex;
use kops_agent_plan::identity;
use kops_agent_plan::machine_id::MachineId;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

pub use origin::{LoadBalancing, MachinePrefix, Origin, OwnAddresses, Peers};

/// The longest that a token is good for, by any cloud: the bootstrap server remembers for longer which tokens it took.
pub const LONGEST_TOKEN_LIFE: Duration = Duration::from_secs(24 * 60);

#[derive(Clone, Copy)]
pub struct Presented<'a> {
    /// The header `Authorization`.
    pub token: &'a str,
    /// The whole body, which the token must have been made for.
    pub body: &'a [u8],
    /// Where it comes from.
    pub origin: Origin,
    /// Seconds since 1970.
    pub now: i64,
}

/// A machine, as its cloud tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifiedNode {
    /// The instance, in its cloud's words.
    pub instance: String,
    /// The name that its Node has.
    pub node_name: String,
    /// The names and addresses that its serving certificate is for.
    pub certificate_names: Vec<String>,
    /// The name of its instance group; empty if it is in none.
    pub instance_group: String,
    /// Where it can be called back (`10.0.0.1:3987`); empty where it is not known.
    pub challenge_endpoint: String,
    /// Its addresses, as the cloud lists them; they are not needed where the token alone proves which machine it is.
    pub addresses: Vec<IpAddr>,
    /// When the machine was started last, in seconds since 1970. `None` on clouds that do not tell it, and on clouds where two running
    /// machines can have the same Node name.
    pub launched: Option<i64>,
}

/// Where a machine with this address listens for the call-back; a challenge always has that port.
pub fn challenge_endpoint(address: &str) -> String {
    match address.contains(':') {
        true => format!("[{address}]:{PORT}"),
        false => format!("{address}:{PORT}"),
    }
}

/// An instant in RFC 3339, as clouds write them, in seconds since 1970; `None` if it is none.
pub(crate) fn seconds_of(instant: &str) -> Option<i64> {
    OffsetDateTime::parse(instant, &Rfc3339).ok().map(OffsetDateTime::unix_timestamp)
}

/// Why a machine is not given what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub answer: Answer,
    /// Why, in a word: a label of a metric, so one of few.
    pub reason: &'static str,
    /// Why, in words for the log. They are not sent to the machine, and hold no secret.
    pub message: String,
}

/// What a machine is answered that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is not the machine that it says, or may not ask.
    NotVerified,
    /// It did not prove that it has asked when it was called back.
    NotProven,
    /// A Node of its name is at work already.
    AlreadyRegistered,
    /// What it asks is wrong; this is said to it.
    BadRequest,
    /// What it sends is too large to be read.
    TooLarge,
    /// What it sends does not come in time.
    TooSlow,
    /// It is over its rate limit, and may retry after so many seconds.
    TooOften(u64),
    /// There is too much to do.
    Busy,
    /// What must be asked does not answer.
    Unavailable,
}

impl Refusal {
    /// It is not the machine that it says.
    pub fn not_verified(reason: &'static str, problem: impl fmt::Display) -> Refusal {
        Refusal { answer: Answer::NotVerified, reason, message: problem.to_string() }
    }

    /// Its cloud tells of it, and it is no node of this cluster.
    pub fn of_instance(refusal: &identity::Refusal) -> Refusal {
        Refusal::not_verified(refusal.reason(), refusal)
    }

    /// What must be asked does not answer.
    pub fn unavailable(reason: &'static str, problem: impl fmt::Display) -> Refusal {
        Refusal { answer: Answer::Unavailable, reason, message: problem.to_string() }
    }
}

/// What proves that it is the machine itself which asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The token, which no other machine could have made.
    Token,
    /// The address that it comes from, which its cloud lets no other machine send from: any machine could have written the token,
    /// and a pod whose packets leave its machine under that one's address.
    Address,
    /// The machine's answer when it is called back: any machine could have written the token.
    CallBack {
        /// The id of the machine that the token claims to be of.
        claimed: MachineId,
    },
}

/// A token that nothing is wrong with at first sight.
pub struct Examined<'a> {
    /// What is different for each token that a machine makes: its signature, say. A token is taken once.
    pub fingerprint: Vec<u8>,
    /// When it was made, in seconds since 1970, by the machine's clock; `None` where a token does not say, and what has
    /// heard it cannot use it again anyway.
    pub signed_at: Option<i64>,
    /// Whether the token proves that it is this machine's.
    pub proof: Proof,
    /// Asks the cloud. It does nothing before it is polled, and stops when it is dropped.
    pub verification: Verification<'a>,
    /// Checks the signature of a token that carries its own key; `None` if the token has no such signature. The check takes CPU, so it
    /// runs after the request has its turn, on a thread that serves no other request.
    pub signature: Option<BoxFuture<'a, Result<(), Refusal>>>,
    /// Where what the cloud was asked for may be minutes old: asks about this one machine now that the call-back has proven which
    /// it is. What it finds has to be the same.
    pub confirmation: Option<Verification<'a>>,
}

impl<'a> Examined<'a> {
    /// A token that only says the id of a machine, which the address has to prove that it comes from. Nothing of it is worth
    /// stealing, so there is no other that it would be the same as.
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

    /// A token that only says the id of a machine, which the call-back has to prove.
    pub(crate) fn of_call_back(
        claimed: MachineId,
        presented: &Presented<'_>,
        verification: Verification<'a>,
    ) -> Examined<'a> {
        Examined {
            // The token is always the same. What differs is the challenge in the body, which a machine answers once.
            fingerprint: sha256_hex(presented.body).into_bytes(),
            signed_at: None,
            proof: Proof::CallBack { claimed },
            verification,
            signature: None,
            confirmation: None,
        }
    }
}

/// The question to the cloud.
pub type Verification<'a> = BoxFuture<'a, Result<VerifiedNode, Refusal>>;

/// Verifies the machines of one cloud.
pub trait Verifier: Send + Sync {
    /// Looks at a token without a request; `None` if it is none of this cloud's, by its prefix.
    fn examine<'a>(&'a self, presented: &Presented<'_>) -> Option<Result<Examined<'a>, Refusal>>;
}

/// Looks at a token by whichever verifier it is for.
///
/// # Errors
/// It is for none, or bad.
pub fn examine<'a>(
    verifiers: &'a [Box<dyn Verifier>],
    presented: &Presented<'_>,
) -> Result<Examined<'a>, Refusal> {
    let unknown = || Err(Refusal::not_verified("UnknownToken", "its token is none that this cluster knows"));
    verifiers.iter().find_map(|verifier| verifier.examine(presented)).unwrap_or_else(unknown)
}
