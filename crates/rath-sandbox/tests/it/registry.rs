//! The backend registry.

use std::sync::Arc;

use rath_sandbox::{Capabilities, Error, Host, Identity, Registry};

#[test]
fn a_known_name_is_found() {
    let registry = Registry::new().with(Arc::new(Host::new())).with(Arc::new(Host::new()));
    assert_eq!(registry.names(), ["host"]);
    let host = registry.get("host").unwrap();
    assert!(!host.capabilities().isolated && host.capabilities().background);
}

#[test]
fn an_unknown_name_is_an_error_that_lists_the_known_ones() {
    let error = Registry::new().with(Arc::new(Host::new())).get("docker").unwrap_err();
    assert_eq!(error.code(), "unknown-backend");
    assert_eq!(error.to_string(), "unknown sandbox backend \"docker\"; use one of: host");
}

#[test]
fn an_incapable_backend_is_refused() {
    let registry = Registry::new().with(Arc::new(Host::new()));
    assert!(registry.get_capable("host", &Capabilities { background: true, ..Default::default() }).is_ok());
    let needed = Capabilities { isolated: true, network_control: true, ..Default::default() };
    let error = registry.get_capable("host", &needed).unwrap_err();
    assert!(matches!(error, Error::Incapable { .. }) && error.code() == "backend-incapable");
    assert!(error.to_string().contains("no isolation, no network control"), "{error}");
}

#[test]
fn identities_are_serialized() {
    let identity = Identity { id: "x".into(), generation: 3 };
    let text = serde_json::to_string(&identity).unwrap();
    assert_eq!(text, r#"{"id":"x","generation":3}"#);
    assert_eq!(serde_json::from_str::<Identity>(&text).unwrap(), identity);
}
