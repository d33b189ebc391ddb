//! kubectl, and the user of the machine who gets a kubeconfig.
//!
//! Source: nodeup/pkg/model/kubectl.go.

use serde::Serialize;

use kops_agent_spec::CloudProvider;
use kops_agent_spec::facts::LoginUser;

use super::basis::Basis;
use super::{Asset, Problems};

/// kubectl on a machine with an API server.
#[derive(Clone, Debug, Serialize)]
pub struct Kubectl {
    pub program: Asset,
    /// The login user that administers the cluster with kubectl. `None` if the machine has no such user.
    pub user: Option<LoginUser>,
}

/// Resolves kubectl; `None` on machines without an API server.
pub(super) fn resolve(basis: &Basis<'_>, problems: &mut Problems) -> Option<Kubectl> {
    if !basis.boot.instance_group_role.runs_api_server() {
        return None;
    }
    let program = problems.keep(&basis.assets_field(), basis.required("kubectl"))?;
    Some(Kubectl { program, user: user(basis) })
}

/// The first login user of the distribution that exists on the machine.
fn user(basis: &Basis<'_>) -> Option<LoginUser> {
    let likely: Vec<&str> = match basis.boot.cloud_provider {
        CloudProvider::Azure => vec![&basis.config.azure_admin_user],
        _ => basis.distribution.login_users.to_vec(),
    };
    let find = |name: &str| {
        let present = basis.facts.login_users.iter().find(|user| user.name == name).cloned();
        present.or_else(|| (name == "root").then(root))
    };
    likely.into_iter().find_map(find).filter(|user| !user.home.is_empty())
}

fn root() -> LoginUser {
    LoginUser { name: "root".into(), group: "root".into(), home: "/root".into() }
}
