#include "base/seal.h"

#include <openssl/evp.h>

#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace longhaul {
namespace {

constexpr size_t kIvBytes = 12;

template <auto Free>
struct Freer {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using KeyPtr = std::unique_ptr<EVP_PKEY, Freer<&EVP_PKEY_free>>;
using KeyContextPtr = std::unique_ptr<EVP_PKEY_CTX, Freer<&EVP_PKEY_CTX_free>>;
using CipherPtr = std::unique_ptr<EVP_CIPHER_CTX, Freer<&EVP_CIPHER_CTX_free>>;

const unsigned char* Bytes(const void* data) {
  return static_cast<const unsigned char*>(data);
}
unsigned char* Bytes(void* data) {
  return static_cast<unsigned char*>(data);
}

// The number of a message is in no message.
std::array<unsigned char, kIvBytes> IvOf(uint64_t number) {
  std::array<unsigned char, kIvBytes> iv{};
  for (size_t i = 0; i < sizeof(number); ++i) {
    iv[kIvBytes - 1 - i] = static_cast<unsigned char>(number >> (8 * i));
  }
  return iv;
}

}  // namespace

struct EphemeralKey::Key {
  KeyPtr pair;
};

EphemeralKey::EphemeralKey() : key_(std::make_unique<Key>()), public_key_(kPublicKeyBytes, '\0') {
  key_->pair.reset(EVP_PKEY_Q_keygen(nullptr, nullptr, "X25519"));
  size_t size = public_key_.size();
  LH_CHECK(key_->pair &&
               EVP_PKEY_get_raw_public_key(key_->pair.get(), Bytes(public_key_.data()), &size) == 1,
           "OpenSSL has no X25519");
}
EphemeralKey::~EphemeralKey() = default;
EphemeralKey::EphemeralKey(EphemeralKey&&) noexcept = default;
EphemeralKey& EphemeralKey::operator=(EphemeralKey&&) noexcept = default;

StatusOr<std::string> EphemeralKey::Agree(std::string_view peer_public_key) const {
  const KeyPtr peer(EVP_PKEY_new_raw_public_key(
      EVP_PKEY_X25519, nullptr, Bytes(peer_public_key.data()), peer_public_key.size()));
  const KeyContextPtr context(EVP_PKEY_CTX_new(key_->pair.get(), nullptr));
  std::string agreed(kSealKeyBytes, '\0');
  size_t size = agreed.size();
  // It fails where the result is zero, as with the few points that have it with everybody.
  if (!peer || !context || EVP_PKEY_derive_init(context.get()) != 1 ||
      EVP_PKEY_derive_set_peer(context.get(), peer.get()) != 1 ||
      EVP_PKEY_derive(context.get(), Bytes(agreed.data()), &size) != 1 || size != agreed.size()) {
    return absl::InvalidArgumentError("the peer's public key is none");
  }
  return agreed;
}

struct Sealer::Context {
  CipherPtr cipher;
};

Sealer::Sealer(std::string_view key) : context_(std::make_unique<Context>()) {
  LH_CHECK(key.size() == kSealKeyBytes, "a key has {} bytes, not {}", kSealKeyBytes, key.size());
  context_->cipher.reset(EVP_CIPHER_CTX_new());
  LH_CHECK(context_->cipher && EVP_CipherInit_ex(context_->cipher.get(), EVP_aes_256_gcm(), nullptr,
                                                 Bytes(key.data()), nullptr, 1) == 1,
           "OpenSSL has no AES-256-GCM");
}
Sealer::~Sealer() = default;

void Sealer::Seal(std::span<const std::byte> open, std::span<const std::byte> head,
                  std::span<const std::byte> body, std::byte* out,
                  std::span<std::byte, kSealTagBytes> tag) {
  EVP_CIPHER_CTX* const cipher = context_->cipher.get();
  int written = 0;
  bool done = EVP_EncryptInit_ex(cipher, nullptr, nullptr, nullptr, IvOf(next_++).data()) == 1;
  const auto update = [&](std::byte* to, std::span<const std::byte> from) {
    if (from.empty()) return;
    done = done && EVP_EncryptUpdate(cipher, to == nullptr ? nullptr : Bytes(to), &written,
                                     Bytes(from.data()), static_cast<int>(from.size())) == 1;
  };
  update(nullptr, open);
  update(out, head);
  update(out + head.size(), body);
  std::array<unsigned char, 16> nothing;
  done = done && EVP_EncryptFinal_ex(cipher, nothing.data(), &written) == 1 &&
         EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_GET_TAG, kSealTagBytes, tag.data()) == 1;
  LH_CHECK(done, "OpenSSL cannot encrypt");
}

bool Sealer::Open(std::span<const std::byte> open, std::span<const std::byte> sealed,
                  std::span<const std::byte, kSealTagBytes> tag, std::byte* out) {
  EVP_CIPHER_CTX* const cipher = context_->cipher.get();
  int written = 0;
  bool done = EVP_DecryptInit_ex(cipher, nullptr, nullptr, nullptr, IvOf(next_++).data()) == 1;
  const auto update = [&](std::byte* to, std::span<const std::byte> from) {
    if (from.empty()) return;
    done = done && EVP_DecryptUpdate(cipher, to == nullptr ? nullptr : Bytes(to), &written,
                                     Bytes(from.data()), static_cast<int>(from.size())) == 1;
  };
  update(nullptr, open);
  update(out, sealed);
  std::array<std::byte, kSealTagBytes> expected;
  std::memcpy(expected.data(), tag.data(), tag.size());
  std::array<unsigned char, 16> nothing;
  return done &&
         EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_SET_TAG, kSealTagBytes, expected.data()) == 1 &&
         EVP_DecryptFinal_ex(cipher, nothing.data(), &written) == 1;
}

}  // namespace longhaul
