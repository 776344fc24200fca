//! TLS errors and proxies.

use std::sync::Arc;

use rath_core::FailureKind;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

use super::{FOR_EVER, clients, failure};

/// A server with a self-signed certificate. Returns its port.
async fn self_signed_server() -> u16 {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let handshake = acceptor.accept(stream).await;
            assert!(handshake.is_err(), "no client accepts the certificate");
        }
    });
    port
}

#[tokio::test]
async fn an_untrusted_certificate_is_rejected() {
    let port = self_signed_server().await;
    for client in clients(&format!("https://127.0.0.1:{port}")) {
        let failure = failure(&*client(FOR_EVER)).await;
        assert_eq!((failure.retry, failure.kind), (false, FailureKind::Tls), "{failure:?}");
        assert!(failure.why.contains("cannot reach https://127.0.0.1"), "{failure:?}");
        assert!(failure.why.contains("certificate"), "{failure:?}");
    }
}

#[tokio::test]
async fn a_configured_proxy_is_used() {
    use rath_model::Anthropic;

    let model = Anthropic::new("m").proxy("http://127.0.0.1:1").base_url("http://provider.invalid");
    let refused = failure(&model).await;
    assert!(refused.why.contains("cannot reach http://provider.invalid"), "{refused:?}");
    assert_eq!(refused.kind, FailureKind::Unreachable);
    let no_address = failure(&Anthropic::new("m").proxy("://")).await;
    assert!(!no_address.retry && no_address.why.contains("proxy"), "{no_address:?}");
    assert_eq!(no_address.kind, FailureKind::Setup);
}
