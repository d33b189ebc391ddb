//! A stand-in for a cloud's metadata service, for the one machine of a test. The items of each cloud are in that cloud's own
//! module.

use std::collections::BTreeMap;
use std::fmt;
use std::net::TcpListener;

use hyper::body::Incoming;
use hyper::{Method, Request, Response};

use crate::stand_in_api::{StandInApi, header, said};

/// The token of the service. A client first requests the token, and then sends it with each request.
const TOKEN: &str = "the-token-of-the-metadata-service";

/// A function that computes an item from a request's query.
type Made = Box<dyn Fn(&str) -> Option<String> + Send>;

/// The proof that a request comes from a client on the machine and not, for example, from a web page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// No proof is required.
    None,
    /// Each request must have a header with this name and value.
    Header(&'static str, &'static str),
    /// The proof is a token. A client requests the token with PUT at this path. The PUT request must have the first of these headers, with
    /// any value that is not empty. Each later request has the token in the second header.
    Token(&'static str, [&'static str; 2]),
}

/// The items that a cloud serves to a machine.
pub struct Metadata {
    guard: Guard,
    items: BTreeMap<String, String>,
    made: Option<(&'static str, Made)>,
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metadata")
            .field("guard", &self.guard)
            .field("items", &self.items)
            .finish_non_exhaustive()
    }
}

impl Metadata {
    /// Makes metadata of these items. The key of an item is a path, or a path with a query.
    pub fn new<const N: usize>(guard: Guard, items: [(&str, String); N]) -> Metadata {
        let items = items.map(|(path, answer)| (path.to_owned(), answer)).into();
        Metadata { guard, items, made: None }
    }

    /// Adds an item at `path`. `make` computes the item from the query of each request.
    pub fn making(
        self,
        path: &'static str,
        make: impl Fn(&str) -> Option<String> + Send + 'static,
    ) -> Metadata {
        Metadata { made: Some((path, Box::new(make))), ..self }
    }

    pub fn serve(self, socket: TcpListener) -> anyhow::Result<ServedMetadata> {
        Ok(ServedMetadata(StandInApi::start_on(socket, "metadata", self, |request, state| {
            let response = state.lock().answer(&request);
            async move { Some(response) }
        })?))
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<String> {
        let path = request.uri().path();
        match self.guard {
            Guard::Token(at, [asking, _]) if path == at => {
                return match request.method() == Method::PUT && !header(request, asking).is_empty() {
                    true => said(200, TOKEN),
                    false => said(400, ""),
                };
            }
            Guard::Token(_, [_, sending]) if header(request, sending) != TOKEN => return said(401, ""),
            Guard::Header(name, value) if header(request, name) != value => return said(403, ""),
            _ => {}
        }
        if request.method() != Method::GET {
            return said(405, "");
        }
        let whole = request.uri().path_and_query().map_or(path, |whole| whole.as_str());
        let made = self.made.as_ref().filter(|(at, _)| *at == path);
        let made = made.and_then(|(_, make)| make(request.uri().query().unwrap_or_default()));
        match made.or_else(|| self.items.get(whole).or_else(|| self.items.get(path)).cloned()) {
            Some(answer) => said(200, answer),
            None => said(404, ""),
        }
    }
}

/// A running metadata service. Dropping it stops the service.
#[derive(Debug)]
pub struct ServedMetadata(StandInApi<Metadata>);

impl ServedMetadata {
    pub fn url(&self) -> String {
        self.0.url()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpStream};

    use super::*;

    fn ask(service: &ServedMetadata, method: &str, target: &str, header: &str) -> (u16, String) {
        let mut socket = TcpStream::connect(service.url().trim_start_matches("http://")).unwrap();
        write!(socket, "{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{header}\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn serve(metadata: Metadata) -> ServedMetadata {
        metadata.serve(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).unwrap()
    }

    #[test]
    fn items_need_the_clouds_proof() {
        let items = || [("/id", "4711".to_owned()), ("/all?format=json", "{}".to_owned())];
        let open =
            serve(Metadata::new(Guard::None, items()).making("/made", |query| Some(format!("of {query}"))));
        assert_eq!(ask(&open, "GET", "/id", ""), (200, "4711".into()));
        assert_eq!(ask(&open, "GET", "/all?format=json", ""), (200, "{}".into()));
        assert_eq!(ask(&open, "GET", "/all", "").0, 404);
        assert_eq!(ask(&open, "GET", "/made?nonce=1", ""), (200, "of nonce=1".into()));
        assert_eq!(ask(&open, "POST", "/id", "").0, 405);

        let guarded = serve(Metadata::new(Guard::Header("metadata", "true"), items()));
        assert_eq!(ask(&guarded, "GET", "/id", "").0, 403);
        assert_eq!(ask(&guarded, "GET", "/id", "Metadata: true\r\n").0, 200);

        let guarded = serve(Metadata::new(Guard::Token("/token", ["ttl", "token"]), items()));
        assert_eq!(ask(&guarded, "GET", "/id", "").0, 401);
        assert_eq!(ask(&guarded, "PUT", "/token", "").0, 400);
        let (_, token) = ask(&guarded, "PUT", "/token", "ttl: 60\r\n");
        assert_eq!(ask(&guarded, "GET", "/id", &format!("token: {token}\r\n")).0, 200);
    }
}
