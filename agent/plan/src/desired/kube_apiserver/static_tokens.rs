//! `known_tokens.csv`: tokens with which components of very old clusters authenticated to the API server.
//! The API server reads the file only if `tokenAuthFile` names it.
//!
//! Source: nodeup/pkg/model/kube_apiserver.go (`writeStaticCredentials`) and pkg/tokens.

use crate::resolve::NodeConfig;
use crate::resource::{Content, DesiredState, File, Mode, SecretPiece};

use super::file;

/// The users that can have a token. A user's token is the secret with the user's name.
const USERS: [&str; 9] = [
    "kubelet",
    "kube-proxy",
    "system:scheduler",
    "system:controller_manager",
    "system:logging",
    "system:monitoring",
    "system:dns",
    "kube",
    "admin",
];

/// Adds the file with the users' tokens from the store.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    let mut pieces = Vec::new();
    for user in USERS.into_iter().filter(|user| node.secret_names.contains(*user)) {
        if !pieces.is_empty() {
            pieces.push(SecretPiece::Text("\n".into()));
        }
        let groups = if user == "admin" { ",system:masters" } else { "" };
        pieces.push(SecretPiece::Secret(user.into()));
        pieces.push(SecretPiece::Text(format!(",{user},{user}{groups}")));
    }
    state.add(File::new(file(node, "known_tokens.csv"), Content::SecretText(pieces)).mode(Mode::PRIVATE));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::resolve::testing::control_plane;
    use crate::resource::{Kind, ResourceId};

    use super::*;

    #[test]
    fn each_token_of_the_store_has_a_line() {
        let node = control_plane(|inputs| {
            inputs.secret_names.extend(["admin", "kubelet", "dockerconfig"].map(str::to_owned));
        });
        let mut state = DesiredState::default();
        add(&node, &mut state);
        let id = ResourceId::new(Kind::File, "/srv/kubernetes/kube-apiserver/known_tokens.csv");
        let file = serde_json::to_value(state.get(&id).unwrap()).unwrap();
        assert_eq!(
            file["content"]["secretText"],
            serde_json::json!([
                {"secret": "kubelet"}, {"text": ",kubelet,kubelet"}, {"text": "\n"},
                {"secret": "admin"}, {"text": ",admin,admin,system:masters"},
            ])
        );
    }
}
