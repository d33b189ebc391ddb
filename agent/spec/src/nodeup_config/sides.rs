//! Reads and writes hooks as kOps does: a list of the group's hooks and a list of the cluster's hooks. kOps
//! writes an empty list as null.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::customization::HookSpec;

pub(super) fn serialize<S: Serializer>(sides: &[Vec<HookSpec>], serializer: S) -> Result<S::Ok, S::Error> {
    let sides: Vec<Option<&Vec<HookSpec>>> =
        sides.iter().map(|side| Some(side).filter(|side| !side.is_empty())).collect();
    Some(sides).filter(|sides| !sides.is_empty()).serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Vec<HookSpec>>, D::Error> {
    let sides: Option<Vec<Option<Vec<HookSpec>>>> = Deserialize::deserialize(deserializer)?;
    Ok(sides.unwrap_or_default().into_iter().map(Option::unwrap_or_default).collect())
}
