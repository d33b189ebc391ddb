//! What a droplet of DigitalOcean says it is: its number, which is no secret. The proof is the call-back
//! ([`super::challenge`]).
//!
//! Source: upstream's `upup/pkg/fi/cloudup/do/dometadata/authenticator.go` and `upup/pkg/fi/cloudup/do/verifier.go`.

use thiserror::Error;

use super::machine_number::machine_number;

/// What the token begins with.
pub const PREFIX: &str = "x-digitalocean-droplet-id ";

/// A token that names no droplet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the token names no droplet by its number, as {PREFIX}4711 would")]
pub struct NoDropletId;

/// The token of the droplet with this number, as its metadata service writes it.
///
/// # Errors
/// If it is no number of a droplet.
pub fn token(droplet_id: &str) -> Result<String, NoDropletId> {
    machine_number(droplet_id).map(|id| format!("{PREFIX}{id}")).ok_or(NoDropletId)
}

/// The number that a token names; `None` if the token is for another cloud.
pub fn parse(token: &str) -> Option<Result<u64, NoDropletId>> {
    token.strip_prefix(PREFIX).map(|id| machine_number(id).ok_or(NoDropletId))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_a_plain_number_behind_its_prefix() {
        assert_eq!(token("4711").as_deref(), Ok("x-digitalocean-droplet-id 4711"));
        assert_eq!(parse("x-digitalocean-droplet-id 4711"), Some(Ok(4711)));
        assert_eq!(parse("x-hetzner-id 4711"), None);
        for id in [
            "",
            "0",
            "-1",
            "+1",
            "007",
            " 1",
            "1 ",
            "1\n",
            "1/../2",
            "0x1",
            "\u{0661}",
            "9999999999999999999",
        ] {
            assert_eq!(parse(&format!("{PREFIX}{id}")), Some(Err(NoDropletId)), "{id}");
            assert_eq!(token(id), Err(NoDropletId), "{id}");
        }
    }
}
