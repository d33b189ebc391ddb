//! Whether a service of the agent runs on this machine: because of a flag, a variable, or an
//! earlier run.

use std::path::Path;

use anyhow::Result;
use kops_agent_plan::desired::{ADDONS_UNIT, CONTROLLER_UNIT, FOLLOW_UNIT};
use kops_agent_spec::failure::{Failure, Kind};

use super::environment::Environment;
use super::machine;

#[derive(Debug)]
pub struct OwnService {
    /// The flag that asks for the service.
    pub flag: &'static str,
    /// The environment variable. `true` asks for the service, as the flag does, and `false` removes the service. Runs
    /// at boot need the variable, because kOps writes their command line without this flag.
    pub variable: &'static str,
    pub unit: &'static str,
    runs: &'static str,
}

/// Control-plane mode, which replaces kOps' kops-controller.
pub const CONTROLLER: OwnService = OwnService {
    flag: "--controller",
    variable: "KOPS_AGENT_CONTROLLER",
    unit: CONTROLLER_UNIT,
    runs: "control-plane mode",
};

/// The service that applies add-ons. It replaces kOps' channels pod or, up to kOps 1.35, the channels program of
/// protokube.
pub const ADDONS: OwnService = OwnService {
    flag: "--addons",
    variable: "KOPS_AGENT_ADDONS",
    unit: ADDONS_UNIT,
    runs: "the add-on applier",
};

/// The service that follows rollouts. kOps has no such service.
pub const FOLLOW: OwnService = OwnService {
    flag: "--rollouts",
    variable: "KOPS_AGENT_ROLLOUTS",
    unit: FOLLOW_UNIT,
    runs: "the follower of rollouts",
};

impl OwnService {
    /// Whether the machine below `root` should have the service, because of its flag or its variable. If neither is
    /// set, an installed service stays, because a run from a shell does not know the flags of other runs.
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
            log::info!("{unit} stays, although {flag} is not given; to remove it, set {variable}=false");
        }
        Ok(is_there)
    }
}

/// Whether a variable asks for `what` as a service; `None` if the variable is unset or empty. Fails if the value is
/// neither `true` nor `false`, because a different spelling of `true` must not mean `false`.
pub fn yes_or_no(variable: &str, what: &str, value: Option<&str>) -> Result<Option<bool>, Failure> {
    match value {
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some("") | None => Ok(None),
        Some(value) => Err(Failure::new(
            Kind::WrongSetting,
            format!(
                "{variable} is {value:?}: set it to true to run {what} as a service of this machine, or to false"
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_variable_says_yes_or_no() {
        for service in [CONTROLLER, ADDONS, FOLLOW] {
            let said = |value| yes_or_no(service.variable, service.runs, value);
            assert_eq!(said(Some("true")).unwrap(), Some(true));
            assert_eq!(said(Some("false")).unwrap(), Some(false));
            assert_eq!([said(Some("")).unwrap(), said(None).unwrap()], [None, None]);
            let refused = said(Some("1")).unwrap_err().to_string();
            assert!(refused.contains(&format!("{} is \"1\"", service.variable)), "{refused}");
        }
    }
}
