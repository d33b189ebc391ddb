//! What is decided before anybody is asked: from the configuration.

#![allow(clippy::unwrap_used)]

use std::fs;

use super::*;

#[tokio::test]
async fn a_configuration_that_cannot_be_used_ends_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let [conf, kubeconfig] = ["config.yaml", "kubeconfig"].map(|name| folder.path().join(name));
    let good = "{clusterName: c, cloud: aws}";
    fs::write(&conf, good).unwrap();
    fs::write(&kubeconfig, "{apiVersion: v1, kind: Config}").unwrap();
    let args = ControllerArgs {
        command: None,
        conf: conf.clone(),
        kubeconfig: Some(kubeconfig.clone()),
        store_mirror: vec![],
        store_interval: 60,
        health_listen: String::new(),
        labels_from: None,
        once: false,
        dry_run: false,
    };
    let mut files = Watched::new(vec![conf.clone(), kubeconfig.clone()]);
    let every = Duration::from_millis(1);
    for (file, bad) in
        [(&conf, "{clusterName: c, cloud: moon}"), (&conf, "{cloud: aws}"), (&kubeconfig, "no kubeconfig: [")]
    {
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
