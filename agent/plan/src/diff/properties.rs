//! Properties of plans, for arbitrary desired and observed states.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::resource::*;
use kops_agent_spec::digest::sha256_hex;

/// The observation of a resource directly after a run has made the resource. `observed` has all earlier observations.
fn made(resource: &Resource, observed: &ObservedState) -> Option<Observed> {
    Some(match resource {
        Resource::File(file) => {
            let bytes = serde_json::to_vec(&file.content).unwrap();
            let (sha256, content) = match &file.content {
                Content::Text(text) => (sha256_hex(text.as_bytes()), ObservedContent::Text(text.clone())),
                Content::Base64(_) => (sha256_hex(b"\x00\x01"), ObservedContent::Bytes),
                Content::Asset(asset) => match &asset.member {
                    None => (asset.sha256.clone().unwrap(), ObservedContent::Bytes),
                    Some(member) => (
                        sha256_hex(member.as_bytes()),
                        ObservedContent::Member {
                            archive: asset.sha256.clone().unwrap(),
                            member: member.clone(),
                        },
                    ),
                },
                _ => (sha256_hex(&bytes), ObservedContent::Compared { as_desired: true }),
            };
            Observed::File(ObservedFile {
                access: Access {
                    mode: file.mode,
                    owner: file.owner.clone(),
                    group: file.group.clone().unwrap_or_default(),
                },
                commands_ran_for: Some(sha256.clone()),
                serves: None,
                pod_mounted: None,
                free_text: None,
                sha256,
                content,
            })
        }
        Resource::Unit(unit) => Observed::Unit(ObservedUnit {
            text: unit.text.clone(),
            edited: false,
            path: String::new(),
            belongs: String::new(),
            access: unit.text.is_some().then(Access::of_roots),
            enablement: if unit.enabled { Enablement::Enabled } else { Enablement::Disabled },
            running: unit.running,
            starting: false,
            stamp: unit_reading(unit, observed),
            overridden: None,
            free_text: None,
        }),
        Resource::Certificate(certificate) => Observed::Certificate(ObservedCertificate {
            fingerprint: certificate.name.clone(),
            replace: None,
            is_due: false,
            stuck: None,
        }),
        Resource::HostsEntry(entry) if entry.addresses.is_empty() => return None,
        other => Observed::Resource(other.clone()),
    })
}

fn apply(steps: &[Step], desired: &DesiredState, observed: &mut ObservedState) {
    for step in steps {
        match made(desired.get(&step.resource).unwrap(), observed) {
            Some(made) => observed.insert(step.resource.clone(), made),
            None => observed.remove(&step.resource),
        };
    }
}

/// Converts the content of observed files to the variant of [`ObservedContent`] that an observer reports for `desired`. The variant depends
/// on the desired content.
fn observed_for(desired: &DesiredState, mut observed: ObservedState) -> ObservedState {
    for (id, found) in &mut observed {
        let wanted = desired.get(id).and_then(|resource| made(resource, &ObservedState::new()));
        if let (Observed::File(found), Some(Observed::File(wanted))) = (found, wanted) {
            found.content = match wanted.content {
                ObservedContent::Compared { .. } => {
                    ObservedContent::Compared { as_desired: found.sha256 == wanted.sha256 }
                }
                same if found.sha256 == wanted.sha256 => same,
                _ => ObservedContent::Bytes,
            };
        }
    }
    observed
}

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c"]).prop_map(str::to_owned)
}

fn path() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["/x", "/x/y", "/x/y/z", "/w"]).prop_map(str::to_owned)
}

fn content() -> impl Strategy<Value = Content> {
    let asset = |member: Option<&str>| {
        Content::Asset(AssetContent {
            url: "https://example.com/a".into(),
            mirrors: vec![],
            sha256: Some("ab".repeat(32)),
            member: member.map(Into::into),
        })
    };
    prop_oneof![
        "[a-c\n]{0,8}".prop_map(Content::Text),
        Just(Content::Base64("AAE=".into())),
        Just(asset(None)),
        Just(asset(Some("bin/a"))),
        name().prop_map(Content::Certificate),
        name().prop_map(Content::PrivateKey),
        Just(Content::SecretText(vec![SecretPiece::Secret("s".into())])),
    ]
}

fn certificate(name: &str) -> Certificate {
    Certificate {
        name: name.into(),
        signer: "kubernetes-ca".into(),
        keypair_id: "1".into(),
        certificate_type: CertificateType::Client,
        subject: Subject::default(),
        sans: vec![],
        issuer: Issuer::Local,
        include_root: false,
    }
}

fn resource() -> impl Strategy<Value = Resource> {
    let mode = prop::sample::select(vec![Mode::FILE, Mode::PRIVATE, Mode::EXECUTABLE]);
    let file = (path(), content(), mode, any::<bool>(), any::<bool>()).prop_map(
        |(path, content, mode, create_only, commands)| {
            let mut file = File { create_only, ..File::new(path, content).mode(mode) };
            if commands {
                file = file.on_change(&["true"]);
            }
            file.into()
        },
    );
    let unit = (
        prop::sample::select(vec!["containerd.service", "kubelet.service", "a.service"]),
        prop::option::of("[a-b]{0,3}"),
        any::<bool>(),
        any::<bool>(),
        prop::collection::vec(path(), 0..3),
    )
        .prop_map(|(name, text, enabled, running, paths)| {
            Unit { text, enabled, running, ..Unit::existing(name) }.restarted_by_files(paths).into()
        });
    let certificate = name().prop_map(|name| certificate(&name).into());
    prop_oneof![
        4 => file,
        3 => unit,
        1 => certificate,
        1 => name().prop_map(|name| Package { name }.into()),
        1 => (name(), 1..9u32).prop_map(|(name, uid)| {
            User { name, uid, home: String::new(), shell: "/bin/false".into() }.into()
        }),
        1 => path().prop_map(|path| Directory::new(format!("{path}/dir")).into()),
        1 => path().prop_map(|path| Symlink { path: format!("{path}/link"), target: "t".into() }.into()),
        1 => (name(), prop::collection::vec(name(), 0..2))
            .prop_map(|(hostname, addresses)| HostsEntry { hostname, addresses, ..HostsEntry::default() }.into()),
        1 => name().prop_map(|name| KernelModule { name, package: None }.into()),
    ]
}

fn desired() -> impl Strategy<Value = DesiredState> {
    prop::collection::vec(resource(), 0..16).prop_map(|resources| {
        let mut state = DesiredState::default();
        resources.into_iter().for_each(|resource| state.add(resource));
        state
    })
}

proptest! {
    #[test]
    fn after_applying_the_next_plan_is_empty(before in desired(), after in desired()) {
        let mut observed = ObservedState::new();
        apply(&diff(&before, &observed).steps, &before, &mut observed);
        prop_assert_eq!(diff(&before, &observed), Plan::default());
        let mut observed = observed_for(&after, observed);
        apply(&diff(&after, &observed).steps, &after, &mut observed);
        prop_assert_eq!(diff(&after, &observed), Plan::default());
    }

    #[test]
    fn the_next_run_finishes_an_interrupted_run(
        before in desired(), after in desired(), done in 0..32usize,
    ) {
        let mut whole = ObservedState::new();
        apply(&diff(&before, &whole).steps, &before, &mut whole);
        let mut whole = observed_for(&after, whole);
        let mut interrupted = whole.clone();

        let plan = diff(&after, &whole);
        let done = done.min(plan.steps.len());
        apply(&plan.steps[..done], &after, &mut interrupted);
        let rest = diff(&after, &interrupted);
        // A restart is still due if its step was not executed.
        for step in plan.steps[done..].iter().filter(|step| step.restarts()) {
            prop_assert!(rest.step(&step.resource).is_some_and(Step::restarts), "{:?}", step);
        }
        apply(&rest.steps, &after, &mut interrupted);
        apply(&plan.steps, &after, &mut whole);
        prop_assert_eq!(interrupted, whole);
    }

    #[test]
    fn exactly_the_differing_resources_have_a_step(before in desired(), after in desired()) {
        let mut observed = ObservedState::new();
        apply(&diff(&before, &observed).steps, &before, &mut observed);
        let observed = observed_for(&after, observed);
        let plan = diff(&after, &observed);
        let ids: BTreeSet<&ResourceId> = plan.steps.iter().map(|step| &step.resource).collect();
        prop_assert_eq!(ids.len(), plan.steps.len());
        for (id, resource) in after.iter() {
            let is_kept = matches!(resource, Resource::File(file) if file.create_only)
                && observed.contains_key(id);
            match (resource, observed.get(id)) {
                (Resource::Unit(unit), Some(Observed::Unit(present))) => {
                    let differs = unit.text.is_some() && unit.text != present.text
                        || unit.enabled != (present.enablement == Enablement::Enabled)
                        || unit.running != present.running;
                    // A unit without a difference has a step if a file that it reads has changed or will change.
                    prop_assert!(!differs || ids.contains(id), "{}", id);
                }
                (Resource::Unit(unit), _) => {
                    let is_as_good_as_absent = unit.text.is_none() && !unit.enabled && !unit.running;
                    prop_assert_eq!(!is_as_good_as_absent, ids.contains(id), "{}", id);
                }
                (_, present) => {
                    let follows_a_new_certificate = matches!(
                        resource,
                        Resource::File(File {
                            content: Content::Certificate(name) | Content::PrivateKey(name), ..
                        }) if ids.contains(&ResourceId::new(Kind::Certificate, name))
                    );
                    let differs = !is_kept
                        && (follows_a_new_certificate || present != made(resource, &observed).as_ref());
                    prop_assert_eq!(differs, ids.contains(id), "{}", id);
                }
            }
        }
    }

    #[test]
    fn stages_follow_one_another(state in desired()) {
        let plan = diff(&state, &ObservedState::new());
        prop_assert!(plan.steps.is_sorted_by_key(|step| step.stage));
        let place = |id: &ResourceId| plan.steps.iter().position(|step| step.resource == *id);
        let kubelet = place(&ResourceId::new(Kind::Unit, "kubelet.service"));
        let runtime = place(&ResourceId::new(Kind::Unit, "containerd.service"));
        if let (Some(runtime), Some(kubelet)) = (runtime, kubelet) {
            prop_assert!(runtime < kubelet);
        }
        if let Some(kubelet) = kubelet {
            prop_assert_eq!(kubelet, plan.steps.len() - 1);
        }
    }

    #[test]
    fn a_plan_survives_being_written_as_json(state in desired()) {
        let plan = diff(&state, &ObservedState::new());
        let json = serde_json::to_string(&plan).unwrap();
        prop_assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
    }
}

#[test]
fn a_unit_restarts_only_for_files_that_it_reads() {
    let file = |text: &str, mode| Resource::from(File::text("/etc/sysconfig/a", text).mode(mode));
    let unit = Unit::new("a.service", "text").restarted_by_files(["/etc/sysconfig/a"]);
    let state = |file: Resource| {
        let mut state = DesiredState::default();
        state.add(file);
        state.add(unit.clone());
        state
    };
    let first = state(file("one", Mode::FILE));
    let mut observed = ObservedState::new();
    apply(&diff(&first, &observed).steps, &first, &mut observed);

    let other_mode = diff(&state(file("one", Mode::PRIVATE)), &observed);
    assert_eq!((other_mode.summary().change.number, other_mode.summary().restart), (1, 0));

    let other_text = diff(&state(file("two", Mode::FILE)), &observed);
    assert_eq!((other_text.summary().change.number, other_text.summary().restart), (1, 1));
    assert_eq!(
        other_text.steps[1].changes,
        [Change::Restart { because: vec![ResourceId::new(Kind::File, "/etc/sysconfig/a")] }]
    );
}

#[test]
fn a_certificates_files_change_with_it() {
    let mut state = DesiredState::default();
    for path in ["/a.crt", "/b.crt"] {
        state.add(File::new(path, Content::Certificate(path[1..2].into())));
    }
    for name in ["a", "b"] {
        state.add(certificate(name));
    }
    let mut observed = ObservedState::new();
    apply(&diff(&state, &observed).steps, &state, &mut observed);
    observed.insert(
        ResourceId::new(Kind::Certificate, "a"),
        Observed::Certificate(ObservedCertificate {
            fingerprint: "x".into(),
            replace: Some("it expires soon".into()),
            is_due: true,
            stuck: None,
        }),
    );
    let plan = diff(&state, &observed);
    let ids: Vec<String> = plan.steps.iter().map(|step| step.resource.to_string()).collect();
    assert_eq!(ids, ["certificate a", "file /a.crt"]);
}

#[test]
fn plans_hide_only_secrets_and_free_text() {
    let mut state = DesiredState::default();
    state.add(File::new("/token", Content::SecretText(vec![SecretPiece::Secret("t".into())])));
    state.add(File::text("/typed", "--kubeconfig=/var/lib/a\n").mode(Mode(0o400)));
    state.add(File::text("/was-free", "harmless"));
    state.add(File::text("/is-free", "hunter2").with_free_text(FreeText::Whole));
    state.add(File::text("/is-free-bytes", "hunter2").with_free_text(FreeText::Whole));
    state.add(File::new("/is-new", Content::Base64("aHVudGVyMg==".into())).with_free_text(FreeText::Whole));
    let file = |content, free_text| {
        Observed::File(ObservedFile {
            access: Access::of_roots(),
            sha256: sha256_hex(b"hunter22"),
            content,
            commands_ran_for: None,
            serves: None,
            pod_mounted: None,
            free_text,
        })
    };
    let text = || ObservedContent::Text("hunter22".into());
    let observed = ObservedState::from([
        (ResourceId::new(Kind::File, "/is-free"), file(text(), None)),
        (ResourceId::new(Kind::File, "/is-free-bytes"), file(ObservedContent::Bytes, None)),
        (ResourceId::new(Kind::File, "/token"), file(ObservedContent::Compared { as_desired: false }, None)),
        (ResourceId::new(Kind::File, "/was-free"), file(text(), Some(FreeText::Whole))),
    ]);
    let plan = diff(&state, &observed);
    assert_eq!(plan.steps.len(), 6);
    let json = serde_json::to_string(&plan).unwrap();
    for digest in [sha256_hex(b"hunter2"), sha256_hex(b"hunter22")] {
        assert!(!json.contains(&digest), "{json}");
    }
    assert!(!json.contains("hunter2"), "{json}");
    assert!(json.contains("secret") && json.contains("+--kubeconfig=/var/lib/a"), "{json}");
}

#[test]
fn commands_that_did_not_finish_run_again() {
    let mut state = DesiredState::default();
    state.add(File::text("/etc/sysctl.d/99-k8s.conf", "a = 1\n").on_change(&["sysctl", "--system"]));
    let mut observed = ObservedState::new();
    apply(&diff(&state, &observed).steps, &state, &mut observed);
    for found in observed.values_mut() {
        if let Observed::File(file) = found {
            file.commands_ran_for = None;
        }
    }
    let plan = diff(&state, &observed);
    assert_eq!(plan.steps[0].changes, [Change::Run { command: vec!["sysctl".into(), "--system".into()] }]);
}
