//! Reads strings from the memory of a suspended process.

use std::io;

use super::sys;

/// The most bytes of arguments, or of the environment, that are read. The kernel accepts no more.
pub(super) const LONGEST: usize = 6 << 20;
const PAGE: usize = 4096;
const POINTER: usize = size_of::<u64>();

/// The memory of another process.
pub(super) struct Memory {
    thread: i32,
    /// The page that was read last, with its address, because strings are adjacent.
    page: Option<(u64, [u8; PAGE])>,
}

impl Memory {
    pub(super) fn of(thread: i32) -> Self {
        Self { thread, page: None }
    }

    /// The bytes from an address to the end of its page.
    fn page_from(&mut self, address: u64) -> io::Result<&[u8]> {
        let offset = usize::try_from(address).unwrap_or_default() % PAGE;
        let start = address - offset as u64;
        let known = self.page.take().filter(|(known, _)| *known == start);
        let page = if let Some(page) = known {
            page
        } else {
            let mut bytes = [0; PAGE];
            sys::read_memory(self.thread, start, &mut bytes)?;
            (start, bytes)
        };
        Ok(&self.page.insert(page).1[offset..])
    }

    fn pointer(&mut self, address: u64) -> io::Result<u64> {
        let mut bytes = [0; POINTER];
        let mut filled = 0;
        while filled < POINTER {
            let part = self.page_from(address + filled as u64)?;
            let length = part.len().min(POINTER - filled);
            bytes[filled..filled + length].copy_from_slice(&part[..length]);
            filled += length;
        }
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Reads a string up to its NUL byte.
    pub(super) fn string(&mut self, mut address: u64) -> io::Result<Vec<u8>> {
        let mut string = Vec::new();
        loop {
            let part = self.page_from(address)?;
            if let Some(end) = memchr::memchr(0, part) {
                string.extend_from_slice(&part[..end]);
                return Ok(string);
            }
            string.extend_from_slice(part);
            address += part.len() as u64;
            if string.len() > LONGEST {
                return Err(io::ErrorKind::ArgumentListTooLong.into());
            }
        }
    }

    /// Reads a list of pointers to strings up to its null pointer. A null pointer to the list counts as an empty
    /// list, as in the kernel.
    pub(super) fn list(&mut self, address: u64) -> io::Result<Vec<Vec<u8>>> {
        let (mut list, mut total, mut at) = (Vec::new(), 0, address);
        let mut add = |length: usize| {
            total += length;
            if total > LONGEST { Err(io::Error::from(io::ErrorKind::ArgumentListTooLong)) } else { Ok(()) }
        };
        while address != 0
            && let string @ 1.. = self.pointer(at)?
        {
            add(POINTER)?;
            list.push(string);
            at += POINTER as u64;
        }
        let string = |string| self.string(string).and_then(|string| add(string.len()).map(|()| string));
        list.into_iter().map(string).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    #[test]
    fn string_lists_are_read_across_pages_up_to_limit() {
        let strings: Vec<CString> =
            (0..3 * PAGE).step_by(511).map(|length| CString::new(vec![b'x'; length]).unwrap()).collect();
        let pointers: Vec<u64> = strings.iter().map(|string| string.as_ptr().addr() as u64).chain([0]).collect();
        let mut memory = Memory::of(rustix::process::getpid().as_raw_nonzero().get());
        let expected: Vec<Vec<u8>> = strings.iter().map(|string| string.to_bytes().to_vec()).collect();
        assert_eq!(memory.list(pointers.as_ptr().addr() as u64).unwrap(), expected);
        assert_eq!(memory.list(0).unwrap(), Vec::<Vec<u8>>::new());
        // A list may begin at any address.
        let mut bytes = vec![0];
        bytes.extend(pointers.iter().flat_map(|pointer| pointer.to_ne_bytes()));
        assert_eq!(memory.list(bytes[1..].as_ptr().addr() as u64).unwrap(), expected);
        let long = CString::new(vec![b'x'; LONGEST + PAGE]).unwrap();
        assert!(memory.string(long.as_ptr().addr() as u64).is_err());
        assert!(memory.string(1).is_err() && memory.string(u64::MAX).is_err());
    }
}
