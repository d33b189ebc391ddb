//! AWS' Signature Version 4, implemented from the specification and without a library. It is an independent check of the
//! signatures that the agent makes and verifies.
//!
//! Source: "Create a signed AWS API request" in the IAM User Guide; HMAC: RFC 2104.

use sha2::{Digest as _, Sha256};

/// The parts of a request that a signature covers.
#[derive(Clone, Copy, Debug)]
pub struct Signable<'a> {
    /// `GET` or `POST`. The path is always `/`.
    pub method: &'a str,
    /// The query without the signature. Its parameters are sorted. Empty if the request has no query.
    pub query: &'a str,
    /// The signed headers with their values, sorted by name. The names are in lower case.
    pub headers: &'a [(&'a str, &'a str)],
    pub body: &'a [u8],
    /// The time of the signature, for example `20240518T131902Z`.
    pub date: &'a str,
    pub region: &'a str,
    pub service: &'a str,
}

impl Signable<'_> {
    /// The names of the signed headers, in the format of `SignedHeaders`.
    pub fn signed_headers(&self) -> String {
        self.headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";")
    }

    /// The credential scope: the day, the region and the service for which the signing key is valid.
    pub fn scope(&self) -> String {
        let day = self.date.split('T').next().unwrap_or_default();
        format!("{day}/{}/{}/aws4_request", self.region, self.service)
    }

    /// The signature, in hexadecimal digits.
    pub fn signature(&self, secret: &str) -> String {
        let headers: String =
            self.headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
        let canonical = format!(
            "{}\n/\n{}\n{headers}\n{}\n{}",
            self.method,
            self.query,
            self.signed_headers(),
            hex::encode(Sha256::digest(self.body))
        );
        let scope = self.scope();
        let to_sign =
            format!("AWS4-HMAC-SHA256\n{}\n{scope}\n{}", self.date, hex::encode(Sha256::digest(canonical)));
        let key = scope
            .split('/')
            .fold(format!("AWS4{secret}").into_bytes(), |key, part| hmac(&key, part.as_bytes()));
        hex::encode(hmac(&key, to_sign.as_bytes()))
    }
}

fn hmac(key: &[u8], data: &[u8]) -> Vec<u8> {
    const BLOCK: usize = 64;
    let mut block = [0; BLOCK];
    match key.len() > BLOCK {
        true => block[..32].copy_from_slice(&Sha256::digest(key)),
        false => block[..key.len()].copy_from_slice(key),
    }
    let inner = Sha256::digest([&block.map(|byte| byte ^ 0x36), data].concat());
    Sha256::digest([&block.map(|byte| byte ^ 0x5c), inner.as_slice()].concat()).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vector is upstream's `TestAWSV1Request` in `pkg/bootstrap/awsbootstrap/authenticator_test.go`.
    #[test]
    fn signatures_equal_upstreams_vector() {
        let headers = [
            ("content-length", "43"),
            ("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
            ("host", "sts.amazonaws.com"),
            ("x-amz-date", "20240518T131902Z"),
            ("x-kops-request-sha", "2dhlzFTsYGePGxGQhK15rn+TV9HEUZxkV94zFLf7uoo"),
        ];
        let signable = Signable {
            method: "POST",
            query: "",
            headers: &headers,
            body: b"Action=GetCallerIdentity&Version=2011-06-15",
            date: "20240518T131902Z",
            region: "us-east-1",
            service: "sts",
        };
        assert_eq!(
            signable.signature("fakesecretkey"),
            "198684464845d2d52947df10171b6291e1b2223ce4bd82a380087761d91246f9"
        );
    }
}
