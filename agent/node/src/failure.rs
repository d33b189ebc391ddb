//! The kinds of failures of a command, and the exit codes of errors.

use std::io;

use kops_agent_host::facts::FactsError;
use kops_agent_process::exit::{CONFIGURATION, FAILED, USAGE};
use kops_agent_spec::failure::{Finder, Kind, Remedy, kind_as, kind_of_chain};

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

pub fn kind_of(error: &anyhow::Error) -> Kind {
    kind_of_chain(error.chain(), FINDERS)
}

pub fn exit_code_of(error: &anyhow::Error) -> u8 {
    match kind_of(error).remedy() {
        Remedy::Again => FAILED,
        Remedy::Configuration | Remedy::Environment => CONFIGURATION,
        Remedy::Usage => USAGE,
    }
}
