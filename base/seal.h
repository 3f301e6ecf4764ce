// Authenticated encryption between two sides that share a secret: keys by X25519, messages by
// AES-256-GCM.
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

// A key pair for one conversation. Its public half is 32 unpredictable bytes.
class EphemeralKey {
 public:
  EphemeralKey();
  ~EphemeralKey();
  EphemeralKey(EphemeralKey&&) noexcept;
  EphemeralKey& operator=(EphemeralKey&&) noexcept;

  const std::string& public_key() const { return public_key_; }
  // Returns the 32-byte secret that only the two sides can compute. kInvalidArgument: not a public
  // key, or a key with the same result for every peer.
  StatusOr<std::string> Agree(std::string_view peer_public_key) const;

 private:
  struct Key;
  std::unique_ptr<Key> key_;
  std::string public_key_;
};

// One direction of a conversation, at either end. Both ends count messages: a message that was
// lost, repeated, reordered or changed does not open.
class Sealer {
 public:
  explicit Sealer(std::string_view key);  // kSealKeyBytes
  ~Sealer();
  Sealer(const Sealer&) = delete;
  Sealer& operator=(const Sealer&) = delete;

  // Encrypts the next message, `head` followed by `body`, into `out` of the same length. `open`
  // stays readable and is authenticated as well.
  void Seal(std::span<const std::byte> open, std::span<const std::byte> head,
            std::span<const std::byte> body, std::byte* out,
            std::span<std::byte, kSealTagBytes> tag);
  // False: it is not the next message from the other end. Then `out` is unusable, and no later
  // message opens. `out` is as long as `sealed`.
  bool Open(std::span<const std::byte> open, std::span<const std::byte> sealed,
            std::span<const std::byte, kSealTagBytes> tag, std::byte* out);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
  uint64_t next_ = 0;
};

}  // namespace longhaul
