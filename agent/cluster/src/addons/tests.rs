//! Tests of add-ons: test cases, and properties for arbitrary channels.

#![allow(clippy::unwrap_used)]

mod cases;
mod objects;
mod properties;
mod ranges;
mod settings;

use super::*;
use kops_agent_spec::kops_release::KopsRelease;

const URL: &str = "s3://clusters/c.example.com/addons/bootstrap-channel.yaml";

fn channel(text: &str) -> Channel {
    Channel::parse(text.as_bytes(), URL, KopsRelease::NEWEST).unwrap()
}

fn refusal(text: &str) -> String {
    Channel::parse(text.as_bytes(), URL, KopsRelease::NEWEST).unwrap_err().to_string()
}

/// A channel with these entries, each in YAML's flow style.
fn channel_of(entries: &[&str]) -> Channel {
    let entries: String = entries.iter().map(|entry| format!("  - {entry}\n")).collect();
    channel(&format!("kind: Addons\nmetadata: {{name: bootstrap}}\nspec:\n  addons:\n{entries}"))
}

fn kubernetes(version: &str) -> ServerVersion {
    ServerVersion::parse(version).unwrap()
}

fn menu(channel: &Channel) -> Menu {
    channel.menu(kubernetes("v1.36.1"))
}

/// The only add-on of a channel with this entry.
fn addon(entry: &str) -> Addon {
    menu(&channel_of(&[entry])).addons.remove(0)
}
