//! [`Server`]: listens, and gives every connection a thread.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::answer::Answer;
use super::request::Request;

/// What happens to a request on the wire.
#[derive(Debug)]
pub(crate) enum Delivery {
    /// It is answered.
    Answer(Answer),
    /// The connection is closed without an answer.
    Close,
}

type Serve = dyn Fn(Request) -> Delivery + Send + Sync;

/// Listening sockets and all connections. Dropped, it closes them.
pub(crate) struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    socket: Option<std::path::PathBuf>,
}

struct Shared {
    serve: Box<Serve>,
    over: AtomicBool,
    next: AtomicU64,
    open: Mutex<BTreeMap<u64, Line>>,
}

impl Server {
    /// Binds a free port of this machine; [`serve`](Self::serve) begins to listen.
    pub(crate) fn bind() -> io::Result<TcpListener> {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
    }

    /// Answers on the port, and on a Unix socket where one is wanted.
    pub(crate) fn serve(
        listener: TcpListener,
        socket: Option<&Path>,
        serve: impl Fn(Request) -> Delivery + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            serve: Box::new(serve),
            over: AtomicBool::new(false),
            next: AtomicU64::new(0),
            open: Mutex::default(),
        });
        let address = listener.local_addr()?;
        accept(&shared, move || {
            let (stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            Ok(Line::Tcp(stream))
        });
        if let Some(path) = socket {
            let listener = UnixListener::bind(path)?;
            accept(&shared, move || Ok(Line::Unix(listener.accept()?.0)));
        }
        Ok(Self { shared, address, socket: socket.map(Path::to_owned) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // Whoever listens wakes up, sees that it is over and ends.
        drop(TcpStream::connect(self.address));
        if let Some(path) = &self.socket {
            drop(UnixStream::connect(path));
        }
        let open = self.shared.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.values().for_each(Line::close);
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

fn accept(shared: &Arc<Shared>, next: impl Fn() -> io::Result<Line> + Send + 'static) {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        while let Ok(line) = next() {
            if shared.over.load(Ordering::SeqCst) {
                return;
            }
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.attend(line));
        }
    });
}

impl Shared {
    fn attend(&self, line: Line) {
        let id = self.next.fetch_add(1, Ordering::SeqCst);
        let Ok(known) = line.try_clone() else { return };
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(id, known);
        // A client that is gone, or speaks something else, gets no more.
        drop(self.talk(&line));
        line.close();
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    fn talk(&self, line: &Line) -> io::Result<()> {
        let mut reader = BufReader::new(line.try_clone()?);
        let mut writer = line.try_clone()?;
        while let Some(request) = Request::read(&mut reader)? {
            let last = request.is_last();
            match (self.serve)(request) {
                Delivery::Answer(answer) => writer.write_all(&answer.encode())?,
                Delivery::Close => return Ok(()),
            }
            if last || self.over.load(Ordering::SeqCst) {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// A connection.
enum Line {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Line {
    fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
        }
    }

    fn close(&self) {
        // One that is closed already is fine.
        drop(match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        });
    }
}

impl Read for Line {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
