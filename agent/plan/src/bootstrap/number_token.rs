//! What a machine says it is in a cloud that knows machines by numbers: its number, which is no secret. The proof is the
//! call-back ([`super::challenge`]).
//!
//! Source: upstream's `pkg/bootstrap/hetznermetadata` and `upup/pkg/fi/cloudup/hetzner/verifier.go`;
//! `upup/pkg/fi/cloudup/do/dometadata/authenticator.go` and `upup/pkg/fi/cloudup/do/verifier.go`.

use thiserror::Error;

use crate::machine_number::machine_number;

/// The tokens of a cloud's machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberToken {
    /// What a token begins with.
    pub prefix: &'static str,
    /// What the cloud calls a machine.
    pub machine: &'static str,
}

/// Those of servers of Hetzner Cloud.
pub const HETZNER: NumberToken = NumberToken { prefix: "x-hetzner-id ", machine: "server" };
/// Those of droplets of DigitalOcean.
pub const DIGITAL_OCEAN: NumberToken =
    NumberToken { prefix: "x-digitalocean-droplet-id ", machine: "droplet" };

/// A token that names no machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the token names no {} by its number, as {}4711 would", .0.machine, .0.prefix)]
pub struct NoNumber(NumberToken);

impl NumberToken {
    /// The token of the machine with this number, as its metadata service writes it.
    ///
    /// # Errors
    /// If it is no number of a machine.
    pub fn token(self, number: &str) -> Result<String, NoNumber> {
        machine_number(number).map(|number| format!("{}{number}", self.prefix)).ok_or(NoNumber(self))
    }

    /// The number that a token names; `None` if the token is for another cloud.
    pub fn parse(self, token: &str) -> Option<Result<u64, NoNumber>> {
        token.strip_prefix(self.prefix).map(|number| machine_number(number).ok_or(NoNumber(self)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_a_plain_number_behind_the_prefix_of_its_cloud() {
        assert_eq!(HETZNER.token("4711").as_deref(), Ok("x-hetzner-id 4711"));
        assert_eq!(DIGITAL_OCEAN.token("4711").as_deref(), Ok("x-digitalocean-droplet-id 4711"));
        for (tokens, other) in [(HETZNER, DIGITAL_OCEAN), (DIGITAL_OCEAN, HETZNER)] {
            assert_eq!(tokens.parse(&format!("{}4711", tokens.prefix)), Some(Ok(4711)));
            assert_eq!(tokens.parse(&format!("{}4711", other.prefix)), None);
            for number in ["", "007", " 1", "1\n", "1/../2"] {
                assert_eq!(tokens.parse(&format!("{}{number}", tokens.prefix)), Some(Err(NoNumber(tokens))));
                assert_eq!(tokens.token(number), Err(NoNumber(tokens)), "{number:?}");
            }
        }
    }
}
