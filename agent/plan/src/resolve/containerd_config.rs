//! Checks containerd's configuration: files that containerd rejects, and settings that containerd ignores because it does
//! not know them.
//!
//! Source: cmd/containerd/server/config of containerd 2.0 to 2.3, and the names under which its plugins register.

use toml::{Table, Value};

use super::containerd_keys::FILE;
use super::{Problems, containerd_keys};

/// In containerd 1, this plugin pulls images and runs containers. In containerd 2, it only listens for requests.
pub(crate) const CRI_OF_1: &str = "io.containerd.grpc.v1.cri";
/// The plugin that pulls images in containerd 2.
pub(crate) const CRI_IMAGES: &str = "io.containerd.cri.v1.images";
/// The plugin that runs containers in containerd 2.
pub(crate) const CRI_RUNTIME: &str = "io.containerd.cri.v1.runtime";

/// Plugins with settings, each with the first version of the configuration file that has the plugin. For all plugins of containerd 1, the
/// first version is 2.
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
/// The settings that stay in the plugin [`CRI_OF_1`] in containerd 2. All other settings of this plugin moved to other plugins.
const STREAMING: [&str; 6] = [
    "disable_tcp_service",
    "enable_tls_streaming",
    "stream_idle_timeout",
    "stream_server_address",
    "stream_server_port",
    "x509_key_pair_streaming",
];
/// Settings that moved from [`CRI_OF_1`] to [`CRI_IMAGES`]. All other settings moved to [`CRI_RUNTIME`].
const OF_IMAGES: [&str; 7] = [
    "image_decryption",
    "image_pull_progress_timeout",
    "image_pull_with_sync_fs",
    "max_concurrent_downloads",
    "registry",
    "sandbox_image",
    "stats_collect_period",
];
/// Settings of the table `containerd` in [`CRI_OF_1`] that moved to [`CRI_IMAGES`].
const UNPACKING: [&str; 3] = ["disable_snapshot_annotations", "discard_unpacked_layers", "snapshotter"];
/// The first version of the configuration file in which `disabled_plugins` and `required_plugins` list plugins by their full names.
const WHOLE_NAMES: i64 = 2;

/// The version of containerd's configuration file that kOps writes, and the newest version that containerd can read.
#[derive(Clone, Copy)]
pub(super) struct Versions {
    /// The version that kOps writes. It may be older than the newest version that containerd can read.
    pub(super) written: i64,
    /// The newest configuration version that containerd can read. `None` (unknown) if containerd is part of the image.
    pub(super) readable: Option<i64>,
}

/// Checks the user's complete configuration file (`configOverride`), which kOps writes in place of its own file.
pub(super) fn check_file(field: &str, text: &str, versions: Versions, problems: &mut Problems) {
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
    check_version(field, version, versions, problems);
    check_lists(field, &file, version, problems);
    let mut values = Vec::new();
    add_values(&[], &file, &mut values);
    for (path, value) in values {
        // containerd migrates an older file to the newest version before it reads the file, and renames plugins. So only the types of the
        // values are checked in an older file.
        if version >= versions.written {
            check_value(field, &path, value, Versions { written: version, ..versions }, problems);
        } else {
            check_type(field, &path, value, version, problems);
        }
    }
}

fn check_version(field: &str, version: i64, versions: Versions, problems: &mut Problems) {
    if let Some(newest) = versions.readable.filter(|newest| version > *newest) {
        problems.add(
            format!("{field}: version"),
            format!("is {version}, but this containerd reads versions up to {newest} and does not start; use {newest}"),
        );
    }
}

/// Adds each value of a table to `values`, with its path in the file. `path` is the path of the table.
fn add_values<'a>(path: &[&'a str], table: &'a Table, values: &mut Vec<(Vec<&'a str>, &'a Value)>) {
    for (key, value) in table {
        let path = [path, &[key.as_str()]].concat();
        match value.as_table().filter(|table| !table.is_empty()) {
            Some(table) => add_values(&path, table, values),
            None => values.push((path, value)),
        }
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

/// Warns of a setting that containerd ignores in a configuration file of this version. Adds a problem if containerd does not accept the
/// setting's value.
pub(super) fn check_value(
    field: &str,
    path: &[&str],
    value: &Value,
    versions: Versions,
    problems: &mut Problems,
) {
    let version = versions.written;
    if let Some(version_of_file) = value.as_integer().filter(|_| path == ["version"]) {
        check_version(field, version_of_file, versions, problems);
    }
    match why_ignored(path, version) {
        Some((named, why)) => problems.warn(format!("{field}: {}", path[..named].join(".")), why),
        None => check_type(field, path, value, version, problems),
    }
}

/// Returns how many keys of the path a warning shows, and why containerd ignores the setting. `None` if containerd reads the setting.
fn why_ignored(path: &[&str], version: i64) -> Option<(usize, String)> {
    let no_such_key = |above: usize, plugin: &str, below: &[&str]| {
        let (at, advice) = containerd_keys::unknown(plugin, below, version)?;
        Some((above + at, format!("is not read: this containerd has no such key; {advice}")))
    };
    let since = |plugin: &str| PLUGINS.iter().find(|(name, _)| *name == plugin).map(|(_, since)| *since);
    let short = path.len().min(3);
    match path {
        ["plugins", CRI_OF_1, setting, below @ ..] if version > 2 && !STREAMING.contains(setting) => {
            let (named, is_of_images) = match below.first().filter(|_| *setting == "containerd") {
                Some(below) => (4, UNPACKING.contains(below)),
                None => (short, OF_IMAGES.contains(setting)),
            };
            let now = if is_of_images { CRI_IMAGES } else { CRI_RUNTIME };
            Some((named, format!("is not read: since containerd 2 it is a setting of {now}; write it there")))
        }
        ["plugins", plugin, below @ ..] => match since(plugin) {
            Some(since) if since <= version => no_such_key(2, plugin, below),
            Some(since) => Some((
                short,
                format!(
                    "is not read: {plugin} needs a configuration file of version {since} or newer, but this file has \
                     version {version}; remove the setting, or use a newer containerd"
                ),
            )),
            None => Some((
                short,
                format!("is not read: containerd has no plugin {plugin:?}; correct or remove it"),
            )),
        },
        path => no_such_key(0, FILE, path),
    }
}

fn check_type(field: &str, path: &[&str], value: &Value, version: i64, problems: &mut Problems) {
    let wanted = match path {
        ["plugins", plugin, below @ ..] => containerd_keys::other_type(plugin, below, value, version),
        path => containerd_keys::other_type(FILE, path, value, version),
    };
    if let Some(wanted) = wanted {
        let given = containerd_keys::type_name(value);
        problems.add(
            format!("{field}: {}", path.join(".")),
            format!("is {given}, but containerd refuses everything except {wanted}, so this machine runs no pods; correct it"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(version: i64) -> Versions {
        Versions { written: version, readable: Some(version) }
    }

    #[test]
    fn a_version_is_refused_only_if_containerd_does_not_read_it() {
        let told = |readable| {
            let mut problems = Problems::default();
            check_file("f", "version = 3\n", Versions { written: 2, readable }, &mut problems);
            problems.to_string()
        };
        assert_eq!([told(Some(3)), told(None)], ["", ""]);
        assert!(told(Some(2)).contains("reads versions up to 2"));
    }

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
            (
                "version = '3'",
                "f: version: is a string, but containerd refuses everything except a whole number",
            ),
            (
                "version = 2\noom_score = '-999'",
                "f: oom_score: is a string, but containerd refuses everything",
            ),
            (
                "version = 4\ndisabled_plugins = 'x'",
                "f: disabled_plugins: is a string, but containerd refuses",
            ),
            (
                "version = 4\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\ncni_max_conf_num = '1'",
                "f: plugins.io.containerd.cri.v1.runtime.containerd.runtimes.runc.cni_max_conf_num: is a string, but containerd refuses \
                 everything except a whole number",
            ),
        ] {
            let (problems, _) = told(|problems| check_file("f", text, versions(4), problems));
            assert!(problems.contains(part), "{text}: {problems}");
        }
    }

    #[test]
    fn ignored_settings_of_a_new_file_give_a_warning() {
        let text =
            "version = 4\nmine = 1\n[plugins.'io.containerd.grpc.v1.cri'.registry]\nx = 1\n[plugins.cri]\n";
        let (problems, warnings) = told(|problems| check_file("f", text, versions(4), problems));
        assert_eq!((problems.as_str(), warnings.len()), ("", 3), "{warnings:#?}");
        // containerd migrates a file of an older version.
        let older = text.replace("version = 4", "version = 2");
        assert_eq!(
            told(|problems| check_file("f", &older, versions(4), problems)),
            (String::new(), Vec::new())
        );
    }

    #[test]
    fn unknown_keys_of_known_plugins_give_a_warning() {
        let text = "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc.options]\nSystemdCgroups = true\nRoot = ''\n\
                    [plugins.'io.containerd.snapshotter.v1.overlayfs']\nroot_paths = '/x'\n";
        let (problems, warnings) = told(|problems| check_file("f", text, versions(2), problems));
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
            (&["plugins", CRI_IMAGES, "registry"], 2, Some("file of version 3")),
            (&["plugins", CRI_IMAGES, "registry", "config_path"], 3, None),
            (&["plugins", "io.containerd.server.v1.grpc", "address"], 3, Some("file of version 4")),
            (&["plugins", "io.containerd.grpc.v1.cry", "x"], 4, Some("has no plugin")),
            (&["debug", "level"], 4, None),
            (
                &["debugs", "level"],
                4,
                Some("debugs: is not read: this containerd has no such key; write debug"),
            ),
            (
                &["plugins", CRI_OF_1, "sandbox_images"],
                2,
                Some("sandbox_images: is not read: this containerd has no such key; write sandbox_image"),
            ),
        ] {
            let (problems, warnings) =
                told(|problems| check_value("f", path, &Value::from(""), versions(version), problems));
            assert_eq!(problems, "");
            match part {
                Some(part) => assert!(warnings[0].contains(part), "{path:?}: {warnings:?}"),
                None => assert!(warnings.is_empty(), "{path:?}: {warnings:?}"),
            }
        }
    }
}
