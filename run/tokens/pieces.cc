#include "run/tokens/pieces.h"

#include <cstddef>
#include <cstring>

namespace longhaul {
namespace {

constexpr std::string_view kPiecesMagic = "LHPIECES";
constexpr uint32_t kVersion = 1;
constexpr size_t kHeader = 16;

void Put(uint32_t value, std::string* out) {
  for (int i = 0; i < 4; ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

uint32_t Get(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) {
    value |= uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  }
  return value;
}

}  // namespace

std::string TokenPieces::Encode(const std::vector<std::string>& pieces) {
  std::string out(kPiecesMagic);
  Put(kVersion, &out);
  Put(static_cast<uint32_t>(pieces.size()), &out);
  uint32_t end = 0;
  for (const std::string& piece : pieces) Put(end += static_cast<uint32_t>(piece.size()), &out);
  for (const std::string& piece : pieces) out += piece;
  return out;
}

StatusOr<TokenPieces> TokenPieces::Parse(std::string file) {
  if (file.size() > kMostPieceTableBytes) {
    return InvalidArgument("expected a table of tokens of at most {} bytes, got {}",
                           kMostPieceTableBytes, file.size());
  }
  if (file.size() < kHeader || !file.starts_with(kPiecesMagic) || Get(file, 8) != kVersion) {
    return absl::InvalidArgumentError("expected a table of tokens, which begins with LHPIECES");
  }
  const uint32_t count = Get(file, 12);
  const size_t bytes_from = kHeader + 4 * size_t{count};
  if (count > kMostPieces || file.size() < bytes_from) {
    return InvalidArgument("a table of {} tokens does not fit in {} bytes", count, file.size());
  }
  uint32_t before = 0;
  for (uint32_t id = 0; id < count; ++id) {
    const uint32_t end = Get(file, kHeader + 4 * size_t{id});
    if (end < before || end > file.size() - bytes_from) {
      return InvalidArgument("token {} of a table ends at {} of {} bytes, the one before at {}", id,
                             end, file.size() - bytes_from, before);
    }
    before = end;
  }
  return TokenPieces(std::move(file), count);
}

uint32_t TokenPieces::EndOf(uint32_t id) const {
  return Get(file_, kHeader + 4 * size_t{id});
}

std::string_view TokenPieces::Of(uint32_t id) const {
  if (id >= count_) return "";
  const uint32_t begin = id == 0 ? 0 : EndOf(id - 1);
  return std::string_view(file_).substr(kHeader + 4 * size_t{count_} + begin, EndOf(id) - begin);
}

}  // namespace longhaul
