//! Whether a service of ours is to be on this machine, in the place of a program of kOps': by a flag, by a variable, or because it is there.

use std::path::Path;

use anyhow::Result;
use kops_agent_plan::desired::{ADDONS_UNIT, CONTROLLER_UNIT};
use kops_agent_process::exit::WrongConfiguration;

use super::environment::Environment;
use super::machine;

#[derive(Debug)]
pub struct OwnService {
    /// The flag that asks for it.
    pub flag: &'static str,
    /// `true` has a machine run the service as the flag does, and `false` takes it away. What converges at boot is called as kOps wrote it
    /// down.
    pub variable: &'static str,
    pub unit: &'static str,
    runs: &'static str,
}

/// Control-plane mode, in the place of kOps' kops-controller.
pub const CONTROLLER: OwnService = OwnService {
    flag: "--controller",
    variable: "KOPS_AGENT_CONTROLLER",
    unit: CONTROLLER_UNIT,
    runs: "control-plane mode",
};

/// What applies add-ons, in the place of kOps' channels pod, or up to kOps 1.35 of protokube's channels.
pub const ADDONS: OwnService = OwnService {
    flag: "--addons",
    variable: "KOPS_AGENT_ADDONS",
    unit: ADDONS_UNIT,
    runs: "what applies add-ons",
};

impl OwnService {
    /// Whether the machine below `root` is to have the service, by its flag or by its variable. Where neither says so the machine has it as
    /// before: a run from a shell does not know what another was told.
    ///
    /// # Errors
    /// If the variable is neither `true` nor `false`, or what earlier runs left cannot be read.
    pub fn is_wanted(&self, is_asked_for: bool, root: &Path, environment: &Environment) -> Result<bool> {
        if is_asked_for {
            return Ok(true);
        }
        let OwnService { flag, variable, unit, .. } = self;
        if let Some(is_wanted) = yes_or_no(variable, self.runs, environment.get(variable).as_deref())? {
            return Ok(is_wanted);
        }
        let is_there = machine::has_record(root) && machine::open(root)?.has_left_unit(unit)?;
        if is_there {
            log::info!("{unit} stays, since neither {flag} nor {variable}=false is said");
        }
        Ok(is_there)
    }
}

/// What a variable says about running `what` as a service: yes, no, or nothing.
///
/// # Errors
/// It is neither `true` nor `false`: what means yes is not to be taken for no.
pub fn yes_or_no(
    variable: &str,
    what: &str,
    value: Option<&str>,
) -> Result<Option<bool>, WrongConfiguration> {
    match value {
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some("") | None => Ok(None),
        Some(value) => Err(WrongConfiguration(format!(
            "{variable} is {value:?}: set it to true to run {what} as a service of this machine, or to false"
        ))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_variable_says_yes_or_no() {
        for service in [CONTROLLER, ADDONS] {
            let said = |value| yes_or_no(service.variable, service.runs, value);
            assert_eq!(said(Some("true")).unwrap(), Some(true));
            assert_eq!(said(Some("false")).unwrap(), Some(false));
            assert_eq!([said(Some("")).unwrap(), said(None).unwrap()], [None, None]);
            let refused = said(Some("1")).unwrap_err().0;
            assert!(refused.contains(&format!("{} is \"1\"", service.variable)), "{refused}");
        }
    }
}
