//! What a machine on Hetzner Cloud says it is: its number, which is no secret. The proof is the call-back
//! ([`super::challenge`]).
//!
//! Source: upstream's `pkg/bootstrap/hetznermetadata` and `upup/pkg/fi/cloudup/hetzner/verifier.go`.

use thiserror::Error;

use super::machine_number::machine_number;

/// What the token begins with.
pub const PREFIX: &str = "x-hetzner-id ";

/// A token that names no server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the token names no server by its number, as {PREFIX}4711 would")]
pub struct NoServerId;

/// The token of the server with this number, as its metadata service writes it.
///
/// # Errors
/// If it is no number of a server.
pub fn token(instance_id: &str) -> Result<String, NoServerId> {
    machine_number(instance_id).map(|id| format!("{PREFIX}{id}")).ok_or(NoServerId)
}

/// The number that a token names; `None` if the token is for another cloud.
pub fn parse(token: &str) -> Option<Result<u64, NoServerId>> {
    token.strip_prefix(PREFIX).map(|id| machine_number(id).ok_or(NoServerId))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_a_plain_number_behind_its_prefix() {
        assert_eq!(token("4711").as_deref(), Ok("x-hetzner-id 4711"));
        assert_eq!(parse("x-hetzner-id 4711"), Some(Ok(4711)));
        assert_eq!(parse("x-aws-sts 4711"), None);
        for id in [
            "",
            "0",
            "-1",
            "+1",
            "007",
            " 1",
            "1 ",
            "1/../2",
            "0x1",
            "1e3",
            "\u{0661}",
            "9999999999999999999",
        ] {
            assert_eq!(parse(&format!("{PREFIX}{id}")), Some(Err(NoServerId)), "{id}");
            assert_eq!(token(id), Err(NoServerId), "{id}");
        }
    }
}
