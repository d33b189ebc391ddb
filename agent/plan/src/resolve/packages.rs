//! The packages that a user adds.

use kops_agent_spec::NodeupConfig;

use super::Problems;

/// Whether each is a name that a package manager would take for one, not for an option or a file.
pub(super) fn resolve(config: &NodeupConfig, problems: &mut Problems) {
    for (index, name) in config.packages.iter().enumerate() {
        let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "+-._:~=^".contains(c);
        if !starts_well || !name.chars().all(is_allowed) {
            problems
                .add(format!("packages[{index}]"), format!("{name:?} is no name of a package; correct it"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_pass() {
        let names = ["nfs-common", "libstdc++6", "vim:amd64", "nginx=1.2-3~x", "", "-y", "../x.deb", "a b"];
        let config = NodeupConfig { packages: names.map(str::to_owned).to_vec(), ..NodeupConfig::default() };
        let mut problems = Problems::default();
        resolve(&config, &mut problems);
        let fields: Vec<&str> = problems.iter().map(|problem| problem.field.as_str()).collect();
        assert_eq!(fields, ["packages[4]", "packages[5]", "packages[6]", "packages[7]"]);
    }
}
