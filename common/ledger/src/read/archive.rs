//! Readers of gzip and zstd archives. Damage is [`io::ErrorKind::InvalidData`], with the place in the archive.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The number of first bytes that identify the format of a file.
pub(super) const MAGIC: usize = 4;

/// A compression format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Gzip,
    Zstd,
}

impl Packing {
    /// The packing that the first bytes name. A line of JSON cannot begin like an archive.
    pub(super) fn of(head: &[u8]) -> Option<Self> {
        // A frame of zstd that is skipped begins with one of sixteen numbers.
        let is_skippable =
            head.len() >= MAGIC && (0x50..=0x5f).contains(&head[0]) && head[1..MAGIC] == [0x2a, 0x4d, 0x18];
        if head.starts_with(&[0x1f, 0x8b]) {
            Some(Self::Gzip)
        } else if is_skippable || head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            Some(Self::Zstd)
        } else {
            None
        }
    }

    /// The bytes that were packed.
    pub(super) fn unpack(self, archive: impl Read + Send + 'static) -> Box<dyn Read + Send> {
        let source = BufReader::new(Counted { inner: archive, count: 0 });
        match self {
            Self::Gzip => Box::new(Gzip(MultiGzDecoder::new(source))),
            Self::Zstd => Box::new(Zstd { decoder: FrameDecoder::new(), source, is_in_frame: false }),
        }
    }
}

/// Counts what is read.
struct Counted<R> {
    inner: R,
    count: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.count += read as u64;
        Ok(read)
    }
}

/// The error that names a place in an archive; errors of the file below stay what they are.
fn damaged<R>(kind: &str, source: &BufReader<Counted<R>>, reason: &dyn std::fmt::Display) -> io::Error {
    let at = source.get_ref().count - source.buffer().len() as u64;
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the {kind} archive is damaged or cut off at byte {at}: {}", reason.to_string().to_lowercase()),
    )
}

struct Gzip<R>(MultiGzDecoder<BufReader<Counted<R>>>);

impl<R: Read> Read for Gzip<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into).map_err(|e| match e.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                damaged("gzip", self.0.get_ref(), &e)
            }
            _ => e,
        })
    }
}

struct Zstd<R> {
    decoder: FrameDecoder,
    source: BufReader<Counted<R>>,
    is_in_frame: bool,
}

impl<R: Read> Zstd<R> {
    /// Goes to the next frame that holds something; false at the end.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let length = u64::from(length);
                    let skipped = io::copy(&mut (&mut self.source).take(length), &mut io::sink())?;
                    if skipped < length {
                        return Err(damaged("zstd", &self.source, &"a frame is not whole"));
                    }
                }
                Err(e) => return Err(damaged("zstd", &self.source, &e)),
            }
        }
        Ok(false)
    }
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_in_frame {
                if !self.next_frame()? {
                    return Ok(0);
                }
                self.is_in_frame = true;
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let decoded = self.decoder.decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1));
                decoded.map_err(|e| damaged("zstd", &self.source, &e))?;
            }
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(into);
            }
            self.is_in_frame = false;
            let stated = self.decoder.get_checksum_from_data();
            if stated.is_some() && stated != self.decoder.get_calculated_checksum() {
                return Err(damaged("zstd", &self.source, &"the checksum is wrong"));
            }
        }
    }
}
