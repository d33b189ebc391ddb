//! Kinds of failures. The kind of a failure decides the exit code, and whether a run tries again. Each kind has a code that is
//! printed with the message and never changes. `docs/errors.md` has an entry for each code.

use std::error::Error as StdError;
use std::fmt;

use thiserror::Error;

/// What must change before a run can succeed after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing must change: the next run may succeed.
    Again,
    /// The configuration must change: the spec, the state store, or a file of this machine.
    Configuration,
    /// Only a new process with a different environment can succeed.
    Environment,
    /// Only a new process with different flags can succeed.
    Usage,
}

/// A failure of one kind, with its message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct Failure {
    pub kind: Kind,
    message: String,
    /// Set only if the failure is about a configuration whose hash differs from the hash in the boot config.
    pub hashes: Option<DifferentHashes>,
}

/// The expected and the actual hash of a configuration, in the format of `NodeupConfigHash` in the boot config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DifferentHashes {
    /// The hash in the boot config.
    pub expected: String,
    /// The hash that the agent computed from the configuration.
    pub actual: String,
}

impl Failure {
    pub fn new(kind: Kind, message: impl Into<String>) -> Failure {
        Failure { kind, message: message.into(), hashes: None }
    }

    pub fn with_hashes(self, expected: impl Into<String>, actual: impl Into<String>) -> Failure {
        let hashes = DifferentHashes { expected: expected.into(), actual: actual.into() };
        Failure { hashes: Some(hashes), ..self }
    }
}

pub trait Failing: StdError {
    fn kind(&self) -> Kind;
}

/// A function that returns the kind of one cause of an error. It returns `None` if the type of the cause has no kinds.
pub type Finder = fn(&(dyn StdError + 'static)) -> Option<Kind>;

/// The kind of `cause`, if its type is `T`.
pub fn kind_as<T: Failing + 'static>(cause: &(dyn StdError + 'static)) -> Option<Kind> {
    cause.downcast_ref::<T>().map(Failing::kind)
}

/// The kind of the outermost cause that has a kind. `Other` if no cause has a kind.
pub fn kind_of_chain<'a>(
    causes: impl IntoIterator<Item = &'a (dyn StdError + 'static)>,
    finders: &[Finder],
) -> Kind {
    let of_cause = |cause| finders.iter().find_map(|find| find(cause));
    causes.into_iter().find_map(of_cause).unwrap_or(Kind::Other)
}

/// The two hashes that differ, from the first error in the chain that has them. `None` if no error has them.
pub fn hashes_of_chain<'a>(
    mut causes: impl Iterator<Item = &'a (dyn StdError + 'static)>,
) -> Option<&'a DifferentHashes> {
    causes.find_map(|cause| cause.downcast_ref::<Failure>()?.hashes.as_ref())
}

impl Failing for Failure {
    fn kind(&self) -> Kind {
        self.kind
    }
}

macro_rules! kinds {
    ($($kind:ident $code:literal $remedy:ident)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind {
            $($kind,)+
        }

        impl Kind {
            pub const ALL: &[Kind] = &[$(Kind::$kind),+];

            /// The code of the kind, such as `KA2001`. Codes are stable: a code is never reused for a different kind.
            pub fn code(self) -> &'static str {
                match self {
                    $(Kind::$kind => concat!("KA", $code),)+
                }
            }

            pub fn remedy(self) -> Remedy {
                match self {
                    $(Kind::$kind => Remedy::$remedy,)+
                }
            }
        }
    };
}

kinds! {
    // Wrong use of the program, and failures of the program's access to this machine.
    Other "1000" Again
    WrongUsage "1001" Usage
    WrongSetting "1002" Configuration
    NoMachine "1003" Again
    NotRoot "1004" Again
    Locked "1005" Again
    Io "1006" Again
    UnknownDistribution "1007" Again
    UnsupportedArchitecture "1008" Again
    FactsUnreadable "1009" Again
    NameUnresolved "1010" Again
    NoCaBundle "1011" Again
    ProxySetting "1012" Again
    NoHttpClient "1013" Again
    Stopped "1014" Again
    NoSuchName "1015" Again
    NotRecorded "1016" Again
    NoBundle "1017" Again
    // Failures of the state store.
    StoreNotFound "2001" Configuration
    StoreForbidden "2002" Again
    StoreCredentials "2003" Again
    StoreWrongBucket "2004" Configuration
    StoreUnreachable "2005" Again
    StoreRefused "2006" Again
    StorePage "2007" Again
    StoreTooLarge "2008" Configuration
    StoreUrl "2009" Configuration
    StoreUnsupported "2010" Configuration
    StoreNoLists "2011" Configuration
    StoreMirror "2012" Usage
    StoreSettings "2013" Environment
    StoreFile "2014" Again
    // Failures of the configuration.
    FileUnreadable "3001" Configuration
    HashMismatch "3002" Configuration
    SpecWrong "3003" Configuration
    SpecDiffers "3004" Configuration
    HashesUnknown "3005" Again
    FollowRefused "3006" Configuration
    FollowNotServed "3007" Again
    ProgramFileWrong "3008" Configuration
    NoConfigBase "3009" Configuration
    NoGroup "3010" Configuration
    // Failures of the cloud.
    MetadataUnreachable "4001" Again
    MetadataRefused "4002" Again
    CloudUnsupported "4003" Again
    CloudUnreachable "4004" Again
    CloudThrottled "4005" Again
    CloudForbidden "4006" Again
    CloudRefused "4007" Again
    CloudCredentials "4008" Again
    CloudSettings "4009" Again
    GroupNotTold "4010" Again
    // Failures of the bootstrap by kops-controller.
    AlreadyRegistered "4101" Again
    NotGiven "4102" Again
    NoServer "4103" Configuration
    IdentityUnknown "4104" Again
    IdentityUnproven "4105" Again
    IdentityEndpoint "4106" Configuration
    Callback "4107" Again
    // Failures of changes to the machine.
    Path "5001" Again
    ForeignLink "5002" Again
    Command "5003" Again
    Unit "5004" Again
    UnitsFailed "5005" Again
    PodUnitsFailed "5006" Again
    ResourcesFailed "5007" Again
    ImagesMissing "5008" Again
    MissingSecret "5009" Configuration
    UnknownEnvironment "5010" Again
    Unhealthy "5011" Again
    HealthUnknown "5012" Again
    RolledBack "5013" Again
    FailedBefore "5014" Again
    OtherFiles "5015" Again
    InvalidResource "5016" Configuration
    RecordUnreadable "5017" Again
    ProgramNotReplaced "5018" Again
    ChangedMeanwhile "5019" Again
    NotRepaired "5020" Again
    // Failures of downloads.
    DownloadUnavailable "5101" Again
    NoSpace "5102" Again
    ArchiveWrong "5103" Again
    // Failures of certificates.
    NoAuthority "5201" Configuration
    BadAuthority "5202" Configuration
    AuthorityNotValidNow "5203" Again
    CertificateChanged "5204" Again
    CertificateInvalid "5205" Configuration
    KeyUnusable "5206" Again
    // Failures to get a slot, to drain the node, or to reboot the machine.
    NoSlot "6001" Again
    AnotherNotReady "6002" Again
    SlotsUnknown "6003" Again
    NotDrained "6004" Again
    NoReboot "6005" Again
    // Failures of rollouts.
    RolloutState "6101" Again
    RolloutUnreadable "6102" Again
    // Failures of the API server.
    ApiServerUnanswered "7001" Again
    ApiServerRefused "7002" Again
    NodeNotRegistered "7003" Again
    NoKubeconfig "7004" Again
    KubeconfigWrong "7005" Configuration
    KubeconfigUnusable "7006" Again
    // Failures of control-plane mode.
    ControlPlaneSettings "7101" Configuration
    Ended "7102" Again
    NoGroups "7103" Again
    ServerKeys "7104" Again
    LastServer "7105" Again
    // Failures of add-ons.
    AddonRefused "7201" Configuration
    ObjectRemains "7202" Again
}

impl Kind {
    /// Whether every run fails until the configuration, the environment or the flags change. Returns false for failures of permissions,
    /// networks and clocks, because they may end without such a change.
    pub fn is_configuration(self) -> bool {
        self.remedy() != Remedy::Again
    }

    /// Whether this process can never succeed, because its flags or its environment are wrong. Returns false if the store's files, the
    /// store's permissions or the user-data are wrong, because these may change while a machine waits.
    pub fn is_final(self) -> bool {
        matches!(self.remedy(), Remedy::Environment | Remedy::Usage)
    }

    /// Whether pods can run on the machine despite the failure: the run has finished, and neither the container runtime nor kubelet failed.
    /// If only images are missing, a run at boot retries ([`Kind::misses_images`]). After the other two failures, a run at boot ends,
    /// because other stages of the boot wait for it. The timer's next run, or the run at the next boot, then retries.
    pub fn leaves_a_working_node(self) -> bool {
        matches!(self, Kind::UnitsFailed | Kind::ResourcesFailed | Kind::ImagesMissing)
    }

    /// Whether the node lacks only images, which pods may need. The run retries, because the registry or mirror may provide the images
    /// soon. Upstream's nodeup also retries forever to load and pull images (upup/pkg/fi/executor.go, cmd/nodeup/main.go).
    pub fn misses_images(self) -> bool {
        self == Kind::ImagesMissing
    }

    /// Whether a run can fail in this way both before and after it has begun to change the machine.
    pub fn may_precede_a_change(self) -> bool {
        matches!(
            self,
            Kind::Path
                | Kind::MissingSecret
                | Kind::InvalidResource
                | Kind::DownloadUnavailable
                | Kind::NoSpace
                | Kind::ArchiveWrong
                | Kind::NoAuthority
                | Kind::BadAuthority
                | Kind::AuthorityNotValidNow
                | Kind::CertificateChanged
                | Kind::CertificateInvalid
        )
    }

    /// Whether a change of the machine was refused or failed.
    pub fn is_of_a_change(self) -> bool {
        matches!(
            self,
            Kind::Locked
                | Kind::ForeignLink
                | Kind::Command
                | Kind::Unit
                | Kind::UnitsFailed
                | Kind::PodUnitsFailed
                | Kind::ResourcesFailed
                | Kind::ImagesMissing
                | Kind::UnknownEnvironment
                | Kind::Unhealthy
                | Kind::HealthUnknown
                | Kind::RolledBack
                | Kind::OtherFiles
        )
    }

    /// Whether a run rolled a change back, or refused a change that an earlier run rolled back. After such a failure, only a
    /// different configuration helps.
    pub fn is_rolled_back(self) -> bool {
        matches!(self, Kind::RolledBack | Kind::FailedBefore)
    }

    /// Whether a run stopped before a change that could not begin yet. For example, the run got no slot, or the node could not be drained.
    pub fn is_not_paced(self) -> bool {
        matches!(
            self,
            Kind::NoSlot | Kind::AnotherNotReady | Kind::SlotsUnknown | Kind::NotDrained | Kind::NoReboot
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_kinds_have_one_code() {
        let codes: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.code()).collect();
        assert_eq!(codes.len(), Kind::ALL.len());
    }

    /// The codes are stable, because scripts use them. A new kind adds a line to codes.txt. The code in an existing line never
    /// changes.
    #[test]
    fn each_kind_keeps_its_code() {
        let codes: String = Kind::ALL.iter().map(|kind| format!("{kind} {kind:?}\n")).collect();
        assert_eq!(codes, include_str!("failure/codes.txt"));
    }

    /// A kind that is in no list counts as a failure before any change. After it, a run would repair the last applied state, even if a
    /// change had begun and failed.
    #[test]
    fn each_failure_of_a_change_is_before_it_or_in_it() {
        let others = [
            // An earlier run rolled the change back, so this run does not begin it.
            Kind::FailedBefore,
            // These are not failures of a change.
            Kind::RecordUnreadable,
            Kind::ProgramNotReplaced,
            Kind::ChangedMeanwhile,
            Kind::NotRepaired,
            Kind::KeyUnusable,
        ];
        for kind in Kind::ALL.iter().filter(|kind| kind.code().starts_with("KA5")) {
            let lists = [kind.may_precede_a_change(), kind.is_of_a_change(), others.contains(kind)];
            assert_eq!(lists.into_iter().filter(|is_in| *is_in).count(), 1, "{kind:?}");
        }
    }

    #[test]
    fn the_outermost_cause_with_a_kind_decides() {
        #[derive(Debug, Error)]
        #[error("reading the file")]
        struct Outer(#[source] Failure);

        let outer = Outer(Failure::new(Kind::StoreForbidden, "access denied"));
        let causes = || [&outer as &(dyn StdError + 'static), &outer.0];
        assert_eq!(kind_of_chain(causes(), &[kind_as::<Failure>]), Kind::StoreForbidden);
        assert_eq!(kind_of_chain(causes(), &[]), Kind::Other);
    }
}
