//! Finds `kube_env.yaml`, the URLs of nodeup and the additional parts in the user-data that kOps gives an instance.
//!
//! Upstream (`pkg/model/resources/nodeup.go`) writes a shell script that contains `kube_env.yaml` as a heredoc. For
//! groups with `compressUserData`, the script contains the file as base64 of gzip. With `additionalUserData`, the
//! script is one part of a MIME message.

use std::borrow::Cow;
use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use thiserror::Error;

use crate::InstanceGroupSpec;
use crate::digest::sha256_hex;

/// The file with the boot config, relative to the boot script's working directory. The boot script writes it.
const KUBE_ENV: &str = "conf/kube_env.yaml";
/// The maximum size of unpacked user-data, in bytes. Clouds accept only much smaller user-data, so larger user-data is not from kOps.
const LARGEST: u64 = 4 << 20;
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];

/// Why no boot config was found.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum NoKubeEnv {
    #[error("it is empty; start the instance with the user-data that kOps made for its group")]
    Empty,
    #[error(
        "it does not write {KUBE_ENV}; start the instance with the user-data that kOps made for its group"
    )]
    NotThere,
    #[error(
        "it ends before {KUBE_ENV} is complete; check the cloud's limit on the size of user-data, and set compressUserData on the instance group"
    )]
    BreaksOff,
    #[error("its {KUBE_ENV} is not base64 of a gzip file: {0}")]
    NotCompressed(String),
    #[error("it is larger than {LARGEST} bytes when unpacked")]
    TooLarge,
}

/// The name of the part with kOps' boot script in a MIME message (upstream: `AWSMultipartMIME`).
const BOOT_SCRIPT: &str = "nodeup.sh";
/// The length of a digest of user-data parts, in hexadecimal digits.
const DIGITS: usize = 8;

/// The beginnings of the lines that contain URLs of nodeup, in kOps' boot script and in `packaging/cloud-init/user-data`.
const URL_LINES: [&str; 4] = ["NODEUP_URL_AMD64=", "NODEUP_URL_ARM64=", "agent_amd64=", "agent_arm64="];

/// The URLs from which this user-data downloads nodeup. Empty if the user-data has none.
pub fn nodeup_urls(user_data: &[u8]) -> Vec<String> {
    let Ok(user_data) = unpacked(user_data) else { return Vec::new() };
    let text = String::from_utf8_lossy(&user_data);
    let scripts = if is_mime(&text) { bodies(&text) } else { vec![text.into_owned()] };
    let lines = scripts.iter().flat_map(|script| script.lines());
    let urls = lines
        .filter_map(|line| URL_LINES.iter().find_map(|start| line.trim_end().strip_prefix(start)))
        .flat_map(|urls| urls.split([',', ' ', '\'', '"']));
    urls.filter(|url| !url.is_empty()).map(str::to_owned).collect()
}

/// A digest of the parts that kOps adds to the user-data of a group with this spec. Empty if the group adds no parts.
pub fn additional_parts_of_group(spec: &InstanceGroupSpec) -> String {
    let parts = spec.additional_user_data.iter().map(|part| (&*part.name, &*part.r#type, &*part.content));
    digest_of_parts(parts)
}

/// A digest of the parts of a machine's user-data, without the part with kOps' boot script. It can be compared with the digest of
/// [`additional_parts_of_group`]. `None` if the user-data is not from kOps.
pub fn additional_parts_of_machine(user_data: &[u8]) -> Option<String> {
    find_kube_env(user_data).ok()?;
    let user_data = unpacked(user_data).ok()?;
    let text = String::from_utf8_lossy(&user_data);
    let mut found = Vec::new();
    for part in if is_mime(&text) { parts(&text) } else { Vec::new() } {
        let name = header(part, "content-disposition").and_then(|value| value.split_once("filename=\""));
        let name = name.map_or("", |(_, name)| name.trim_end_matches('"'));
        if let Some(body) = body_of(part).filter(|_| name != BOOT_SCRIPT) {
            found.push((name, header(part, "content-type").unwrap_or_default(), body));
        }
    }
    Some(digest_of_parts(found.iter().map(|(name, kind, body)| (*name, *kind, &**body))))
}

/// A digest of the names, types and contents of these parts of user-data. The digest is short, because many users can read the digest and a
/// content may be secret. A short digest shows a change, but does not reveal the content.
fn digest_of_parts<'a>(parts: impl Iterator<Item = (&'a str, &'a str, &'a str)>) -> String {
    // The contents are trimmed, because a MIME message adds a line break to each content.
    let parts: Vec<String> =
        parts.map(|(name, kind, content)| format!("{name}\0{kind}\0{}\0", content.trim_end())).collect();
    let digest = sha256_hex(parts.concat().as_bytes());
    if parts.is_empty() { String::new() } else { digest[..DIGITS].to_owned() }
}

pub(crate) fn find_kube_env(user_data: &[u8]) -> Result<Vec<u8>, NoKubeEnv> {
    let unpacked = unpacked(user_data)?;
    let user_data = unpacked.as_ref();
    let text = String::from_utf8_lossy(user_data);
    if text.trim().is_empty() {
        return Err(NoKubeEnv::Empty);
    }
    // JSON is also YAML, and nodeup accepts JSON (upstream: `YamlUnmarshal` in `upup/pkg/fi/utils/yaml.go`).
    if text.trim_start().starts_with('{') {
        return Ok(user_data.to_vec());
    }
    if is_mime(&text) {
        return in_mime(&text);
    }
    let is_kube_env = text.lines().any(|line| line.starts_with("CloudProvider:"));
    if is_kube_env && !text.starts_with("#!") { Ok(user_data.to_vec()) } else { in_script(&text) }
}

/// Unpacks gzipped user-data. Returns all other user-data unchanged.
fn unpacked(user_data: &[u8]) -> Result<Cow<'_, [u8]>, NoKubeEnv> {
    match user_data.starts_with(GZIP_MAGIC) {
        true => gunzip(user_data).map(Cow::Owned),
        false => Ok(Cow::Borrowed(user_data)),
    }
}

fn is_mime(text: &str) -> bool {
    header(text, "content-type").is_some_and(|value| value.to_ascii_lowercase().starts_with("multipart/"))
}

/// The value of the header `name` in the block of headers at the beginning of `text`.
fn header<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .take_while(|line| !line.trim_end().is_empty())
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim().eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
}

/// The parts of a MIME message, each with its headers.
fn parts(text: &str) -> Vec<&str> {
    let Some(boundary) = header(text, "content-type").and_then(boundary_of) else { return Vec::new() };
    let delimiter = format!("\n--{boundary}");
    text.split(&delimiter).skip(1).filter_map(|part| Some(part.split_once('\n')?.1)).collect()
}

/// The decoded parts of a MIME message.
fn bodies(text: &str) -> Vec<String> {
    parts(text).into_iter().filter_map(body_of).collect()
}

fn in_mime(text: &str) -> Result<Vec<u8>, NoKubeEnv> {
    for body in bodies(text) {
        match in_script(&body) {
            Err(NoKubeEnv::NotThere) => {}
            found => return found,
        }
    }
    Err(NoKubeEnv::NotThere)
}

fn boundary_of(content_type: &str) -> Option<&str> {
    let parameter =
        content_type.split(';').find_map(|parameter| parameter.trim().strip_prefix("boundary="))?;
    Some(parameter.trim_matches('"'))
}

/// The decoded text of a part of a MIME message.
fn body_of(part: &str) -> Option<String> {
    let body = part.split_once("\r\n\r\n").or_else(|| part.split_once("\n\n")).map(|(_, body)| body)?;
    match header(part, "content-transfer-encoding") {
        Some(encoding) if encoding.eq_ignore_ascii_case("base64") => {
            let packed: String = body.split_ascii_whitespace().collect();
            let bytes = STANDARD.decode(packed).ok()?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        }
        _ => Some(body.to_owned()),
    }
}

fn in_script(script: &str) -> Result<Vec<u8>, NoKubeEnv> {
    let mut lines = script.lines();
    while let Some(line) = lines.next() {
        if !line.contains(KUBE_ENV) {
            continue;
        }
        if let Some(delimiter) = heredoc_delimiter(line) {
            return heredoc(lines, delimiter);
        }
        if let Some(packed) = echoed(line) {
            let bytes =
                STANDARD.decode(packed).map_err(|error| NoKubeEnv::NotCompressed(error.to_string()))?;
            return gunzip(&bytes);
        }
    }
    Err(NoKubeEnv::NotThere)
}

/// Returns the delimiter `WORD` of the line `cat > conf/kube_env.yaml << 'WORD'`.
fn heredoc_delimiter(line: &str) -> Option<&str> {
    let (command, delimiter) = line.split_once("<<")?;
    command.contains('>').then(|| delimiter.trim().trim_matches(['\'', '"']))
}

fn heredoc<'a>(lines: impl Iterator<Item = &'a str>, delimiter: &str) -> Result<Vec<u8>, NoKubeEnv> {
    let mut content = String::new();
    for line in lines {
        if line == delimiter {
            return Ok(content.into_bytes());
        }
        content.push_str(line);
        content.push('\n');
    }
    Err(NoKubeEnv::BreaksOff)
}

/// Returns `TEXT` of the line `echo "TEXT" | base64 -d | gzip -d > conf/kube_env.yaml`.
fn echoed(line: &str) -> Option<&str> {
    let (text, rest) = line.trim().strip_prefix("echo")?.trim_start().strip_prefix('"')?.split_once('"')?;
    (rest.contains("base64 -d") && rest.contains("gzip -d")).then_some(text)
}

fn gunzip(packed: &[u8]) -> Result<Vec<u8>, NoKubeEnv> {
    let mut unpacked = Vec::new();
    GzDecoder::new(packed)
        .take(LARGEST + 1)
        .read_to_end(&mut unpacked)
        .map_err(|error| NoKubeEnv::NotCompressed(error.to_string()))?;
    if unpacked.len() as u64 > LARGEST { Err(NoKubeEnv::TooLarge) } else { Ok(unpacked) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::{BootConfig, CloudProvider, InstanceGroup, InstanceGroupRole};

    const YAML: &str = "CloudProvider: aws\nClusterName: c.example.com\nConfigServer:\n  CACertificates: |\n    \
                        -----BEGIN CERTIFICATE-----\nInstanceGroupName: nodes\nInstanceGroupRole: Node\nNodeupConfigHash: abc=\n";

    fn script(kube_env: &str) -> String {
        format!("#!/bin/bash\nset -o errexit\n\n{kube_env}\n\ndownload-release\n")
    }

    fn heredoc_script() -> String {
        script(&format!("cat > conf/kube_env.yaml << '__EOF_KUBE_ENV'\n{YAML}\n__EOF_KUBE_ENV"))
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn mime(part: &str, encoding: &str) -> String {
        format!(
            "Content-Type: multipart/mixed; boundary=\"MIMEBOUNDARY\"\r\nMIME-Version: 1.0\r\n\r\n\
             --MIMEBOUNDARY\r\nContent-Disposition: attachment; filename=\"first.sh\"\r\nContent-Type: text/x-shellscript\r\n\r\n\
             #!/bin/sh\necho hello\n\r\n\
             --MIMEBOUNDARY\r\nContent-Disposition: attachment; filename=\"nodeup.sh\"\r\n\
             Content-Transfer-Encoding: {encoding}\r\nContent-Type: text/x-shellscript\r\nMIME-Version: 1.0\r\n\r\n\
             {part}\r\n--MIMEBOUNDARY--\r\n"
        )
    }

    fn assert_found(user_data: &[u8]) {
        let config = BootConfig::from_user_data(user_data).unwrap();
        assert_eq!(config.cloud_provider, CloudProvider::Aws);
        assert_eq!(config.instance_group_role, InstanceGroupRole::Node);
        assert_eq!(config.nodeup_config_hash, "abc=");
        assert_eq!(config.config_server.unwrap().ca_certificates, "-----BEGIN CERTIFICATE-----\n");
    }

    #[test]
    fn the_boot_config_is_found_in_a_heredoc() {
        assert_found(heredoc_script().as_bytes());
    }

    #[test]
    fn the_boot_config_is_found_compressed() {
        let packed = STANDARD.encode(gzip(YAML.as_bytes()));
        let line = format!("echo \"{packed}\" | base64 -d | gzip -d > conf/kube_env.yaml");
        assert_found(script(&line).as_bytes());
    }

    #[test]
    fn the_boot_config_is_found_in_a_mime_message() {
        assert_found(mime(&heredoc_script(), "7bit").as_bytes());
        assert_found(mime(&STANDARD.encode(heredoc_script()), "base64").as_bytes());
    }

    #[test]
    fn nodeups_urls_are_found_in_every_form_of_user_data() {
        const URLS: [&str; 3] =
            ["https://a.example.com/nodeup", "https://b.example.com/nodeup", "https://a.example.com/arm64"];
        let [first, second, arm64] = URLS;
        let lines = format!(
            "NODEUP_URL_AMD64={first},{second}\nNODEUP_HASH_AMD64=00\nNODEUP_URL_ARM64={arm64}\n{YAML}"
        );
        let of_kops = script(&lines);
        assert_eq!(nodeup_urls(of_kops.as_bytes()), URLS);
        assert_eq!(nodeup_urls(mime(&STANDARD.encode(&of_kops), "base64").as_bytes()), URLS);
        assert_eq!(nodeup_urls(&gzip(mime(&of_kops, "7bit").as_bytes())), URLS);
        let of_ours = script(&format!("agent_amd64='{first} {second}'\nagent_arm64='{arm64}'"));
        assert_eq!(nodeup_urls(of_ours.as_bytes()), URLS);
        for other in
            [YAML.as_bytes(), b"", b"NODEUP_URL_AMD64=\n", b"echo NODEUP_URL_AMD64=x", &[0x1f, 0x8b, 0]]
        {
            assert!(nodeup_urls(other).is_empty(), "{other:?}");
        }
    }

    #[test]
    fn the_additional_parts_of_a_machine_are_those_of_its_group() {
        let group = |parts: &str| {
            let text = format!(
                "kind: InstanceGroup\nmetadata: {{name: nodes}}\nspec: {{role: Node, additionalUserData: [{parts}]}}"
            );
            additional_parts_of_group(&InstanceGroup::parse(text.as_bytes(), "memory://nodes").unwrap().spec)
        };
        let part = r##"{name: first.sh, type: text/x-shellscript, content: "#!/bin/sh\necho hello\n"}"##;
        let expected = group(part);
        assert_eq!(expected.len(), DIGITS);
        let script = heredoc_script();
        let machine = |user_data: &[u8]| additional_parts_of_machine(user_data);
        for user_data in [mime(&script, "7bit"), mime(&STANDARD.encode(&script), "base64")] {
            assert_eq!(machine(user_data.as_bytes()).as_ref(), Some(&expected));
            assert_eq!(machine(&gzip(user_data.as_bytes())).as_ref(), Some(&expected));
        }
        for (from, to) in [("first.sh", "second.sh"), ("shellscript", "include-url"), ("hello", "bye")] {
            assert_ne!(group(&part.replace(from, to)), expected, "{to}");
        }
        assert_ne!(group(&format!("{part}, {part}")), expected);
        assert_eq!((group(""), machine(script.as_bytes())), (String::new(), Some(String::new())));
        assert_eq!(machine(b"#!/bin/sh\necho hello\n"), None);
    }

    #[test]
    fn the_boot_config_is_found_bare_and_gzipped() {
        assert_found(YAML.as_bytes());
        assert_found(&gzip(heredoc_script().as_bytes()));
    }

    #[test]
    fn the_boot_config_is_found_as_json() {
        let fields = [
            r#""CloudProvider": "aws", "ClusterName": "c.example.com", "InstanceGroupName": "nodes""#,
            r#""ConfigServer": {"CACertificates": "-----BEGIN CERTIFICATE-----\n", "servers": ["https:\/\/10.0.0.1:3988\/"]}"#,
            r#""InstanceGroupRole": "Node", "NodeupConfigHash": "\u0061bc\u003d""#,
        ];
        let on_one_line = format!("{{{}}}", fields.join(",").replace(": ", ":"));
        let indented = format!("\n{{\n\t{}\n}}\n", fields.join(",\n\t"));
        for text in [on_one_line, format!("  {{\n  {}\n}}\n", fields.join(",\n  ")), indented] {
            assert_found(text.as_bytes());
            assert_found(&gzip(text.as_bytes()));
            let servers = BootConfig::from_user_data(text.as_bytes()).unwrap().config_server.unwrap().servers;
            assert_eq!(servers, ["https://10.0.0.1:3988/"]);
        }
        let error = BootConfig::from_user_data(b"{\"CloudProvider\": ").unwrap_err().to_string();
        assert!(error.starts_with("cannot read kube_env.yaml in the user-data: it is not YAML: "), "{error}");
    }

    #[test]
    fn the_error_for_other_user_data_names_the_expected_form() {
        let other = "#!/bin/sh\necho hello\n".to_owned();
        for user_data in [other, mime("#!/bin/sh\ntrue\n", "7bit"), "#cloud-config\nusers: []\n".to_owned()] {
            assert_eq!(find_kube_env(user_data.as_bytes()), Err(NoKubeEnv::NotThere));
        }
        let error = BootConfig::from_user_data(b" \n").unwrap_err().to_string();
        assert!(error.starts_with("cannot read the user-data: it is empty; "), "{error}");
    }

    #[test]
    fn a_truncated_script_is_an_error() {
        let whole = heredoc_script();
        let cut = whole.split("__EOF_KUBE_ENV\n\n").next().unwrap();
        assert_eq!(find_kube_env(cut.as_bytes()), Err(NoKubeEnv::BreaksOff));
        let line = "echo \"H4sIAAAA\" | base64 -d | gzip -d > conf/kube_env.yaml";
        assert!(matches!(find_kube_env(script(line).as_bytes()), Err(NoKubeEnv::NotCompressed(_))));
    }

    #[test]
    fn user_data_that_unpacks_to_too_much_is_rejected() {
        let bomb = gzip(&vec![b'x'; 5 << 20]);
        assert_eq!(find_kube_env(&bomb), Err(NoKubeEnv::TooLarge));
    }
}
