//! Where a service of AWS is.
//!
//! Source: for hosts, each service's "endpoints and quotas" in the AWS General Reference.

/// Amazon's own endpoint of a service in a region, by the partition that the region is of.
pub fn amazon(service: &str, region: &str, is_dual_stack: bool) -> String {
    let begins = |prefix: &str| region.starts_with(prefix);
    let suffix = match () {
        () if begins("cn-") && is_dual_stack => "api.amazonwebservices.com.cn",
        () if begins("cn-") => "amazonaws.com.cn",
        () if begins("us-isob-") => "sc2s.sgov.gov",
        () if begins("us-isof-") || begins("eu-isof-") => "csp.hci.ic.gov",
        () if begins("us-iso-") => "c2s.ic.gov",
        () if begins("eu-isoe-") => "cloud.adc-e.uk",
        () if begins("eusc-") => "amazonaws.eu",
        () if is_dual_stack => "api.aws",
        () => "amazonaws.com",
    };
    format!("https://{service}.{region}.{suffix}")
}
