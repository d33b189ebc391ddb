//! Reads kubeconfigs: the API server's address and authority, and a certificate or token for it.
//!
//! kOps' kubeconfigs and this program's own have a client certificate. Service accounts have a token, and administrators may have a
//! login program. If the used context needs anything else, it is rejected, and the error names the field. Other contexts may contain
//! anything.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_net::proxies::ProxyServer;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::yaml;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::chosen::Chosen;
use super::exec::{Exec, Plugin};

/// The name of a cluster extension. Login programs get the content of this extension.
const EXEC_EXTENSION: &str = "client.authentication.k8s.io/exec";

/// The fields of a kubeconfig that the agent reads.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Kubeconfig {
    current_context: Option<String>,
    contexts: Option<Vec<NamedContext>>,
    clusters: Option<Vec<NamedCluster>>,
    users: Option<Vec<NamedUser>>,
    #[serde(skip)]
    shown: String,
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
    proxy_url: Option<String>,
    extensions: Option<Vec<Extension>>,
}

#[derive(Deserialize)]
struct Extension {
    name: String,
    extension: Value,
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
    exec: Option<Exec>,
    auth_provider: Option<IgnoredAny>,
    username: Option<IgnoredAny>,
    password: Option<IgnoredAny>,
    r#as: Option<IgnoredAny>,
    as_uid: Option<IgnoredAny>,
    as_groups: Option<IgnoredAny>,
    as_user_extra: Option<IgnoredAny>,
}

pub struct Access {
    pub server: String,
    /// The name that the server's certificate must have. `None` means the host in the URL.
    pub tls_server_name: Option<String>,
    /// The authorities (PEM) of the server's certificate. `None` means the CA bundle of this host.
    pub authorities: Option<String>,
    /// The proxy in the kubeconfig. It has priority over the proxies in the environment.
    pub proxy: Option<ProxyServer>,
    pub credentials: Credentials,
    /// The client certificate chain and its key (PEM).
    pub identity: Option<(String, String)>,
}

/// The source of a request's `Authorization` header.
#[derive(PartialEq, Eq)]
pub enum Credentials {
    /// No header. A client certificate may identify the client.
    None,
    Token(String),
    /// The token in this file. Another program may replace the file at any time.
    TokenFile(PathBuf),
    /// A token or a certificate from a login program.
    Exec(Box<Plugin>),
}

impl Kubeconfig {
    pub fn read(path: &Path) -> Result<Kubeconfig> {
        Kubeconfig::from_files(&Chosen::file(path))
    }

    /// Reads and merges kubeconfig files. If several files define the same name, or a current context, the first of
    /// them wins. If `chosen` skips missing files, at least one file must exist.
    pub fn from_files(chosen: &Chosen) -> Result<Kubeconfig> {
        let mut merged: Option<Kubeconfig> = None;
        for path in &chosen.files {
            let text = match std::fs::read_to_string(path) {
                Err(error) if chosen.skips_missing && error.kind() == ErrorKind::NotFound => continue,
                read => read.with_context(|| of_file(path))?,
            };
            let next = Kubeconfig::parse(&text, path)?;
            merged = Some(match merged {
                None => next,
                Some(first) => first.and(next),
            });
        }
        let merged = merged.ok_or_else(|| wrong(format!("reading {chosen}: none of these files exists")))?;
        Ok(Kubeconfig { shown: format!("reading {chosen}"), ..merged })
    }

    /// Parses the text of a kubeconfig file. Relative paths in the text are relative to the folder of the file.
    fn parse(text: &str, path: &Path) -> Result<Kubeconfig> {
        let mut parsed: Kubeconfig = yaml::from_str(text).with_context(|| of_file(path))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let settle = |file: &mut Option<PathBuf>| {
            *file = file.take().filter(|file| !file.as_os_str().is_empty()).map(|file| folder.join(file));
        };
        for cluster in parsed.clusters.iter_mut().flatten().filter_map(|named| named.cluster.as_mut()) {
            settle(&mut cluster.certificate_authority);
        }
        for user in parsed.users.iter_mut().flatten().filter_map(|named| named.user.as_mut()) {
            let files = [&mut user.client_certificate, &mut user.client_key, &mut user.token_file];
            files.into_iter().for_each(settle);
            if let Some(exec) = &mut user.exec {
                exec.settle(folder);
            }
        }
        Ok(Kubeconfig { shown: of_file(path), ..parsed })
    }

    fn and(self, next: Kubeconfig) -> Kubeconfig {
        fn both<T>(first: Option<Vec<T>>, next: Option<Vec<T>>) -> Option<Vec<T>> {
            Some(first.into_iter().chain(next).flatten().collect())
        }
        Kubeconfig {
            current_context: self.current_context.filter(|name| !name.is_empty()).or(next.current_context),
            contexts: both(self.contexts, next.contexts),
            clusters: both(self.clusters, next.clusters),
            users: both(self.users, next.users),
            shown: self.shown,
        }
    }

    /// How to access the API server with this context. If `context` is `None`, uses the current context. Also reads the
    /// files that the context refers to.
    pub fn access(self, context: Option<&str>) -> Result<Access> {
        let shown = self.shown;
        let missing =
            |kind: &str, name: &str| incomplete(format!("{shown}: there is no {kind} {name:?} in it"));
        let wanted = context.map(str::to_owned).or(self.current_context.filter(|name| !name.is_empty()));
        let wanted = wanted.ok_or_else(|| incomplete(format!("{shown}: current-context is not set")))?;
        let context = named(self.contexts, |named| (named.name == wanted).then_some(named.context));
        let context = context.ok_or_else(|| missing("context", &wanted))?;
        let cluster = named(self.clusters, |named| (named.name == context.cluster).then_some(named.cluster));
        let cluster = cluster.ok_or_else(|| missing("cluster", &context.cluster))?;
        let user_name = context.user.unwrap_or_default();
        // As in kubectl, a context without a user is anonymous.
        let user =
            named(self.users, |named| (named.name == user_name).then_some(named.user)).unwrap_or_default();
        cluster.refuse_unsupported(&format!("{shown}: the cluster {:?}", context.cluster))?;
        let of_user = format!("{shown}: the user {user_name:?}");
        user.refuse_unsupported(&of_user)?;

        let pem = |field, data, file| pem(field, data, file).with_context(|| shown.clone());
        let without_server =
            || incomplete(format!("{shown}: the cluster {:?} has no server", context.cluster));
        let server = cluster.server.filter(|url| !url.is_empty()).ok_or_else(without_server)?;
        let authorities =
            pem("certificate-authority", cluster.certificate_authority_data, cluster.certificate_authority)?;
        let tls_server_name = cluster.tls_server_name.filter(|name| !name.is_empty());
        let proxy_url = cluster.proxy_url.filter(|url| !url.is_empty());
        let proxy = proxy_url.as_ref().map(|url| ProxyServer::parse("proxy-url", url));
        let proxy = proxy
            .transpose()
            .map_err(|error| wrong(format!("{shown}: in the cluster {:?}, {error}", context.cluster)))?;
        let extension = cluster.extensions.into_iter().flatten().find(|found| found.name == EXEC_EXTENSION);
        let certificate = pem("client-certificate", user.client_certificate_data, user.client_certificate)?;
        let key = pem("client-key", user.client_key_data, user.client_key)?;
        let identity = match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => {
                let problem =
                    format!("{of_user} has only one of client-certificate and client-key, and needs both");
                return Err(Failure::new(Kind::KubeconfigUnusable, problem).into());
            }
        };
        // As in client-go, a token in the kubeconfig has priority over a login program.
        let credentials = match (user.token, user.token_file, user.exec) {
            (Some(token), ..) if !token.is_empty() => Credentials::Token(token),
            (_, Some(file), _) => Credentials::TokenFile(file),
            (.., Some(exec)) => {
                let told = || {
                    let mut told =
                        cluster_info(&server, tls_server_name.as_deref(), authorities.as_deref(), extension);
                    if let Some(url) = proxy_url {
                        told["proxy-url"] = url.into();
                    }
                    told
                };
                let cluster = exec.provide_cluster_info.then(told);
                Credentials::Exec(Box::new(Plugin { exec, cluster, of: of_user }))
            }
            _ => Credentials::None,
        };
        Ok(Access { server, tls_server_name, authorities, proxy, identity, credentials })
    }
}

/// Information about the cluster for a login program.
fn cluster_info(
    server: &str,
    tls_server_name: Option<&str>,
    authorities: Option<&str>,
    extension: Option<Extension>,
) -> Value {
    let mut told = json!({"server": server});
    if let Some(name) = tls_server_name {
        told["tls-server-name"] = name.into();
    }
    if let Some(authorities) = authorities {
        told["certificate-authority-data"] = STANDARD.encode(authorities).into();
    }
    if let Some(Extension { extension, .. }) = extension {
        told["config"] = extension;
    }
    told
}

impl Cluster {
    fn refuse_unsupported(&self, what: &str) -> Result<(), Failure> {
        if self.insecure_skip_tls_verify == Some(true) {
            return Err(wrong(format!(
                "{what} has insecure-skip-tls-verify, but kops-agent always verifies the API server's certificate. Give \
                 certificate-authority-data instead"
            )));
        }
        Ok(())
    }
}

impl User {
    fn refuse_unsupported(&self, what: &str) -> Result<(), Failure> {
        let unsupported = [
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
            Some((field, _)) => Err(wrong(format!(
                "{what} has the field {field}, which kops-agent does not support. Use a client \
                 certificate and key, token, tokenFile or exec (`kops export kubeconfig --admin` writes \
                 a kubeconfig with a certificate)"
            ))),
        }
    }
}

fn named<T, V>(list: Option<Vec<T>>, value: impl Fn(T) -> Option<Option<V>>) -> Option<V> {
    list.into_iter().flatten().find_map(value).flatten()
}

/// The PEM text from the base64 value `data`. Without `data`, the content of `file`.
fn pem(field: &str, data: Option<String>, file: Option<PathBuf>) -> Result<Option<String>> {
    if let Some(data) = data.filter(|data| !data.is_empty()) {
        // Line breaks in the base64 value are allowed, because YAML may fold long values.
        let data: String = data.split_ascii_whitespace().collect();
        let bytes = STANDARD.decode(data).with_context(|| format!("{field}-data is not base64"))?;
        let no_pem = |_| Failure::new(Kind::KubeconfigUnusable, format!("{field}-data holds no PEM"));
        return Ok(Some(String::from_utf8(bytes).map_err(no_pem)?));
    }
    let Some(file) = file else { return Ok(None) };
    let text = std::fs::read_to_string(&file);
    Ok(Some(text.with_context(|| format!("reading {field}, {}", file.display()))?))
}

fn wrong(problem: String) -> Failure {
    Failure::new(Kind::KubeconfigWrong, problem)
}

/// The error of an incomplete kubeconfig. Unlike after `KubeconfigWrong`, a service retries after this error, because
/// another program may not have written the whole file yet.
fn incomplete(problem: String) -> Failure {
    Failure::new(Kind::KubeconfigUnusable, problem)
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
        parsed(&text).access(None)
    }

    fn parsed(text: &str) -> Kubeconfig {
        Kubeconfig::parse(text, Path::new(PATH)).unwrap()
    }

    fn problem(outcome: Result<Access>) -> String {
        format!("{:#}", outcome.err().unwrap())
    }

    #[test]
    fn a_kubeconfig_of_kops_is_read() {
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
    fn unsupported_fields_of_the_current_context_are_refused_by_name() {
        for field in [
            "auth-provider: {name: sesame}",
            "username: sesame",
            "password: sesame",
            "as: sesame",
            "as-groups: [sesame]",
        ] {
            let (name, _) = field.split_once(':').unwrap();
            let refused = access("server: 'https://10.0.0.1'", field).err().unwrap();
            assert_eq!(refused.downcast_ref::<Failure>().unwrap().kind, Kind::KubeconfigWrong, "{field}");
            assert!(refused.to_string().contains(&format!("has the field {name},")), "{refused}");
            assert!(!refused.to_string().contains("sesame"), "no secret is told: {refused}");
        }
        for field in ["proxy-url: 'socks5://p'", "insecure-skip-tls-verify: true"] {
            let refused = access(&format!("server: 'https://10.0.0.1', {field}"), "").err().unwrap();
            assert_eq!(refused.downcast_ref::<Failure>().unwrap().kind, Kind::KubeconfigWrong, "{field}");
        }
        access("server: 'https://10.0.0.1', insecure-skip-tls-verify: false", "exec: null").unwrap();
    }

    #[test]
    fn errors_in_a_kubeconfig_name_the_file() {
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
            assert!(problem(parsed(text).access(None)).contains(told), "{told}");
        }
    }

    #[test]
    fn a_user_that_is_not_there_is_anonymous() {
        let text = "{current-context: x, contexts: [{name: x, context: {cluster: y}}], \
                    clusters: [{name: y, cluster: {server: 'http://10.0.0.1:8080'}}]}";
        let access = parsed(text).access(None).unwrap();
        assert!(access.identity.is_none() && access.credentials == Credentials::None);
    }

    #[test]
    fn a_plugin_gets_the_cluster_if_the_kubeconfig_says_so() {
        let plugin = |more: &str| {
            let user =
                format!("exec: {{apiVersion: client.authentication.k8s.io/v1, command: ./bin/aws{more}}}");
            let cluster = "server: 'https://10.0.0.1', certificate-authority-data: Q0E=, \
                           extensions: [{name: client.authentication.k8s.io/exec, extension: {a: 1}}]";
            match access(cluster, &user).unwrap().credentials {
                Credentials::Exec(plugin) => *plugin,
                _ => panic!("{user}"),
            }
        };
        assert_eq!(plugin("").cluster, None);
        assert!(format!("{:?}", plugin("").exec).contains("/etc/kubernetes/./bin/aws"));
        let told =
            json!({"server": "https://10.0.0.1", "certificate-authority-data": "Q0E=", "config": {"a": 1}});
        assert_eq!(plugin(", provideClusterInfo: true").cluster, Some(told));
        let both = access("server: 'https://10.0.0.1'", "token: t, exec: {command: aws}").unwrap();
        assert!(both.credentials == Credentials::Token("t".into()));
    }

    #[test]
    fn files_are_merged_and_a_context_is_chosen() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            path
        };
        let first = file(
            "a/one",
            "{contexts: [{name: x, context: {cluster: c, user: u}}], users: [{name: u, user: {tokenFile: t}}]}",
        );
        let second = file(
            "b/two",
            "{current-context: y, contexts: [{name: x, context: {cluster: other}}, {name: y, context: {cluster: c}}], \
             clusters: [{name: c, cluster: {server: 'https://c'}}], users: [{name: u, user: {token: second}}]}",
        );
        let files = vec![folder.path().join("absent"), first, second];
        let chosen = Chosen { files, skips_missing: true, context: None };
        let access = |context| Kubeconfig::from_files(&chosen).unwrap().access(context);
        assert!(
            access(None).unwrap().credentials == Credentials::None,
            "the current context is the second file's"
        );
        let by_name = access(Some("x")).unwrap();
        assert_eq!(by_name.server, "https://c");
        assert!(
            by_name.credentials == Credentials::TokenFile(folder.path().join("a/t")),
            "the first file wins"
        );
        assert!(problem(access(Some("z"))).contains("there is no context \"z\""));
        let none = Chosen { files: vec![folder.path().join("absent")], ..chosen };
        assert!(
            format!("{:#}", Kubeconfig::from_files(&none).err().unwrap())
                .contains("none of these files exists")
        );
    }
}
