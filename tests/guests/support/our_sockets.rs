//! ureq over greenthread's sockets: the same client, but for the functions that it calls to connect, send and receive.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::{Arc, Weak};
use ureq::Error;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, ShutdownHandle, Transport,
};

/// An agent like ureq's own.
pub fn agent(config: ureq::config::Config) -> ureq::Agent {
    ureq::Agent::with_parts(config, OurConnector, DefaultResolver::default())
}

#[derive(Debug)]
struct OurConnector;

impl Connector for OurConnector {
    type Out = OurTransport;

    fn connect(
        &self,
        details: &ConnectionDetails,
        _: Option<()>,
    ) -> Result<Option<OurTransport>, Error> {
        let stream = greenthread::net::TcpStream::connect(&details.addrs[..])?;
        let config = &details.config;
        if config.no_delay() {
            stream.set_nodelay(true)?;
        }
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        let stream = Arc::new(Stream(stream));
        // As ureq does with its own.
        let handle: Weak<dyn ShutdownHandle> = Arc::downgrade(&stream) as _;
        (details.register_shutdown)(handle)?;
        Ok(Some(OurTransport { stream, buffers }))
    }
}

struct Stream(greenthread::net::TcpStream);

impl ShutdownHandle for Stream {
    fn shutdown(&self) {
        let _ = self.0.shutdown(Shutdown::Both); // an error: it is over
    }
}

struct OurTransport {
    stream: Arc<Stream>,
    buffers: LazyBuffers,
}

impl fmt::Debug for OurTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OurTransport")
    }
}

impl Transport for OurTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), Error> {
        Ok((&self.stream.0).write_all(&self.buffers.output()[..amount])?)
    }

    fn await_input(&mut self, _: NextTimeout) -> Result<bool, Error> {
        let amount = (&self.stream.0).read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    /// As ureq asks its own: a connection on which nothing has come.
    fn is_open(&mut self) -> bool {
        let open = || -> io::Result<bool> {
            self.stream.0.set_nonblocking(true)?;
            let answer = (&self.stream.0).read(&mut [0]);
            self.stream.0.set_nonblocking(false)?;
            Ok(answer.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock))
        };
        open().unwrap_or(false)
    }
}
