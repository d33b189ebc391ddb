//! The kubeconfig of the user that runs this program, found where kubectl finds it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use kops_agent_process::exit::WrongConfiguration;

/// The file: what is asked for, what `KUBECONFIG` names, or `~/.kube/config`.
///
/// # Errors
/// `KUBECONFIG` names several files, which kubectl would merge and this program does not; or there is no home.
pub(super) fn find(
    asked_for: Option<&Path>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<PathBuf, WrongConfiguration> {
    if let Some(path) = asked_for {
        return Ok(path.to_owned());
    }
    let named = variable("KUBECONFIG").unwrap_or_default();
    let named: Vec<PathBuf> =
        std::env::split_paths(&named).filter(|path| !path.as_os_str().is_empty()).collect();
    match named.as_slice() {
        [path] => Ok(path.clone()),
        [] => match variable("HOME").filter(|home| !home.is_empty()) {
            Some(home) => Ok(Path::new(&home).join(".kube/config")),
            None => Err(WrongConfiguration(
                "there is no kubeconfig to reach the API server by: neither KUBECONFIG nor HOME is set; give --kubeconfig FILE"
                    .to_owned(),
            )),
        },
        several => Err(WrongConfiguration(format!(
            "KUBECONFIG names {} files, which kops-agent does not merge; give the one to use as --kubeconfig FILE \
             (`kubectl config view --flatten --raw` merges them)",
            several.len()
        ))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn found(
        asked_for: Option<&str>,
        kubeconfig: Option<&str>,
        home: Option<&str>,
    ) -> Result<String, String> {
        let variable = |name: &str| match name {
            "KUBECONFIG" => kubeconfig.map(OsString::from),
            _ => home.map(OsString::from),
        };
        let found = find(asked_for.map(Path::new), variable);
        found.map(|path| path.to_str().unwrap().to_owned()).map_err(|error| error.to_string())
    }

    #[test]
    fn it_is_where_kubectl_finds_it() {
        let home = Some("/home/u");
        assert_eq!(found(Some("a"), Some("b"), home).unwrap(), "a");
        assert_eq!(found(None, Some("b"), home).unwrap(), "b");
        assert_eq!(found(None, Some(":b:"), home).unwrap(), "b");
        assert_eq!(found(None, Some(""), home).unwrap(), "/home/u/.kube/config");
        assert_eq!(found(None, None, home).unwrap(), "/home/u/.kube/config");
    }

    #[test]
    fn what_is_not_supported_is_told_with_what_to_do() {
        assert!(found(None, Some("a:b"), None).unwrap_err().contains("names 2 files"));
        assert!(found(None, None, None).unwrap_err().contains("give --kubeconfig"));
        assert!(found(None, None, Some("")).is_err());
    }
}
