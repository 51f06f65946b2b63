//! HTTP: ureq, which keeps connections, minreq, which does not, and libcurl, which waits in `poll`.

use support::Test;
use support::stalls::{Full, LARGE, SHORT, Server, ends, http, own_answers, twice};

fn ureq_get(agent: &ureq::Agent, url: String) -> Result<Vec<u8>, ureq::Error> {
    agent.get(url).call()?.body_mut().read_to_vec()
}

fn ureq_post(agent: &ureq::Agent, url: String, body: &[u8]) -> Result<Vec<u8>, ureq::Error> {
    agent.post(url).send(body)?.body_mut().read_to_vec()
}

#[test]
fn ureq() {
    twice("ureq", || {
        let (server, full) = (Server::new(http), Full::new());
        let agent = ureq::Agent::new_with_defaults();
        let url = |path: &str| server.url(&format!("/{path}"));
        ends("connecting", || {
            ureq_get(&agent, format!("http://{}/", full.address()))
        });
        for path in ["head", "in-head", "body"] {
            ends(path, || ureq_get(&agent, url(path)));
        }
        let large = vec![7u8; LARGE];
        ends("sending", || ureq_post(&agent, url("deaf"), &large));
        assert_eq!(ureq_get(&agent, url("second")).unwrap(), b"second");
        ends("second", || ureq_get(&agent, url("second")));
        assert_eq!(ureq_get(&agent, url("own")).unwrap(), b"own");
    });
}

#[test]
fn ureq_answers() {
    let _test = Test::new("ureq's answers", 120);
    let server = Server::new(http);
    let agent = ureq::Agent::new_with_defaults();
    let large = vec![7u8; LARGE / 16];
    own_answers("ureq", SHORT, |_, question| {
        let url = server.url(&format!("/{}", question.text()));
        match question.is_large() {
            true => ureq_post(&agent, url, &large),
            false => ureq_get(&agent, url),
        }
    });
}

fn minreq_send(url: String, body: Vec<u8>) -> Result<Vec<u8>, minreq::Error> {
    Ok(minreq::post(url).with_body(body).send()?.into_bytes())
}

#[test]
fn minreq() {
    twice("minreq", || {
        let (server, full) = (Server::new(http), Full::new());
        let url = |path: &str| server.url(&format!("/{path}"));
        ends("connecting", || {
            minreq_send(format!("http://{}/", full.address()), vec![])
        });
        for path in ["head", "in-head", "body"] {
            ends(path, || minreq_send(url(path), vec![]));
        }
        let large = vec![7u8; LARGE];
        ends("sending", || minreq_send(url("deaf"), large));
        assert_eq!(minreq_send(url("own"), vec![]).unwrap(), b"own");
    });
}

#[test]
fn minreq_answers() {
    let _test = Test::new("minreq's answers", 120);
    let server = Server::new(http);
    own_answers("minreq", SHORT, |_, question| {
        let url = server.url(&format!("/{}", question.text()));
        let length = if question.is_large() { LARGE / 16 } else { 0 };
        minreq_send(url, vec![7u8; length])
    });
}

#[cfg(feature = "servers")]
mod curl {
    use super::*;
    use ::curl::Error;
    use ::curl::easy::{Easy, List};
    use support::stalls::Stubborn;

    /// One handle has one pool of connections.
    fn send(easy: &mut Easy, url: &str, body: &[u8]) -> Result<Vec<u8>, Error> {
        let mut headers = List::new();
        headers.append("Expect:")?; // or it would wait for a second before a large body
        easy.http_headers(headers)?;
        easy.signal(false)?;
        easy.url(url)?;
        easy.post(true)?;
        easy.post_field_size(body.len() as u64)?;
        let (mut answer, mut rest) = (Vec::new(), body);
        let mut transfer = easy.transfer();
        transfer.read_function(|piece| Ok(std::io::Read::read(&mut rest, piece).unwrap()))?;
        transfer.write_function(|piece| {
            answer.extend_from_slice(piece);
            Ok(piece.len())
        })?;
        transfer.perform()?;
        drop(transfer);
        Ok(answer)
    }

    #[test]
    fn libcurl() {
        twice("libcurl", || {
            let (server, full) = (Server::new(http), Full::new());
            let url = |path: &str| server.url(&format!("/{path}"));
            let mut easy = Easy::new();
            ends("connecting", || {
                send(&mut easy, &format!("http://{}/", full.address()), b"")
            });
            for path in ["head", "in-head", "body"] {
                ends(path, || send(&mut easy, &url(path), b""));
            }
            let large = vec![7u8; LARGE];
            ends("sending", || send(&mut easy, &url("deaf"), &large));
            assert_eq!(send(&mut easy, &url("second"), b"").unwrap(), b"second");
            ends("second", || send(&mut easy, &url("second"), b""));
            assert_eq!(send(&mut easy, &url("own"), b"").unwrap(), b"own");
        });
    }

    #[test]
    fn libcurl_answers() {
        let _test = Test::new("libcurl's answers", 120);
        let server = Server::new(http);
        let clients: [Stubborn<Easy>; 4] = Default::default();
        let large = vec![7u8; LARGE / 16];
        own_answers("libcurl", SHORT, |thread, question| {
            let url = server.url(&format!("/{}", question.text()));
            let body = if question.is_large() { &large[..] } else { &[] };
            clients[thread].ask(|| Ok(Easy::new()), |easy| send(easy, &url, body))
        });
    }
}
