//! What a kubeconfig says of the API server: its address, its authority, and a certificate or token for it.
//!
//! kOps' kubeconfigs, this program's own and an administrator's have a client's certificate; service accounts have a token. Whatever
//! else a kubeconfig may ask for is refused by its name if the current context asks for it, and ignored in the other contexts.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_process::exit::WrongConfiguration;
use kops_agent_spec::yaml;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The parts of a kubeconfig that are read.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Kubeconfig {
    current_context: Option<String>,
    contexts: Option<Vec<NamedContext>>,
    clusters: Option<Vec<NamedCluster>>,
    users: Option<Vec<NamedUser>>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Option<ContextEntry>,
}

#[derive(Deserialize)]
struct ContextEntry {
    cluster: String,
    user: Option<String>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Option<Cluster>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Cluster {
    server: Option<String>,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    tls_server_name: Option<String>,
    insecure_skip_tls_verify: Option<bool>,
    proxy_url: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: Option<User>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct User {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    exec: Option<IgnoredAny>,
    auth_provider: Option<IgnoredAny>,
    username: Option<IgnoredAny>,
    password: Option<IgnoredAny>,
    r#as: Option<IgnoredAny>,
    as_uid: Option<IgnoredAny>,
    as_groups: Option<IgnoredAny>,
    as_user_extra: Option<IgnoredAny>,
}

/// How the API server of the current context is reached.
#[derive(PartialEq, Eq)]
pub struct Access {
    /// Its URL.
    pub server: String,
    /// The name that its certificate has to bear, where that is not the one in the URL.
    pub tls_server_name: Option<String>,
    /// The authorities (PEM) of its certificate; without them, those of the host.
    pub authorities: Option<String>,
    /// What the client shows.
    pub credentials: Credentials,
    /// The client's certificate chain and its key (PEM), where it has one.
    pub identity: Option<(String, String)>,
}

/// What a request has for its `Authorization`.
#[derive(PartialEq, Eq)]
pub enum Credentials {
    /// Nothing: the connection's certificate is enough.
    None,
    /// This token.
    Token(String),
    /// The token in this file, which is replaced while it is in use.
    TokenFile(PathBuf),
}

impl Kubeconfig {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or is no kubeconfig.
    pub fn read(path: &Path) -> Result<Kubeconfig> {
        let text = std::fs::read_to_string(path).with_context(|| of_file(path))?;
        yaml::from_str(&text).with_context(|| of_file(path))
    }

    /// What the current context says, with the files that it names read. `path` is the kubeconfig's own: relative paths begin at its
    /// folder.
    ///
    /// # Errors
    /// If the current context is not there or not whole, a file or base64 in it cannot be read, or it asks for what this program does not do.
    pub fn access(self, path: &Path) -> Result<Access> {
        let current = self.current_context.filter(|name| !name.is_empty());
        let current = current.with_context(|| format!("{}: current-context is not set", of_file(path)))?;
        let context = named(self.contexts, |named| (named.name == current).then_some(named.context));
        let context = context.with_context(|| missing(path, "context", &current))?;
        let cluster = named(self.clusters, |named| (named.name == context.cluster).then_some(named.cluster));
        let cluster = cluster.with_context(|| missing(path, "cluster", &context.cluster))?;
        let user_name = context.user.unwrap_or_default();
        // As kubectl takes it, a user that is not there is anonymous.
        let user =
            named(self.users, |named| (named.name == user_name).then_some(named.user)).unwrap_or_default();
        cluster.refuse_unsupported(&context.cluster, path)?;
        user.refuse_unsupported(&user_name, path)?;

        let folder = path.parent().unwrap_or(Path::new(""));
        let pem = |field, data, file| pem(field, data, file, folder).with_context(|| of_file(path));
        let server = cluster.server.filter(|url| !url.is_empty());
        let certificate = pem("client-certificate", user.client_certificate_data, user.client_certificate)?;
        let key = pem("client-key", user.client_key_data, user.client_key)?;
        Ok(Access {
            server: server.with_context(|| {
                format!("{}: the cluster {:?} has no server", of_file(path), context.cluster)
            })?,
            tls_server_name: cluster.tls_server_name.filter(|name| !name.is_empty()),
            authorities: pem(
                "certificate-authority",
                cluster.certificate_authority_data,
                cluster.certificate_authority,
            )?,
            identity: match (certificate, key) {
                (None, None) => None,
                (Some(certificate), Some(key)) => Some((certificate, key)),
                _ => {
                    return Err(anyhow!(
                        "{}: the user {user_name:?} has a client-certificate or a client-key, and needs both",
                        of_file(path)
                    ));
                }
            },
            credentials: match (user.token, user.token_file) {
                (Some(token), _) if !token.is_empty() => Credentials::Token(token),
                (_, Some(file)) if !file.as_os_str().is_empty() => Credentials::TokenFile(folder.join(file)),
                _ => Credentials::None,
            },
        })
    }
}

impl Cluster {
    fn refuse_unsupported(&self, name: &str, path: &Path) -> Result<(), WrongConfiguration> {
        let what = format!("the cluster {name:?} of the kubeconfig {}", path.display());
        if self.proxy_url.is_some() {
            return Err(WrongConfiguration(format!(
                "{what} has a proxy-url, and the API server is reached directly: take it out"
            )));
        }
        if self.insecure_skip_tls_verify == Some(true) {
            return Err(WrongConfiguration(format!(
                "{what} has insecure-skip-tls-verify, and the API server's certificate is always verified: give \
                 certificate-authority-data instead"
            )));
        }
        Ok(())
    }
}

impl User {
    fn refuse_unsupported(&self, name: &str, path: &Path) -> Result<(), WrongConfiguration> {
        let unsupported = [
            ("exec", &self.exec),
            ("auth-provider", &self.auth_provider),
            ("username", &self.username),
            ("password", &self.password),
            ("as", &self.r#as),
            ("as-uid", &self.as_uid),
            ("as-groups", &self.as_groups),
            ("as-user-extra", &self.as_user_extra),
        ];
        match unsupported.into_iter().find(|(_, value)| value.is_some()) {
            None => Ok(()),
            Some((field, _)) => Err(WrongConfiguration(format!(
                "the user {name:?} of the kubeconfig {} has the field {field}, which kops-agent does not support: give it a client \
                 certificate and key, token or tokenFile (`kops export kubeconfig --admin` writes one with a certificate)",
                path.display()
            ))),
        }
    }
}

fn named<T, V>(list: Option<Vec<T>>, value: impl Fn(T) -> Option<Option<V>>) -> Option<V> {
    list.into_iter().flatten().find_map(value).flatten()
}

/// The PEM that is in a kubeconfig as base64, or else in the file that it names.
fn pem(field: &str, data: Option<String>, file: Option<PathBuf>, folder: &Path) -> Result<Option<String>> {
    if let Some(data) = data.filter(|data| !data.is_empty()) {
        // Line breaks are allowed inside, as in YAML's own folded text.
        let data: String = data.split_ascii_whitespace().collect();
        let bytes = STANDARD.decode(data).with_context(|| format!("{field}-data is not base64"))?;
        return Ok(Some(String::from_utf8(bytes).map_err(|_| anyhow!("{field}-data holds no PEM"))?));
    }
    let Some(file) = file.filter(|file| !file.as_os_str().is_empty()) else { return Ok(None) };
    let file = folder.join(file);
    let text = std::fs::read_to_string(&file);
    Ok(Some(text.with_context(|| format!("reading {field}, {}", file.display()))?))
}

fn missing(path: &Path, kind: &str, name: &str) -> String {
    format!("{}: there is no {kind} {name:?} in it", of_file(path))
}

fn of_file(path: &Path) -> String {
    format!("reading the kubeconfig {}", path.display())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PATH: &str = "/etc/kubernetes/kubeconfig";

    fn access(cluster: &str, user: &str) -> Result<Access> {
        let text = format!(
            "{{apiVersion: v1, kind: Config, preferences: {{}}, current-context: here, contexts: [\
             {{name: there, context: {{cluster: proxied, user: cloud}}}}, \
             {{name: here, context: {{cluster: c, user: u, namespace: kube-system}}}}], \
             clusters: [{{name: proxied, cluster: {{server: 'https://10.0.0.2', proxy-url: 'http://10.0.0.3:3128'}}}}, \
             {{name: c, cluster: {{{cluster}}}}}], \
             users: [{{name: cloud, user: {{exec: {{command: aws}}}}}}, {{name: u, user: {{{user}}}}}]}}"
        );
        serde_yaml::from_str::<Kubeconfig>(&text).unwrap().access(Path::new(PATH))
    }

    fn problem(outcome: Result<Access>) -> String {
        format!("{:#}", outcome.err().unwrap())
    }

    #[test]
    fn what_kops_writes_is_understood() {
        let access = access(
            "server: 'https://127.0.0.1', certificate-authority-data: Q0E=, tls-server-name: api.internal.c",
            "client-certificate-data: Q0VSVA==, client-key-data: S0VZ",
        )
        .unwrap();
        assert_eq!(access.server, "https://127.0.0.1");
        assert_eq!(access.tls_server_name.as_deref(), Some("api.internal.c"));
        assert_eq!(access.authorities.as_deref(), Some("CA"));
        assert_eq!(access.identity, Some(("CERT".into(), "KEY".into())));
        assert!(access.credentials == Credentials::None);
    }

    #[test]
    fn a_token_is_taken_from_the_kubeconfig_or_a_file_beside_it() {
        let token = |user| access("server: 'https://10.0.0.1'", user).unwrap().credentials;
        assert!(token("token: t, tokenFile: /t") == Credentials::Token("t".into()));
        assert!(token("token: '', tokenFile: t") == Credentials::TokenFile("/etc/kubernetes/t".into()));
        assert!(token("tokenFile: /t") == Credentials::TokenFile("/t".into()));
        assert!(token("") == Credentials::None);
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name_in_the_current_context_only() {
        for field in [
            "exec: {command: sesame}",
            "auth-provider: {name: sesame}",
            "username: sesame",
            "password: sesame",
            "as: sesame",
            "as-groups: [sesame]",
        ] {
            let (name, _) = field.split_once(':').unwrap();
            let refused = access("server: 'https://10.0.0.1'", field).err().unwrap();
            assert!(refused.is::<WrongConfiguration>(), "{field}");
            assert!(refused.to_string().contains(&format!("has the field {name},")), "{refused}");
            assert!(!refused.to_string().contains("sesame"), "no secret is told: {refused}");
        }
        for field in ["proxy-url: 'http://p'", "insecure-skip-tls-verify: true"] {
            let refused = access(&format!("server: 'https://10.0.0.1', {field}"), "").err().unwrap();
            assert!(refused.is::<WrongConfiguration>(), "{field}");
        }
        access("server: 'https://10.0.0.1', insecure-skip-tls-verify: false", "exec: null").unwrap();
    }

    #[test]
    fn what_is_wrong_is_told_with_the_file() {
        let server = "server: 'https://10.0.0.1'";
        for (cluster, user, told) in [
            ("", "", "the cluster \"c\" has no server"),
            ("server: ''", "", "the cluster \"c\" has no server"),
            (server, "client-key-data: S0VZ", "needs both"),
            (server, "client-key-data: '!'", "client-key-data is not base64"),
            (server, "client-key: nowhere.pem", "reading client-key, /etc/kubernetes/nowhere.pem"),
        ] {
            let problem = problem(access(cluster, user));
            assert!(problem.contains(PATH) && problem.contains(told), "{problem}");
        }
        for (text, told) in [
            ("{kind: Config, contexts: null, users: null}", "current-context is not set"),
            ("{current-context: x}", "there is no context \"x\" in it"),
            ("{current-context: x, contexts: [{name: x, context: {cluster: y}}]}", "no cluster \"y\""),
        ] {
            let kubeconfig: Kubeconfig = serde_yaml::from_str(text).unwrap();
            assert!(problem(kubeconfig.access(Path::new(PATH))).contains(told), "{told}");
        }
    }

    #[test]
    fn a_user_that_is_not_there_is_anonymous() {
        let text = "{current-context: x, contexts: [{name: x, context: {cluster: y}}], \
                    clusters: [{name: y, cluster: {server: 'http://10.0.0.1:8080'}}]}";
        let access = serde_yaml::from_str::<Kubeconfig>(text).unwrap().access(Path::new(PATH)).unwrap();
        assert!(access.identity.is_none() && access.credentials == Credentials::None);
    }
}
