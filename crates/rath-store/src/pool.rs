//! Thread pools for work that uses several processors.

use rath_workspace::Pool;

/// Decompresses segments that were read. Separate from [`COMPRESSION_POOL`], so that readers do not wait for a large
/// write.
pub(crate) static DECOMPRESSION_POOL: Pool = Pool::new("rath-decompress", 0);

/// Compresses what is about to be written. The writer of a store waits for it, so a task in this pool must not wait for
/// a store.
pub(crate) static COMPRESSION_POOL: Pool = Pool::new("rath-compress", 0);
