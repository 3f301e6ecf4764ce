#include "base/hash.h"

#include <fmt/core.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <xxhash.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <vector>

#include "absl/strings/escaping.h"

namespace longhaul {

uint64_t Checksum64(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

uint64_t Checksum64(std::span<const std::byte> first, std::span<const std::byte> second) {
  // 576 bytes of state; one a thread, so that no frame allocates.
  thread_local const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(
      XXH3_createState(), &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  XXH3_64bits_update(state.get(), first.data(), first.size());
  XXH3_64bits_update(state.get(), second.data(), second.size());
  return XXH3_64bits_digest(state.get());
}

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr);
}
Sha256::~Sha256() = default;

void Sha256::Update(std::span<const std::byte> bytes) {
  EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size());
}

std::string Sha256::HexDigest() {
  std::array<unsigned char, 32> digest;
  EVP_DigestFinal_ex(context_->evp, digest.data(), nullptr);
  return absl::BytesToHexString(
      std::string(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

std::string Sha256Hex(std::string_view text) {
  Sha256 hash;
  hash.Update(text);
  return hash.HexDigest();
}

StatusOr<std::string> Sha256HexOfFile(const std::string& path) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                       &std::fclose);
  if (!file) return FromErrno(fmt::format("cannot open {}", path), errno);
  Sha256 hash;
  std::vector<std::byte> buffer(1 << 20);
  while (size_t n = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    hash.Update(std::span(buffer.data(), n));
  }
  if (std::ferror(file.get()) != 0) return FromErrno(fmt::format("cannot read {}", path), errno);
  return hash.HexDigest();
}

bool IsSha256Hex(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string HmacSha256(std::string_view key, std::string_view message) {
  std::array<unsigned char, 32> digest;
  unsigned int size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(message.data()), message.size(), digest.data(),
       &size);
  return std::string(reinterpret_cast<const char*>(digest.data()), size);
}

bool ConstantTimeEqual(std::string_view a, std::string_view b) {
  // Compares digests rather than the strings, so that the time does not tell the strings' lengths.
  const std::string left = Sha256Hex(a), right = Sha256Hex(b);
  return CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

}  // namespace longhaul
