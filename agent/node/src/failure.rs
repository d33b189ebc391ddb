//! The kinds of failures of a command.

use std::io;

use kops_agent_host::facts::FactsError;
use kops_agent_spec::failure::{Finder, Kind, kind_as, kind_of_chain};

use crate::pacing::NotPaced;

/// Finds the kind of an error of this crate, or of a crate that this crate uses.
const FINDERS: &[Finder] = &[
    kind_as::<kops_agent_host::Error>,
    kind_as::<FactsError>,
    kind_as::<NotPaced>,
    |cause| kops_agent_source::failure::FINDERS.iter().find_map(|find| find(cause)),
    |cause| kops_agent_kube::failure::FINDERS.iter().find_map(|find| find(cause)),
    |cause| cause.is::<io::Error>().then_some(Kind::Io),
];

/// The kind of an error with which a command ends.
pub fn kind_of(error: &anyhow::Error) -> Kind {
    kind_of_chain(error.chain(), FINDERS)
}
