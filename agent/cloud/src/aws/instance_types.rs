//! Facts about an instance type from EC2's API, for nodes whose configuration depends on these facts. The facts say how many pods get an
//! address, and whether a GPU needs a driver.
//!
//! The metadata service does not have these facts. Source: `GetMachineTypeInfo` in upup/pkg/fi/nodeup/awsup/machine_types.go;
//! the EC2 API Reference, `DescribeInstanceTypes` and `InstanceTypeInfo`.

use std::time::Duration;

use aws_smithy_xml::decode::{Document, ScopedDecoder, XmlDecodeError, try_data};
use kops_agent_spec::facts::{InstanceType, NetworkInterfaceLimits};
use kops_agent_spec::failure::{Failing, Kind};
use thiserror::Error;

use super::ec2::Ec2;
use crate::api::ApiError;
use kops_agent_net::retry::Retries;

const ACTION: &str = "DescribeInstanceTypes";

#[derive(Debug, Error)]
#[error(
    "cannot ask EC2 for the limits of the instance type {instance_type} ({ACTION}), which this node's configuration \
     depends on: {cause}"
)]
pub(crate) struct InstanceTypeError {
    instance_type: String,
    cause: Cause,
}

#[derive(Debug, Error)]
enum Cause {
    /// EC2 cannot be reached, or rejects the request.
    #[error(transparent)]
    Ec2(#[from] ApiError),
    /// The response lacks the requested facts.
    #[error("cannot read EC2's answer to {ACTION}: {0}")]
    Unreadable(#[from] XmlDecodeError),
}

impl Failing for InstanceTypeError {
    fn kind(&self) -> Kind {
        match &self.cause {
            Cause::Ec2(error) => error.kind(),
            Cause::Unreadable(_) => Kind::CloudRefused,
        }
    }
}

/// Asks EC2 in a region about an instance type. Temporary errors are retried until `retries` end.
pub(crate) async fn of_region(
    region: &str,
    instance_type: &str,
    retries: Retries,
) -> Result<InstanceType, InstanceTypeError> {
    let failed = |cause: Cause| InstanceTypeError { instance_type: instance_type.to_owned(), cause };
    let ec2 = Ec2::of_node(region).await.map_err(|error| failed(error.into()))?;
    describe(&ec2, instance_type, retries).await.map_err(failed)
}

async fn describe(ec2: &Ec2, instance_type: &str, retries: Retries) -> Result<InstanceType, Cause> {
    let attempt = || async {
        let parameters = [("InstanceType.1", instance_type)];
        let answer = ec2.query_within(retries.attempt, ACTION, &parameters).await?;
        Ok(parse(&answer, instance_type)?)
    };
    let worth_trying_for = |cause: &Cause| match cause {
        Cause::Ec2(error) if error.may_pass() => Duration::MAX,
        _ => Duration::ZERO,
    };
    let what = format!("asking EC2 for the instance type {instance_type}");
    retries.run(&what, attempt, worth_trying_for).await.map_err(|gave_up| gave_up.error)
}

fn parse(answer: &str, instance_type: &str) -> Result<InstanceType, XmlDecodeError> {
    let mut document = Document::new(answer);
    let mut root = document.root_element()?;
    if !root.start_el().matches("DescribeInstanceTypesResponse") {
        return Err(XmlDecodeError::custom("it is not a DescribeInstanceTypesResponse"));
    }
    while let Some(mut tag) = root.next_tag() {
        if tag.start_el().matches("instanceTypeSet") {
            while let Some(mut item) = tag.next_tag() {
                let (name, described) = read_item(&mut item)?;
                if name == instance_type {
                    return described.ok_or_else(|| {
                        XmlDecodeError::custom("it has no networkInfo with the limits of interfaces")
                    });
                }
            }
        }
    }
    Err(XmlDecodeError::custom(format!("the answer does not list {instance_type}")))
}

/// Reads the name of a type, and its facts. The facts are `None` if the limits of network interfaces are missing.
fn read_item(item: &mut ScopedDecoder<'_, '_>) -> Result<(String, Option<InstanceType>), XmlDecodeError> {
    let (mut name, mut limits, mut gpu) = (String::new(), None, false);
    while let Some(mut tag) = item.next_tag() {
        match tag.start_el().local() {
            "instanceType" => name = try_data(&mut tag)?.trim().to_owned(),
            "networkInfo" => limits = read_limits(&mut tag)?,
            "gpuInfo" => gpu = true,
            _ => {}
        }
    }
    Ok((name, limits.map(|network_interfaces| InstanceType { network_interfaces, gpu })))
}

/// Reads the limits of the whole instance type. Each network card also has elements with these names, but nested deeper, so this function
/// skips them.
fn read_limits(info: &mut ScopedDecoder<'_, '_>) -> Result<Option<NetworkInterfaceLimits>, XmlDecodeError> {
    let (mut max, mut ipv4_per_interface) = (None, None);
    while let Some(mut tag) = info.next_tag() {
        match tag.start_el().local() {
            "maximumNetworkInterfaces" => max = Some(number(&mut tag)?),
            "ipv4AddressesPerInterface" => ipv4_per_interface = Some(number(&mut tag)?),
            _ => {}
        }
    }
    Ok(max
        .zip(ipv4_per_interface)
        .map(|(max, ipv4_per_interface)| NetworkInterfaceLimits { max, ipv4_per_interface }))
}

fn number(tag: &mut ScopedDecoder<'_, '_>) -> Result<u32, XmlDecodeError> {
    try_data(tag)?.trim().parse().map_err(|_| XmlDecodeError::custom("a limit of interfaces is not a number"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use http_body_util::BodyExt as _;

    use super::*;
    use kops_agent_net::retry::FAST;
    use kops_agent_tests::test_server::{TestServer, text};

    const ANSWER: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<DescribeInstanceTypesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
  <requestId>r</requestId>
  <instanceTypeSet>
    <item>
      <instanceType>g5.xlarge</instanceType>
      <networkInfo>
        <networkCards><item><networkCardIndex>0</networkCardIndex>
          <maximumNetworkInterfaces>1</maximumNetworkInterfaces></item></networkCards>
        <maximumNetworkInterfaces>4</maximumNetworkInterfaces>
        <ipv4AddressesPerInterface>15</ipv4AddressesPerInterface>
        <networkCards><item><maximumNetworkInterfaces>2</maximumNetworkInterfaces></item></networkCards>
      </networkInfo>
      <gpuInfo><gpus><item><name>A10G</name><manufacturer>NVIDIA</manufacturer></item></gpus></gpuInfo>
    </item>
    <item>
      <instanceType>m5.large</instanceType>
      <networkInfo><maximumNetworkInterfaces>3</maximumNetworkInterfaces>
        <ipv4AddressesPerInterface>10</ipv4AddressesPerInterface></networkInfo>
    </item>
    <item><instanceType>odd.large</instanceType></item>
  </instanceTypeSet>
</DescribeInstanceTypesResponse>"#;

    fn limits(max: u32, ipv4_per_interface: u32) -> NetworkInterfaceLimits {
        NetworkInterfaceLimits { max, ipv4_per_interface }
    }

    #[test]
    fn limits_of_the_type_are_not_confused_with_limits_of_its_network_cards() {
        let described = |name: &str| parse(ANSWER, name);
        let with_gpu = InstanceType { network_interfaces: limits(4, 15), gpu: true };
        assert_eq!(described("g5.xlarge").unwrap(), with_gpu);
        let without = InstanceType { network_interfaces: limits(3, 10), gpu: false };
        assert_eq!(described("m5.large").unwrap(), without);
    }

    #[test]
    fn an_answer_without_the_limits_is_an_error() {
        for (answer, name) in
            [(ANSWER, "odd.large"), (ANSWER, "m5.xlarge"), ("<html/>", "m5.large"), ("", "m5.large")]
        {
            assert!(parse(answer, name).is_err(), "{name} in {answer}");
        }
    }

    #[tokio::test]
    async fn temporary_errors_of_ec2_are_retried() {
        let asked = Arc::<AtomicU32>::default();
        let counted = asked.clone();
        let server = TestServer::start(move |request| {
            let counted = counted.clone();
            async move {
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let form = String::from_utf8(body.to_vec()).unwrap();
                assert_eq!(form, "Action=DescribeInstanceTypes&Version=2016-11-15&InstanceType.1=m5.large");
                Ok(match counted.fetch_add(1, Ordering::SeqCst) {
                    0 => text(503, "<E><Code>RequestLimitExceeded</Code></E>"),
                    1 => text(500, "down"),
                    _ => text(200, ANSWER),
                })
            }
        })
        .await;
        let described = describe(&Ec2::for_tests(&server.url), "m5.large", FAST).await.unwrap();
        assert_eq!((described.gpu, asked.load(Ordering::SeqCst)), (false, 3));
    }
}
