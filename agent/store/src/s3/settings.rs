//! The server and the key of S3: Amazon's own, as the SDK finds them, or another server from kOps' variables.

use std::fmt;

use super::super::error::StoreError;

/// The environment variables for an S3 server that is not Amazon's. They have an effect only if the first variable, `S3_ENDPOINT`, is set.
pub(super) const VARIABLES: [&str; 4] =
    ["S3_ENDPOINT", "S3_REGION", "S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY"];

/// How the agent reaches S3.
#[derive(Clone)]
pub enum S3Settings {
    /// Amazon's S3. The SDK finds the server and the credentials in the sources that AWS' own tools use: the instance's role, the
    /// environment, the profile and the endpoints of regions.
    Aws,
    /// An S3 server that is not Amazon's (upstream: `util/pkg/vfs/s3context.go`, `getCustomS3Config`). In the server's URLs, the bucket is
    /// part of the path.
    Server {
        /// The value of `S3_ENDPOINT`, an `http://` or `https://` URL.
        endpoint: String,
        /// The value of `S3_REGION`.
        region: String,
        /// The value of `S3_ACCESS_KEY_ID`.
        access_key_id: String,
        /// The value of `S3_SECRET_ACCESS_KEY`.
        secret_access_key: String,
    },
}

impl fmt::Debug for S3Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            S3Settings::Aws => f.write_str("Aws"),
            S3Settings::Server { endpoint, region, .. } => f
                .debug_struct("Server")
                .field("endpoint", endpoint)
                .field("region", region)
                .finish_non_exhaustive(),
        }
    }
}

impl S3Settings {
    pub fn from_environment() -> Result<S3Settings, StoreError> {
        S3Settings::from_variables(|name| std::env::var(name).ok())
    }

    /// The settings of a store that has no default server. Fails if the environment names no server.
    pub(crate) fn of_server(scheme: &str) -> Result<S3Settings, StoreError> {
        S3Settings::of_server_by(scheme, |name| std::env::var(name).ok())
    }

    fn of_server_by(
        scheme: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<S3Settings, StoreError> {
        match S3Settings::from_variables(variable)? {
            S3Settings::Aws => Err(StoreError::BadSettings(format!(
                "S3_ENDPOINT is not set, and {scheme}:// stores need it; set S3_ENDPOINT, S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY"
            ))),
            server => Ok(server),
        }
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<S3Settings, StoreError> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let needed = |name: &str| {
            set(name).ok_or_else(|| {
                StoreError::BadSettings(format!("S3_ENDPOINT is set, but {name} is not; set {name}, too"))
            })
        };
        let [endpoint, region, access_key_id, secret_access_key] = VARIABLES;
        let Some(endpoint) = set(endpoint) else {
            return Ok(S3Settings::Aws);
        };
        // In kOps' documentation of DigitalOcean, the endpoint has no scheme.
        let endpoint = if endpoint.contains("://") { endpoint } else { format!("https://{endpoint}") };
        if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
            return Err(StoreError::BadSettings(format!(
                "S3_ENDPOINT is {endpoint:?}; use an http:// or https:// URL, such as https://s3.example.com"
            )));
        }
        Ok(S3Settings::Server {
            endpoint,
            region: set(region).unwrap_or_else(|| "us-east-1".to_owned()),
            access_key_id: needed(access_key_id)?,
            secret_access_key: needed(secret_access_key)?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use kops_agent_spec::failure::Failing as _;

    fn settings(variables: &[(&str, &str)]) -> Result<S3Settings, StoreError> {
        S3Settings::from_variables(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn without_an_endpoint_the_server_is_amazons() {
        assert!(matches!(settings(&[]).unwrap(), S3Settings::Aws));
        let others = [("S3_ENDPOINT", ""), ("S3_REGION", "x"), ("S3_ACCESS_KEY_ID", "x")];
        assert!(matches!(settings(&others).unwrap(), S3Settings::Aws));
    }

    #[test]
    fn another_server_needs_both_keys_and_has_a_default_region() {
        let endpoint = ("S3_ENDPOINT", "https://s3.example.com");
        let id = ("S3_ACCESS_KEY_ID", "id");
        let secret = ("S3_SECRET_ACCESS_KEY", "hidden");
        for (variables, missing) in
            [(vec![endpoint], "S3_ACCESS_KEY_ID is not"), (vec![endpoint, id], "S3_SECRET_ACCESS_KEY is not")]
        {
            let error = settings(&variables).unwrap_err();
            assert!(error.to_string().contains(missing), "{error}");
            assert!(error.kind().is_configuration());
        }
        let complete = settings(&[endpoint, id, secret]).unwrap();
        assert_eq!(
            format!("{complete:?}"),
            r#"Server { endpoint: "https://s3.example.com", region: "us-east-1", .. }"#
        );
        let elsewhere = settings(&[endpoint, id, secret, ("S3_REGION", "fra1")]).unwrap();
        assert!(matches!(elsewhere, S3Settings::Server { region, .. } if region == "fra1"));
    }

    #[test]
    fn a_store_of_another_cloud_never_means_amazons_server() {
        let of = |variables: &[(&str, &str)]| {
            S3Settings::of_server_by("do", |name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            })
        };
        let keys = [("S3_ACCESS_KEY_ID", "id"), ("S3_SECRET_ACCESS_KEY", "hidden")];
        let error = of(&keys).unwrap_err();
        assert!(error.to_string().contains("S3_ENDPOINT is not set, and do:// stores need it"));
        assert!(error.kind().is_configuration());
        let endpoint = ("S3_ENDPOINT", "nyc3.digitaloceanspaces.com");
        let complete = of(&[endpoint, ("S3_REGION", "nyc3"), keys[0], keys[1]]).unwrap();
        assert!(matches!(complete, S3Settings::Server { region, .. } if region == "nyc3"));
        assert!(of(&[endpoint, keys[0]]).unwrap_err().to_string().contains("S3_SECRET_ACCESS_KEY is not"));
    }

    #[test]
    fn an_endpoint_without_a_scheme_uses_tls_and_other_schemes_are_refused() {
        let keys = [("S3_ACCESS_KEY_ID", "id"), ("S3_SECRET_ACCESS_KEY", "hidden")];
        let bare = settings(&[("S3_ENDPOINT", "nyc3.example.com"), keys[0], keys[1]]).unwrap();
        assert!(
            matches!(bare, S3Settings::Server { endpoint, .. } if endpoint == "https://nyc3.example.com")
        );
        let error = settings(&[("S3_ENDPOINT", "ftp://s3.example.com"), keys[0], keys[1]]).unwrap_err();
        assert!(error.to_string().contains("use an http:// or https:// URL"), "{error}");
    }
}
