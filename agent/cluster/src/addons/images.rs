//! The images that objects name.

use std::collections::BTreeSet;

use serde_json::Value;

/// Collects the images that an object names, in containers and in image volumes. Every text in a field `image` counts, because objects of
/// other kinds than pods name images too.
pub fn collect_images(object: &Value, images: &mut BTreeSet<String>) {
    match object {
        Value::Object(fields) => {
            for (name, value) in fields {
                let image =
                    if name == "image" { value.as_str().or(value["reference"].as_str()) } else { None };
                match image.filter(|image| !image.is_empty()) {
                    Some(image) => drop(images.insert(image.to_owned())),
                    None => collect_images(value, images),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_images(item, images)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn images_of_containers_volumes_and_other_kinds_are_found_at_any_depth() {
        let mut images = BTreeSet::new();
        let pod = json!({
            "initContainers": [{"image": "a"}],
            "containers": [{"image": "b"}, {"name": "none"}, {"image": ""}],
            "volumes": [{"image": {"reference": "c", "pullPolicy": "Always"}}, {"name": "none"}],
        });
        collect_images(&json!({"spec": {"template": {"spec": pod}}}), &mut images);
        collect_images(
            &json!({"kind": "Other", "spec": {"image": "d", "schema": {"image": {"type": "string"}}}}),
            &mut images,
        );
        assert_eq!(images.into_iter().collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    }
}
