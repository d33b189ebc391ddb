//! The token of a machine in a cloud that lists machines by id. It contains only the id, which is not secret. The proof is the call-back
//! ([`super::challenge`]) or the machine's address. An [`IdToken`] describes the differences between clouds.

use thiserror::Error;

use crate::machine_id::{IdForm, MachineId};

/// The form of tokens in a cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdToken {
    /// The prefix of a token in the header `Authorization`.
    pub prefix: &'static str,
    /// The cloud's word for a machine.
    pub machine: &'static str,
    pub form: IdForm,
}

/// A token without a valid machine id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the token has no valid {} id; the form is {}{}", .0.machine, .0.prefix, .0.form.example())]
pub struct NoId(IdToken);

impl IdToken {
    /// The token of the machine with this id. `id` comes from the metadata service.
    pub fn token(self, id: &str) -> Result<String, NoId> {
        self.form.parse(id).map(|id| format!("{}{id}", self.prefix)).ok_or(NoId(self))
    }

    /// The id in a token. `None` if the token does not have this cloud's prefix.
    pub fn parse(self, token: &str) -> Option<Result<MachineId, NoId>> {
        token.strip_prefix(self.prefix).map(|id| self.form.parse(id).ok_or(NoId(self)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BY_NUMBER: IdToken = IdToken { prefix: "x-number ", machine: "server", form: IdForm::Number };
    const BY_UUID: IdToken = IdToken { prefix: "x-uuid ", machine: "instance", form: IdForm::Uuid };

    #[test]
    fn a_token_is_the_clouds_prefix_and_an_id() {
        for (tokens, other) in [(BY_NUMBER, BY_UUID), (BY_UUID, BY_NUMBER)] {
            let id = tokens.form.example();
            let token = format!("{}{id}", tokens.prefix);
            assert_eq!(tokens.token(id).as_deref(), Ok(token.as_str()));
            let parsed = tokens.parse(&token);
            assert_eq!(parsed.and_then(Result::ok).map(|id| id.to_string()).as_deref(), Some(id));
            assert_eq!(other.parse(&token), None);
            for id in ["", "007", " 1", "1\n", "1/../2", "5c89f7b6-01a0-4eaa-ac03-85cd43d82ee"] {
                assert_eq!(tokens.parse(&format!("{}{id}", tokens.prefix)), Some(Err(NoId(tokens))));
                assert_eq!(tokens.token(id), Err(NoId(tokens)), "{id:?}");
            }
        }
    }
}
