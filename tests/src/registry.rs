//! A read-only registry of container images for the machines of a test. Its images contain static programs of this machine's
//! architecture (OCI's image and distribution specifications).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::TcpListener;
use std::sync::Arc;

use anyhow::Context as _;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::Service;
use hyper::{Request, Response, StatusCode};
use serde_json::{Value, json};

use crate::digest::sha256_hex;
use crate::loopback::LoopbackServer;
use crate::stand_ins::OWN_ARCHITECTURE;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// The objects of a registry. The key is the path below `/v2`.
#[derive(Clone, Default)]
pub struct Images {
    objects: BTreeMap<String, (&'static str, Bytes)>,
}

impl Images {
    /// Adds the objects of `others` whose paths are not in this registry yet.
    pub fn extend(&mut self, others: &Images) {
        for (path, object) in &others.objects {
            self.objects.entry(path.clone()).or_insert_with(|| object.clone());
        }
    }

    /// Adds an image with one layer, which contains these programs at these paths. The first program is the entry point.
    pub fn add(&mut self, name: &str, tag: &str, programs: &[(&str, &[u8])]) -> anyhow::Result<()> {
        let (entry_point, _) = programs.first().context("an image without a program")?;
        let layer = layer(programs).with_context(|| format!("packing the image {name}"))?;
        let config = json!({
            "architecture": OWN_ARCHITECTURE,
            "os": "linux",
            "config": { "Entrypoint": [entry_point], "Env": ["PATH=/usr/local/bin:/bin"] },
            "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] },
        });
        let config = config.to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor(CONFIG, &config),
            "layers": [descriptor(LAYER, &layer)],
        });
        let manifest = Bytes::from(manifest.to_string());
        self.objects.insert(format!("/{name}/manifests/{tag}"), (MANIFEST, manifest.clone()));
        self.objects.insert(format!("/{name}/manifests/{}", digest(&manifest)), (MANIFEST, manifest));
        for blob in [config, layer] {
            let path = format!("/{name}/blobs/{}", digest(&blob));
            self.objects.insert(path, ("application/octet-stream", Bytes::from(blob)));
        }
        Ok(())
    }
}

pub fn start(socket: TcpListener, images: Arc<Images>) -> anyhow::Result<LoopbackServer> {
    LoopbackServer::start_on("registry", socket, move |_| Registry { images: Arc::clone(&images) })
}

struct Registry {
    images: Arc<Images>,
}

impl Service<Request<Incoming>> for Registry {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let path = request.uri().path().strip_prefix("/v2").unwrap_or_default();
        let object = self.images.objects.get(path);
        let is_found = object.is_some() || path == "/";
        let (kind, content) = object.cloned().unwrap_or_default();
        let mut response = Response::new(Full::new(content));
        *response.status_mut() = if is_found { StatusCode::OK } else { StatusCode::NOT_FOUND };
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        ready(Ok(response))
    }
}

fn layer(programs: &[(&str, &[u8])]) -> std::io::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut add = |path: &str, kind, mode, content: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        tar.append_data(&mut header, path, content)
    };
    for folder in ["etc", "tmp", "var"] {
        add(folder, tar::EntryType::Directory, 0o1777, &[])?;
    }
    for (path, content) in programs {
        add(path.trim_start_matches('/'), tar::EntryType::Regular, 0o755, content)?;
    }
    tar.into_inner()
}

fn descriptor(kind: &str, content: &[u8]) -> Value {
    json!({ "mediaType": kind, "digest": digest(content), "size": content.len() })
}

fn digest(content: &[u8]) -> String {
    format!("sha256:{}", sha256_hex(content))
}
