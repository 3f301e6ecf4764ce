#include "run/tokens/sample_text.h"

#include "base/printable.h"

namespace longhaul {
namespace {

// Bytes at the end of `text` that begin a character of UTF-8 and do not end it.
size_t UnfinishedBytes(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;  // it goes on with a character
    const size_t wanted = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return wanted > back ? back : 0;
  }
  return 0;
}

}  // namespace

std::string SampleText::Of(std::span<const uint32_t> ids) const {
  std::string bytes;
  for (const uint32_t id : ids) {
    if (pieces_) {
      bytes += pieces_->Of(id);
    } else if (id < 256) {
      bytes += static_cast<char>(id);
    }
  }
  bytes.resize(bytes.size() - UnfinishedBytes(bytes));
  return PrintableLines(bytes);
}

}  // namespace longhaul
