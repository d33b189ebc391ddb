//! Environment variables that contain credentials.

use std::borrow::Cow;

use super::urls;

/// The variables of kOps and of clouds' SDKs that give credentials to programs (util/pkg/env/standard.go; Amazon's "environment variables"
/// of the SDKs). Variables that only name a place, a project or a user are not in this list.
pub const LOGIN_VARIABLES: [&str; 12] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "DIGITALOCEAN_ACCESS_TOKEN",
    "HCLOUD_TOKEN",
    "LINODE_TOKEN",
    "OS_APPLICATION_CREDENTIAL_SECRET",
    "OS_PASSWORD",
    "S3_ACCESS_KEY_ID",
    "S3_SECRET_ACCESS_KEY",
    "SCW_ACCESS_KEY",
    "SCW_SECRET_KEY",
];
/// The variables that set a proxy. Their value is a URL whose scheme is optional (golang.org/x/net/http/httpproxy; curl(1), "ENVIRONMENT").
const PROXY_VARIABLES: [&str; 8] = [
    "ALL_PROXY",
    "FTP_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "all_proxy",
    "ftp_proxy",
    "http_proxy",
    "https_proxy",
];

/// Whether a variable contains a credential: it is a login variable, or its value is a URL with a user or a password.
pub fn is_login(name: &str, value: &str) -> bool {
    LOGIN_VARIABLES.contains(&name) || urls::is_with_login(&as_url(name, value))
}

/// The value of a variable. If a proxy variable has a value without a scheme, the result begins with `http://`.
pub(super) fn as_url<'a>(name: &str, value: &'a str) -> Cow<'a, str> {
    match PROXY_VARIABLES.contains(&name) && !value.contains("://") {
        true => Cow::Owned(format!("http://{value}")),
        false => Cow::Borrowed(value),
    }
}
