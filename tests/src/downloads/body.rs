//! Response bodies, and the different ways in which they end.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

/// The size of a piece of an endless body, in bytes.
const PIECE: usize = 64 * 1024;

/// A body that sends `bytes`, and then ends as `end` says.
pub(super) struct DownloadBody {
    bytes: Bytes,
    end: End,
    drip: Option<(Duration, Pin<Box<Sleep>>)>,
}

/// How a body ends after its bytes.
pub(super) enum End {
    Proper,
    /// Closes the connection after the bytes are sent.
    CutLater,
    CutNow,
    Never,
    Again,
}

impl DownloadBody {
    pub(super) fn new(bytes: Bytes) -> DownloadBody {
        DownloadBody::ending(bytes, End::Proper)
    }

    pub(super) fn ending(bytes: Bytes, end: End) -> DownloadBody {
        DownloadBody { bytes, end, drip: None }
    }

    pub(super) fn endless() -> DownloadBody {
        DownloadBody::ending(Bytes::from(vec![0; PIECE]), End::Again)
    }

    /// A body that sends one byte at a time, with the pause `every` between two bytes.
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
                // A pending body makes hyper flush its buffer, so the bytes are sent before the cut.
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
