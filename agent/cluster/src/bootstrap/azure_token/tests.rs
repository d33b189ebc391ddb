//! openssl made the documents, in upstream's layout, for a request with the body `test-body`. Each signing certificate is
//! self-signed.

#![allow(clippy::unwrap_used)]

use super::*;

const WITH_ATTRIBUTES: &str = include_str!("with-attributes.b64");
const WITHOUT_ATTRIBUTES: &str = include_str!("without-attributes.b64");
const BODY: &[u8] = b"test-body";
const MADE_AT: i64 = 1_700_000_000;
const SUBSCRIPTION: &str = "0f3a7e62-0000-4000-8000-000000000001";

fn resource(subscription: &str, group: &str, set: &str) -> String {
    format!(
        "/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Compute/virtualMachineScaleSets/{set}/virtualMachines/0"
    )
}

fn own() -> String {
    resource(SUBSCRIPTION, "kops-c", "nodes.c.example.com")
}

fn read(token: &str, body: &[u8], subscription: &str, now: i64) -> Result<AzureToken, TokenProblem> {
    let cluster = AzureCluster {
        name: "c.example.com".into(),
        subscription: subscription.into(),
        resource_group: "kops-c".into(),
    };
    AzureToken::parse(token, body, &Expected { cluster: &cluster, may_be_unsigned: false, now }).unwrap()
}

fn reason(document: &str) -> &'static str {
    read(&token(&own(), document), BODY, SUBSCRIPTION, MADE_AT).unwrap_err().reason()
}

fn has_signed(read: &AzureToken) -> bool {
    read.signed.as_ref().unwrap().by.has_signed()
}

#[test]
fn the_nonce_equals_upstreams() {
    // The output of `sha256sum | cut -c1-32` for each body.
    assert_eq!(nonce(BODY), "d9d865cc54ec60678f1b119084ad79ae");
    assert_eq!(nonce(b""), "e3b0c44298fc1c149afbf4c8996fb924");
}

#[test]
fn a_document_identifies_its_machine() {
    for document in [WITH_ATTRIBUTES, WITHOUT_ATTRIBUTES] {
        let read = read(&token(&own(), document), BODY, SUBSCRIPTION, MADE_AT + 5).unwrap();
        let signed = read.signed.as_ref().unwrap();
        assert_eq!(
            read.machine,
            MachinePath { scale_set: Some("nodes.c.example.com".into()), name: "0".into() }
        );
        assert_eq!((read.vm_id.as_str(), signed.at), ("5c08b38e-4d57-4c23-ac45-aca61037f084", MADE_AT));
        assert!(signed.by.certificate.len() > 500 && signed.by.others.is_empty() && signed.by.has_signed());
        assert!(format!("{read:?}").len() < 300);
    }
    let other = AzureToken::parse(
        "x-aws-sts x",
        BODY,
        &Expected {
            cluster: &AzureCluster {
                name: String::new(),
                subscription: String::new(),
                resource_group: String::new(),
            },
            may_be_unsigned: true,
            now: 0,
        },
    );
    assert!(other.is_none());
}

#[test]
fn a_document_expires_and_is_valid_for_one_request() {
    let token = token(&own(), WITHOUT_ATTRIBUTES);
    let at = |now| read(&token, BODY, SUBSCRIPTION, now).map_err(|problem| problem.reason()).err();
    for (now, expected) in [
        (MADE_AT - 121, Some("TokenExpired")),
        (MADE_AT - 120, None),
        (MADE_AT + 420, None),
        (MADE_AT + 421, Some("TokenExpired")),
        (i64::MAX, Some("TokenExpired")),
        (i64::MIN, Some("TokenExpired")),
    ] {
        assert_eq!(at(now), expected, "{now}");
    }
    let problem = read(&token, b"another body", SUBSCRIPTION, MADE_AT).unwrap_err();
    assert_eq!(problem, TokenProblem::OtherRequest);
    let problem = read(&token, BODY, "0f3a7e62-0000-4000-8000-000000000002", MADE_AT).unwrap_err();
    assert_eq!(problem.reason(), "InstanceOfOtherCluster", "its resource id is of another subscription");
}

#[test]
fn the_fields_of_a_document_are_checked() {
    let cluster = AzureCluster {
        name: "c".into(),
        subscription: SUBSCRIPTION.to_uppercase(),
        resource_group: "kops-c".into(),
    };
    let expected = Expected { cluster: &cluster, may_be_unsigned: false, now: MADE_AT };
    let good = format!(
        r#"{{"vmId": "v", "subscriptionId": "{SUBSCRIPTION}", "nonce": "{}", "timeStamp": {{"createdOn": "11/14/23 22:13:20 -0000",
            "expiresOn": "11/14/23 22:14:20 +0000"}}}}"#,
        nonce(BODY)
    );
    let checked = |text: &str, now| {
        let document = serde_json::from_str(text).unwrap();
        check(&document, BODY, &Expected { now, ..expected }).map_err(|problem| problem.reason())
    };
    assert_eq!(checked(&good, MADE_AT), Ok(MADE_AT));
    assert_eq!(checked(&good, MADE_AT + 60 + 120), Ok(MADE_AT));
    assert_eq!(checked(&good, MADE_AT + 60 + 121), Err("TokenExpired"), "it has ended");
    let without_end = good.replace("11/14/23 22:14:20 +0000", "");
    assert_eq!(checked(&without_end, MADE_AT + 60 + 121), Ok(MADE_AT));
    for (before, after, expected) in [
        ("\"v\"", "\"\"", "MalformedToken"),
        (SUBSCRIPTION, "0f3a7e62-0000-4000-8000-000000000002", "MalformedToken"),
        ("11/14/23 22:13:20", "", "MalformedToken"),
        ("11/14/23 22:13:20", "14/11/23 22:13:20", "MalformedToken"),
        ("11/14/23 22:14:20", "11/14/23 22:13:19", "MalformedToken"),
        ("22:14:20 +0000", "soon", "MalformedToken"),
        ("22:13:20 -0000", "22:13:20 +0100", "TokenExpired"),
    ] {
        let changed = good.replace(before, after);
        assert_ne!(changed, good, "{before}");
        assert_eq!(checked(&changed, MADE_AT), Err(expected), "{after}");
    }
    assert_eq!(checked("{}", MADE_AT), Err("MalformedToken"));
}

#[test]
fn a_document_of_another_signer_is_rejected() {
    for document in [include_str!("other-name.b64"), include_str!("infix-name.b64")] {
        assert_eq!(reason(document), "WrongSignature");
    }
    for document in [
        include_str!("two-signers.b64"),
        include_str!("detached.b64"),
        include_str!("no-certificate.b64"),
        include_str!("sha1.b64"),
    ] {
        assert_eq!(reason(document), "MalformedToken");
    }
}

#[test]
fn a_changed_document_is_rejected_or_means_the_same() {
    for document in [WITH_ATTRIBUTES, WITHOUT_ATTRIBUTES] {
        let der = STANDARD.decode(document).unwrap();
        let good = read(&token(&own(), document), BODY, SUBSCRIPTION, MADE_AT).unwrap();
        for at in 0..der.len() {
            let mut changed = der.clone();
            changed[at] ^= 0x01;
            let changed = read(&token(&own(), &STANDARD.encode(changed)), BODY, SUBSCRIPTION, MADE_AT);
            let said = |read: &AzureToken| (read.vm_id.clone(), read.signed.as_ref().map(|signed| signed.at));
            let says_the_same = |read: &AzureToken| !has_signed(read) || said(read) == said(&good);
            assert!(changed.as_ref().map_or(true, says_the_same), "{at}: {changed:?}");
        }
        for end in (0..der.len()).step_by(7) {
            assert_eq!(reason(&STANDARD.encode(&der[..end])), "MalformedToken", "{end}");
        }
        let longer = [der.as_slice(), b"\0"].concat();
        assert_eq!(reason(&STANDARD.encode(longer)), "MalformedToken");
    }
}

#[test]
fn garbage_is_rejected() {
    let long = "A".repeat(64 * 1024);
    for payload in [
        "",
        " ",
        "x",
        &own(),
        &format!("{} ", own()),
        &format!("{} !", own()),
        &format!("{} {long}", own()),
        &long,
    ] {
        let problem = read(&format!("{PREFIX}{payload}"), BODY, SUBSCRIPTION, MADE_AT).unwrap_err();
        assert_eq!(problem.reason(), "MalformedToken", "{}", payload.len());
    }
    // In these 12,000 bytes, each value contains the next value.
    let nested: Vec<u8> = [0x30, 0x80].repeat(6000);
    assert_eq!(reason(&STANDARD.encode(nested)), "MalformedToken");
    for (resource, reason) in [
        (resource(SUBSCRIPTION, "other", "nodes.c.example.com"), "InstanceOfOtherCluster"),
        (resource(SUBSCRIPTION, "kops-c", "nodes.d.example.com"), "InstanceOfOtherCluster"),
        (own().replace("virtualMachineScaleSets/", "availabilitySets/"), "MalformedToken"),
    ] {
        let problem = read(&token(&resource, WITH_ATTRIBUTES), BODY, SUBSCRIPTION, MADE_AT).unwrap_err();
        assert_eq!(problem.reason(), reason, "{resource}");
    }
}

#[test]
fn a_token_without_a_document_is_accepted_only_if_configured() {
    let cluster = AzureCluster {
        name: "c.example.com".into(),
        subscription: SUBSCRIPTION.into(),
        resource_group: "kops-c".into(),
    };
    const ID: &str = "5c08b38e-4d57-4c23-ac45-aca61037f084";
    let token = unsigned_token(&own(), ID);
    let of_1_34 = unsigned_token_of_1_34(&own(), ID).unwrap();
    assert_eq!(of_1_34, format!("x-azure-id {ID} nodes.c.example.com 0"));
    assert_eq!(unsigned_token_of_1_34("/subscriptions/1/virtualMachines/a", ID), None);
    let parsed = |token: &str, may_be_unsigned| {
        let expected = Expected { cluster: &cluster, may_be_unsigned, now: MADE_AT };
        AzureToken::parse(token, BODY, &expected).unwrap()
    };
    for token in [&token, &of_1_34] {
        let read = parsed(token, true).unwrap();
        assert!(read.vm_id == ID && read.signed.is_none());
        assert_eq!(
            read.machine,
            MachinePath { scale_set: Some("nodes.c.example.com".into()), name: "0".into() }
        );
        let refused = parsed(token, false).unwrap_err();
        assert_eq!(refused.reason(), "MalformedToken");
        assert!(refused.to_string().contains("KOPS_AGENT_AZURE_UNSIGNED_TOKENS"), "{refused}");
    }
    for (malformed, reason) in [
        (format!("{token}0"), "MalformedToken"),
        (token.replace("5c08", "5g08"), "MalformedToken"),
        (token.replace("5c08b38e-4d57", "5c08b38e 4d57"), "MalformedToken"),
        (format!("{of_1_34}x"), "MalformedToken"),
        (format!("{of_1_34} 0"), "MalformedToken"),
        (of_1_34.replace("nodes.c.example.com 0", "nodes.c.example.com"), "MalformedToken"),
        (of_1_34.replace("nodes.c", "no/des.c"), "MalformedToken"),
        (of_1_34.replace("nodes.c.example.com", "nodes.d.example.com"), "InstanceOfOtherCluster"),
    ] {
        assert_eq!(parsed(&malformed, true).unwrap_err().reason(), reason, "{malformed}");
    }
    // If unsigned tokens are allowed, the document of a signed token is still checked.
    let expected = Expected { cluster: &cluster, may_be_unsigned: true, now: MADE_AT + 500 };
    let late = AzureToken::parse(&super::token(&own(), WITH_ATTRIBUTES), BODY, &expected).unwrap();
    assert_eq!(late.unwrap_err().reason(), "TokenExpired");
}
