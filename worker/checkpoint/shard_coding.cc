#include "worker/checkpoint/shard_coding.h"

#include <zstd.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>

namespace longhaul::worker {
namespace {

static_assert(std::endian::native == std::endian::little);

// More finds little more: exponents are no text.
constexpr int kZstdLevel = 1;
constexpr size_t kWordBytes = sizeof(uint32_t);
constexpr size_t kMantissaBytes = 3;

uint32_t WordAt(const std::byte* bytes) {
  uint32_t word = 0;
  std::memcpy(&word, bytes, kWordBytes);
  return word;
}

void PutWord(uint32_t word, std::byte* bytes) {
  std::memcpy(bytes, &word, kWordBytes);
}

std::optional<std::vector<std::byte>> Unzip(std::span<const std::byte> frame, size_t bytes) {
  std::vector<std::byte> out(bytes);
  const size_t got = ZSTD_decompress(out.data(), out.size(), frame.data(), frame.size());
  if (ZSTD_isError(got) != 0 || got != bytes) return std::nullopt;
  return out;
}

Status NoBlock(const char* why) {
  return DataLoss("not a block of a shard: {}", why);
}

// What follows the header.
Status DecodeBlock(std::span<const std::byte> body, size_t raw_bytes, std::vector<std::byte>* out) {
  if (body.size() == raw_bytes) {
    out->insert(out->end(), body.begin(), body.end());
    return absl::OkStatus();
  }
  const size_t words = raw_bytes / kWordBytes, left = raw_bytes % kWordBytes;
  const size_t plain = words * kMantissaBytes + left;
  if (body.size() <= plain) return NoBlock("it is shorter than its numbers' mantissas");
  const auto exponents = Unzip(body.first(body.size() - plain), words);
  if (!exponents) return NoBlock("its exponents are no frame of Zstandard, or too many or too few");
  const std::byte* mantissa = body.data() + (body.size() - plain);
  const size_t begin = out->size();
  out->resize(begin + raw_bytes);
  std::byte* to = out->data() + begin;
  for (size_t i = 0; i < words; ++i, mantissa += kMantissaBytes, to += kWordBytes) {
    uint32_t turned = static_cast<uint32_t>((*exponents)[i]) << 24;
    std::memcpy(&turned, mantissa, kMantissaBytes);
    PutWord(std::rotr(turned, 1), to);
  }
  std::memcpy(to, mantissa, left);
  return absl::OkStatus();
}

}  // namespace

std::string EncodeShardBlock(std::span<const std::byte> raw) {
  const size_t words = raw.size() / kWordBytes, left = raw.size() % kWordBytes;
  std::vector<std::byte> exponents(words);
  std::vector<std::byte> plain(words * kMantissaBytes + left);
  for (size_t i = 0; i < words; ++i) {
    // The sign goes to the other end, which leaves the exponent a byte of its own.
    const uint32_t turned = std::rotl(WordAt(raw.data() + i * kWordBytes), 1);
    exponents[i] = static_cast<std::byte>(turned >> 24);
    std::memcpy(plain.data() + i * kMantissaBytes, &turned, kMantissaBytes);
  }
  std::memcpy(plain.data() + words * kMantissaBytes, raw.data() + words * kWordBytes, left);

  std::string block(kShardBlockHeaderBytes + ZSTD_compressBound(words), '\0');
  const size_t zipped =
      ZSTD_compress(block.data() + kShardBlockHeaderBytes, block.size() - kShardBlockHeaderBytes,
                    exponents.data(), words, kZstdLevel);
  size_t body = zipped + plain.size();
  if (ZSTD_isError(zipped) != 0 || body >= raw.size()) {
    body = raw.size();
    block.resize(kShardBlockHeaderBytes);
    block.append(reinterpret_cast<const char*>(raw.data()), raw.size());
  } else {
    block.resize(kShardBlockHeaderBytes + zipped);
    block.append(reinterpret_cast<const char*>(plain.data()), plain.size());
  }
  auto* header = reinterpret_cast<std::byte*>(block.data());
  PutWord(static_cast<uint32_t>(raw.size()), header);
  PutWord(static_cast<uint32_t>(body), header + kWordBytes);
  return block;
}

Status ShardDecoder::Take(std::span<const std::byte> coded, std::vector<std::byte>* out) {
  pending_.insert(pending_.end(), coded.begin(), coded.end());
  std::span<const std::byte> left = pending_;
  while (left.size() >= kShardBlockHeaderBytes) {
    const size_t raw = WordAt(left.data()), body = WordAt(left.data() + kWordBytes);
    if (raw == 0 || raw > kShardBlockBytes) return NoBlock("of a length that no block has");
    if (body == 0 || body > raw) return NoBlock("it is longer than what it stands for");
    if (left.size() - kShardBlockHeaderBytes < body) break;
    LH_RETURN_IF_ERROR(DecodeBlock(left.subspan(kShardBlockHeaderBytes, body), raw, out));
    left = left.subspan(kShardBlockHeaderBytes + body);
  }
  pending_.erase(pending_.begin(), pending_.end() - static_cast<std::ptrdiff_t>(left.size()));
  return absl::OkStatus();
}

}  // namespace longhaul::worker
