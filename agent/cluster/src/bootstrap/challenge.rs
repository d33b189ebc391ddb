//! The call-back proves a machine's identity in clouds where the machine's token contains only its id. kops-controller calls the address
//! that the cloud reports for the machine, and requests a proof that the machine made the original request.
//!
//! The call-back is one gRPC call. This module has the wire format and the proof. Source: upstream's `pkg/bootstrap/challenge.go` and
//! `proto/kops/bootstrap/v1/bootstrap.proto`; Protocol Buffers' "Encoding"; gRPC's "PROTOCOL-HTTP2", "Length-Prefixed-Message".

use sha2::{Digest, Sha256};
use thiserror::Error;

/// The path of the gRPC call.
pub const METHOD: &str = "/kops.bootstrap.v1.CallbackService/Challenge";
/// The port on which machines listen for the call-back while their request is open (upstream: `pkg/wellknownports/wellknownports.go`).
pub const PORT: u16 = 3987;
/// The maximum size of a message in bytes. A normal message has about fifty.
pub const LONGEST_MESSAGE: usize = 4096;

const ID: u32 = 1;
const RANDOM: u32 = 2;
const RESPONSE: u32 = 1;
/// The wire type of strings and bytes in Protocol Buffers.
const LENGTH_DELIMITED: u32 = 2;

/// The name in the certificate of a machine's challenge server in this cluster.
pub fn server_name(cluster: &str) -> String {
    format!("challenge-server.{cluster}")
}

/// The common name in the certificate of the caller in this cluster.
pub fn caller_name(cluster: &str) -> String {
    format!("kops-controller.{cluster}")
}

/// The proof for `random`. Only the holder of the request's secret can compute it.
pub fn answer(secret: &[u8], random: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(secret).chain_update(random).finalize().into()
}

/// The proof of kOps 1.34.0, 1.34.1 and older, whose nodeup and kops-controller hash neither the secret nor the random bytes (upstream:
/// `buildChallengeResponse` in `pkg/bootstrap/challenge_server.go`, fixed by commit c6cba33427). This proof is the SHA-256 of an empty
/// text.
pub const CONSTANT: [u8; 32] = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24, 0x27,
    0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("it is not a gRPC message of a call-back: {0}")]
pub struct Malformed(&'static str);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// The id of the request that the machine has to prove.
    pub id: String,
    /// The random bytes for the proof.
    pub random: Vec<u8>,
}

impl Challenge {
    pub fn encode(&self) -> Vec<u8> {
        framed(&[(ID, self.id.as_bytes()), (RANDOM, &self.random)])
    }

    /// Decodes a challenge from a gRPC frame.
    pub fn decode(frame: &[u8]) -> Result<Challenge, Malformed> {
        let mut challenge = Challenge { id: String::new(), random: Vec::new() };
        for (field, value) in fields(frame)? {
            match field {
                ID => {
                    challenge.id =
                        String::from_utf8(value.to_vec()).map_err(|_| Malformed("its id is not UTF-8"))?
                }
                RANDOM => challenge.random = value.to_vec(),
                _ => {}
            }
        }
        Ok(challenge)
    }
}

/// Encodes a proof for gRPC.
pub fn encode_answer(answer: &[u8]) -> Vec<u8> {
    framed(&[(RESPONSE, answer)])
}

/// Decodes a proof from a gRPC frame.
pub fn decode_answer(frame: &[u8]) -> Result<Vec<u8>, Malformed> {
    let found = fields(frame)?
        .into_iter()
        .filter(|(field, _)| *field == RESPONSE)
        .map(|(_, value)| value)
        .next_back();
    Ok(found.unwrap_or_default().to_vec())
}

/// Encodes fields as a message with a length prefix. Empty fields are left out, as in proto3.
fn framed(fields: &[(u32, &[u8])]) -> Vec<u8> {
    let mut message = Vec::new();
    for (field, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
        put_number(&mut message, u64::from(field << 3 | LENGTH_DELIMITED));
        put_number(&mut message, value.len() as u64);
        message.extend_from_slice(value);
    }
    let mut frame = vec![0];
    frame.extend(u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    frame.extend(message);
    frame
}

/// Decodes a gRPC message with its length prefix. Returns the string and bytes fields with their field numbers, and skips fields of other
/// types.
fn fields(frame: &[u8]) -> Result<Vec<(u32, &[u8])>, Malformed> {
    let (head, mut rest) = frame.split_at_checked(5).ok_or(Malformed("it is cut off"))?;
    if head[0] != 0 {
        return Err(Malformed("it is compressed"));
    }
    if usize::try_from(u32::from_be_bytes([head[1], head[2], head[3], head[4]])) != Ok(rest.len()) {
        return Err(Malformed("its length differs from its length prefix"));
    }
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let key = take_number(&mut rest)?;
        let field = u32::try_from(key >> 3).map_err(|_| Malformed("a field number is too large"))?;
        match key & 7 {
            0 => drop(take_number(&mut rest)?),
            1 => drop(take(&mut rest, 8)?),
            2 => {
                let length =
                    usize::try_from(take_number(&mut rest)?).map_err(|_| Malformed("it is cut off"))?;
                fields.push((field, take(&mut rest, length)?));
            }
            5 => drop(take(&mut rest, 4)?),
            _ => return Err(Malformed("a field has an unknown type")),
        }
    }
    Ok(fields)
}

fn put_number(message: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        message.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
}

fn take_number(rest: &mut &[u8]) -> Result<u64, Malformed> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(Malformed("a number is too long"))
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], Malformed> {
    let (taken, left) = rest.split_at_checked(length).ok_or(Malformed("it is cut off"))?;
    *rest = left;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_proof_equals_upstreams() {
        let secret: Vec<u8> = (0..16).collect();
        let random: Vec<u8> = (16..32).collect();
        assert_eq!(
            hex::encode(answer(&secret, &random)),
            "630dcd2966c4336691125448bbb25b4ff412a49c732db2c8abc1b8581bd710dd"
        );
        assert_eq!(answer(&[], &[]), CONSTANT);
    }

    #[test]
    fn messages_are_length_prefixed_protocol_buffers() {
        let challenge = Challenge { id: "ab".into(), random: vec![1, 2, 3] };
        assert_eq!(hex::encode(challenge.encode()), "00000000090a0261621203010203");
        assert_eq!(Challenge::decode(&challenge.encode()).unwrap(), challenge);
        assert_eq!(hex::encode(encode_answer(&[9; 2])), "00000000040a020909");
        assert_eq!(decode_answer(&encode_answer(&[9; 32])).unwrap(), [9; 32]);
        assert_eq!(decode_answer(&[0; 5]).unwrap(), [0; 0]);
    }

    #[test]
    fn unknown_fields_are_skipped_and_malformed_messages_rejected() {
        // A number, eight bytes, four bytes and a string, all in unknown fields.
        let more = [0x18, 0x96, 0x01, 0x21, 0, 0, 0, 0, 0, 0, 0, 0, 0x2d, 0, 0, 0, 0, 0x32, 0, 0x0a, 1, b'a'];
        let mut frame = vec![0, 0, 0, 0, more.len() as u8];
        frame.extend(more);
        assert_eq!(Challenge::decode(&frame).unwrap().id, "a");
        for frame in [
            &[][..],
            &[1, 0, 0, 0, 0],
            &[0, 0, 0, 0, 1],
            &[0, 0, 0, 0, 2, 0x0a, 5],
            &[0, 0, 0, 0, 1, 0x0b],
            &[0, 0, 0, 0, 3, 0x0a, 1, 0xff],
        ] {
            assert!(Challenge::decode(frame).is_err(), "{frame:?}");
        }
    }

    proptest! {
        #[test]
        fn decoding_arbitrary_bytes_never_panics(frame in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(challenge) = Challenge::decode(&frame) {
                prop_assert_eq!(Challenge::decode(&challenge.encode()).unwrap(), challenge);
            }
        }

        #[test]
        fn a_challenge_survives_encoding_and_decoding(id in ".{0,200}", random in proptest::collection::vec(any::<u8>(), 0..300)) {
            let challenge = Challenge { id, random };
            prop_assert_eq!(Challenge::decode(&challenge.encode()).unwrap(), challenge);
        }
    }
}
