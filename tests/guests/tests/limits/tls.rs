//! rustls and OpenSSL (by way of native-tls), both against a server with rustls.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use rustls::{StreamOwned, SupportedProtocolVersion};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use support::Test;
use support::stalls::{
    Full, LARGE, LIMIT, Server, Short, Stubborn, ask, ends, http, own_answers, twice,
};

const AUTHORITY: &[u8] = include_bytes!("../../tls/ca.pem");
const CERTIFICATE: &[u8] = include_bytes!("../../tls/server.pem");
const KEY: &[u8] = include_bytes!("../../tls/server.key");

trait Stream: Read + Write + Send {}
impl<S: Read + Write + Send> Stream for S {}
type Client = Box<dyn Stream>;
type Connect = Arc<dyn Fn(SocketAddr) -> io::Result<Client> + Send + Sync>;

/// HTTP over TLS. The server sends only so many bytes.
fn server(bytes: usize) -> Server {
    let certificates = vec![CertificateDer::from_pem_slice(CERTIFICATE).unwrap()];
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(certificates, PrivateKeyDer::from_pem_slice(KEY).unwrap())
        .unwrap();
    let config = Arc::new(config);
    Server::new(move |stream| {
        let connection = ServerConnection::new(config.clone()).unwrap();
        http(StreamOwned::new(connection, Short(stream, bytes)))
    })
}

fn stages(name: &'static str, connect: Connect) {
    twice(name, move || {
        let full = Full::new();
        ends("connecting", || connect(full.address()));
        for (bytes, what) in [
            (0, "handshake"),
            (50, "half a hello"),
            (400, "half a certificate"),
        ] {
            let server = server(bytes);
            ends(what, || ask(&mut connect(server.address)?, "own", b""));
        }
        let server = server(usize::MAX);
        let large = vec![7u8; LARGE];
        for (path, body) in [
            ("head", &[][..]),
            ("in-head", &[]),
            ("body", &[]),
            ("deaf", &large),
            ("second", &[]),
        ] {
            let mut client = connect(server.address).unwrap();
            assert_eq!(ask(&mut client, "second", b"").unwrap(), b"second");
            ends(path, || ask(&mut client, path, body));
            // It is over with this connection.
            assert!(ask(&mut client, "own", b"").is_err());
        }
        let mut client = connect(server.address).unwrap();
        assert_eq!(ask(&mut client, "own", b"").unwrap(), b"own");
    });
}

fn answers(name: &'static str, connect: Connect) {
    let _test = Test::new(name, 120);
    let server = server(usize::MAX);
    let clients: [Stubborn<Client>; 4] = Default::default();
    let large = vec![7u8; LARGE / 64];
    own_answers(name, LIMIT / 2, |thread, question| {
        let body = if question.is_large() { &large[..] } else { &[] };
        clients[thread].ask(
            || connect(server.address),
            |client| ask(client, &question.text(), body),
        )
    });
}

fn rustls_client(version: &'static SupportedProtocolVersion) -> Connect {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(AUTHORITY).unwrap())
        .unwrap();
    let client = ClientConfig::builder_with_protocol_versions(&[version])
        .with_root_certificates(roots)
        .with_no_client_auth();
    let client = Arc::new(client);
    Arc::new(move |address| {
        let localhost = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(client.clone(), localhost).unwrap();
        let stream = TcpStream::connect(address)?;
        Ok(Box::new(StreamOwned::new(connection, stream)))
    })
}

#[test]
fn rustls_1_3() {
    stages("rustls, TLS 1.3", rustls_client(&rustls::version::TLS13));
}

#[test]
fn rustls_1_2() {
    stages("rustls, TLS 1.2", rustls_client(&rustls::version::TLS12));
}

#[test]
fn rustls_answers() {
    answers("rustls' answers", rustls_client(&rustls::version::TLS13));
}

#[cfg(feature = "servers")]
fn openssl_client() -> Connect {
    let authority = native_tls::Certificate::from_pem(AUTHORITY).unwrap();
    let client = native_tls::TlsConnector::builder()
        .disable_built_in_roots(true)
        .add_root_certificate(authority)
        .build()
        .unwrap();
    Arc::new(move |address| {
        let stream = TcpStream::connect(address)?;
        let connected = client.connect("localhost", stream);
        Ok(Box::new(
            connected.map_err(|e| io::Error::other(e.to_string()))?,
        ))
    })
}

#[cfg(feature = "servers")]
#[test]
fn openssl() {
    stages("OpenSSL", openssl_client());
}

#[cfg(feature = "servers")]
#[test]
fn openssl_answers() {
    answers("OpenSSL's answers", openssl_client());
}
