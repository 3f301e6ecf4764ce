// Any text as the description of a checkpoint in an object store: read or refused. What was read
// names no file outside its folder, and reads as it was written.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/fuzz/target.h"
#include "run/stored/stored_checkpoint.h"

LH_FUZZ_TARGET(stored_checkpoint) {
  using namespace longhaul;  // NOLINT(google-build-using-namespace)
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto checkpoint = stored::FromJson(text);
  if (!checkpoint.ok()) return false;
  for (const v1::CheckpointFile& file : checkpoint->manifest().files()) {
    if (file.name().find('/') != std::string::npos || file.name().front() == '.') std::abort();
    uint64_t bytes = 0;
    for (const stored::Piece& piece : stored::PiecesOf(file, checkpoint->piece_bytes())) {
      if (piece.offset != bytes) std::abort();
      bytes += piece.bytes;
    }
    if (bytes != file.bytes()) std::abort();
  }
  const auto again = stored::FromJson(stored::ToJson(*checkpoint));
  if (!again.ok() || stored::ToJson(*again) != stored::ToJson(*checkpoint)) std::abort();
  return true;
}
