//! Reads EC2's XML response to `DescribeInstances`.
//!
//! Source: the EC2 API Reference, `DescribeInstances`, `Reservation`, `Instance`, and `InstanceNetworkInterface`.

use std::collections::BTreeMap;

use aws_smithy_xml::decode::{Document, ScopedDecoder, XmlDecodeError, try_data};
use kops_agent_cluster::identity::aws::{Ec2Instance, Ec2NetworkInterface};

pub(super) fn parse(answer: &str) -> Result<Vec<Ec2Instance>, XmlDecodeError> {
    let mut document = Document::new(answer);
    let mut root = document.root_element()?;
    if !root.start_el().matches("DescribeInstancesResponse") {
        return Err(XmlDecodeError::custom("it is not a DescribeInstancesResponse"));
    }
    let mut instances = Vec::new();
    while let Some(mut tag) = root.next_tag() {
        if tag.start_el().matches("reservationSet") {
            while let Some(mut reservation) = tag.next_tag() {
                read_reservation(&mut reservation, &mut instances)?;
            }
        }
    }
    Ok(instances)
}

fn read_reservation(
    reservation: &mut ScopedDecoder<'_, '_>,
    instances: &mut Vec<Ec2Instance>,
) -> Result<(), XmlDecodeError> {
    let mut owner_id = String::new();
    let mut of_this = Vec::new();
    while let Some(mut tag) = reservation.next_tag() {
        match tag.start_el().local() {
            "ownerId" => owner_id = text(&mut tag)?,
            "instancesSet" => {
                while let Some(mut item) = tag.next_tag() {
                    of_this.push(instance(&mut item)?);
                }
            }
            _ => {}
        }
    }
    instances
        .extend(of_this.into_iter().map(|instance| Ec2Instance { owner_id: owner_id.clone(), ..instance }));
    Ok(())
}

fn instance(item: &mut ScopedDecoder<'_, '_>) -> Result<Ec2Instance, XmlDecodeError> {
    let mut instance = Ec2Instance::default();
    while let Some(mut tag) = item.next_tag() {
        match tag.start_el().local() {
            "instanceId" => instance.instance_id = text(&mut tag)?,
            "instanceState" => instance.state = child(&mut tag, "name")?,
            "launchTime" => instance.launch_time = text(&mut tag)?,
            "instanceLifecycle" => instance.lifecycle = text(&mut tag)?,
            "privateDnsName" => instance.private_dns_name = text(&mut tag)?,
            "privateIpAddress" => instance.private_ip_address = text(&mut tag)?,
            "networkInterfaceSet" => {
                while let Some(mut item) = tag.next_tag() {
                    instance.network_interfaces.push(network_interface(&mut item)?);
                }
            }
            "tagSet" => instance.tags = tags(&mut tag)?,
            _ => {}
        }
    }
    Ok(instance)
}

fn network_interface(item: &mut ScopedDecoder<'_, '_>) -> Result<Ec2NetworkInterface, XmlDecodeError> {
    let mut interface = Ec2NetworkInterface::default();
    while let Some(mut tag) = item.next_tag() {
        match tag.start_el().local() {
            "privateIpAddress" => interface.private_ip_address = text(&mut tag)?,
            "association" => interface.public_ip_address = child(&mut tag, "publicIp")?,
            "attachment" => {
                while let Some(mut tag) = tag.next_tag() {
                    match tag.start_el().local() {
                        "deviceIndex" => interface.device_index = number(&mut tag)?,
                        "status" => interface.attachment_status = text(&mut tag)?,
                        _ => {}
                    }
                }
            }
            "ipv6AddressesSet" => {
                while let Some(mut item) = tag.next_tag() {
                    interface.ipv6_addresses.push(child(&mut item, "ipv6Address")?);
                }
            }
            "ipv6PrefixSet" => {
                while let Some(mut item) = tag.next_tag() {
                    interface.ipv6_prefixes.push(child(&mut item, "ipv6Prefix")?);
                }
            }
            _ => {}
        }
    }
    Ok(interface)
}

fn tags(set: &mut ScopedDecoder<'_, '_>) -> Result<BTreeMap<String, String>, XmlDecodeError> {
    let mut tags = BTreeMap::new();
    while let Some(mut item) = set.next_tag() {
        let (mut key, mut value) = (String::new(), String::new());
        while let Some(mut tag) = item.next_tag() {
            match tag.start_el().local() {
                "key" => key = text(&mut tag)?,
                "value" => value = text(&mut tag)?,
                _ => {}
            }
        }
        tags.insert(key, value);
    }
    Ok(tags)
}

/// The text of the child element with this name; empty if there is no such element.
fn child(tag: &mut ScopedDecoder<'_, '_>, name: &str) -> Result<String, XmlDecodeError> {
    let mut found = String::new();
    while let Some(mut child) = tag.next_tag() {
        if child.start_el().matches(name) {
            found = text(&mut child)?;
        }
    }
    Ok(found)
}

fn number(tag: &mut ScopedDecoder<'_, '_>) -> Result<i32, XmlDecodeError> {
    text(tag)?.trim().parse().map_err(|_| XmlDecodeError::custom("a device index is not a number"))
}

fn text(tag: &mut ScopedDecoder<'_, '_>) -> Result<String, XmlDecodeError> {
    Ok(try_data(tag)?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
  <requestId>8f7724cf</requestId>
  <reservationSet>
    <item>
      <reservationId>r-1</reservationId><ownerId>123456789012</ownerId><groupSet/>
      <instancesSet>
        <item>
          <instanceId>i-0123456789abcdef0</instanceId><imageId>ami-1</imageId>
          <instanceState><code>16</code><name>running</name></instanceState>
          <privateDnsName>ip-10-0-3-4.eu-west-1.compute.internal</privateDnsName>
          <privateIpAddress>10.0.3.4</privateIpAddress>
          <instanceLifecycle>spot</instanceLifecycle><launchTime>2026-01-02T03:04:05.000Z</launchTime>
          <tagSet>
            <item><key>KubernetesCluster</key><value>c.example.com</value></item>
            <item><key>empty &amp; odd</key><value/></item>
          </tagSet>
          <networkInterfaceSet>
            <item>
              <networkInterfaceId>eni-1</networkInterfaceId><privateIpAddress>10.0.3.4</privateIpAddress>
              <attachment><attachmentId>a</attachmentId><deviceIndex>0</deviceIndex><status>attached</status></attachment>
              <association><publicIp>203.0.113.7</publicIp><ipOwnerId>amazon</ipOwnerId></association>
              <ipv6AddressesSet><item><ipv6Address>2001:db8::1</ipv6Address></item></ipv6AddressesSet>
              <ipv6PrefixSet><item><ipv6Prefix>2001:db8:0:1:a::/80</ipv6Prefix></item></ipv6PrefixSet>
            </item>
          </networkInterfaceSet>
        </item>
        <item><instanceId>i-0123456789abcdef1</instanceId><instanceState><name>stopped</name></instanceState></item>
      </instancesSet>
    </item>
  </reservationSet>
</DescribeInstancesResponse>"#;

    #[test]
    fn instances_are_read() {
        let [first, second] = parse(ANSWER).unwrap().try_into().unwrap();
        assert_eq!(
            first,
            Ec2Instance {
                instance_id: "i-0123456789abcdef0".into(),
                state: "running".into(),
                launch_time: "2026-01-02T03:04:05.000Z".into(),
                lifecycle: "spot".into(),
                owner_id: "123456789012".into(),
                private_dns_name: "ip-10-0-3-4.eu-west-1.compute.internal".into(),
                private_ip_address: "10.0.3.4".into(),
                network_interfaces: vec![Ec2NetworkInterface {
                    attachment_status: "attached".into(),
                    device_index: 0,
                    private_ip_address: "10.0.3.4".into(),
                    public_ip_address: "203.0.113.7".into(),
                    ipv6_addresses: vec!["2001:db8::1".into()],
                    ipv6_prefixes: vec!["2001:db8:0:1:a::/80".into()],
                }],
                tags: [("KubernetesCluster", "c.example.com"), ("empty & odd", "")]
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into(),
            }
        );
        assert_eq!((second.instance_id.as_str(), second.state.as_str()), ("i-0123456789abcdef1", "stopped"));
        assert_eq!(second.owner_id, "123456789012");
    }

    #[test]
    fn malformed_documents_are_errors() {
        for text in ["", "<html/>", "<DescribeInstancesResponse><reservationSet><item>", "{}"] {
            // A truncated `<Describe…` document may be read as an empty list. All other invalid documents must cause an error.
            match parse(text) {
                Ok(instances) => assert!(instances.is_empty() && text.starts_with("<Describe"), "{text}"),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
}
