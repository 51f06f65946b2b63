//! Hyper on tokio.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task;

use crate::serve::ANYWHERE;

pub fn serve(announce: fn(SocketAddr) -> !) -> io::Result<()> {
    let runtime = Runtime::new()?;
    let listener = runtime.block_on(TcpListener::bind(ANYWHERE))?;
    let address = listener.local_addr()?;
    runtime.spawn(accept(listener));
    announce(address)
}

async fn accept(listener: TcpListener) -> io::Result<Infallible> {
    let mut http = http1::Builder::new();
    // No server here dates its replies.
    http.auto_date_header(false);
    loop {
        let (connection, _) = listener.accept().await?;
        connection.set_nodelay(true)?;
        let connection = http.serve_connection(TokioIo::new(connection), service_fn(answer));
        task::spawn(connection);
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let number = Bytes::copy_from_slice(&request.uri().path().as_bytes()[1..]);
    let mut response = Response::new(Full::new(number));
    let text = HeaderValue::from_static("text/plain");
    response.headers_mut().insert(CONTENT_TYPE, text);
    Ok(response)
}
