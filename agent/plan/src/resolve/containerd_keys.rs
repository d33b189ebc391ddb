//! The keys of the containerd plugins that operators configure most, by the version of the configuration file. containerd ignores a key
//! that it does not know. If a value has another type than its key requires, containerd does not start, or runs no pods.
//!
//! Source: the `toml` names in pkg/cri/config/config.go of containerd 1.6 and 1.7 (file version 2), internal/cri/config/config.go of 2.0 to
//! 2.3 (versions 3 and 4), plugins/snapshots/overlay/plugin/plugin.go, and api/types/runc/options and runtimeoptions of the shims.

use std::ops::RangeInclusive;

use toml::Value;

use super::containerd_config::{CRI_IMAGES, CRI_OF_1, CRI_RUNTIME};

/// Used instead of a plugin's name, for the keys at the top level of the configuration file.
pub(super) const FILE: &str = "";
const OVERLAYFS: &str = "io.containerd.snapshotter.v1.overlayfs";
/// Matches any name in the path of a table.
const ANY: &str = "*";
/// Ranges of versions of the configuration file. `OF_1` is for containerd 1, `OF_2` for containerd 2, and `OF_BOTH` for both. `OF_ALL` also
/// has the older versions that containerd 1 migrates.
const OF_1: RangeInclusive<i64> = 2..=2;
const OF_2: RangeInclusive<i64> = 3..=i64::MAX;
const OF_BOTH: RangeInclusive<i64> = 2..=i64::MAX;
const OF_ALL: RangeInclusive<i64> = 0..=i64::MAX;

/// The known keys of a table of a plugin.
struct Keys {
    versions: RangeInclusive<i64>,
    plugin: &'static str,
    table: &'static [&'static str],
    /// The keys, separated by spaces. If the value of a key is not a string, the key ends with the character that marks the value's type
    /// ([`TYPES`]).
    known: &'static str,
}

/// The types of values except strings. The character at the end of a known key marks the type of the key's value. The text is the type's
/// name in messages.
const TYPES: [(char, &str); 4] =
    [('?', "true or false"), ('#', "a whole number"), ('*', "a list of strings"), ('/', "a table")];
const STRING: &str = "a string";

/// Splits a known key into its name and the name of its type.
fn name_and_type(known: &'static str) -> (&'static str, &'static str) {
    let typed = TYPES.iter().find_map(|(mark, name)| Some((known.strip_suffix(*mark)?, *name)));
    typed.unwrap_or((known, STRING))
}

impl Keys {
    fn find(plugin: &str, table: &[&str], version: i64) -> Option<&'static Keys> {
        TABLES.iter().find(|keys| {
            keys.plugin == plugin && keys.versions.contains(&version) && is_of(table, keys.table)
        })
    }

    fn names_and_types(&self) -> impl Iterator<Item = (&'static str, &'static str)> + use<> {
        self.known.split_whitespace().map(name_and_type)
    }
}

const RUNTIME_OF_1: &str = "base_runtime_spec cni_conf_dir cni_max_conf_num# container_annotations* options/ pod_annotations* \
    privileged_without_host_devices? privileged_without_host_devices_all_devices_allowed? runtime_engine runtime_path runtime_root \
    runtime_type sandbox_mode snapshotter";
const REGISTRY: &str = "auths/ config_path configs/ headers/ mirrors/";
const AUTH: &str = "auth identitytoken password username";
const X509: &str = "tls_cert_file tls_key_file";
/// Options of runc's shim, and of shims that read a configuration file. The names are Go fields, so a TOML file may write them in upper or
/// lower case.
const RUNTIME_OPTIONS: &str = "BinaryName ConfigBody ConfigPath CriuImagePath CriuPath CriuWorkPath IoGid# IoUid# NoNewKeyring? NoPivotRoot? Root \
    ShimCgroup SystemdCgroup? TaskApiAddress TaskApiVersion# TypeUrl";

#[rustfmt::skip]
const TABLES: [Keys; 32] = [
    Keys { versions: OF_ALL, plugin: FILE, table: &[], known: "cgroup/ debug/ disabled_plugins* grpc/ imports* metrics/ oom_score# \
        plugins/ proxy_plugins/ required_plugins* root state stream_processors/ temp timeouts/ ttrpc/ version#" },
    Keys { versions: OF_ALL, plugin: FILE, table: &["cgroup"], known: "path" },
    Keys { versions: OF_ALL, plugin: FILE, table: &["debug"], known: "address format gid# level log_trace_id? uid#" },
    Keys { versions: OF_ALL, plugin: FILE, table: &["grpc"], known: "address gid# max_recv_message_size# max_send_message_size# \
        tcp_address tcp_tls_ca tcp_tls_cert tcp_tls_common_name tcp_tls_key uid#" },
    Keys { versions: OF_ALL, plugin: FILE, table: &["metrics"], known: "address grpc_histogram?" },
    Keys { versions: OF_ALL, plugin: FILE, table: &["ttrpc"], known: "address gid# uid#" },
    Keys { versions: OF_1, plugin: CRI_OF_1, table: &[], known: "cdi_spec_dirs* cni/ containerd/ device_ownership_from_security_context? \
        disable_apparmor? disable_cgroup? disable_hugetlb_controller? disable_proc_mount? disable_tcp_service? drain_exec_sync_io_timeout \
        enable_cdi? enable_selinux? enable_tls_streaming? enable_unprivileged_icmp? enable_unprivileged_ports? ignore_deprecation_warnings* \
        ignore_image_defined_volumes? image_decryption/ image_pull_progress_timeout image_pull_with_sync_fs? max_concurrent_downloads# \
        max_container_log_line_size# netns_mounts_under_state_dir? registry/ restrict_oom_score_adj? sandbox_image selinux_category_range# \
        stats_collect_period# stream_idle_timeout stream_server_address stream_server_port systemd_cgroup? \
        tolerate_missing_hugetlb_controller? unset_seccomp_profile x509_key_pair_streaming/" },
    Keys { versions: OF_1, plugin: CRI_OF_1, table: &["cni"], known: "bin_dir conf_dir conf_template ip_pref max_conf_num# setup_serially?" },
    Keys { versions: OF_1, plugin: CRI_OF_1, table: &["containerd"], known: "default_runtime/ default_runtime_name \
        disable_snapshot_annotations? discard_unpacked_layers? ignore_blockio_not_enabled_errors? ignore_rdt_not_enabled_errors? no_pivot? \
        runtimes/ snapshotter untrusted_workload_runtime/" },
    Keys { versions: OF_1, plugin: CRI_OF_1, table: &["containerd", "default_runtime"], known: RUNTIME_OF_1 },
    Keys { versions: OF_1, plugin: CRI_OF_1, table: &["containerd", "untrusted_workload_runtime"], known: RUNTIME_OF_1 },
    Keys { versions: OF_1, plugin: CRI_OF_1, table: &["containerd", "runtimes", ANY], known: RUNTIME_OF_1 },
    Keys { versions: OF_1, plugin: CRI_OF_1, table: &["containerd", "default_runtime", "options"], known: RUNTIME_OPTIONS },
    Keys { versions: OF_1, plugin: CRI_OF_1, table: &["containerd", "runtimes", ANY, "options"], known: RUNTIME_OPTIONS },
    Keys { versions: OF_1, plugin: CRI_OF_1, table: &["image_decryption"], known: "key_model" },
    Keys { versions: OF_1, plugin: CRI_OF_1, table: &["registry"], known: REGISTRY },
    Keys { versions: OF_1, plugin: CRI_OF_1, table: &["registry", "configs", ANY], known: "auth/ tls/" },
    Keys { versions: OF_1, plugin: CRI_OF_1, table: &["registry", "configs", ANY, "auth"], known: AUTH },
    Keys { versions: OF_1, plugin: CRI_OF_1, table: &["registry", "configs", ANY, "tls"],
        known: "ca_file cert_file insecure_skip_verify? key_file" },
    Keys { versions: OF_1, plugin: CRI_OF_1, table: &["registry", "mirrors", ANY], known: "endpoint*" },
    Keys { versions: OF_2, plugin: CRI_OF_1, table: &[], known: "disable_tcp_service? enable_tls_streaming? stream_idle_timeout \
        stream_server_address stream_server_port x509_key_pair_streaming/" },
    Keys { versions: OF_BOTH, plugin: CRI_OF_1, table: &["x509_key_pair_streaming"], known: X509 },
    Keys { versions: OF_2, plugin: CRI_IMAGES, table: &[], known: "concurrent_layer_fetch_buffer# disable_snapshot_annotations? \
        discard_unpacked_layers? image_decryption/ image_pull_progress_timeout image_pull_with_sync_fs? max_concurrent_downloads# \
        pinned_images/ registry/ runtime_platforms/ sandbox_image snapshotter stats_collect_period# use_local_image_pull?" },
    Keys { versions: OF_2, plugin: CRI_IMAGES, table: &["image_decryption"], known: "key_model" },
    Keys { versions: OF_2, plugin: CRI_IMAGES, table: &["registry"], known: REGISTRY },
    Keys { versions: OF_2, plugin: CRI_IMAGES, table: &["registry", "configs", ANY, "auth"], known: AUTH },
    Keys { versions: OF_2, plugin: CRI_RUNTIME, table: &[], known: "cdi_spec_dirs* cni/ containerd/ device_ownership_from_security_context? \
        disable_apparmor? disable_hugetlb_controller? disable_proc_mount? drain_exec_sync_io_timeout enable_cdi? enable_criu? \
        enable_experimental_restore_via_create? enable_selinux? enable_unprivileged_icmp? enable_unprivileged_ports? \
        ignore_deprecation_warnings* ignore_image_defined_volumes? max_container_log_line_size# netns_mounts_under_state_dir? \
        restrict_oom_score_adj? selinux_category_range# stats_collect_period stats_retention_period tolerate_missing_hugetlb_controller? \
        unset_seccomp_profile" },
    Keys { versions: OF_2, plugin: CRI_RUNTIME, table: &["cni"], known: "bin_dir bin_dirs* conf_dir conf_template ip_pref max_conf_num# \
        setup_serially? use_internal_loopback?" },
    Keys { versions: OF_2, plugin: CRI_RUNTIME, table: &["containerd"], known: "default_runtime_name ignore_blockio_not_enabled_errors? \
        ignore_rdt_not_enabled_errors? runtimes/" },
    Keys { versions: OF_2, plugin: CRI_RUNTIME, table: &["containerd", "runtimes", ANY], known: "base_runtime_spec cgroup_writable? \
        cni_conf_dir cni_max_conf_num# container_annotations* disable_pause_image_pull? io_type options/ pod_annotations* \
        privileged_without_host_devices? privileged_without_host_devices_all_devices_allowed? runtime_path runtime_type sandboxer \
        snapshotter" },
    Keys { versions: OF_2, plugin: CRI_RUNTIME, table: &["containerd", "runtimes", ANY, "options"], known: RUNTIME_OPTIONS },
    Keys { versions: OF_BOTH, plugin: OVERLAYFS, table: &[], known: "mount_options* root_path slow_chown? sync_remove? upperdir_label?" },
];

/// Finds the first unknown key of a path. The path begins at the table of `plugin`, or at the top level of the file if `plugin` is
/// [`FILE`]. Returns the number of keys up to and including the unknown key, and advice. `None` if all keys are known, or if this module
/// does not list the tables on the path.
pub(super) fn unknown(plugin: &str, path: &[&str], version: i64) -> Option<(usize, String)> {
    (0..path.len()).find_map(|at| {
        let key = path[at];
        let keys = Keys::find(plugin, &path[..at], version)?;
        let names = || keys.names_and_types().map(|(name, _)| name);
        if names().any(|known| known.eq_ignore_ascii_case(key)) {
            return None;
        }
        let (own, most) = (plain(key), key.len() / 4);
        let nearest = names()
            .map(|known| (plain(known), known))
            // The distance of two keys is at least the difference of their lengths. So the distance to keys with a very different length
            // is not computed. This saves time if a user's file has thousands of unknown keys.
            .filter(|(letters, _)| letters.len().abs_diff(own.len()) <= most)
            .map(|(letters, known)| (distance(&own, &letters), known))
            .min();
        let advice = match nearest.filter(|(distance, _)| *distance <= most) {
            Some((_, nearest)) => format!("write {nearest}"),
            None => format!("it knows {}; correct or remove the key", names().collect::<Vec<_>>().join(", ")),
        };
        Some((at + 1, advice))
    })
}

/// If containerd expects another type than the type of `value` at this path, returns the name of the expected type. The path is below a
/// plugin or [`FILE`]. `None` if the type is right, or if this module does not list the path.
pub(super) fn other_type(plugin: &str, path: &[&str], value: &Value, version: i64) -> Option<&'static str> {
    let (key, table) = path.split_last()?;
    let mut known = Keys::find(plugin, table, version)?.names_and_types();
    let (_, wanted) = known.find(|(name, _)| name.eq_ignore_ascii_case(key))?;
    (type_name(value) != wanted).then_some(wanted)
}

/// The name of a value's type in messages.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Boolean(_) => TYPES[0].1,
        Value::Integer(_) => TYPES[1].1,
        Value::Array(list) if list.iter().all(Value::is_str) => TYPES[2].1,
        Value::Table(_) => TYPES[3].1,
        Value::String(_) => STRING,
        Value::Array(_) => "a list",
        Value::Float(_) => "a fraction",
        Value::Datetime(_) => "a date",
    }
}

fn is_of(table: &[&str], pattern: &[&str]) -> bool {
    table.len() == pattern.len()
        && table.iter().zip(pattern).all(|(name, pattern)| *pattern == ANY || name == pattern)
}

/// The letters of a key in lower case, without underscores.
fn plain(key: &str) -> Vec<u8> {
    key.to_ascii_lowercase().replace('_', "").into_bytes()
}

/// The Levenshtein distance of two keys, given by their plain letters.
fn distance(one: &[u8], other: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, of_other) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != of_other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_unknown_key_is_reported_with_the_nearest_known_key() {
        for (plugin, path, version, told) in [
            (CRI_OF_1, &["enable_cdi"][..], 2, None),
            (CRI_OF_1, &["sandbox_images"], 2, Some((1, "write sandbox_image"))),
            (CRI_OF_1, &["containerd", "snapshoter"], 2, Some((2, "write snapshotter"))),
            (CRI_OF_1, &["containerd", "runtimes", "runc", "options", "SystemdCgroup"], 2, None),
            (CRI_OF_1, &["containerd", "runtimes", "runc", "options", "systemdcgroup"], 2, None),
            (
                CRI_OF_1,
                &["containerd", "runtimes", "runc", "options", "systemd_cgroup"],
                2,
                Some((5, "write SystemdCgroup")),
            ),
            (CRI_OF_1, &["registry", "mirrors", "docker.io", "endpoints"], 2, Some((4, "write endpoint"))),
            (CRI_IMAGES, &["pinned_images", "mine"], 3, None),
            (CRI_IMAGES, &["max_concurrent_download"], 4, Some((1, "write max_concurrent_downloads"))),
            (CRI_RUNTIME, &["containerd", "snapshotter"], 3, Some((2, "it knows default_runtime_name, "))),
            (CRI_RUNTIME, &["containerd", "runtimes", "runc", "runtime_root"], 4, Some((4, "it knows "))),
            (CRI_RUNTIME, &["cni", "bin_dirs"], 3, None),
            (OVERLAYFS, &["mount_option"], 3, Some((1, "write mount_options"))),
            ("io.containerd.gc.v1.scheduler", &["anything"], 3, None),
        ] {
            let found = unknown(plugin, path, version);
            assert_eq!(
                found.as_ref().map(|(at, _)| *at),
                told.map(|(at, _)| at),
                "{path:?} in {version}: {found:?}"
            );
            let (_, advice) = found.unwrap_or_default();
            assert!(advice.starts_with(told.map_or("", |(_, advice)| advice)), "{path:?}: {advice}");
        }
    }

    #[test]
    fn a_value_of_another_type_is_reported_with_the_right_one() {
        let runc = |key| ["containerd", "runtimes", "runc", key];
        for (plugin, path, value, version, wanted) in [
            (CRI_OF_1, &["max_container_log_line_size"][..], "'16384'", 2, Some("a whole number")),
            (CRI_OF_1, &["max_container_log_line_size"], "16384", 2, None),
            (CRI_OF_1, &["stream_server_port"], "10010", 4, Some("a string")),
            (CRI_RUNTIME, &["enable_cdi"], "'yes'", 3, Some("true or false")),
            (CRI_RUNTIME, &["cdi_spec_dirs"], "'/etc/cdi'", 3, Some("a list of strings")),
            (CRI_RUNTIME, &["cdi_spec_dirs"], "['/etc/cdi']", 3, None),
            (CRI_RUNTIME, &["cdi_spec_dirs"], "[1]", 3, Some("a list of strings")),
            (CRI_RUNTIME, &["cni"], "'/opt/cni'", 3, Some("a table")),
            (CRI_RUNTIME, &["stats_collect_period"], "'10s'", 4, None),
            (CRI_IMAGES, &["stats_collect_period"], "10", 4, None),
            (CRI_RUNTIME, &runc("snapshotter"), "true", 3, Some("a string")),
            (CRI_RUNTIME, &["containerd", "runtimes", "runc", "options", "systemdCgroup"], "true", 3, None),
            (CRI_RUNTIME, &["of_a_newer_containerd"], "1", 3, None),
            ("io.containerd.gc.v1.scheduler", &["anything"], "1", 3, None),
            (FILE, &["oom_score"], "'-999'", 4, Some("a whole number")),
            (FILE, &["debug", "level"], "true", 1, Some("a string")),
            (FILE, &["timeouts", "any"], "1", 3, None),
        ] {
            let file: toml::Table = format!("value = {value}").parse().unwrap();
            assert_eq!(other_type(plugin, path, &file["value"], version), wanted, "{path:?} = {value}");
        }
    }

    #[test]
    fn distances_are_levenshtein_distances() {
        let distance = |one: &str, other: &str| distance(&plain(one), &plain(other));
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("systemd_cgroup", "SystemdCgroup"), 0);
        assert_eq!((distance("", "abc"), distance("abc", "")), (3, 3));
    }
}
