//! TLS over std's sockets, client and server on green threads: rustls, and OpenSSL by way of native-tls.
//!
//! `tls/` has an authority's certificate, and a certificate for `localhost` with its key. Both are for these tests
//! only, and last until 2120.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use support::{Test, some};

const AUTHORITY: &[u8] = include_bytes!("../tls/ca.pem");
const CERTIFICATE: &[u8] = include_bytes!("../tls/server.pem");
const KEY: &[u8] = include_bytes!("../tls/server.key");

/// Kernel threads while all connections wait.
const BOUND: usize = 40;
const MESSAGES: usize = 10;

/// Ends a conversation: says so to the other side.
trait Conversation: Read + Write + 'static {
    fn close(&mut self) -> io::Result<()>;
}

type Upgrade<S> = dyn Fn(TcpStream) -> S + Send + Sync;

/// The `i`th message of a connection.
fn message(connection: usize, i: usize) -> Vec<u8> {
    let length = [1, 10, 1_000, 20_000, 100_000][(connection + i) % 5];
    (0..length)
        .map(|at| (at * 31 + connection * 7 + i) as u8)
        .collect()
}

/// Accepts so many connections, and sends back what comes.
fn echo<S: Conversation>(listener: &TcpListener, connections: usize, upgrade: Arc<Upgrade<S>>) {
    let threads: Vec<_> = (0..connections)
        .map(|_| {
            let (stream, upgrade) = (listener.accept().unwrap().0, upgrade.clone());
            greenthread::spawn(move || {
                let mut stream = upgrade(stream);
                let mut piece = vec![0; 16 << 10];
                loop {
                    match stream.read(&mut piece).unwrap() {
                        0 => break stream.close().unwrap(),
                        n => stream.write_all(&piece[..n]).unwrap(),
                    }
                    stream.flush().unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
}

/// Where all connections wait for each other: how many do, and whether they may go on.
type Meeting = (Mutex<(usize, bool)>, Condvar);

/// All connections are there at once. The two halves of one are two threads only on the server's side, so a long
/// message is sent in pieces that fit into the kernel's buffers.
fn conversation<S: Conversation>(
    connection: usize,
    address: SocketAddr,
    upgrade: &Upgrade<S>,
    meeting: &Meeting,
) {
    let mut stream = upgrade(TcpStream::connect(address).unwrap());
    for i in 0..MESSAGES {
        for piece in message(connection, i).chunks(16 << 10) {
            stream.write_all(piece).unwrap();
            stream.flush().unwrap();
            let mut echo = vec![0; piece.len()];
            stream.read_exact(&mut echo).unwrap();
            assert!(echo == piece, "connection {connection}, message {i}");
        }
        if i == 0 {
            let mut here = meeting.0.lock().unwrap();
            here.0 += 1;
            drop(meeting.1.wait_while(here, |here| !here.1).unwrap());
        }
    }
    stream.close().unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

fn talk<C: Conversation, S: Conversation>(
    name: &'static str,
    client: Arc<Upgrade<C>>,
    server: Arc<Upgrade<S>>,
) {
    let test = Test::new(name, 120);
    let n = some(200, 50);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = greenthread::spawn(move || echo(&listener, n, server));
    let meeting = Arc::new(Meeting::default());
    let clients: Vec<_> = (0..n)
        .map(|i| {
            let (client, meeting) = (client.clone(), meeting.clone());
            greenthread::spawn(move || conversation(i, address, &*client, &meeting))
        })
        .collect();
    test.until(|| meeting.0.lock().unwrap().0 == n);
    test.all_wait(BOUND);
    meeting.0.lock().unwrap().1 = true;
    meeting.1.notify_all();
    clients.into_iter().for_each(|t| t.join().unwrap());
    server.join().unwrap();
    test.report();
}

impl Conversation for StreamOwned<ClientConnection, TcpStream> {
    fn close(&mut self) -> io::Result<()> {
        self.conn.send_close_notify();
        self.flush()
    }
}

impl Conversation for StreamOwned<ServerConnection, TcpStream> {
    fn close(&mut self) -> io::Result<()> {
        self.conn.send_close_notify();
        self.flush()
    }
}

fn rustls_with(version: &'static rustls::SupportedProtocolVersion, name: &'static str) {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(AUTHORITY).unwrap())
        .unwrap();
    let client = ClientConfig::builder_with_protocol_versions(&[version])
        .with_root_certificates(roots)
        .with_no_client_auth();
    let certificates = vec![CertificateDer::from_pem_slice(CERTIFICATE).unwrap()];
    let server = ServerConfig::builder_with_protocol_versions(&[version])
        .with_no_client_auth()
        .with_single_cert(certificates, PrivateKeyDer::from_pem_slice(KEY).unwrap())
        .unwrap();
    let (client, server) = (Arc::new(client), Arc::new(server));
    let localhost = ServerName::try_from("localhost").unwrap();
    talk(
        name,
        Arc::new(move |stream| {
            let connection = ClientConnection::new(client.clone(), localhost.clone());
            StreamOwned::new(connection.unwrap(), stream)
        }),
        Arc::new(move |stream| {
            StreamOwned::new(ServerConnection::new(server.clone()).unwrap(), stream)
        }),
    );
}

#[test]
fn rustls_1_3() {
    rustls_with(&rustls::version::TLS13, "rustls, TLS 1.3");
}

#[test]
fn rustls_1_2() {
    rustls_with(&rustls::version::TLS12, "rustls, TLS 1.2");
}

#[cfg(feature = "servers")]
impl Conversation for native_tls::TlsStream<TcpStream> {
    fn close(&mut self) -> io::Result<()> {
        self.shutdown()
    }
}

#[cfg(feature = "servers")]
#[test]
fn openssl() {
    let authority = native_tls::Certificate::from_pem(AUTHORITY).unwrap();
    let client = native_tls::TlsConnector::builder()
        .disable_built_in_roots(true)
        .add_root_certificate(authority)
        .build()
        .unwrap();
    let identity = native_tls::Identity::from_pkcs8(CERTIFICATE, KEY).unwrap();
    let server = native_tls::TlsAcceptor::new(identity).unwrap();
    talk(
        "OpenSSL",
        Arc::new(move |stream| client.connect("localhost", stream).unwrap()),
        Arc::new(move |stream| server.accept(stream).unwrap()),
    );
}
