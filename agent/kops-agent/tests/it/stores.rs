//! State stores of other schemes: the example cluster in the stores of other clouds.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::example::{Ended, Machine, agent};
use kops_agent_tests::azure_blob::{ACCOUNT, AzureBlob, TOKEN};
use kops_agent_tests::downloads::{Downloads, Fault};
use kops_agent_tests::example_store::{CONFIG_BASE, CONTROL_PLANE, NODES};
use kops_agent_tests::gcs::{self, Gcs};
use kops_agent_tests::imds;
use kops_agent_tests::loopback::Identity;
use kops_agent_tests::metadata::{Guard, Metadata};
use kops_agent_tests::openstack::swift::{Mood, Swift};
use kops_agent_tests::openstack::{SECRET, TOKEN as OPENSTACK_TOKEN};
use kops_agent_tests::proxy::Proxy;

/// The URL of the example cluster's store, with the scheme `scheme`.
fn config_base(scheme: &str) -> String {
    CONFIG_BASE.replace("s3://", &format!("{scheme}://"))
}

#[test]
fn a_store_that_speaks_s3_makes_a_node() {
    for scheme in ["do", "hos", "linode", "scw"] {
        let node = Machine::new(NODES);
        let ended = Ended::from_command(&mut node.agent_with_store("converge", &config_base(scheme)));
        ended.with(0, &[]);
        assert!(node.files().contains(&"usr/local/bin/kubelet".to_owned()), "{:?}", node.files());
        assert!(!ended.stderr.contains(node.cluster.s3.secret_access_key()), "{ended:#?}");
    }
}

#[test]
fn a_container_of_azure_makes_a_node() {
    let base = CONFIG_BASE.replace("s3://", &format!("azureblob://{ACCOUNT}/"));
    let older = CONFIG_BASE.replace("s3://", "azureblob://");
    for (base, account) in [(base, None), (older, Some(ACCOUNT))] {
        let node = Machine::new(NODES);
        let azure = AzureBlob::start(&node.cluster.store.buckets()).unwrap();
        let mut agent = node.agent_with_store("converge", &base);
        agent.envs(azure.environment()).envs(account.map(|account| ("AZURE_STORAGE_ACCOUNT", account)));
        let ended = Ended::from_command(&mut agent);
        ended.with(0, &[]);
        assert!(node.files().contains(&"usr/local/bin/kubelet".to_owned()), "{:?}", node.files());
        assert!(!ended.stderr.contains(TOKEN), "{ended:#?}");
    }
}

/// A bare-metal machine has no metadata server, so it uses a key file.
#[test]
fn a_bucket_of_google_makes_a_node_by_the_key_of_a_service_account() {
    let node = Machine::new(NODES);
    let gcs = Gcs::start(&node.cluster.store.buckets()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key.json");
    let run = |key: &serde_json::Value| {
        fs::write(&file, key.to_string()).unwrap();
        let mut agent = node.agent_with_store("converge", &config_base("gs"));
        agent.envs([gcs.environment(), ("GCE_METADATA_HOST", "127.0.0.1:1".to_owned())]);
        let ended = Ended::from_command(agent.env("GOOGLE_APPLICATION_CREDENTIALS", &file));
        let is_told = |secret| ended.stderr.contains(secret);
        assert!(!is_told(gcs::TOKEN) && !is_told("PRIVATE KEY"), "{ended:#?}");
        ended
    };
    let mut other = gcs.key();
    other["type"] = "authorized_user".into();
    run(&other).with(3, &["has credentials of the type \"authorized_user\", the login of a person"]);
    let other = Gcs::start(&node.cluster.store.buckets()).unwrap();
    let mut not_its_own = gcs.key();
    not_its_own["private_key"] = other.key()["private_key"].clone();
    run(&not_its_own).with(
        1,
        &["gives no token of kops-state@my-project.iam.gserviceaccount.com", "Invalid JWT Signature."],
    );
    assert_eq!(node.files(), [""; 0]);

    run(&gcs.key()).with(0, &[]);
    assert!(node.files().contains(&"usr/local/bin/kubelet".to_owned()), "{:?}", node.files());
}

#[test]
fn a_container_of_openstack_makes_a_node() {
    let node = Machine::new(NODES);
    let swift = Swift::start(&node.cluster.store.buckets()).unwrap();
    let run = |login: Vec<(&str, String)>| {
        let mut agent = node.agent_with_store("converge", &config_base("swift"));
        agent.envs(login);
        let ended = Ended::from_command(&mut agent);
        assert!(!ended.stderr.contains(SECRET) && !ended.stderr.contains(OPENSTACK_TOKEN), "{ended:#?}");
        ended
    };
    run(Vec::new()).with(3, &["OS_AUTH_URL is not set: give this process a login to OpenStack"]);
    swift.set_mood(Mood::Forbidding);
    let told = "access denied (403): the store says \"Forbidden\"; ";
    run(swift.environment()).with(1, &[told, "a role in the project of the container"]);
    assert_eq!(node.files(), [""; 0]);

    swift.set_mood(Mood::Revoking);
    run(swift.environment()).with(0, &[]);
    assert!(node.files().contains(&"usr/local/bin/kubelet".to_owned()), "{:?}", node.files());
}

#[test]
fn a_missing_variable_of_the_store_is_named() {
    let node = Machine::new(NODES);
    let without = |variables: &[&str]| {
        let mut agent = node.agent_with_store("converge", &config_base("do"));
        for variable in variables {
            agent.env_remove(variable);
        }
        Ended::from_command(&mut agent)
    };
    without(&["S3_ENDPOINT"]).with(3, &["S3_ENDPOINT is not set, and do:// stores need it; set S3_ENDPOINT"]);
    without(&["S3_SECRET_ACCESS_KEY"])
        .with(3, &["S3_ENDPOINT is set, but S3_SECRET_ACCESS_KEY is not; set S3_SECRET_ACCESS_KEY, too"]);
    assert_eq!(node.files(), [""; 0]);
}

/// Without a limit, the node would need seconds to verify a large number of certificates.
#[test]
fn a_server_of_s3_that_shows_many_certificates_is_refused() {
    let node = Machine::new(NODES);
    let identity = Identity::new().unwrap().showing_more(6);
    let server = Downloads::start_tls(BTreeMap::new(), &identity).unwrap();
    let bundle = node.folder().join("bundle.pem");
    fs::write(&bundle, &identity.certificate_pem).unwrap();
    let mut agent = node.agent("converge");
    agent.env("S3_ENDPOINT", server.url()).env("SSL_CERT_FILE", &bundle).args(["--store-timeout", "1"]);
    Ended::from_command(&mut agent)
        .with(1, &["6 certificates came in addition to the server's own, and at most 5 are accepted"]);
    assert_eq!(server.requests(), [""; 0]);
}

/// The example cluster's store on a web server with TLS.
struct Published {
    server: Downloads,
    host: &'static str,
    /// The file with the authority that signed the server's certificate.
    bundle: PathBuf,
}

impl Published {
    fn new(node: &Machine) -> Published {
        Published::at("127.0.0.1", node)
    }

    fn at(host: &'static str, node: &Machine) -> Published {
        let identity = Identity::named(&[host]).unwrap();
        let server = Downloads::start_tls(BTreeMap::new(), &identity).unwrap();
        let bundle = node.folder().join("bundle.pem");
        fs::write(&bundle, &identity.certificate_pem).unwrap();
        let published = Published { server, host, bundle };
        published.publish(&node.cluster.store.cluster_folder(), "");
        published
    }

    fn publish(&self, folder: &Path, below: &str) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = format!("{below}/{}", path.file_name().unwrap().to_str().unwrap());
            if path.is_dir() {
                self.publish(&path, &name);
            } else {
                let text = fs::read_to_string(&path).unwrap().replace(CONFIG_BASE, &self.base());
                self.server.put(&format!("/state{name}"), text.as_bytes());
            }
        }
    }

    fn base(&self) -> String {
        format!("{}/state", self.server.url().replace("127.0.0.1", self.host))
    }

    fn agent(&self, node: &Machine) -> Command {
        let mut agent = node.agent_with_store("converge", &self.base());
        agent.env("SSL_CERT_FILE", &self.bundle).args(["--store-timeout", "1"]);
        agent
    }
}

#[test]
fn a_web_server_makes_a_node_and_is_asked_for_files_only() {
    let node = Machine::new(NODES);
    let web = Published::new(&node);
    let ended = Ended::from_command(&mut web.agent(&node));
    ended.with(0, &[]);
    assert!(node.files().contains(&"usr/local/bin/kubelet".to_owned()), "{:?}", node.files());
    let asked = web.server.requests();
    assert!(asked.iter().any(|asked| asked.starts_with("GET /state/cluster-completed.spec")), "{asked:?}");
    assert!(asked.iter().all(|asked| !asked.ends_with('/')), "{asked:?}");

    let (proxy, web) = (Proxy::start().unwrap(), Published::at("web.test", &node));
    let mut agent = web.agent(&node);
    Ended::from_command(agent.env("HTTPS_PROXY", proxy.url())).with(0, &[]);
    assert!(proxy.asked().iter().any(|asked| asked.starts_with("CONNECT web.test:")), "{:?}", proxy.asked());
}

#[test]
fn failures_of_a_web_server_are_reported_with_the_reason() {
    let node = Machine::new(NODES);
    let web = Published::new(&node);
    let spec = "/state/cluster-completed.spec";
    let mut distrusting = web.agent(&node);
    Ended::from_command(distrusting.env_remove("SSL_CERT_FILE"))
        .with(1, &["the store cannot be reached", "certificate"]);
    for (fault, code, told) in [
        (Fault::Status(403), 1, "read access without a login on the web server 127.0.0.1:"),
        (
            Fault::Status(403),
            1,
            "access denied (403): the store says \"403 Forbidden 403 Forbidden This mirror greets you.\"; ",
        ),
        (Fault::Status(401), 1, "401 Unauthorized; it wants a login"),
        (Fault::Status(503), 1, "the store cannot be reached: it answers 503"),
        (Fault::Endless, 3, "is larger than 8 MiB"),
        (Fault::StopsHalfway, 1, "the store cannot be reached"),
        (
            Fault::RedirectsTo(format!("{}{spec}", node.downloads().url())),
            3,
            "it redirects from https to http://",
        ),
    ] {
        web.server.break_path(spec, fault.clone());
        Ended::from_command(&mut web.agent(&node)).with(code, &[told]);
    }
    assert_eq!(node.files(), [""; 0]);
}

#[test]
fn the_boot_config_is_read_from_the_urls_that_nodeup_takes() {
    let node = Machine::new(NODES);
    let store = &node.cluster.store;
    let file = store.kube_env(NODES);
    let server =
        Downloads::start_with([("/kube_env.yaml".to_owned(), fs::read(&file).unwrap())].into()).unwrap();
    let render = |conf: &str| {
        let mut render = Command::new(agent());
        render.env_clear().envs(node.cluster.environment());
        render.args([
            "render",
            "--config-base",
            CONFIG_BASE,
            "--conf",
            conf,
            "--store-timeout",
            "1",
            "--facts",
        ]);
        render.arg(store.facts(NODES));
        Ended::from_command(&mut render)
    };
    let of_path = render(file.to_str().unwrap());
    of_path.with(0, &[]);
    let of_file = render(&format!("file://{}", file.display()));
    of_file.with(0, &[]);
    let of_server = render(&format!("{}/kube_env.yaml", server.url()));
    of_server.with(0, &["any hop on the way can change the boot config"]);
    assert_eq!((&of_file.stdout, &of_server.stdout), (&of_path.stdout, &of_path.stdout));

    render(&format!("{}/other.yaml", server.url())).with(3, &["reading the boot config http://127.0.0.1:"]);
    render("memfs://kube_env.yaml").with(3, &["it is the memory of one process"]);
}

/// A boot config may be in a tag (EC2) or an attribute (GCE) of the machine, which the metadata server serves.
#[test]
fn a_boot_config_is_read_from_the_machines_metadata() {
    let node = Machine::new(NODES);
    let boot_config = fs::read_to_string(node.cluster.store.kube_env(NODES)).unwrap();
    let loopback = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let items = [("tags/instance/boot".to_owned(), boot_config.clone())].into();
    let ec2 = imds::start(loopback(), [(IpAddr::from(Ipv4Addr::LOCALHOST), items)].into()).unwrap();
    let attribute = "/computeMetadata/v1/instance/attributes/boot";
    let gce = Metadata::new(Guard::Header("metadata-flavor", "Google"), [(attribute, boot_config)]);
    let gce = gce.serve(loopback()).unwrap();
    let render = |conf: &str| {
        let mut render = Command::new(agent());
        render.env_clear().envs(node.cluster.environment()).env_remove("AWS_EC2_METADATA_DISABLED");
        render.env("AWS_EC2_METADATA_SERVICE_ENDPOINT", ec2.url());
        render.env("GCE_METADATA_HOST", gce.url().trim_start_matches("http://"));
        render.args(["render", "--config-base", CONFIG_BASE, "--store-timeout", "1", "--conf", conf]);
        Ended::from_command(render.arg("--facts").arg(node.cluster.store.facts(NODES)))
    };
    let of_path = render(node.cluster.store.kube_env(NODES).to_str().unwrap());
    of_path.with(0, &[]);
    for url in ["metadata://aws/meta-data/tags/instance/boot", "metadata://gce/instance/attributes/boot"] {
        let of_metadata = render(url);
        of_metadata.with(0, &[]);
        assert_eq!(of_metadata.stdout, of_path.stdout, "{url}");
    }
    for (url, why) in [
        ("metadata://gce/instance/attributes/other", "does not have it (404)"),
        ("metadata://aws/user-data", "kOps reads only items below metadata://aws/meta-data/"),
        ("metadata://hetzner/user-data", "kops-agent cannot read metadata:// URLs on hetzner"),
        ("metadata://elsewhere/user-data", "names no cloud"),
    ] {
        render(url).with(1, &["reading the boot config metadata://", why]);
    }
}

/// The nodeupconfig that kOps would write for the control plane.
fn configuration(node: &Machine) -> String {
    let mut derive = Command::new(agent());
    derive.env_clear().envs(node.cluster.environment());
    derive.args(["config", "derive", "--instance-group", CONTROL_PLANE, "--config-base", CONFIG_BASE]);
    let derived = Ended::from_command(&mut derive);
    derived.with(0, &[]);
    derived.stdout
}

/// The folder `copied` has the files that `kops toolbox enroll` copies to a bare-metal control plane (upstream:
/// `GetBootstrapData` in `pkg/commands/toolbox_enroll.go`).
#[test]
fn files_from_kops_toolbox_enroll_make_a_control_plane() {
    let node = Machine::new(CONTROL_PLANE);
    let (store, copied) = (node.cluster.store.cluster_folder(), node.folder().join("copied"));
    let at = |path: &str| copied.join(path).display().to_string();
    let manifests = CONFIG_BASE.replace("s3://", "") + "/manifests";
    let configuration = configuration(&node)
        .replace(&format!("{CONFIG_BASE}/manifests"), &at(&manifests))
        .replace(&format!("keypairs: {CONFIG_BASE}/pki"), &format!("keypairs: {}", at("pki/etcd")))
        .replace(&format!("secrets: {CONFIG_BASE}/secrets"), &format!("secrets: {}", at("pki")));
    assert!(configuration.contains(&format!("- {}", at(&manifests))), "{configuration}");
    let file = copied.join(format!("igconfig/control-plane/{CONTROL_PLANE}/nodeupconfig.yaml"));
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, configuration).unwrap();
    for (folder, target) in [
        ("manifests", manifests.as_str()),
        ("manifests/static", "manifests/static"),
        ("pki", "pki/etcd"),
        ("secrets", "pki"),
    ] {
        let target = copied.join(target);
        fs::create_dir_all(&target).unwrap();
        let from = format!("{}/.", store.join(folder).display());
        assert!(Command::new("cp").arg("-r").arg(from).arg(target).status().unwrap().success());
    }
    let base = format!("file://{}", copied.display());
    Ended::from_command(&mut node.agent_with_store("converge", &base)).with(0, &[]);
    for file in [
        "etc/kubernetes/manifests/etcd-main-control-plane-eu-west-1a.manifest",
        "etc/kubernetes/manifests/kube-apiserver.manifest",
    ] {
        assert!(node.files().contains(&file.to_owned()), "{:?}", node.files());
    }

    // Without the copied nodeupconfig.yaml, the run fails because the cluster spec is missing.
    fs::remove_file(file).unwrap();
    Ended::from_command(&mut node.agent_with_store("plan", &base))
        .with(3, &["cluster-completed.spec does not exist"]);
}

/// A control plane derives its labels from the list of groups, and a web server cannot list groups. So the control
/// plane needs the configuration that kOps wrote, which has the labels.
#[test]
fn a_control_plane_with_a_web_server_needs_the_nodeupconfig_of_kops() {
    let node = Machine::new(CONTROL_PLANE);
    let web = Published::new(&node);
    Ended::from_command(&mut web.agent(&node))
        .with(3, &["https:// stores have no lists", "--config-from nodeup-config"]);
    assert_eq!(node.files(), [""; 0]);
    let configuration = configuration(&node).replace(CONFIG_BASE, &web.base());
    let path = format!("/state/igconfig/control-plane/{CONTROL_PLANE}/nodeupconfig.yaml");
    web.server.put(&path, configuration.as_bytes());
    Ended::from_command(web.agent(&node).args(["--config-from", "nodeup-config"])).with(0, &[]);
    assert!(node.files().contains(&"etc/kubernetes/manifests/kube-apiserver.manifest".to_owned()));
}

#[test]
fn urls_of_unusable_stores_are_refused_with_the_reason() {
    let node = Machine::new(NODES);
    for (base, told) in [
        (
            "http://127.0.0.1:1/state",
            "http:// is no state store of a node: any hop on the way could read its keys",
        ),
        ("k8s://cluster", "kOps' own nodeup cannot read any there"),
        ("memfs://state", "it is the memory of one process"),
        ("https://admin:hidden@127.0.0.1/state", "it has a login in it"),
    ] {
        let ended = Ended::from_command(&mut node.agent_with_store("converge", base));
        ended.with(3, &[told]);
        assert!(!ended.stderr.contains("hidden"), "{ended:#?}");
    }
    assert_eq!(node.files(), [""; 0]);
}
