//! Reads what is compressed with zstd: frames one after the other, and those that are to be skipped between them.

use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// See the [module documentation](self).
pub(super) struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    /// Whether the decoder is in a frame.
    inside: bool,
}

impl<R: BufRead> Zstd<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, decoder: FrameDecoder::new(), inside: false }
    }

    /// Begins with the next frame that has content. False at the end.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let length = u64::from(length);
                    if io::copy(&mut (&mut self.source).take(length), &mut io::sink())? != length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.inside {
                self.inside = self.begin()?;
                if !self.inside {
                    return Ok(0);
                }
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let some = BlockDecodingStrategy::UptoBytes(buffer.len());
                self.decoder
                    .decode_blocks(&mut self.source, some)
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            }
            let read = self.decoder.read(buffer)?;
            if read > 0 {
                return Ok(read);
            }
            self.inside = !self.decoder.is_finished();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    #[test]
    fn frames_are_read_one_after_the_other() {
        let (one, other) = (b"one ".repeat(100_000), b"other".to_vec());
        let mut bytes = vec![0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
        bytes.extend(compress_to_vec(&one[..], CompressionLevel::Fastest));
        bytes.extend([0x5f, 0x2a, 0x4d, 0x18, 0, 0, 0, 0]);
        bytes.extend(compress_to_vec(&other[..], CompressionLevel::Fastest));
        let mut found = Vec::new();
        Zstd::new(&bytes[..]).read_to_end(&mut found).unwrap();
        assert!(found == [one, other].concat(), "{} bytes", found.len());
        let cut = &bytes[..bytes.len() - 3];
        assert!(Zstd::new(cut).read_to_end(&mut Vec::new()).is_err());
        assert!(Zstd::new(&[0x50, 0x2a, 0x4d, 0x18, 9, 0, 0, 0][..]).read_to_end(&mut Vec::new()).is_err());
    }
}
