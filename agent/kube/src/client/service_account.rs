//! A pod's service account: a token and the cluster's authorities, in files that are replaced while they are in use.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hyper::header::HeaderValue;
use kops_agent_net::{http, tls};
use kops_agent_process::output::error_text;
use kops_agent_spec::failure::{Failure, Kind};
use parking_lot::Mutex;
use rustls::{ClientConfig, RootCertStore};

/// The folder in which kubelet stores the files of a pod's service account.
pub(super) const FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Interval between two reads of a file, as in client-go. A token is valid for an hour, and kubelet replaces it after
/// 48 minutes.
const READ_EVERY: Duration = Duration::from_secs(60);

/// Reads the API server's address from a pod's environment. Fails outside a pod.
pub(super) fn server(variable: impl Fn(&str) -> Option<String>) -> Result<String> {
    let get = |name: &str| {
        let unset = || Failure::new(Kind::KubeconfigWrong, format!("{name} is not set"));
        variable(name).filter(|value| !value.is_empty()).ok_or_else(unset)
    };
    let (host, port) = (get("KUBERNETES_SERVICE_HOST")?, get("KUBERNETES_SERVICE_PORT")?);
    let port: u16 =
        port.parse().with_context(|| format!("KUBERNETES_SERVICE_PORT is {port:?}, which is not a port"))?;
    Ok(match host.contains(':') {
        true => format!("https://[{host}]:{port}"),
        false => format!("https://{host}:{port}"),
    })
}

/// A value from a file that another program may replace. If the next read fails, the last value stays in use.
#[derive(Debug)]
struct Reread<T> {
    path: PathBuf,
    read: fn(&Path) -> Result<T>,
    last: Mutex<(T, Instant)>,
}

impl<T: Clone> Reread<T> {
    fn new(path: PathBuf, read: fn(&Path) -> Result<T>) -> Result<Reread<T>> {
        let first = read(&path)?;
        Ok(Reread { path, read, last: Mutex::new((first, Instant::now())) })
    }

    fn get(&self, now: Instant) -> T {
        let mut last = self.last.lock();
        if now.saturating_duration_since(last.1) >= READ_EVERY {
            match (self.read)(&self.path) {
                Ok(new) => last.0 = new,
                Err(error) => log::warn!("{}; kops-agent keeps the last content", error_text(&error)),
            }
            last.1 = now;
        }
        last.0.clone()
    }
}

#[derive(Debug)]
pub(super) struct TokenFile(Reread<HeaderValue>);

impl TokenFile {
    /// Reads the token for the first time.
    pub(super) fn open(path: PathBuf) -> Result<TokenFile> {
        Reread::new(path, |path| {
            let what = || format!("reading the token {}", path.display());
            let token = std::fs::read_to_string(path).with_context(what)?;
            http::bearer(token.trim()).with_context(what)
        })
        .map(TokenFile)
    }

    /// The current token, for a request's `Authorization` header.
    pub(super) fn bearer(&self) -> HeaderValue {
        self.0.get(Instant::now())
    }
}

/// A TLS client configuration. Each new connection trusts the authorities that are in the file at that time. Fails if
/// the file has no authorities now.
pub(super) fn trusting_file(path: PathBuf) -> Result<ClientConfig> {
    let roots = Reread::new(path, roots)?;
    Ok(tls::client_config_trusting_current(move || Ok(roots.get(Instant::now())))?)
}

fn roots(path: &Path) -> Result<Arc<RootCertStore>> {
    let what = || format!("reading the CA certificates {}", path.display());
    let text = std::fs::read(path).with_context(what)?;
    Ok(Arc::new(tls::roots_of(text).with_context(what)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_address_is_that_of_the_environment() {
        let server_of = |host: &'static str, port: &'static str| {
            server(move |name| match name {
                "KUBERNETES_SERVICE_HOST" => Some(host.to_owned()),
                "KUBERNETES_SERVICE_PORT" => Some(port.to_owned()),
                _ => None,
            })
        };
        assert_eq!(server_of("100.64.0.1", "443").unwrap(), "https://100.64.0.1:443");
        assert_eq!(server_of("fd00::1", "6443").unwrap(), "https://[fd00::1]:6443");
        assert!(server_of("", "443").unwrap_err().to_string().contains("KUBERNETES_SERVICE_HOST is not set"));
        assert!(server_of("100.64.0.1", "http").is_err());
    }

    #[test]
    fn a_token_is_read_again_and_the_last_one_stands_where_it_cannot() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        assert!(TokenFile::open(path.clone()).is_err());
        std::fs::write(&path, "one\n").unwrap();
        let token = TokenFile::open(path.clone()).unwrap();
        let begun = Instant::now();
        assert_eq!(token.0.get(begun), "Bearer one");
        std::fs::write(&path, "two\n").unwrap();
        assert_eq!(token.0.get(begun), "Bearer one", "not before its time");
        assert_eq!(token.0.get(begun + 2 * READ_EVERY), "Bearer two");
        std::fs::write(&path, "").unwrap();
        assert_eq!(token.0.get(begun + 4 * READ_EVERY), "Bearer two", "an empty file is no token");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(token.0.get(begun + 6 * READ_EVERY), "Bearer two");
        assert!(format!("{:?}", token.bearer()).contains("Sensitive"));
    }

    #[test]
    fn authorities_that_are_replaced_are_trusted_from_then_on() {
        tls::install_provider();
        let authority = || {
            let key = rcgen::KeyPair::generate().unwrap();
            let mut params = rcgen::CertificateParams::new(vec!["api".to_owned()]).unwrap();
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            params.self_signed(&key).unwrap()
        };
        let (old, new) = (authority(), authority());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.crt");
        assert!(trusting_file(path.clone()).is_err());
        std::fs::write(&path, old.pem()).unwrap();
        let file = Reread::new(path.clone(), roots).unwrap();
        let begun = Instant::now();
        let count = |at| file.get(at).len();
        assert_eq!(count(begun), 1);
        std::fs::write(&path, format!("{}{}", old.pem(), new.pem())).unwrap();
        assert_eq!(count(begun), 1, "not before its time");
        assert_eq!(count(begun + 2 * READ_EVERY), 2);
        std::fs::write(&path, "").unwrap();
        assert_eq!(count(begun + 4 * READ_EVERY), 2, "no authority is no answer");
    }
}
