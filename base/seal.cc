#include "base/seal.h"

#include <intel-ipsec-mb.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <array>
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

// The cipher's functions for this processor; lives as long as the process. Not OpenSSL's: version
// 3.0 encrypts one block of AES an instruction, these encrypt four where the processor can.
IMB_MGR& Gcm() {
  static IMB_MGR* const manager = [] {
    IMB_MGR* made = alloc_mb_mgr(0);
    LH_CHECK(made != nullptr, "there is no memory for libipsec-mb's functions");
    init_mb_mgr_auto(made, nullptr);
    LH_CHECK(imb_get_errno(made) == 0, "libipsec-mb cannot be used: {}",
             imb_get_strerror(imb_get_errno(made)));
    return made;
  }();
  return *manager;
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
  gcm_key_data key;  // expanded for the functions of Gcm()
};

Sealer::Sealer(std::string_view key) : context_(std::make_unique<Context>()) {
  LH_CHECK(key.size() == kSealKeyBytes, "a key has {} bytes, not {}", kSealKeyBytes, key.size());
  IMB_AES256_GCM_PRE(&Gcm(), key.data(), &context_->key);
}
Sealer::~Sealer() {
  OPENSSL_cleanse(context_.get(), sizeof(Context));
}

void Sealer::Seal(std::span<const std::byte> open, std::span<const std::byte> head,
                  std::span<const std::byte> body, std::byte* out,
                  std::span<std::byte, kSealTagBytes> tag) {
  gcm_context_data message;
  IMB_AES256_GCM_INIT(&Gcm(), &context_->key, &message, IvOf(next_++).data(), Bytes(open.data()),
                      open.size());
  const auto update = [&](std::byte* to, std::span<const std::byte> from) {
    if (from.empty()) return;
    IMB_AES256_GCM_ENC_UPDATE(&Gcm(), &context_->key, &message, Bytes(to), Bytes(from.data()),
                              from.size());
  };
  update(out, head);
  update(out + head.size(), body);
  IMB_AES256_GCM_ENC_FINALIZE(&Gcm(), &context_->key, &message, Bytes(tag.data()), tag.size());
}

bool Sealer::Open(std::span<const std::byte> open, std::span<const std::byte> sealed,
                  std::span<const std::byte, kSealTagBytes> tag, std::byte* out) {
  gcm_context_data message;
  IMB_AES256_GCM_INIT(&Gcm(), &context_->key, &message, IvOf(next_++).data(), Bytes(open.data()),
                      open.size());
  if (!sealed.empty()) {
    IMB_AES256_GCM_DEC_UPDATE(&Gcm(), &context_->key, &message, Bytes(out), Bytes(sealed.data()),
                              sealed.size());
  }
  std::array<unsigned char, kSealTagBytes> expected;
  IMB_AES256_GCM_DEC_FINALIZE(&Gcm(), &context_->key, &message, expected.data(), expected.size());
  return CRYPTO_memcmp(expected.data(), tag.data(), tag.size()) == 0;
}

}  // namespace longhaul
