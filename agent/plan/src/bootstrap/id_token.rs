//! What a machine says it is in a cloud that lists machines by ids: its id, which is no secret. The proof is the call-back
//! ([`super::challenge`]) or its address. What differs between clouds is an [`IdToken`].

use thiserror::Error;

use crate::machine_id::{IdForm, MachineId};

/// The tokens of a cloud's machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdToken {
    /// What a token begins with.
    pub prefix: &'static str,
    /// What the cloud calls a machine.
    pub machine: &'static str,
    pub form: IdForm,
}

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

    const BY_NUMBER: IdToken = IdToken { prefix: "x-number ", machine: "server", form: IdForm::Number };
    const BY_UUID: IdToken = IdToken { prefix: "x-uuid ", machine: "instance", form: IdForm::Uuid };

    #[test]
    fn a_token_is_a_plain_id_behind_the_prefix_of_its_cloud() {
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
