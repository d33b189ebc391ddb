//! What a machine says it is in a cloud that lists machines by ids: its id, which is no secret. The proof is the call-back
//! ([`super::challenge`]).
//!
//! Source: upstream's `pkg/bootstrap/hetznermetadata` and `upup/pkg/fi/cloudup/hetzner/verifier.go`;
//! `upup/pkg/fi/cloudup/do/dometadata/authenticator.go` and `upup/pkg/fi/cloudup/do/verifier.go`;
//! `upup/pkg/fi/cloudup/linode/linodemetadata/authenticator.go` and `upup/pkg/fi/cloudup/linode/verifier.go`;
//! `upup/pkg/fi/cloudup/openstack/openstackmetadata/authenticator.go` and `upup/pkg/fi/cloudup/openstack/verifier.go`;
//! `upup/pkg/fi/cloudup/scaleway/scalewaymetadata/authenticator.go` and `upup/pkg/fi/cloudup/scaleway/verifier.go`.

use thiserror::Error;

use crate::machine_id::{IdForm, MachineId};

/// The tokens of a cloud's machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdToken {
    /// What a token begins with.
    pub prefix: &'static str,
    /// What the cloud calls a machine.
    pub machine: &'static str,
    /// What its id is.
    pub form: IdForm,
}

/// Those of servers of Hetzner Cloud.
pub const HETZNER: IdToken = IdToken { prefix: "x-hetzner-id ", machine: "server", form: IdForm::Number };
/// Those of droplets of DigitalOcean.
pub const DIGITAL_OCEAN: IdToken =
    IdToken { prefix: "x-digitalocean-droplet-id ", machine: "droplet", form: IdForm::Number };
/// Those of instances of Linode.
pub const LINODE: IdToken =
    IdToken { prefix: "x-linode-instance-id ", machine: "instance", form: IdForm::Number };
/// Those of servers of OpenStack.
pub const OPENSTACK: IdToken = IdToken { prefix: "x-openstack-id ", machine: "server", form: IdForm::Uuid };
/// Those of servers of Scaleway.
pub const SCALEWAY: IdToken =
    IdToken { prefix: "x-scaleway-instance-server-id ", machine: "server", form: IdForm::Uuid };

/// A token that names no machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the token names no {} by its id, as {}{} would", .0.machine, .0.prefix, .0.form.example())]
pub struct NoId(IdToken);

impl IdToken {
    /// The token of the machine with this id, as its metadata service writes it.
    ///
    /// # Errors
    /// If it is no id of a machine.
    pub fn token(self, id: &str) -> Result<String, NoId> {
        self.form.parse(id).map(|id| format!("{}{id}", self.prefix)).ok_or(NoId(self))
    }

    /// The id that a token names; `None` if the token is for another cloud.
    pub fn parse(self, token: &str) -> Option<Result<MachineId, NoId>> {
        token.strip_prefix(self.prefix).map(|id| self.form.parse(id).ok_or(NoId(self)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [IdToken; 5] = [HETZNER, DIGITAL_OCEAN, LINODE, OPENSTACK, SCALEWAY];

    #[test]
    fn a_token_is_what_upstreams_machine_says() {
        for (tokens, expected) in [
            (HETZNER, "x-hetzner-id 4711"),
            (DIGITAL_OCEAN, "x-digitalocean-droplet-id 4711"),
            (LINODE, "x-linode-instance-id 4711"),
            (OPENSTACK, "x-openstack-id 5c89f7b6-01a0-4eaa-ac03-85cd43d82eeb"),
            (SCALEWAY, "x-scaleway-instance-server-id 5c89f7b6-01a0-4eaa-ac03-85cd43d82eeb"),
        ] {
            assert_eq!(tokens.token(tokens.form.example()).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn a_token_is_a_plain_id_behind_the_prefix_of_its_cloud() {
        for tokens in ALL {
            let id = tokens.form.example();
            let parsed = tokens.parse(&format!("{}{id}", tokens.prefix));
            assert_eq!(parsed.and_then(Result::ok).map(|id| id.to_string()).as_deref(), Some(id));
            for other in ALL.into_iter().filter(|other| *other != tokens) {
                assert_eq!(tokens.parse(&format!("{}{id}", other.prefix)), None);
            }
            for id in ["", "007", " 1", "1\n", "1/../2", "5c89f7b6-01a0-4eaa-ac03-85cd43d82ee"] {
                assert_eq!(tokens.parse(&format!("{}{id}", tokens.prefix)), Some(Err(NoId(tokens))));
                assert_eq!(tokens.token(id), Err(NoId(tokens)), "{id:?}");
            }
        }
    }
}
