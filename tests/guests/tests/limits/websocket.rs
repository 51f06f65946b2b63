//! tungstenite, which keeps what it could not write for the next call.

use std::io::{self, Write};
use support::Test;
use support::stalls::{
    Full, LARGE, LIMIT, Question, Server, Stubborn, ends, own_answers, stall, stall_after, twice,
};
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Error, Message, WebSocket};

/// An unmasked frame with a binary message of so many bytes.
fn frame_head(length: usize) -> Vec<u8> {
    let mut head = vec![0x82];
    match length {
        0..=125 => head.push(length as u8),
        126..=65_535 => {
            head.push(126);
            head.extend((length as u16).to_be_bytes());
        }
        _ => {
            head.push(127);
            head.extend((length as u64).to_be_bytes());
        }
    }
    head
}

/// Answers a message with its text, and stalls as that says.
fn serve(stream: greenthread::net::TcpStream) -> io::Result<()> {
    let mut socket = tungstenite::accept(stream).map_err(io::Error::other)?;
    let mut earlier = 0;
    while let Ok(message) = socket.read() {
        let text = message.into_text().map_err(io::Error::other)?;
        let name = text.split(' ').next().unwrap();
        let question = Question::parse(name);
        let bytes = question.map_or_else(|| name.as_bytes().to_vec(), Question::answer);
        let (head, to) = (frame_head(bytes.len()), socket.get_mut());
        match name {
            "head" | "second" if name == "head" || earlier > 0 => stall(),
            "in-head" => stall_after(&mut *to, &head[..1]),
            "body" => stall_after(&mut *to, &[&head[..], b"b"].concat()),
            _ => {}
        }
        earlier += 1;
        match question {
            Some(question) => question.write(to, &head, &bytes, b"")?,
            None => to.write_all(&[head, bytes].concat())?,
        }
    }
    Ok(())
}

type Client = WebSocket<MaybeTlsStream<std::net::TcpStream>>;

fn connect(address: std::net::SocketAddr) -> Result<Client, Error> {
    Ok(tungstenite::connect(format!("ws://{address}/"))?.0)
}

fn ask(client: &mut Client, text: String) -> Result<Vec<u8>, Error> {
    client.send(Message::Text(text.into()))?;
    Ok(client.read()?.into_data().to_vec())
}

#[test]
fn tungstenite() {
    twice("tungstenite", || {
        let (server, full) = (Server::new(serve), Full::new());
        ends("connecting", || connect(full.address()));
        let silent = Server::new(|_stream| stall());
        ends("upgrading", || connect(silent.address));
        let half = Server::new(|stream| {
            stall_after(&stream, b"HTTP/1.1 101 Swi");
            Ok(())
        });
        ends("half an upgrade", || connect(half.address));
        for name in ["head", "in-head", "body", "second"] {
            let mut client = connect(server.address).unwrap();
            assert_eq!(ask(&mut client, "second".into()).unwrap(), b"second");
            ends(name, || ask(&mut client, name.into()));
            // It is over with this connection.
            assert!(ask(&mut client, "own".into()).is_err());
        }
        let deaf = Server::new(|stream| {
            let _socket = tungstenite::accept(stream);
            stall()
        });
        let mut client = connect(deaf.address).unwrap();
        ends("sending", || ask(&mut client, "x".repeat(LARGE)));
        let mut client = connect(server.address).unwrap();
        assert_eq!(ask(&mut client, "own".into()).unwrap(), b"own");
    });
}

/// Large messages are read whole before they are answered: a stall while they are sent is that before the answer.
#[test]
fn tungstenite_answers() {
    let _test = Test::new("tungstenite's answers", 120);
    let server = Server::new(serve);
    let clients: [Stubborn<Client>; 4] = Default::default();
    own_answers("tungstenite", LIMIT / 2, |thread, question| {
        let padding = if question.is_large() { LARGE / 256 } else { 0 };
        let text = format!("{} {}", question.text(), " ".repeat(padding));
        clients[thread].ask(|| connect(server.address), |client| ask(client, text))
    });
}
