//! Checks containerd's configuration: files that containerd rejects, and settings that containerd ignores because it does
//! not know them.
//!
//! Source: cmd/containerd/server/config of containerd 2.0 to 2.3, and the names under which its plugins register.

use toml::{Table, Value};

use super::{Problems, containerd_keys};

/// In containerd 1, this plugin pulls images and runs containers. In containerd 2, it only listens for requests.
pub(crate) const CRI_OF_1: &str = "io.containerd.grpc.v1.cri";
/// The plugin that pulls images in containerd 2.
pub(crate) const CRI_IMAGES: &str = "io.containerd.cri.v1.images";
/// The plugin that runs containers in containerd 2.
pub(crate) const CRI_RUNTIME: &str = "io.containerd.cri.v1.runtime";

/// Plugins with settings, each with the first version of the file that supports it. All plugins of containerd 1 have
/// version 2.
const PLUGINS: [(&str, i64); 38] = [
    (CRI_OF_1, 2),
    (CRI_IMAGES, 3),
    (CRI_RUNTIME, 3),
    ("io.containerd.content.v1.content", 2),
    ("io.containerd.differ.v1.erofs", 3),
    ("io.containerd.differ.v1.walking", 2),
    ("io.containerd.event.v1.exchange", 2),
    ("io.containerd.gc.v1.scheduler", 2),
    ("io.containerd.grpc.v1.introspection", 2),
    ("io.containerd.image-verifier.v1.bindir", 3),
    ("io.containerd.internal.v1.opt", 2),
    ("io.containerd.internal.v1.restart", 2),
    ("io.containerd.internal.v1.tracing", 2),
    ("io.containerd.metadata.v1.bolt", 2),
    ("io.containerd.metrics.v1.grpc-otel", 4),
    ("io.containerd.metrics.v1.grpc-prometheus", 4),
    ("io.containerd.monitor.task.v1.cgroups", 3),
    ("io.containerd.mount-manager.v1.bolt", 3),
    ("io.containerd.nri.v1.nri", 2),
    ("io.containerd.runtime.v2.task", 2),
    ("io.containerd.server.v1.debug", 4),
    ("io.containerd.server.v1.grpc", 4),
    ("io.containerd.server.v1.grpc-tcp", 4),
    ("io.containerd.server.v1.metrics", 4),
    ("io.containerd.server.v1.ttrpc", 4),
    ("io.containerd.service.v1.diff-service", 2),
    ("io.containerd.service.v1.tasks-service", 2),
    ("io.containerd.shim.v1.manager", 3),
    ("io.containerd.snapshotter.v1.blockfile", 2),
    ("io.containerd.snapshotter.v1.btrfs", 2),
    ("io.containerd.snapshotter.v1.devmapper", 2),
    ("io.containerd.snapshotter.v1.erofs", 3),
    ("io.containerd.snapshotter.v1.native", 2),
    ("io.containerd.snapshotter.v1.overlayfs", 2),
    ("io.containerd.snapshotter.v1.zfs", 2),
    ("io.containerd.tracing.processor.v1.otlp", 2),
    ("io.containerd.transfer.v1.local", 2),
    ("io.containerd.ttrpc.v1.otelttrpc", 3),
];
/// Settings that [`CRI_OF_1`] still has in containerd 2.
const STREAMING: [&str; 6] = [
    "disable_tcp_service",
    "enable_tls_streaming",
    "stream_idle_timeout",
    "stream_server_address",
    "stream_server_port",
    "x509_key_pair_streaming",
];
/// Settings that moved from [`CRI_OF_1`] to [`CRI_IMAGES`]. The others moved to [`CRI_RUNTIME`].
const OF_IMAGES: [&str; 7] = [
    "image_decryption",
    "image_pull_progress_timeout",
    "image_pull_with_sync_fs",
    "max_concurrent_downloads",
    "registry",
    "sandbox_image",
    "stats_collect_period",
];
/// Settings of `containerd` in [`CRI_OF_1`] that moved to [`CRI_IMAGES`].
const UNPACKING: [&str; 3] = ["disable_snapshot_annotations", "discard_unpacked_layers", "snapshotter"];
/// Settings at the top level of the file, outside all plugins.
const TOP_LEVEL: [&str; 17] = [
    "cgroup",
    "debug",
    "disabled_plugins",
    "grpc",
    "imports",
    "metrics",
    "oom_score",
    "plugins",
    "proxy_plugins",
    "required_plugins",
    "root",
    "state",
    "stream_processors",
    "temp",
    "timeouts",
    "ttrpc",
    "version",
];
/// Since this version of the file, `disabled_plugins` and `required_plugins` have full names.
const WHOLE_NAMES: i64 = 2;

/// Checks the user's whole file for a containerd that reads versions up to `newest`.
pub(super) fn check_file(field: &str, text: &str, newest: i64, problems: &mut Problems) {
    let file: Table = match text.parse() {
        Ok(file) => file,
        Err(error) => {
            let error: toml::de::Error = error;
            let line = error
                .span()
                .map_or(1, |span| 1 + text.get(..span.start).unwrap_or_default().matches('\n').count());
            problems.add(
                field,
                format!(
                    "has invalid TOML in line {line} ({}), so containerd does not start; correct it",
                    error.message()
                ),
            );
            return;
        }
    };
    let version = file.get("version").and_then(Value::as_integer).unwrap_or_default();
    if version > newest {
        problems.add(
            format!("{field}: version"),
            format!("is {version}, but this containerd reads versions up to {newest} and does not start; use {newest}"),
        );
    }
    check_lists(field, &file, version, problems);
    // containerd migrates an older file to the newest version before it reads the file, including the names of plugins.
    if version < newest {
        return;
    }
    for (key, value) in &file {
        match value.as_table().filter(|_| key == "plugins") {
            Some(plugins) => plugins.iter().for_each(|(plugin, settings)| {
                let mut paths = Vec::new();
                add_paths(&["plugins", plugin], settings, &mut paths);
                paths.iter().for_each(|path| check_path(field, path, version, problems));
            }),
            None => check_path(field, &[key.as_str()], version, problems),
        }
    }
}

/// Adds the paths of all values below `path`.
fn add_paths<'a>(path: &[&'a str], value: &'a Value, paths: &mut Vec<Vec<&'a str>>) {
    match value.as_table().filter(|table| !table.is_empty()) {
        Some(table) => {
            table.iter().for_each(|(key, value)| add_paths(&[path, &[key]].concat(), value, paths))
        }
        None => paths.push(path.to_vec()),
    }
}

fn check_lists(field: &str, file: &Table, version: i64, problems: &mut Problems) {
    for list in ["disabled_plugins", "required_plugins"] {
        let names = file.get(list).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        for name in names {
            if version >= WHOLE_NAMES && !name.contains('.') {
                problems.add(
                    format!("{field}: {list}"),
                    format!(
                        "{name:?} is not the full name of a plugin, so containerd does not start; write the full name, such as \
                         {CRI_OF_1}"
                    ),
                );
            }
            if list == "disabled_plugins" && (name == CRI_OF_1 || version < WHOLE_NAMES && name == "cri") {
                problems.add(
                    format!("{field}: {list}"),
                    format!(
                        "disables {name}, which kubelet needs to run containers; remove it from the list"
                    ),
                );
            }
        }
    }
}

/// Warns of a setting that containerd ignores in a file of this version.
pub(super) fn check_path(field: &str, path: &[&str], version: i64, problems: &mut Problems) {
    // How many keys of the path the warning names.
    let mut named = path.len().min(3);
    let since = |plugin: &str| PLUGINS.iter().find(|(name, _)| *name == plugin).map(|(_, since)| *since);
    let problem = match path {
        ["plugins", CRI_OF_1, setting, below @ ..] if version > 2 && !STREAMING.contains(setting) => {
            let is_of_images = match below.first().filter(|_| *setting == "containerd") {
                Some(below) => {
                    named = 4;
                    UNPACKING.contains(below)
                }
                None => OF_IMAGES.contains(setting),
            };
            let now = if is_of_images { CRI_IMAGES } else { CRI_RUNTIME };
            format!("is not read: since containerd 2 it is a setting of {now}; write it there")
        }
        ["plugins", plugin, below @ ..] => match since(plugin) {
            Some(since) if since <= version => match containerd_keys::unknown(plugin, below, version) {
                Some((at, advice)) => {
                    named = 2 + at;
                    format!("is not read: this containerd has no such key; {advice}")
                }
                None => return,
            },
            Some(since) => format!(
                "is not read: {plugin} needs a file of version {since} or newer, and this file has version {version}; remove it, or \
                 use a newer containerd"
            ),
            None => format!("is not read: containerd has no plugin {plugin:?}; correct or remove it"),
        },
        [key, ..] if !TOP_LEVEL.contains(key) => {
            "is not read: containerd has no such setting; correct or remove it".into()
        }
        _ => return,
    };
    problems.warn(format!("{field}: {}", path[..named].join(".")), problem);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(check: impl FnOnce(&mut Problems)) -> (String, Vec<String>) {
        let mut problems = Problems::default();
        check(&mut problems);
        (problems.to_string(), problems.warnings().iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_file_that_containerd_rejects_is_a_problem() {
        for (text, part) in [
            ("version = 3\n[plugins", "has invalid TOML in line 2"),
            ("version = 9", "f: version: is 9, but this containerd reads versions up to 4"),
            ("version = 2\ndisabled_plugins = ['aufs']", "\"aufs\" is not the full name of a plugin"),
            (
                "version = 3\ndisabled_plugins = ['io.containerd.grpc.v1.cri']",
                "which kubelet needs to run containers",
            ),
            ("disabled_plugins = ['cri']", "which kubelet needs to run containers"),
        ] {
            let (problems, _) = told(|problems| check_file("f", text, 4, problems));
            assert!(problems.contains(part), "{text}: {problems}");
        }
    }

    #[test]
    fn ignored_settings_of_a_new_file_give_a_warning() {
        let text =
            "version = 4\nmine = 1\n[plugins.'io.containerd.grpc.v1.cri'.registry]\nx = 1\n[plugins.cri]\n";
        let (problems, warnings) = told(|problems| check_file("f", text, 4, problems));
        assert_eq!((problems.as_str(), warnings.len()), ("", 3), "{warnings:#?}");
        // containerd migrates an older file.
        let older = text.replace("version = 4", "version = 2");
        assert_eq!(told(|problems| check_file("f", &older, 4, problems)), (String::new(), Vec::new()));
    }

    #[test]
    fn unknown_keys_of_known_plugins_give_a_warning() {
        let text = "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc.options]\nSystemdCgroups = true\nRoot = ''\n\
                    [plugins.'io.containerd.snapshotter.v1.overlayfs']\nroot_paths = '/x'\n";
        let (problems, warnings) = told(|problems| check_file("f", text, 2, problems));
        assert_eq!(problems, "");
        assert_eq!(
            warnings,
            [
                "f: plugins.io.containerd.grpc.v1.cri.containerd.runtimes.runc.options.SystemdCgroups: is not read: this containerd has \
                 no such key; write SystemdCgroup",
                "f: plugins.io.containerd.snapshotter.v1.overlayfs.root_paths: is not read: this containerd has no such key; write \
                 root_path",
            ]
        );
    }

    #[test]
    fn known_plugins_depend_on_the_files_version() {
        for (path, version, part) in [
            (&["plugins", CRI_OF_1, "sandbox_image"][..], 2, None),
            (
                &["plugins", CRI_OF_1, "sandbox_image"],
                3,
                Some("it is a setting of io.containerd.cri.v1.images"),
            ),
            (&["plugins", CRI_OF_1, "containerd", "snapshotter"], 3, Some("of io.containerd.cri.v1.images")),
            (
                &["plugins", CRI_OF_1, "containerd", "runtimes"],
                4,
                Some("a setting of io.containerd.cri.v1.runtime"),
            ),
            (&["plugins", CRI_OF_1, "stream_server_port"], 4, None),
            (&["plugins", CRI_IMAGES, "registry"], 2, Some("needs a file of version 3")),
            (&["plugins", CRI_IMAGES, "registry"], 3, None),
            (&["plugins", "io.containerd.server.v1.grpc", "address"], 3, Some("needs a file of version 4")),
            (&["plugins", "io.containerd.grpc.v1.cry", "x"], 4, Some("has no plugin")),
            (&["debug", "level"], 4, None),
            (&["debugs", "level"], 4, Some("no such setting")),
            (
                &["plugins", CRI_OF_1, "sandbox_images"],
                2,
                Some("sandbox_images: is not read: this containerd has no such key; write sandbox_image"),
            ),
        ] {
            let (problems, warnings) = told(|problems| check_path("f", path, version, problems));
            assert_eq!(problems, "");
            match part {
                Some(part) => assert!(warnings[0].contains(part), "{path:?}: {warnings:?}"),
                None => assert!(warnings.is_empty(), "{path:?}: {warnings:?}"),
            }
        }
    }
}
