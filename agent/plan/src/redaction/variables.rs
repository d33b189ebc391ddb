//! Environment variables that contain credentials.

/// The variables with which kOps and the SDKs of clouds give a program its credentials (util/pkg/env/standard.go;
/// Amazon's "environment variables" of the SDKs). Other variables in these sources name a place, a project or a
/// user.
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
