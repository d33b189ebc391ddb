//! What the tests and the demo share: an example store and the servers that stand in for clouds and mirrors.

pub mod api_server;
pub mod autoscaling;
pub mod downloads;
pub mod ec2;
pub mod example_cluster;
pub mod example_control_plane;
pub mod example_keys;
pub mod example_store;
pub mod faults;
pub mod gce;
pub mod hetzner;
pub mod imds;
pub mod kops_controller;
pub mod loopback;
pub mod name_server;
pub mod ports;
pub mod program;
pub mod proxy;
pub mod publishers;
pub mod random;
pub mod s3;
pub mod sigv4;
pub mod stand_ins;
pub mod sts;
pub mod swtpm;
pub mod terminal_picture;
