//! Merges two configurations like kOps does, by their JSON. Mappings merge key by key. All other values are replaced as a whole. Fields
//! that the overlay omits stay (upstream: `util/pkg/reflectutils/walk.go`, `JSONMergeStruct`).

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Returns `base` with all values of `overlay` applied.
pub(super) fn merge<T: Serialize + DeserializeOwned + Clone>(base: &T, overlay: &T) -> T {
    let merged = serde_json::to_value(base).and_then(|mut value| {
        lay_over(&mut value, serde_json::to_value(overlay)?);
        serde_json::from_value(value)
    });
    // The conversion cannot fail, because every type reads back its own JSON. Tests check this for every type.
    merged.unwrap_or_else(|_| overlay.clone())
}

fn lay_over(base: &mut Value, overlay: Value) {
    match (base, overlay) {
        (Value::Object(base), Value::Object(overlay)) => {
            for (key, value) in overlay {
                lay_over(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, overlay) => *base = overlay,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use kops_agent_spec::KubeletConfigSpec;

    #[test]
    fn mappings_merge_and_lists_are_replaced() {
        let mut base = json!({"a": {"b": 1, "c": [1, 2]}, "d": 1});
        lay_over(&mut base, json!({"a": {"c": [3], "e": null}, "f": {"g": 1}}));
        assert_eq!(base, json!({"a": {"b": 1, "c": [3], "e": null}, "d": 1, "f": {"g": 1}}));
    }

    #[test]
    fn fields_missing_in_the_overlay_stay() {
        let base = KubeletConfigSpec {
            max_pods: Some(10),
            fail_swap_on: Some(true),
            cluster_dns: "10.0.0.10".into(),
            ..Default::default()
        };
        let overlay =
            KubeletConfigSpec { max_pods: Some(0), fail_swap_on: Some(false), ..Default::default() };
        let merged = merge(&base, &overlay);
        assert_eq!((merged.max_pods, merged.fail_swap_on), (Some(0), Some(false)));
        assert_eq!(merged.cluster_dns, "10.0.0.10");
    }
}
