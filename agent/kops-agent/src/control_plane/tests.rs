//! What is decided before anybody is asked: from the configuration.

#![allow(clippy::unwrap_used)]

use std::fs;

use super::*;

fn parse(text: &str) -> KopsControllerOptions {
    KopsControllerOptions::parse(text.as_bytes(), "config.yaml").unwrap()
}

#[test]
fn who_cannot_do_all_that_the_lease_is_for_leaves_it_to_upstream() {
    for cloud in ["aws", "gce"] {
        for options in
            ["", ", enableCloudIPAM: false", ", capi: {enabled: false}", ", server: {Listen: ':3988'}"]
        {
            let options = parse(&format!("{{clusterName: c, cloud: {cloud}{options}}}"));
            assert_eq!(left_to_upstream(&options).unwrap(), None, "{options:?}");
        }
    }
    for (options, named) in [
        ("cloud: aws, enableCloudIPAM: true", "enableCloudIPAM"),
        ("cloud: gce, enableCloudIPAM: true", "enableCloudIPAM"),
        ("cloud: gce, capi: {enabled: true}", "capi.enabled"),
        ("cloud: hetzner", "hetzner"),
    ] {
        // With nothing else to do it is refused.
        let refusal = left_to_upstream(&parse(&format!("{{clusterName: c, {options}}}"))).unwrap_err();
        assert!(refusal.to_string().contains(named), "{refusal}");
        let serving = parse(&format!("{{clusterName: c, {options}, server: {{Listen: ':3988'}}}}"));
        assert!(left_to_upstream(&serving).unwrap().unwrap().contains(named), "{options}");
    }
    let serving = parse("{clusterName: c, cloud: azure, server: {Listen: ':3988'}}");
    assert!(left_to_upstream(&serving).is_err());
}

#[test]
fn machines_with_keys_of_their_own_are_refused_by_name() {
    for cloud in ["aws", "gce", "hetzner", "metal"] {
        let text = format!("{{clusterName: c, cloud: {cloud}, server: {{Listen: ':3988', pki: {{}}}}}}");
        let refusal = left_to_upstream(&parse(&text)).unwrap_err().to_string();
        assert!(refusal.contains("server.pki") && refusal.contains("kOps' kops-controller"), "{refusal}");
    }
}

#[tokio::test]
async fn a_configuration_that_cannot_be_used_ends_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let [conf, kubeconfig] = ["config.yaml", "kubeconfig"].map(|name| folder.path().join(name));
    let good = "{clusterName: c, cloud: aws}";
    fs::write(&conf, good).unwrap();
    fs::write(&kubeconfig, "{apiVersion: v1, kind: Config}").unwrap();
    let args = ControllerArgs {
        conf: conf.clone(),
        kubeconfig: Some(kubeconfig.clone()),
        store_mirror: vec![],
        store_interval: 60,
        health_listen: String::new(),
        once: false,
        dry_run: false,
    };
    let mut files = Watched::new(vec![conf.clone(), kubeconfig.clone()]);
    let every = Duration::from_millis(1);
    for (file, bad) in [
        (&conf, "{clusterName: c, cloud: moon}"),
        (&conf, "{clusterName: c, cloud: aws, enableCloudIPAM: true}"),
        (&conf, "{clusterName: c, cloud: aws, server: {Listen: ':3988', pki: {}}}"),
        (&kubeconfig, "no kubeconfig: ["),
    ] {
        let before = fs::read(file).unwrap();
        fs::write(file, bad).unwrap();
        assert_eq!(files.changed(every).await, *file);
        assert!(can_be_used(&args).is_err(), "{bad}");
        // It goes on, and sees when it is mended.
        fs::write(file, format!("{bad} ")).unwrap();
        let ended = changed_for_good(&mut files, &args, every);
        tokio::pin!(ended);
        let mended = async {
            // Until it is looked at again at least once.
            tokio::time::sleep(20 * every).await;
            fs::write(file, &before).unwrap();
        };
        tokio::select! {
            biased;
            () = mended => {}
            file = &mut ended => panic!("it ended for {}", file.display()),
        }
        assert_eq!(ended.await, *file);
    }
}
