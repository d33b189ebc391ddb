//! Reading the configuration, before any request.

#![allow(clippy::unwrap_used)]

use std::fs;

use serde_json::Value;

use kops_agent_cluster::takeover::serves_machines;
use kops_agent_tests::kops_releases::RELEASES;

use super::*;

/// A kubeconfig whose user has these credentials.
fn kubeconfig_of(user: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
         clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:1'}}}}], users: [{{name: u, user: {user}}}]}}"
    )
}

#[test]
fn configurations_of_each_kops_release_are_read_completely() {
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("config.yaml");
    for release in &RELEASES {
        for (cloud, text) in release.kops_controller_configurations() {
            fs::write(&conf, format!("{text}\n")).unwrap();
            let options = options(&conf).unwrap();
            // kOps writes `pki: {}`, a value without fields. Parsing must keep it.
            let written: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_value(&options).unwrap(), written, "{}: {text}", release.name);
            assert_eq!(options.cloud.id(), cloud);
            let is_left = text.contains("discovery") || text.contains("capi");
            let has_addresses = !text.contains("enableCloudIPAM") || ["aws", "gce", "metal"].contains(&cloud);
            assert_eq!(serves_machines(&options), !is_left && has_addresses, "{}: {text}", release.name);
        }
    }
}

#[tokio::test]
async fn a_configuration_that_cannot_be_used_ends_no_running_controller() {
    let folder = tempfile::tempdir().unwrap();
    let [conf, kubeconfig] = ["config.yaml", "kubeconfig"].map(|name| folder.path().join(name));
    let good = "{clusterName: c, cloud: aws}";
    fs::write(&conf, good).unwrap();
    fs::write(&kubeconfig, kubeconfig_of("{token: t}")).unwrap();
    let given = ControllerOptions {
        conf: conf.clone(),
        kubeconfig: Some(kubeconfig.clone()),
        store_mirrors: Vec::new(),
        store_interval: Duration::from_secs(60),
        labels_from: None,
        health_listen: String::new(),
    };
    let mut files = Watched::new(vec![conf.clone(), kubeconfig.clone()]);
    let every = Duration::from_millis(1);
    assert!(can_be_used(&given).is_ok());
    let exec = kubeconfig_of("{exec: {command: aws}}");
    let half_a_pair = kubeconfig_of("{client-certificate-data: LS0t}");
    for (file, bad) in [
        (&conf, "{clusterName: c, cloud: moon}"),
        (&conf, "{cloud: aws}"),
        (&kubeconfig, "no kubeconfig: ["),
        (&kubeconfig, exec.as_str()),
        (&kubeconfig, half_a_pair.as_str()),
    ] {
        let before = fs::read(file).unwrap();
        fs::write(file, bad).unwrap();
        assert_eq!(files.changed(every).await, *file);
        assert!(can_be_used(&given).is_err(), "{bad}");
        // The controller keeps running until the file is valid.
        fs::write(file, format!("{bad} ")).unwrap();
        let ended = changed_for_good(&mut files, &given, every);
        tokio::pin!(ended);
        let mended = async {
            // Wait for at least one more check of the files.
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
