//! `render --show-secrets`: a desired state with its references to secrets resolved, for support cases
//! and the conformance check.

use anyhow::{Context, Result};
use kops_agent_host::secret_text;
use kops_agent_plan::resource::{Content, DesiredState, File, Resource};

use crate::materials::Materials;

/// The same state with every secret text spelled out.
pub fn with_secrets(state: &DesiredState, materials: &Materials) -> Result<DesiredState> {
    let mut shown = DesiredState::default();
    for (id, resource) in state.iter() {
        shown.add(match resource {
            Resource::File(file @ File { content: Content::SecretText(pieces), .. }) => {
                let text = String::from_utf8(secret_text(file, pieces, materials)?)
                    .with_context(|| format!("the secret that {id} holds is not text"))?;
                Resource::File(File { content: Content::Text(text), ..file.clone() })
            }
            other => other.clone(),
        });
    }
    Ok(shown)
}
