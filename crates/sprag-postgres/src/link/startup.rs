//! [`process_id`]: what the server said its process id is when it greeted us.
//!
//! A connection pool makes one up, since it does not know yet whom it will ask; and that tells it
//! from a server. The client library keeps the number to itself, but it is in the first bytes that
//! it would send to cancel a request.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio_postgres::Client;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// The process id that this connection was greeted with.
pub(super) async fn process_id(client: &Client) -> Option<i32> {
    let (ours, mut theirs) = tokio::io::duplex(64);
    // If it wants to encrypt first, it may.
    theirs.write_all(b"S").await.ok()?;
    client.cancel_token().cancel_query_raw(ours, Plain).await.ok()?;
    let mut sent = Vec::new();
    theirs.read_to_end(&mut sent).await.ok()?;
    // The request ends with the process id and a secret, four bytes each.
    let id = sent.len().checked_sub(8).and_then(|start| sent.get(start..start + 4))?;
    Some(i32::from_be_bytes(id.try_into().ok()?))
}

/// No encryption at all, for a stream that stays inside this process.
struct Plain;

impl TlsConnect<DuplexStream> for Plain {
    type Stream = PlainStream;
    type Error = io::Error;
    type Future = std::future::Ready<io::Result<PlainStream>>;

    fn connect(self, stream: DuplexStream) -> Self::Future {
        std::future::ready(Ok(PlainStream(stream)))
    }
}

struct PlainStream(DuplexStream);

impl AsyncRead for PlainStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl AsyncWrite for PlainStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl TlsStream for PlainStream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}
