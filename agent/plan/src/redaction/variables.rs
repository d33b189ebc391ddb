//! Variables that let one in.

/// The variables by which kOps and the SDKs of clouds give a program its login (util/pkg/env/standard.go; Amazon's
/// "environment variables" of the SDKs). Names of others in the same list name a place, a project or a user.
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
