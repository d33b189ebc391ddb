//! A real kube-apiserver and its etcd on loopback. They run until the value is dropped.
//!
//! The API server authorizes requests as in a kOps cluster (`Node,RBAC`, and NodeRestriction for the writes of kubelets), so a
//! missing right fails a test.

use std::convert::Infallible;
use std::fs::{self, File};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, date_time_ymd};
use tempfile::TempDir;

use crate::administrator::Administrator;
use crate::authority::{Authority, Pair};
use crate::polling::poll;
use crate::ports::free_port;

/// The names in the server's certificate. The machines of the test cluster use the last name.
const NAMES: [&str; 3] = ["127.0.0.1", "localhost", "api.internal.c.example.com"];
const START_WITHIN: Duration = Duration::from_secs(300);
/// A slow etcd alternately stops for `SLOW_FOR` and runs for `FAST_FOR`.
const SLOW_FOR: Duration = Duration::from_millis(600);
const FAST_FOR: Duration = Duration::from_millis(200);

/// An API server and its etcd.
#[derive(Debug)]
pub struct ApiServer {
    folder: TempDir,
    assets: PathBuf,
    authority: Authority,
    etcd: Process,
    etcd_url: String,
    port: u16,
    pub administrator: Administrator,
    api_server: Option<Process>,
}

impl ApiServer {
    /// Starts `etcd` and `kube-apiserver` from the folder `assets`, and waits until they are ready. Fails if kube-apiserver is not
    /// ready within 300 s.
    pub fn start(assets: &Path) -> anyhow::Result<ApiServer> {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name);
        let authority = Authority::of_rsa("kubernetes-ca")?;
        fs::write(path("ca.crt"), &authority.pem)?;
        let Pair { certificate, private_key: key } = authority.issue(&Holder::Server.params()?)?;
        fs::write(path("server.crt"), certificate)?;
        fs::write(path("server.key"), key)?;
        let service_account = KeyPair::generate()?;
        fs::write(path("service-account.key"), service_account.serialize_pem())?;
        fs::write(path("service-account.pub"), service_account.public_key_pem())?;

        let [client, peer, port] = [free_port()?, free_port()?, free_port()?];
        let holder = Holder::Client { user: "admin", groups: &["system:masters"] };
        let administrator = Administrator::new(&authority.pem, &authority.issue(&holder.params()?)?, port)?;
        let etcd_url = format!("http://127.0.0.1:{client}");
        let peer_url = format!("http://127.0.0.1:{peer}");
        let mut etcd = Command::new(assets.join("etcd"));
        etcd.args(["--name=a", "--unsafe-no-fsync", "--log-level=error"])
            .arg(format!("--data-dir={}", path("etcd").display()))
            .args([format!("--listen-client-urls={etcd_url}"), format!("--advertise-client-urls={etcd_url}")])
            .args([
                format!("--listen-peer-urls={peer_url}"),
                format!("--initial-advertise-peer-urls={peer_url}"),
            ])
            .arg(format!("--initial-cluster=a={peer_url}"));
        let etcd = Process::start(etcd, &path("etcd.log"))?;
        let mut server = ApiServer {
            assets: assets.to_owned(),
            authority,
            etcd,
            etcd_url,
            port,
            administrator,
            api_server: None,
            folder,
        };
        server.start_api_server()?;
        Ok(server)
    }

    /// Restarts the API server after [`ApiServer::kill_api_server`], and waits until it is ready.
    pub fn start_api_server(&mut self) -> anyhow::Result<()> {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let mut command = Command::new(self.assets.join("kube-apiserver"));
        // With Go's default, garbage collection takes a tenth of the processor time of the API server's start.
        command.env("GOGC", "400");
        command
            .args([
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                "--authorization-mode=Node,RBAC",
            ])
            .args(["--service-cluster-ip-range=10.0.0.0/24", "--disable-admission-plugins=ServiceAccount"])
            .args(["--enable-admission-plugins=NodeRestriction"])
            .args(["--service-account-issuer=https://kubernetes.default.svc", "--event-ttl=1h"])
            .arg(format!("--etcd-servers={}", self.etcd_url))
            .arg(format!("--secure-port={}", self.port))
            .arg(format!("--cert-dir={}", path("generated")))
            .arg(format!("--client-ca-file={}", path("ca.crt")))
            .arg(format!("--tls-cert-file={}", path("server.crt")))
            .arg(format!("--tls-private-key-file={}", path("server.key")))
            .arg(format!("--service-account-key-file={}", path("service-account.pub")))
            .arg(format!("--service-account-signing-key-file={}", path("service-account.key")));
        let mut process = Process::start(command, &self.folder.path().join("kube-apiserver.log"))?;
        let started = poll(START_WITHIN, || {
            let running = process.ensure_runs("kube-apiserver").and_then(|()| self.etcd.ensure_runs("etcd"));
            if running.is_err() { Some(running) } else { self.is_ready().then_some(Ok(())) }
        });
        started.with_context(|| format!("kube-apiserver is not ready in time:\n{}", process.log()))??;
        self.api_server = Some(process);
        Ok(())
    }

    /// Kills the API server. etcd keeps running.
    pub fn kill_api_server(&mut self) {
        self.api_server = None;
    }

    pub fn pause_etcd(&self, paused: bool) -> anyhow::Result<()> {
        let signal = if paused { Signal::SIGSTOP } else { Signal::SIGCONT };
        kill(self.etcd.id(), signal).context("signalling etcd")
    }

    /// Slows etcd until the returned value is dropped. As on a slow disk, etcd is stopped most of the time, for less than a second
    /// each time.
    pub fn slow_etcd(&self) -> SlowEtcd<'_> {
        let (over, is_over) = mpsc::channel::<Infallible>();
        let etcd = self.etcd.id();
        let thread = thread::spawn(move || {
            let waits = |pause| is_over.recv_timeout(pause) == Err(RecvTimeoutError::Timeout);
            // The error of a failed signal is dropped, because the test itself measures whether etcd is slow.
            while kill(etcd, Signal::SIGSTOP).is_ok() && waits(SLOW_FOR) {
                let _ = kill(etcd, Signal::SIGCONT);
                if !waits(FAST_FOR) {
                    return;
                }
            }
            let _ = kill(etcd, Signal::SIGCONT);
        });
        SlowEtcd { over: Some(over), thread: Some(thread), of: PhantomData }
    }

    /// The process id of the API server. `None` if the API server does not run.
    pub fn process_id(&self) -> Option<u32> {
        self.api_server.as_ref().map(|process| process.child.id())
    }

    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Writes a kubeconfig for a user in these groups and returns the file's path. Only the file's owner can read the file.
    pub fn kubeconfig(&self, user: &str, groups: &[&str]) -> anyhow::Result<PathBuf> {
        use base64::Engine as _;
        use std::os::unix::fs::PermissionsExt as _;
        let name = format!("{}.kubeconfig", user.replace([':', '/'], "-"));
        let path = self.folder.path().join(name);
        // An existing file is not replaced, because a program that uses the file would restart.
        if path.exists() {
            return Ok(path);
        }
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        let Pair { certificate, private_key: key } =
            self.authority.issue(&Holder::Client { user, groups }.params()?)?;
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster":
                {"server": self.url(), "certificate-authority-data": encode(&self.authority.pem)}}],
            "users": [{"name": "test", "user":
                {"client-certificate-data": encode(&certificate), "client-key-data": encode(&key)}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        });
        fs::write(&path, kubeconfig.to_string())?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(path)
    }

    /// Runs kubectl as the administrator and returns its output.
    pub fn kubectl(&self, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        self.kubectl_with(&self.kubeconfig("admin", &["system:masters"])?, arguments, input)
    }

    pub fn kubectl_as_kubelet(&self, node: &str, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        let user = format!("system:node:{node}");
        self.kubectl_with(&self.kubeconfig(&user, &["system:nodes"])?, arguments, input)
    }

    /// Runs kubectl with a kubeconfig, but connects to this API server.
    pub fn kubectl_by(&self, kubeconfig: &Path, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        let server = format!("--server={}", self.url());
        self.kubectl_with(kubeconfig, &[&[server.as_str()], arguments].concat(), input)
    }

    /// The certificate and the key of the CA that the whole cluster trusts.
    pub fn authority_pair(&self) -> Pair {
        self.authority.pair()
    }

    /// The file with the certificate of the CA that the whole cluster trusts.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.crt")
    }

    fn is_ready(&self) -> bool {
        // The API server creates the namespace `kube-system` shortly after it reports ready.
        ["/readyz", "/api/v1/namespaces/kube-system"].iter().all(|path| self.administrator.get(path).is_ok())
    }

    fn kubectl_with(&self, kubeconfig: &Path, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        use std::io::Write as _;
        let mut child = Command::new(self.assets.join("kubectl"))
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args(["--request-timeout=60s", "--cache-dir"])
            .arg(self.folder.path().join("kubectl"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("running kubectl of {}", self.assets.display()))?;
        child.stdin.take().context("kubectl has no standard input")?.write_all(input.as_bytes())?;
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!("kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// etcd is slow until this value is dropped.
#[derive(Debug)]
pub struct SlowEtcd<'a> {
    over: Option<mpsc::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
    of: PhantomData<&'a ApiServer>,
}

impl Drop for SlowEtcd<'_> {
    fn drop(&mut self) {
        self.over = None;
        // A panic of the thread is ignored, because the thread has ended in any case.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A child process that is killed on drop.
#[derive(Debug)]
struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    fn start(mut command: Command, log: &Path) -> anyhow::Result<Process> {
        let file = File::create(log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("starting {:?}", command.get_program()))?;
        Ok(Process { child, log: log.to_owned() })
    }

    fn id(&self) -> nix::unistd::Pid {
        nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(i32::MAX))
    }

    fn ensure_runs(&mut self, name: &str) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{name} ended, {status}:\n{}", self.log()),
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // `kill` fails if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

enum Holder<'a> {
    Server,
    Client { user: &'a str, groups: &'a [&'a str] },
}

impl Holder<'_> {
    fn params(&self) -> anyhow::Result<CertificateParams> {
        Ok(match self {
            Holder::Server => {
                let mut params = CertificateParams::new(NAMES.map(str::to_owned))?;
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
                valid(params)
            }
            Holder::Client { user, groups } => {
                let mut params = params(user, groups);
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
                params
            }
        })
    }
}

fn params(common_name: &str, organizations: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for organization in organizations {
        params.distinguished_name.push(DnType::OrganizationName, *organization);
    }
    params.distinguished_name.push(DnType::CommonName, common_name);
    valid(params)
}

/// Sets fixed years of validity, so that no test depends on the date.
fn valid(mut params: CertificateParams) -> CertificateParams {
    params.not_before = date_time_ymd(2026, 1, 1);
    params.not_after = date_time_ymd(2046, 1, 1);
    params
}
