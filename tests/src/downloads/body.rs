//! The bytes of an answer, and how they end.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

/// How much of an endless body comes at a time.
const PIECE: usize = 64 * 1024;

/// Bytes, and then the end or something else.
pub(super) struct DownloadBody {
    bytes: Bytes,
    end: End,
    drip: Option<(Duration, Pin<Box<Sleep>>)>,
}

/// What follows after the bytes.
pub(super) enum End {
    Proper,
    /// The connection is to be cut, but only once the bytes have gone out.
    CutLater,
    CutNow,
    Never,
    Again,
}

impl DownloadBody {
    pub(super) fn of(bytes: Bytes) -> DownloadBody {
        DownloadBody::ending(bytes, End::Proper)
    }

    pub(super) fn ending(bytes: Bytes, end: End) -> DownloadBody {
        DownloadBody { bytes, end, drip: None }
    }

    pub(super) fn endless() -> DownloadBody {
        DownloadBody::ending(Bytes::from(vec![0; PIECE]), End::Again)
    }

    /// A byte at a time.
    pub(super) fn dripping(bytes: Bytes, every: Duration) -> DownloadBody {
        DownloadBody { bytes, end: End::Proper, drip: Some((every, Box::pin(sleep(Duration::ZERO)))) }
    }
}

impl Body for DownloadBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if !self.bytes.is_empty() {
            if let Some((every, timer)) = &mut self.drip {
                if timer.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                *timer = Box::pin(sleep(*every));
                return Poll::Ready(Some(Ok(Frame::data(self.bytes.split_to(1)))));
            }
            let bytes = match self.end {
                End::Again => self.bytes.clone(),
                _ => std::mem::take(&mut self.bytes),
            };
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        match self.end {
            End::Proper | End::Again => Poll::Ready(None),
            End::CutLater => {
                // hyper flushes what it has when a body has nothing to say for the moment.
                self.end = End::CutNow;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            End::Never => Poll::Pending,
            End::CutNow => Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::ConnectionReset)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty() && matches!(self.end, End::Proper)
    }

    fn size_hint(&self) -> SizeHint {
        match self.end {
            End::Proper => SizeHint::with_exact(self.bytes.len() as u64),
            _ => SizeHint::default(),
        }
    }
}
