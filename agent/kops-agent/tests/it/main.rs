//! The program as operators start it. All tests are in one binary, so that shared helpers are linked once.

#![allow(clippy::unwrap_used)]

mod addons_service;
mod bad_input;
mod boot;
mod bounded_services;
mod call_back;
mod cloud_facts;
mod command_line;
mod config;
mod config_server;
mod converge;
mod denied;
mod derive;
mod doctor;
mod downloads;
mod environment;
mod example;
mod example_node;
mod failing_units;
mod first_boot;
mod first_boot_releases;
mod fleet_plan;
mod fleet_status;
mod following;
mod free_text;
mod json;
mod kops_releases;
mod kops_upgrades;
mod kubeconfigs;
mod last_good;
mod names;
mod openstack;
mod pages;
mod proxies;
mod rebooting;
mod refused_values;
mod renewal;
mod reserved_cgroups;
mod service_manager;
mod static_pods;
mod stores;
mod superseded;
mod support_bundle;
mod timers;
mod upkeep;
