// Authenticated encryption between two sides. The sides agree on a secret by X25519, and encrypt
// messages by AES-256-GCM. If OpenSSL lacks the first, or libipsec-mb the second, the process
// aborts.
//
// Threads: one at a time per object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace longhaul {

inline constexpr size_t kSealKeyBytes = 32;
inline constexpr size_t kSealTagBytes = 16;
inline constexpr size_t kPublicKeyBytes = 32;

// A key pair for one conversation. The public key is 32 unpredictable bytes.
class EphemeralKey {
 public:
  EphemeralKey();
  ~EphemeralKey();
  EphemeralKey(EphemeralKey&&) noexcept;
  EphemeralKey& operator=(EphemeralKey&&) noexcept;

  const std::string& public_key() const { return public_key_; }
  // Returns the secret that only the two sides can compute, as 32 raw bytes. kInvalidArgument:
  // `peer_public_key` is not a public key, or it gives the same secret with every key.
  StatusOr<std::string> Agree(std::string_view peer_public_key) const;

 private:
  struct Key;
  std::unique_ptr<Key> key_;
  std::string public_key_;
};

// Seals (encrypts) or opens (decrypts) the messages of one direction of a conversation. The sender
// and the receiver have a Sealer each, with the same key; one only seals, the other only opens.
// Both count the messages, so a message that was repeated, reordered or changed, or follows a lost
// one, does not open. A key must serve one direction of one conversation only.
class Sealer {
 public:
  // `key` must have kSealKeyBytes bytes; is copied, and wiped at the end.
  explicit Sealer(std::string_view key);
  ~Sealer();
  Sealer(const Sealer&) = delete;
  Sealer& operator=(const Sealer&) = delete;

  // Encrypts the next message, `head` followed by `body`, to `out`, which has room for both. Writes
  // the authentication tag to `tag`. The tag also covers `open`, bytes that are sent unencrypted.
  void Seal(std::span<const std::byte> open, std::span<const std::byte> head,
            std::span<const std::byte> body, std::byte* out,
            std::span<std::byte, kSealTagBytes> tag);
  // Decrypts the next message, `sealed`, to `out`, which is as long as `sealed`. False: `open`,
  // `sealed` and `tag` are not the next message that the other end sealed. Then the contents of
  // `out` are unusable, and the conversation must end.
  bool Open(std::span<const std::byte> open, std::span<const std::byte> sealed,
            std::span<const std::byte, kSealTagBytes> tag, std::byte* out);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
  uint64_t next_ = 0;
};

}  // namespace longhaul
