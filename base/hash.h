// Checksums of frames (xxHash) and content addresses of files (SHA-256).
#ifndef LONGHAUL_BASE_HASH_H_
#define LONGHAUL_BASE_HASH_H_

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
// Of the concatenation of two ranges (a header and its payload), without copying them together.
uint64_t Checksum64(std::span<const std::byte> first, std::span<const std::byte> second);

// SHA-256 as 64 lower-case hexadecimal digits.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void Update(std::span<const std::byte> bytes);
  void Update(std::string_view text) { Update(std::as_bytes(std::span(text))); }
  // Once.
  std::string HexDigest();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};
std::string Sha256Hex(std::string_view text);
StatusOr<std::string> Sha256HexOfFile(const std::string& path);
// True for 64 lower-case hexadecimal digits: what may be used as a file name of a blob.
bool IsSha256Hex(std::string_view text);

// HMAC-SHA-256, 32 bytes.
std::string HmacSha256(std::string_view key, std::string_view message);
// Compares without telling by its time where the two differ.
bool ConstantTimeEqual(std::string_view a, std::string_view b);

}  // namespace longhaul

#endif  // LONGHAUL_BASE_HASH_H_
