//! Finds the instance that signed a token, from STS's response. The instance must have one of the roles of nodes.

use thiserror::Error;

use crate::identity::aws::is_instance_id;

/// The signer of a token, as STS reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// An example is `arn:aws:sts::123456789012:assumed-role/nodes.example.com/i-0123456789abcdef0`.
    pub arn: String,
    /// An example is `AROAEXAMPLE:i-0123456789abcdef0`.
    pub user_id: String,
    /// An example is `123456789012`.
    pub account: String,
}

/// Why the signer is not a node.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CallerRefusal {
    #[error("{arn} does not belong to the AWS account of kops-controller")]
    OtherAccount { arn: String },
    #[error("{arn} is not an instance with an IAM role for nodes: {problem}")]
    NoNode { arn: String, problem: &'static str },
    #[error("the role of {arn} is not one of the roles of nodes, which are {}", .roles.join(", "))]
    OtherRole {
        arn: String,
        /// The names of the roles of nodes (`nodesRoles` in kops-controller's configuration).
        roles: Vec<String>,
    },
}

impl CallerRefusal {
    /// A short reason for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            CallerRefusal::OtherAccount { .. } => "OtherAccount",
            CallerRefusal::NoNode { .. } | CallerRefusal::OtherRole { .. } => "OtherRole",
        }
    }
}

impl Caller {
    /// The AWS partition in the ARN.
    pub fn partition(&self) -> Option<&str> {
        self.arn.split(':').nth(1)
    }

    /// The id of the signer's instance. Fails if the signer has none of `roles` in the account and partition of `own`.
    ///
    /// EC2 uses the instance id as the session name of an instance's role. If the role's trust policy also allows a user to assume the
    /// role, the user chooses the session name. Such a user can impersonate any instance with that role, because STS's response does not
    /// show the difference. The user id contains the session name too, so a check of the user id cannot prevent this impersonation. The
    /// check only rejects responses in which the session names in the ARN and in the user id differ.
    pub fn instance_id(&self, own: &Caller, roles: &[String]) -> Result<&str, CallerRefusal> {
        let arn: String = self.arn.chars().filter(|character| !character.is_control()).take(256).collect();
        if self.account != own.account || own.account.is_empty() {
            return Err(CallerRefusal::OtherAccount { arn });
        }
        let refused = |problem| CallerRefusal::NoNode { arn: arn.clone(), problem };
        let parts: Vec<&str> = self.arn.split(':').collect();
        let &["arn", partition, "sts" | "iam", _, account, resource] = parts.as_slice() else {
            return Err(refused("its ARN has another form"));
        };
        if Some(partition) != own.partition() {
            return Err(refused("it belongs to another partition"));
        }
        if account != own.account {
            return Err(CallerRefusal::OtherAccount { arn });
        }
        let parts: Vec<&str> = resource.split('/').collect();
        let &["assumed-role", role, session] = parts.as_slice() else {
            return Err(refused("it has not assumed a role"));
        };
        if !roles.iter().any(|known| known == role) {
            return Err(CallerRefusal::OtherRole { arn, roles: roles.to_vec() });
        }
        if !is_instance_id(session) {
            return Err(refused("its session name is not an instance id"));
        }
        match self.user_id.split_once(':') {
            Some((_, instance)) if instance == session => Ok(session),
            _ => Err(refused("its user id has another session name")),
        }
    }
}
