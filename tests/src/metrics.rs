//! The forms of metrics: what scripts and dashboards know of them.

use std::collections::BTreeSet;

/// A line with the name, the type and the labels of each metric in a text. The text has the format of Prometheus or
/// OpenMetrics. The values of metrics are left out.
pub fn forms(text: &str) -> String {
    let families: Vec<(&str, &str)> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let samples = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let forms: BTreeSet<String> = samples.map(|sample| form(sample, &families)).collect();
    forms.into_iter().collect()
}

/// The line of [`forms`] for one sample. The line's type is the type of the metric family to which the sample belongs. The name of a sample
/// is the name of its family, or has one of the suffixes `_total`, `_bucket` and `_info`.
fn form(sample: &str, families: &[(&str, &str)]) -> String {
    let (name, rest) = sample.split_at(sample.find(['{', ' ']).unwrap_or(sample.len()));
    let of_sample = families.iter().filter(|(family, _)| name.starts_with(family));
    let kind = of_sample.max_by_key(|(family, _)| family.len()).map_or("untyped", |&(_, kind)| kind);
    // Escaped characters are removed, so that every second piece between quotes is a label's value.
    let rest = rest.replace("\\\\", "").replace("\\\"", "");
    let names = rest.split('"').step_by(2).filter_map(|piece| piece.strip_suffix('='));
    let labels: BTreeSet<&str> = names.map(|name| name.trim_start_matches(['{', ','])).collect();
    let labels: String = labels.iter().map(|label| format!(" {label}")).collect();
    format!("{name} {kind}{labels}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_has_no_values() {
        let text = "# HELP a Of a.\n# TYPE a counter\na_total{z=\"1,{y=\\\"\",b=\"\"} 1\na_total{z=\"2\",b=\"\"} 1\n\
                    # TYPE a_b histogram\na_b_bucket{le=\"+Inf\"} 3\na_b_sum 4\n# EOF\n";
        assert_eq!(forms(text), "a_b_bucket histogram le\na_b_sum histogram\na_total counter b z\n");
    }
}
