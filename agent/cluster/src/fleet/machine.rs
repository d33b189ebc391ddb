//! Whether a node needs a new machine, by the spec of its instance group.
//!
//! Each node observes its own machine and publishes it in an annotation of its own Node. The leading controller publishes the
//! machines that the instance groups want, because operators of the API server need no right to the state store. Only the parts
//! that a node observes are compared.

use std::collections::BTreeMap;

use kops_agent_spec::invalid::Invalid;
use kops_agent_spec::{
    InstanceGroupSpec, InstanceRootVolumeSpec, additional_parts_of_group, parse_timestamp,
};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::annotation::{Annotation, SCHEMA_VERSION, Unread, is_name};
use super::groups::STALE;
use super::rows::CLOCK_SKEW;

/// The annotation with the [`ObservedMachine`].
pub const MACHINE: &str = "kops-agent/machine";
/// The ConfigMap with the [`WantedMachines`], in the namespace [`crate::pacing::NAMESPACE`].
pub const WANTED_MACHINES: &str = "instance-groups";
/// The key with the wanted machines in the ConfigMap [`WANTED_MACHINES`].
pub const WANTED_MACHINES_KEY: &str = "machines";
/// Maximum length of a machine type or an image, in bytes.
const LONGEST_NAME: usize = 256;
/// The prefix of the ID of an EC2 image.
const AMI: &str = "ami-";

/// The machine of a node, as the node observes it. A field is `None` if the node cannot observe it on this cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObservedMachine {
    schema_version: u32,
    /// The machine type, according to the cloud's metadata service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_type: Option<String>,
    /// The image, according to the cloud's metadata service: the ID of an EC2 image, or `PROJECT/NAME` of an image of GCE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The size of the disk under `/`, in GiB. EC2 and GCE use the same unit for the size of a volume.
    #[serde(default, rename = "rootVolumeGiB", skip_serializing_if = "Option::is_none")]
    pub root_volume_gib: Option<u32>,
    /// The digest of the user-data without kOps' boot script; empty if the user-data has no other parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_user_data: Option<String>,
}

/// The machines that the instance groups of a cluster want, according to the saved specs in the state store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WantedMachines {
    schema_version: u32,
    /// When the controller last read the specs of the instance groups, in RFC 3339.
    pub at: String,
    pub groups: BTreeMap<String, WantedMachine>,
}

/// The machine that an instance group wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WantedMachine {
    /// Empty if the spec names no image.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// The machine types that the spec permits. Empty if the spec names no type, or has only requirements that a type must meet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub machine_types: Vec<String>,
    #[serde(rename = "rootVolumeSize", skip_serializing_if = "Option::is_none")]
    pub root_volume_size: Option<u32>,
    /// The digest of the parts that the spec adds to the user-data; empty if the spec adds none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub additional_user_data: String,
    /// The fields of the spec that affect only new machines, and that nodes do not report.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_observed: Vec<String>,
}

/// The comparison of a node's machine with the spec of the node's group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineComparison {
    /// The differences that only a new machine removes. If this list is empty, parts in `not_compared` may still differ.
    pub needs_new_machine: Vec<String>,
    /// The parts of the machine that were not compared, each with the reason.
    pub not_compared: Vec<String>,
}

impl ObservedMachine {
    /// A machine with this type and image, which the cloud's metadata service reports.
    pub fn new(machine_type: Option<String>, image: Option<String>) -> ObservedMachine {
        ObservedMachine { schema_version: SCHEMA_VERSION, machine_type, image, ..ObservedMachine::default() }
    }

    /// Adds the parts that the agent reads on the machine itself.
    pub fn with_local_parts(
        self,
        root_volume_gib: Option<u32>,
        additional_user_data: Option<String>,
    ) -> ObservedMachine {
        ObservedMachine { root_volume_gib, additional_user_data, ..self }
    }

    /// The annotation's value. `None` if readers would reject the value.
    pub fn value(&self) -> Option<String> {
        self.written()
    }

    /// Reads only the form that [`ObservedMachine::value`] writes.
    pub fn read(value: &str) -> Result<ObservedMachine, Unread> {
        ObservedMachine::parsed(value)
    }
}

impl Annotation for ObservedMachine {
    const NAME: &'static str = MACHINE;
    const LONGEST: usize = 1024;

    fn schema_version(&self) -> u32 {
        self.schema_version
    }

    fn is_bounded(&self) -> bool {
        let is_name = |text: &String| is_name(text, LONGEST_NAME);
        self.machine_type.iter().chain(&self.image).all(is_name)
            && self.additional_user_data.iter().all(|digest| digest.is_empty() || is_name(digest))
    }
}

impl WantedMachine {
    pub fn from_group(spec: &InstanceGroupSpec) -> WantedMachine {
        let policy = spec.mixed_instances_policy.as_ref();
        let is_open = policy.is_some_and(|policy| policy.instance_requirements.is_some());
        let types = spec.machine_type.split(',').map(str::trim).map(str::to_owned);
        let mut machine_types: Vec<String> =
            types.chain(policy.iter().flat_map(|policy| policy.instances.clone())).collect();
        machine_types.retain(|name| !name.is_empty() && !is_open);
        machine_types.sort();
        machine_types.dedup();
        let size = spec.root_volume.as_ref().and_then(|volume| volume.size);
        WantedMachine {
            image: spec.image.trim().to_owned(),
            machine_types,
            root_volume_size: size.and_then(|size| u32::try_from(size).ok()).filter(|size| *size > 0),
            additional_user_data: additional_parts_of_group(spec),
            not_observed: not_observed(spec),
        }
    }

    /// Compares the machine of a node with this wanted machine.
    fn compare(&self, machine: &ObservedMachine) -> MachineComparison {
        let mut comparison = MachineComparison::default();
        comparison.add("image", self.image(machine));
        comparison.add("machine type", self.machine_type(machine));
        comparison.add("root volume", self.root_volume(machine));
        comparison.add("additionalUserData", self.additional_user_data(machine));
        let others = self.not_observed.iter().map(|field| format!("{field}: nodes do not report this field"));
        comparison.not_compared.extend(others);
        comparison
    }

    fn image(&self, machine: &ObservedMachine) -> Compared {
        let observed = machine.image.as_deref().ok_or(NOT_OBSERVED)?;
        match self.image.as_str() {
            "" => Err("the spec has none".to_owned()),
            image if is_same_form(observed, image) => {
                Ok((observed != image).then(|| beside(observed, image)))
            }
            image => {
                Err(format!("{observed}, spec has {image}; names of different forms cannot be compared"))
            }
        }
    }

    fn machine_type(&self, machine: &ObservedMachine) -> Compared {
        let observed = machine.machine_type.as_deref().ok_or(NOT_OBSERVED)?;
        match self.machine_types.as_slice() {
            [] => Err("the spec names none".to_owned()),
            types if types.iter().any(|name| name == observed) => Ok(None),
            types => Ok(Some(beside(observed, &types.join(" or ")))),
        }
    }

    fn root_volume(&self, machine: &ObservedMachine) -> Compared {
        // Without a size in the spec, kOps chooses the size, and the choice may change with each release. Therefore the sizes are not
        // compared.
        let Some(wanted) = self.root_volume_size else { return Err("the spec has no size".to_owned()) };
        let observed = machine.root_volume_gib.ok_or(NOT_OBSERVED)?;
        Ok((observed != wanted).then(|| beside(&format!("{observed} GiB"), &format!("{wanted} GiB"))))
    }

    fn additional_user_data(&self, machine: &ObservedMachine) -> Compared {
        match &machine.additional_user_data {
            None if self.additional_user_data.is_empty() => Ok(None),
            None => Err(NOT_OBSERVED.to_owned()),
            Some(digest) => {
                Ok((*digest != self.additional_user_data).then(|| "differs from the spec".to_owned()))
            }
        }
    }
}

/// The comparison of one part of a node's machine, such as the image, with the spec: the difference, `None` if there is none, or the reason
/// why this part cannot be compared.
type Compared = Result<Option<String>, String>;

const NOT_OBSERVED: &str = "the node does not report it";

fn beside(observed: &str, wanted: &str) -> String {
    format!("{observed}, spec has {wanted}")
}

/// Whether both texts name an image in the same form: as IDs of EC2 images, or as `PROJECT/NAME` of GCE images. In these forms, different
/// texts mean different images. Only the cloud knows which image a name, an alias or a family means.
fn is_same_form(observed: &str, wanted: &str) -> bool {
    let is_of_project = |image: &str| {
        let mut parts = image.split('/');
        let is_part = |part: Option<&str>| part.is_some_and(|part| !part.is_empty() && !part.contains(':'));
        is_part(parts.next()) && is_part(parts.next()) && parts.next().is_none()
    };
    match observed.starts_with(AMI) {
        true => wanted.starts_with(AMI),
        false => is_of_project(observed) && is_of_project(wanted),
    }
}

/// The fields that the spec sets, that affect only new machines, and that nodes do not report. Fields that most groups set are left out,
/// because the documentation names them.
fn not_observed(spec: &InstanceGroupSpec) -> Vec<String> {
    let InstanceRootVolumeSpec {
        size: _,
        r#type,
        iops,
        throughput,
        optimization,
        encryption,
        encryption_key,
    } = spec.root_volume.clone().unwrap_or_default();
    let fields = [
        ("rootVolume.type", r#type.is_some()),
        ("rootVolume.iops", iops.is_some()),
        ("rootVolume.throughput", throughput.is_some()),
        ("rootVolume.optimization", optimization.is_some()),
        ("rootVolume.encryption", encryption.is_some()),
        ("rootVolume.encryptionKey", encryption_key.is_some()),
        ("volumes", !spec.volumes.is_empty()),
        ("guestAccelerators", !spec.guest_accelerators.is_empty()),
        ("instanceMetadata", spec.instance_metadata.is_some()),
    ];
    fields.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name.to_owned()).collect()
}

impl MachineComparison {
    fn add(&mut self, part: &str, compared: Compared) {
        match compared {
            Ok(None) => {}
            Ok(Some(difference)) => self.needs_new_machine.push(format!("{part} {difference}")),
            Err(why) => self.not_compared.push(format!("{part}: {why}")),
        }
    }
}

impl WantedMachines {
    pub fn new(at: &str, groups: BTreeMap<String, WantedMachine>) -> WantedMachines {
        WantedMachines { schema_version: SCHEMA_VERSION, at: at.to_owned(), groups }
    }

    /// Parses the value of the ConfigMap's key. Fails if the controller last read the specs more than three hours ago.
    pub fn read(text: &str, now: OffsetDateTime) -> Result<WantedMachines, Invalid> {
        let wanted: WantedMachines = serde_json::from_str(text)
            .ok()
            .filter(|wanted: &WantedMachines| wanted.schema_version == SCHEMA_VERSION)
            .ok_or_else(|| {
                Invalid::new("this version of kops-agent does not know the form of the specs there")
            })?;
        match parse_timestamp(&wanted.at) {
            Some(at) if at <= now + CLOCK_SKEW && now - at <= STALE => Ok(wanted),
            _ => Err(Invalid::new(format!(
                "no controller has read the specs of the instance groups since {}",
                wanted.at
            ))),
        }
    }

    /// Compares the machine of a node with the spec of its group. `annotation` is the value of the Node's annotation [`MACHINE`]; empty if
    /// the Node has no such annotation.
    pub(super) fn compare(&self, group: &str, annotation: &str) -> MachineComparison {
        let Some(wanted) = self.groups.get(group) else {
            return not_compared("the controller has read no spec of this instance group");
        };
        match ObservedMachine::read(annotation) {
            Ok(machine) => wanted.compare(&machine),
            Err(_) if annotation.is_empty() => not_compared("the node has not reported its machine"),
            Err(_) => not_compared("this version of kops-agent does not know the form of the node's report"),
        }
    }
}

/// The result if nothing of a node's machine was compared.
pub(super) fn not_compared(why: &str) -> MachineComparison {
    MachineComparison { needs_new_machine: Vec::new(), not_compared: vec![format!("its machine: {why}")] }
}

#[cfg(test)]
mod tests;
