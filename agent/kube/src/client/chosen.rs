//! Finds and merges the kubeconfigs of a user's command, as kubectl does.
//!
//! Source: the rules of `k8s.io/client-go/tools/clientcmd`, and Kubernetes' page on organizing cluster access by kubeconfig files.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use kops_agent_spec::failure::{Failure, Kind};

/// The files of a kubeconfig, and the chosen context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// If several files define a cluster, user or context of the same name, the first of these files wins.
    pub files: Vec<PathBuf>,
    pub skips_missing: bool,
    /// `None` means the current context.
    pub context: Option<String>,
}

impl Chosen {
    /// The current context of this file.
    pub fn file(path: &Path) -> Chosen {
        Chosen { files: vec![path.to_owned()], skips_missing: false, context: None }
    }

    /// Chooses the files of the kubeconfig, in this order: `given`, the files in `KUBECONFIG`, the machine's own file
    /// if it exists, `~/.kube/config`. `variable` reads the environment.
    pub fn find(
        given: Option<&Path>,
        context: Option<&str>,
        of_machine: Option<&Path>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Chosen, Failure> {
        let context = context.map(str::to_owned);
        let one = |path: PathBuf| Chosen { context: context.clone(), ..Chosen::file(&path) };
        if let Some(path) = given {
            return Ok(one(path.to_owned()));
        }
        let named = variable("KUBECONFIG").unwrap_or_default();
        let files: Vec<PathBuf> =
            std::env::split_paths(&named).filter(|path| !path.as_os_str().is_empty()).collect();
        if !files.is_empty() {
            return Ok(Chosen { skips_missing: files.len() > 1, files, context });
        }
        if let Some(path) = of_machine.filter(|path| path.exists()) {
            return Ok(one(path.to_owned()));
        }
        match variable("HOME").filter(|home| !home.is_empty()) {
            Some(home) => Ok(one(Path::new(&home).join(".kube/config"))),
            None => Err(Failure::new(
                Kind::KubeconfigWrong,
                "there is no kubeconfig to reach the API server by: neither KUBECONFIG nor HOME is set; give --kubeconfig FILE",
            )),
        }
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files: Vec<String> = self.files.iter().map(|file| file.display().to_string()).collect();
        let kind = if files.len() == 1 { "kubeconfig" } else { "kubeconfigs" };
        write!(f, "the {kind} {}", files.join(", "))?;
        self.context.iter().try_for_each(|context| write!(f, " (context {context:?})"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn found(
        given: Option<&str>,
        context: Option<&str>,
        kubeconfig: Option<&str>,
        home: Option<&str>,
    ) -> Result<Chosen, String> {
        let variable = |name: &str| match name {
            "KUBECONFIG" => kubeconfig.map(OsString::from),
            _ => home.map(OsString::from),
        };
        let found = Chosen::find(given.map(Path::new), context, Some(Path::new("/dev/null")), variable);
        found.map_err(|error| error.to_string())
    }

    #[test]
    fn it_is_where_kubectl_finds_it() {
        let home = Some("/home/u");
        let one = |path: &str| Chosen::file(Path::new(path));
        assert_eq!(found(Some("a"), None, Some("b"), home).unwrap(), one("a"));
        assert_eq!(found(None, None, Some(":b:"), home).unwrap(), one("b"));
        let several = found(None, Some("c"), Some("a:b"), home).unwrap();
        assert_eq!(several.files, [Path::new("a"), Path::new("b")]);
        assert_eq!(several.to_string(), "the kubeconfigs a, b (context \"c\")");
        assert_eq!(found(None, None, None, home).unwrap(), one("/dev/null"), "it is this machine's");
        let of_home = |name: &str| (name == "HOME").then(|| OsString::from("/home/u"));
        assert_eq!(Chosen::find(None, None, None, of_home).unwrap(), one("/home/u/.kube/config"));
        assert!(
            Chosen::find(None, None, None, |_| None).unwrap_err().to_string().contains("give --kubeconfig")
        );
    }
}
