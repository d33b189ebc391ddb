//! Login programs of users (`exec` of a kubeconfig), called as client-go calls them. Their credentials are used until they expire.
//!
//! Source: `client.authentication.k8s.io` of Kubernetes, and its page on client authentication, "client-go credential plugins".

use std::io::{ErrorKind, IsTerminal as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use hyper::header::HeaderValue;
use kops_agent_net::http;
use kops_agent_process::output::one_line;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::yaml;
use serde::Deserialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::Mutex;

/// The supported API versions of login programs.
const VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];
/// Maximum length of the kubeconfig's hint (`installHint`) in a message, in characters.
const SHOWN_OF_HINT: usize = 300;

/// The entry `exec` of a kubeconfig user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Exec {
    api_version: String,
    command: String,
    args: Option<Vec<String>>,
    env: Option<Vec<Variable>>,
    install_hint: Option<String>,
    interactive_mode: InteractiveMode,
    /// Whether the login program gets information about the cluster.
    pub provide_cluster_info: bool,
}

#[derive(Clone, PartialEq, Eq, Deserialize)]
struct Variable {
    name: String,
    value: String,
}

impl std::fmt::Debug for Variable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
enum InteractiveMode {
    Never,
    #[default]
    IfAvailable,
    Always,
}

/// A login program, and the user that it logs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    pub exec: Exec,
    /// Information about the cluster for the program. `None` if `provideClusterInfo` is not true.
    pub cluster: Option<Value>,
    /// The first words of error messages. They name the kubeconfig and the user.
    pub of: String,
}

/// The output of a login program.
pub struct Credential {
    /// The value of a request's `Authorization` header.
    pub token: Option<HeaderValue>,
    /// The client certificate chain and its key (PEM).
    pub identity: Option<(String, String)>,
    expires: Option<OffsetDateTime>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    api_version: String,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

impl Exec {
    /// If the command is a relative path, puts the kubeconfig's folder before it. A command without `/` is searched in
    /// `PATH`.
    pub fn settle(&mut self, folder: &Path) {
        if self.command.contains('/')
            && let Some(path) = folder.join(&self.command).to_str()
        {
            self.command = path.to_owned();
        }
    }
}

impl Plugin {
    /// Runs the login program and waits for its end. The program may ask the user at the terminal. Errors never
    /// contain its output, because the output may be secret.
    pub fn run(&self) -> Result<Credential> {
        let Exec { api_version, command, args, env, .. } = &self.exec;
        if !VERSIONS.contains(&api_version.as_str()) {
            let known = VERSIONS.join(" or ");
            return Err(self
                .wrong(&format!("exec.apiVersion is {api_version:?}, but has to be {known}"))
                .into());
        }
        if command.is_empty() {
            return Err(self.wrong("exec.command is missing").into());
        }
        let is_interactive = self.is_interactive()?;
        let mut spec = json!({"interactive": is_interactive});
        if let Some(cluster) = &self.cluster {
            spec["cluster"] = cluster.clone();
        }
        let info = json!({"kind": "ExecCredential", "apiVersion": api_version, "spec": spec});
        let variables = env.iter().flatten().map(|variable| (&variable.name, &variable.value));
        let output = Command::new(command)
            .args(args.iter().flatten())
            .envs(variables)
            .env("KUBERNETES_EXEC_INFO", info.to_string())
            .stdin(if is_interactive { Stdio::inherit() } else { Stdio::null() })
            .stderr(Stdio::inherit())
            .output();
        let output = output.map_err(|error| self.not_run(&error))?;
        if !output.status.success() {
            return Err(unusable(format!(
                "{}: the login program {command} failed with {}; its output is above",
                self.of, output.status
            )));
        }
        let what = || format!("{}: reading the output of the login program {command}", self.of);
        self.credential(&output.stdout).with_context(what)
    }

    fn is_interactive(&self) -> Result<bool, Failure> {
        let has_terminal = std::io::stdin().is_terminal();
        match self.exec.interactive_mode {
            InteractiveMode::Never => Ok(false),
            InteractiveMode::IfAvailable => Ok(has_terminal),
            InteractiveMode::Always if has_terminal => Ok(true),
            InteractiveMode::Always => Err(self.wrong(&format!(
                "{} needs a terminal (interactiveMode: Always), but standard input is not a terminal",
                self.exec.command
            ))),
        }
    }

    fn credential(&self, said: &[u8]) -> Result<Credential> {
        // The parser's error would quote the output, which may be secret.
        let told: ExecCredential = yaml::from_str(&String::from_utf8_lossy(said))
            .map_err(|_| unusable("it is not an ExecCredential"))?;
        if told.api_version != self.exec.api_version {
            let problem =
                format!("its apiVersion is {:?}, not {:?}", told.api_version, self.exec.api_version);
            return Err(unusable(problem));
        }
        let status = told.status.ok_or_else(|| unusable("it has no status"))?;
        let filled = |value: Option<String>| value.filter(|value| !value.is_empty());
        let expires = status.expiration_timestamp.map(|time| OffsetDateTime::parse(&time, &Rfc3339));
        let identity = match (filled(status.client_certificate_data), filled(status.client_key_data)) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                return Err(unusable(
                    "it has only one of clientCertificateData and clientKeyData, and needs both",
                ));
            }
        };
        let token = filled(status.token).map(|token| http::bearer(token.trim())).transpose()?;
        if token.is_none() && identity.is_none() {
            return Err(unusable("it has neither a token nor a certificate"));
        }
        Ok(Credential { token, identity, expires: expires.transpose().context("its expirationTimestamp")? })
    }

    fn not_run(&self, error: &std::io::Error) -> anyhow::Error {
        let command = &self.exec.command;
        let hint = match &self.exec.install_hint {
            Some(hint) if error.kind() == ErrorKind::NotFound => {
                format!("; the kubeconfig says: {}", one_line(hint, SHOWN_OF_HINT))
            }
            _ => String::new(),
        };
        unusable(format!("{}: the login program {command} cannot be run: {error}{hint}", self.of))
    }

    fn wrong(&self, what: &str) -> Failure {
        Failure::new(Kind::KubeconfigWrong, format!("{}: {what}", self.of))
    }
}

fn unusable(problem: impl Into<String>) -> anyhow::Error {
    Failure::new(Kind::KubeconfigUnusable, problem).into()
}

impl Credential {
    fn is_fresh(&self, now: OffsetDateTime) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }
}

/// The token of a login program. A new token is requested if the last one has expired or was rejected.
pub(super) struct ExecToken {
    plugin: Plugin,
    last: Mutex<Option<Credential>>,
}

impl ExecToken {
    /// `first` is a credential that the program has just returned.
    pub(super) fn new(plugin: Plugin, first: Credential) -> ExecToken {
        ExecToken { plugin, last: Mutex::new(Some(first)) }
    }

    /// The current token. `None` if the program returns certificates instead of tokens.
    pub(super) async fn bearer(&self) -> Result<Option<HeaderValue>> {
        let mut last = self.last.lock().await;
        if let Some(credential) = last.as_ref()
            && (credential.token.is_none() || credential.is_fresh(OffsetDateTime::now_utc()))
        {
            return Ok(credential.token.clone());
        }
        let plugin = self.plugin.clone();
        let credential = tokio::task::spawn_blocking(move || plugin.run()).await??;
        Ok(last.insert(credential).token.clone())
    }

    /// Notes that the API server rejected the token. The next call of `bearer` requests a new token.
    pub(super) async fn refused(&self, token: &HeaderValue) {
        let mut last = self.last.lock().await;
        if last.as_ref().is_some_and(|credential| credential.token.as_ref() == Some(token)) {
            *last = None;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn plugin(script: &str) -> Plugin {
        let exec = Exec {
            api_version: VERSIONS[0].into(),
            command: "/bin/sh".into(),
            args: Some(["-c", script].map(str::to_owned).to_vec()),
            env: Some(vec![Variable { name: "PROFILE".into(), value: "of-the-kubeconfig".into() }]),
            interactive_mode: InteractiveMode::Never,
            ..Exec::default()
        };
        Plugin { exec, cluster: Some(json!({"server": "https://a"})), of: "the user \"u\"".into() }
    }

    fn gives(status: &str) -> Plugin {
        plugin(&format!(
            "echo '{{\"apiVersion\": \"{}\", \"kind\": \"ExecCredential\", \"status\": {status}}}'",
            VERSIONS[0]
        ))
    }

    #[test]
    fn a_program_is_called_as_client_go_calls_it() {
        let folder = tempfile::tempdir().unwrap();
        let told = folder.path().join("told");
        let script = format!(
            "[ \"$PROFILE\" = of-the-kubeconfig ] && echo \"$KUBERNETES_EXEC_INFO\" >{}; \
             echo '{{\"apiVersion\": \"{}\", \"status\": {{\"token\": \"t\"}}}}'",
            told.display(),
            VERSIONS[0]
        );
        let credential = plugin(&script).run().unwrap();
        assert_eq!(credential.token.unwrap(), "Bearer t");
        let told: Value = serde_json::from_str(&std::fs::read_to_string(told).unwrap()).unwrap();
        let spec = json!({"interactive": false, "cluster": {"server": "https://a"}});
        assert_eq!(told, json!({"kind": "ExecCredential", "apiVersion": VERSIONS[0], "spec": spec}));
        let both = gives(r#"{"clientCertificateData": "C", "clientKeyData": "K"}"#).run().unwrap();
        assert!(both.token.is_none() && both.identity == Some(("C".into(), "K".into())));
    }

    #[test]
    fn an_unusable_plugin_is_reported_without_secrets() {
        let missing = Plugin {
            exec: Exec {
                command: "/nowhere/aws".into(),
                install_hint: Some("install\u{1b}[2J it".into()),
                ..plugin("").exec
            },
            ..plugin("")
        };
        let old = Plugin { exec: Exec { api_version: "x/v1alpha1".into(), ..plugin("").exec }, ..plugin("") };
        for (plugin, told) in [
            (
                missing,
                "cannot be run: No such file or directory (os error 2); the kubeconfig says: install [2J it",
            ),
            (old, "exec.apiVersion is \"x/v1alpha1\""),
            (plugin("echo sesame; exit 3"), "failed with exit status: 3"),
            (plugin("echo sesame"), "it is not an ExecCredential"),
            (gives("null"), "it has no status"),
            (gives("{}"), "neither a token nor a certificate"),
            (gives(r#"{"clientKeyData": "sesame"}"#), "needs both"),
            (gives(r#"{"token": "sesame", "expirationTimestamp": "soon"}"#), "its expirationTimestamp"),
        ] {
            let error = format!("{:#}", plugin.run().err().unwrap());
            assert!(error.contains(told) && error.contains("the user \"u\""), "{error}");
            assert!(!error.contains("sesame"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_token_is_kept_until_it_expires_or_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let count = folder.path().join("count");
        let calls = || std::fs::read_to_string(&count).unwrap().len();
        let plugin = |expires: &str| {
            plugin(&format!(
                "printf x >>{0}; echo '{{\"apiVersion\": \"{1}\", \"status\": {{\"token\": \"'$(wc -c <{0})'\", \"expirationTimestamp\": \"{expires}\"}}}}'",
                count.display(),
                VERSIONS[0]
            ))
        };
        let lasting = plugin("2999-01-01T00:00:00Z");
        let token = ExecToken::new(lasting.clone(), lasting.run().unwrap());
        let first = token.bearer().await.unwrap().unwrap();
        assert_eq!((token.bearer().await.unwrap().unwrap(), calls()), (first.clone(), 1));
        token.refused(&HeaderValue::from_static("Bearer other")).await;
        assert_eq!((token.bearer().await.unwrap().unwrap(), calls()), (first.clone(), 1));
        token.refused(&first).await;
        assert_ne!(token.bearer().await.unwrap().unwrap(), first);
        assert_eq!(calls(), 2);

        let over = plugin("2001-01-01T00:00:00Z");
        let token = ExecToken::new(over.clone(), over.run().unwrap());
        token.bearer().await.unwrap();
        assert_eq!(calls(), 4);
    }
}
