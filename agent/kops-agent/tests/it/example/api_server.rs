//! An API server that answers each request with the same few objects.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use serde_json::{Value, json};

/// The name of the add-on that the cluster has, and no channel.
pub const ADDON: &str = "old.addons.k8s.io";

/// The server. Its threads end with the test's process.
pub struct ApiServer {
    pub url: String,
    asked: Receiver<Asked>,
}

/// A request.
#[derive(Debug)]
pub struct Asked {
    pub path: String,
    /// The header `Authorization`; empty if there is none.
    pub authorization: String,
}

impl ApiServer {
    /// A cluster with one Node.
    pub fn start() -> ApiServer {
        ApiServer::with_nodes(json!([{"metadata": {"name": "node-1"}, "spec": {}, "status": {}}]))
    }

    /// A cluster with these Nodes, a list.
    pub fn with_nodes(nodes: Value) -> ApiServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (told, asked) = mpsc::channel();
        let nodes = Arc::new(nodes);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (told, nodes) = (told.clone(), nodes.clone());
                thread::spawn(move || answer(stream.unwrap(), &nodes, &told));
            }
        });
        ApiServer { url, asked }
    }

    /// The requests since the last call.
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

fn answer(mut stream: TcpStream, nodes: &Value, told: &mpsc::Sender<Asked>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let Some(request) = lines.next() else { return };
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut authorization = String::new();
    for header in lines.take_while(|line| !line.is_empty()) {
        if let Some((name, value)) = header.split_once(": ")
            && name.eq_ignore_ascii_case("authorization")
        {
            value.clone_into(&mut authorization);
        }
    }
    let is_watch = path.contains("watch=");
    let body = document(&path, nodes).to_string();
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

/// An object with the fields of a list, of the server's version, and of discovery.
fn document(path: &str, nodes: &Value) -> Value {
    let items = if path.starts_with("/api/v1/nodes") {
        nodes.clone()
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
