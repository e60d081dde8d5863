use std::ops::Range;
use std::sync::Arc;

use tidefall_sync::atomic::{AtomicU64, Ordering};
use tidefall_types::{ErrorKind, Result};

use super::handles::Handles;
use super::names;
use super::{Disk, DiskEntry, DiskFile, ObjectIo, ObjectWriter, final_error};

/// Bytes that a streamed object gathers before they go to the disk: large enough that a write
/// costs little beside its bytes, small enough that a few writers fit any budget.
const WRITER_BUFFER_BYTES: usize = 2 << 20;

/// Objects as files of a [`Disk`].
///
/// An object is born in these steps, so that a crash after any of them leaves it whole or absent:
///
/// 1. create a file with a temporary name in the same directory, write it, fsync it;
/// 2. link it to its name, which fails if the name exists;
/// 3. remove the temporary name;
/// 4. fsync the directory.
#[derive(Debug, Clone)]
pub struct LocalIo {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    disk: Arc<dyn Disk>,
    handles: Handles,
    // Makes temporary names unique; there is one writing process at a time.
    next_temp: AtomicU64,
}

impl LocalIo {
    /// Objects on `disk`, to be written by this process into the directories `dirs` and those
    /// below. Removes what unfinished writers of a process that died have left there.
    ///
    /// # Errors
    /// `Io` when the disk fails.
    pub fn open(disk: Arc<dyn Disk>, dirs: &[&str]) -> Result<Self> {
        let io = Self::open_read_only(disk);
        for dir in dirs {
            match io.shared.disk.create_dir(dir) {
                // Its first object makes it.
                Err(error) if error.kind() == ErrorKind::Full => continue,
                made => made?,
            }
            for (name, _) in io.walk(dir)? {
                if name.ends_with(names::TEMP_SUFFIX) {
                    tracing::info!(%name, "removed an object that was never finished");
                    io.delete(&name)?;
                }
            }
            // A process that was killed may have left names that can be seen but are not durable
            // yet; nothing may be built on them before they are.
            io.shared.disk.sync_dir(dir)?;
        }
        Ok(io)
    }

    /// Objects on `disk`, only to be read by this process.
    pub fn open_read_only(disk: Arc<dyn Disk>) -> Self {
        let handles = Handles::default();
        Self { shared: Arc::new(Shared { disk, handles, next_temp: AtomicU64::new(0) }) }
    }

    fn start(&self, name: &str) -> Result<FileWriter> {
        let shared = &self.shared;
        let number = shared.next_temp.fetch_add(1, Ordering::Relaxed);
        let temp = format!("{name}.{number}{}", names::TEMP_SUFFIX);
        let file = match shared.disk.create(&temp) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                shared.disk.create_dir(names::parent(name))?;
                shared.disk.create(&temp)?
            }
            file => file?,
        };
        Ok(FileWriter {
            shared: Arc::clone(shared),
            name: name.into(),
            temp: Some(temp.into()),
            file,
            written: 0,
            buffer: Vec::new(),
        })
    }

    fn walk(&self, dir: &str) -> Result<Vec<(String, u64)>> {
        let mut found = Vec::new();
        let mut dirs = vec![dir.to_owned()];
        while let Some(dir) = dirs.pop() {
            for entry in self.shared.disk.list(&dir)? {
                match entry {
                    DiskEntry::Dir(name) => dirs.push(name),
                    DiskEntry::File { name, size_bytes } => found.push((name, size_bytes)),
                }
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    fn file(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        self.shared.handles.open(&*self.shared.disk, name)
    }
}

impl ObjectIo for LocalIo {
    fn put_new(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        let mut writer = self.start(name)?;
        for part in parts {
            writer.append(part)?;
        }
        writer.publish()
    }

    fn writer(&self, name: &str) -> Result<Box<dyn ObjectWriter>> {
        Ok(Box::new(self.start(name)?))
    }

    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>> {
        let file = self.file(name)?;
        let length = range.end.saturating_sub(range.start);
        let size = file.size()?;
        // The size is asked first, so that a damaged length does not ask for memory.
        if range.start.saturating_add(length) > size {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            return Err(super::local_disk::cut_short(name, range.start, length));
        }
        let mut bytes = vec![0; length as usize];
        file.read_at(range.start, &mut bytes)?;
        Ok(bytes)
    }

    /// Files that are read as a whole are not kept open: whoever reads one again asks what lies there now.
    fn read_all(&self, name: &str) -> Result<Vec<u8>> {
        let file = self.shared.disk.open(name)?;
        let mut bytes = vec![0; file.size()? as usize];
        file.read_at(0, &mut bytes)?;
        Ok(bytes)
    }

    fn read_into(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<()> {
        self.file(name)?.read_at(offset, out)
    }

    fn will_read(&self, name: &str, range: Range<u64>) {
        // Whoever reads will meet the error.
        if let Ok(file) = self.file(name) {
            file.will_read(range);
        }
    }

    fn size(&self, name: &str) -> Result<u64> {
        self.file(name)?.size()
    }

    fn list(&self, dir: &str) -> Result<Vec<(String, u64)>> {
        let mut found = self.walk(dir)?;
        found.retain(|(name, _)| !name.ends_with(names::TEMP_SUFFIX));
        Ok(found)
    }

    fn let_go(&self, name: &str) {
        self.shared.handles.forget(name);
    }

    fn delete(&self, name: &str) -> Result<()> {
        let removed = self.shared.disk.remove(name);
        self.shared.handles.forget(name);
        match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

#[derive(Debug)]
struct FileWriter {
    shared: Arc<Shared>,
    name: Box<str>,
    // None once the temporary name is gone.
    temp: Option<Box<str>>,
    file: Arc<dyn DiskFile>,
    // Bytes in the file; the buffer comes behind them.
    written: u64,
    buffer: Vec<u8>,
}

impl FileWriter {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_at(self.written, bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn write_buffer(&mut self) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        self.write(&buffer)?;
        buffer.clear();
        self.buffer = buffer;
        Ok(())
    }

    fn publish(mut self) -> Result<()> {
        self.write_buffer()?;
        self.file.sync().map_err(final_error)?;
        let disk = &self.shared.disk;
        if let Some(temp) = &self.temp {
            disk.link(temp, &self.name)?;
            // From here on the object exists, and no error may say that it does not.
            disk.remove(temp).map_err(final_error)?;
            self.temp = None;
        }
        disk.sync_dir(names::parent(&self.name)).map_err(final_error)
    }
}

impl ObjectWriter for FileWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if self.buffer.len() + bytes.len() > WRITER_BUFFER_BYTES {
            self.write_buffer()?;
        }
        if bytes.len() >= WRITER_BUFFER_BYTES {
            return self.write(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn bytes_written(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.publish()
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        let Some(temp) = &self.temp else { return };
        if let Err(error) = self.shared.disk.remove(temp) {
            // The next process that opens the database for writing removes it.
            tracing::warn!(%error, "an unfinished object stays behind");
        }
    }
}
