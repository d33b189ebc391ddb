//! Parses a page of a container's blobs from Azure's XML.
//!
//! Source: Azure Storage REST API, "List Blobs".

use aws_smithy_xml::decode::{Document, ScopedDecoder, XmlDecodeError, try_data};
use kops_agent_spec::invalid::Invalid;
use percent_encoding::percent_decode_str;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) blobs: Vec<Blob>,
    /// Common prefixes of names, including the delimiter at their end.
    pub(super) prefixes: Vec<String>,
    /// The marker that requests the next page. Empty on the last page.
    pub(super) next_marker: String,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Blob {
    pub(super) name: String,
    /// The ETag of the blob, which changes with every write.
    pub(super) etag: String,
}

pub(super) fn parse(answer: &[u8]) -> Result<Page, Invalid> {
    let text = std::str::from_utf8(answer).map_err(|_| Invalid::new("it is not text"))?;
    // The parser would accept a truncated answer as a list with fewer blobs.
    if !text.trim_end().ends_with("</EnumerationResults>") {
        return Err(Invalid::new("it is not EnumerationResults, or is truncated"));
    }
    // Azure's answer begins with a byte order mark.
    read(text.trim_start_matches('\u{feff}')).map_err(|error| Invalid::new(error.to_string()))
}

fn read(text: &str) -> Result<Page, XmlDecodeError> {
    let mut document = Document::new(text);
    let mut root = document.root_element()?;
    if !root.start_el().matches("EnumerationResults") {
        return Err(XmlDecodeError::custom("it is no EnumerationResults"));
    }
    let mut page = None;
    let mut next_marker = None;
    while let Some(mut tag) = root.next_tag() {
        match tag.start_el().local() {
            "Blobs" => page = Some(blobs(&mut tag)?),
            "NextMarker" => next_marker = Some(try_data(&mut tag)?.into_owned()),
            _ => {}
        }
    }
    match (page, next_marker) {
        (Some(page), Some(next_marker)) => Ok(Page { next_marker, ..page }),
        _ => Err(XmlDecodeError::custom("it has no Blobs, or no NextMarker")),
    }
}

fn blobs(tag: &mut ScopedDecoder<'_, '_>) -> Result<Page, XmlDecodeError> {
    let mut page = Page::default();
    while let Some(mut tag) = tag.next_tag() {
        match tag.start_el().local() {
            "Blob" => page.blobs.push(blob(&mut tag)?),
            "BlobPrefix" => page.prefixes.push(blob(&mut tag)?.name),
            _ => {}
        }
    }
    Ok(page)
}

fn blob(tag: &mut ScopedDecoder<'_, '_>) -> Result<Blob, XmlDecodeError> {
    let mut blob = Blob::default();
    while let Some(mut tag) = tag.next_tag() {
        match tag.start_el().local() {
            "Name" => {
                // If a name contains characters that XML does not allow, Azure escapes the name.
                let is_encoded = tag.start_el().attr("Encoded") == Some("true");
                let name = try_data(&mut tag)?.into_owned();
                blob.name = match is_encoded {
                    true => percent_decode_str(&name).decode_utf8_lossy().into_owned(),
                    false => name,
                };
            }
            "Properties" => {
                while let Some(mut property) = tag.next_tag() {
                    if property.start_el().matches("Etag") {
                        blob.etag = try_data(&mut property)?.into_owned();
                    }
                }
            }
            _ => {}
        }
    }
    Ok(blob)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const ANSWER: &str = "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults \
        ServiceEndpoint=\"https://kopsstate.blob.core.windows.net/\" ContainerName=\"state\"><Prefix>c/</Prefix><Marker>m</Marker>\
        <MaxResults>2</MaxResults><Delimiter>/</Delimiter><Blobs><Blob><Name>c/a &amp; b</Name><Properties><Creation-Time>x\
        </Creation-Time><Etag>0x8D1</Etag><Content-Length>5</Content-Length></Properties><OrMetadata /></Blob>\
        <BlobPrefix><Name>c/pki/</Name></BlobPrefix><Blob><Name Encoded=\"true\">c/%01</Name><Properties/></Blob></Blobs>\
        <NextMarker>2!72!next</NextMarker></EnumerationResults>";

    #[test]
    fn a_page_is_read() {
        let blob = |name: &str, etag: &str| Blob { name: name.into(), etag: etag.into() };
        let expected = Page {
            blobs: vec![blob("c/a & b", "0x8D1"), blob("c/\u{1}", "")],
            prefixes: vec!["c/pki/".into()],
            next_marker: "2!72!next".into(),
        };
        assert_eq!(parse(ANSWER.as_bytes()).unwrap(), expected);
        let empty = "<EnumerationResults><Blobs /><NextMarker /></EnumerationResults>";
        assert_eq!(parse(empty.as_bytes()).unwrap(), Page::default());
    }

    #[test]
    fn a_truncated_page_is_refused() {
        for (end, _) in ANSWER.char_indices().skip(1) {
            if ANSWER[end..].starts_with("</EnumerationResults>") {
                break;
            }
            parse(&ANSWER.as_bytes()[..end]).unwrap_err();
        }
        for garbage in ["", "<html></html>", "{}", "<EnumerationResults/>"] {
            parse(garbage.as_bytes()).unwrap_err();
        }
        parse(b"\xff\xfe").unwrap_err();
    }
}
