//! `kops-agent render`: prints everything that a node must have.

use std::path::Path;

use anyhow::{Context, Result};
use kops_agent_host::secret_text;
use kops_agent_plan::resource::{Content, DesiredState, File, Resource};
use kops_agent_plan::shown;
use kops_agent_source::asset_hashes::HashSource;

use crate::cli::RenderArgs;
use crate::output;
use kops_agent_node::decide;
use kops_agent_node::materials::Materials;

/// Prints the state without secrets. With `--show-secrets` it fills in the secrets, for support cases and the
/// conformance check.
pub(super) async fn run(args: &RenderArgs) -> Result<u8> {
    let options = args.spec.for_machine(Path::new("/"));
    let decision = decide::describe(&options, HashSource::known()).await?;
    let desired = &decision.desired;
    if args.show_secrets {
        let whole = with_secrets(desired, &decision.materials)?;
        let resources: Vec<&Resource> = whole.iter().map(|(_, resource)| resource).collect();
        return output::print_state(&whole, &resources, args.output);
    }
    output::print_state(desired, &shown::state(desired), args.output)
}

/// Returns the state with every reference to a secret replaced by its text.
fn with_secrets(state: &DesiredState, materials: &Materials) -> Result<DesiredState> {
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
