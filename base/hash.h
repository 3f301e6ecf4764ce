// Checksums of network frames (xxHash) and content addresses of files (SHA-256). Functions are
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace longhaul {

// XXH3, 64 bits. Detects damage, not malice.
uint64_t Checksum64(std::span<const std::byte> bytes);
// Returns the checksum of `first` followed by `second`, without copying them together.
uint64_t Checksum64(std::span<const std::byte> first, std::span<const std::byte> second);

// Computes SHA-256 of bytes that come in pieces. Digests are 64 lower-case hexadecimal digits. For
// one thread at a time.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void Update(std::span<const std::byte> bytes);
  void Update(std::string_view text) { Update(std::as_bytes(std::span(text))); }
  // Returns the digest. Call HexDigest once, after the last Update.
  std::string HexDigest();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};
std::string Sha256Hex(std::string_view text);
// Errors: by errno; the message names the path.
StatusOr<std::string> Sha256HexOfFile(const std::string& path);
// True if `text` is 64 lower-case hexadecimal digits.
bool IsSha256Hex(std::string_view text);

// Returns the HMAC-SHA-256 as 32 raw bytes.
std::string HmacSha256(std::string_view key, std::string_view message);
// Compares two texts, such as secrets, in a time that does not depend on where they differ.
bool ConstantTimeEqual(std::string_view a, std::string_view b);

}  // namespace longhaul
