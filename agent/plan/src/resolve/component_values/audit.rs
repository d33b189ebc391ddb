//! Checks the audit log and the audit webhook of the API server.
//!
//! Source: k8s.io/apiserver/pkg/server/options/audit.go. If the API server does not use its log or its webhook, it does not check the
//! settings of that log or webhook.

use kops_agent_spec::KubeAPIServerConfig;

use super::Component;

pub(super) fn check(component: &mut Component<'_>, config: &KubeAPIServerConfig) {
    if config.audit_log_path.as_deref().is_some_and(|path| !path.is_empty()) {
        let format = config.audit_log_format.as_deref().unwrap_or_default();
        component.word("auditLogFormat", format, &["json", "legacy"]);
        component.numbers(
            0..=i64::MAX,
            &[
                ("auditLogMaxAge", config.audit_log_max_age.map(i64::from)),
                ("auditLogMaxBackups", config.audit_log_max_backups.map(i64::from)),
                ("auditLogMaxSize", config.audit_log_max_size.map(i64::from)),
            ],
        );
    }
    if !config.audit_webhook_config_file.is_empty() {
        check_webhook(component, config);
    }
}

fn check_webhook(component: &mut Component<'_>, config: &KubeAPIServerConfig) {
    const BATCH: &str = "batch";
    let mode = config.audit_webhook_mode.as_str();
    component.word("auditWebhookMode", mode, &[BATCH, "blocking", "blocking-strict"]);
    if !matches!(mode, "" | BATCH) {
        return;
    }
    component.numbers(
        1..=i64::MAX,
        &[
            ("auditWebhookBatchBufferSize", config.audit_webhook_batch_buffer_size.map(i64::from)),
            ("auditWebhookBatchMaxSize", config.audit_webhook_batch_max_size.map(i64::from)),
        ],
    );
    if config.audit_webhook_batch_throttle_enable == Some(false) {
        return;
    }
    let burst = config.audit_webhook_batch_throttle_burst.map(i64::from);
    component.numbers(1..=i64::MAX, &[("auditWebhookBatchThrottleBurst", burst)]);
    if let Some(rate) = &config.audit_webhook_batch_throttle_qps
        && rate.as_f64().is_none_or(|rate| rate <= 0.0)
    {
        component.refuse_value("auditWebhookBatchThrottleQps", rate, "use more than 0");
    }
}

#[cfg(test)]
mod tests {
    use crate::resolve::component_values::testing::{API_SERVER, assert_accepted, assert_refused};

    #[test]
    fn values_of_an_audit_log_or_webhook_that_is_used_are_checked() {
        let webhook = |set: &str| {
            format!("{{auditWebhookConfigFile: /srv/kubernetes/kube-apiserver/known_tokens.csv, {set}}}")
        };
        let log = |set: &str| format!("{{auditLogPath: '-', {set}}}");
        for (set, field) in [
            (log("auditLogFormat: xml"), "auditLogFormat"),
            (log("auditLogMaxAge: -1"), "auditLogMaxAge"),
            (log("auditLogMaxBackups: -1"), "auditLogMaxBackups"),
            (log("auditLogMaxSize: -1"), "auditLogMaxSize"),
            (webhook("auditWebhookMode: blocked"), "auditWebhookMode"),
            (webhook("auditWebhookBatchBufferSize: 0"), "auditWebhookBatchBufferSize"),
            (webhook("auditWebhookBatchMaxSize: 0"), "auditWebhookBatchMaxSize"),
            (webhook("auditWebhookBatchThrottleBurst: 0"), "auditWebhookBatchThrottleBurst"),
            (webhook("auditWebhookBatchThrottleQps: 0"), "auditWebhookBatchThrottleQps"),
        ] {
            assert_refused("1.34.0", API_SERVER, &[(&set, field)]);
        }
        for set in [
            "{auditLogFormat: xml, auditLogMaxAge: -1, auditWebhookMode: blocked, auditWebhookBatchThrottleQps: 0}".to_owned(),
            webhook("auditWebhookMode: blocking, auditWebhookBatchMaxSize: 0"),
            webhook("auditWebhookBatchThrottleEnable: false, auditWebhookBatchThrottleBurst: 0"),
            webhook("auditWebhookMode: batch, auditWebhookBatchThrottleQps: 3140m"),
            log("auditLogFormat: legacy, auditLogMaxSize: 0"),
        ] {
            assert_accepted("1.34.0", API_SERVER, &[&set]);
        }
    }
}
