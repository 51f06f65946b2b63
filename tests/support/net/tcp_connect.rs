// Connecting, and options: goes on from `tcp.rs`.

#[test]
fn connecting() {
    let _w = watchdog("connecting");
    both(|| {
        let listener = listener();
        let address = listener.local_addr().unwrap();
        // A port that is taken, but nobody listens.
        let nobody = {
            let socket =
                socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            socket
                .bind(
                    &"127.0.0.1:0"
                        .parse::<std::net::SocketAddr>()
                        .unwrap()
                        .into(),
                )
                .unwrap();
            let address = socket.local_addr().unwrap().as_socket().unwrap();
            (socket, address)
        };
        assert_eq!(
            kind(TcpStream::connect(nobody.1)),
            ErrorKind::ConnectionRefused
        );
        assert_eq!(
            kind(TcpStream::connect_timeout(
                &nobody.1,
                Duration::from_secs(9)
            )),
            ErrorKind::ConnectionRefused
        );
        let stream = TcpStream::connect(&[nobody.1, address][..]).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), address);
        let stream = TcpStream::connect(("localhost", address.port())).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), address);
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(9));
        assert_eq!(stream.unwrap().peer_addr().unwrap(), address);
        assert_eq!(
            kind(TcpStream::connect_timeout(&address, Duration::ZERO)),
            ErrorKind::InvalidInput
        );
        let none: &[std::net::SocketAddr] = &[];
        assert_eq!(kind(TcpStream::connect(none)), ErrorKind::InvalidInput);
        assert_eq!(kind(TcpListener::bind(none)), ErrorKind::InvalidInput);
        assert_eq!(kind(TcpStream::connect("no port")), ErrorKind::InvalidInput);
        assert_eq!(kind(TcpListener::bind(address)), ErrorKind::AddrInUse);
    });
}

#[test]
fn a_connect_that_nobody_answers_times_out() {
    let _w = watchdog("a_connect_that_nobody_answers_times_out");
    both(|| {
        // A listener whose queue is full drops further requests.
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket
            .bind(
                &"127.0.0.1:0"
                    .parse::<std::net::SocketAddr>()
                    .unwrap()
                    .into(),
            )
            .unwrap();
        socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let time = Duration::from_millis(50);
        let mut waiting = Vec::new();
        let error = loop {
            let before = Instant::now();
            match TcpStream::connect_timeout(&address, time) {
                Ok(stream) => waiting.push(stream),
                Err(error) => {
                    assert!(before.elapsed() >= time);
                    break error;
                }
            }
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn options() {
    let _w = watchdog("options");
    both(|| {
        let (client, _server) = pair();
        client.set_nodelay(true).unwrap();
        client.set_ttl(77).unwrap();
        assert_eq!(
            (client.nodelay().unwrap(), client.ttl().unwrap()),
            (true, 77)
        );
        assert!(client.take_error().unwrap().is_none());
        let listener = listener();
        listener.set_ttl(78).unwrap();
        assert_eq!(listener.ttl().unwrap(), 78);
        assert!(listener.take_error().unwrap().is_none());
        assert!(socket2::SockRef::from(&listener).reuse_address().unwrap());
        let text = format!("{client:?}");
        assert!(text.starts_with("TcpStream { addr: 127.0.0.1:") && text.contains(", fd: "));
        let text = format!("{listener:?}");
        assert!(text.starts_with("TcpListener { addr: 127.0.0.1:") && text.contains(", fd: "));
    });
}
