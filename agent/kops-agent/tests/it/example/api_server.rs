//! A stand-in for an API server. It serves a few fixed objects, and accepts patches of its Nodes.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

/// The name of an add-on that the cluster has, although no channel lists it.
pub const ADDON: &str = "old.addons.k8s.io";

/// A stand-in for the API server. Its threads end with the process of the test.
pub struct ApiServer {
    pub url: String,
    asked: Receiver<Asked>,
}

#[derive(Debug)]
pub struct Asked {
    pub path: String,
    /// The header `Authorization`. Empty if the request has none.
    pub authorization: String,
}

impl ApiServer {
    /// A server with one Node. The Node has no report of kops-agent.
    pub fn start() -> ApiServer {
        ApiServer::with_nodes(vec![json!({"metadata": {"name": "node-1"}, "spec": {}, "status": {}})])
    }

    pub fn with_nodes(nodes: Vec<Value>) -> ApiServer {
        let nodes = Arc::new(Mutex::new(nodes));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (told, asked) = mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (told, nodes) = (told.clone(), nodes.clone());
                thread::spawn(move || answer(stream.unwrap(), &told, &nodes));
            }
        });
        ApiServer { url, asked }
    }

    /// The requests since the last call of `asked`.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.try_iter().collect()
    }

    /// Writes a kubeconfig for this server into `folder`.
    pub fn kubeconfig(&self, folder: &Path) -> PathBuf {
        let file = folder.join("kubeconfig");
        let text = json!({
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {}}],
        });
        fs::write(&file, text.to_string()).unwrap();
        file
    }
}

fn answer(mut stream: TcpStream, told: &mpsc::Sender<Asked>, nodes: &Mutex<Vec<Value>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut lines = reader.by_ref().lines().map_while(Result::ok);
    let Some(request) = lines.next() else { return };
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let (mut authorization, mut length) = (String::new(), 0);
    for header in lines.take_while(|line| !line.is_empty()) {
        match header.split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("authorization") => {
                value.clone_into(&mut authorization);
            }
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().unwrap();
            }
            _ => {}
        }
    }
    let mut patch = vec![0; length];
    reader.read_exact(&mut patch).unwrap();
    let is_watch = path.contains("watch=");
    let map = path == "/api/v1/namespaces/kops-agent/configmaps/rollout";
    let name = path.strip_prefix("/api/v1/nodes/").and_then(|rest| rest.split(['/', '?']).next());
    let body = match name {
        Some(name) => {
            let mut nodes = nodes.lock().unwrap();
            let node = nodes.iter_mut().find(|node| node["metadata"]["name"] == name).unwrap();
            if request.starts_with("PATCH ") {
                apply(node, &serde_json::from_slice(&patch).unwrap());
            }
            node.to_string()
        }
        None if map => rollout().to_string(),
        None => document(&path, &nodes.lock().unwrap()).to_string(),
    };
    let _ = told.send(Asked { path, authorization });
    let mut head = String::from("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n");
    if is_watch {
        // The watch stays open and has no event.
        let _ = stream.write_all((head + "\r\n").as_bytes());
        return thread::park();
    }
    write!(head, "Content-Length: {}\r\n\r\n", body.len()).unwrap();
    let _ = stream.write_all((head + &body).as_bytes());
}

/// Applies the annotations and the condition of a report to the Node.
fn apply(node: &mut Value, patch: &Value) {
    for (name, value) in patch["metadata"]["annotations"].as_object().unwrap() {
        node["metadata"]["annotations"][name] = value.clone();
    }
    let annotations = node["metadata"]["annotations"].as_object_mut().unwrap();
    annotations.retain(|_, value| !value.is_null());
    node["status"]["conditions"] = patch["status"]["conditions"].clone();
}

/// The ConfigMap of a rollout that no controller has begun.
fn rollout() -> Value {
    let rollout = json!({"id": "r-1", "state": "running", "attempt": 1}).to_string();
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "rollout"}, "data": {"rollout": rollout}})
}

/// The document at `path`. Each document has the fields of a list, of the server's version and of discovery, so that it
/// is a valid answer to every kind of request.
fn document(path: &str, nodes: &[Value]) -> Value {
    let items = if path.starts_with("/api/v1/nodes") {
        json!(nodes)
    } else if path.starts_with("/api/v1/namespaces?") || path == "/api/v1/namespaces" {
        let annotation = format!("addons.k8s.io/{ADDON}");
        let version = json!({"channel": "old", "manifestHash": "hash"}).to_string();
        json!([{"metadata": {"name": "kube-system", "annotations": {annotation: version}}}])
    } else {
        json!([])
    };
    json!({
        "kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items,
        "groups": [], "resources": [], "groupVersion": "v1", "versions": ["v1"], "serverAddressByClientCIDRs": [],
        "major": "1", "minor": "34", "gitVersion": "v1.34.2", "gitCommit": "", "gitTreeState": "", "buildDate": "",
        "goVersion": "", "compiler": "", "platform": "",
    })
}
