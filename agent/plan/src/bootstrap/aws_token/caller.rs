//! Whose a token is, by what STS answers: which instance, if it has one of the roles that nodes have.

use thiserror::Error;

use crate::identity::aws::is_instance_id;

/// The signer, as STS says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// `arn:aws:sts::123456789012:assumed-role/nodes.example.com/i-0123456789abcdef0`.
    pub arn: String,
    /// `AROAEXAMPLE:i-0123456789abcdef0`.
    pub user_id: String,
    /// `123456789012`.
    pub account: String,
}

/// Why the signer is no node.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CallerRefusal {
    /// It is of another account.
    #[error("{arn} is of another account than kops-controller")]
    OtherAccount { arn: String },
    /// It is no instance with a role that nodes have.
    #[error("{arn} is no instance that has one of the roles of nodes: {problem}")]
    NoNode { arn: String, problem: &'static str },
    /// It is an instance with another role.
    #[error("the role of {arn} is none of the roles of nodes, which are {}", .roles.join(", "))]
    OtherRole {
        arn: String,
        /// The roles of nodes, by their names (`nodesRoles` of kops-controller's configuration).
        roles: Vec<String>,
    },
}

impl CallerRefusal {
    /// It in a word, for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            CallerRefusal::OtherAccount { .. } => "OtherAccount",
            CallerRefusal::NoNode { .. } | CallerRefusal::OtherRole { .. } => "OtherRole",
        }
    }
}

impl Caller {
    /// The partition of its ARN.
    pub fn partition(&self) -> Option<&str> {
        self.arn.split(':').nth(1)
    }

    /// The id of the instance that it is, if it has one of these roles in the account and partition of `own`.
    ///
    /// EC2 names the session of an instance's role after the instance. A user that may assume the role otherwise (by its trust
    /// policy) chooses that name, and with it the one in the user id, so it can be any instance that has the role: nothing
    /// in STS's answer tells them apart. The user id must be of the same session only because STS says it so.
    ///
    /// # Errors
    /// Why it is no node.
    pub fn instance_id(&self, own: &Caller, roles: &[String]) -> Result<&str, CallerRefusal> {
        let arn: String = self.arn.chars().filter(|character| !character.is_control()).take(256).collect();
        if self.account != own.account || own.account.is_empty() {
            return Err(CallerRefusal::OtherAccount { arn });
        }
        let refused = |problem| CallerRefusal::NoNode { arn: arn.clone(), problem };
        let parts: Vec<&str> = self.arn.split(':').collect();
        let &["arn", partition, "sts" | "iam", _, account, resource] = parts.as_slice() else {
            return Err(refused("its ARN is not of that form"));
        };
        if Some(partition) != own.partition() {
            return Err(refused("it is of another partition"));
        }
        if account != own.account {
            return Err(CallerRefusal::OtherAccount { arn });
        }
        let parts: Vec<&str> = resource.split('/').collect();
        let &["assumed-role", role, session] = parts.as_slice() else {
            return Err(refused("it has assumed no role"));
        };
        if !roles.iter().any(|known| known == role) {
            return Err(CallerRefusal::OtherRole { arn, roles: roles.to_vec() });
        }
        if !is_instance_id(session) {
            return Err(refused("its session is not called after an instance"));
        }
        match self.user_id.split_once(':') {
            Some((_, instance)) if instance == session => Ok(session),
            _ => Err(refused("its user id is of another session")),
        }
    }
}
