#include "codec/messages/memory_store.h"

namespace longhaul::codec {

StatusOr<std::span<std::byte>> MemoryStore::Write(Step /*step*/, uint64_t sample) {
  records_[sample].EnsureSize(record_bytes_);
  return records_[sample].span();
}

}  // namespace longhaul::codec
